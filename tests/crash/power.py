"""A disk that loses power: stands for the module `os` under a store, and knows what of all that was done is durable by
then.

Data is durable once its file was synced, a name once its folder was. What is not may survive or not, each by itself:
POSIX promises no more. Names of scratch files are left out, since nobody reads them; hints (markers, heartbeats)
survive all or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hoodoo.storage.store import SCRATCH

HINTS = (".hoodie/.temp/", ".hoodie/.heartbeat/", ".hoodie/.hoodoo/heartbeats/")
PENDING_MAX = 9  # names whose survival is tried out each by itself; older ones of them survive


@dataclass(eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bool = False


@dataclass(frozen=True)
class Change:
    """A name that appeared or went, or a folder that appeared (inode None, is_folder)."""

    path: str
    inode: Inode | None
    is_folder: bool = False

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


class Disk:
    def __init__(self, root: str) -> None:
        self.root = root + os.sep
        self.live: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.folders: set[str] = {""}
        self.pending: list[Change] = []
        self.open_files: dict[int, Inode] = {}
        self.open_folders: dict[int, str] = {}
        self.changed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _key(self, path: Any, dir_fd: int | None = None) -> str:
        text = os.fspath(path)
        if dir_fd is not None:
            folder = self.open_folders[dir_fd]
            return f"{folder}/{text}" if folder else text
        return text[len(self.root) :] if text.startswith(self.root) else ""

    def _note(self, change: Change) -> None:
        self.pending.append(change)
        self.changed = True

    # ---- the calls that a store makes
    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
        key = self._key(path, dir_fd)
        if flags & os.O_CREAT:
            self.live[key] = self.open_files[descriptor] = Inode()
        elif os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self.open_folders[descriptor] = key
        return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        done = os.write(descriptor, data)
        self.open_files[descriptor].data += bytes(data[:done])
        return done

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)
        if descriptor in self.open_files:
            self.open_files[descriptor].synced = True
            return
        folder = self.open_folders[descriptor]
        for change in [one for one in self.pending if one.folder == folder]:
            self.pending.remove(change)
            _apply(change, self.durable, self.folders)
        self.changed = True

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.open_files.pop(descriptor, None)
        self.open_folders.pop(descriptor, None)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)
        inode = self.live[self._key(source)]
        self.live[self._key(target)] = inode
        self._note(Change(self._key(target), inode))

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)
        inode = self.live.pop(self._key(source))
        self.live[self._key(target)] = inode
        self._note(Change(self._key(target), inode))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)
        key = self._key(path, dir_fd)
        self.live.pop(key, None)
        if not key.startswith(SCRATCH):
            self._note(Change(key, None))

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)
        self._note(Change(self._key(path), None, is_folder=True))

    # ---- what may be left
    def states(self) -> Iterator[dict[str, bytes]]:
        """Every table that a power cut now may leave, as keys and bytes."""
        hints = [one for one in self.pending if f"{one.path}/".startswith(HINTS)]
        real = [one for one in self.pending if one not in hints]
        sure, unsure = real[:-PENDING_MAX], real[-PENDING_MAX:]
        for chosen in product((False, True), repeat=len(unsure)):
            kept = [*sure, *(one for one, survives in zip(unsure, chosen, strict=True) if survives)]
            for with_hints, torn in ((False, True), (True, False)):
                yield self._left(kept + (hints if with_hints else []), torn)

    def _left(self, survivors: list[Change], torn: bool) -> dict[str, bytes]:
        names, folders = dict(self.durable), set(self.folders)
        for change in survivors:
            _apply(change, names, folders)
        return {
            path: b"" if torn and not inode.synced else bytes(inode.data)
            for path, inode in names.items()
            if all(folder in folders for folder in _above(path))
        }


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _apply(change: Change, names: dict[str, Inode], folders: set[str]) -> None:
    if change.is_folder:
        folders.add(change.path)
    elif change.inode is None:
        names.pop(change.path, None)
    else:
        names[change.path] = change.inode
