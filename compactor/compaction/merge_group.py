"""Merge of a file group into a new base file.

The merge of one file group stays within a memory budget. Logs that fit into the budget are held in memory. If the base
file has hoodoo's own layout, winning changes take the positions of the rows that they replace, and unchanged row groups
are copied (writers/files/in_place.py). Otherwise the base file is read in batches. Replaced rows are left out, and the
winning changes follow at the end, in order of arrival.

For larger logs, only record keys and ordering values are held, for one part of the keys at a time. A mask of rows
records the winning changes. Then the base file and the logs are read again to copy the rows. Larger logs with partial
updates are read for each batch of the base file.

Two things may exceed the budget: a single log block (hoodoo writes at most 8 MiB), and partial updates of another
engine. They are decoded at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from hoodoo.compactor.limits import RateLimiter, ServiceLimits
from hoodoo.errors import CorruptTable
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.base_file import ROW_GROUP_BYTES
from hoodoo.format.parquet.raw_copy import CannotCopyFile
from hoodoo.index import index_of
from hoodoo.merge.kernels import KeyedChanges, concat_changes
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files.base_sink import BaseFileWriter, ExpectedRows, RewrittenKeys, in_order
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.in_place import BaseFileRewriter

# number of shares of the memory budget: held changes, the current batch and its copy, the row group being encoded, and
# temporary copies
_SHARE = 8
_LOG_GROWTH = 1.5  # growth of strings when log records are decoded from Avro
_ROW_GROUP_MIN = 8 << 20  # minimum bytes of a row group, even if the budget is small, so that readers stay fast
_HELD_BYTES = 120  # bytes per held key for its hash, position, rank and two hash tables
_PROBE, _BATCH_MIN, _BATCH_MAX = 256, 64, 1 << 20  # rows
_ARRIVAL = "#arrival"  # extra column; Avro does not allow this name for table columns


class _KeysDiffer(Exception):
    """Internal exception for changed keys in a base file."""


@dataclass(frozen=True)
class MergeTask:
    """Picklable task that merges logs into a base file.

    The resulting rows do not depend on the engine or on the memory budget.
    """

    store: Store
    config: TableConfig
    instant: str
    group: FileGroup
    memory_bytes: int = ServiceLimits.memory_bytes
    pace: RateLimiter = field(default_factory=RateLimiter)

    def __call__(self) -> DataFile:
        merging = BaseFileMerge(self)
        old = self.group.base.file if self.group.base else None
        file = self._replace_rows_in_place(merging) or self._write_decoded_rows(merging, old)
        self.pace.count_bytes(file.size)
        file = replace(file, previous=old.path if old else "", updates=sum(log.file.updates for log in self.group.logs))
        return in_order(self.config, old, file) if old else file

    def _replace_rows_in_place(self, merging: BaseFileMerge) -> DataFile | None:
        # Unchanged row groups are copied. Returns None if this is not possible.
        if self.group.base is None or not self.group.logs or _may_mix_commits(self.group):
            return None
        changes = merging.load_log_changes()
        if changes is None:
            return None
        base, max_bytes = self.group.base.file, self.memory_bytes // _SHARE
        index, step = index_of(self.store, shared=True), partial(self.pace.count_bytes, 0)
        with suppress(CannotCopyFile):
            rewriter = BaseFileRewriter(self.store, self.config, index, max_bytes, step)
            return rewriter.rewrite(base, self.instant, changes, merging.stored)[0]
        return None

    def _write_decoded_rows(self, merging: BaseFileMerge, old: DataFile | None) -> DataFile:
        is_own_log_only = not any(
            log.file.origin for log in self.group.logs
        )  # logs of hoodoo only update keys of the base file, and only their delete blocks remove keys
        keeps_keys = old is not None and is_own_log_only and not any(log.file.deletes for log in self.group.logs)
        grown = RewrittenKeys(old, pa.chunked_array([], pa.string())) if old and keeps_keys else None
        try:
            return self._write(merging, grown)
        except _KeysDiffer:
            return self._write(merging, None)

    def rows(self) -> Iterator[pa.Table]:
        return BaseFileMerge(self).rows()

    def _write(self, merging: BaseFileMerge, grown: RewrittenKeys | None) -> DataFile:
        changed = sum(log.file.rows for log in self.group.logs if not grown)
        capacity = (self.group.base.file.rows if self.group.base else 0) + changed
        row_group = min(ROW_GROUP_BYTES, max(_ROW_GROUP_MIN, self.memory_bytes // (2 * _SHARE)))
        target = FileTarget(self.group.partition, self.group.file_id, self.instant)
        expected = ExpectedRows(capacity, grown=grown)
        sink = BaseFileWriter(self.store, self.config, index_of(self.store, shared=True), target, expected, row_group)
        sink.write(self.config.stored_schema.empty_table())
        rows = 0
        for part in merging.rows():
            rows += len(part)
            sink.write(part)
        if grown and rows != capacity:
            raise _KeysDiffer
        return sink.finish()


def _may_mix_commits(group: FileGroup) -> bool:
    # A log of table version 6 may contain blocks of several commits. Valid blocks can be told from invalid blocks only
    # by reading the whole file slice.
    return any(log.file.blocks for log in group.logs)


class BaseFileMerge:
    """Merge of a base file with its logs.

    The base file is fetched and verified once, even if it is read several times.
    """

    def __init__(self, task: MergeTask) -> None:
        self.store, self.config, self.group, self.pace = task.store, task.config, task.group, task.pace
        self._share = task.memory_bytes / _SHARE
        self.stored: bytes | pa.Buffer = b""
        if self.group.base:
            self.pace.count_bytes(self.group.base.file.size)
            self.stored = slices.read_verified_file(self.store, self.group.base.file)
        self._held: KeyedChanges | None = None

    def rows(self) -> Iterator[pa.Table]:
        """Yield the merged rows in batches.

        Rows of the base file come first, then changed rows.
        """
        if _may_mix_commits(self.group) or (
            any(log.file.origin or not log.file.digest for log in self.group.logs) and self._has_partial_updates()
        ):
            yield slices.read_file_slice(self.store, self.config, self.group, self.config.stored_schema, verified=True)
        elif self._log_memory() <= self._share:
            yield from self._with_held_logs()
        elif any(log.file.partial for log in self.group.logs):
            yield from self._with_large_partial_logs()
        else:
            yield from self._with_large_logs()

    def _log_memory(self) -> float:
        # Small numbers and nulls need one byte in Avro, but their full width in Arrow.
        width = sum(_value_bytes(kind) for kind in self.config.stored_schema.types)
        files = [log.file for log in self.group.logs]
        return sum((file.decoded or file.size) * _LOG_GROWTH + file.rows * width for file in files)

    def _has_partial_updates(self) -> bool:
        return any(part.columns is not None for part in self._log_parts(self._narrow()))

    def load_log_changes(self) -> KeyedChanges | None:
        """Load the changes of all log files into memory.

        The result has one change per key. Returns None if the logs are empty, do not fit into memory, or come from
        another engine.
        """
        if any(log.file.origin or not log.file.digest for log in self.group.logs) or self._log_memory() > self._share:
            return None
        by_row = slices.has_row_positions(self.group)
        if self._held is None and (parts := list(self._log_parts(self.config.stored_schema, by_row))):
            (self._held,) = self.config.merge_policy.one_per_key(parts)
        return self._held

    def _with_held_logs(self) -> Iterator[pa.Table]:
        wide = self.config.stored_schema
        parts = list(self._log_parts(wide)) if self._held is None else [self._held]
        merge = self.config.merge_policy.start_streaming_merge(parts) if parts else None
        is_complete = merge is None or not merge.changes.unset
        for batch in self._base_rows(wide):
            if merge is None or is_complete:
                yield batch.filter(pa.array(merge.mask_of_kept_rows(batch))) if merge else batch
            else:
                yield merge.applied(batch)
        if merge:
            wins = merge.live() if is_complete else merge.live() & ~merge.found & ~merge.changes.partial
            yield merge.changes.rows.filter(pa.array(wins))

    def _with_large_partial_logs(self) -> Iterator[pa.Table]:
        # The logs are read once for each batch of the base file, and once more for new keys.
        wide, policy = self.config.stored_schema, self.config.merge_policy
        matched = np.zeros(sum(log.file.rows for log in self.group.logs), bool)
        for batch in self._base_rows(wide):
            keys, batch_changes = batch[RECORD_KEY].combine_chunks(), []
            for part, offset in _with_number_of_earlier_changes(self._log_parts(wide)):
                positions = np.flatnonzero(slices.among(part.rows[RECORD_KEY], keys))
                matched[offset + positions] = True
                batch_changes.append(part.take(positions))
            yield policy.start_streaming_merge(batch_changes).applied(batch)
        parts = _with_number_of_earlier_changes(self._log_parts(wide))
        unmatched = policy.collapse(
            concat_changes([part.take(np.flatnonzero(~matched[offset : offset + len(part)])) for part, offset in parts])
        )
        yield unmatched.rows.filter(pa.array(~unmatched.delete & ~unmatched.partial))

    def _with_large_logs(self) -> Iterator[pa.Table]:
        wide = self.config.stored_schema
        is_kept, wins = self._decide_kept_rows()
        offset = 0
        for batch in self._base_rows(wide):
            yield batch.filter(pa.array(is_kept[offset : offset + len(batch)]))
            offset += len(batch)
        for part, offset in _with_number_of_earlier_changes(self._log_parts(wide)):
            yield part.rows.filter(pa.array(wins[offset : offset + len(part)]))

    def _decide_kept_rows(self) -> tuple[np.ndarray, np.ndarray]:
        # Returns boolean masks of base rows and of log records. Only keys and ordering values are read, and only one
        # part of the keys is in memory at a time.
        narrow = self._narrow()
        is_kept = np.ones(self.group.base.file.rows if self.group.base else 0, bool)
        sizes = [(len(part), part.rows.nbytes) for part in self._log_parts(narrow)]
        wins = np.zeros(sum(rows for rows, _ in sizes), bool)
        held_bytes = sum(size for _, size in sizes) + _HELD_BYTES * len(wins)
        count = max(1, int(np.ceil(held_bytes / self._share)))
        for number in range(count):
            part_changes = [
                _select_key_range(part, offset, number, count)
                for part, offset in _with_number_of_earlier_changes(self._log_parts(narrow))
            ]
            merge = self.config.merge_policy.start_streaming_merge(part_changes)
            offset = 0
            for batch in self._base_rows(narrow):
                is_kept[offset : offset + len(batch)] &= merge.mask_of_kept_rows(batch)
                offset += len(batch)
            wins[merge.changes.rows[_ARRIVAL].to_numpy()[merge.live()]] = True
        return is_kept, wins

    # ---- files
    def _narrow(self) -> pa.Schema:
        return slices.schema_of(self.config, slices.columns_to_decode(self.config, [], merging=True))

    def _log_parts(self, schema: pa.Schema, by_row: bool = False) -> Iterator[KeyedChanges]:
        # With `by_row`, changes have base row positions (slices.read_log).
        for file in slices.sort_logs_by_instant(self.group):
            self.pace.count_bytes(file.size)
            yield from slices.read_log(self.store, self.config, file, schema, by_row)

    def _base_rows(self, schema: pa.Schema) -> Iterator[pa.Table]:
        # The number of rows per batch follows from the size of the first rows.
        if self.group.base is None:
            return
        first = next(self._batches(schema, _PROBE), None)
        if first is None:
            return
        rows = int(min(_BATCH_MAX, max(_BATCH_MIN, self._share * len(first) / max(1, first.nbytes))))
        for batch in self._batches(schema, rows):
            self.pace.count_bytes(0)
            yield batch

    def _batches(self, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
        assert self.group.base is not None
        file = self.group.base.file
        return base_file.read_in_batches(
            pa.BufferReader(pa.py_buffer(self.stored)),
            file.path,
            schema,
            rows,
            resolution=self.config.resolution(file),
        )


def _value_bytes(kind: pa.DataType) -> int:
    # The width of a type that is not fixed counts as 8 bytes. Nested types count their children.
    if pa.types.is_dictionary(kind):
        return 4
    if kind.num_fields:
        return 4 + sum(_value_bytes(kind.field(n).type) for n in range(kind.num_fields))
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return 8


def run_task(task: MergeTask) -> DataFile | CorruptTable:
    try:
        return task()
    except CorruptTable as problem:
        return problem


def _with_number_of_earlier_changes(parts: Iterator[KeyedChanges]) -> Iterator[tuple[KeyedChanges, int]]:
    offset = 0
    for part in parts:
        yield part, offset
        offset += len(part)


def _select_key_range(part: KeyedChanges, offset: int, number: int, count: int) -> KeyedChanges:
    hashes = part.key_hashes()
    positions = np.flatnonzero(hashes % np.uint64(count) == number)
    rows = part.rows.append_column(_ARRIVAL, pa.array(np.arange(offset, offset + len(part))))
    return KeyedChanges(rows, part.delete, part.unconditional, hashes=hashes).take(positions)


__all__ = ["MergeTask", "run_task"]
