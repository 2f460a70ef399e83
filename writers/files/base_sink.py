"""Sink that writes base files, row group by row group.

Memory holds one row group, the key hashes and Hudi's bloom filter, but not the whole file. The rows may come from a
batch, from a merge of base and logs, or from other file groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable
from hoodoo.format.names import FILE_NAME, PARTITION_PATH, RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.hudi_bloom import MAX_KEY, MIN_KEY, FooterEntriesBuilder, add_keys_to_entries, has_room
from hoodoo.format.parquet.statistics import Stats
from hoodoo.index import KeyIndex
from hoodoo.index.key_index import KeyCollector, StoredIndexEntry
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.view import stays_sorted
from hoodoo.writers.files.file_target import FileTarget


def with_constants(rows: pa.Table, partition: str, file_name: str) -> pa.Table:
    n = len(rows)
    return rows.add_column(3, PARTITION_PATH, base_file.constant(partition, n)).add_column(
        4, FILE_NAME, base_file.constant(file_name, n)
    )


def store_once(store: Store, key: str, data: bytes | pa.Buffer) -> bytes | pa.Buffer:
    try:
        store.create(key, data)
    except FileExistsError:
        return store.get(key) if len(data) <= IN_MEMORY else store.mapped(key)
    return data


@dataclass(frozen=True)
class RewrittenKeys:
    """Keys of a rewritten base file.

    It contains all keys of the previous file. Hudi's bloom filter is then derived from the filter of the previous file
    instead of from all keys.
    """

    base: DataFile
    added: pa.ChunkedArray


@dataclass(frozen=True)
class SameRowOrder:
    """Row order that a rewritten base file keeps.

    It is the order of the previous base file.

    Attributes:
        base: The previous base file.
        dropped: Positions of its rows that are not in the new file.
        hashes: Key hashes of the rows that are added at the end.
    """

    base: DataFile
    dropped: np.ndarray
    hashes: np.ndarray


@dataclass(frozen=True)
class ExpectedRows:
    """Row count and keys of a new base file.

    Attributes:
        capacity: The number of rows in the file, or an upper limit.
        hashes: The key hashes of all rows in row order, or None if they are unknown.
        grown: The previous base file and the added keys, if the new file contains all of its keys. Otherwise None.
        same: The previous base file, if the new file keeps the order of its rows. Otherwise None.
    """

    capacity: int
    hashes: np.ndarray | None = None
    grown: RewrittenKeys | None = None
    same: SameRowOrder | None = None


@dataclass(frozen=True)
class BaseFileContent:
    """Content of a finished base file."""

    spool: Spool
    rows: int
    stats: Stats


class BaseFileWriter:
    """Streaming writer of a base file.

    Args:
        store: The store of the table.
        config: The table configuration for the file.
        index: The index, which gets an entry for the file's keys.
        target: The location of the file.
        expected: Information about its rows.
        memory_bytes: The memory limit of one row group, and of the buffered part of the file.
    """

    def __init__(
        self,
        store: Store,
        config: TableConfig,
        index: KeyIndex,
        target: FileTarget,
        expected: ExpectedRows,
        memory_bytes: int = base_file.ROW_GROUP_BYTES,
    ) -> None:
        same, grown = expected.same, expected.grown
        self._store, self._config, self._index, self._target = store, config, index, target
        self._keys = index.keys_of_rows(same.base if same else None)
        self._known_hashes, self._passed = expected.hashes, 0
        if same and self._keys.before:
            self._keys.dropped, self._known_hashes = same.dropped, same.hashes
            self._passed = same.base.rows - len(same.dropped)
        self._footer: dict[str, str] | None = _derive_footer_entries(store, grown) if grown else None
        self._made = FooterEntriesBuilder(expected.capacity) if self._footer is None else None
        self._spool = Spool(min(IN_MEMORY, memory_bytes))
        self._writer = base_file.BaseFileWriter(
            pa.PythonFile(self._spool, "w"),
            config.options.compression,
            config.options.row_group_rows,
            memory_bytes,
            config.columns.arrow_fields_with_ids,
        )

    def write(self, rows: pa.Table) -> None:
        """Append rows to the base file.

        The rows have commit time, sequence number, record key and the table's columns.

        Call this at least once, if necessary without rows.
        """
        if self._made:
            self._made.add(rows[RECORD_KEY])
        passed = min(self._passed, len(rows))
        self._passed -= passed
        if passed < len(rows):
            self._keys.add(rows[RECORD_KEY].slice(passed), self._next_hashes(len(rows) - passed))
        self._writer.write(with_constants(rows, self._target.partition, self._target.base_name))

    def _next_hashes(self, rows: int) -> np.ndarray | None:
        if self._known_hashes is None:
            return None
        next_hashes, self._known_hashes = self._known_hashes[:rows], self._known_hashes[rows:]
        return next_hashes

    def finish(self) -> DataFile:
        footer = self._made.entries() if self._made else self._footer or {}
        entry = store_entry(self._index, self._target, footer, self._keys)
        stats = self._writer.close(record_row_order(footer, entry))
        content = BaseFileContent(self._spool, self._writer.rows, stats)
        return store_base_file(self._store, self._config, self._target, content, entry)


def store_entry(index: KeyIndex, target: FileTarget, footer: Mapping[str, str], keys: KeyCollector) -> StoredIndexEntry:
    span = footer.get(MIN_KEY, ""), footer.get(MAX_KEY, "")
    return index.store_entry(target.file_id, target.instant, span, keys)


def record_row_order(footer: Mapping[str, str], entry: StoredIndexEntry) -> dict[str, str]:
    """Record the row order of a base file.

    Readers compare the digests to check that the file and its index entry match.
    """
    return {**footer, base_file.ROW_ORDER: entry.order} if entry.order else dict(footer)


def store_base_file(
    store: Store, config: TableConfig, target: FileTarget, content: BaseFileContent, entry: StoredIndexEntry
) -> DataFile:
    """Store a finished base file.

    Its index entry is already stored. If another attempt of the task already stored the entry or the file, the stored
    one is used. Row positions are used only if entry and file have the same row order.

    Returns:
        The file for a slot.
    """
    path, content_bytes = target.base_path, content.spool.buffer()
    data = store_once(store, path, content_bytes)
    order = (
        entry.order
        if data is content_bytes
        else base_file.read_footer(pa.BufferReader(data), path).get(base_file.ROW_ORDER)
    )
    return DataFile(
        path,
        target.partition,
        target.file_id,
        BASE,
        len(data),
        digest(data),
        content.rows,
        index=entry.name,
        stats=content.stats,
        schema=config.schema_id,
        order=entry.stored if order == entry.stored else "",
    )


def _derive_footer_entries(store: Store, grown: RewrittenKeys) -> dict[str, str] | None:
    # Returns None if the entries must be computed from all keys.
    if not has_room(grown.base.rows, len(grown.added)):
        return None  # decided without reading the file
    try:
        with store.open_input(grown.base.path) as source:
            return add_keys_to_entries(base_file.read_footer(source, grown.base.path), grown.added) or None
    except FileNotFoundError:  # cleaning may have deleted it since it was read
        raise CorruptTable(
            f"File {grown.base.path} is missing. Restore it from a backup, or run verify().", file=grown.base.path
        ) from None


def in_order(config: TableConfig, before: DataFile, file: DataFile) -> DataFile:
    if before.schema == file.schema or not stays_sorted(file):
        return file
    return replace(file, sorted=config.order_of(before))


def put_base(
    store: Store,
    config: TableConfig,
    index: KeyIndex,
    target: FileTarget,
    rows: pa.Table,
    expected: ExpectedRows | None = None,
) -> DataFile:
    sink = BaseFileWriter(store, config, index, target, expected or ExpectedRows(len(rows)))
    sink.write(rows)
    return sink.finish()
