"""What keeps snapshots of a table readable, and brings one back: pins, savepoints, consumers, restore.

A part of `hoodoo.table.Table`. Checks arguments and delegates; how files are held is in hoodoo.timeline.holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoodoo.hints import explained
from hoodoo.readers.cursor import Cursor, PositionLike, cursor_at
from hoodoo.table.handle import TableHandle
from hoodoo.table.results import WriteResult

if TYPE_CHECKING:
    from hoodoo.readers.pin import Pin
    from hoodoo.table.consumer import Consumer, ConsumerLag


@explained
class Keeping:
    """The methods of `Table` that keep snapshots and bring them back."""

    handle: TableHandle

    def pin(self, as_of: PositionLike | None = None, hours: float = 1.0) -> Pin:
        """Hold a snapshot for a time, in which no clean deletes a file of it.

        Use the pin in a `with` block, or call its `release()`. It writes a lease into the table, so it needs permission
        to write.

        Args:
            as_of: The position of the snapshot, as `scan` takes it. None (default): the newest slot.
            hours: How long the snapshot is held, in hours, above 0 and at most 168. Default 1.0. `renew()` of the pin
                holds it for longer.

        Returns:
            The pin, which reads the snapshot by its `scan()`.

        Raises:
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            PositionError: `as_of` is not a position of this table.
            OptionError: `hours` is not a number within these bounds.
            RangeUndone: Another engine took the snapshot back.
        """
        from hoodoo.readers.pin import Pin
        from hoodoo.timeline.holds import leases

        _, (config, history, view) = self.handle.context_at(as_of)
        return Pin(history, config, *leases.take(history, self.handle.environment, view.seq, hours))

    def savepoint(self, name: str, as_of: PositionLike | None = None) -> Cursor:
        """Keep a snapshot readable under a name until `delete_savepoint` gives it up.

        `scan(as_of=name)` then reads it, and `restore(name)` makes the table like it again.

        Args:
            name: The name: at most 200 letters, digits, `.`, `_`, `-` and blanks, not digits alone, and not 'earliest'.
            as_of: The position of the snapshot, as `scan` takes it. None (default): the newest slot.

        Returns:
            The position of the commit under the savepoint: the newest one up to `as_of` that changed files.

        Raises:
            OptionError: The name is not of this form or is taken, or that commit has a savepoint already.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away.
            RangeUndone: Another engine took the snapshot back.
        """
        from hoodoo.timeline import savepoints

        context, seen = self.handle.context_at(as_of)
        slot = savepoints.save(context.timeline, name, seen.view.seq)
        return cursor_at(self.handle.history, slot.position)

    def savepoints(self) -> dict[str, Cursor]:
        """List the savepoints of the table.

        Returns:
            The position of each savepoint by its name.
        """
        view = self.handle.look().view
        return {name: Cursor(view.table, seq) for name, seq in view.savepoints.items()}

    def delete_savepoint(self, name: str) -> None:
        """Give up a savepoint.

        The next clean may delete the files that only this savepoint holds.

        Args:
            name: The name of the savepoint.

        Raises:
            PositionError: The table has no savepoint of this name.
        """
        from hoodoo.timeline import savepoints

        savepoints.give_up(self.handle.context().timeline, name)

    def consumer(self, name: str, start: PositionLike = "earliest") -> Consumer:
        """Find a consumer by its name, or register a new one.

        A consumer is a named reader whose position the table keeps. Cleaning keeps what it has not read, for up to
        `consumer_hours` beyond retention. A consumer at 'earliest' holds nothing, because its first read is the newest
        snapshot.

        Args:
            name: The name of the consumer: at most 100 letters, digits, `.`, `_` and `-`, without a dot in front.
            start: Where a new consumer starts: 'earliest' (default) if it has read nothing, or a position as `scan`
                takes it, up to which it has read. A known consumer keeps its position.

        Returns:
            The consumer.

        Raises:
            OptionError: The name is not of this form.
            PositionError: `start` is not a position of this table.
            SnapshotExpired: The consumer is new, and the snapshot at `start` was cleaned away.
        """
        from hoodoo.table.consumer import Consumer
        from hoodoo.timeline.holds import consumers

        _, (_, history, _) = self.handle.context_at(None)
        consumers.register(history, name, self.handle.slot_of(history, start, exclusive=True))
        return Consumer(self.handle, name)

    def consumers(self) -> list[ConsumerLag]:
        """List every consumer of the table, and how far behind it is.

        Returns:
            The consumers in the order of their names.
        """
        from hoodoo.table.consumer import lags

        config, history, view = self.handle.look()
        return lags(self.handle.timeline, history, view, config)

    def restore(self, to: PositionLike) -> WriteResult:
        """Make the rows and columns what they were at a savepoint or at any readable position.

        It is a new commit; what came in between stays readable. A write that comes in between is undone as well, never
        half. Versions of `transaction=` are not undone.

        Args:
            to: The position, as `scan` takes it.

        Returns:
            The cursor of the commit, and counts of rows: `inserted` rows come back, `updated` ones get earlier values,
            `deleted` ones go; `rows_rewritten` counts all rows of the file groups that were written for that. Where
            file groups of more than 64 MiB differ, their rows are counted as inserted and deleted, and `exact` is
            False.

        Raises:
            PositionError: `to` is not a position of this table.
            SnapshotExpired: The snapshot at `to` was cleaned away.
            RangeUndone: Another engine took `to` back.
            SchemaError: A check looks at a column that came after `to`, or that had another type then.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
        """
        from hoodoo.writers import restore as restoring

        context, seen = self.handle.context_at(None)
        return self.handle.finished(context, restoring.restore(context, self.handle.slot_of(seen.history, to)))
