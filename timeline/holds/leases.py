"""Leases that protect snapshots from cleaning.

A reader writes its lease, then reads the head, then reads files. Cleaning writes its slot, then reads the leases, then
deletes files. Therefore, either cleaning finds the lease, or the reader finds the cleaning. A lease stores its
duration, and only the store's clock determines its end.
"""

from __future__ import annotations

import json
from contextlib import suppress

from hoodoo.errors import CorruptTable, OptionError, SnapshotExpired, StoreUnavailable
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.history import History
from hoodoo.timeline.layout import LEASES
from hoodoo.timeline.slots.slot import strict_json
from hoodoo.timeline.views.view import View

HOURS_MAX = 168.0
"""Maximum duration of a lease without renewal, in hours."""
_CLOCK = LEASES + "clock"  # written to get the time of the store's clock
_HOUR_MS = 3_600_000
# cleaning respects a lease for this time after its end, to allow for clocks of different speed
_GRACE_MS = 60_000
_FUTURE_MS = 300_000  # a lease from further in the future is invalid


class Lease:
    """Lease that protects a snapshot from cleaning.

    The duration starts when the lease is taken or renewed.
    """

    def __init__(self, store: Store, environment: Environment, seq: int, hours: float) -> None:
        self.store, self.environment, self.seq = store, environment, seq
        self.key = LEASES + environment.token()
        self.renew(hours)

    def renew(self, hours: float) -> None:
        if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 < hours <= HOURS_MAX:
            raise OptionError(
                (
                    f"Option hours must be a positive number up to {HOURS_MAX:g}, got {printable(hours)}. Use "
                    "savepoints.create() to keep a snapshot for longer."
                ),
                option="hours",
            )
        began = (
            self.environment.elapsed()
        )  # before the write, so that the lease ends earlier in this process than in the store
        self.store.put(self.key, json.dumps({"hours": hours, "seq": self.seq}).encode())
        self.ends = began + hours * 3600

    @property
    def expired(self) -> bool:
        return self.environment.elapsed() >= self.ends

    def require(self) -> None:
        if self.expired:
            raise SnapshotExpired(
                f"The pin of slot {self.seq} has expired. Pin the snapshot again, and call renew() before it ends.",
                position=self.seq,
            )

    def release(self) -> None:
        """Release the snapshot, so that cleaning may delete it.

        If the store does not respond, no error is raised, because the lease expires.
        """
        self.ends = self.environment.elapsed()
        with suppress(StoreUnavailable):
            self.store.delete(self.key)


def take_lease(history: History, environment: Environment, seq: int, hours: float) -> tuple[Lease, View]:
    """Take a lease, which protects a snapshot from cleaning.

    Raises SnapshotExpired if the snapshot was cleaned before.
    """
    lease = Lease(history.store, environment, seq, hours)
    try:
        history.head()
        return lease, history.view(seq)
    except BaseException:
        lease.release()
        raise


def list_protected_commits(store: Store) -> set[int]:
    """List the commits with protected snapshots.

    Expired leases are deleted.
    """
    keys = [key for key, _ in store.list(LEASES) if key != _CLOCK]
    if not keys:
        return set()
    store.put(_CLOCK, b"")
    now_ms = store.modified_ms(_CLOCK) or 0
    slots = set()
    for key in keys:
        at, terms = store.modified_ms(key), _read_lease(store, key)
        if at is None or terms is None:
            continue
        seq, hours = terms
        ends = at + int(min(hours, HOURS_MAX) * _HOUR_MS) + _GRACE_MS
        if now_ms < ends and at <= now_ms + _FUTURE_MS:
            slots.add(seq)
        elif now_ms > ends + _HOUR_MS:
            store.delete(key)
    return slots


def _read_lease(store: Store, key: str) -> tuple[int, float] | None:
    try:
        body = strict_json(store.get(key), key)
        return int(body["seq"]), float(body["hours"])
    except (FileNotFoundError, CorruptTable, KeyError, TypeError, ValueError):
        return None
