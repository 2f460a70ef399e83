"""How a table's columns change, and what they were.

A part of `hoodoo.table.Table`. Checks arguments and delegates; what a change does to files is in
hoodoo.compactor.alter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.arguments import flag
from hoodoo.compactor.alter import alter
from hoodoo.errors import OptionError
from hoodoo.format.columns import TableSchema
from hoodoo.handle import TableHandle
from hoodoo.readers.positions import Cursor, PositionLike
from hoodoo.storage.redact import printable
from hoodoo.timeline.alterations import (
    NO_DEFAULT,
    AddColumn,
    Alteration,
    DropColumn,
    MakeNullable,
    MoveColumn,
    RenameColumn,
    WidenColumn,
)
from hoodoo.timeline.rewrites import describe, path_of


@dataclass(frozen=True)
class AlterResult:
    """cursor: of the commit, or the head where nothing was to be changed; instant: 17 digits UTC, '' then.

    groups, rows, bytes_written: file groups that were rewritten, the rows and bytes of their new base files.
    """

    cursor: Cursor
    instant: str = ""
    groups: int = 0
    rows: int = 0
    bytes_written: int = 0


@dataclass(frozen=True)
class SchemaVersion:
    """One of the schemas that a table has had. id: counts them from 1. cursor: the slot since which it holds, of the
    creation slot 0. ids: dotted path -> id of each column, which it keeps for ever. changes: what made it of the one
    before, in words.
    """

    id: int
    cursor: Cursor
    schema: pa.Schema
    ids: Mapping[str, int]
    changes: tuple[str, ...]


class Alterable:
    """The changes of a table's columns; the rest of it is Table's."""

    handle: TableHandle

    def add_column(
        self,
        name: str,
        type: pa.DataType,
        default: object = NO_DEFAULT,
        after: str | None = None,
        first: bool = False,
        rewrite: bool = False,
    ) -> AlterResult:
        """Add a column; the rows there are have null in it. name: dotted for a field of a struct: 's.f', '[]' is a
        list's item and '{}' a map's value.

        default: what later batches without the column mean by it (None: null); without a default they are refused.
        after, first: its place. Free, but for a field of a struct over logs, and for a name that files still hold.
        Raises SchemaError, RewriteNeeded, CommitConflict.
        """
        return self.alter([AddColumn(name, type, default, after, flag("first", first))], rewrite)

    def drop_column(self, name: str, rewrite: bool = False) -> AlterResult:
        """Drop a column; snapshots from before keep its values. Free at the top. Raises SchemaError, CommitConflict."""
        return self.alter([DropColumn(name)], rewrite)

    def rename_column(self, name: str, to: str, rewrite: bool = False) -> AlterResult:
        """Call a column `to` (a name without a path). Rewrites every file that holds it, since other engines go by
        name. Raises SchemaError, RewriteNeeded, CommitConflict.
        """
        return self.alter([RenameColumn(name, to)], rewrite)

    def move_column(self, name: str, after: str | None = None, first: bool = False) -> AlterResult:
        """Move a column behind another one, or to the front. Free. Raises SchemaError, CommitConflict."""
        return self.alter([MoveColumn(name, after, flag("first", first))])

    def widen_column(self, name: str, type: pa.DataType, rewrite: bool = False) -> AlterResult:
        """Give a column a type that has every value of the present one: int32 to int64, float64, decimal or string;
        int64 to decimal or string; float32 to float64; decimals of more digits.

        Logs are merged into their bases; a float, and what stands in structs, lists and maps, is rewritten. Raises
        SchemaError, RewriteNeeded, CommitConflict.
        """
        return self.alter([WidenColumn(name, type)], rewrite)

    def make_nullable(self, name: str) -> AlterResult:
        """Let a column take nulls that was created with nullable=False. Free. Raises SchemaError, CommitConflict."""
        return self.alter([MakeNullable(name)])

    def alter(self, alterations: Sequence[Alteration], rewrite: bool = False) -> AlterResult:
        """Several changes (AddColumn, DropColumn, RenameColumn, MoveColumn, WidenColumn, MakeNullable), one after the
        other, in one commit.

        rewrite: also where files have to be written anew; without it RewriteNeeded says how many. `alter([],
        rewrite=True)` changes no column and writes anew what other engines read wrong since one of them changed the
        columns. No row changes: incremental reads and changes show none. Raises SchemaError, RewriteNeeded,
        CommitConflict.
        """
        if not isinstance(alterations, (list, tuple)) or not all(isinstance(one, Alteration) for one in alterations):
            raise OptionError(
                f"alter takes a list of AddColumn, DropColumn and so on, got {printable(alterations)}.",
                option="alterations",
            )
        context = self.handle.context()
        done = alter(context, list(alterations), flag("rewrite", rewrite))
        if done.instant:
            self.handle.served(context, done.slot)
        table = self.handle.look().view.table
        return AlterResult(Cursor(table, done.slot), done.instant, done.groups, done.rows, done.bytes_written)

    def schema_at(self, position: PositionLike) -> pa.Schema:
        """The columns as of a position, as scan(as_of=...) gives them. Raises PositionError, SnapshotExpired."""
        return self.handle.at(position).config.declared_schema

    def schemas(self) -> list[SchemaVersion]:
        """The schemas that the table has had, the oldest first, as far as somebody can still ask for them: those of
        readable snapshots, and those under which its files were written.
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
    ids = {path_of(schema, number): number for number in schema.by_id}
    return SchemaVersion(schema.id, Cursor(table, since), schema.arrow, ids, tuple(describe(before, schema)))


__all__ = ["AlterResult", "Alterable", "SchemaVersion"]
