"""Stores that break one promise each, as servers, proxies and file systems in the world do. None may ever carry a
table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from hoodoo.storage.local import LocalStore


class Overwrites(LocalStore):
    """Ignores If-None-Match: answers 'created' to a second put-if-absent and overwrites, as three of seven S3 servers
    tried did.
    """

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        self.put(key, data)


class KeepsQuietly(LocalStore):
    """Keeps the first bytes but says that the second put-if-absent worked."""

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        if not self.exists(key):
            super().put_if_absent(key, data, durable)


class RefusesAndOverwrites(LocalStore):
    """Says that the key is there, and overwrites it all the same."""

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        there = self.exists(key)
        self.put(key, data)
        if there:
            raise FileExistsError(key)


class ChecksThenPuts(LocalStore):
    """Looks and puts in two steps: two writers that come at once both win, as with one S3 mock."""

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        if self.exists(key):
            raise FileExistsError(key)
        time.sleep(0.001)  # two steps of a server take their time, wherever the test runs
        self.put(key, data)


class RemembersMisses(LocalStore):
    """A key that was asked for before it came stays absent for this reader, as behind a proxy that caches 404."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        super().__init__(uri)
        self._missed: set[str] = set()

    def get(self, key: str) -> bytes:
        if key in self._missed:
            raise FileNotFoundError(key)
        try:
            return super().get(key)
        except FileNotFoundError:
            self._missed.add(key)
            raise


class ReadsOld(LocalStore):
    """A replaced key still reads as it was for the next read, as from a replica that lags."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        super().__init__(uri)
        self._old: dict[str, bytes] = {}

    def put(self, key: str, data: Any) -> None:
        if self.exists(key):
            self._old[key] = super().get(key)
        super().put(key, data)

    def get(self, key: str) -> bytes:
        return self._old.pop(key) if key in self._old else super().get(key)


class ListsLate(LocalStore):
    """A listing is as of the one before."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        super().__init__(uri)
        self._found: list[tuple[str, int]] = []

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        found, self._found = self._found, [*super().list("")]
        return iter([entry for entry in found if entry[0].startswith(prefix) and entry[0] > after])


class ListsNothingNew(LocalStore):
    """A listing never shows what was created since the store was opened."""

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        return iter(())


class ListsUnordered(LocalStore):
    """A listing in the order of the folder, as of one S3 server."""

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        return iter([*super().list(prefix, after)][::-1])


class IgnoresStartAfter(LocalStore):
    """A listing begins at the beginning whatever was asked."""

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        return super().list(prefix)


class IgnoresRanges(LocalStore):
    """Sends the whole object for a part of it, with 200 instead of 206."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return super().get_range(key, 0, -1)


class IgnoresRangesForArrow(LocalStore):
    def open_input(self, key: str) -> pa.NativeFile:
        return _FromTheStart(super().get(key))


class _FromTheStart(pa.BufferReader):
    def read_at(self, nbytes: int, offset: int) -> bytes:
        return super().read_at(nbytes, 0)


class KeepsDeleted(LocalStore):
    """Answers 204 to a delete and keeps the object, as a bucket under a retention lock does."""

    def delete(self, key: str) -> None:
        pass


class ListsDeleted(LocalStore):
    """A deleted key stays in listings."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        super().__init__(uri)
        self._deleted: list[tuple[str, int]] = []

    def delete(self, key: str) -> None:
        if self.exists(key):
            self._deleted.append((key, self.size(key)))
        super().delete(key)

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        return iter(
            sorted(
                [
                    *super().list(prefix, after),
                    *(entry for entry in self._deleted if entry[0].startswith(prefix) and entry[0] > after),
                ]
            )
        )


class TearsNew(LocalStore):
    """A new key appears before it is complete: open with O_EXCL, then write."""

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        path = self._path(key)
        self._create_folder(os.path.dirname(path))
        _write_in_place(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), data)


class TearsOld(LocalStore):
    """A key is replaced in place, piece by piece."""

    def put(self, key: str, data: Any) -> None:
        path = self._path(key)
        self._create_folder(os.path.dirname(path))
        _write_in_place(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666), data)


def _write_in_place(descriptor: int, data: Any) -> None:
    try:
        view = memoryview(data).cast("B")
        step = max(1, len(view) // 16)
        for start in range(0, len(view), step):
            os.write(descriptor, view[start : start + step])
            time.sleep(0.005)  # slow enough for a reader in between, on a busy machine too
    finally:
        os.close(descriptor)


class LosesWrites(LocalStore):
    """Says yes and stores nothing."""

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        pass


ALL: tuple[type[LocalStore], ...] = (
    Overwrites,
    KeepsQuietly,
    RefusesAndOverwrites,
    ChecksThenPuts,
    RemembersMisses,
    ReadsOld,
    ListsLate,
    ListsNothingNew,
    ListsUnordered,
    IgnoresStartAfter,
    IgnoresRanges,
    IgnoresRangesForArrow,
    KeepsDeleted,
    ListsDeleted,
    TearsNew,
    TearsOld,
    LosesWrites,
)
