"""Interface of a store, which contains the bytes of a table: put-if-absent, get, list, delete.

A store only handles keys and bytes. All storage faults occur behind this interface. Keys are relative to the store's
root, with `/` between segments.

A request has one of three outcomes: success; refusal (FileExistsError, FileNotFoundError, or one of REFUSALS), which
changed nothing; or StoreUnavailable. For a put, StoreUnavailable means *unknown*: the bytes may appear now, later or
never.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import xxhash

from hoodoo.errors import BucketNotFound, CredentialsError, StoreDenied, StoreFull, StoreUnavailable
from hoodoo.storage.spool import IN_MEMORY, Spool

_ATTEMPTS = 5
_PIECE = 16 << 20  # bytes per request of a large download
SCRATCH = ".hoodie/.hoodoo/tmp"
"""Folder for incomplete files, relative to a local root. Readers never list it."""


REFUSALS = (StoreFull, StoreDenied, BucketNotFound, CredentialsError)
"""Errors of a store after which the request certainly changed nothing."""


BytesLike: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


def digest(data: BytesLike) -> str:
    """Return XXH3-128 of `data` (any buffer) as 32 hex digits. It detects damage, but not attacks."""
    return xxhash.xxh3_128_hexdigest(data)


class Store(ABC):
    """Interface of a folder or a bucket prefix."""

    uri: str
    lists_by_prefix: bool = False
    """True if a listing after a given key costs one request, regardless of the number of earlier keys."""
    travels_once = True  # the driver sends it to its tasks once (engine/task_pickling)
    changes_unseen: bool = False
    """True for a server, which may be replaced by another version or a proxy while a table exists."""

    @property
    def identity(self) -> str:
        """A string that is equal for two stores of one location on one server."""
        return self.uri

    @property
    def medium(self) -> str:
        """The file system on which the store is, or '' if it is unknown or may change."""
        return ""

    @abstractmethod
    def put_if_absent(self, key: str, data: BytesLike, durable: bool = True) -> str | None:
        """Create `key` atomically. Returns its version if it is known without a request.

        Raises FileExistsError if the key exists, and StoreUnavailable if the outcome is unknown. With durable=False, a
        power failure may remove the file; for hints only.
        """

    @abstractmethod
    def put(self, key: str, data: BytesLike) -> None:
        """Create or replace `key` atomically."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return all bytes of `key`. Raises FileNotFoundError."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes of `key` from `start`, or fewer at its end."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Return the number of bytes in `key`. Raises FileNotFoundError."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, bytes) of every key that starts with `prefix` and sorts after `after`, in key order."""

    def above(self) -> Iterator[Store]:
        """Yield the stores of the parent folders, nearest first."""
        return iter(())

    def beside(self, suffix: str) -> Store | None:
        """Return the store whose name is the name of this one followed by `suffix`, or None without one."""
        return None

    def version(self, key: str) -> str:
        """Return a version that changes whenever `key` is written, or '' if the key does not exist."""
        try:
            return digest(self.get(key))
        except FileNotFoundError:
            return ""

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        """Yield (key, version) of the keys that `list` yields."""
        for key, _ in self.list(prefix, after):
            if version := self.version(key):
                yield key, version

    def names(self, folder: str, after: str = "") -> Sequence[str]:
        """Return the names directly in `folder` (ends in /) that sort after `after`, in order. Cheaper than `list`.

        Names of subfolders may be included.
        """
        cut = len(folder)
        return [key[cut:] for key, _ in self.list(folder, folder + after if after else "") if "/" not in key[cut:]]

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete `key`. A missing key is not an error."""

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """Open `key` for random access by Arrow. Raises FileNotFoundError."""

    def mapped(self, key: str, in_memory: int = IN_MEMORY) -> pa.Buffer:
        """Return all bytes of `key`. More than `in_memory` bytes are not held in memory. Raises FileNotFoundError."""
        spool, at, total = Spool(in_memory), 0, self.size(key)
        while at < total:
            piece = self.get_range(key, at, min(_PIECE, total - at))
            if not piece:
                break  # the file became shorter, which its digest check will detect
            spool.write(piece)
            at += len(piece)
        return spool.buffer()

    @abstractmethod
    def url(self, key: str) -> str:
        """Return the URL of `key` for other programs such as Spark."""

    @abstractmethod
    def modified_ms(self, key: str) -> int | None:
        """Return the modification time of `key` in ms since 1970, or None if the key is missing.

        The store's clock is used.
        """

    def settle(self, key: str) -> None:
        """Ensure that the existing `key` is durable. Raises StoreUnavailable."""
        return

    def require_private(self) -> None:
        """Raise StoreRefused if strangers may write the table. The policy of a bucket is not checked."""
        return

    def clock_ms(self) -> int | None:
        """Return the store's time in ms since 1970, or None if it lacks a clock or has not answered yet."""
        return None

    def pause(self, seconds: float) -> None:
        """Wait before a retry. A simulated store advances its own time instead."""
        time.sleep(seconds)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True

    def create(self, key: str, data: BytesLike, durable: bool = True) -> None:
        """Create `key` with put_if_absent, and retry while the outcome is unknown.

        FileExistsError may therefore mean that an earlier attempt of this call succeeded. Raises StoreUnavailable after
        several unknown outcomes.
        """
        for attempt in range(_ATTEMPTS):
            try:
                self.put_if_absent(key, data, durable)
                return
            except StoreUnavailable:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self.pause(0.02 * 2**attempt)

    def write_once(self, key: str, data: BytesLike, durable: bool = True) -> None:
        """Create `key` for content that does not depend on the writer.

        Succeeds if equal bytes exist. Raises FileExistsError if other bytes exist.
        """
        try:
            self.create(key, data, durable)
        except FileExistsError:
            if self.get(key) != bytes(data):
                raise
