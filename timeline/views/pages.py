"""Pages of a checkpoint file, loaded on demand.

The checkpoint of a table with many files has a directory and pages, each with the files of some adjacent partitions. A
view holds the directory, and the partitions that later slots changed. Unused pages are never decoded.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, overload

from hoodoo.errors import CorruptTable
from hoodoo.timeline.views.file_group import FileGroup, ReplacedFile

Groups = Mapping[str, FileGroup]
"""File groups of one partition by file id."""
_KEPT = 16  # number of decoded pages in the cache


class Loader(Protocol):
    def __call__(self, number: int) -> Mapping[str, Groups]: ...

    def stored(self, number: int) -> bytes: ...


class CheckpointPages:
    """Pages of a checkpoint file, loaded on demand.

    Attributes:
        partitions: The partition paths, ascending.
        numbers: The page number of each partition.
        digests: The digest of each page.
        heal: Returns the file groups of a partition as of a slot from other files, if a page is missing or damaged:
            (partition, slot) -> file groups.
    """

    def __init__(
        self,
        partitions: Sequence[str],
        numbers: Sequence[int],
        digests: Sequence[str],
        load: Loader,
    ) -> None:
        self.partitions, self.numbers, self.digests = partitions, numbers, digests
        self.heal: Callable[[str, int], Groups] | None = None
        self._load = load
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Mapping[str, Groups]] = OrderedDict()

    def number_of(self, partition: str) -> int:
        index = bisect_left(self.partitions, partition)
        exists = index < len(self.partitions) and self.partitions[index] == partition
        return self.numbers[index] if exists else -1

    def digest_of(self, partition: str) -> str:
        number = self.number_of(partition)
        return "" if number < 0 else self.digests[number]

    def stored(self, number: int) -> bytes:
        return self._load.stored(number)

    def groups(self, partition: str, seq: int) -> Groups:
        """Load the files of a partition.

        The partition has not changed since the checkpoint.

        Raises:
            KeyError: No page contains the partition.
            CorruptTable: The page is damaged.
        """
        number = self.number_of(partition)
        if number < 0:
            raise KeyError(partition)
        with self._lock:
            if number in self._known:
                self._known.move_to_end(number)
                return self._known[number][partition]
        try:
            page = self._load(number)
        except CorruptTable:
            if self.heal is None:
                raise
            return self.heal(partition, seq)
        with self._lock:
            self._known[number] = page
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return page[partition]


class PagedPartitions(Mapping[str, Groups]):
    """Files by partition, in pages loaded on demand.

    `changed` contains the partitions that changed since the checkpoint, with None for a removed partition.
    """

    def __init__(self, pages: CheckpointPages, changed: Mapping[str, Groups | None], seq: int) -> None:
        self.pages, self.changed, self.seq = pages, changed, seq

    def __getitem__(self, partition: str) -> Groups:
        if partition in self.changed:
            groups = self.changed[partition]
            if groups is None:
                raise KeyError(partition)
            return groups
        return self.pages.groups(partition, self.seq)

    def __contains__(self, partition: object) -> bool:
        if partition in self.changed:
            return self.changed[str(partition)] is not None
        return isinstance(partition, str) and self.pages.number_of(partition) >= 0

    def __iter__(self) -> Iterator[str]:
        for partition in self.pages.partitions:
            if self.changed.get(partition, self) is not None:
                yield partition
        for partition, groups in self.changed.items():
            if groups is not None and self.pages.number_of(partition) < 0:
                yield partition

    def __len__(self) -> int:
        added = sum(1 for name, groups in self.changed.items() if groups and self.pages.number_of(name) < 0)
        gone = sum(1 for name, groups in self.changed.items() if not groups and self.pages.number_of(name) >= 0)
        return len(self.pages.partitions) + added - gone


Partitions = Mapping[str, Groups]


def with_changes(partitions: Partitions, changed: Mapping[str, Groups], seq: int) -> Partitions:
    if isinstance(partitions, PagedPartitions):
        now = {**partitions.changed, **{name: groups or None for name, groups in changed.items()}}
        return PagedPartitions(partitions.pages, now, seq)
    result = dict(partitions)
    for name, groups in changed.items():
        if groups:
            result[name] = groups
        else:
            result.pop(name, None)
    return result


def find_differing_partitions(before: Partitions, after: Partitions) -> Iterator[str]:
    if not isinstance(before, PagedPartitions) or not isinstance(after, PagedPartitions):
        names = sorted({*before, *after})
        yield from (name for name in names if before.get(name) is not after.get(name))
        return
    names = sorted({*before.changed, *after.changed})
    if before.pages is not after.pages:
        names = sorted({*before, *after})
    for name in names:
        old, new = before.changed.get(name, before), after.changed.get(name, after)
        if old is before and new is after:
            if before.pages.digest_of(name) != after.pages.digest_of(name):
                yield name
        elif old is not new:
            yield name


class PagedFiles(Sequence[ReplacedFile]):
    """Replaced data files, in pages loaded on demand.

    They stay compressed to save memory. `pages` contains the number of files in each page, and `load` returns the files
    of a page. `later` contains files that were superseded since the checkpoint.
    """

    def __init__(
        self, pages: Sequence[int], load: Callable[[int], Sequence[ReplacedFile]], later: tuple[ReplacedFile, ...] = ()
    ) -> None:
        self.pages, self.load, self.later = pages, load, later

    def __add__(self, more: tuple[ReplacedFile, ...]) -> PagedFiles:
        return PagedFiles(self.pages, self.load, self.later + more)

    def __iter__(self) -> Iterator[ReplacedFile]:
        for number in range(len(self.pages)):
            yield from self.load(number)
        yield from self.later

    def __len__(self) -> int:
        return sum(self.pages) + len(self.later)

    @overload
    def __getitem__(self, index: int) -> ReplacedFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReplacedFile]: ...
    def __getitem__(self, index: int | slice) -> ReplacedFile | Sequence[ReplacedFile]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


__all__ = [
    "PagedFiles",
    "PagedPartitions",
    "CheckpointPages",
    "Partitions",
    "find_differing_partitions",
    "with_changes",
]
