"""What a table needs of the place where its bytes lie: put-if-absent, get, list, delete.

This is the only seam where faults enter. A store knows keys and bytes; it refuses to know tables.
Keys are relative to the store's root, with `/` between segments.
Outcomes have three kinds: done; refused (FileExistsError, FileNotFoundError, one of REFUSALS: nothing changed);
and StoreUnavailable, which for a put means *unknown*: the bytes may be there now, later or never.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import xxhash

from hoodoo.errors import BucketNotFound, CredentialsError, OptionError, StoreDenied, StoreFull, StoreUnavailable
from hoodoo.storage.redact import printable
from hoodoo.storage.spool import IN_MEMORY, Spool

_ATTEMPTS = 5
_PATH_MAX = 1_000  # of a table: names of files come below it, and S3 takes 1,024 bytes in all
_SEGMENT_MAX = 255
_PIECE = 16 << 20  # bytes of one request of a large download
SCRATCH = ".hoodie/.hoodoo/tmp"
"""Folder below a local root for half-written files; never listed by a reader."""


REFUSALS = (StoreFull, StoreDenied, BucketNotFound, CredentialsError)
"""Errors of a store that say for certain that the request changed nothing."""


def digest(data: Any) -> str:
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
        """Equal for stores that are the same place on the same server."""
        return self.uri

    @abstractmethod
    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str | None:
        """Create `key` in one step; its version where that is known without asking. Raises FileExistsError if it is
        there, StoreUnavailable if the outcome is unknown.

        durable=False may lose the file in a power cut: for hints only.
        """

    @abstractmethod
    def put(self, key: str, data: Any) -> None:
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

    def create(self, key: str, data: Any, durable: bool = True) -> None:
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

    def write_once(self, key: str, data: Any, durable: bool = True) -> None:
        """`create` for content that is the same whoever writes it: equal bytes there are success, others raise
        FileExistsError.
        """
        try:
            self.create(key, data, durable)
        except FileExistsError:
            if self.get(key) != bytes(data):
                raise


def open_store(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Store:
    """The store of a table URI: a local path, `file://...`, or `s3://bucket/prefix`.

    options: for S3 endpoint, region, access_key, secret_key, session_token, allow_http; credentials default to the
    ambient chain. For a path allow_network_fs.
    """
    text = _checked(uri)
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(name, str) for name in options)):
        raise OptionError(f"storage takes a dict of options by name, got {printable(options)}.", option="storage")
    if text.startswith(("s3://", "s3a://")):
        from hoodoo.storage.s3 import S3Store  # boto3 takes 0.2 s to import: only those who use it pay

        return S3Store(text, options)
    if text.lower().startswith(("s3:", "s3a:")):
        raise OptionError(f"{printable(text)} is no place on S3: write s3://bucket/prefix.", option="path")
    from hoodoo.storage.local import LocalStore

    return LocalStore(text, options)


def _checked(uri: str | os.PathLike[str]) -> str:
    """A path as text that every system takes. Raises OptionError."""
    try:
        text: Any = os.fspath(uri)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise OptionError(
            f"path takes text or a pathlib.Path, got {printable(uri)}; os.fsdecode() makes text of bytes.",
            option="path",
        )
    if not text:
        raise OptionError("path is empty; pass '.' for the folder you are in.", option="path")
    if "\0" in text or not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise OptionError(f"path takes text without NUL and without surrogates, got {printable(text)}.", option="path")
    if len(text) > _PATH_MAX or any(len(part.encode()) > _SEGMENT_MAX for part in text.split("/")):
        raise OptionError(
            f"path takes at most {_PATH_MAX:,} characters, and {_SEGMENT_MAX} bytes between slashes, got "
            f"{printable(text)}.",
            option="path",
        )
    return text
