"""Writer for log files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hoodoo.format.log.block import DataBlock, DeleteBlock, encode_log
from hoodoo.format.names import COMMIT_TIME, META_COLUMNS, RECORD_KEY, parse_data_file
from hoodoo.format.parquet import statistics
from hoodoo.format.rows import take_rows
from hoodoo.index import KeyIndex, index_of
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import LOG, DataFile
from hoodoo.writers.files.base_sink import store_once, with_constants
from hoodoo.writers.files.file_target import FileTarget


def write_log_file(
    store: Store,
    config: TableConfig,
    target: FileTarget,
    parts: Sequence[KeyedChanges],
    base: DataFile | None,
    version: int = 1,
) -> DataFile:
    """Write changes to a log file.

    Args:
        store: The store of the table.
        config: The table configuration for the file.
        target: The location of the file.
        parts: Changes in order of arrival, each with one change per key. Rows have commit time, sequence number, record
            key and the table's columns. Rows of a partial update have only the columns that it sets, and none or all of
            the key columns.
        base: The base file of the log. If the changes have row positions in this file, the log records the positions
            (see `add_row_positions`).
        version: The number of the log among the logs that the instant writes to the file group, from 1.

    Returns:
        The file for a slot.
    """
    has_positions = base is not None and bool(base.order) and all(changes.at is not None for changes in parts)
    path, instant = target.log_path(version), target.instant
    blocks = [block for changes in parts for block in _data_blocks(config, target, changes)]
    rows, deletes = sum(map(len, parts)), sum(int(changes.delete.sum()) for changes in parts)
    parquet = config.options.log_format == "parquet"
    data = encode_log(
        instant,
        config.name,
        config.file_schema,
        None,
        [block for changes in parts for block in _delete_blocks(config, target, changes)],
        base_instant=_instant_of(base) if base is not None and has_positions else "",
        parquet=parquet,
        blocks=blocks,
    )
    index = ""
    if deletes:
        deleted_hashes = np.concatenate([changes.hashes_at(np.flatnonzero(changes.delete)) for changes in parts])
        index = index_of(store, shared=True).entry_for_deletes(target.file_id, instant, deleted_hashes, version)
    stored = store_once(store, path, data)
    return DataFile(
        path,
        target.partition,
        target.file_id,
        LOG,
        len(stored),
        digest(stored),
        rows,
        updates=rows - deletes,
        deletes=deletes,
        previous=base.path if base else "",
        index=index,
        stats=_log_statistics(config, blocks, parts),
        schema=config.schema_id,
        decoded=sum(block.rows.nbytes for block in blocks) if parquet else 0,
        order=base.order if base is not None and has_positions and digest(stored) == digest(data) else "",
        partial=int(any(block.partial for block in blocks)),
    )


def count_data_blocks(config: TableConfig, changes: KeyedChanges) -> int:
    return sum(1 for _ in _group_by_columns(config, changes))


def _data_blocks(config: TableConfig, target: FileTarget, changes: KeyedChanges) -> Iterator[DataBlock]:
    # The rows of a block are all whole rows, or all set the same columns. Deletes are not included.
    for chosen, names in _group_by_columns(config, changes):
        rows = changes.rows if len(chosen) == len(changes) else take_rows(changes.rows, chosen)
        rows = with_constants(rows, target.partition, target.file_id)
        positions = None if changes.at is None else changes.at[chosen]
        yield DataBlock(
            target.instant, rows if names is None else rows.select([*META_COLUMNS, *names]), bool(names), positions
        )


def _group_by_columns(config: TableConfig, changes: KeyedChanges) -> Iterator[tuple[np.ndarray, list[str] | None]]:
    # Yields the positions of the rows and the column names, or None for whole rows. Key and partition columns never
    # differ between versions of a row, so a partial update does not contain them.
    upserts = np.flatnonzero(~changes.delete)
    fixed = {*config.key, *config.partition_by}
    settable = [name for name in config.schema.names if name not in fixed]
    if not len(upserts):
        return
    if changes.columns is not None:
        yield upserts, [name for name in settable if name in changes.columns]
        return
    partial = changes.partial[upserts]
    if not partial.all():
        yield upserts[~partial], None
    if not partial.any():
        return
    partial_rows, none = upserts[partial], np.zeros(len(changes), bool)
    masks = np.packbits(np.stack([changes.unset.get(name, none)[partial_rows] for name in settable]), axis=0)
    _, first, kind = np.unique(masks, axis=1, return_index=True, return_inverse=True)
    for number, row in enumerate(partial_rows[first].tolist()):
        yield (
            partial_rows[kind.ravel() == number],
            [name for name in settable if not changes.unset.get(name, none)[row]],
        )


def _log_statistics(
    config: TableConfig, blocks: Sequence[DataBlock], parts: Sequence[KeyedChanges]
) -> statistics.Stats:
    # For partial updates, the statistics include every column that an update sets, with or without bounds. They include
    # key columns if a single part contains them.
    if not blocks:
        return {}
    names = [COMMIT_TIME, *config.schema.names]
    if len(blocks) == 1 and not blocks[0].partial:
        return statistics.statistics_of_rows(blocks[0].rows.select(names))
    fixed = {*config.key, *config.partition_by} if any(block.partial for block in blocks) else set()
    columns = {name: [block.rows[name] for block in blocks if name in block.rows.schema.names] for name in names}
    columns = {
        name: parts_of_column for name, parts_of_column in columns.items() if parts_of_column and name not in fixed
    }
    if len(parts) == 1 and parts[0].columns is not None:
        columns |= {name: [parts[0].rows[name]] for name in config.key if name in parts[0].rows.schema.names}
    stats: statistics.Stats = {}
    for name, parts_of_column in columns.items():
        column = pa.chunked_array([chunk for part in parts_of_column for chunk in part.chunks], parts_of_column[0].type)
        stats |= {name: [None, None, column.null_count]} if fixed else {}
        stats |= statistics.statistics_of_rows(
            pa.table({name: column})
        )  # columns of partial updates have different lengths
    return stats


def add_row_positions(index: KeyIndex, base: DataFile | None, changes: KeyedChanges) -> KeyedChanges:
    """Add row positions to a batch of changes.

    The changes are sorted by the position of their stored row in the base file. Returns the changes without positions
    if the index cannot find one of the rows. Existing positions in `changes` are kept, unless the base file has no row
    order.
    """
    if base is None or not len(changes):
        return replace(changes, at=None)
    if changes.at is not None:
        return changes if base.order else replace(changes, at=None)
    rows = index.rows(base, changes.rows[RECORD_KEY], changes.key_hashes())
    if rows is None or (rows < 0).any():
        return replace(changes, at=None)
    with_positions = replace(changes, at=rows)
    return with_positions if (np.diff(rows) > 0).all() else with_positions.take(np.argsort(rows))


def _instant_of(base: DataFile) -> str:
    parsed = parse_data_file(base.name)
    return parsed.instant if parsed else ""


def _delete_blocks(config: TableConfig, target: FileTarget, changes: KeyedChanges) -> list[DeleteBlock]:
    # One block contains the deletes with ordering values, and one the unconditional deletes.
    blocks = []
    for mask in (changes.delete & ~changes.unconditional, changes.delete & changes.unconditional):
        if mask.any():
            deleted = changes.rows.filter(pa.array(mask))
            order_by = () if changes.unconditional[mask].any() else config.merge_policy.order_by
            partitions = pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(len(deleted), np.int32)), pa.array([target.partition])
            ).cast(pa.string())
            ordering = tuple(deleted[name].combine_chunks() for name in order_by)
            positions = None if changes.at is None else changes.at[mask]
            blocks.append(
                DeleteBlock(target.instant, deleted[RECORD_KEY].combine_chunks(), partitions, ordering, positions)
            )
    return blocks
