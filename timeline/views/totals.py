"""Running totals of a view, per partition and in all, kept as slots are applied: what follows a commit then costs what
the commit touched, not what the table holds.

A view that was not made by applying a slot (a checkpoint's, a part of another one) is counted when it is first asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hoodoo.timeline.views.file_group import FileGroup
from hoodoo.timeline.views.pages import Partitions

Touched = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of some file groups.

    groups: how many they are.
    base_bytes: bytes of their base files.
    log_bytes: bytes of their logs.
    bytes_behind: bytes of the base files that have logs over them.
    by_logs: number of logs, from 1 -> how many file groups have that many.
    by_size: length in bits of a base file's size -> how many base files have such a size.
    """

    groups: int = 0
    base_bytes: int = 0
    log_bytes: int = 0
    bytes_behind: int = 0
    by_logs: Mapping[int, int] = field(default_factory=dict)
    by_size: Mapping[int, int] = field(default_factory=dict)

    @property
    def bases(self) -> int:
        """How many base files there are."""
        return sum(self.by_size.values())

    @property
    def logs(self) -> int:
        """How many logs there are."""
        return sum(number * groups for number, groups in self.by_logs.items())

    @property
    def logs_max(self) -> int:
        """How many logs the file group with most logs has."""
        return max(self.by_logs, default=0)

    @property
    def behind(self) -> int:
        """How many file groups have logs."""
        return sum(self.by_logs.values())

    def below(self, size: int) -> tuple[int, int]:
        """Return bounds, least and most, of how many base files are smaller than `size` bytes."""
        least = sum(bases for bits, bases in self.by_size.items() if 1 << bits <= size)
        most = sum(bases for bits, bases in self.by_size.items() if (1 << bits) >> 1 < size)
        return least, most


class _Count:
    """Totals in the making."""

    def __init__(self, start: Totals) -> None:
        self.groups, self.base_bytes, self.log_bytes = start.groups, start.base_bytes, start.log_bytes
        self.bytes_behind = start.bytes_behind
        self.by_logs, self.by_size = Counter(start.by_logs), Counter(start.by_size)

    def add(self, group: FileGroup | None, sign: int = 1) -> None:
        """sign: -1 takes the group away."""
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

    def done(self) -> Totals:
        by_logs, by_size = ({key: n for key, n in found.items() if n} for found in (self.by_logs, self.by_size))
        return Totals(self.groups, self.base_bytes, self.log_bytes, self.bytes_behind, by_logs, by_size)


@dataclass(frozen=True, slots=True)
class Counted:
    """The totals of `partitions`, together and each."""

    partitions: Partitions
    together: Totals
    each: Mapping[str, Totals]

    def after(self, partitions: Partitions, touched: Touched) -> Counted:
        """The totals of `partitions`, which differ from these in the file groups `touched`: (partition, file id)."""
        together, each = _Count(self.together), dict[str, _Count]()
        for partition, file_id in dict.fromkeys(touched):
            one = each.setdefault(partition, _Count(self.each.get(partition, Totals())))
            for groups, sign in ((self.partitions, -1), (partitions, 1)):
                group = groups.get(partition, {}).get(file_id)
                together.add(group, sign)
                one.add(group, sign)
        totals = {**self.each, **{partition: one.done() for partition, one in each.items()}}
        gone = [partition for partition in each if partition not in partitions]
        for partition in gone:
            del totals[partition]
        return Counted(partitions, together.done(), totals)


def count(partitions: Partitions) -> Counted:
    """Count every file group of `partitions`."""
    together, each = _Count(Totals()), dict[str, Totals]()
    for partition, groups in partitions.items():
        one = _Count(Totals())
        for group in groups.values():
            one.add(group)
            together.add(group)
        each[partition] = one.done()
    return Counted(partitions, together.done(), each)
