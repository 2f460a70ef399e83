"""Writes one log file of a file group, with the index entry of the keys it deletes. Knows nothing of where the changes
come from.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hoodoo.format.log.block import DeleteBlock, encode_log
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY, join, log_file_name
from hoodoo.format.parquet import statistics
from hoodoo.format.resolve import AS_IT_STANDS
from hoodoo.index import index_of
from hoodoo.merge.changes import Changes
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
    changes: Changes,
    base: str,
    version: int = 1,
) -> DataFile:
    """The log of `changes`, whose rows have commit time, sequence number, record key and the table's columns, over the
    base file `base`.

    version: counts the logs that `instant` writes to one file group.
    """
    path = join(partition, log_file_name(file_id, instant, version))
    live = ~changes.delete
    upserts = changes.rows if live.all() else changes.rows.filter(pa.array(live))
    rows = (
        AS_IT_STANDS.conform(with_constants(upserts, partition, file_id), list(config.file_schema))
        if len(upserts)
        else None
    )  # plain columns, for Avro
    data = encode_log(
        instant, config.name, config.file_schema, rows, _delete_blocks(config, partition, instant, changes)
    )
    index = ""
    if changes.delete.any():
        gone = changes.key_hashes()[changes.delete]
        index = index_of(store).entry_for_deletes(file_id, instant, gone, version)
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
        previous=base,
        index=index,
        stats=statistics.of_table(rows.select([COMMIT_TIME, *config.schema.names])) if rows else {},
        schema=config.schema_id,
    )


def _delete_blocks(config: TableConfig, partition: str, instant: str, changes: Changes) -> list[DeleteBlock]:
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
            blocks.append(DeleteBlock(instant, gone[RECORD_KEY].combine_chunks(), partitions, ordering))
    return blocks
