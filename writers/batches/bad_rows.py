"""Search for the bad rows of a batch.

`prepare_batch` (batch.py) decides whether a row is invalid. If it accepts a batch, no search is necessary. Otherwise
the search follows the steps of `prepare_batch`. It uses a mask over a whole column, or bisects a column if a step can
only check values together. The description of an invalid row is the error that `prepare_batch` raises for that row
alone.

Errors that do not belong to a row, such as a missing column or an incompatible type, fail the whole batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import DataError, DuplicateKeys
from hoodoo.format.keys import rows_without_valid_key, rows_without_valid_partition
from hoodoo.format.names import IS_DELETED
from hoodoo.format.rows import compact
from hoodoo.format.table_schema import Column
from hoodoo.readers.predicate.checks import Check
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import (
    Batch,
    check_column_names,
    delete_flags,
    mask_of_missing_ordering_values,
    prepare_batch,
    with_delete_flag,
)
from hoodoo.writers.batches.cast import cast_column, find_uncastable_rows
from hoodoo.writers.batches.column_alignment import FAIL, fill_missing_columns, fill_missing_fields
from hoodoo.writers.batches.generated_columns import add_generated_columns, find_misplaced_rows
from hoodoo.writers.batches.renaming import labelled
from hoodoo.writers.batches.value_validation import plain_row, unsound_rows, validate_columns
from hoodoo.writers.batches.write_options import WriteOptions

PAYLOAD_MAX, PAYLOAD_CUT = 1 << 20, 64 << 10
"""Maximum bytes of an invalid row that is quarantined in full, and the bytes that are kept of a larger row."""
BYTES_MAX = 64 << 20
"""Maximum total bytes of the invalid rows of one batch, which one process collects."""
KEPT = 100
"""Minimum number of invalid rows to collect, even if the limit on invalid rows is lower."""
_DETAIL_MAX = 500
_ROW_ZERO = re.compile(r"(?<=['\"]), row 0\b| in row 0\b|(?<=^Row) 0\b")
FOUND = pa.schema(
    [
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("hash", pa.string()),
        ("payload", pa.binary()),
        ("payload_cut", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class BadRows:
    """Bad rows of a batch, and their problems.

    Attributes:
        found: The invalid rows, with the schema FOUND.
        rows: The number of rows in the batch, valid and invalid.
        count: The number of invalid rows. If it exceeds the length of `found`, the search ended early, and the batch
            may have more invalid rows.
    """

    found: pa.Table
    rows: int
    count: int

    @property
    def reasons(self) -> Counter[str]:
        return Counter(self.found["reason"].to_pylist())

    @property
    def partial(self) -> bool:
        return self.count > len(self.found)


def no_bad_rows(rows: int) -> BadRows:
    return BadRows(FOUND.empty_table(), rows, 0)


def together(parts: Sequence[BadRows]) -> BadRows:
    rows = pa.concat_tables([FOUND.empty_table(), *(part.found for part in parts)])
    return BadRows(rows, sum(part.rows for part in parts), sum(part.count for part in parts))


def separate_bad_rows(
    data: pa.Table,
    config: TableConfig,
    options: WriteOptions,
    checks: Sequence[Check],
    settled: int | None = None,
) -> tuple[Batch, BadRows]:
    """Separate the bad rows of a batch from its valid rows.

    Args:
        data: The input rows.
        config: The table's configuration, with the columns that the batch adds.
        options: The options of the write, with the limits on invalid rows.
        checks: The checks that all rows except deletes have to pass.
        settled: The largest column id that the table has assigned. See `prepare_batch`.

    Returns:
        The batch of valid rows, and the invalid rows. The batch is empty if there are more invalid rows than were
        collected.

    Raises:
        DataError: `prepare_batch` failed, and the options set no limits or the error does not belong to a row.
    """
    prepare_args = (options, checks, settled)
    try:
        return prepare_batch(data, config, *prepare_args), no_bad_rows(len(data))
    except DuplicateKeys:
        raise
    except DataError as problem:
        if options.limits is None or options.delete:
            raise
        try:
            check_column_names(data.schema, config, False, options.missing)
            complete = fill_missing_columns(data, config, options.missing)
            bad = find_bad_rows(data, complete, config, checks, max(options.limits.rows, KEPT), options.missing)
        except (pa.ArrowInvalid, pa.ArrowIndexError):  # the structure of a column is broken, so no row can be checked
            raise problem from None
        if not bad.count:
            raise
    valid = data.slice(0, 0) if bad.partial else without(data, bad.found["row"].to_numpy())
    return prepare_batch(valid, config, *prepare_args), bad


def find_bad_rows(
    data: pa.Table, whole: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str = FAIL
) -> BadRows:
    """Find and describe the bad rows of a batch.

    The search ends after more than `most` rows.

    Args:
        data: The input rows.
        whole: `data` with defaults for missing columns.
        config: The table's configuration.
        checks: The checks that rows have to pass.
        most: Maximum number of invalid rows to collect.
        missing: The handling of missing columns.

    Raises:
        ColumnError: The error does not belong to a row.
        pa.ArrowInvalid: A row cannot be serialized.
    """
    reasons = faults(whole, config, checks, most, missing)
    return _describe_bad_rows(data, whole, config, checks, reasons, most, missing)


def faults(
    data: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str = FAIL
) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for reason, rows in _iter_bad_rows(data, config, checks, most, missing):
        reasons |= dict.fromkeys(rows.tolist(), reason)
        if len(reasons) > most:
            break
    return reasons


def without(data: pa.Table, rows: np.ndarray) -> pa.Table:
    starts, stops = np.append(-1, rows) + 1, np.append(rows, len(data))
    parts = [data.slice(start, stop - start) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_tables([part for part in parts if len(part)] or parts[:1])


# ---------------------------------------------------------------- search for invalid rows


def _iter_bad_rows(
    data: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str
) -> Iterator[tuple[str, np.ndarray]]:
    # The reasons have the order of the steps of `prepare`. Each row occurs once, with its first error.
    needed, flagged = check_column_names(data.schema, config, False)
    names = with_delete_flag(needed, flagged)
    row_numbers = np.arange(len(data))

    bad = _mask_of_positions(len(data), [unsound_rows(data[name], most) for name in names])
    yield "unsound", row_numbers[bad]
    rows, row_numbers = without(data, np.flatnonzero(bad)), row_numbers[~bad]
    rows = fill_missing_fields(validate_columns(rows, names, config.key), config, missing)

    bad = _mask_of_positions(
        len(rows), [find_uncastable_rows(rows[name], config.schema.field(name), most) for name in needed]
    )
    yield "cast", row_numbers[bad]
    rows, row_numbers = without(rows, np.flatnonzero(bad)), row_numbers[~bad]
    deleted = delete_flags(rows[IS_DELETED]) if flagged else np.zeros(len(rows), bool)
    rows = compact(pa.table([cast_column(rows[name], config.schema.field(name)) for name in needed], names=needed))

    if config.transforms:
        bad = find_misplaced_rows(rows, config, deleted)
        yield "bad_partition", row_numbers[bad]
        rows, row_numbers, deleted = rows.filter(pa.array(~bad)), row_numbers[~bad], deleted[~bad]
        rows = add_generated_columns(rows, config, deleted)
    for reason, mask in _MASKS:
        bad = mask(rows, config, deleted)
        yield reason, row_numbers[bad]
        rows, row_numbers, deleted = rows.filter(pa.array(~bad)), row_numbers[~bad], deleted[~bad]
    for check in checks:
        bad = np.zeros(len(rows), bool)
        bad[check.failing(rows)] = True
        bad &= ~deleted
        yield "check", row_numbers[bad]
        rows, row_numbers, deleted = rows.filter(pa.array(~bad)), row_numbers[~bad], deleted[~bad]


def _mask_of_positions(count: int, positions: Sequence[Sequence[int]]) -> np.ndarray:
    mask = np.zeros(count, bool)
    for rows in positions:
        mask[list(rows)] = True
    return mask


def _without_order(rows: pa.Table, config: TableConfig, deleted: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(rows), bool)
    for name in config.order_by:
        if (bad := mask_of_missing_ordering_values(rows, name)) is not None:
            mask |= bad.to_numpy()
    return mask


def _null_columns(rows: pa.Table, config: TableConfig, deleted: np.ndarray) -> np.ndarray:
    return _nulls(rows, config.not_null) & ~deleted


def _nulls(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    mask = np.zeros(len(rows), bool)
    for name in names:
        if rows[name].null_count:
            mask |= rows[name].is_null().to_numpy()
    return mask


_Mask: TypeAlias = Callable[[pa.Table, TableConfig, np.ndarray], np.ndarray]
_MASKS: tuple[tuple[str, _Mask], ...] = (
    ("null_order", _without_order),
    ("null_column", _null_columns),
    ("null_key", lambda rows, config, deleted: _nulls(rows, config.key)),
    ("bad_key", lambda rows, config, deleted: rows_without_valid_key(rows, config.key, config.partition_by)),
    (
        "bad_partition",
        lambda rows, config, deleted: rows_without_valid_partition(
            rows, config.partition_by, config.hive_style, config.url_encode
        ),
    ),
)


# ---------------------------------------------------------------- descriptions of invalid rows


def _describe_bad_rows(
    data: pa.Table,
    complete: pa.Table,
    config: TableConfig,
    checks: Sequence[Check],
    reasons: dict[int, str],
    max_rows: int,
    missing: str,
) -> BadRows:
    kept, size = list[dict[str, object]](), 0
    for row in sorted(reasons)[:max_rows]:
        content = serialize_row(data, row)
        payload = serialize_row(data, row, config.columns.columns)
        cut = len(payload) > PAYLOAD_MAX
        size += PAYLOAD_CUT if cut else len(payload)
        if size > BYTES_MAX:
            break
        kept.append(
            {
                "row": row,
                "reason": reasons[row],
                "detail": describe_problem(complete.slice(row, 1), config, checks, missing),
                "hash": xxhash.xxh3_128_hexdigest(content),
                "payload": payload[:PAYLOAD_CUT] if cut else payload,
                "payload_cut": cut,
            }
        )
    return BadRows(pa.Table.from_pylist(kept, FOUND), len(data), len(reasons))


def describe_problem(row: pa.Table, config: TableConfig, checks: Sequence[Check], missing: str = FAIL) -> str:
    """Describe the problem of a bad row.

    The message omits the row number, because a row has a different number in another batch.
    """
    try:
        prepare_batch(row, config, WriteOptions(missing=missing), checks)
    except DataError as problem:
        return _ROW_ZERO.sub("", problem.message, count=1)[:_DETAIL_MAX]
    raise AssertionError("Row is valid alone, but was invalid in its batch. This is a bug in hoodoo.")


def serialize_row(data: pa.Table, row: int, known_as: Sequence[Column] = ()) -> bytes:
    """Serialize a row for the quarantine table.

    The columns are sorted by name and have Arrow's plain layout. Equal rows therefore give equal bytes, regardless of
    their row number and the layout of the batch.

    known_as: columns whose ids are stored in the stream, so that a replay can match renamed columns.
    """
    names = sorted(data.schema.names)
    columns = [plain_row(data[name], row) for name in names]
    table = pa.table(
        columns, schema=pa.schema([(name, column.type) for name, column in zip(names, columns, strict=True)])
    )
    table = labelled(table, known_as) if known_as else table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def deserialize_row(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        table = reader.read_all()
    table.validate()
    if len(table) != 1:
        raise pa.ArrowInvalid(f"Quarantined payload has {len(table)} rows instead of one.")
    return table


__all__ = [
    "BYTES_MAX",
    "KEPT",
    "BadRows",
    "find_bad_rows",
    "describe_problem",
    "faults",
    "no_bad_rows",
    "serialize_row",
    "deserialize_row",
    "separate_bad_rows",
    "together",
    "without",
]
