"""Pleas: how a writer whose requests are slow gets a turn beside faster ones.

The slot after the head goes to whoever is first, and a slow writer may be second for ever. After some lost races it
leaves an empty file among the slots, where the list that every look makes finds it: others see it without a request of
their own, and pause once before their next slot. A plea is a hint and never a promise: the pause is bounded, no commit
pauses after one that did, nobody who pleads waits for others, and a plea that is old belongs to somebody who died.

Knows keys and time; refuses to know what a slot says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hoodoo.errors import HoodooError
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import PLEAS
from hoodoo.timeline.state import TableState

AFTER_LOST = 3  # races
AFTER_S = 2.0  # of losing them: many quick writers lose many races, and pauses would only make them fewer
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.5)  # 3 s in all: a look after each tells whether the plea is gone
_OLD_MS = 60_000


class Plea:
    """What one attempt at a commit has to say to the others."""

    def __init__(self, store: Store, environment: Environment, nonce: str) -> None:
        self.store, self.environment, self.key = store, environment, PLEAS + nonce
        self.made, self._lost, self._since = False, 0, 0.0

    def lost_a_race(self) -> None:
        """Count a slot that somebody else was first to take; plead after some, and again after as many.

        Where slots are not found by a list nobody would see a plea: on a disk no look takes long enough to need one.
        """
        now_s = self.environment.elapsed()
        if not self._lost:
            self._since = now_s
        self._lost += 1
        if self._lost % AFTER_LOST == 0 and now_s - self._since >= AFTER_S and self.store.lists_by_prefix:
            self.made = True  # a request that fails may arrive later
            with suppress(HoodooError, OSError):  # the slot is what counts
                self.store.put(self.key, b"")

    def withdraw(self) -> None:
        """Take the plea away, if one was made. That the store does not answer is no failure: a plea grows old."""
        if self.made:
            self.made = False
            with suppress(HoodooError, OSError):
                self.store.delete(self.key)


class Courtesy:
    """How one process treats the pleas of others on one table."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self.store, self.environment = store, environment
        self._paused = False

    def give_way(self, state: TableState, look: Callable[[], TableState]) -> TableState:
        """The state to go on from: `state`, in which somebody pleads, or a newer one after a pause. Of two attempts in
        a row one pauses.

        look: the state now. The pause ends with the last plea, after 3 s at most.
        """
        if self._paused or not self._any_fresh(state.pleas):
            self._paused = False
            return state
        self._paused = True
        for pause in _PAUSES_S:
            self.environment.sleep(pause)
            state = look()
            if not state.pleas:
                break
        return state

    def _any_fresh(self, pleas: Sequence[str]) -> bool:
        """Delete the old ones of `pleas`; tell whether one is left. A writer that still lives makes its plea again."""
        fresh = False
        for key in pleas:
            with suppress(HoodooError, OSError):
                if self._is_old(key):
                    self.store.delete(key)
                else:
                    fresh = True
        return fresh

    def _is_old(self, key: str) -> bool:
        """By the store's word, where it has a clock; a time that lies ahead is no better than one long past."""
        at, theirs = self.store.modified_ms(key), self.store.clock_ms()
        now = self.environment.now_ms() if theirs is None else theirs
        return at is None or abs(now - at) > _OLD_MS
