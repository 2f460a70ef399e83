"""Leases: a reader says for how long it needs a snapshot, and no clean deletes a file of it meanwhile.

A reader writes its lease, then looks at the head, then reads; a clean takes its slot, then looks for leases, then
deletes. So either the clean sees the lease or the reader sees the clean. Ends are judged by the store's clock alone:
what a lease says about time is how long it lasts, and that is capped.
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
"""No lease outlasts a week without being renewed, whatever it says."""
_CLOCK = LEASES + "clock"  # written to learn what time the store has
_HOUR_MS = 3_600_000
# a clean honours a lease for this long beyond its end, so that clocks that run at different speeds do no harm
_GRACE_MS = 60_000
_FUTURE_MS = 300_000  # a lease from further in the future than this was not written by a reader


class Lease:
    """One reader's hold on the snapshot at slot `seq`; the clock of its end starts when it is taken or renewed."""

    def __init__(self, store: Store, environment: Environment, seq: int, hours: float) -> None:
        self.store, self.environment, self.seq = store, environment, seq
        self.key = LEASES + environment.token()
        self.renew(hours)

    def renew(self, hours: float) -> None:
        """Hold on for `hours` from now. Raises OptionError."""
        if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 < hours <= HOURS_MAX:
            raise OptionError(
                (
                    f"hours must be a number up to {HOURS_MAX:g}, got {printable(hours)}. Use savepoint() to "
                    "keep a snapshot for longer."
                ),
                option="hours",
            )
        began = self.environment.elapsed()  # before the write: the store's count starts later, so ours ends first
        self.store.put(self.key, json.dumps({"hours": hours, "seq": self.seq}).encode())
        self.ends = began + hours * 3600

    @property
    def expired(self) -> bool:
        """Whether the lease has ended by this process's clock."""
        return self.environment.elapsed() >= self.ends

    def require(self) -> None:
        """Raise SnapshotExpired once the lease has ended or was given back."""
        if self.expired:
            raise SnapshotExpired(
                f"The pin of the snapshot at slot {self.seq} has expired. Pin it again, and call renew() in time.",
                position=self.seq,
            )

    def release(self) -> None:
        """Give the snapshot back. That the store does not answer is no failure of what the snapshot was held for: the
        lease ends by itself.
        """
        self.ends = self.environment.elapsed()
        with suppress(StoreUnavailable):
            self.store.delete(self.key)


def take(history: History, environment: Environment, seq: int, hours: float) -> tuple[Lease, View]:
    """A lease on the snapshot at slot `seq`, and the view of it. Raises SnapshotExpired if a clean was faster."""
    lease = Lease(history.store, environment, seq, hours)
    try:
        history.head()
        return lease, history.view(seq)
    except BaseException:
        lease.release()
        raise


def held(store: Store) -> set[int]:
    """Slots that living leases hold now, by the store's clock; leases long over are deleted."""
    found = [key for key, _ in store.list(LEASES) if key != _CLOCK]
    if not found:
        return set()
    store.put(_CLOCK, b"")
    now_ms = store.modified_ms(_CLOCK) or 0
    slots = set()
    for key in found:
        at, terms = store.modified_ms(key), _terms(store, key)
        if at is None or terms is None:
            continue
        seq, hours = terms
        ends = at + int(min(hours, HOURS_MAX) * _HOUR_MS) + _GRACE_MS
        if now_ms < ends and at <= now_ms + _FUTURE_MS:
            slots.add(seq)
        elif now_ms > ends + _HOUR_MS:
            store.delete(key)
    return slots


def _terms(store: Store, key: str) -> tuple[int, float] | None:
    """(slot, hours) of a lease; None if it is gone or no reader wrote it."""
    try:
        body = strict_json(store.get(key), key)
        return int(body["seq"]), float(body["hours"])
    except (FileNotFoundError, CorruptTable, KeyError, TypeError, ValueError):
        return None
