"""Rows of which a value was not sent, since it is large and did not change.

An upsert takes such a value over from an earlier row of the batch, or from the stored row, of the same key and
partition. Where a row may have left its partition, the value is taken over before, by the key alone. Where there is no
earlier version of the row, the upsert would refuse the batch; so these rows are found before. Only batches that have
such a value pay for it.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import key_codes
from hoodoo.merge.modes import MergeMode
from hoodoo.redact import printable
from hoodoo.sources.source import BAD
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import row_bytes
from hoodoo.writers.batches.generated_columns import with_places


def lacks_values(rows: pa.Table, mode: MergeMode) -> bool:
    """Tell whether a value of these rows was not sent.

    Args:
        rows: The rows.
        mode: What stands for such a value.

    Returns:
        True if there is one.
    """
    return mode.unavailable is not None and any(mode.stands_for_unavailable(one).any() for one in rows.columns)


def completed(rows: pa.Table, table: Table, config: TableConfig, mode: MergeMode) -> pa.Table:
    """Take values that were not sent over from the newest earlier version of their row, in whatever partition it is.

    Args:
        rows: Changes by the names of the table, in order, those that are deletes marked by `_hoodie_is_deleted`.
        table: The table.
        config: Its configuration.
        mode: What stands for a value that was not sent.

    Returns:
        The same changes. A value that no earlier version has, since the last delete of its row, stays as it is.
    """
    deleted = pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)
    unsent = _unsent(rows, deleted, mode)
    if not unsent:
        return rows
    lacking = np.flatnonzero(np.logical_or.reduce(list(unsent.values())))
    names = [*dict.fromkeys((*config.key, *config.order_by, *unsent))]
    changes = rows.select(names)
    stored = table.get(rows.select(config.key).combine_chunks().take(pa.array(lacking)), columns=names)
    both = pa.concat_tables([stored.select(names).cast(changes.schema), changes])  # stored rows came before
    before, gone = len(stored), np.append(np.zeros(len(stored), bool), deleted)
    codes = key_codes(both.select(config.key))
    some = np.flatnonzero(np.isin(codes, codes[before + lacking]))
    some = some[np.lexsort((some, config.merge_policy.ranks(both, some), codes[some]))]
    at = np.arange(len(some))
    begins = np.append(True, (codes[some][1:] != codes[some][:-1]) | gone[some][:-1])
    begin = np.maximum.accumulate(np.where(begins, at, 0))
    for name, mask in unsent.items():
        lacks = np.append(np.zeros(before, bool), mask)[some]
        newest = np.maximum.accumulate(np.where(lacks | gone[some], -1, at))
        known = lacks & (newest >= begin)
        source = np.arange(len(rows))
        source[some[known] - before] = len(rows) + some[newest[known]]
        values = pa.chunked_array([*rows[name].chunks, *both[name].chunks], rows[name].type)
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), values.take(pa.array(source)))
    return rows


def _unsent(rows: pa.Table, deleted: np.ndarray, mode: MergeMode) -> dict[str, np.ndarray]:
    """By column, in which rows that are no deletes a value was not sent, where there are such rows."""
    found = {name: mode.stands_for_unavailable(rows[name]) & ~deleted for name in rows.column_names}
    return {name: mask for name, mask in found.items() if mask.any()}


def homeless(rows: pa.Table, table: Table, config: TableConfig, mode: MergeMode) -> tuple[np.ndarray, pa.Table]:
    """Find the rows that nobody can complete.

    Args:
        rows: The rows of a batch, which all fit the table, in order.
        table: The table.
        config: Its configuration.
        mode: What stands for a value that was not sent.

    Returns:
        Their positions, in order, and what the quarantine is told of them.
    """
    deleted = np.zeros(len(rows), bool)
    if IS_DELETED in rows.column_names:
        deleted = pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)
    unsent = _unsent(rows, deleted, mode)
    if not unsent:
        return np.empty(0, np.int64), BAD.empty_table()
    names = [*config.key, *(name for name in config.partition_by if name not in config.key)]
    keys = with_places(rows, config).select(names).combine_chunks()
    lacking = np.logical_or.reduce(list(unsent.values()))
    stored = table.get(keys.take(pa.array(np.flatnonzero(lacking))), columns=names)
    codes = key_codes(pa.concat_tables([keys, stored.select(names).cast(keys.schema)]))
    known, codes = np.unique(codes[len(rows) :]), codes[: len(rows)]

    some = np.flatnonzero(np.isin(codes, codes[lacking]))
    ranks = config.merge_policy.ranks(rows, some)
    some = some[np.lexsort((some, ranks, codes[some]))]
    first = np.append(True, codes[some][1:] != codes[some][:-1])
    last = np.append(first[1:], True)
    begins = first | np.append(False, deleted[some][:-1])  # after a delete nothing is left to take over
    at = np.arange(len(some))
    begin = np.maximum.accumulate(np.where(begins, at, 0))
    taken_over = first[begin] & np.isin(codes[some], known)
    lost = {name: np.zeros(len(some), bool) for name in unsent}
    for name, mask in unsent.items():
        newest = np.maximum.accumulate(np.where(mask[some] | deleted[some], -1, at))
        lost[name] = (newest < begin) & ~taken_over & ~deleted[some]
    anything = np.logical_or.reduce(list(lost.values()))
    ends_so = np.isin(codes[some], codes[some[last & anything]])  # else a later row replaces it
    where = np.flatnonzero(anything & ends_so)
    where = where[np.argsort(some[where])]
    found = [_told(rows, int(some[one]), config, next(name for name in lost if lost[name][one]), mode) for one in where]
    return some[where], pa.Table.from_pylist(found, BAD)


def _told(rows: pa.Table, row: int, config: TableConfig, column: str, mode: MergeMode) -> dict[str, object]:
    content = {name: _plain(rows[name][row]) for name in rows.column_names}
    key = printable({name: content[name] for name in config.key})
    return {
        "place": f"row:{xxhash.xxh3_128_hexdigest(row_bytes(rows, row))}",
        "reason": "unavailable",
        "detail": f"Column {column!r} was not sent for the key {key}, as {printable(mode.unavailable)} says, and the "
        "table does not have this key.",
        "payload": json.dumps(content, default=str).encode(),
    }


def _plain(value: pa.Scalar) -> object:
    """A value as Python has it, or where Python has none (far years) as Arrow shows it."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return str(value)


__all__ = ["completed", "homeless", "lacks_values"]
