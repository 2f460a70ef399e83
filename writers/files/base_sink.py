"""Writes one base file and its index entry while its rows come: memory holds a row group, the key hashes and Hudi's
filter, not the file.

Knows nothing of where the rows come from: a batch, a merge of base and logs, or other file groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable
from hoodoo.format.names import FILE_NAME, PARTITION_PATH, RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.hudi_bloom import MAX_KEY, MIN_KEY, FooterEntries, extended_entries, has_room
from hoodoo.format.parquet.statistics import Stats
from hoodoo.index import KeyIndex
from hoodoo.index.key_index import BaseEntry, KeysOfRows
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.view import stays_sorted
from hoodoo.writers.files.file_target import FileTarget


def with_constants(rows: pa.Table, partition: str, file_name: str) -> pa.Table:
    """`rows` (commit time, sequence number, key, table columns) with the two constant meta columns
    where Hudi has them.
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
    """The base file before, all of whose keys the new one has too, and the keys that come on top.

    Hudi's filter then follows from that of the file before instead of from all keys.
    """

    base: DataFile
    added: pa.ChunkedArray


@dataclass(frozen=True)
class SameRows:
    """The base file before, whose rows the new one has in their order.

    Attributes:
        base: The file before.
        dropped: Positions of its rows that the new file does not have.
        hashes: Key hashes of the rows that follow.
    """

    base: DataFile
    dropped: np.ndarray
    hashes: np.ndarray


@dataclass(frozen=True)
class ExpectedRows:
    """What is known of the rows of a base file before they come.

    Attributes:
        capacity: How many rows the file will have, or has at most.
        hashes: The key hashes of all rows in their order. None: not known.
        grown: The file before, if all of its keys stay.
        same: The file before, if its rows stay in their order.
    """

    capacity: int
    hashes: np.ndarray | None = None
    grown: ExtendedKeys | None = None
    same: SameRows | None = None


@dataclass(frozen=True)
class Content:
    """The bytes of a base file, and what they hold."""

    spool: Spool
    rows: int
    stats: Stats


class BaseSink:
    """One new base file of a file group.

    Args:
        store: The store of the table.
        config: The table as the file is written for it.
        index: The index, which gets an entry of the file's keys.
        target: Where the file goes.
        expected: What is known of its rows.
        memory_bytes: What one row group, and as much of the file, may take in memory.
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
        self._footer: dict[str, str] | None = _extended(store, grown) if grown else None
        self._made = FooterEntries(expected.capacity) if self._footer is None else None
        self._spool = Spool(min(IN_MEMORY, memory_bytes))
        self._writer = base_file.Writer(
            pa.PythonFile(self._spool, "w"),
            config.options.compression,
            config.options.row_group_rows,
            memory_bytes,
            config.columns.file_fields,
        )

    def write(self, rows: pa.Table) -> None:
        """`rows`: commit time, sequence number, key, table columns. At least one call, if only with no rows."""
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
        mine, self._known_hashes = self._known_hashes[:rows], self._known_hashes[rows:]
        return mine

    def finish(self) -> DataFile:
        """Close the file and store it, its index entry first."""
        footer = self._made.entries() if self._made else self._footer or {}
        entry = store_entry(self._index, self._target, footer, self._keys)
        stats = self._writer.close(with_order(footer, entry))
        content = Content(self._spool, self._writer.rows, stats)
        return store_base(self._store, self._config, self._target, content, entry)


def store_entry(index: KeyIndex, target: FileTarget, footer: Mapping[str, str], keys: KeysOfRows) -> BaseEntry:
    """Store the index entry of a base file that is about to be stored. footer: Hudi's entries in it."""
    span = footer.get(MIN_KEY, ""), footer.get(MAX_KEY, "")
    return index.entry_for(target.file_id, target.instant, span, keys)


def with_order(footer: Mapping[str, str], entry: BaseEntry) -> dict[str, str]:
    """Hudi's footer entries, and the order of the rows, so that the file and its index entry know each other."""
    return {**footer, base_file.ROW_ORDER: entry.order} if entry.order else dict(footer)


def store_base(store: Store, config: TableConfig, target: FileTarget, content: Content, entry: BaseEntry) -> DataFile:
    """Store a base file whose index entry is stored.

    Where another attempt of the same task was first with the entry or with the file, its one counts; rows are known
    only where both are of one order.

    Returns:
        The file as a slot names it.
    """
    path, mine = target.base_path, content.spool.buffer()
    data = store_once(store, path, mine)
    order = entry.order if data is mine else base_file.read_footer(pa.BufferReader(data), path).get(base_file.ROW_ORDER)
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


def _extended(store: Store, grown: ExtendedKeys) -> dict[str, str] | None:
    """Hudi's entries of the file before with the added keys on top; None where they must be made anew."""
    if not has_room(grown.base.rows, len(grown.added)):
        return None  # known without a look into the file
    try:
        with store.open_input(grown.base.path) as source:
            return extended_entries(base_file.read_footer(source, grown.base.path), grown.added) or None
    except FileNotFoundError:  # a clean may have taken it since it was read
        raise CorruptTable(
            f"File {grown.base.path} is missing. Restore it from a backup, or run verify().", file=grown.base.path
        ) from None


def in_order(config: TableConfig, before: DataFile, file: DataFile) -> DataFile:
    """`file`, which replaces `before`, whose columns had other names: still sorted, if it is."""
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
    """Write the base file of rows that are in memory, with its index entry. expected: None where nothing is known."""
    sink = BaseSink(store, config, index, target, expected or ExpectedRows(len(rows)))
    sink.write(rows)
    return sink.finish()
