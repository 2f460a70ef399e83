"""Consumers as programs use them: named readers whose position the table keeps."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import awaited, retention
from hoodoo.hints import explained
from hoodoo.readers.cursor import Cursor, PositionLike
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import consumers
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View


@explained
class Consumer:
    """A named reader of a table, whose position the table keeps.

    `Table.consumer` makes it. Cleaning waits for what it has not read yet, for as long as the option `consumer_hours`
    says. Every call looks at the table first; it raises TableReplaced if another table is at the path now, and
    TableNotFound if none is.

    Attributes:
        name: The name of the consumer.
    """

    def __init__(self, handle: TableHandle, name: str) -> None:
        self._handle, self.name = handle, name

    def __repr__(self) -> str:
        return f"<consumer {self.name!r} of {self._handle.store.uri}>"

    @property
    def position(self) -> Cursor:
        """The position up to which the consumer has read: the `since` of its next read.

        Raises:
            PositionError: The consumer was dropped.
        """
        table, store = self._handle.look().view.table, self._handle.store
        stored = consumers.get(store, self.name)
        return Cursor(table, stored.position, consumers.digest_of(store, stored))

    def commit(self, cursor: PositionLike) -> None:
        """Say that everything up to a position was handled.

        Args:
            cursor: The position, as `Table.scan` takes it; in general the `cursor` of the read that was handled.

        Raises:
            PositionError: `cursor` is not a position of this table or is before the position of the consumer, or the
                consumer was dropped.
        """
        history = self._handle.look().history  # the cursor may be of what another engine wrote
        position = self._handle.slot_of(history, cursor)
        consumers.advance(self._handle.store, self.name, position, history.digest(position))

    def drop(self) -> None:
        """Forget the consumer, so that cleaning no longer waits for it.

        A consumer that was dropped before is no error.
        """
        self._handle.look()  # a consumer of this name may be another table's
        consumers.drop(self._handle.store, self.name)


@dataclass(frozen=True)
class ConsumerLag:
    """How far a consumer is behind the newest slot.

    Attributes:
        name: The name of the consumer.
        position: The position up to which it has read.
        slots: How many slots it has not read, 0 if it has read everything.
        seconds: The age of the oldest slot that it has not read, in seconds, 0 if it has read everything.
        waited_for: True if cleaning keeps what it has not read.
    """

    name: str
    position: Cursor
    slots: int
    seconds: float
    waited_for: bool


def lags(timeline: TableTimeline, history: History, head: View, config: TableConfig) -> list[ConsumerLag]:
    """Measure how far each consumer of a table is behind.

    Args:
        timeline: The timeline of the table.
        history: The slots of the table.
        head: The newest view of the table.
        config: The configuration under that view.

    Returns:
        One lag per consumer, in the order of their names.
    """
    now = timeline.environment.now_ms()
    waited = {consumer.name for consumer in awaited(timeline, head, retention(config.options))}
    found = []
    for one in consumers.all_of(history.store):
        behind = max(0, head.seq - one.position)
        unread = max(one.position + 1, history.oldest_slot())
        seconds = max(0.0, (now - history.slot(unread).completed_at) / 1000) if behind else 0.0
        found.append(ConsumerLag(one.name, Cursor(head.table, one.position), behind, seconds, one.name in waited))
    return found
