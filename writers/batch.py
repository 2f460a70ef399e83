"""A batch as it came becomes a batch as the table wants it: Arrow columns of the table's types, keys, partition paths,
hashes,
one row per key. Everything that can be wrong with input is found here, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, DuplicateKeys, OrderingError
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import partition_paths, record_keys
from hoodoo.format.names import IS_DELETED, RECORD_KEY
from hoodoo.merge.changes import dense_codes, losers, repeated
from hoodoo.merge.policy import LATER_WINS
from hoodoo.storage.redact import printable
from hoodoo.timeline.config import TableConfig
from hoodoo.writers.soundness import sound_columns

STAGED_PARTITION = "_hoodoo_partition"
"""Column of the partition paths in rows that are staged for other tasks."""


@dataclass(frozen=True)
class Batch:
    """`rows` has the record key column, then the table's columns. partition of row i is `partitions[codes[i]]`.

    delete: mask of rows that delete; unconditional: whether they do so whatever the ordering value (all or none of a
    batch).
    stale: rows of the batch that lost to another row of the batch.
    """

    rows: pa.Table
    hashes: np.ndarray
    partitions: list[str]
    codes: np.ndarray
    delete: np.ndarray
    unconditional: bool
    stale: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: np.ndarray) -> Batch:
        return Batch(
            self.rows.take(pa.array(places)),
            self.hashes[places],
            self.partitions,
            self.codes[places],
            self.delete[places],
            self.unconditional,
            self.stale,
        )


def to_arrow(data: Any) -> pa.Table:
    """pyarrow Table, RecordBatch or RecordBatchReader, pandas or polars DataFrame, or a list of dicts, as a pyarrow
    Table.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    module = type(data).__module__.split(".")[0]
    if module == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        names = set().union(*data) if data else set()
        for number, row in enumerate(data):
            if missing := names - row.keys():
                raise ColumnError(
                    (
                        f"Row {number} has no {min(missing)!r}, which other rows have. Add it; nothing is filled with "
                        "nulls for you."
                    ),
                    column=min(missing),
                )
        return pa.Table.from_pylist(data)
    raise ColumnError(
        (
            f"Cannot take rows from {type(data).__name__}; pass a pyarrow Table or RecordBatchReader, a pandas, "
            "polars or Spark DataFrame."
        ),
        type=type(data).__name__,
    )


def prepare(data: pa.Table, config: TableConfig, delete: bool = False, duplicates: str = "newest") -> Batch:
    """Check and convert `data` for `config`. delete=True takes only key and partition columns, as unconditional
    deletes.

    Raises ColumnError, KeyValueError, PartitionValueError, OrderingError, DuplicateKeys.
    """
    needed, flagged = check_columns(data.schema, config, delete)
    data = sound_columns(data, [*needed, *([IS_DELETED] if flagged else [])], config.key)
    rows = pa.table([_cast(data[name], config.schema.field(name)) for name in needed], names=needed).combine_chunks()
    mask = pc.fill_null(data[IS_DELETED], False).to_numpy().astype(bool) if flagged else np.full(len(rows), delete)
    _check_ordering(rows, config, delete)
    keys = record_keys(rows, config.key, config.partition_by)
    paths = partition_paths(rows, config.partition_by, config.hive_style, config.url_encode)
    if delete:
        rows = pa.table(
            [rows[f.name] if f.name in needed else pa.nulls(len(rows), f.type) for f in config.schema],
            schema=config.schema,
        )
    rows = rows.add_column(0, RECORD_KEY, keys)
    batch = Batch(
        rows, hash64(keys), paths.dictionary.to_pylist(), paths.indices.to_numpy().astype(np.int32), mask, delete
    )
    return one_row_per_key(batch, config, duplicates)


def check_columns(schema: pa.Schema, config: TableConfig, delete: bool) -> tuple[list[str], bool]:
    """(columns to take, does the delete flag come along) for a batch with `schema`. Raises ColumnError."""
    names = schema.names
    needed = list(dict.fromkeys((*config.key, *config.partition_by))) if delete else config.schema.names
    flagged = IS_DELETED in names and IS_DELETED not in config.schema.names and not delete
    for name in needed:
        if names.count(name) == 0:
            part = "key" if name in config.key else "partition" if name in config.partition_by else "table"
            raise ColumnError(
                (
                    f"The batch has no column {name!r}, a {part} column. Add it; no column is ever filled with nulls "
                    "for you."
                ),
                column=name,
            )
        if names.count(name) > 1:
            raise ColumnError(f"The batch has column {name!r} more than once.", column=name)
    extra = [name for name in names if name not in config.schema.names and not (flagged and name == IS_DELETED)]
    if not delete and extra:
        raise ColumnError(
            (
                f"The batch has column {extra[0]!r}, which the table has not. Columns match by name, "
                "case-sensitively. Drop it."
            ),
            column=extra[0],
        )
    if flagged and not pa.types.is_boolean(schema.field(IS_DELETED).type):
        raise ColumnError(f"{IS_DELETED} must be boolean, got {schema.field(IS_DELETED).type}.", column=IS_DELETED)
    return needed, flagged


_FAMILIES = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    (pa.types.is_boolean,),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_timestamp,),
    (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view),
    (pa.types.is_map,),
    (pa.types.is_struct,),
)


def _family(kind: pa.DataType) -> int:
    return next((i for i, tests in enumerate(_FAMILIES) if any(test(kind) for test in tests)), -1)


def _remedy(kind: pa.DataType, wanted: pa.DataType) -> str:
    """What to do with values of type `kind` where the table has `wanted`, which is of another family."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return (
            "Say which zone these times are in: pyarrow.compute.assume_timezone(column, 'UTC')."
            if wanted.tz
            else "These times have a zone and the table's have none: write them as local times, by "
            "pyarrow.compute.local_timestamp(column)."
        )
    return f"Cast it first to {wanted}, or read it as that type."


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """`column` as the field's type if every value survives. Raises ColumnError naming column and row."""
    kind = column.type
    if kind == field.type:
        return column
    if pa.types.is_dictionary(kind):
        return _cast(column.cast(kind.value_type), field)
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(column), field.type)])
    zones = pa.types.is_timestamp(kind) and pa.types.is_timestamp(field.type) and bool(kind.tz) != bool(field.type.tz)
    if zones or _family(kind) != _family(field.type):
        raise ColumnError(
            f"Column {field.name!r} is {kind}, the table has {field.type}. {_remedy(kind, field.type)}",
            column=field.name,
        )
    try:
        return _exact(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = _first_failure(column, field.type)
        value = printable(column[row].as_py())
        raise ColumnError(
            f"Column {field.name!r}, row {row}: {value} does not survive the cast from {kind} to {field.type}.",
            column=field.name,
            row=row,
        ) from None


def _exact(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_nested(kind) and not _widens(column.type, kind):
        raise pa.ArrowInvalid("the nested types differ")
    cast = column.cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_floating(
        column.type
    ):  # Arrow rounds between floats, decimals and integers without a word
        same = pc.equal(cast.cast(column.type), column)
        if pa.types.is_floating(column.type):
            same = pc.or_kleene(same, pc.is_nan(column))
        if not pc.all(same, min_count=0).as_py():
            raise pa.ArrowInvalid("precision would be lost")
    return cast


def _widens(kind: pa.DataType, target: pa.DataType) -> bool:
    """Does every value of the nested type `kind` survive in `target`, by the types alone: same fields, and leaves that
    only grow?
    """
    if kind == target:
        return True
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        mine, theirs = {field.name: field.type for field in kind}, {field.name: field.type for field in target}
        return (
            mine.keys() == theirs.keys()
            and len(mine) == kind.num_fields
            and all(_widens(mine[name], theirs[name]) for name in mine)
        )
    if pa.types.is_map(kind) and pa.types.is_map(target):
        return _widens(kind.key_type, target.key_type) and _widens(kind.item_type, target.item_type)
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    if any(test(kind) for test in lists) and pa.types.is_list(target):
        return _widens(kind.value_type, target.value_type)
    if pa.types.is_null(kind):
        return True
    if pa.types.is_nested(kind) or pa.types.is_nested(target) or _family(kind) != _family(target):
        return False
    if pa.types.is_integer(kind) and pa.types.is_integer(target):
        return kind.bit_width + pa.types.is_unsigned_integer(kind) <= target.bit_width
    if pa.types.is_floating(kind) and pa.types.is_floating(target):
        return kind.bit_width <= target.bit_width
    if pa.types.is_decimal(kind) and pa.types.is_decimal(target):
        return kind.scale <= target.scale and kind.precision - kind.scale <= target.precision - target.scale
    if pa.types.is_timestamp(kind):
        return bool(kind.tz) == bool(target.tz) and kind.unit in ("s", "ms", "us")
    return pa.types.is_string(target) or pa.types.is_binary(target)


def _first_failure(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _exact(column.slice(low, middle - low), kind)
            low = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
    return low


def _check_ordering(rows: pa.Table, config: TableConfig, delete: bool) -> None:
    if delete or not config.order_by:
        return
    column = rows[config.order_by]
    bad = column.is_null(nan_is_null=True) if column.null_count or pa.types.is_floating(column.type) else None
    if bad is not None and (row := pc.index(bad, True).as_py()) >= 0:
        key = {name: rows[name][row].as_py() for name in config.key}
        raise OrderingError(
            (
                f"Ordering column {config.order_by!r} is null or NaN in row {row} (key {printable(key)}); every row "
                "needs a value to be ordered by."
            ),
            column=config.order_by,
            row=row,
            key=printable(key),
        )


def one_row_per_key(batch: Batch, config: TableConfig, duplicates: str) -> Batch:
    """The winner of each (partition, key): by ordering value, then by position. duplicates='fail' refuses and names
    keys.
    """
    suspects = repeated(batch.hashes)
    if not len(suspects):
        return batch
    keys = (
        dense_codes(batch.rows[RECORD_KEY].take(pa.array(suspects))).astype(np.int64) * len(batch.partitions)
        + batch.codes[suspects]
    )
    policy = LATER_WINS if batch.unconditional else config.merge_policy
    rank = policy.ranks(batch.rows, suspects)
    lost = suspects[losers(keys, rank)]
    if not len(lost):
        return batch
    if duplicates == "fail" and not batch.unconditional:
        named = batch.rows[RECORD_KEY].take(pa.array(lost)).unique().to_pylist()[:10]
        raise DuplicateKeys(
            (
                f"The batch holds keys more than once: {', '.join(map(printable, named))}. Remove the duplicates, or "
                "let the newest win."
            ),
            keys=named,
        )
    keep = np.ones(len(batch), bool)
    keep[lost] = False
    kept = batch.take(np.flatnonzero(keep))
    return Batch(
        kept.rows,
        kept.hashes,
        kept.partitions,
        kept.codes,
        kept.delete,
        kept.unconditional,
        0 if batch.unconditional else len(lost),
    )
