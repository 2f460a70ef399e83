"""Store, which is a folder or bucket with table files.

A store only handles keys and bytes. A key is the path of a file relative to the store's root, with `/` between
segments.

A request has one of three outcomes: success; refusal (FileExistsError, FileNotFoundError, or one of REFUSALS), which
changed nothing; or StoreUnavailable. For a put, StoreUnavailable means that the outcome is *unknown*: the bytes may
appear now, later or never.
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
"""Folder for incomplete files on a local disk, which readers never list."""


REFUSALS = (StoreFull, StoreDenied, BucketNotFound, CredentialsError)
"""Types of errors after which the store is certainly unchanged."""


BytesLike: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


def digest(data: BytesLike) -> str:
    return xxhash.xxh3_128_hexdigest(data)


class Store(ABC):
    """Store of a table's files, in a folder or bucket.

    The keys of files are relative paths. Listings are sorted, and begin after the key `after`. The version of a file
    changes with each write, and is '' for a missing file. Times are in ms since 1970, or None if unknown. `get`,
    `size`, `open_input` and `mapped` raise FileNotFoundError for a missing file, which `delete` ignores. `get_range`
    returns fewer bytes at the end of a file.
    """

    uri: str
    lists_by_prefix: bool = False
    """True if the cost of listing keys does not depend on the number of earlier keys."""
    travels_once = True  # tasks of a job share one pickled copy (engine/task_pickling)
    changes_unseen: bool = False
    """True for a storage server, which may be replaced while a table exists."""

    @property
    def identity(self) -> str:
        """Identifier of the store's location."""
        return self.uri

    @property
    def medium(self) -> str:
        """Identifier of the file system."""
        return ""

    @abstractmethod
    def put_if_absent(self, key: str, data: BytesLike, durable: bool = True) -> str | None:
        """Create a file atomically.

        An existing file is not replaced. Returns the version of the file, or None if the version would cost another
        request. Raises FileExistsError if the key exists, and StoreUnavailable if the outcome is unknown. With
        durable=False, a power failure may remove the file.
        """

    @abstractmethod
    def put(self, key: str, data: BytesLike) -> None:
        """Create or replace a file atomically."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Read all bytes of a file."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a part of a file."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Look up the size of a file in bytes."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        """List the keys and sizes of files."""

    def above(self) -> Iterator[Store]:
        """List the stores of the parent folders, nearest first."""
        return iter(())

    def beside(self, suffix: str) -> Store | None:
        """Open the store at this path plus a suffix."""
        return None

    def version(self, key: str) -> str:
        """Return the version of a file."""
        try:
            return digest(self.get(key))
        except FileNotFoundError:
            return ""

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        """List the keys and versions of files."""
        for key, _ in self.list(prefix, after):
            if version := self.version(key):
                yield key, version

    def names(self, folder: str, after: str = "") -> Sequence[str]:
        """List the file names in a folder.

        They are sorted. `folder` ends in "/". Names of subfolders may be included.
        """
        cut = len(folder)
        return [key[cut:] for key, _ in self.list(folder, folder + after if after else "") if "/" not in key[cut:]]

    def folders(self) -> Sequence[str]:
        return sorted({key.partition("/")[0] for key, _ in self.list("") if "/" in key})

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a file."""

    def prune_folders(self, key: str) -> None:
        """Remove the empty parent folders of a deleted file."""
        return

    def remove_empty_folders(self, folder: str) -> None:
        return

    @abstractmethod
    def open_input(self, key: str) -> pa.NativeFile:
        """Open a file for random access."""

    def mapped(self, key: str, in_memory: int = IN_MEMORY) -> pa.Buffer:
        """Read a file as a buffer.

        A large file is memory-mapped. Raises FileNotFoundError.
        """
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
        """Return the URL of a file for other programs."""

    @abstractmethod
    def modified_ms(self, key: str) -> int | None:
        """Look up the modification time of a file."""

    def settle(self, key: str) -> None:
        """Protect an existing file from a power failure."""
        return

    def require_private(self) -> None:
        """Check that not every user can write to the table."""
        return

    def clock_ms(self) -> int | None:
        """Read the clock of the store."""
        return None

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True

    def create(self, key: str, data: BytesLike, durable: bool = True) -> None:
        """Create a file with retries.

        A call is retried while its outcome is unknown. A FileExistsError may mean that an earlier attempt of this call
        succeeded. Raises StoreUnavailable if the outcome of all attempts is unknown.
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
        """Create a file or accept an equal file.

        Does nothing if the file already exists with equal bytes. Raises FileExistsError if the file exists with
        different bytes.
        """
        try:
            self.create(key, data, durable)
        except FileExistsError:
            if self.get(key) != bytes(data):
                raise
