"""The interface of a store, which holds the bytes of a table: put-if-absent, get, list, delete.

This is the only seam where faults enter. A store knows keys and bytes; it refuses to know tables.
Keys are relative to the store's root, with `/` between segments.
Outcomes have three kinds: done; refused (FileExistsError, FileNotFoundError, one of REFUSALS: nothing changed);
and StoreUnavailable, which for a put means *unknown*: the bytes may be there now, later or never.
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
_PIECE = 16 << 20  # bytes of one request of a large download
SCRATCH = ".hoodie/.hoodoo/tmp"
"""Folder below a local root for half-written files; never listed by a reader."""


REFUSALS = (StoreFull, StoreDenied, BucketNotFound, CredentialsError)
"""Errors of a store that say for certain that the request changed nothing."""


BytesLike: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


def digest(data: BytesLike) -> str:
    """XXH3-128 of `data` (any buffer) as 32 hex digits: guards against damage, not against an attacker."""
    return xxhash.xxh3_128_hexdigest(data)


class Store(ABC):
    """A folder or a bucket prefix."""

    uri: str
    lists_by_prefix: bool = False
    """True where listing after a given key costs one request however much history lies before it."""
    travels_once = True  # between a driver and its tasks (engine/parcels)
    changes_unseen: bool = False
    """True for a server, which another version or a proxy may replace while a table lives."""

    @property
    def identity(self) -> str:
        """A text that is equal for two stores of one location on one server."""
        return self.uri

    @property
    def medium(self) -> str:
        """The file system on which the store is, or '' if it is unknown or may change."""
        return ""

    @abstractmethod
    def put_if_absent(self, key: str, data: BytesLike, durable: bool = True) -> str | None:
        """Create `key` in one step; its version where that is known without asking. Raises FileExistsError if it is
        there, StoreUnavailable if the outcome is unknown.

        durable=False may lose the file in a power cut: for hints only.
        """

    @abstractmethod
    def put(self, key: str, data: BytesLike) -> None:
        """Create or replace `key` in one step."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """All bytes of `key`. Raises FileNotFoundError."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes of `key` from `start`; fewer at its end."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Bytes in `key`. Raises FileNotFoundError."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        """(key, bytes) of every key that starts with `prefix` and sorts after `after`, in key order."""

    def above(self) -> Iterator[Store]:
        """The folders above this one, the nearest first."""
        return iter(())

    def beside(self, suffix: str) -> Store | None:
        """Return the store whose name is this one's followed by `suffix`; None where there is none."""
        return None

    def version(self, key: str) -> str:
        """Differs whenever `key` was written anew; '' if it is not there."""
        try:
            return digest(self.get(key))
        except FileNotFoundError:
            return ""

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        """(key, version) as `list` finds them."""
        for key, _ in self.list(prefix, after):
            if version := self.version(key):
                yield key, version

    def names(self, folder: str, after: str = "") -> Sequence[str]:
        """Names directly in `folder` (ends in /) that sort after `after`, in order; those of folders may be among them.
        Cheaper than `list`.
        """
        cut = len(folder)
        return [key[cut:] for key, _ in self.list(folder, folder + after if after else "") if "/" not in key[cut:]]

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove `key`; one that is not there is no error."""

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """Random-access reader of `key` for Arrow. Raises FileNotFoundError."""

    def mapped(self, key: str, in_memory: int = IN_MEMORY) -> pa.Buffer:
        """All bytes of `key`, not held in memory where they are more than `in_memory`. Raises FileNotFoundError."""
        spool, at, total = Spool(in_memory), 0, self.size(key)
        while at < total:
            piece = self.get_range(key, at, min(_PIECE, total - at))
            if not piece:
                break  # shorter than it was: its digest tells
            spool.write(piece)
            at += len(piece)
        return spool.buffer()

    @abstractmethod
    def url(self, key: str) -> str:
        """Where another program (Spark) finds `key`."""

    @abstractmethod
    def modified_ms(self, key: str) -> int | None:
        """When `key` was last written, by the store's clock, in ms since 1970; None if it is not there."""

    def settle(self, key: str) -> None:
        """Make sure that `key`, which was found to be there, stays there. Raises StoreUnavailable."""
        return

    def require_private(self) -> None:
        """Raise StoreRefused where strangers may write the table; a bucket's policy is its owner's affair."""
        return

    def clock_ms(self) -> int | None:
        """The store's own time in ms since 1970; None where it has no clock but this machine's, or has not answered
        yet.
        """
        return None

    def pause(self, seconds: float) -> None:
        """Wait before another attempt; a simulated store lets its own time pass instead."""
        time.sleep(seconds)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True

    def create(self, key: str, data: BytesLike, durable: bool = True) -> None:
        """put_if_absent, tried again while its outcome is unknown; so FileExistsError may mean that an attempt of ours
        was first.

        Raises StoreUnavailable after several unknown outcomes.
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
        """`create` for content that is the same whoever writes it: equal bytes there are success, others raise
        FileExistsError.
        """
        try:
            self.create(key, data, durable)
        except FileExistsError:
            if self.get(key) != bytes(data):
                raise
