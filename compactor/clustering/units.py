"""Units of files that clustering rewrites together.

A unit replaces some file groups of one partition with one or more new ones. Units are small, so that each takes only
seconds. No file is rewritten twice for the same reason: a packed file is no longer small, and a sorted file is marked
as sorted. All functions are pure functions of a view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View

_UNIT_FILES = 4  # a sorting unit reads at most this many times the target file size
_LOOSE_SHARE = 0.1  # a partition is sorted if more than this share of its bytes is unsorted
_OVERSHOOT = 1.2  # a file may exceed the target size by this factor before it is split
_FEW = 4  # at least this many small groups are packed even if they do not fill a file


@dataclass(frozen=True)
class ClusteringUnit:
    """Set of files that clustering rewrites together.

    The file groups are in one partition, and one transaction rewrites them. The rows are sorted by the columns `by`, if
    any, in the order `order`.
    """

    partition: str
    groups: tuple[FileGroup, ...]
    outputs: int = 1
    by: tuple[str, ...] = ()
    order: str = ""

    @property
    def mark(self) -> str:
        return mark(self.by, self.order) if self.by else ""

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(group.file_id for group in self.groups)


def mark(by: Sequence[str], order: str) -> str:
    return f"{order}:{','.join(by)}"


def _clusterable_groups(view: View, partition: str) -> list[FileGroup]:
    # A file group in an open compaction plan only accepts logs (protocol rule 6). A file group without a base file
    # comes from another engine.
    planned = view.planned_ids()
    return [group for group in view.groups([partition]) if group.base and group.file_id not in planned]


def plan_packing(view: View, target: int, partitions: Iterable[str] | None = None) -> list[ClusteringUnit]:
    units = []
    for partition in sorted(view.partitions if partitions is None else partitions):
        if view.totals_of(partition).estimate_small_files(-(-target // 2))[1] < 2:
            continue  # skip partitions with fewer than two small files
        small = [group for group in _clusterable_groups(view, partition) if group.base_bytes * 2 < target]
        units += [ClusteringUnit(partition, tuple(bin_)) for bin_ in _divide_into_bins(small, target)]
    return units


def _divide_into_bins(small: list[FileGroup], target: int) -> list[list[FileGroup]]:
    # File groups fill bins in order of age, because rows that were written together are often read together. The
    # remaining file groups are packed by size tiers. Each bin becomes one file.
    bins: list[list[FileGroup]] = []
    current: list[FileGroup] = []
    total = 0  # bytes of `current`; a running total is fast even with many small files
    for group in sorted(small, key=lambda group: (group.base.seq if group.base else 0, group.file_id)):
        if current and total + group.base_bytes > target:
            bins.append(current)  # more than half full, because the next group is below half the target
            current, total = [], 0
        current.append(group)
        total += group.base_bytes
    if len(current) > 1 and total * 2 >= target:
        bins.append(current)
    elif tier := _choose_smallest_groups(current):
        bins.append(tier)
    return bins


def _total_base_bytes(groups: Iterable[FileGroup]) -> int:
    return sum(group.base_bytes for group in groups)


def _choose_smallest_groups(groups: list[FileGroup]) -> list[FileGroup]:
    """Choose the smallest files to pack.

    Each file group ends up in a file of at least twice its size. The result is the longest run of the smallest file
    groups whose last one is at most as large as the others together. Each byte is therefore packed only a logarithmic
    number of times. Returns an empty list if fewer than four file groups qualify.
    """
    ordered = sorted(groups, key=lambda group: (group.base_bytes, group.file_id))
    smaller_bytes, count = 0, 0
    for number, group in enumerate(ordered):
        if number + 1 >= _FEW and group.base_bytes <= smaller_bytes:
            count = number + 1
        smaller_bytes += group.base_bytes
    return ordered[:count]


def plan_sorting(
    view: View,
    config: TableConfig,
    by: Sequence[str],
    order: str,
    partitions: Iterable[str] | None = None,
) -> list[ClusteringUnit]:
    """Plan the sorting of partitions.

    Only partitions with many unsorted bytes are sorted. A partition that fits into one unit is sorted as a whole. In a
    larger partition, only unsorted and small files are sorted, in units of files with adjacent values.
    """
    target = config.options.target_file_bytes
    sort_mark, max_bytes = mark(by, order), _UNIT_FILES * target
    units = []
    for partition in sorted(view.partitions if partitions is None else partitions):
        groups = [group for group in _clusterable_groups(view, partition) if group.base and group.base.file.rows]
        unsorted_groups = [group for group in groups if group.base and config.order_of(group.base.file) != sort_mark]
        if _total_base_bytes(unsorted_groups) <= _LOOSE_SHARE * _total_base_bytes(groups):
            continue
        if _total_base_bytes(groups) > max_bytes:
            unsorted = {group.file_id for group in unsorted_groups}
            groups = [group for group in groups if group.file_id in unsorted or group.base_bytes * 2 < target]
        for part in _divide_by_column_minimum(groups, config, by[0], max_bytes):
            outputs = max(1, math.ceil(_total_base_bytes(part) / (target * _OVERSHOOT)))
            units.append(ClusteringUnit(partition, tuple(part), outputs, tuple(by), order))
    return units


def _divide_by_column_minimum(
    groups: list[FileGroup], config: TableConfig, column: str, most: int
) -> list[list[FileGroup]]:
    parts: list[list[FileGroup]] = []
    total = 0
    for group in sorted(groups, key=lambda group: _minimum_sort_key(group, config, column)):
        if not parts or total + group.base_bytes > most:
            parts.append([])
            total = 0
        parts[-1].append(group)
        total += group.base_bytes
    return parts


def _minimum_sort_key(group: FileGroup, config: TableConfig, column: str) -> tuple[bool, Any, str]:
    # File groups with an unknown minimum come last.
    file = group.base.file if group.base else None
    bounds = config.resolution(file).convert_statistics(file.stats, file.rows).get(column) if file else None
    low = bounds[0] if bounds else None
    if isinstance(low, str) and low.lstrip("-").replace(".", "", 1).isdigit():
        low = None  # decimals are stored as strings with a different order, so sort by file id
    return low is None, 0 if low is None else low, group.file_id
