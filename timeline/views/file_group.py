"""File groups as of a slot. A `FileGroup` contains the current files for some keys.

A `Superseded` file contains older versions of rows.
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
    """The versions of the rows of some keys: a base file and its logs, in slot order.

    Only file groups of other engines may have no base file.
    """

    partition: str
    file_id: str
    base: AddedFile | None
    logs: tuple[AddedFile, ...] = ()

    @property
    def base_path(self) -> str:
        """Path of the base file, or '' without one."""
        return self.base.file.path if self.base else ""

    @property
    def base_bytes(self) -> int:
        """Size of the base file in bytes, or 0 if there is none."""
        return self.base.file.size if self.base else 0

    def files(self) -> Iterator[AddedFile]:
        """Yield the base file and the logs."""
        if self.base:
            yield self.base
        yield from self.logs


@dataclass(frozen=True, slots=True)
class Superseded:
    """A file that is needed by the snapshots from slot `added` to before slot `dropped`.

    Later snapshots do not need it.
    """

    added: int
    dropped: int
    partition: str
    path: str
    size: int
    index: str

    def in_snapshot(self, seq: int) -> bool:
        """Return whether the snapshot at slot `seq` needs the file."""
        return self.added <= seq < self.dropped
