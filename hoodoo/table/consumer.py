"""Consumers, which are named readers of a table."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.compactor.cleaning.retention import list_consumers_delaying_cleaning, retention
from hoodoo.hints import suggest_for_methods
from hoodoo.readers.cursor import Cursor, PositionLike
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import consumers
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View


@suggest_for_methods
class Consumer:
    """Named reader of a table.

    The table stores the position that the consumer has read.

    `Table.consumer` creates it. Cleaning keeps the files of unread changes for up to `consumer_hours`. Every call
    checks the table first. It raises TableReplaced if a different table is at the path, and TableNotFound if the table
    was deleted.

    Attributes:
        name: The name of the consumer.
    """

    def __init__(self, handle: TableHandle, name: str) -> None:
        self._handle, self.name = handle, name

    def __repr__(self) -> str:
        return f"<consumer {self.name!r} of {self._handle.store.uri}>"

    @property
    def position(self) -> Cursor:
        """The position that the consumer has read.

        Raises:
            PositionError: The consumer was dropped.
        """
        table, store = self._handle.look().view.table, self._handle.store
        stored = consumers.get(store, self.name)
        return Cursor(table, stored.position, consumers.read_commit_digest(store, stored))

    def commit(self, cursor: PositionLike) -> None:
        """Store the position that the consumer has read.

        Args:
            cursor: The position, as in `Table.scan`. Usually the `cursor` of the last processed read.

        Raises:
            PositionError: `cursor` is not a position of this table, or is before the stored position of the consumer.
                Or the consumer was dropped.
        """
        history = self._handle.look().history  # the cursor may be a commit of another engine
        position = self._handle.slot_of(history, cursor)
        consumers.advance(self._handle.store, self.name, position, history.digest(position))

    def drop(self) -> None:
        """Delete the consumer from the table.

        Dropping it a second time does not raise an error.
        """
        self._handle.look()  # raises if the table was replaced: a consumer of this name may belong to the new table
        consumers.drop(self._handle.store, self.name)


@dataclass(frozen=True)
class ConsumerLag:
    """Lag of a consumer.

    Attributes:
        name: The name of the consumer.
        position: The position that the consumer has read up to.
        slots: The number of unread slots, 0 if the consumer has read everything.
        seconds: The age of the oldest unread slot in seconds, 0 if the consumer has read everything.
        waited_for: True if cleaning keeps the files that the consumer has not read yet.
    """

    name: str
    position: Cursor
    slots: int
    seconds: float
    waited_for: bool


def lags(timeline: TableTimeline, history: History, head: View, config: TableConfig) -> list[ConsumerLag]:
    """Measure the lag of each consumer of a table.

    Args:
        timeline: The timeline of the table.
        history: The slots of the table.
        head: The newest view of the table.
        config: The configuration of the table.

    Returns:
        One lag per consumer, sorted by consumer name.
    """
    now = timeline.environment.now_ms()
    waited = {consumer.name for consumer in list_consumers_delaying_cleaning(timeline, head, retention(config.options))}
    found = []
    for one in consumers.all_of(history.store):
        at = Cursor(head.table, one.position, consumers.read_commit_digest(history.store, one))
        behind = max(0, head.seq - one.position)
        unread = max(one.position + 1, history.oldest_slot())
        seconds = max(0.0, (now - history.slot(unread).completed_at) / 1000) if behind else 0.0
        found.append(ConsumerLag(one.name, at, behind, seconds, one.name in waited))
    return found
