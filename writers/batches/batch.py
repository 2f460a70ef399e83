"""Batches of prepared rows.

`prepare_batch` raises an error for the first invalid value, before anything is written. To quarantine invalid rows,
bad_rows.py finds all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CheckFailed, ColumnError, DuplicateKeys, OrderingError
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import compute_partition_paths, compute_record_keys
from hoodoo.format.known_types import remove_unknown_parts
from hoodoo.format.names import IS_DELETED, RECORD_KEY
from hoodoo.format.rows import compact, take_rows
from hoodoo.format.table_schema import TableSchema
from hoodoo.index.key_index import LookupKeys
from hoodoo.merge.kernels import dense_codes, find_replaced_rows, repeated
from hoodoo.merge.policy import LATER_WINS
from hoodoo.nearest import find_nearest_name
from hoodoo.readers.predicate.checks import Check
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.column_alignment import (
    FAIL,
    align_columns,
    fill_missing_columns,
    fill_missing_fields,
    require_optional_column,
)
from hoodoo.writers.batches.generated_columns import add_generated_columns, computable_partition_columns, to_check
from hoodoo.writers.batches.value_validation import validate_columns
from hoodoo.writers.batches.write_options import WriteOptions

NAMED_KEYS = 10
"""Maximum number of keys in an error message."""


@dataclass(frozen=True)
class BatchTerms:
    """Properties that apply to all rows of a batch.

    Attributes:
        unconditional: True if the batch deletes stored rows regardless of their ordering values.
        columns: The columns of the rows, with their ids.
        settled: The largest column id that the table had assigned when the batch was prepared.
        absent: The ids of the columns that the batch lacked.
    """

    travels_once: ClassVar[bool] = True  # sent only once between a driver and its tasks (engine/task_pickling)

    unconditional: bool
    columns: TableSchema
    settled: int
    absent: frozenset[int] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema, config: TableConfig, delete: bool, settled: int | None = None) -> BatchTerms:
        columns, names = config.columns, set(schema.names)
        absent = frozenset(column.id for column in columns.columns if column.name not in names)
        return cls(delete, columns, columns.last if settled is None else settled, absent)

    def fitted(self, config: TableConfig) -> BatchTerms:
        return replace(self, columns=config.columns, settled=config.columns.last)


@dataclass(frozen=True)
class Batch:
    """Batch of prepared rows for a write.

    Attributes:
        rows: The record key column, followed by the table's columns.
        hashes: The hash of each row's record key.
        partitions: The partition paths. The partition of row i is `partitions[codes[i]]`.
        codes: The index of each row's partition in `partitions`.
        delete: Boolean mask of the rows that are deletes.
        terms: Properties that apply to all rows.
        stale: Number of input rows that lost to another row with the same key.
    """

    rows: pa.Table
    hashes: np.ndarray
    partitions: list[str]
    codes: np.ndarray
    delete: np.ndarray
    terms: BatchTerms
    stale: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unconditional(self) -> bool:
        return self.terms.unconditional

    @property
    def keys(self) -> LookupKeys:
        return LookupKeys.one_lookup_per_key(self.rows[RECORD_KEY], self.hashes, self.partitions, self.codes)

    @property
    def identities(self) -> pa.Array:
        """Strings that identify the rows across partitions."""
        paths = pa.array(self.partitions, pa.string()).take(pa.array(self.codes))
        return pc.binary_join_element_wise(paths, self.rows[RECORD_KEY].combine_chunks(), "\0")

    def take(self, positions: np.ndarray) -> Batch:
        return replace(
            self,
            rows=take_rows(self.rows, positions),
            hashes=self.hashes[positions],
            codes=self.codes[positions],
            delete=self.delete[positions],
        )

    def fitted(self, config: TableConfig) -> Batch:
        """Convert the batch to the table's current columns.

        Raises ColumnError if the batch has values for a dropped column, or values that cannot be converted to a new
        type.
        """
        terms = self.terms
        if terms.columns.columns == config.columns.columns:
            return self
        rows = align_columns(self.rows, terms.columns, terms.settled, terms.absent, config.columns)
        return replace(self, rows=rows, terms=terms.fitted(config))


def prepare_batch(
    data: pa.Table,
    config: TableConfig,
    options: WriteOptions = WriteOptions(),  # noqa: B008  frozen
    checks: Sequence[Check] = (),
    settled: int | None = None,
) -> Batch:
    """Prepare a batch: validate and convert the input rows.

    Args:
        data: The input rows.
        config: The table's configuration, with the columns that the batch adds.
        options: The options of the write. A delete only uses the key and partition columns, and the source columns of
            generated partition columns.
        checks: The checks that all rows except deletes have to pass.
        settled: The largest column id that the table has assigned. None (default): the largest id in `config`.

    Raises:
        DataError: A row or column is invalid: ColumnError, KeyValueError, PartitionValueError, OrderingError,
            CheckFailed or DuplicateKeys.
    """
    delete, missing = options.delete, options.missing
    if not data.num_columns and not len(data):
        data = config.schema.empty_table()  # an empty list has no column names
    needed, flagged = check_column_names(data.schema, config, delete, missing)
    terms = BatchTerms.of(data.schema, config, delete, settled)
    if not delete:
        data = fill_missing_columns(data, config, missing)
    data = validate_columns(data, with_delete_flag(needed, flagged), config.key)
    if not delete:
        data = fill_missing_fields(data, config, missing)
    fields = [config.schema.field(name) for name in needed]
    columns = [cast_column(column, field) for column, field in zip(data.columns, fields, strict=False)]
    rows = compact(pa.table(columns, names=needed))
    mask = delete_flags(data[IS_DELETED]) if flagged else np.full(len(rows), delete)
    if config.transforms:
        of = {one.column for one in config.transforms.values()}
        zones = [field.type.tz for field in data.schema if field.name in of and pa.types.is_timestamp(field.type)]
        rows = add_generated_columns(rows, config, mask, [zone for zone in (options.zone, *zones) if zone])
        rows = rows if delete else rows.select(config.schema.names)
    if not delete:
        require_ordering(rows, config)
        require_values(rows, config, mask)
    keys = compute_record_keys(rows, config.key, config.partition_by)
    paths = compute_partition_paths(rows, config.partition_by, config.hive_style, config.url_encode)
    if not delete:
        require_checks(rows, config, mask, checks)
    if delete:
        kept_columns = {*config.key, *config.partition_by}
        rows = pa.table(
            [rows[f.name] if f.name in kept_columns else pa.nulls(len(rows), f.type) for f in config.schema],
            schema=config.schema,
        )
    rows = rows.add_column(0, RECORD_KEY, keys)
    codes = paths.indices.to_numpy().astype(np.int32)
    batch = Batch(rows, hash64(keys), paths.dictionary.to_pylist(), codes, mask, terms)
    return remove_duplicate_keys(batch, config, options.duplicates)


def check_column_names(
    schema: pa.Schema, config: TableConfig, delete: bool, missing: str = FAIL
) -> tuple[list[str], bool]:
    """Check the column names of a batch.

    Returns the columns to write. The columns to write do not include a missing partition column that is generated from
    a column of the batch. Raises ColumnError for a missing, unknown or duplicate column.
    """
    names, table_columns = Counter(schema.names), set(config.schema.names)
    generated = computable_partition_columns(names, config)
    sources = [*(transform.column for transform in generated.values()), *to_check(names, config)]
    needed = list(dict.fromkeys((*config.key, *config.partition_by, *sources))) if delete else config.schema.names
    needed = [name for name in needed if name not in generated]
    flagged = IS_DELETED in names and not delete  # may also be a table column, if Apache Hudi wrote such batches
    extra = [name for name in names if name not in table_columns and not (flagged and name == IS_DELETED)]
    for name in needed:
        if not names[name]:
            _require_fillable_column(name, [] if delete else extra, config, FAIL if delete else missing, not delete)
        if names[name] > 1:
            raise ColumnError(f"The batch has column {name!r} more than once. Rename or drop one of them.", column=name)
    if not delete and extra and extra[0].lower().startswith("_hoodie_"):
        raise ColumnError(
            f"Column {extra[0]!r} is not allowed in a batch: names that begin with _hoodie_ are reserved. Drop or "
            "rename the column.",
            column=extra[0],
        )
    if not delete and extra and not _has_known_type(schema.field(extra[0])):
        raise ColumnError(
            f"Column {extra[0]!r} is not in the table, and its type is unknown because it contains only nulls "
            "or empty lists. Drop the column, or give it a type.",
            column=extra[0],
        )
    if not delete and extra:
        suggestion = find_nearest_name(extra[0], table_columns)
        advice = f"; did you mean {suggestion}?" if suggestion else "."
        raise ColumnError(
            (
                f"Column {extra[0]!r} is not in the table{advice} Column names are case-sensitive. Drop the "
                "column, or pass evolve=True to add it to the table."
            ),
            column=extra[0],
        )
    kind = schema.field(IS_DELETED).type if flagged else pa.bool_()
    if not pa.types.is_boolean(kind) and not pa.types.is_null(kind):
        raise ColumnError(
            f"Column {IS_DELETED!r} has the wrong type: expected boolean, got {kind}. Cast it to boolean.",
            column=IS_DELETED,
        )
    return needed, flagged


def _require_fillable_column(
    name: str, extra: Sequence[str], config: TableConfig, missing: str, defaults: bool
) -> None:
    try:
        require_optional_column(config.columns.by_name[name], name, config, missing, defaults)
    except ColumnError as problem:
        candidate = find_nearest_name(name, extra, 0.75) or next(iter(extra), None)
        if candidate is None:
            raise
        raise ColumnError(
            f"{problem.message} The batch also has column {printable(candidate)}, which is not in the table. If "
            "this is a new name of the column, rename it in the batch, or in the table with "
            f"alter.rename_column({name!r}, {printable(candidate)}).",
            **problem.details,
        ) from None


def _has_known_type(field: pa.Field) -> bool:
    return remove_unknown_parts(field.type) is not None


def with_delete_flag(names: Sequence[str], flagged: bool) -> list[str]:
    return list(dict.fromkeys([*names, *([IS_DELETED] if flagged else [])]))


def delete_flags(values: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(values.cast(pa.bool_()), False).to_numpy().astype(bool)


def require_ordering(rows: pa.Table, config: TableConfig) -> None:
    for column in config.order_by:
        bad = mask_of_missing_ordering_values(rows, column)
        if bad is None or (row := pc.index(bad, True).as_py()) < 0:
            continue
        key = {name: rows[name][row].as_py() for name in config.key}
        raise OrderingError(
            (
                f"Ordering column {column!r} is null or NaN in row {row} (key {printable(key)}): expected a value in "
                "every row. Set the value, or leave the row out."
            ),
            column=column,
            row=row,
            key=printable(key),
        )


def mask_of_missing_ordering_values(rows: pa.Table, column: str) -> pa.ChunkedArray | None:
    values = rows[column]
    return values.is_null(nan_is_null=True) if values.null_count or pa.types.is_floating(values.type) else None


def require_checks(rows: pa.Table, config: TableConfig, deleted: np.ndarray, checks: Sequence[Check]) -> None:
    for check in checks:
        failing = check.failing(rows)
        failed = failing[~deleted[failing]]
        if len(failed):
            row = int(failed[0])
            key = printable({part: rows[part][row].as_py() for part in config.key})
            raise CheckFailed(
                f"Row {row} (key {key}) fails the check {check.name!r}: {printable(check.text)}. Correct the "
                f"row or leave it out. To change the checks of the table, call set_checks({{...}}).",
                check=check.name,
                text=check.text,
                row=row,
                key=key,
            )


def require_values(rows: pa.Table, config: TableConfig, deleted: np.ndarray) -> None:
    """Check that required columns have no null.

    `rows` must have the key columns. Only columns in `rows` are checked.
    """
    for name in config.not_null:
        if name not in rows.schema.names or not rows[name].null_count:
            continue
        invalid = np.flatnonzero(rows[name].is_null().to_numpy() & ~deleted)
        if len(invalid):
            row = int(invalid[0])
            key = {part: rows[part][row].as_py() for part in config.key}
            raise ColumnError(
                f"Column {name!r} is null in row {row} (key {printable(key)}), but is not nullable. Write a "
                f"value, leave the row out, or call alter.make_nullable({name!r}).",
                column=name,
                row=row,
                key=printable(key),
            )


def remove_duplicate_keys(batch: Batch, config: TableConfig, duplicates: str) -> Batch:
    """Remove duplicate keys from a batch.

    By default the row with the largest ordering value wins, then the later row. duplicates='fail' raises DuplicateKeys
    with the keys, 'first' keeps the first row, and 'each' keeps all rows.
    """
    if duplicates == "each":
        return batch
    suspects = repeated(batch.hashes)
    if not len(suspects):
        return batch
    keys = (
        dense_codes(batch.rows[RECORD_KEY].take(pa.array(suspects))).astype(np.int64) * len(batch.partitions)
        + batch.codes[suspects]
    )
    policy = LATER_WINS if batch.unconditional else config.merge_policy
    rank = -suspects if duplicates == "first" else policy.ranks(batch.rows, suspects)
    lost = suspects[find_replaced_rows(keys, rank)]
    if not len(lost):
        return batch
    if duplicates == "fail" and not batch.unconditional:
        duplicate_keys = smallest_keys(batch.rows[RECORD_KEY].take(pa.array(lost)).unique())
        raise DuplicateKeys(
            (
                f"The batch contains keys more than once: {', '.join(map(printable, duplicate_keys))}. Remove the "
                "duplicates, or pass duplicates='newest' to write only the newest row of each key."
            ),
            keys=duplicate_keys,
        )
    keep = np.ones(len(batch), bool)
    keep[lost] = False
    kept = batch.take(np.flatnonzero(keep))
    return replace(kept, stale=0 if batch.unconditional else len(lost))


def smallest_keys(keys: pa.ChunkedArray | pa.Array) -> list[str]:
    positions = pc.select_k_unstable(keys, NAMED_KEYS, sort_keys=[("", "ascending")]) if len(keys) else []
    return list(keys.take(positions).to_pylist()) if len(keys) else []
