"""Groups of a base file and its log files.

A `FileGroup` contains the current files. A `ReplacedFile` file is only needed by earlier snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hoodoo.timeline.slots.slot import DataFile


class AddedFile(NamedTuple):
    """Data file that a commit added, with the commit's number."""

    seq: int
    file: DataFile


@dataclass(frozen=True, slots=True)
class FileGroup:
    """File group, which is a base file and its log files.

    The log files are in commit order. Only file groups of other engines may have no base file.
    """

    partition: str
    file_id: str
    base: AddedFile | None
    logs: tuple[AddedFile, ...] = ()

    @property
    def base_path(self) -> str:
        return self.base.file.path if self.base else ""

    @property
    def base_bytes(self) -> int:
        return self.base.file.size if self.base else 0

    def files(self) -> Iterator[AddedFile]:
        if self.base:
            yield self.base
        yield from self.logs


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """Replaced data file that only earlier snapshots need.

    Cleaning deletes the file when these snapshots have expired.
    """

    added: int
    dropped: int
    partition: str
    path: str
    size: int
    index: str

    def is_needed_at(self, seq: int) -> bool:
        return self.added <= seq < self.dropped
