"""Writes one log file of a file group, with the index entry of the keys it deletes. Knows nothing of where the changes
come from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from hoodoo.format.log.block import DeleteBlock, encode_log
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY, parse_data_file
from hoodoo.format.parquet import statistics
from hoodoo.index import KeyIndex, index_of
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import LOG, DataFile
from hoodoo.writers.files.base_sink import store_once, with_constants
from hoodoo.writers.files.file_target import FileTarget


def put_log(
    store: Store,
    config: TableConfig,
    target: FileTarget,
    changes: KeyedChanges,
    base: DataFile | None,
    version: int = 1,
) -> DataFile:
    """Write a log file.

    Args:
        store: The store of the table.
        config: The table as the file is written for it.
        target: Where the file goes.
        changes: Rows with commit time, sequence number, record key and the table's columns.
        base: The base file under the log. Where all changes know its rows (see `over_rows`), so does the log.
        version: Counts the logs that the instant writes to one file group, from 1.

    Returns:
        The file as a slot names it.
    """
    known = base is not None and bool(base.order) and changes.at is not None
    path, instant = target.log_path(version), target.instant
    live = ~changes.delete
    upserts = changes.rows if live.all() else changes.rows.filter(pa.array(live))
    rows = with_constants(upserts, target.partition, target.file_id) if len(upserts) else None
    parquet = config.options.log_format == "parquet"
    data = encode_log(
        instant,
        config.name,
        config.file_schema,
        rows,
        _delete_blocks(config, target, changes),
        None if changes.at is None else changes.at[live],
        _instant_of(base) if base is not None and known else "",
        parquet,
    )
    index = ""
    if changes.delete.any():
        gone = changes.key_hashes()[changes.delete]
        index = index_of(store, shared=True).entry_for_deletes(target.file_id, instant, gone, version)
    stored = store_once(store, path, data)
    return DataFile(
        path,
        target.partition,
        target.file_id,
        LOG,
        len(stored),
        digest(stored),
        len(changes),
        updates=len(upserts),
        deletes=len(changes) - len(upserts),
        previous=base.path if base else "",
        index=index,
        stats=statistics.of_table(rows.select([COMMIT_TIME, *config.schema.names])) if rows else {},
        schema=config.schema_id,
        decoded=rows.nbytes if parquet and rows else 0,
        order=base.order if base is not None and known and digest(stored) == digest(data) else "",
    )


def over_rows(index: KeyIndex, base: DataFile | None, changes: KeyedChanges) -> KeyedChanges:
    """`changes` in order of the rows of `base` that have their keys, with these rows; as they are where the index does
    not know one of them.
    """
    if base is None or not len(changes):
        return changes
    rows = index.rows(base, changes.rows[RECORD_KEY], changes.key_hashes())
    if rows is None or (rows < 0).any():
        return replace(changes, at=None)
    found = replace(changes, at=rows)
    return found if (np.diff(rows) > 0).all() else found.take(np.argsort(rows))


def _instant_of(base: DataFile) -> str:
    parsed = parse_data_file(base.name)
    return parsed.instant if parsed else ""


def _delete_blocks(config: TableConfig, target: FileTarget, changes: KeyedChanges) -> list[DeleteBlock]:
    """Deletes by ordering value and deletes whatever is stored cannot share a block."""
    blocks = []
    for mask in (changes.delete & ~changes.unconditional, changes.delete & changes.unconditional):
        if mask.any():
            gone = changes.rows.filter(pa.array(mask))
            order_by = () if changes.unconditional[mask].any() else config.merge_policy.order_by
            partitions = pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(len(gone), np.int32)), pa.array([target.partition])
            ).cast(pa.string())
            ordering = tuple(gone[name].combine_chunks() for name in order_by)
            at = None if changes.at is None else changes.at[mask]
            blocks.append(DeleteBlock(target.instant, gone[RECORD_KEY].combine_chunks(), partitions, ordering, at))
    return blocks
