"""Routing and sizing: which rows go to which file group, and how. Decides; writes nothing.

Updates and deletes go where their key lives: a new base file (copy-on-write) or a log (merge-on-read). New rows go to
base files only, because Apache Hudi's index looks at nothing else. A key that a log deletes comes back by a rewrite of
its base (rule 8).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log.block import loggable_ordering
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import NOWHERE, Located
from hoodoo.merge.changes import Changes
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.view import FileGroup, View
from hoodoo.writers.batch import Batch

NEW, REWRITE, APPEND = "new", "rewrite", "append"
_SMALL_GROUPS_MAX = 8  # small file groups of a partition beyond this are filled up whatever it costs
_REWRITE_PAYS = 8  # a small group is filled up if it is at most this many times the new bytes
_ALWAYS_FILL = 1 << 20  # ... or smaller than this
_OVERSHOOT = 1.2  # a file may be this much larger than the target before it is cut in two


@dataclass(frozen=True)
class Assignment:
    """`rows` changes go to one file group; `load` gives them where the task runs. `inserts`: how many are new keys, as
    far as routing knows.
    """

    mode: str
    partition: str
    file_id: str
    group: FileGroup | None
    load: Callable[[], Changes]
    rows: int
    inserts: int


@dataclass(frozen=True)
class RowsOf:
    """The changes at `places` of a batch in this process, taken when their task runs and not before."""

    batch: Batch
    places: np.ndarray

    def __call__(self) -> Changes:
        whole = len(self.places) == len(self.batch) and (np.diff(self.places) == 1).all()
        mine = self.batch if whole else self.batch.take(self.places)
        return Changes(
            mine.rows, mine.delete, mine.delete if mine.unconditional else np.zeros(len(mine), bool), hashes=mine.hashes
        )


@dataclass
class _Share:
    """An assignment in the making: places of the batch that go to one file group."""

    mode: str
    partition: str
    file_id: str
    group: FileGroup | None
    places: np.ndarray
    inserts: int

    def done(self, batch: Batch) -> Assignment:
        return Assignment(
            self.mode,
            self.partition,
            self.file_id,
            self.group,
            RowsOf(batch, self.places),
            len(self.places),
            self.inserts,
        )


class UnderPlan(Exception):
    """A file group that must be rewritten is under an open compaction plan: run the plan first."""


def new_file_id(token: Callable[[], str]) -> str:
    """token: 128 random bits as 32 hex digits, as Environment gives them."""
    return f"{uuid.UUID(token())}-0"


def route(
    batch: Batch,
    located: Located,
    view: View,
    config: TableConfig,
    bytes_per_row: Callable[[], float],
    token: Callable[[], str],
    bulk: bool = False,
) -> list[Assignment]:
    """Assignments of all rows that change something. bulk: new rows go to new, sorted file groups only. Raises
    UnderPlan.
    """
    planned = view.planned_ids()
    shares = {share.file_id: share for share in _to_homes(batch, located, config)}
    fresh = np.flatnonzero((located.group == NOWHERE) & ~batch.delete)
    if len(fresh):
        size = bytes_per_row()
        rewritten = {share.file_id for share in shares.values() if share.mode == REWRITE}
        for partition, places in by_partition(batch, fresh):
            filled = None if bulk else group_to_fill(view, partition, len(places) * size, config, planned, rewritten)
            if filled:
                room = max(1, int((config.options.target_file_bytes - base_bytes(filled)) / size))
                _fill(shares, filled, places[:room])
                places = places[room:]
            for part in in_new_groups(
                _by_key(batch, places) if bulk else places, config.options.target_file_bytes, size
            ):
                share = _Share(NEW, partition, new_file_id(token), None, part, len(part))
                shares[share.file_id] = share
    require_no_plan(shares.values(), planned)
    return [share.done(batch) for share in shares.values()]


def by_partition(batch: Batch, places: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """`places` of the batch by partition path."""
    ordered = places[np.argsort(batch.codes[places], kind="stable")]
    codes, starts = np.unique(batch.codes[ordered], return_index=True)
    for code, part in zip(codes.tolist(), np.split(ordered, starts[1:]), strict=True):
        yield batch.partitions[code], part


def require_no_plan(assignments: Iterable[_Share | Assignment], planned: set[str]) -> None:
    """Rule 6: who must rewrite a group under an open plan runs the plan first. Raises UnderPlan."""
    for assignment in assignments:
        if assignment.mode == REWRITE and assignment.file_id in planned:
            raise UnderPlan(assignment.file_id)


def _fill(shares: dict[str, _Share], group: FileGroup, places: np.ndarray) -> None:
    """New rows join the rewrite of a small group; changes of its own keys come along."""
    known = shares.get(group.file_id)
    mine = places if known is None else np.concatenate([known.places, places])
    shares[group.file_id] = _Share(REWRITE, group.partition, group.file_id, group, mine, len(places))


def _to_homes(batch: Batch, located: Located, config: TableConfig) -> list[_Share]:
    known = np.flatnonzero(located.group != NOWHERE)
    if not len(known):
        return []
    order = known[np.argsort(located.group[known], kind="stable")]
    numbers, starts = np.unique(located.group[order], return_index=True)
    found = []
    for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        group = located.groups[number]
        mode = APPEND if config.merge_on_read and not needs_base(batch, located, places, config) else REWRITE
        found.append(_Share(mode, group.partition, group.file_id, group, places, 0))
    return found


def needs_base(batch: Batch, located: Located, places: np.ndarray, config: TableConfig) -> bool:
    """Must these changes go into the base: a key that a log deletes comes back, or an ordered delete that no log can
    carry?

    An ordered delete of a key that a log deletes goes there too: in a log it would stand after the other delete and
    could undo it.
    """
    if (located.unsure[places] & ~(batch.delete[places] & batch.unconditional)).any():
        return True
    order_by = config.merge_policy.order_by
    if order_by is None or batch.unconditional or not batch.delete[places].any():
        return False
    kind = config.schema.field(order_by).type
    # An int32 of zero in a delete block would mean "unconditional" to Hudi (docs/format.md 11.3).
    return not loggable_ordering(kind) or kind == pa.int32()


def _by_key(batch: Batch, places: np.ndarray) -> np.ndarray:
    """`places` in order of record key, so that the key ranges of the groups cut from them do not overlap."""
    return places[pc.sort_indices(batch.rows[RECORD_KEY].take(pa.array(places))).to_numpy()]


def base_bytes(group: FileGroup) -> int:
    return group.base.file.size if group.base else 0


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
        if group.base and base_bytes(group) < limit and group.file_id not in planned
    ]
    free = [group for group in small if group.file_id in rewritten]
    if free:
        return min(free, key=base_bytes)
    smallest = min(small, key=base_bytes, default=None)
    if smallest and (
        base_bytes(smallest) <= max(_ALWAYS_FILL, _REWRITE_PAYS * bytes_new) or len(small) > _SMALL_GROUPS_MAX
    ):
        return smallest
    return None


def in_new_groups(places: np.ndarray, target: int, bytes_per_row: float) -> list[np.ndarray]:
    """`places` cut into as few equal parts as the target size allows; none is without a row, however large rows are."""
    if not len(places):
        return []
    parts = max(1, math.ceil(len(places) * bytes_per_row / (target * _OVERSHOOT)))
    return list(np.array_split(places, min(parts, len(places))))
