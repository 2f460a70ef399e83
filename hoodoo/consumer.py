"""A named reader of a table, as its program sees it: where it is, and how it says that it got further."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import awaited, retention
from hoodoo.handle import TableHandle
from hoodoo.readers.cursor import Cursor, PositionLike, resolve
from hoodoo.timeline import consumers
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.view import View


class Consumer:
    """Made by Table.consumer(). The table keeps its position, and cleaning waits for it (option consumer_hours).

    Every call looks at the table first. Raises TableReplaced where another table took its place, TableNotFound.
    """

    def __init__(self, handle: TableHandle, name: str) -> None:
        self._handle, self.name = handle, name

    def __repr__(self) -> str:
        return f"<consumer {self.name!r} of {self._handle.store.uri}>"

    @property
    def position(self) -> Cursor:
        """Up to where it has read: the `since` of its next read. Raises PositionError if it was dropped."""
        return Cursor(self._handle.look().view.table, consumers.get(self._handle.store, self.name).position)

    def commit(self, cursor: PositionLike) -> None:
        """Say that everything up to `cursor` (what an incremental read ended at) is done. Raises PositionError for one
        before its position.
        """
        history = self._handle.look().history  # the cursor may be of what another engine wrote
        consumers.advance(self._handle.store, self.name, resolve(history, cursor))

    def drop(self) -> None:
        """Forget the consumer: cleaning no longer waits for it. One that was dropped already is no error."""
        self._handle.look()  # a consumer of this name may be another table's
        consumers.drop(self._handle.store, self.name)


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


def lags(timeline: TableTimeline, history: History, head: View, config: TableConfig) -> list[ConsumerLag]:
    """Every consumer of the table whose newest view is `head`, by name."""
    now = timeline.environment.now_ms()
    waited = {consumer.name for consumer in awaited(timeline, head, retention(config.options))}
    found = []
    for one in consumers.all_of(history.store):
        behind = max(0, head.seq - one.position)
        unread = max(one.position + 1, history.oldest_slot())
        seconds = max(0.0, (now - history.slot(unread).completed_at) / 1000) if behind else 0.0
        found.append(ConsumerLag(one.name, Cursor(head.table, one.position), behind, seconds, one.name in waited))
    return found
