"""Tasks that rewrite files for clustering.

Rows keep commit time, sequence number and record key. Only the file name changes. A task only reads and writes files,
and does not access the transaction.

Sorting works within a memory budget, but the columns to sort by and their ranks are always in memory. They need about
20 bytes per row for each column.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from hoodoo.compactor.clustering import curve
from hoodoo.compactor.clustering.units import ClusteringUnit
from hoodoo.compactor.compaction.merge_group import MergeTask
from hoodoo.compactor.limits import RateLimiter, ServiceLimits
from hoodoo.errors import CorruptTable
from hoodoo.format.names import RECORD_KEY, base_file_name, join
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet import raw_copy as parquet_copy
from hoodoo.format.parquet.hudi_bloom import FooterEntriesBuilder
from hoodoo.format.rows import take_rows
from hoodoo.index import index_of
from hoodoo.index.key_index import KeyCollector, base_entry_path
from hoodoo.readers.slices import slices
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import MARKERS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files.base_sink import (
    BaseFileContent,
    BaseFileWriter,
    ExpectedRows,
    record_row_order,
    store_base_file,
    store_entry,
    with_constants,
)
from hoodoo.writers.files.file_target import FileTarget

# number of shares of the memory budget: the rows of a bucket, two copies for sorting, the row group being encoded, and
# the columns to sort by
_SHARE = 8
_BUCKETS_MAX = 256
_PIECE_ROWS = 1 << 16
_COPY_ROWS = 8  # a file is copied if its row groups have on average at least an eighth of `row_group_rows`
_COPY_BYTES = 1 << 20  # ... or at least this many bytes


@dataclass(frozen=True)
class ClusteredFiles:
    """Base files that a clustering task wrote.

    Attributes:
        files: The files.
        bytes_read: Number of bytes that were read.
        copied_bytes: Number of bytes that were copied without decoding them.
    """

    files: tuple[DataFile, ...]
    bytes_read: int
    copied_bytes: int

    @property
    def bytes_written(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class ClusterTask:
    """Picklable task that clusters files.

    `file_ids` contains the ids of the new file groups, which are fixed before the task runs (protocol rule 14).
    """

    store: Store
    config: TableConfig
    instant: str
    unit: ClusteringUnit
    file_ids: tuple[str, ...]
    memory_bytes: int = ServiceLimits.memory_bytes
    pace: RateLimiter = field(default_factory=RateLimiter)

    @property
    def leftovers(self) -> list[str]:
        """Paths of files that a failed task may leave."""
        paths = [self.path(file_id) for file_id in self.file_ids]
        return paths + [base_entry_path(file_id, self.instant) for file_id in self.file_ids]

    def path(self, file_id: str) -> str:
        return join(self.unit.partition, base_file_name(file_id, self.instant))

    def __call__(self) -> ClusteredFiles:
        for file_id in self.file_ids:
            self.store.write_once(f"{MARKERS}{self.instant}/{self.path(file_id)}.marker.CREATE", b"", durable=False)
        files, copied = self._sorted() if self.unit.by else self._packed()
        return ClusteredFiles(
            files, sum(placed.file.size for group in self.unit.groups for placed in group.files()), copied
        )

    def _spool(self) -> Spool:
        return Spool(min(IN_MEMORY, self.memory_bytes // _SHARE))

    # ---- packing
    def _packed(self) -> tuple[tuple[DataFile, ...], int]:
        (file_id,) = self.file_ids
        try:
            file, copied = self._copy_row_groups(file_id)
        except parquet_copy.CannotCopyFile:
            file, copied = self._written(file_id, self._current_rows(), self._max_row_count()), 0
        return (file,), copied

    def _max_row_count(self) -> int:
        # The result is an upper bound for the number of rows. Logs of other engines may add rows.
        return sum(
            placed.file.rows
            for group in self.unit.groups
            for placed in group.files()
            if placed.file.kind == BASE or placed.file.origin
        )

    def _copy_row_groups(self, file_id: str) -> tuple[DataFile, int]:
        # Returns the file and the number of copied bytes. File slices with logs and files with tiny row groups are
        # decoded.
        decoded, sources = [], []
        for group in self.unit.groups:
            source = self._open_copy_source(group)
            if source is None:
                decoded.append(group)
            else:
                sources.append((group, source))
        if not sources:
            raise parquet_copy.CannotCopyFile("No row group is large enough to be copied")
        name = base_file_name(file_id, self.instant)
        footer, spool = FooterEntriesBuilder(self._max_row_count()), self._spool()
        copier = parquet_copy.RowGroupCopier(spool, name, self.config.options.compression)
        in_rows = index_of(self.store, shared=True).keys_of_rows()
        keys_of_encoded = in_rows.apart()
        encoded = self._encode_rows(decoded, name, footer, keys_of_encoded)
        parquet_copy.require_compatible_files([source for _, source in sources] + ([encoded] if encoded else []))
        copied = 0
        for group, source in sources:
            assert group.base is not None
            for keys in self._keys(group.base.file, source.data):
                footer.add(keys)
                in_rows.add(keys)
            copier.add(source)
            copied += parquet_copy.copied_bytes(source)
        if encoded:
            copier.add(encoded)
            in_rows.extend(keys_of_encoded)
        return self._stored(file_id, copier, footer.entries(), in_rows, spool), copied

    def _open_copy_source(self, group: FileGroup) -> parquet_copy.CopySource | None:
        # Returns None for files that have to be decoded: without a digest, with logs, an older schema or tiny row
        # groups.
        assert group.base is not None
        file = group.base.file
        if group.logs or not file.digest or file.schema != self.config.schema_id:
            return None
        self.pace.count_bytes(file.size)
        source = parquet_copy.CopySource.parse(
            slices.read_verified_file(self.store, file, self.memory_bytes // (_SHARE * len(self.unit.groups)))
        )
        count = len(source.groups())
        rows_enough = source.rows * _COPY_ROWS >= count * self.config.options.row_group_rows
        return source if rows_enough or file.size >= count * _COPY_BYTES else None

    def _encode_rows(
        self, groups: list[FileGroup], name: str, footer: FooterEntriesBuilder, in_rows: KeyCollector
    ) -> parquet_copy.CopySource | None:
        spool, options = self._spool(), self.config.options
        writer = base_file.BaseFileWriter(
            pa.PythonFile(spool, "w"),
            options.compression,
            options.row_group_rows,
            self.memory_bytes // _SHARE,
            self.config.columns.arrow_fields_with_ids,
        )
        rows = 0
        for part in self._current_rows(groups):
            footer.add(part[RECORD_KEY])
            in_rows.add(part[RECORD_KEY])
            writer.write(with_constants(part, self.unit.partition, name))
            rows += len(part)
        if not rows:
            return None
        writer.close({})
        return parquet_copy.CopySource.parse(spool.buffer())

    def _keys(self, file: DataFile, data: pa.Buffer) -> Iterator[pa.ChunkedArray]:
        schema = slices.schema_of(self.config, [RECORD_KEY])
        for part in base_file.read_in_batches(
            pa.BufferReader(data), file.path, schema, self.config.options.row_group_rows
        ):
            yield part[RECORD_KEY]

    def _stored(
        self,
        file_id: str,
        copier: parquet_copy.RowGroupCopier,
        footer: dict[str, str],
        in_rows: KeyCollector,
        spool: Spool,
    ) -> DataFile:
        target = FileTarget(self.unit.partition, file_id, self.instant)
        entry = store_entry(index_of(self.store, shared=True), target, footer, in_rows)
        stats = copier.close(record_row_order(footer, entry))
        file = store_base_file(self.store, self.config, target, BaseFileContent(spool, copier.rows, stats), entry)
        self.pace.count_bytes(file.size)
        return file

    # ---- rows
    def _current_rows(self, groups: list[FileGroup] | None = None) -> Iterator[pa.Table]:
        for group in self.unit.groups if groups is None else groups:
            yield from MergeTask(self.store, self.config, self.instant, group, self.memory_bytes // 2, self.pace).rows()

    def _written(self, file_id: str, rows: Iterator[pa.Table], capacity: int) -> DataFile:
        index, target = index_of(self.store, shared=True), FileTarget(self.unit.partition, file_id, self.instant)
        memory_bytes = self.memory_bytes // _SHARE
        sink = BaseFileWriter(self.store, self.config, index, target, ExpectedRows(capacity), memory_bytes)
        sink.write(self.config.stored_schema.empty_table())
        for part in rows:
            sink.write(part)
        file = replace(sink.finish(), sorted=self.unit.mark)
        self.pace.count_bytes(file.size)
        return file

    # ---- sorting
    def _sorted(self) -> tuple[tuple[DataFile, ...], int]:
        with tempfile.TemporaryDirectory(prefix="hoodoo-") as folder:
            arrival = _UnsortedRows(Path(folder), self.unit.by, self.memory_bytes // _SHARE)
            for part in self._current_rows():
                arrival.add(part)
            ranks = _stable_ranks(
                curve.compute_sort_values(arrival.columns(self.config.stored_schema), self.unit.order)
            )
            ordered = arrival.in_order(ranks)
            files = []
            count = min(len(self.file_ids), max(1, len(ranks)))  # do not write empty files, even if rows are large
            for number, file_id in enumerate(self.file_ids[:count]):
                rows = len(ranks) * (number + 1) // count - len(ranks) * number // count
                files.append(self._written(file_id, ordered.take(rows), rows))
        return tuple(files), 0


def _stable_ranks(positions: np.ndarray) -> np.ndarray:
    # Rows with equal values keep their order.
    ranks = np.empty(len(positions), np.int64)
    ranks[np.argsort(positions, kind="stable")] = np.arange(len(positions))
    return ranks


class _SortedRows:
    # Each new file takes the next rows.
    def __init__(self, parts: Iterator[pa.Table]) -> None:
        self._parts = parts
        self._left: pa.Table | None = None

    def take(self, rows: int) -> Iterator[pa.Table]:
        while rows:
            part = self._left if self._left is not None and len(self._left) else next(self._parts)
            taken = min(rows, len(part), _PIECE_ROWS)
            yield part.slice(0, taken)
            self._left, rows = part.slice(taken), rows - taken


class _UnsortedRows:
    # Rows that exceed `budget` bytes are in a temporary file. The columns to sort by are always in memory.
    def __init__(self, folder: Path, by: tuple[str, ...], budget: int) -> None:
        self._folder, self._by, self._budget = folder, by, budget
        self._narrow: list[pa.Table] = []
        self._held: list[pa.Table] = []
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        self._bytes += rows.nbytes
        self._narrow.append(rows.select(self._by))
        if self._writer is None and self._bytes <= self._budget:
            self._held.append(rows)
            return
        if self._writer is None:
            self._writer = pa.ipc.new_stream(str(self._folder / "all"), rows.schema)
        for part in (*self._held, rows):
            self._writer.write_table(part.unify_dictionaries())
        self._held.clear()

    def columns(self, schema: pa.Schema) -> pa.Table:
        empty = pa.schema([schema.field(name) for name in self._by]).empty_table()
        return pa.concat_tables(self._narrow) if self._narrow else empty

    def in_order(self, ranks: np.ndarray) -> _SortedRows:
        self._narrow.clear()
        return _SortedRows(self._from_file(ranks) if self._writer else self._from_memory(ranks))

    def _from_memory(self, ranks: np.ndarray) -> Iterator[pa.Table]:
        if self._held:
            yield take_rows(pa.concat_tables(self._held).unify_dictionaries(), np.argsort(ranks))

    def _from_file(self, ranks: np.ndarray) -> Iterator[pa.Table]:
        # The rows are distributed to bucket files by rank. Then one bucket after the other is sorted.
        assert self._writer is not None
        self._writer.close()
        count = min(_BUCKETS_MAX, 1 + self._bytes // max(1, self._budget))
        width = -(-len(ranks) // count)
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        offset = 0
        for part in _stream(self._folder / "all"):
            bucket = ranks[offset : offset + len(part)] // width
            order = np.argsort(bucket, kind="stable")
            numbers, starts = np.unique(bucket[order], return_index=True)
            for number, positions in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
                if number not in writers:
                    writers[number] = pa.ipc.new_stream(str(self._folder / str(number)), part.schema)
                writers[number].write_table(part.take(pa.array(positions)))
            offset += len(part)
        (self._folder / "all").unlink()
        for writer in writers.values():
            writer.close()
        bucket_of = ranks // width
        for number in sorted(writers):
            path = self._folder / str(number)
            bucket_ranks = ranks[bucket_of == number]  # the rows of a bucket are in their original order
            yield take_rows(pa.concat_tables(_stream(path)).unify_dictionaries(), np.argsort(bucket_ranks))
            path.unlink()


def _stream(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def run_clustering_task(task: ClusterTask) -> ClusteredFiles | CorruptTable:
    """Run a clustering task.

    A CorruptTable error is returned instead of raised. The other tasks can then still be completed.
    """
    try:
        return task()
    except CorruptTable as problem:
        return problem
