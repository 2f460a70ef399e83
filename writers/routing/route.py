"""The planner: which file group takes which rows of a batch or a merge, and how. It knows rows as chunks with a size,
wherever they lie; it decides and writes nothing. `update` and `delete(where=)` do not ask it: they write to the file
groups in which they find the rows (writers/stored_rows.py).

Changes of known keys go where the key lives: into a new base file (copy-on-write) or a log (merge-on-read). New rows go
to base files only, because Apache Hudi's index looks at nothing else (writers/routing/locate.py has the one exception).
A key that a log deletes comes back by a rewrite of its base (protocol rule 8). The same rows give the same plan whether
they are in this process or staged by Spark's tasks.
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

_SMALL_GROUPS_MAX = 30  # small file groups of a partition beyond this are filled up whatever it costs
# Packing a group later copies its row groups as they are, and costs a fraction of a rewrite.
_REWRITE_PAYS = 1  # a small group is filled up if it is at most this many times the new bytes
_ALWAYS_FILL = 64 << 10  # ... or smaller than this
_OVERSHOOT = 1.2  # a file may be this much larger than the target before it is cut in two
_SAMPLE_ROWS, _SAMPLE_BYTES = 20_000, 64 << 20  # rows that are encoded to know what others will take
_ROW_OVERHEAD = 20  # bytes that a row's commit time and sequence number take in a file
R = TypeVar("R")
S = TypeVar("S")


class Mode(StrEnum):
    """How rows reach a file group: a new group, a new base file, or a log over the base there is."""

    NEW = "new"
    REWRITE = "rewrite"
    APPEND = "append"


@dataclass(frozen=True)
class Chunk(Generic[S]):
    """Rows of one partition that go the same way. source: what finds them.

    bytes: what they take in memory (of new rows only). file_id: of the file group that has their keys, or that new keys
    must go to; '' where any will do. needs_base: they have to go into the base of their group, by a rewrite
    (split.py: `needs_base`).
    """

    source: S
    partition: str
    rows: int
    bytes: int = 0
    file_id: str = ""
    new: bool = False
    needs_base: bool = False

    def at(self, source: R) -> Chunk[R]:
        """Return the same rows with another source."""
        return Chunk(source, self.partition, self.rows, self.bytes, self.file_id, self.new, self.needs_base)


@dataclass(frozen=True)
class ChunkSlice(Generic[S]):
    """The rows `start` to `stop` of a chunk."""

    source: S
    start: int
    stop: int


class ChunkRows(Protocol[S]):
    """Gives the rows of chunks, wherever they lie."""

    def sample(self, chunks: Sequence[Chunk[S]], count: int) -> pa.Table:
        """The `count` rows (record key, table's columns) of these chunks with the least hashes, in order of hash: the
        same ones wherever they lie.
        """

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[S]]) -> Callable[[], KeyedChanges]:
        """What gives the changes of `parts` where the task runs that writes them."""


@dataclass(frozen=True)
class Assignment:
    """`rows` changes go to one file group; `load` gives them where the task runs.

    Attributes:
        mode: How they reach the file group.
        partition: The path of its partition.
        file_id: The id of the file group.
        group: The file group as the plan's view has it. None: a new one.
        load: Gives the changes.
        rows: How many changes there are; 0 where that is found out where the task runs.
        inserts: How many are new keys, as far as routing knows.
        from_stored: True if the changes are made from live rows of the group. So there may be none, and each takes
            effect.
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
class _Share(Generic[S]):
    """An assignment in the making."""

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
        """New rows go to a base file."""
        self.parts += parts
        self.rewrite |= new
        self.inserts += _count(parts) if new else 0

    def done(self, rows: ChunkRows[S]) -> Assignment:
        load = rows.load(self.mode, self.parts)
        return Assignment(self.mode, self.partition, self.file_id, self.group, load, _count(self.parts), self.inserts)


class UnderPlan(Exception):
    """A file group that must be rewritten is under an open compaction plan: run the plan first."""


def new_file_id(token: Callable[[], str]) -> str:
    """Return the id of a new file group.

    One that begins with four zeros would be taken for a bucket of Hudi's (index/buckets.py), so none does.

    token: 128 random bits as 32 hex digits, as Environment gives them.
    """
    digits = token()
    return f"{uuid.UUID('1' + digits[1:] if digits.startswith('0000') else digits)}-0"


def plan(
    chunks: Iterable[Chunk[S]],
    rows: ChunkRows[S],
    view: View,
    config: TableConfig,
    token: Callable[[], str],
    fill: bool = True,
) -> list[Assignment]:
    """Assignments of all rows of `chunks`. fill: new rows may join file groups that are there. Raises UnderPlan."""
    planned, target = view.planned_ids(), config.options.target_file_bytes
    shares: dict[str, _Share[S]] = {}
    anywhere: dict[str, list[Chunk[S]]] = {}
    for chunk in chunks:
        if not chunk.file_id:
            anywhere.setdefault(chunk.partition, []).append(chunk)
            continue
        share = _share_of(shares, view, config, chunk.partition, chunk.file_id)
        share.add([ChunkSlice(chunk.source, 0, chunk.rows)], chunk.new)
        share.rewrite |= chunk.needs_base
    rewritten = {share.file_id for share in shares.values() if share.mode == Mode.REWRITE}
    for partition, mine in anywhere.items():
        count, size = sum(chunk.rows for chunk in mine), bytes_per_row(mine, rows, view, config)
        filled = group_to_fill(view, partition, count * size, config, planned, rewritten) if fill else None
        room = min(count, max(1, int((target - filled.base_bytes) / size))) if filled else 0
        first, *others = cut(mine, [room, *new_group_rows(count - room, target, size)])
        if filled:
            _share_of(shares, view, config, partition, filled.file_id).add(first, new=True)
        for parts in others:
            _share_of(shares, view, config, partition, new_file_id(token)).add(parts, new=True)
    require_no_plan(shares.values(), planned)
    return [share.done(rows) for share in shares.values()]


def require_no_plan(assignments: Iterable[_Share[S] | Assignment], planned: set[str]) -> None:
    """Protocol rule 6: who must rewrite a group under an open plan runs the plan first. Raises UnderPlan."""
    for assignment in assignments:
        if assignment.mode == Mode.REWRITE and assignment.file_id in planned:
            raise UnderPlan(assignment.file_id)


def _share_of(shares: dict[str, _Share[S]], view: View, config: TableConfig, partition: str, file_id: str) -> _Share[S]:
    if file_id not in shares:
        group = view.group(partition, file_id)
        shares[file_id] = _Share(partition, file_id, group, rewrite=not config.merge_on_read)
    return shares[file_id]


def group_to_fill(
    view: View, partition: str, bytes_new: float, config: TableConfig, planned: set[str], rewritten: set[str]
) -> FileGroup | None:
    """The small file group that takes new rows: one that is `rewritten` anyway, else the smallest, if the new rows
    justify rewriting it.
    """
    limit = config.options.target_file_bytes * 3 // 4
    small = [
        group
        for group in view.groups([partition])
        if group.base and group.base_bytes < limit and group.file_id not in planned
    ]
    free = [group for group in small if group.file_id in rewritten]
    if free:
        return min(free, key=lambda group: group.base_bytes)
    smallest = min(small, key=lambda group: group.base_bytes, default=None)
    if smallest and (
        smallest.base_bytes <= max(_ALWAYS_FILL, _REWRITE_PAYS * bytes_new) or len(small) > _SMALL_GROUPS_MAX
    ):
        return smallest
    return None


def bytes_per_row(chunks: Sequence[Chunk[S]], rows: ChunkRows[S], view: View, config: TableConfig) -> float:
    """Bytes that a new row of one partition takes in a base file: as in its files; where it has none and the rows may
    be too many for one file, as a sample of them takes.
    """
    files = [group.base.file for group in view.groups([chunks[0].partition]) if group.base and group.base.file.rows]
    if files:
        return max(1.0, sum(file.size for file in files) / sum(file.rows for file in files))
    count, total = sum(chunk.rows for chunk in chunks), sum(chunk.bytes for chunk in chunks)
    if max(8 * count, total) < config.options.target_file_bytes:
        return max(1.0, total / count)  # one file whatever the compression makes of it
    wanted = max(1, min(count, _SAMPLE_ROWS, _SAMPLE_BYTES * count // max(1, total)))
    sample = rows.sample(chunks, wanted)
    size = base_file.encode(sample, config.options.compression, len(sample)).data.size
    return max(1.0, size / len(sample) + _ROW_OVERHEAD)


def new_group_rows(rows: int, target: int, bytes_per_row: float) -> list[int]:
    """`rows` in as few equal parts as the target size allows; none is without a row, however large rows are."""
    if not rows:
        return []
    parts = min(rows, max(1, math.ceil(rows * bytes_per_row / (target * _OVERSHOOT))))
    least, more = divmod(rows, parts)
    return [least + 1] * more + [least] * (parts - more)


def cut(chunks: Sequence[Chunk[S]], counts: Sequence[int]) -> list[list[ChunkSlice[S]]]:
    """All rows of `chunks`, in their order, as lists of parts with so many rows each."""
    found: list[list[ChunkSlice[S]]] = []
    left: Iterator[Chunk[S]] = iter(chunks)
    chunk, start = next(left, None), 0
    for count in counts:
        parts: list[ChunkSlice[S]] = []
        while count and chunk is not None:
            stop = min(chunk.rows, start + count)
            parts.append(ChunkSlice(chunk.source, start, stop))
            count, start = count - (stop - start), stop
            if start == chunk.rows:
                chunk, start = next(left, None), 0
        found.append(parts)
    return found


def _count(parts: Sequence[ChunkSlice[S]]) -> int:
    return sum(part.stop - part.start for part in parts)
