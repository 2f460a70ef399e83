"""Methods that change a table's columns, and show what the columns were.

A part of `hoodoo.table.Table`. Checks arguments and delegates; what a change does to files is in
hoodoo.compactor.alter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from hoodoo.arguments import flag
from hoodoo.errors import OptionError
from hoodoo.format.table_schema import TableSchema
from hoodoo.hints import explained
from hoodoo.redact import printable
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.columns.no_default import NO_DEFAULT

if TYPE_CHECKING:
    from hoodoo.readers.cursor import Cursor, PositionLike
    from hoodoo.timeline.columns.alterations import Alteration


@dataclass(frozen=True)
class AlterResult:
    """What a change of columns did.

    Attributes:
        cursor: The position of the commit, or the newest slot where nothing was to be changed.
        instant: The instant of the commit, 17 digits UTC, or '' where nothing was to be changed.
        groups: How many file groups were rewritten.
        rows: How many rows their new base files have.
        bytes_written: The size of their new base files, in bytes.
    """

    cursor: Cursor
    instant: str = ""
    groups: int = 0
    rows: int = 0
    bytes_written: int = 0


@dataclass(frozen=True)
class SchemaVersion:
    """One of the schemas that a table has had.

    Attributes:
        id: The number of the schema, counted from 1.
        cursor: The slot since which it holds; slot 0 for the schema of the creation.
        schema: The columns.
        ids: The id of each column by its dotted path. A column keeps its id for ever.
        changes: What made it of the schema before, in words.
    """

    id: int
    cursor: Cursor
    schema: pa.Schema
    ids: Mapping[str, int]
    changes: tuple[str, ...]


@explained
class Alterable:
    """The methods of `Table` that change its columns."""

    handle: TableHandle

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,
        default: object = NO_DEFAULT,
        after: str | None = None,
        first: bool = False,
        rewrite: bool = False,
    ) -> AlterResult:
        """Add a column, which is null in the rows there are.

        It writes no data file, with two exceptions: a field of a struct is added after logs are merged into their
        bases, and a name that files still hold has these files rewritten.

        Args:
            name: The name of the column; dotted for a field of a struct, such as 's.f'. '[]' is the item of a list and
                '{}' the value of a map.
            type: The type of the column, of pyarrow or as text: "int64", "decimal(10, 2)", "list<string>".
            default: The value that later batches without the column mean, None for null. For a field of a struct only
                None can be a default. NO_DEFAULT (default): such batches are refused.
            after: The column after which it stands. None (default): it is the last, unless `first` is True.
            first: True makes it the first column. Default False.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: The table cannot have a column of this name or type, or there is one already. Also if the
                column cannot hold `default`, `after` is not a column, or both `after` and `first` are given.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            OptionError: `first` or `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import AddColumn

        return self.alter([AddColumn(name, type, default, after, flag("first", first))], rewrite)

    def drop_column(self, name: str, rewrite: bool = False) -> AlterResult:
        """Drop a column, whose values stay in the snapshots from before.

        To drop a column writes no data file. To drop a field of a struct merges logs into their bases.

        Args:
            name: The name of the column; dotted for a field of a struct, as in `add_column`.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: There is no such column, it is the last one, it is a key, partition or ordering column, a
                partition column is made of it, or a check looks at it.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import DropColumn

        return self.alter([DropColumn(name)], rewrite)

    def rename_column(self, name: str, to: str, rewrite: bool = False) -> AlterResult:
        """Give a column another name.

        It rewrites every file that holds the column, because other engines find columns by their names.

        Args:
            name: The name of the column; dotted for a field of a struct, as in `add_column`.
            to: The new name, without a path.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: There is no such column, it is a key, partition or ordering column, or the new name is taken or
                is no name of a column.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import RenameColumn

        return self.alter([RenameColumn(name, to)], rewrite)

    def move_column(self, name: str, after: str | None = None, first: bool = False) -> AlterResult:
        """Move a column behind another one, or to the front.

        It writes no data file.

        Args:
            name: The name of the column. Fields of structs cannot be moved.
            after: The column after which it stands from now on. None (default): `first` has to be True.
            first: True makes it the first column. Default False.

        Returns:
            The cursor of the commit.

        Raises:
            SchemaError: There is no such column, it is a field of a struct, or not exactly one of `after` and `first`
                is given.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            OptionError: `first` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import MoveColumn

        return self.alter([MoveColumn(name, after, flag("first", first))])

    def widen_column(self, name: str, type: pa.DataType | str, rewrite: bool = False) -> AlterResult:
        """Give a column a type that has every value of the present type.

        The types are int32 to int64, float64, decimal or string; int64 to decimal or string; float32 to float64; and
        decimals to more digits. Logs are merged into their bases. Files that hold a float column, or a value within a
        struct, list or map, are rewritten.

        Args:
            name: The name of the column; dotted for a value within a struct, list or map, as in `add_column`.
            type: The new type, of pyarrow or as text.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: There is no such column, the new type does not have all its values, it is a key, partition or
                ordering column, a partition column is made of it, or a check looks at it.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import WidenColumn

        return self.alter([WidenColumn(name, type)], rewrite)

    def retype_column(self, name: str, type: pa.DataType | str, rewrite: bool = False) -> AlterResult:
        """Give a column a type that has not every value of the present type, where each stored value is one of it.

        Numbers become another type of number where that has the same ones, such as whole doubles an int64; texts
        become numbers, dates, timestamps or booleans where each is written as the value would be ('7', not '007').
        All rows are looked at before anything is written. Then files that hold the column are rewritten, in one commit
        that conflicts with whoever wrote meanwhile. Logs are compacted first. Where `widen_column` would do, it is
        that. No row changes: `changes` shows nothing of it, and snapshots from before have the former type.

        Args:
            name: The name of the column, which is not within a struct, list or map.
            type: The new type, of pyarrow or as text.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: There is no such column, or a stored value is none of the new type; the error names the first
                such value, its key and how many there are. Also if the column is a key, partition or ordering column, a
                partition column is made of it, it has a default, or a check looks at it.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. The columns are as they were.
            OptionError: `rewrite` is neither True nor False.
        """
        from hoodoo.timeline.columns.alterations import RetypeColumn

        return self.alter([RetypeColumn(name, type)], rewrite)

    def make_nullable(self, name: str) -> AlterResult:
        """Let a column take nulls that was created with nullable=False.

        It writes no data file.

        Args:
            name: The name of the column.

        Returns:
            The cursor of the commit.

        Raises:
            SchemaError: There is no such column, or it is a key column or an ordering column.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
        """
        from hoodoo.timeline.columns.alterations import MakeNullable

        return self.alter([MakeNullable(name)])

    def alter(self, alterations: Sequence[Alteration], rewrite: bool = False) -> AlterResult:
        """Make several changes of columns, one after the other, in one commit.

        No row changes: incremental reads and changes show nothing of it. `alter([], rewrite=True)` changes no column.
        It rewrites the files that other engines read wrong because one of them changed the columns.

        Args:
            alterations: A list of AddColumn, DropColumn, RenameColumn, MoveColumn, WidenColumn, RetypeColumn and
                MakeNullable.
            rewrite: True allows base files to be rewritten. Default False.

        Returns:
            The cursor of the commit, and what was rewritten.

        Raises:
            SchemaError: A change is refused; see the method of the same name. The error names the column.
            RewriteNeeded: Base files have to be rewritten and `rewrite` is False. The error says how many file groups,
                rows and bytes. Nothing was changed.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was changed.
            CorruptTable: A file that has to be rewritten is damaged.
            OptionError: `alterations` is not a list of these changes, or `rewrite` is neither True nor False.
        """
        from hoodoo.compactor.alter import alter
        from hoodoo.readers.cursor import cursor_at
        from hoodoo.timeline.columns.alterations import Alteration

        if not isinstance(alterations, (list, tuple)) or not all(isinstance(one, Alteration) for one in alterations):
            raise OptionError(
                f"alter takes a list of AddColumn, DropColumn and so on, got {printable(alterations)}.",
                option="alterations",
            )
        for one in alterations:
            for option in ("name", "to"):
                if not isinstance(given := getattr(one, option, ""), str):
                    raise OptionError(
                        f"{type(one).__name__} has a wrong {option}: expected the name of a column, got "
                        f"{printable(given)}. Pass the name as text.",
                        option=option,
                    )
        context = self.handle.context()
        done = alter(context, list(alterations), flag("rewrite", rewrite))
        if done.instant:
            self.handle.served(context, done.slot)
        history = self.handle.look().history
        return AlterResult(cursor_at(history, done.slot), done.instant, done.groups, done.rows, done.bytes_written)

    def schema_at(self, position: PositionLike) -> pa.Schema:
        """Show the columns as of a position, as `scan(as_of=...)` gives them.

        Args:
            position: The position, as `scan` takes it.

        Returns:
            The columns.

        Raises:
            PositionError: `position` is not a position of this table.
            SnapshotExpired: The snapshot was cleaned away, or was before the table's first slot.
            RangeUndone: Another engine took the snapshot back.
        """
        return self.handle.at(position).config.declared_schema

    def schemas(self) -> list[SchemaVersion]:
        """List the schemas that the table has had, the oldest first.

        Only those are listed that are still needed: the schemas of readable snapshots, and those under which files of
        the table were written.

        Returns:
            The schemas.
        """
        config, _, view = self.handle.look()
        if not view.schemas:
            return [_version(config.created, 0, None, view.table)]
        parsed = [(since, view.schemas.schema(number)) for since, number, _ in view.schemas.entries]
        before = [None, *(schema for _, schema in parsed)]
        return [
            _version(schema, since, former, view.table)
            for (since, schema), former in zip(parsed, before, strict=False)
            if schema
        ]


def _version(schema: TableSchema, since: int, before: TableSchema | None, table: str) -> SchemaVersion:
    from hoodoo.readers.cursor import Cursor
    from hoodoo.timeline.columns.rewrites import describe, path_of

    ids = {path_of(schema, number): number for number in schema.by_id}
    return SchemaVersion(schema.id, Cursor(table, since), schema.arrow, ids, tuple(describe(before, schema)))


__all__ = ["AlterResult", "Alterable", "SchemaVersion"]
