"""The rows of a batch that its table would refuse, so that the others can be written: which they are, why, and their
bytes.

`prepare` (batch.py) decides what is refused. A batch that it takes is not looked at again. Of a batch that it refuses
all bad rows are found, in the order of its own steps: by a mask over a whole column, or, where a step only says whether
values pass together, by cutting the column in halves until each bad value stands alone. What is said of a bad row is
what `prepare` says of that row alone. What is not a row's fault (a missing column, a type of another family) fails the
batch.
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
from hoodoo.format.keys import unfit_keys, unfit_partitions
from hoodoo.format.names import IS_DELETED
from hoodoo.format.rows import compact
from hoodoo.format.table_schema import Column
from hoodoo.readers.predicate.checks import Check
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch, check_columns, delete_flags, prepare, with_flag, without_order
from hoodoo.writers.batches.cast import cast, unfit_rows
from hoodoo.writers.batches.column_alignment import FAIL, filled, grown
from hoodoo.writers.batches.generated_columns import with_generated, wrongly_placed
from hoodoo.writers.batches.renaming import labelled
from hoodoo.writers.batches.value_validation import plain_row, sound_columns, unsound_rows
from hoodoo.writers.batches.write_options import WriteOptions

PAYLOAD_MAX, PAYLOAD_CUT = 1 << 20, 64 << 10
"""Bytes of a row that are kept whole, and of a larger one those that are kept."""
BYTES_MAX = 64 << 20
"""Bytes of the bad rows of one batch: more are too many, as they are gathered in one process."""
KEPT = 100
"""Rows of a batch with too many bad ones that are kept to be looked at."""
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
    """found: as FOUND. rows: of the whole batch. count: bad rows, at least; more than `found` holds if they are too
    many, and then the batch was not looked at to its end.
    """

    found: pa.Table
    rows: int
    count: int

    @property
    def reasons(self) -> Counter[str]:
        """How many of those that were kept are bad for each reason."""
        return Counter(self.found["reason"].to_pylist())

    @property
    def partial(self) -> bool:
        """True if there are more bad rows than were kept."""
        return self.count > len(self.found)


def none_of(rows: int) -> BadRows:
    """No bad row in `rows` of them."""
    return BadRows(FOUND.empty_table(), rows, 0)


def together(parts: Sequence[BadRows]) -> BadRows:
    """Those of several parts of a batch, in their order."""
    found = pa.concat_tables([FOUND.empty_table(), *(part.found for part in parts)])
    return BadRows(found, sum(part.rows for part in parts), sum(part.count for part in parts))


def sifted(
    data: pa.Table,
    config: TableConfig,
    options: WriteOptions,
    checks: Sequence[Check],
    settled: int | None = None,
) -> tuple[Batch, BadRows]:
    """Part the good rows of `data` from the bad ones.

    Args:
        data: The rows as they came.
        config: The table as the batch wants it.
        options: What the caller asks for, with the limits on bad rows.
        checks: What rows that delete nothing have to pass.
        settled: As `prepare` takes it.

    Returns:
        The batch of the good rows, and the bad rows.

    Raises:
        DataError: What `prepare` raises, if the options set no limits or it is no row's fault.
    """
    how = (options, checks, settled)
    try:
        return prepare(data, config, *how), none_of(len(data))
    except DuplicateKeys:
        raise
    except DataError as problem:
        if options.limits is None or options.delete:
            raise
        try:
            check_columns(data.schema, config, False, options.missing)
            whole = filled(data, config, options.missing)
            bad = bad_rows(data, whole, config, checks, max(options.limits.rows, KEPT), options.missing)
        except (pa.ArrowInvalid, pa.ArrowIndexError):  # a column whose parts do not fit has no rows to tell apart
            raise problem from None
        if not bad.count:
            raise
    left = data.slice(0, 0) if bad.partial else without(data, bad.found["row"].to_numpy())
    return prepare(left, config, *how), bad


def bad_rows(
    data: pa.Table, whole: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str = FAIL
) -> BadRows:
    """Every row of `data` that `prepare` refuses; the search ends once there are more than `most`. whole: `data` with
    the columns that it may lack. Raises ColumnError for what is no row's fault, pa.ArrowInvalid for rows that have no
    bytes.
    """
    found = faults(whole, config, checks, most, missing)
    return _described(data, whole, config, checks, found, most, missing)


def faults(
    data: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str = FAIL
) -> dict[int, str]:
    """Each row of `data` that `prepare` refuses, and for what reason; the search ends once there are more than `most`.
    Raises ColumnError for what is no row's fault.
    """
    reasons: dict[int, str] = {}
    for reason, rows in _faults(data, config, checks, most, missing):
        reasons |= dict.fromkeys(rows.tolist(), reason)
        if len(reasons) > most:
            break
    return reasons


def without(data: pa.Table, rows: np.ndarray) -> pa.Table:
    """`data` without `rows` (in order): slices of it, since not every type can be filtered."""
    starts, stops = np.append(-1, rows) + 1, np.append(rows, len(data))
    parts = [data.slice(start, stop - start) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_tables([part for part in parts if len(part)] or parts[:1])


# ---------------------------------------------------------------- which rows


def _faults(
    data: pa.Table, config: TableConfig, checks: Sequence[Check], most: int, missing: str
) -> Iterator[tuple[str, np.ndarray]]:
    """(reason, rows of `data`) in the order in which `prepare` looks; each row once, for the first of its faults."""
    needed, flagged = check_columns(data.schema, config, False)
    names = with_flag(needed, flagged)
    left = np.arange(len(data))

    bad = _union(len(data), [unsound_rows(data[name], most) for name in names])
    yield "unsound", left[bad]
    rows, left = without(data, np.flatnonzero(bad)), left[~bad]
    rows = grown(sound_columns(rows, names, config.key), config, missing)

    bad = _union(len(rows), [unfit_rows(rows[name], config.schema.field(name), most) for name in needed])
    yield "cast", left[bad]
    rows, left = without(rows, np.flatnonzero(bad)), left[~bad]
    deleted = delete_flags(rows[IS_DELETED]) if flagged else np.zeros(len(rows), bool)
    rows = compact(pa.table([cast(rows[name], config.schema.field(name)) for name in needed], names=needed))

    if config.transforms:
        bad = wrongly_placed(rows, config, deleted)
        yield "bad_partition", left[bad]
        rows, left, deleted = rows.filter(pa.array(~bad)), left[~bad], deleted[~bad]
        rows = with_generated(rows, config, deleted)
    for reason, mask in _MASKS:
        bad = mask(rows, config, deleted)
        yield reason, left[bad]
        rows, left, deleted = rows.filter(pa.array(~bad)), left[~bad], deleted[~bad]
    for check in checks:
        bad = np.zeros(len(rows), bool)
        bad[check.failing(rows)] = True
        bad &= ~deleted
        yield "check", left[bad]
        rows, left, deleted = rows.filter(pa.array(~bad)), left[~bad], deleted[~bad]


def _union(count: int, positions: Sequence[Sequence[int]]) -> np.ndarray:
    mask = np.zeros(count, bool)
    for each in positions:
        mask[list(each)] = True
    return mask


def _without_order(rows: pa.Table, config: TableConfig, deleted: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(rows), bool)
    for name in config.order_by:
        if (bad := without_order(rows, name)) is not None:
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
    ("bad_key", lambda rows, config, deleted: unfit_keys(rows, config.key, config.partition_by)),
    (
        "bad_partition",
        lambda rows, config, deleted: unfit_partitions(rows, config.partition_by, config.hive_style, config.url_encode),
    ),
)


# ---------------------------------------------------------------- what is said of them, and kept


def _described(
    data: pa.Table,
    whole: pa.Table,
    config: TableConfig,
    checks: Sequence[Check],
    reasons: dict[int, str],
    most: int,
    missing: str,
) -> BadRows:
    kept, size = list[dict[str, object]](), 0
    for row in sorted(reasons)[:most]:
        content = row_bytes(data, row)
        payload = row_bytes(data, row, config.columns.columns)
        cut = len(payload) > PAYLOAD_MAX
        size += PAYLOAD_CUT if cut else len(payload)
        if size > BYTES_MAX:
            break
        kept.append(
            {
                "row": row,
                "reason": reasons[row],
                "detail": detail(whole.slice(row, 1), config, checks, missing),
                "hash": xxhash.xxh3_128_hexdigest(content),
                "payload": payload[:PAYLOAD_CUT] if cut else payload,
                "payload_cut": cut,
            }
        )
    return BadRows(pa.Table.from_pylist(kept, FOUND), len(data), len(reasons))


def detail(row: pa.Table, config: TableConfig, checks: Sequence[Check], missing: str = FAIL) -> str:
    """What `prepare` says of the row alone, without its number: the same row has another one in the next batch."""
    try:
        prepare(row, config, WriteOptions(missing=missing), checks)
    except DataError as problem:
        return _ROW_ZERO.sub("", problem.message, count=1)[:_DETAIL_MAX]
    raise AssertionError("a row that is refused among others is taken alone")


def row_bytes(data: pa.Table, row: int, known_as: Sequence[Column] = ()) -> bytes:
    """Row `row` as an Arrow stream of one row, the same bytes wherever in a batch it stands and however the batch holds
    it: its columns in order of name, in plain form, with nothing below nulls. known_as: columns whose ids are noted in
    it, so that a replay finds them under other names.
    """
    names = sorted(data.schema.names)
    columns = [plain_row(data[name], row) for name in names]
    table = pa.table(columns, schema=pa.schema([(name, one.type) for name, one in zip(names, columns, strict=True)]))
    table = labelled(table, known_as) if known_as else table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def row_of(content: bytes) -> pa.Table:
    """Inverse of `row_bytes`. Raises pa.ArrowInvalid for bytes that are no such row."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        table = reader.read_all()
    table.validate()
    if len(table) != 1:
        raise pa.ArrowInvalid(f"{len(table)} rows")
    return table


__all__ = [
    "BYTES_MAX",
    "KEPT",
    "BadRows",
    "bad_rows",
    "detail",
    "faults",
    "none_of",
    "row_bytes",
    "row_of",
    "sifted",
    "together",
    "without",
]
