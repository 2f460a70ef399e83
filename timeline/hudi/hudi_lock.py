"""Lock for concurrent writes by hoodoo and Apache Hudi.

See docs/format.md 13. The lock is only used if the table option hudi_writers is set. hoodoo's own writers do not rely
on it.
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
_BEAT_S = 20.0  # Hudi treats a heartbeat older than twice its interval of 60 s as dead
_STALE_MS = 120_000  # an older hoodoo lock belongs to a dead process, because a lock is held only for moments
_OURS = b"hoodoo "


@contextmanager
def hudi_lock(store: Store, environment: Environment, patience_seconds: float) -> Iterator[None]:
    content = _OURS + environment.token().encode()
    deadline = environment.elapsed() + patience_seconds
    while not _take(store, content):
        if environment.elapsed() > deadline:
            raise LockHeld(
                (
                    f"Apache Hudi's lock {HUDI_LOCK} has been held for {patience_seconds:g} s. If no Hudi writer is "
                    "running, delete the file. Otherwise, write again."
                ),
                file=HUDI_LOCK,
            )
        _delete_stale_lock(store)
        environment.sleep(0.1 + environment.fraction() * 0.2)
    try:
        yield
    finally:
        _release(store, content)


def _take(store: Store, content: bytes) -> bool:
    try:
        store.create(HUDI_LOCK, content, durable=False)
    except FileExistsError:
        return _holder(store) == content  # this process created the lock, but the response was lost
    return True


def _holder(store: Store) -> bytes:
    try:
        return store.get(HUDI_LOCK)
    except FileNotFoundError:
        return b""


def _delete_stale_lock(store: Store) -> None:
    # Locks of Hudi's own writers are never deleted.
    locked_at, clock = store.modified_ms(HUDI_LOCK), f"{HUDI_LOCK}.clock"
    if locked_at is None or not _holder(store).startswith(_OURS):
        return
    store.put(clock, b"")
    now = store.modified_ms(clock)
    store.delete(clock)
    if now is not None and now - locked_at > _STALE_MS:
        store.delete(HUDI_LOCK)


def _release(store: Store, content: bytes) -> None:
    try:
        if _holder(store) == content:
            store.delete(HUDI_LOCK)
    except HoodooError as problem:
        log.warning("failed to release Hudi's lock %s: %s", HUDI_LOCK, problem)


class Heartbeat:
    """Heartbeat thread that keeps a write from being rolled back."""

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
                log.warning("failed to write the heartbeat %s: %s", self.key, problem)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
