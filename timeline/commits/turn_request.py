"""Requests of slow writers for their turn to commit.

The fastest writer takes the slot after the head, so a slow writer may lose every race. After some lost races, it writes
an empty file next to the slots, a turn request. Other writers find the file when they list the slots, and pause once
before their next slot.

A turn request is only a hint. A pause is bounded, and at most one of two consecutive commits pauses. A writer with its
own turn request does not wait for other turn requests. An old turn request is assumed to be from a dead writer, and is
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hoodoo.errors import HoodooError
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import TURN_REQUESTS
from hoodoo.timeline.state import TableState

AFTER_LOST = 3  # lost races before a turn request
AFTER_S = 2.0  # minimum duration of the lost races; fast writers lose many races without starving
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.5)  # 3 s in total; after each pause, check whether the turn request is gone
_OLD_MS = 60_000


class PauseRequest:
    """Request of a slow writer for a pause."""

    def __init__(self, store: Store, environment: Environment, nonce: str) -> None:
        self.store, self.environment, self.key = store, environment, TURN_REQUESTS + nonce
        self.made, self._lost, self._since = False, 0, 0.0

    def record_lost_race(self) -> None:
        """Record that another writer committed first.

        A pause is requested after every third one. The request is only written once the races have lasted for 2
        seconds. No request is written in stores where slots are not found by listing, such as local disks, because
        writers would not see the file.
        """
        now_s = self.environment.elapsed()
        if not self._lost:
            self._since = now_s
        self._lost += 1
        if self._lost % AFTER_LOST == 0 and now_s - self._since >= AFTER_S and self.store.lists_by_prefix:
            self.made = True  # even a failed request may arrive later
            with suppress(HoodooError, OSError):  # a failure must not affect the commit
                self.store.put(self.key, b"")

    def withdraw(self) -> None:
        if self.made:
            self.made = False
            with suppress(HoodooError, OSError):
                self.store.delete(self.key)


class FairnessPauses:
    """Pauses of fast writers, so that slower writers can commit."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self.store, self.environment = store, environment
        self._paused = False

    def wait_for_slower_writers(self, state: TableState, look: Callable[[], TableState]) -> TableState:
        """Wait for slower writers.

        Returns the table's current state. The pause ends when no turn request is left, after at most 3 s. At most one
        of two consecutive attempts pauses.

        Args:
            state: The state of the table, with its turn requests.
            look: Reads the current state.
        """
        if self._paused or not self._has_fresh_request(state.turn_requests):
            self._paused = False
            return state
        self._paused = True
        for pause in _PAUSES_S:
            self.environment.sleep(pause)
            state = look()
            if not state.turn_requests:
                break
        return state

    def _has_fresh_request(self, turn_requests: Sequence[str]) -> bool:
        # Expired turn requests are deleted.
        fresh = False
        for key in turn_requests:
            with suppress(HoodooError, OSError):
                if self._is_expired(key):
                    self.store.delete(key)
                else:
                    fresh = True
        return fresh

    def _is_expired(self, key: str) -> bool:
        modified, store_now = self.store.modified_ms(key), self.store.clock_ms()
        now = self.environment.now_ms() if store_now is None else store_now
        return modified is None or abs(now - modified) > _OLD_MS
