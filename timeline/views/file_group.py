"""File groups as of a slot. A `FileGroup` has the files that hold the newest versions of the rows of some keys. A
`Superseded` file held older versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hoodoo.timeline.slots.slot import DataFile


class AddedFile(NamedTuple):
    """A file and the slot `seq` that added it to the table."""

    seq: int
    file: DataFile


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Versions of the rows of some keys: a base file (none in foreign log-only groups) and the logs over it, in slot
    order.
    """

    partition: str
    file_id: str
    base: AddedFile | None
    logs: tuple[AddedFile, ...] = ()

    @property
    def base_path(self) -> str:
        """Path of the base file, '' if there is none."""
        return self.base.file.path if self.base else ""

    @property
    def base_bytes(self) -> int:
        """Size of the base file, 0 if there is none."""
        return self.base.file.size if self.base else 0

    def files(self) -> Iterator[AddedFile]:
        """Yield the base file and the logs."""
        if self.base:
            yield self.base
        yield from self.logs


@dataclass(frozen=True, slots=True)
class Superseded:
    """A file that snapshots from `dropped` on do not need; those from `added` to before `dropped` do."""

    added: int
    dropped: int
    partition: str
    path: str
    size: int
    index: str

    def in_snapshot(self, seq: int) -> bool:
        """Tell whether the snapshot at slot `seq` needs the file."""
        return self.added <= seq < self.dropped
