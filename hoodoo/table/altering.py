"""Methods of `table.alter`, which change columns.

The methods check arguments and call `hoodoo.compactor.alter`, which changes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from hoodoo.arguments import check_flag
from hoodoo.errors import OptionError
from hoodoo.hints import suggest_for_methods
from hoodoo.redact import printable
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.columns.no_default import NO_DEFAULT

if TYPE_CHECKING:
    from hoodoo.readers.cursor import Cursor
    from hoodoo.timeline.columns.alterations import Alteration


@dataclass(frozen=True)
class AlterResult:
    """Result of a schema change.

    Attributes:
        cursor: The position of the commit, or of the newest slot if there was nothing to change.
        instant: The instant of the commit, 17 digits UTC, or '' if there was nothing to change.
        groups: The number of rewritten file groups.
        rows: The number of rows in their new base files.
        bytes_written: The size of their new base files, in bytes.
    """

    cursor: Cursor
    instant: str = ""
    groups: int = 0
    rows: int = 0
    bytes_written: int = 0


@suggest_for_methods
class Alter:
    """Methods that change the columns of a table.

    `table.alter([...])` makes several changes in one commit.
    """

    NAMESPACE: ClassVar[str] = "alter"

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,
        *,
        default: object = NO_DEFAULT,
        after: str | None = None,
        first: bool = False,
        rewrite: bool = False,
    ) -> AlterResult:
        """Add a column to the table.

        This call only writes data files in two cases. To add a struct field, it first compacts log files into base
        files. To reuse the name of a dropped column, it rewrites the files that still contain the old column.

        Args:
            name: The name of the column, or the dotted path of a struct field such as 's.f'. In a path, '[]' stands for
                list items and '{}' for map values.
            type: The type of the column: a pyarrow type, or a string such as "int64", "decimal(10, 2)" or
                "list<string>".
            default: The value for later batches without the column, None for null. Struct fields only support None.
                NO_DEFAULT (default): batches without the column are rejected.
            after: The existing column after which to insert the new column. None (default): at the end, unless `first`
                is True.
            first: True makes the column the first one. Default False.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: The name is invalid or already used, the type is unsupported, or `default` cannot be converted
                to it. Or `after` is not a column, or the call has both `after` and `first`.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            OptionError: `first` or `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import AddColumn

        return self([AddColumn(name, type, default, after, check_flag("first", first))], rewrite=rewrite)

    def drop_column(self, name: str, *, rewrite: bool = False) -> AlterResult:
        """Drop a column from the table.

        Earlier snapshots keep its values. Dropping a top-level column writes no data files. Dropping a struct field
        compacts log files into base files.

        Args:
            name: The name of the column, or the dotted path of a struct field, as in `add_column`.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: The column does not exist, is the only column, or is a key, partition or ordering column. Or a
                partition column is derived from it, or a check uses it.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import DropColumn

        return self([DropColumn(name)], rewrite=rewrite)

    def rename_column(self, name: str, to: str, *, rewrite: bool = False) -> AlterResult:
        """Rename a column.

        Every file that contains the column is rewritten.

        Args:
            name: The name of the column, or the dotted path of a struct field, as in `add_column`.
            to: The new name, without the path.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: The column does not exist, or is a key, partition or ordering column. Or the new name is
                already used or invalid.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import RenameColumn

        return self([RenameColumn(name, to)], rewrite=rewrite)

    def move_column(self, name: str, *, after: str | None = None, first: bool = False) -> AlterResult:
        """Change the position of a column.

        No data file is written.

        Args:
            name: The name of the column. Fields of structs cannot be moved.
            after: The column after which to put it. None (default): `first` must be True.
            first: True makes the column the first one. Default False.

        Returns:
            The cursor of the commit.

        Raises:
            SchemaError: The column does not exist or is a struct field, or the call has both or neither of `after` and
                `first`.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            OptionError: `first` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import MoveColumn

        return self([MoveColumn(name, after, check_flag("first", first))])

    def widen_column(self, name: str, type: pa.DataType | str, *, rewrite: bool = False) -> AlterResult:
        """Change the type of a column to a wider type.

        Supported changes are int32 to int64, float64, decimal or string; int64 to decimal or string; float32 to
        float64; and decimals to decimals with more digits. This call compacts log files into base files. It rewrites
        the files of float columns and of values inside a struct, list or map.

        Args:
            name: The name of the column, or the dotted path of a value inside a struct, list or map, as in
                `add_column`.
            type: The new type: a pyarrow type or a string, as in `add_column`.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: The column does not exist, the new type cannot store all its values, or the column is a key,
                partition or ordering column. Or a partition column is derived from it, or a check uses it.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import WidenColumn

        return self([WidenColumn(name, type)], rewrite=rewrite)

    def retype_column(self, name: str, type: pa.DataType | str, *, rewrite: bool = False) -> AlterResult:
        """Change the type of a column to any other type.

        All stored values must be convertible without loss. Numbers convert to another numeric type that has the same
        values, for example doubles without fractions to int64. Strings convert to numbers, dates, timestamps or
        booleans if they have the canonical format of the value ('7', not '007').

        This call checks all rows before it writes anything. It compacts log files, and then rewrites the files that
        contain the column in one commit, which conflicts with concurrent writes. If the new type is a widening, this
        call works like `widen_column`. Row values do not change, so the commit does not appear in `changes`. Earlier
        snapshots keep the old type.

        Args:
            name: The name of a top-level column.
            type: The new type: a pyarrow type or a string, as in `add_column`.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: The column does not exist, or a stored value cannot be converted. The error names the first
                such value, its key, and the number of such values. Also if the column has a default or is a key,
                partition or ordering column, if a partition column is derived from it, or if a check uses it.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. The columns are unchanged.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import RetypeColumn

        return self([RetypeColumn(name, type)], rewrite=rewrite)

    def make_nullable(self, name: str) -> AlterResult:
        """Allow nulls in a column.

        No data file is written.

        Args:
            name: The name of the column.

        Returns:
            The cursor of the commit.

        Raises:
            SchemaError: The column does not exist, or is a key or ordering column.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
        """
        from hoodoo.timeline.columns.alterations import MakeNullable

        return self([MakeNullable(name)])

    def __call__(self, alterations: Sequence[Alteration], *, rewrite: bool = False) -> AlterResult:
        """Apply a list of schema changes in one commit.

        Row values do not change, so the commit does not appear in `incremental` and `changes`. An empty list with
        `rewrite=True` keeps the columns. It rewrites files that other engines read incorrectly after one of them
        changed the columns.

        Args:
            alterations: A list of AddColumn, DropColumn, RenameColumn, MoveColumn, WidenColumn, RetypeColumn and
                MakeNullable.
            rewrite: True allows rewriting base files. Default False.

        Returns:
            The cursor of the commit, and the amount of rewritten data.

        Raises:
            SchemaError: A change is invalid, see the method with the corresponding name. The error names the column.
            RewriteNeeded: The change must rewrite base files and `rewrite` is False. The error contains the number of
                file groups, rows and bytes. Nothing was changed.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was changed.
            CorruptTable: A file to be rewritten is damaged.
            OptionError: `alterations` is not a list of these changes, or `rewrite` is neither True nor False.
        """
        from hoodoo.compactor.alter import apply_column_changes
        from hoodoo.readers.cursor import cursor_of_commit_number
        from hoodoo.timeline.columns.alterations import Alteration

        if not isinstance(alterations, (list, tuple)) or not all(isinstance(one, Alteration) for one in alterations):
            raise OptionError(
                f"alter needs a list of changes such as AddColumn and DropColumn, got {printable(alterations)}.",
                option="alterations",
            )
        for one in alterations:
            for option in ("name", "to"):
                if not isinstance(given := getattr(one, option, ""), str):
                    raise OptionError(
                        f"{type(one).__name__} has an invalid {option}: expected a column name as a string, "
                        f"got {printable(given)}.",
                        option=option,
                    )
        context = self._handle.context()
        done = apply_column_changes(context, list(alterations), check_flag("rewrite", rewrite))
        if done.instant:
            self._handle.run_services(context, done.slot)
        history = self._handle.look().history
        return AlterResult(
            cursor_of_commit_number(history, done.slot), done.instant, done.groups, done.rows, done.bytes_written
        )
