"""Snapshot methods of `Table`.

They check arguments. `hoodoo.timeline.holds` protects the files, and `hoodoo.writers.restore` restores rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoodoo.hints import suggest_for_methods
from hoodoo.readers.cursor import PositionLike
from hoodoo.table.handle import TableHandle

if TYPE_CHECKING:
    from hoodoo.readers.pin import Pin
    from hoodoo.table.consumer import Consumer, ConsumerLag
    from hoodoo.table.results import WriteResult


@suggest_for_methods
class Restorable:
    """Base class with the snapshot methods of `Table`."""

    handle: TableHandle

    def pin(self, as_of: PositionLike | None = None, *, hours: float = 1.0) -> Pin:
        """Protect the files of a snapshot from cleaning for a limited time.

        Use the pin in a `with` block, or call its `release()`. A pin writes a lease file to the table, so this call
        requires write permission.

        Args:
            as_of: The position of the snapshot, as in `scan`. None (default): the newest slot.
            hours: The protection time in hours, above 0 and at most 168. Default 1.0. Call `renew()` of the pin to
                extend it.

        Returns:
            The pin. Its `scan()` reads the snapshot.

        Raises:
            SnapshotExpired: Cleaning deleted the snapshot, or the position is before the first slot of the table.
            PositionError: `as_of` is not a position of this table.
            OptionError: `hours` is not a number above 0 and at most 168.
            RangeUndone: Another engine rolled back the snapshot.
        """
        from hoodoo.readers.pin import Pin
        from hoodoo.timeline.holds import leases

        _, (config, history, view) = self.handle.context_at(as_of)
        return Pin(history, config, *leases.take_lease(history, self.handle.environment, view.seq, hours))

    def consumer(self, name: str, start: PositionLike = "earliest") -> Consumer:
        """Open a consumer by name.

        It is registered if it does not exist. A consumer is a named reader whose position is stored in the table.
        Cleaning keeps the files of unread changes for up to `consumer_hours` beyond retention. A consumer at 'earliest'
        does not protect any files, because its first read is the newest snapshot.

        Args:
            name: The name of the consumer: at most 100 letters, digits, `.`, `_` and `-`, not starting with a dot.
            start: The position that a new consumer has already read, as in `scan`, or 'earliest' (default) if it has
                read nothing. An existing consumer keeps its position.

        Returns:
            The consumer.

        Raises:
            OptionError: The name is invalid.
            PositionError: `start` is not a position of this table.
            SnapshotExpired: The consumer is new, and cleaning deleted the snapshot at `start`.
        """
        from hoodoo.table.consumer import Consumer
        from hoodoo.timeline.holds import consumers

        _, (_, history, _) = self.handle.context_at(None)
        consumers.register_consumer(history, name, self.handle.slot_of(history, start, exclusive=True))
        return Consumer(self.handle, name)

    def consumers(self) -> list[ConsumerLag]:
        """List all consumers of the table and their lag.

        Returns:
            The lag of each consumer, sorted by consumer name.
        """
        from hoodoo.table.consumer import lags

        config, history, view = self.handle.look()
        return lags(self.handle.timeline, history, view, config)

    def restore(self, to: PositionLike) -> WriteResult:
        """Restore an earlier snapshot of the table.

        The restore is a new commit, so snapshots between the position and the restore stay readable. A write that
        commits during the restore is undone as a whole. Versions of `transaction=` are not undone.

        Args:
            to: The position, as in `scan`.

        Returns:
            The cursor of the commit, and counts of rows: `inserted` rows reappear, `updated` rows get earlier values,
            and `deleted` rows disappear. `rows_rewritten` counts all rows in the rewritten file groups. If changed file
            groups are larger than 64 MiB, all their rows count as inserted and deleted, and `exact` is False.

        Raises:
            PositionError: `to` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot at `to`.
            RangeUndone: Another engine rolled back `to`.
            SchemaError: A check uses a column that was added after `to`, or that had a different type at `to`.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
        """
        from hoodoo.writers import restore as restoring

        context, seen = self.handle.context_at(None)
        return self.handle.finished(context, restoring.restore_snapshot(context, self.handle.slot_of(seen.history, to)))
