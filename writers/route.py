"""Routing and sizing: which rows go to which file group, and how. Decides; writes nothing.

Updates and deletes go where their key lives: a new base file (copy-on-write) or a log (merge-on-read). New rows go to base files
only, because Apache Hudi's index looks at nothing else. A key that a log deletes comes back by a rewrite of its base (rule 8).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log_block import loggable_ordering
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.locate import NOWHERE, Located
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.view import FileGroup, View
from hoodoo.writers.batch import Batch

NEW, REWRITE, APPEND = "new", "rewrite", "append"
_SMALL_GROUPS_MAX = 8  # small file groups of a partition beyond this are filled up whatever it costs
_REWRITE_PAYS = 8  # a small group is filled up if it is at most this many times the new bytes
_ALWAYS_FILL = 1 << 20  # ... or smaller than this


@dataclass(frozen=True)
class Assignment:
    """Rows `places` of the batch go to one file group. `inserts`: how many of them are new keys, as far as routing knows."""

    mode: str
    partition: str
    file_id: str
    group: FileGroup | None
    places: np.ndarray
    inserts: int


class UnderPlan(Exception):
    """A file group that must be rewritten is under an open compaction plan: run the plan first."""


def new_file_id() -> str:
    return f"{uuid.uuid4()}-0"


def route(batch: Batch, located: Located, view: View, config: TableConfig, bytes_per_row: Callable[[], float], bulk: bool = False) -> list[Assignment]:
    """Assignments of all rows that change something. bulk: new rows go to new, sorted file groups only. Raises UnderPlan."""
    planned = view.planned_ids()
    found = _to_homes(batch, located, config)
    homes = {assignment.file_id: i for i, assignment in enumerate(found)}
    fresh = np.flatnonzero((located.group == NOWHERE) & ~batch.delete)
    if len(fresh):
        size = bytes_per_row()
        for code in np.unique(batch.codes[fresh]).tolist():
            places = fresh[batch.codes[fresh] == code] if len(batch.partitions) > 1 else fresh
            if bulk:
                found += new_groups(batch.partitions[code], _by_key(batch, places), config.options.target_file_bytes, size)
                continue
            for extra in _place_new(batch.partitions[code], places, view, config, size, planned):
                at = homes.get(extra.file_id)
                if at is None:
                    found.append(extra)
                else:  # the rows to fill up with share the rewrite that updates need anyway
                    known = found[at]
                    found[at] = Assignment(REWRITE, known.partition, known.file_id, known.group, np.concatenate([known.places, extra.places]), known.inserts + extra.inserts)
    for assignment in found:
        if assignment.mode == REWRITE and assignment.file_id in planned:
            raise UnderPlan(assignment.file_id)
    return found


def _to_homes(batch: Batch, located: Located, config: TableConfig) -> list[Assignment]:
    known = np.flatnonzero(located.group != NOWHERE)
    if not len(known):
        return []
    order = known[np.argsort(located.group[known], kind="stable")]
    numbers, starts = np.unique(located.group[order], return_index=True)
    found = []
    for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        group = located.groups[number]
        mode = APPEND if config.merge_on_read and not _needs_base(batch, located, places, config) else REWRITE
        found.append(Assignment(mode, group.partition, group.file_id, group, places, 0))
    return found


def _needs_base(batch: Batch, located: Located, places: np.ndarray, config: TableConfig) -> bool:
    """Must these changes go into the base: a key that a log deletes comes back, or an ordered delete that no log can carry?

    An ordered delete of a key that a log deletes goes there too: in a log it would stand after the other delete and could undo it.
    """
    if (located.unsure[places] & ~(batch.delete[places] & batch.unconditional)).any():
        return True
    ordered_deletes = batch.delete[places].any() and not batch.unconditional and config.by_event_time
    if not ordered_deletes or config.order_by is None:
        return False
    kind = config.schema.field(config.order_by).type
    # An int32 of zero in a delete block would mean "unconditional" to Hudi (hudi-format 11.3).
    return not loggable_ordering(kind) or kind.bit_width == 32


def _by_key(batch: Batch, places: np.ndarray) -> np.ndarray:
    """`places` in order of record key, so that the key ranges of the groups cut from them do not overlap."""
    return places[pc.sort_indices(batch.rows[RECORD_KEY].take(pa.array(places))).to_numpy()]


def _place_new(partition: str, places: np.ndarray, view: View, config: TableConfig, bytes_per_row: float, planned: set[str]) -> list[Assignment]:
    """Fill up small file groups where that pays, then open new ones of the target size."""
    target = config.options.target_file_bytes
    found = []
    small = sorted(
        (group for group in view.partitions.get(partition, {}).values() if group.base and group.base.file.size < target * 3 // 4 and group.file_id not in planned),
        key=lambda group: group.base.file.size if group.base else 0,
    )
    bytes_new = len(places) * bytes_per_row
    if small and small[0].base:
        size = small[0].base.file.size
        room = int((target - size) / bytes_per_row)
        if room > 0 and (size <= max(_ALWAYS_FILL, _REWRITE_PAYS * bytes_new) or len(small) > _SMALL_GROUPS_MAX):
            found.append(Assignment(REWRITE, partition, small[0].file_id, small[0], places[:room], min(room, len(places))))
            places = places[room:]
    return found + new_groups(partition, places, target, bytes_per_row)


def new_groups(partition: str, places: np.ndarray, target: int, bytes_per_row: float) -> list[Assignment]:
    """`places` in as few equal new file groups as the target size allows."""
    if not len(places):
        return []
    count = max(1, math.ceil(len(places) * bytes_per_row / (target * 1.2)))
    return [Assignment(NEW, partition, new_file_id(), None, part, len(part)) for part in np.array_split(places, count)]
