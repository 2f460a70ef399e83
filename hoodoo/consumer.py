"""A named reader of a table, as its program sees it: where it is, and how it says that it got further."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import awaited, retention
from hoodoo.readers.positions import Cursor, PositionLike, resolve
from hoodoo.timeline import consumers
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.timeline import Timeline


class Consumer:
    """Made by Table.consumer(). The table keeps its position, and cleaning waits for it (option consumer_hours)."""

    def __init__(self, history: History, name: str) -> None:
        self._history, self.name = history, name

    def __repr__(self) -> str:
        return f"<consumer {self.name!r} of {self._history.store.uri}>"

    @property
    def position(self) -> Cursor:
        """Up to where it has read: the `since` of its next read. Raises PositionError if it was dropped."""
        return Cursor(self._history.head().table, consumers.get(self._history.store, self.name).position)

    def commit(self, cursor: PositionLike) -> None:
        """Say that everything up to `cursor` (what an incremental read ended at) is done. Raises PositionError for one
        before its position.
        """
        consumers.advance(self._history.store, self.name, resolve(self._history, cursor))

    def drop(self) -> None:
        """Forget the consumer: cleaning no longer waits for it."""
        consumers.drop(self._history.store, self.name)


@dataclass(frozen=True)
class ConsumerLag:
    """slots, seconds: how far it is behind, 0 if it has read everything; waited_for: does cleaning
    keep what it needs?
    """

    name: str
    position: Cursor
    slots: int
    seconds: float
    waited_for: bool


def lags(timeline: Timeline, history: History, config: TableConfig) -> list[ConsumerLag]:
    """Every consumer of the table, by name."""
    head, now = history.head(), timeline.environment.now_ms()
    waited = {consumer.name for consumer in awaited(timeline, head, retention(config.options))}
    found = []
    for one in consumers.all_of(history.store):
        behind = max(0, head.seq - one.position)
        unread = max(one.position + 1, history.oldest_slot())
        seconds = max(0.0, (now - history.slot(unread).completed_at) / 1000) if behind else 0.0
        found.append(ConsumerLag(one.name, Cursor(head.table, one.position), behind, seconds, one.name in waited))
    return found
