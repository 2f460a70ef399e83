"""Working beside Apache Hudi's own writers: its file-system lock, and a heartbeat that it believes (docs/format.md 13).

Needed only where the table's option hudi_writers says that such writers run at the same time. Among our writers nothing
rests on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hoodoo.errors import HoodooError, LockHeld
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import HUDI_HEARTBEATS, HUDI_LOCK

log = logging.getLogger("hoodoo.timeline")
_BEAT_S = 20.0  # Hudi takes a heartbeat of twice its own interval, 60 s, for dead
_STALE_MS = 120_000  # a lock of ours that is older than this belongs to a process that died: we hold it for moments
_OURS = b"hoodoo "


@contextmanager
def hudi_lock(store: Store, environment: Environment, patience_s: float) -> Iterator[None]:
    """Hold Hudi's lock. Raises LockHeld when somebody else holds it for longer than `patience_s`."""
    mine = _OURS + environment.token().encode()
    deadline = environment.elapsed() + patience_s
    while not _take(store, mine):
        if environment.elapsed() > deadline:
            raise LockHeld(
                (
                    f"Apache Hudi's lock {HUDI_LOCK} has been held for {patience_s:g} s. If no Hudi writer is "
                    "running, delete the file. Otherwise, write again."
                ),
                file=HUDI_LOCK,
            )
        _drop_stale(store)
        environment.sleep(0.1 + environment.fraction() * 0.2)
    try:
        yield
    finally:
        _release(store, mine)


def _take(store: Store, mine: bytes) -> bool:
    try:
        store.create(HUDI_LOCK, mine, durable=False)
    except FileExistsError:
        return _holder(store) == mine  # a reply was lost, the lock is ours
    return True


def _holder(store: Store) -> bytes:
    try:
        return store.get(HUDI_LOCK)
    except FileNotFoundError:
        return b""


def _drop_stale(store: Store) -> None:
    """Take away what a process of ours left behind a crash; never Hudi's."""
    at, clock = store.modified_ms(HUDI_LOCK), f"{HUDI_LOCK}.clock"
    if at is None or not _holder(store).startswith(_OURS):
        return
    store.put(clock, b"")
    now = store.modified_ms(clock)
    store.delete(clock)
    if now is not None and now - at > _STALE_MS:
        store.delete(HUDI_LOCK)


def _release(store: Store, mine: bytes) -> None:
    try:
        if _holder(store) == mine:
            store.delete(HUDI_LOCK)
    except HoodooError as problem:
        log.warning("the lock %s could not be released: %s", HUDI_LOCK, problem)


class Heartbeat:
    """Keeps `.hoodie/.heartbeat/<instant>` fresh from a thread of its own until stop()."""

    def __init__(self, store: Store, instant: str) -> None:
        self.store, self.key = store, f"{HUDI_HEARTBEATS}{instant}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {instant}", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stopped.wait(_BEAT_S):
            try:
                self.store.put(self.key, b"")
            except HoodooError as problem:
                log.warning("heartbeat %s: %s", self.key, problem)

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._stopped.set()
        self._thread.join()
