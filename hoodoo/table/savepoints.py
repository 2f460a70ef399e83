"""Methods of `table.savepoints`."""

from __future__ import annotations

from typing import ClassVar

from hoodoo.hints import suggest_for_methods
from hoodoo.readers.cursor import Cursor, PositionLike, cursor_of_commit_number, require_unambiguous_name
from hoodoo.table.handle import TableHandle


@suggest_for_methods
class Savepoints:
    """Methods that create, list and delete savepoints."""

    NAMESPACE: ClassVar[str] = "savepoints"

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    def create(self, name: str, as_of: PositionLike | None = None) -> Cursor:
        """Create a savepoint, to keep a snapshot readable.

        Use `scan(as_of=name)` to read the savepoint, and `restore(name)` to reset the table to it.

        Args:
            name: The name of the savepoint: at most 200 letters, digits, `.`, `_`, `-` and spaces, not only digits.
                A string with another meaning as a position is refused: 'earliest', 'latest', a date, a time, or an age
                such as '30d'.
            as_of: The position of the snapshot, as in `scan`. None (default): the newest slot.

        Returns:
            The position of the commit that the savepoint keeps: the newest commit up to `as_of` that changed files.

        Raises:
            OptionError: The name is invalid or already used, or the commit already has a savepoint.
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot.
            RangeUndone: Another engine rolled back the snapshot.
        """
        from hoodoo.timeline import savepoints

        require_unambiguous_name(name)
        context, seen = self._handle.context_at(as_of)
        slot = savepoints.save(context.timeline, name, seen.view.seq)
        return cursor_of_commit_number(self._handle.history, slot.position)

    def list(self) -> dict[str, Cursor]:
        """List the savepoints of the table.

        Returns:
            The position of each savepoint, by savepoint name.
        """
        _, history, view = self._handle.look()
        return {name: cursor_of_commit_number(history, seq) for name, seq in view.savepoints.items()}

    def delete(self, name: str) -> None:
        """Delete a savepoint.

        Cleaning may then delete the files that only this savepoint needs.

        Args:
            name: The name of the savepoint.

        Raises:
            PositionError: A savepoint with this name does not exist.
        """
        from hoodoo.timeline import savepoints

        savepoints.delete_savepoint(self._handle.context().timeline, name)
