"""Source that reads the changes of another table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import convert_names
from hoodoo.errors import (
    ColumnError,
    OptionError,
    PositionError,
    RangeUndone,
    SnapshotExpired,
    SourceLost,
    TableReplaced,
)
from hoodoo.format.equality import equal_values
from hoodoo.format.names import IS_DELETED, instant_of_ms
from hoodoo.readers.cursor import Cursor, cursor_of, cursor_of_commit_number, require_same_commit
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag
from hoodoo.sources.start_points import EARLIEST, KNOWN, LATEST, parse_time_ms
from hoodoo.table import Table

_KIND = "table"
_COUNT_NAMES = ("inserts", "updates", "deletes")
T = TypeVar("T")


class TableChanges(Source):
    """Source for the changes of a hoodoo or Hudi table.

    Attributes:
        name: 'table:' and the path of the table.
    """

    def __init__(self, table: Table, moves: Sequence[str] = (), hold: str | None = None) -> None:
        """Create a source for the changes of a table.

        Nothing is read yet.

        Args:
            table: The table to follow.
            moves: Partition columns of the target table, if they differ from those of `table`. If one of these columns
                changes, the row is deleted from its former partition. Default: none.
            hold: Name of a consumer of `table`. Cleaning keeps the changes that the consumer has not read. None
                (default): if cleaning removes changes before they are read, the job raises SourceLost.

        Raises:
            OptionError: `table` is not a table, or an argument is invalid.
            ColumnError: The table does not have a column of `moves`.
        """
        if not isinstance(table, Table):
            raise OptionError(
                f"Option table is invalid: expected a table from hoodoo.open(), got {printable(table)}.", option="table"
            )
        self.table, self.moves, self.hold = table, tuple(convert_names("moves", moves)), hold
        if missing := [name for name in self.moves if name not in table.schema.names]:
            raise ColumnError(
                f"{table.path} does not have column {missing[0]!r}. Pass existing columns as moves.", column=missing[0]
            )
        self.name = f"table:{table.path}"

    def __repr__(self) -> str:
        return f"<changes of {self.table.path}>"

    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the commits for the next batch.

        Args:
            position: Position of an earlier plan; '' for the first batch.
            limits: The commits have at most `limits.rows` changes in total. A single commit may have more.

        Returns:
            A range of slots (numbered commits); None if no row has changed.

        Raises:
            SourceLost: The changes after the position were cleaned or undone, or the table was replaced.
        """
        after = self._last_read_slot(position)
        if self.hold is not None:
            self._advance_consumer(after)
        config, history, view = self.table.handle.look()
        if after > view.seq:
            raise self._changes_lost_error(
                f"The newest slot (commit) is {view.seq}, but the job has read slot {after}."
            )
        start = after or max(view.min_readable, history.oldest_slot()) - 1
        changes, until = 0, after
        for seq in range(start + 1, view.seq + 1):
            slot = self._convert_errors(lambda seq=seq: history.slot(seq))  # type: ignore[misc]
            if slot.writes_rows or not after:
                until = seq
                changes += sum(slot.counts.get(name, 0) for name in _COUNT_NAMES)
            if changes >= limits.rows:
                break
        if until == after:
            return None
        return Planned((after, until), self._position_text(cursor_of_commit_number(history, until)))

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read the changed rows of planned commits.

        Args:
            planned: A result of `plan`.
            columns: Columns of the target table.
            unknown: True to also return columns that the table does not have.

        Yields:
            Rows to upsert. Rows whose `_hoodie_is_deleted` is true are deletes.

        Raises:
            SourceLost: The range was cleaned away or rolled back after `plan`.
        """
        after, until = cast("tuple[int, int]", planned.what)
        changes = self._convert_errors(lambda: self.table.changes(after if after else "earliest", until))
        pieces = iter(changes.tables())
        while (piece := self._convert_errors(lambda: next(pieces, None))) is not None:
            rows = self._convert_changes(piece)
            left_out = () if unknown else tuple(name for name in rows.column_names if name not in columns.names)
            yield Part(
                rows.drop_columns(list(left_out)), unknown=tuple(name for name in left_out if name != IS_DELETED)
            )

    def _convert_changes(self, changes: pa.Table) -> pa.Table:
        # Deletes come first, so that a reinserted key is not deleted.
        kinds = changes["op"].combine_chunks()
        before, after = (changes[name].combine_chunks() for name in ("before", "after"))
        is_delete = pc.equal(kinds, "d").to_numpy(zero_copy_only=False)
        for name in self.moves:
            old, new = (pc.struct_field(image, name) for image in (before, after))
            changed = ~equal_values(old, new)
            is_delete |= pc.equal(kinds, "u").to_numpy(zero_copy_only=False) & changed
        is_row = pc.not_equal(kinds, "d").to_numpy(zero_copy_only=False)
        return pa.concat_tables(
            [_rows_with_delete_flag(before, is_delete, True), _rows_with_delete_flag(after, is_row, False)]
        )

    def lag(self, position: str) -> SourceLag:
        """Count the unread commits that changed rows.

        Args:
            position: Position of an earlier plan; '' for the beginning of the table's history.

        Returns:
            The number of commits that changed rows, and the age of the oldest one.
        """
        after = self._last_read_slot(position)
        config, history, view = self.table.handle.look()
        waiting = [
            slot
            for seq in range(max(after, history.oldest_slot() - 1) + 1, view.seq + 1)
            if (slot := history.slot(seq)).writes_rows
        ]
        now = self.table.handle.environment.now_ms()
        age = max(0.0, (now - waiting[0].completed_at) / 1000) if waiting else 0.0
        return SourceLag(len(waiting), "commits", age)

    def to_hudi(self, position: str) -> str:
        """Convert a position to a checkpoint of Hudi's streamer.

        Args:
            position: Position of a plan.

        Returns:
            The completion time of the newest commit that was read, as 17 digits; '' if nothing was read.
        """
        slot = self._last_read_slot(position)
        if not slot:
            return ""
        history = self.table.handle.look().history
        return instant_of_ms(self._convert_errors(lambda: history.slot(slot)).completed_at)

    def position_at(self, start: str) -> str:
        """Convert a start point such as 'latest' to a position.

        Args:
            start: 'earliest' (all rows, then their changes), 'latest', a time after which changes are read, or a
                position of an earlier plan.

        Returns:
            The position.

        Raises:
            OptionError: `start` is invalid.
            PositionError: The table no longer has the changes of that time.
            SourceLost: The position belongs to another table.
        """
        if start.startswith("{"):
            return super().position_at(start)
        if start not in (EARLIEST, LATEST) and parse_time_ms(start) is None:
            raise OptionError(
                f"{printable(start)} is not a valid position in a table. Use {KNOWN}, or a position of an "
                "earlier batch.",
                option="start",
            )
        view = self.table.handle.at(None if start in (EARLIEST, LATEST) else start).view
        return self._position_text(Cursor(view.table, 0) if start == EARLIEST else cursor_of(view))

    def _position_text(self, at: Cursor) -> str:
        digest = {"digest": at.digest} if at.digest else {}
        return json.dumps({"source": _KIND, "table": at.table, "slot": at.seq, **digest}, separators=(",", ":"))

    # ---- positions
    def has_read(self, position: str) -> bool:
        """Check whether a position belongs to this table.

        Args:
            position: A position of any job.

        Returns:
            True if the position is in the history of this table.
        """
        try:
            content = json.loads(position)
        except ValueError:
            return False
        if not isinstance(content, dict) or content.get("source") != _KIND:
            return False
        return bool(content.get("table") == self.table.handle.look().view.table)

    def _last_read_slot(self, position: str) -> int:
        # 0 if nothing was read. Raises SourceLost if the position belongs to another source, or the followed table was
        # replaced or rolled back.
        if not position:
            return 0
        try:
            content = json.loads(position)
            kind, table, slot, digest = content["source"], content["table"], content["slot"], content.get("digest", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            kind, table, slot, digest = "", "", 0, ""
        if kind != _KIND or not isinstance(slot, int) or slot < 0:
            raise SourceLost(
                f"The position {printable(position)} belongs to another source: expected a position of a "
                "table. To read this table from its beginning, give the job another name.",
                position=position[:1000],
            )
        if table != self.table.handle.look().view.table:
            raise self._changes_lost_error("Another table is at this path.")
        try:
            require_same_commit(self.table.handle.look().history, slot, str(digest), "The position of the job")
        except PositionError as problem:
            raise self._changes_lost_error(problem.message) from None
        return slot

    def _advance_consumer(self, after: int) -> None:
        # Cleaning then keeps the later changes. A consumer only moves forward.
        assert self.hold is not None
        consumer = self.table.consumer(self.hold)
        if after > consumer.position.seq:
            consumer.commit(after)

    def _convert_errors(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (SnapshotExpired, RangeUndone, TableReplaced, PositionError) as problem:
            raise self._changes_lost_error(problem.message) from None

    def _changes_lost_error(self, why: str) -> SourceLost:
        return SourceLost(
            f"Table {self.table.path} no longer has all unread changes. {why} To start again, give the job another "
            "name. It then reads all current rows, but not the rows that were deleted before.",
            path=self.table.path,
        )


def _rows_with_delete_flag(rows: pa.StructArray, mask: np.ndarray, deleted: bool) -> pa.Table:
    picked = rows.filter(pa.array(mask))
    columns = {field.name: pc.struct_field(picked, field.name) for field in rows.type}
    return pa.table({**columns, IS_DELETED: pa.array(np.full(len(picked), deleted))})
