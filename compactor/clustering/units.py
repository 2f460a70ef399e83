"""Which file groups clustering rewrites, and into how many: pure functions of a view.

A unit is what one transaction does: some groups of one partition become one or several new ones. Units are small, so
that each takes seconds and is in nobody's way for long. Nothing is rewritten twice for the same reason: a packed file
is no longer small, a sorted one says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View

_UNIT_FILES = 4  # a sorting unit reads at most this many times the target file size
_LOOSE_SHARE = 0.1  # a partition is sorted when more than this share of its bytes is not
_OVERSHOOT = 1.2  # a file may be this much larger than the target before it is cut in two
_FEW = 4  # so many small groups are packed though they make no full file yet


@dataclass(frozen=True)
class Unit:
    """`groups` of one partition become `outputs` new ones; sorted by `by` in `order` if columns are given."""

    partition: str
    groups: tuple[FileGroup, ...]
    outputs: int = 1
    by: tuple[str, ...] = ()
    order: str = ""

    @property
    def mark(self) -> str:
        """What the new base files say of their order."""
        return mark(self.by, self.order) if self.by else ""

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(group.file_id for group in self.groups)


def mark(by: Sequence[str], order: str) -> str:
    """The name of an order, as slots keep it: `zorder:a,b`."""
    return f"{order}:{','.join(by)}"


def _free(view: View, partition: str) -> list[FileGroup]:
    """Return the groups that may be clustered.

    A group under an open compaction plan takes logs only (protocol rule 6). A group without a base is another engine's.
    """
    planned = view.planned_ids()
    return [group for group in view.groups([partition]) if group.base and group.file_id not in planned]


def packing(view: View, target: int, partitions: Iterable[str] | None = None) -> list[Unit]:
    """Small groups (less than half the target) into files of at most the target size."""
    found = []
    for partition in sorted(view.partitions if partitions is None else partitions):
        if view.totals_of(partition).below(-(-target // 2))[1] < 2:
            continue  # a commit that touched other partitions costs nothing here
        small = [group for group in _free(view, partition) if group.base_bytes * 2 < target]
        found += [Unit(partition, tuple(bin_)) for bin_ in _bins(small, target)]
    return found


def _bins(small: list[FileGroup], target: int) -> list[list[FileGroup]]:
    """Full bins in order of age, since what was written together is read together; what is left
    over by tiers of size.
    """
    bins: list[list[FileGroup]] = []
    current: list[FileGroup] = []
    total = 0  # bytes of `current`, kept as it grows: a writer waits for this, and small files are many
    for group in sorted(small, key=lambda group: (group.base.seq if group.base else 0, group.file_id)):
        if current and total + group.base_bytes > target:
            bins.append(current)  # fuller than half: the next one is smaller than the other half
            current, total = [], 0
        current.append(group)
        total += group.base_bytes
    if len(current) > 1 and total * 2 >= target:
        bins.append(current)
    elif tier := _tier(current):
        bins.append(tier)
    return bins


def _sum(groups: Iterable[FileGroup]) -> int:
    return sum(group.base_bytes for group in groups)


def _tier(left: list[FileGroup]) -> list[FileGroup]:
    """The smallest groups, if they are some, up to where one is larger than all before it together.

    So whatever is rewritten ends in a file of at least twice its size, and a byte is packed a logarithmic number of
    times.
    """
    ordered = sorted(left, key=lambda group: (group.base_bytes, group.file_id))
    before, most = 0, 0
    for number, group in enumerate(ordered):
        if number + 1 >= _FEW and group.base_bytes <= before:
            most = number + 1
        before += group.base_bytes
    return ordered[:most]


def sorting(
    view: View,
    config: TableConfig,
    by: Sequence[str],
    order: str,
    partitions: Iterable[str] | None = None,
) -> list[Unit]:
    """The groups of partitions of which more than a tenth of the bytes is not sorted so yet.

    A partition that fits a unit is sorted as a whole; of a larger one only what is not sorted, and small files, in
    units of neighbours.
    """
    target = config.options.target_file_bytes
    wanted, most = mark(by, order), _UNIT_FILES * target
    found = []
    for partition in sorted(view.partitions if partitions is None else partitions):
        groups = [group for group in _free(view, partition) if group.base and group.base.file.rows]
        loose = [group for group in groups if group.base and config.order_of(group.base.file) != wanted]
        if _sum(loose) <= _LOOSE_SHARE * _sum(groups):
            continue
        if _sum(groups) > most:
            unsorted = {group.file_id for group in loose}
            groups = [group for group in groups if group.file_id in unsorted or group.base_bytes * 2 < target]
        for part in _neighbours(groups, config, by[0], most):
            outputs = max(1, math.ceil(_sum(part) / (target * _OVERSHOOT)))
            found.append(Unit(partition, tuple(part), outputs, tuple(by), order))
    return found


def _neighbours(groups: list[FileGroup], config: TableConfig, column: str, most: int) -> list[list[FileGroup]]:
    """`groups` cut into parts of at most `most` bytes (or of one group), those with near values of
    `column` together.
    """
    parts: list[list[FileGroup]] = []
    total = 0
    for group in sorted(groups, key=lambda group: _least(group, config, column)):
        if not parts or total + group.base_bytes > most:
            parts.append([])
            total = 0
        parts[-1].append(group)
        total += group.base_bytes
    return parts


def _least(group: FileGroup, config: TableConfig, column: str) -> tuple[bool, Any, str]:
    """Bounds of one column have one type in JSON too; those that are not known come last."""
    file = group.base.file if group.base else None
    bounds = config.resolution(file).stats(file.stats, file.rows).get(column) if file else None
    low = bounds[0] if bounds else None
    if isinstance(low, str) and low.lstrip("-").replace(".", "", 1).isdigit():
        low = None  # decimals are texts, whose order is another: then the file id decides
    return low is None, 0 if low is None else low, group.file_id
