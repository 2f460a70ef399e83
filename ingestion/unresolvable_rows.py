"""Search for rows whose missing values cannot be resolved.

Neither the batch nor the table contains these values. The upsert would reject the whole batch because of such a row.
The rows are therefore found before, and quarantined.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import CallError, TableError
from hoodoo.ingestion.change_rows import ReplayContext, change_bytes
from hoodoo.ingestion.key_codes import assign_key_codes
from hoodoo.ingestion.row_versions import RowVersions
from hoodoo.ingestion.unsent_values import deletes, find_unsent_values
from hoodoo.merge.modes import MergeMode
from hoodoo.redact import printable
from hoodoo.sources.source import REPLAYABLE
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import serialize_row
from hoodoo.writers.batches.generated_columns import with_missing_partitions

_COMMITS = 30
# Number of recent commits that are searched for earlier versions of deleted rows.


def find_unresolvable_rows(
    rows: pa.Table, table: Table, config: TableConfig, mode: MergeMode, changes: ReplayContext | None = None
) -> tuple[np.ndarray, np.ndarray, pa.Table]:
    """Find changes with unknown column values.

    Args:
        rows: The rows of a batch, in order. All rows match the table.
        table: The table.
        config: Its configuration.
        mode: The merge mode, which contains the placeholder for unsent values.
        changes: Information that a replay of the rows needs. None: the rows cannot be replayed.

    Returns:
        The indexes of these changes, in ascending order. A mask (bool[n]) of the indexes whose changes are outdated:
        the connector sent them again after newer changes and the delete of their row. The quarantine rows for the
        remaining indexes.
    """
    deleted = deletes(rows)
    masks = find_unsent_values(rows, deleted, mode)
    if not masks:
        return np.empty(0, np.int64), np.empty(0, bool), REPLAYABLE.empty_table()
    names = [*config.key, *(name for name in config.partition_by if name not in config.key)]
    keys = with_missing_partitions(rows, config).select(names).combine_chunks()
    lacking = np.logical_or.reduce(list(masks.values()))
    stored = table.get(keys.take(pa.array(np.flatnonzero(lacking))), columns=names)
    codes = assign_key_codes(pa.concat_tables([keys, stored.select(names).cast(keys.schema)]))
    stored_codes, codes = np.unique(codes[len(rows) :]), codes[: len(rows)]
    versions = RowVersions.of(rows, codes, deleted, lacking, config.merge_policy)
    is_stored = versions.first[versions.begin] & np.isin(versions.codes, stored_codes)
    lost = dict[str, np.ndarray]()
    for name, mask in masks.items():
        lacks = mask[versions.at]
        lost[name] = lacks & (versions.holders(lacks) < 0) & ~is_stored
    is_lost = np.logical_or.reduce(list(lost.values()))
    is_final = np.isin(versions.codes, versions.codes[versions.last & is_lost])  # otherwise a later row replaces it
    where = np.flatnonzero(is_lost & is_final)
    where = where[np.argsort(versions.at[where])]
    positions = versions.at[where]
    columns = [next(name for name in lost if lost[name][index]) for index in where]
    is_stale = _outdated_changes(rows.take(pa.array(positions)), table, config)
    remaining = zip(positions[~is_stale], np.array(columns, object)[~is_stale], strict=True)
    quarantine_rows = [_told(rows, int(row), config, name, mode, changes) for row, name in remaining]
    return positions, is_stale, pa.Table.from_pylist(quarantine_rows, REPLAYABLE)


def _outdated_changes(rows: pa.Table, table: Table, config: TableConfig) -> np.ndarray:
    # Returns a mask of changes for which the table had an equal or newer version before the row was deleted. After a
    # crash, a connector sends its last changes again, and then the delete again. Only the last commits are read.
    is_outdated = np.zeros(len(rows), bool)
    if not len(rows) or not config.order_by:
        return is_outdated
    names = [*config.key, *(name for name in config.order_by if name not in config.key)]
    for commit in table.history(_COMMITS):
        if not commit.readable:
            break
        remaining = np.flatnonzero(~is_outdated)
        changes = rows.select(names).take(pa.array(remaining)).combine_chunks()
        try:
            stored = table.get(changes.select(config.key), columns=names, as_of=commit.slot)
        except (CallError, TableError):  # the commit was cleaned away, or had other columns
            break
        both = pa.concat_tables([changes, stored.select(names).cast(changes.schema)])
        codes, ranks = assign_key_codes(both.select(config.key)), config.merge_policy.ranks(both, np.arange(len(both)))
        newest = np.full(len(both), -1, np.int64)
        np.maximum.at(newest, codes[len(changes) :], ranks[len(changes) :])
        is_outdated[remaining] = newest[codes[: len(changes)]] >= ranks[: len(changes)]
        if is_outdated.all():
            break
    return is_outdated


def _told(
    rows: pa.Table, row: int, config: TableConfig, column: str, mode: MergeMode, changes: ReplayContext | None
) -> dict[str, object]:
    content = {name: _to_python(rows[name][row]) for name in rows.column_names}
    key = printable({name: content[name] for name in config.key})
    return {
        "place": f"row:{xxhash.xxh3_128_hexdigest(serialize_row(rows, row))}",
        "reason": "unavailable",
        "detail": f"Column {column!r} was not sent for key {key}: its value is {printable(mode.unavailable)}. The "
        "table does not contain this key.",
        "payload": json.dumps(content, default=str).encode(),
        "kept": change_bytes(rows, row, config, changes) if changes else None,
    }


def _to_python(value: pa.Scalar) -> object:
    # Python cannot represent years above 9999, which become text.
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return str(value)


__all__ = ["find_unresolvable_rows"]
