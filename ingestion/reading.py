"""Reader for batches of an ingestion source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import ColumnError, DataError, OptionError, TooManyBadRows
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.change_rows import ReplayContext, add_replay_information
from hoodoo.ingestion.new_columns import drop_unstorable_columns
from hoodoo.ingestion.transforming import call_transform
from hoodoo.ingestion.unsent_values import fill_from_stored_rows
from hoodoo.readers.predicate import checks
from hoodoo.redact import printable
from hoodoo.sources.source import BAD, Part, Placing, Planned, Source
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import KEPT, BadRows, find_bad_rows, no_bad_rows, together, without
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.column_alignment import fill_missing_columns

RowTransform = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class SourceBatch:
    """Batch that was read from a source.

    Attributes:
        rows: The rows.
        messages: Messages and files that could not be decoded, with the schema `BAD`.
        misfits: Rows with values that do not match the table.
        unknown: Names of columns that were left out, because the table does not have them.
        skipped: Number of messages that change no row.
        unavailable: Placeholder string that a database sends for an unchanged large value. None: no placeholder is
            used.
        position: Position of the source after the batch, if it differs from the planned one; otherwise ''.
        emptied: True if the source was truncated at the end of the batch. The batch then contains no rows.
        bytes: Number of bytes read; 0 if the source does not count bytes.
        unplaced: True if the table may store rows with these keys in other partitions.
        lost: Number of messages that were deleted from the source before they were read.
        origins: For each run of rows from one file the path and the number of rows; empty if the rows do not come from
            files.
    """

    rows: pa.Table
    messages: pa.Table
    misfits: BadRows
    unknown: Collection[str]
    skipped: int
    unavailable: str | None
    position: str = ""
    emptied: bool = False
    bytes: int = 0
    unplaced: bool = False
    lost: int = 0
    origins: tuple[tuple[str, int], ...] = ()

    @property
    def bad(self) -> int:
        return len(self.messages) + self.misfits.count

    @property
    def reasons(self) -> Counter[str]:
        return Counter(self.messages["reason"].to_pylist()) + self.misfits.reasons


@dataclass(frozen=True)
class SourceReader:
    """Reader for the batches of a source.

    Attributes:
        source: Source of the rows.
        table: Target table.
        operation: Write operation. Change events require 'upsert'.
        transform: Function that converts the rows of a batch. None: the rows are not changed.
        new_columns: Handling of columns that the table does not have: 'ignore', 'add' or 'fail'.
        missing: Handling of table columns that a batch lacks: 'null', 'fail' or 'keep'.
        bad_max: Maximum number of bad rows in a batch.
    """

    source: Source
    table: Table
    operation: str
    transform: RowTransform | None
    new_columns: str
    missing: str
    bad_max: int

    def columns(self, config: TableConfig) -> pa.Schema:
        """Return the table schema that a source receives.

        Args:
            config: The configuration of the table.

        Returns:
            The columns of the table, with current and former names. The metadata contains the key, partition and
            ordering columns (`Placing`).
        """
        return placing_of_table(config).noted_on(self._columns(config))

    def read(self, planned: Planned, config: TableConfig, rows_max: int | None = None) -> SourceBatch:
        """Read a batch of the source.

        Args:
            planned: The range of the source to read.
            config: The configuration of the table.
            rows_max: Number of rows after which a dry run ends. None: no limit.

        Returns:
            The batch. The user's `transform` is not applied yet.

        Raises:
            TooManyBadRows: There are too many bad rows. `details["found"]` contains them, with the schema `BAD`.
            ColumnError: The source lacks all columns of the table, or a column has different types in two parts.
            OptionError: The source has change events, and `operation` is not 'upsert'.
        """
        columns = self.columns(config)
        parts, messages, misfits, unknown = list[pa.Table](), [BAD.empty_table()], list[BadRows](), set[str]()
        skipped, bytes_read, unavailable, position, emptied, unplaced, lost = 0, 0, None, "", False, False, 0
        origins, rejected = list[str](), set[str]()
        try:
            for part in self.source.read(planned, columns, self.new_columns == "add" or self.transform is not None):
                self._require_known(part)
                unknown.update(part.unknown)
                messages.append(part.bad)
                if not part.rows.num_columns and part.unknown:
                    raise ColumnError(
                        f"{printable(self.source.name)} does not have any column of the table. Its columns are "
                        f"{printable(part.unknown)}. Give the job a transform that creates the columns of the table.",
                        column=part.unknown[0],
                    )
                skipped, bytes_read, position = skipped + part.skipped, bytes_read + part.bytes, part.position
                lost += part.lost
                if part.emptied:
                    self._require_upsert()
                    parts.clear()
                    origins.clear()
                    misfits.clear()
                    emptied = True
                    break
                if part.unavailable is not None or part.unplaced:
                    self._require_upsert()
                    unavailable, unplaced = part.unavailable, unplaced or part.unplaced
                if part.rows.num_columns and part.origin not in rejected:
                    rows, bad = part.rows, no_bad_rows(0)
                    if self.transform is None:
                        try:
                            with _add_file_to_errors(part.origin):
                                rows, bad, left_out = self._convert_to_table_types(rows, columns, config)
                        except ColumnError as problem:
                            if (quarantined := self.source.refused(part.origin, problem)) is None:
                                raise
                            rejected.add(part.origin)
                            messages.append(quarantined)
                            continue
                        bad = add_path_to_hashes(bad, [(part.origin, len(part.rows))])
                        if part.unavailable is not None:
                            bad = add_replay_information(bad, part.rows, ReplayContext(part.unavailable, part.unplaced))
                        unknown.update(left_out)
                    parts.append(rows)
                    origins.append(part.origin)
                    misfits.append(bad)
                if rows_max is not None and sum(map(len, parts)) >= rows_max:
                    break
        except TooManyBadRows as problem:
            if (found := problem.details.get("found")) is not None:
                problem.details["found"] = _concat_bad_messages([*messages, found])
            raise
        rows = self._concat_parts(parts, origins, config)
        no_rows, all_misfits = _concat_bad_messages(messages), together(misfits)
        files = tuple((origin, len(part)) for origin, part in zip(origins, parts, strict=True))
        named = files if any(origins) and self.transform is None else ()
        return SourceBatch(
            rows,
            no_rows,
            all_misfits,
            unknown,
            skipped,
            unavailable,
            position,
            emptied,
            bytes_read,
            unplaced,
            lost,
            named,
        )

    def _concat_parts(self, parts: Sequence[pa.Table], origins: Sequence[str], config: TableConfig) -> pa.Table:
        # Known columns already have equal types. New columns have the types of their values. Raises ColumnError if a
        # new column has several types.
        if not parts:
            return config.schema.empty_table()
        try:
            how = "permissive" if self.transform is None else "default"
            return pa.concat_tables(parts, promote_options=how)
        except pa.ArrowException:
            pass
        rows, before = parts[0], origins[0]
        for part, origin in zip(parts[1:], origins[1:], strict=True):
            try:
                rows, before = pa.concat_tables([rows, part], promote_options=how), origin or before
            except pa.ArrowException as problem:
                where = f" of {printable(origin)} and of {printable(before)}" if origin else ""
                raise ColumnError(
                    f"Columns{where} have different types: {printable(str(problem), 500)}. Add the column to the "
                    "table with the right type (`hoodoo alter`). Values of other types are then quarantined.",
                    file=origin,
                ) from None
        raise AssertionError("Rows could be joined one by one, but not all at once")

    def apply_transform(self, rows: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
        """Apply the user's transform to a batch.

        Args:
            rows: The rows of the batch.

        Returns:
            The rows to write, and the names of columns that were left out because a table cannot store them. Columns
            that the table does not have are removed, unless they are added to the table.

        Raises:
            DataError: `transform` raises an exception, or does not return a table.
            ColumnError: `transform` returns a column that the table does not have, and new_columns is 'fail'.
        """
        if not len(rows):
            return rows, ()
        written = rows if self.transform is None else call_transform(self.transform, rows, self.source.name)
        if not isinstance(written, pa.Table):
            raise DataError(f"Result of transform is invalid: expected a pyarrow Table, got {printable(written)}.")
        written = fill_from_stored_rows(rows, written, self.table, self.missing)
        if self.new_columns == "add":
            written, left_out, _ = drop_unstorable_columns(written, self.table.handle.newest_config())
            return written, left_out
        if self.transform is None:
            return written, ()
        hints = self.table.handle.config.name_mapping.hints(self.table.schema)
        known = {*self.table.schema.names, *hints.names, IS_DELETED}
        unknown = [name for name in written.column_names if name not in known]
        self._require_known(Part(written, unknown=tuple(unknown)))
        return (written.drop_columns(unknown) if unknown else written), ()

    def misfits(self, rows: pa.Table, most: int) -> BadRows:
        """Find the rows that the table would reject.

        Args:
            rows: Rows to write, with the column names of the table.
            most: Number of bad rows after which the search ends.

        Returns:
            The bad rows with their problems.
        """
        config = self.table.handle.newest_config()
        if self.new_columns == "add":
            rows, _, config = drop_unstorable_columns(rows, config)
        known = rows.select([name for name in rows.column_names if name in {*config.schema.names, IS_DELETED}])
        filled_rows = fill_missing_columns(known, config, self.missing)
        return find_bad_rows(known, filled_rows, config, checks.load_checks(config), max(most, KEPT), self.missing)

    def _columns(self, config: TableConfig) -> pa.Schema:
        # Key columns are NOT NULL. They are nullable if `transform` may create them, or if they may have another name
        # in the source.
        hints = config.name_mapping.hints(config.schema).append(pa.field(IS_DELETED, pa.bool_()))
        if self.transform is not None or config.name_mapping:  # the key may have another name in the source
            return hints
        return pa.schema([field.with_nullable(field.name not in config.key) for field in hints])

    def _convert_to_table_types(
        self, rows: pa.Table, columns: pa.Schema, config: TableConfig
    ) -> tuple[pa.Table, BadRows, tuple[str, ...]]:
        # A common type of two parts is never chosen: a common type of numbers is double, which does not represent all
        # integers. Returns the rows, the bad rows, and the names of columns that were left out.
        left_out: tuple[str, ...] = ()
        if self.new_columns == "add":
            rows, left_out, config = drop_unstorable_columns(rows, config)
            columns = self._columns(config)
        try:
            return _cast_columns(rows, columns), no_bad_rows(len(rows)), left_out
        except DataError as problem:
            if self.missing == "keep":
                raise
            mismatch = problem
        known = rows.select([name for name in rows.column_names if name in columns.names])
        bad = self.misfits(config.name_mapping.rows(known), self.bad_max)
        if not bad.count:
            raise mismatch
        if bad.partial:
            return _cast_columns(rows.slice(0, 0), columns), bad, left_out
        return _cast_columns(without(rows, bad.found["row"].to_numpy()), columns), bad, left_out

    def _require_upsert(self) -> None:
        if self.operation != "upsert":
            raise OptionError(
                f"Option operation is invalid: expected 'upsert', got {self.operation!r}. The source returns changes "
                "of rows, which overwrite rows. Leave it out.",
                option="operation",
            )

    def _require_known(self, part: Part) -> None:
        if part.unknown and self.new_columns == "fail":
            raise ColumnError(
                f"Column {printable(part.unknown[0])} is not in the table. Pass new_columns='add' "
                "(--new-columns add) to add it, or 'ignore' to leave it out.",
                column=part.unknown[0],
            )


@contextmanager
def _add_file_to_errors(origin: str) -> Iterator[None]:
    try:
        yield
    except DataError as problem:
        if not origin or "file" in problem.details:
            raise
        details = {**problem.details, "file": origin}
        raise type(problem)(f"File {printable(origin)}: {problem.message}", **details) from None
    except pa.ArrowException as problem:
        where = f"File {printable(origin)}: " if origin else ""
        raise ColumnError(
            f"{where}Columns cannot be read: {printable(str(problem), 500)}. Correct the file.", file=origin
        ) from None


def add_path_to_hashes(bad: BadRows, origins: Sequence[tuple[str, int]]) -> BadRows:
    """Distinguish equal bad rows of different files.

    Args:
        bad: Bad rows of a batch.
        origins: For each run of rows from one file the path and the number of rows.

    Returns:
        The bad rows. Rows that do not come from a file are not changed.
    """
    if not bad.count or not origins:
        return bad
    ends = np.cumsum([count for _, count in origins])
    runs = np.searchsorted(ends, bad.found["row"].to_numpy(), "right")
    names = [origins[run][0] for run in runs.tolist()]
    hashes = [
        f"{one}@{xxhash.xxh3_64_hexdigest(name.encode())}" if name else one
        for one, name in zip(bad.found["hash"].to_pylist(), names, strict=True)
    ]
    index = bad.found.schema.get_field_index("hash")
    return replace(bad, found=bad.found.set_column(index, bad.found.schema.field(index), pa.array(hashes, pa.string())))


def placing_of_table(config: TableConfig) -> Placing:
    def names(name: str) -> tuple[str, ...]:
        return (name, *config.name_mapping.original_names([name]))

    partition_columns = [name for name in config.partition_sources if name not in config.transforms]
    generated = tuple(str(one) for one in config.transforms.values() if one.column not in config.partition_by)
    key = tuple(names(name) for name in config.key)
    return Placing(key, tuple(one for name in partition_columns for one in names(name)), config.order_by, generated)


def _concat_bad_messages(messages: Sequence[pa.Table]) -> pa.Table:
    # Only some tables have the column `kept`, with the encoding for a replay.
    return pa.concat_tables(messages, promote_options="default")


def _cast_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    for index, name in enumerate(rows.column_names):
        if name in columns.names and rows.schema.field(index).type != columns.field(name).type:
            field = pa.field(name, columns.field(name).type)
            rows = rows.set_column(index, field, cast_column(rows.column(index), field))
    return rows


__all__ = ["SourceBatch", "SourceReader", "RowTransform", "add_path_to_hashes", "placing_of_table"]
