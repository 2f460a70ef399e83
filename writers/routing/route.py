"""Routes of rows to files.

It receives rows as chunks with a size, and writes nothing. `update` and `delete(where=)` do not use it, because they
write to the file groups whose rows they read (writers/stored_rows.py).

Changes of existing keys go to the file group of the key: into a new base file (copy-on-write) or a log file
(merge-on-read). New rows only go to base files, because Apache Hudi's index only reads base files.
writers/routing/locate.py describes one exception. If a key that a log file deletes is written again, its base file is
rewritten (protocol rule 8).

Equal rows give an equal plan, whether they are in this process or staged by Spark tasks.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from hoodoo.format.parquet import base_file
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View

_SMALL_GROUPS_MAX = 30  # with more small file groups in a partition, they are filled up at any cost
# Packing a group later copies its row groups unchanged, which costs a fraction of a rewrite.
_REWRITE_PAYS = 1  # a small group is filled up if it is at most this many times the new bytes
_ALWAYS_FILL = 64 << 10  # ... or smaller than this
_OVERSHOOT = 1.2  # a file may be this much larger than the target before it is cut in two
_SAMPLE_ROWS, _SAMPLE_BYTES = 20_000, 64 << 20  # rows that are encoded to estimate the size of all rows
_ROW_OVERHEAD = 20  # bytes of a row's commit time and sequence number in a file
R = TypeVar("R")
S = TypeVar("S")


class Mode(StrEnum):
    NEW = "new"
    REWRITE = "rewrite"
    APPEND = "append"


@dataclass(frozen=True)
class RoutedChunk(Generic[S]):
    """Chunk of rows with the same destination.

    They belong to one partition.

    Attributes:
        source: The object that identifies the rows in the methods of `ChunkRows`.
        partition: The path of the partition.
        rows: The number of rows.
        bytes: The size of the rows in memory, for new rows only.
        file_id: The id of the file group that contains the keys, or that new keys must go to. '' if any file group is
            possible.
        new: True if the table contains none of the rows' keys.
        needs_base: True if the rows must go into the base file, by a rewrite (`needs_base` in split.py).
    """

    source: S
    partition: str
    rows: int
    bytes: int = 0
    file_id: str = ""
    new: bool = False
    needs_base: bool = False

    def at(self, source: R) -> RoutedChunk[R]:
        return RoutedChunk(source, self.partition, self.rows, self.bytes, self.file_id, self.new, self.needs_base)


@dataclass(frozen=True)
class ChunkSlice(Generic[S]):
    source: S
    start: int
    stop: int


class ChunkRows(Protocol[S]):
    """Rows of a planned write."""

    def sample(self, chunks: Sequence[RoutedChunk[S]], count: int) -> pa.Table:
        """Select a random sample of new rows.

        The rows contain the record key and the table's columns. The result does not depend on how the rows are stored.
        """

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[S]]) -> Callable[[], KeyedChanges]: ...


@dataclass(frozen=True)
class GroupAssignment:
    """Assignment of changed rows to one file group.

    Attributes:
        mode: The kind of write: a new file group, a rewritten base file or a log file.
        partition: The path of the partition.
        file_id: The id of the file group.
        group: The file group in the plan's view, or None for a new one.
        load: Function that loads the changes in the task that writes them.
        rows: The number of changes, or 0 if only the task can determine it.
        inserts: The number of new keys, as far as the planner knows.
        from_stored: True if the changes are computed from live rows of the group. The changes may then be empty, and
            each change takes effect.
    """

    mode: Mode
    partition: str
    file_id: str
    group: FileGroup | None
    load: Callable[[], KeyedChanges]
    rows: int
    inserts: int
    from_stored: bool = False


@dataclass
class _GroupAssignment(Generic[S]):
    partition: str
    file_id: str
    group: FileGroup | None
    rewrite: bool
    parts: list[ChunkSlice[S]] = field(default_factory=list)
    inserts: int = 0

    @property
    def mode(self) -> Mode:
        if self.group is None:
            return Mode.NEW
        return Mode.REWRITE if self.rewrite else Mode.APPEND

    def add(self, parts: Sequence[ChunkSlice[S]], new: bool) -> None:
        self.parts += parts
        self.rewrite |= new
        self.inserts += _count_rows(parts) if new else 0

    def done(self, rows: ChunkRows[S]) -> GroupAssignment:
        load = rows.load(self.mode, self.parts)
        return GroupAssignment(
            self.mode, self.partition, self.file_id, self.group, load, _count_rows(self.parts), self.inserts
        )


class CompactionPending(Exception):
    """Exception for a file group with a pending compaction."""


def generate_file_id(token: Callable[[], str]) -> str:
    """Generate the id of a new file group.

    The id never begins with eight decimal digits, because a Hudi writer with a bucket index would interpret them as a
    bucket number (index/buckets.py). `token` returns 128 random bits as 32 hex digits, as in Environment.
    """
    digits = token()
    return f"{uuid.UUID('a' + digits[1:] if digits[:8].isdecimal() else digits)}-0"


def assign_rows(
    chunks: Iterable[RoutedChunk[S]],
    rows: ChunkRows[S],
    view: View,
    config: TableConfig,
    token: Callable[[], str],
    fill: bool = True,
) -> list[GroupAssignment]:
    """Assign the rows of a write to files.

    If `fill` is True, new rows may join existing small file groups.
    """
    planned, target = view.planned_ids(), config.options.target_file_bytes
    shares: dict[str, _GroupAssignment[S]] = {}
    anywhere: dict[str, list[RoutedChunk[S]]] = {}
    for chunk in chunks:
        if not chunk.file_id:
            anywhere.setdefault(chunk.partition, []).append(chunk)
            continue
        share = _share_of(shares, view, config, chunk.partition, chunk.file_id)
        share.add([ChunkSlice(chunk.source, 0, chunk.rows)], chunk.new)
        share.rewrite |= chunk.needs_base
    rewritten = {share.file_id for share in shares.values() if share.mode == Mode.REWRITE}
    for partition, partition_chunks in anywhere.items():
        count, size = (
            sum(chunk.rows for chunk in partition_chunks),
            estimate_row_bytes(partition_chunks, rows, view, config),
        )
        filled = choose_small_file(view, partition, count * size, config, planned, rewritten) if fill else None
        room = min(count, max(1, int((target - filled.base_bytes) / size))) if filled else 0
        first, *other_parts = cut_into_slices(
            partition_chunks, [room, *distribute_new_rows(count - room, target, size)]
        )
        if filled:
            _share_of(shares, view, config, partition, filled.file_id).add(first, new=True)
        for parts in other_parts:
            _share_of(shares, view, config, partition, generate_file_id(token)).add(parts, new=True)
    require_no_plan(shares.values(), planned)
    return [share.done(rows) for share in shares.values()]


def require_no_plan(assignments: Iterable[_GroupAssignment[S] | GroupAssignment], planned: set[str]) -> None:
    for assignment in assignments:
        if assignment.mode == Mode.REWRITE and assignment.file_id in planned:
            raise CompactionPending(assignment.file_id)


def _share_of(
    shares: dict[str, _GroupAssignment[S]], view: View, config: TableConfig, partition: str, file_id: str
) -> _GroupAssignment[S]:
    if file_id not in shares:
        group = view.group(partition, file_id)
        shares[file_id] = _GroupAssignment(partition, file_id, group, rewrite=not config.merge_on_read)
    return shares[file_id]


def choose_small_file(
    view: View, partition: str, bytes_new: float, config: TableConfig, planned: set[str], rewritten: set[str]
) -> FileGroup | None:
    """Choose a small file for new rows.

    A file group that is `rewritten` anyway is preferred. Otherwise the smallest file group is chosen, if the new rows
    justify its rewrite.
    """
    limit = config.options.target_file_bytes * 3 // 4
    small = [
        group
        for group in view.groups([partition])
        if group.base and group.base_bytes < limit and group.file_id not in planned
    ]
    rewritten_anyway = [group for group in small if group.file_id in rewritten]
    if rewritten_anyway:
        return min(rewritten_anyway, key=lambda group: group.base_bytes)
    smallest = min(small, key=lambda group: group.base_bytes, default=None)
    if smallest and (
        smallest.base_bytes <= max(_ALWAYS_FILL, _REWRITE_PAYS * bytes_new) or len(small) > _SMALL_GROUPS_MAX
    ):
        return smallest
    return None


def estimate_row_bytes(chunks: Sequence[RoutedChunk[S]], rows: ChunkRows[S], view: View, config: TableConfig) -> float:
    """Estimate the size of a new row.

    The estimate is the mean of the partition's base files. For a new partition whose rows may need several files, a
    sample is encoded.
    """
    files = [group.base.file for group in view.groups([chunks[0].partition]) if group.base and group.base.file.rows]
    if files:
        return max(1.0, sum(file.size for file in files) / sum(file.rows for file in files))
    count, total = sum(chunk.rows for chunk in chunks), sum(chunk.bytes for chunk in chunks)
    if max(8 * count, total) < config.options.target_file_bytes:
        return max(1.0, total / count)  # fits into one file with any compression
    sample_rows = max(1, min(count, _SAMPLE_ROWS, _SAMPLE_BYTES * count // max(1, total)))
    sample = rows.sample(chunks, sample_rows)
    size = base_file.encode_base_file(sample, config.options.compression, len(sample)).data.size
    return max(1.0, size / len(sample) + _ROW_OVERHEAD)


def distribute_new_rows(rows: int, target: int, bytes_per_row: float) -> list[int]:
    """Distribute new rows over new files.

    Returns the number of rows of each file, with as few files as the target size allows.
    """
    if not rows:
        return []
    parts = min(rows, max(1, math.ceil(rows * bytes_per_row / (target * _OVERSHOOT))))
    rows_per_group, larger_groups = divmod(rows, parts)
    return [rows_per_group + 1] * larger_groups + [rows_per_group] * (parts - larger_groups)


def cut_into_slices(chunks: Sequence[RoutedChunk[S]], counts: Sequence[int]) -> list[list[ChunkSlice[S]]]:
    slices: list[list[ChunkSlice[S]]] = []
    remaining: Iterator[RoutedChunk[S]] = iter(chunks)
    chunk, start = next(remaining, None), 0
    for count in counts:
        parts: list[ChunkSlice[S]] = []
        while count and chunk is not None:
            stop = min(chunk.rows, start + count)
            parts.append(ChunkSlice(chunk.source, start, stop))
            count, start = count - (stop - start), stop
            if start == chunk.rows:
                chunk, start = next(remaining, None), 0
        slices.append(parts)
    return slices


def _count_rows(parts: Sequence[ChunkSlice[S]]) -> int:
    return sum(part.stop - part.start for part in parts)
