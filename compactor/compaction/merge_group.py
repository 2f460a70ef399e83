"""Merges the logs of one file group into a new base file within a memory budget, however large base and logs are.

Logs that fit the budget are held in memory. Where the base file has hoodoo's own layout, their winners take the
positions of the rows that they replace, and row groups that no change touches are copied (writers/files/in_place.py).
Otherwise the base file is read in batches: rows that a change replaces are left out, and the changes that live follow
at the end, in order of arrival.

Of larger logs only record keys and ordering values are held, for one part of the keys after the other. Which changes
win is noted as one bit a row; then base and logs are read once more to be copied. Larger logs with partial updates are
read for each batch of the base. A single log block (8 MiB at most, as hoodoo writes them) is decoded at once whatever
the budget is; so is a partial update of another engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from hoodoo.compactor.limits import Limits, Pace
from hoodoo.errors import CorruptTable
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.base_file import ROW_GROUP_BYTES
from hoodoo.format.parquet.raw_copy import CannotCopy
from hoodoo.index import index_of
from hoodoo.merge.kernels import KeyedChanges, concat
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files.base_sink import BaseSink, ExpectedRows, ExtendedKeys, in_order
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.in_place import Rewriter

# of the budget: held changes, the batch that goes by with its copy, the row group that is encoded, and what these need
# on the way
_SHARE = 8
_LOG_GROWTH = 1.5  # of the texts in a log's records, on the way from Avro
_ROW_GROUP_MIN = 8 << 20  # bytes of a row group whatever the budget: layout is for readers
_HELD_BYTES = 120  # a key that is held also takes its hash, its position, its rank and two hash tables
_PROBE, _BATCH_MIN, _BATCH_MAX = 256, 64, 1 << 20  # rows
_ARRIVAL = "#arrival"  # a column beside the table's, which Avro lets nobody call so


class _KeysDiffer(Exception):
    """The new base file has other keys than its logs made expect."""


@dataclass(frozen=True)
class MergeTask:
    """One file group's new base; picklable, so it runs on Spark as well. The same rows come out wherever and under
    whatever budget it runs.
    """

    store: Store
    config: TableConfig
    instant: str
    group: FileGroup
    memory_bytes: int = Limits.memory_bytes
    pace: Pace = field(default_factory=Pace)

    def __call__(self) -> DataFile:
        """Raises Stopped, CorruptTable."""
        merging = GroupMerge(self)
        old = self.group.base.file if self.group.base else None
        file = self._in_place(merging) or self._merged(merging, old)
        self.pace.spend(file.size)
        file = replace(file, previous=old.path if old else "", updates=sum(log.file.updates for log in self.group.logs))
        return in_order(self.config, old, file) if old else file

    def _in_place(self, merging: GroupMerge) -> DataFile | None:
        """The base with the winners of its logs, and all that they leave as it is copied; None where that cannot be."""
        if self.group.base is None or not self.group.logs or _of_several_commits(self.group):
            return None
        changes = merging.held_changes()
        if changes is None:
            return None
        base, most = self.group.base.file, self.memory_bytes // _SHARE
        index, step = index_of(self.store, shared=True), partial(self.pace.spend, 0)
        with suppress(CannotCopy):
            rewriter = Rewriter(self.store, self.config, index, most, step)
            return rewriter.rewrite(base, self.instant, changes, merging.stored)[0]
        return None

    def _merged(self, merging: GroupMerge, old: DataFile | None) -> DataFile:
        """The base from rows that are all decoded and encoded."""
        ours = not any(
            log.file.origin for log in self.group.logs
        )  # then they change keys of the base, and only delete blocks take keys away
        keeps_keys = old is not None and ours and not any(log.file.deletes for log in self.group.logs)
        grown = ExtendedKeys(old, pa.chunked_array([], pa.string())) if old and keeps_keys else None
        try:
            return self._write(merging, grown)
        except _KeysDiffer:
            return self._write(merging, None)

    def rows(self) -> Iterator[pa.Table]:
        """Live rows of the group, in order, a batch at a time."""
        return GroupMerge(self).rows()

    def _write(self, merging: GroupMerge, grown: ExtendedKeys | None) -> DataFile:
        changed = sum(log.file.rows for log in self.group.logs if not grown)
        capacity = (self.group.base.file.rows if self.group.base else 0) + changed
        row_group = min(ROW_GROUP_BYTES, max(_ROW_GROUP_MIN, self.memory_bytes // (2 * _SHARE)))
        target = FileTarget(self.group.partition, self.group.file_id, self.instant)
        expected = ExpectedRows(capacity, grown=grown)
        sink = BaseSink(self.store, self.config, index_of(self.store, shared=True), target, expected, row_group)
        sink.write(self.config.stored_schema.empty_table())
        rows = 0
        for part in merging.rows():
            rows += len(part)
            sink.write(part)
        if grown and rows != capacity:
            raise _KeysDiffer
        return sink.finish()


def _of_several_commits(group: FileGroup) -> bool:
    """Tell whether logs of table version 6 are among those of `group`: which of their blocks count, the slice knows as
    a whole.
    """
    return any(log.file.blocks for log in group.logs)


class GroupMerge:
    """The merge of one file group. Its base file is fetched and checked once, however often it is read."""

    def __init__(self, task: MergeTask) -> None:
        self.store, self.config, self.group, self.pace = task.store, task.config, task.group, task.pace
        self._share = task.memory_bytes / _SHARE
        self.stored: bytes | pa.Buffer = b""
        if self.group.base:
            self.pace.spend(self.group.base.file.size)
            self.stored = slices.read_verified(self.store, self.group.base.file)
        self._held: KeyedChanges | None = None

    def rows(self) -> Iterator[pa.Table]:
        """Live rows: those of the base that stay, then the changes that live."""
        if _of_several_commits(self.group) or (
            any(log.file.origin or not log.file.digest for log in self.group.logs) and self._partial()
        ):
            yield slices.read_slice(self.store, self.config, self.group, self.config.stored_schema, verified=True)
        elif self._log_memory() <= self._share:
            yield from self._with_held_logs()
        elif any(log.file.partial for log in self.group.logs):
            yield from self._with_large_partial_logs()
        else:
            yield from self._with_large_logs()

    def _log_memory(self) -> float:
        """What the records take in Arrow memory, about: small numbers and nulls are a byte in Avro, and have their
        width there.
        """
        width = sum(_width(kind) for kind in self.config.stored_schema.types)
        files = [log.file for log in self.group.logs]
        return sum((file.decoded or file.size) * _LOG_GROWTH + file.rows * width for file in files)

    def _partial(self) -> bool:
        """Tell whether a log of another engine holds partial updates, as Spark's MERGE INTO writes them."""
        return any(part.columns is not None for part in self._log_parts(self._narrow()))

    def held_changes(self) -> KeyedChanges | None:
        """What the logs say, one change for each key; None where that is nothing or too much to hold, and where another
        engine's logs may say it in part.
        """
        if any(log.file.origin or not log.file.digest for log in self.group.logs) or self._log_memory() > self._share:
            return None
        by_row = slices.lies_over_rows(self.group)
        if self._held is None and (parts := list(self._log_parts(self.config.stored_schema, by_row))):
            (self._held,) = self.config.merge_policy.one_per_key(parts)
        return self._held

    def _with_held_logs(self) -> Iterator[pa.Table]:
        wide = self.config.stored_schema
        parts = list(self._log_parts(wide)) if self._held is None else [self._held]
        held = self.config.merge_policy.apply_streaming(parts) if parts else None
        whole = held is None or not held.changes.unset
        for batch in self._base(wide):
            if held is None or whole:
                yield batch.filter(pa.array(held.stays(batch))) if held else batch
            else:
                yield held.applied(batch)
        if held:
            lives = held.live() if whole else held.live() & ~held.found & ~held.changes.partial
            yield held.changes.rows.filter(pa.array(lives))

    def _with_large_partial_logs(self) -> Iterator[pa.Table]:
        """The logs are read once for each batch of the base, and once more for keys that no batch has."""
        wide, policy = self.config.stored_schema, self.config.merge_policy
        met = np.zeros(sum(log.file.rows for log in self.group.logs), bool)
        for batch in self._base(wide):
            keys, mine = batch[RECORD_KEY].combine_chunks(), []
            for part, at in _numbered(self._log_parts(wide)):
                here = np.flatnonzero(slices.among(part.rows[RECORD_KEY], keys))
                met[at + here] = True
                mine.append(part.take(here))
            yield policy.apply_streaming(mine).applied(batch)
        parts = _numbered(self._log_parts(wide))
        others = policy.collapse(concat([part.take(np.flatnonzero(~met[at : at + len(part)])) for part, at in parts]))
        yield others.rows.filter(pa.array(~others.delete & ~others.partial))

    def _with_large_logs(self) -> Iterator[pa.Table]:
        wide = self.config.stored_schema
        stays, lives = self._decide()
        at = 0
        for batch in self._base(wide):
            yield batch.filter(pa.array(stays[at : at + len(batch)]))
            at += len(batch)
        for part, at in _numbered(self._log_parts(wide)):
            yield part.rows.filter(pa.array(lives[at : at + len(part)]))

    def _decide(self) -> tuple[np.ndarray, np.ndarray]:
        """(mask of base rows that stay, mask of log records that live), by keys and ordering values alone, one part of
        the keys after the other.
        """
        narrow = self._narrow()
        stays = np.ones(self.group.base.file.rows if self.group.base else 0, bool)
        sizes = [(len(part), part.rows.nbytes) for part in self._log_parts(narrow)]
        lives = np.zeros(sum(rows for rows, _ in sizes), bool)
        held_bytes = sum(size for _, size in sizes) + _HELD_BYTES * len(lives)
        count = max(1, int(np.ceil(held_bytes / self._share)))
        for number in range(count):
            mine = [_of_part(part, at, number, count) for part, at in _numbered(self._log_parts(narrow))]
            held = self.config.merge_policy.apply_streaming(mine)
            at = 0
            for batch in self._base(narrow):
                stays[at : at + len(batch)] &= held.stays(batch)
                at += len(batch)
            lives[held.changes.rows[_ARRIVAL].to_numpy()[held.live()]] = True
        return stays, lives

    # ---- files
    def _narrow(self) -> pa.Schema:
        return slices.schema_of(self.config, slices.columns_for(self.config, [], merging=True))

    def _log_parts(self, schema: pa.Schema, by_row: bool = False) -> Iterator[KeyedChanges]:
        """by_row: see slices.read_log."""
        for file in slices.logs_in_order(self.group):
            self.pace.spend(file.size)
            yield from slices.read_log(self.store, self.config, file, schema, by_row)

    def _base(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The base's rows with the columns of `schema`, in batches that take a share of the budget, by what the first
        rows take.
        """
        if self.group.base is None:
            return
        first = next(self._batches(schema, _PROBE), None)
        if first is None:
            return
        rows = int(min(_BATCH_MAX, max(_BATCH_MIN, self._share * len(first) / max(1, first.nbytes))))
        for batch in self._batches(schema, rows):
            self.pace.spend(0)
            yield batch

    def _batches(self, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
        assert self.group.base is not None
        file = self.group.base.file
        return base_file.decode_batches(
            pa.BufferReader(pa.py_buffer(self.stored)),
            file.path,
            schema,
            rows,
            resolution=self.config.resolution(file),
        )


def _width(kind: pa.DataType) -> int:
    """Count the bytes of a value: its width if that is fixed, otherwise 8. Nested values count by their children."""
    if pa.types.is_dictionary(kind):
        return 4
    if kind.num_fields:
        return 4 + sum(_width(kind.field(n).type) for n in range(kind.num_fields))
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return 8


def run_task(task: MergeTask) -> DataFile | CorruptTable:
    """Damage of one group is no reason to leave the others as they are."""
    try:
        return task()
    except CorruptTable as problem:
        return problem


def _numbered(parts: Iterator[KeyedChanges]) -> Iterator[tuple[KeyedChanges, int]]:
    """Each part with the number of records before it."""
    at = 0
    for part in parts:
        yield part, at
        at += len(part)


def _of_part(part: KeyedChanges, at: int, number: int, count: int) -> KeyedChanges:
    """The changes of part `number` of the keys, with the number of each among all records."""
    hashes = part.key_hashes()
    positions = np.flatnonzero(hashes % np.uint64(count) == number)
    rows = part.rows.append_column(_ARRIVAL, pa.array(np.arange(at, at + len(part))))
    return KeyedChanges(rows, part.delete, part.unconditional, hashes=hashes).take(positions)


__all__ = ["MergeTask", "run_task"]
