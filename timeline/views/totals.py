"""Totals of the number and size of a table's files.

Totals are updated with each slot, so that the cost depends on the size of the commit, not of the table. A view that was
not created by applying a slot, such as that of a checkpoint, is counted on first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hoodoo.timeline.views.file_group import FileGroup
from hoodoo.timeline.views.pages import Partitions

Touched = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Total number and size of files.

    Attributes:
        groups: The number of file groups.
        base_bytes: Bytes of their base files.
        log_bytes: Bytes of their log files.
        bytes_behind: Bytes of the base files in file groups with log files.
        by_logs: Number of file groups by their number of logs, from 1.
        by_size: Number of base files by the bit length of their size.
    """

    groups: int = 0
    base_bytes: int = 0
    log_bytes: int = 0
    bytes_behind: int = 0
    by_logs: Mapping[int, int] = field(default_factory=dict)
    by_size: Mapping[int, int] = field(default_factory=dict)

    @property
    def bases(self) -> int:
        return sum(self.by_size.values())

    @property
    def logs(self) -> int:
        return sum(number * groups for number, groups in self.by_logs.items())

    @property
    def logs_max(self) -> int:
        return max(self.by_logs, default=0)

    @property
    def behind(self) -> int:
        return sum(self.by_logs.values())

    def estimate_small_files(self, size: int) -> tuple[int, int]:
        """Estimate the number of small files."""
        least = sum(bases for bits, bases in self.by_size.items() if 1 << bits <= size)
        greatest = sum(bases for bits, bases in self.by_size.items() if (1 << bits) >> 1 < size)
        return least, greatest


class _MutableTotals:
    def __init__(self, start: FileTotals) -> None:
        self.groups, self.base_bytes, self.log_bytes = start.groups, start.base_bytes, start.log_bytes
        self.bytes_behind = start.bytes_behind
        self.by_logs, self.by_size = Counter(start.by_logs), Counter(start.by_size)

    def add(self, group: FileGroup | None, sign: int = 1) -> None:
        if group is None:
            return
        size = group.base_bytes
        self.groups += sign
        self.base_bytes += sign * size
        if group.base:
            self.by_size[size.bit_length()] += sign
        if group.logs:
            self.log_bytes += sign * sum(log.file.size for log in group.logs)
            self.bytes_behind += sign * size
            self.by_logs[len(group.logs)] += sign

    def done(self) -> FileTotals:
        by_logs, by_size = ({key: n for key, n in counter.items() if n} for counter in (self.by_logs, self.by_size))
        return FileTotals(self.groups, self.base_bytes, self.log_bytes, self.bytes_behind, by_logs, by_size)


@dataclass(frozen=True, slots=True)
class CountedFiles:
    """Files of a table, and their counts and sizes."""

    partitions: Partitions
    together: FileTotals
    each: Mapping[str, FileTotals]

    def after(self, partitions: Partitions, touched: Touched) -> CountedFiles:
        """Update the totals after a change.

        Args:
            partitions: The file groups after the change.
            touched: (partition, file id) of the changed file groups.
        """
        together, each = _MutableTotals(self.together), dict[str, _MutableTotals]()
        for partition, file_id in dict.fromkeys(touched):
            counters = each.setdefault(partition, _MutableTotals(self.each.get(partition, FileTotals())))
            for groups, sign in ((self.partitions, -1), (partitions, 1)):
                group = groups.get(partition, {}).get(file_id)
                together.add(group, sign)
                counters.add(group, sign)
        totals = {**self.each, **{partition: counters.done() for partition, counters in each.items()}}
        gone = [partition for partition in each if partition not in partitions]
        for partition in gone:
            del totals[partition]
        return CountedFiles(partitions, together.done(), totals)


def count(partitions: Partitions) -> CountedFiles:
    together, each = _MutableTotals(FileTotals()), dict[str, FileTotals]()
    for partition, groups in partitions.items():
        counters = _MutableTotals(FileTotals())
        for group in groups.values():
            counters.add(group)
            together.add(group)
        each[partition] = counters.done()
    return CountedFiles(partitions, together.done(), each)
