"""Writes one base file and its index entry while its rows come: memory holds a row group, the key hashes and Hudi's
filter, not the file.

Knows nothing of where the rows come from: a batch, a merge of base and logs, or other file groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable
from hoodoo.format.hashing import hash64
from hoodoo.format.names import FILE_NAME, PARTITION_PATH, RECORD_KEY, base_file_name, join
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.hudi_bloom import MAX_KEY, MIN_KEY, FooterEntries, extended_entries
from hoodoo.format.parquet.statistics import Stats
from hoodoo.index import index_of
from hoodoo.index.key_index import NO_KEYS, WrittenBase
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.slot import BASE, DataFile
from hoodoo.timeline.view import stays_sorted


def with_constants(rows: pa.Table, partition: str, file_name: str) -> pa.Table:
    """`rows` (commit time, sequence number, key, table columns) with the two constant meta columns
    put in their places.
    """
    n = len(rows)
    return rows.add_column(3, PARTITION_PATH, base_file.constant(partition, n)).add_column(
        4, FILE_NAME, base_file.constant(file_name, n)
    )


def store_once(store: Store, key: str, data: bytes | pa.Buffer) -> bytes | pa.Buffer:
    """Put `data`; where another attempt of the same task was first, its bytes are the ones that count."""
    try:
        store.create(key, data)
    except FileExistsError:
        return store.get(key) if len(data) <= IN_MEMORY else store.mapped(key)
    return data


@dataclass(frozen=True)
class ExtendedKeys:
    """The base file before, all of whose keys the new one has too, and the keys that come on top, with their hashes.

    Hudi's filter and the index entry then follow from those of the file before instead of from all keys.
    """

    base: DataFile
    added: pa.ChunkedArray
    hashes: np.ndarray


class BaseSink:
    """One new base file of a file group.

    capacity: rows it will have, or at most has. grown: see there. hashes: of all keys in order of the rows, if they are
    known.
    memory_bytes: what one row group, and as much of the file, may take in memory.
    """

    def __init__(
        self,
        store: Store,
        config: TableConfig,
        partition: str,
        file_id: str,
        instant: str,
        capacity: int,
        grown: ExtendedKeys | None = None,
        hashes: np.ndarray | None = None,
        memory_bytes: int = base_file.ROW_GROUP_BYTES,
    ) -> None:
        self._store, self._partition, self._file_id, self._instant, self._grown = (
            store,
            partition,
            file_id,
            instant,
            grown,
        )
        self._name = base_file_name(file_id, instant)
        self._known_hashes = hashes
        self._hashes: list[np.ndarray] = []
        self._footer: dict[str, str] | None = _extended(store, grown) if grown else None
        self._made = FooterEntries(capacity) if self._footer is None else None
        self._spool = Spool(min(IN_MEMORY, memory_bytes))
        options = config.options
        self._writer = base_file.Writer(
            pa.PythonFile(self._spool, "w"),
            options.compression,
            options.row_group_rows,
            memory_bytes,
            config.columns.file_fields,
        )
        self._config = config

    def write(self, rows: pa.Table) -> None:
        """`rows`: commit time, sequence number, key, table columns. At least one call, if only with no rows."""
        if self._made:
            self._made.add(rows[RECORD_KEY])
        if self._known_hashes is None and not self._grown and len(rows):
            self._hashes.append(hash64(rows[RECORD_KEY]))
        self._writer.write(with_constants(rows, self._partition, self._name))

    def finish(self) -> DataFile:
        """Close the file and store it, its index entry first."""
        footer = self._made.entries() if self._made else self._footer or {}
        stats = self._writer.close(footer)
        before = self._grown.base.index if self._grown else ""
        place = self._partition, self._file_id, self._instant
        rows = self._writer.rows
        return store_base(self._store, self._config, place, self._spool, rows, stats, footer, self._new_hashes, before)

    def _new_hashes(self) -> np.ndarray:
        """Of the keys that the base file before, if there is one, has not."""
        if self._grown:
            return self._grown.hashes
        if self._known_hashes is not None:
            return self._known_hashes
        return np.concatenate(self._hashes) if self._hashes else np.empty(0, np.uint64)


def store_base(
    store: Store,
    config: TableConfig,
    place: tuple[str, str, str],
    spool: Spool,
    rows: int,
    stats: Stats,
    footer: Mapping[str, str],
    hashes: Callable[[], np.ndarray],
    before: str = "",
    gone: np.ndarray = NO_KEYS,
) -> DataFile:
    """Store the base file in `spool`, its index entry first. place: partition, file id and instant.

    hashes, before, gone: see WrittenBase.
    """
    partition, file_id, instant = place
    span = footer.get(MIN_KEY, ""), footer.get(MAX_KEY, "")
    index = index_of(store).entry_for(WrittenBase(file_id, instant, *span, hashes, before, gone))
    path = join(partition, base_file_name(file_id, instant))
    data = store_once(store, path, spool.buffer())
    return DataFile(
        path,
        partition,
        file_id,
        BASE,
        len(data),
        digest(data),
        rows,
        index=index,
        stats=stats,
        schema=config.schema_id,
    )


def _extended(store: Store, grown: ExtendedKeys) -> dict[str, str] | None:
    try:
        with store.open_input(grown.base.path) as source:
            return extended_entries(base_file.read_footer(source, grown.base.path), grown.added) or None
    except FileNotFoundError:  # a clean may have taken it since it was read
        raise CorruptTable(
            f"{grown.base.path} is missing. Restore it from a backup, or run verify().", file=grown.base.path
        ) from None


def in_order(config: TableConfig, before: DataFile, file: DataFile) -> DataFile:
    """`file`, which takes the place of `before`, whose columns had other names: still sorted, if it is."""
    if before.schema == file.schema or not stays_sorted(file):
        return file
    return replace(file, sorted=config.order_of(before))


def put_base(
    store: Store,
    config: TableConfig,
    partition: str,
    file_id: str,
    instant: str,
    rows: pa.Table,
    grown: ExtendedKeys | None = None,
    hashes: np.ndarray | None = None,
) -> DataFile:
    """The base file of `rows` that are in memory, with its index entry."""
    sink = BaseSink(store, config, partition, file_id, instant, len(rows), grown, hashes)
    sink.write(rows)
    return sink.finish()
