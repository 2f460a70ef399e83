"""Writes one log file of a file group, with the index entry of the keys it deletes. Knows nothing of where the changes
come from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from hoodoo.format.log.block import DeleteBlock, encode_log
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY, join, log_file_name, parse_data_file
from hoodoo.format.parquet import statistics
from hoodoo.index import KeyIndex, index_of
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.slot import LOG, DataFile
from hoodoo.writers.base_sink import store_once, with_constants


def put_log(
    store: Store,
    config: TableConfig,
    partition: str,
    file_id: str,
    instant: str,
    changes: KeyedChanges,
    base: DataFile | None,
    version: int = 1,
) -> DataFile:
    """The log of `changes`, whose rows have commit time, sequence number, record key and the table's columns, over the
    file `base`. Where all of them know its rows (see `over_rows`), so does the log.

    version: counts the logs that `instant` writes to one file group.
    """
    known = base is not None and bool(base.order) and changes.at is not None
    path = join(partition, log_file_name(file_id, instant, version))
    live = ~changes.delete
    upserts = changes.rows if live.all() else changes.rows.filter(pa.array(live))
    rows = with_constants(upserts, partition, file_id) if len(upserts) else None
    parquet = config.options.log_format == "parquet"
    data = encode_log(
        instant,
        config.name,
        config.file_schema,
        rows,
        _delete_blocks(config, partition, instant, changes),
        None if changes.at is None else changes.at[live],
        _instant_of(base) if base is not None and known else "",
        parquet,
    )
    index = ""
    if changes.delete.any():
        gone = changes.key_hashes()[changes.delete]
        index = index_of(store, shared=True).entry_for_deletes(file_id, instant, gone, version)
    stored = store_once(store, path, data)
    return DataFile(
        path,
        partition,
        file_id,
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


def _delete_blocks(config: TableConfig, partition: str, instant: str, changes: KeyedChanges) -> list[DeleteBlock]:
    """Deletes by ordering value and deletes whatever is stored cannot share a block."""
    blocks = []
    for mask in (changes.delete & ~changes.unconditional, changes.delete & changes.unconditional):
        if mask.any():
            gone = changes.rows.filter(pa.array(mask))
            order_by = None if changes.unconditional[mask].any() else config.merge_policy.order_by
            partitions = pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(len(gone), np.int32)), pa.array([partition])
            ).cast(pa.string())
            ordering = gone[order_by].combine_chunks() if order_by else None
            at = None if changes.at is None else changes.at[mask]
            blocks.append(DeleteBlock(instant, gone[RECORD_KEY].combine_chunks(), partitions, ordering, at))
    return blocks
