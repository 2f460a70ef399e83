"""Folders of a machine, and prefixes of a bucket, into which others put files: what is there, and its bytes.

Not a store: these files are not ours. Nothing is written, links to files are followed, and a network file system will
do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from hoodoo.errors import CallError, SourceChanged, SourceUnavailable
from hoodoo.redact import printable

if TYPE_CHECKING:
    from hoodoo.storage.s3 import S3Store


@dataclass(frozen=True, order=True)
class Listed:
    """A file.

    Attributes:
        time_ms: When it came to be as it is, in ms since 1970.
        name: Its path below the folder, with `/` between its parts.
        size: Its bytes.
        stamp: Differs where the file was written anew.
    """

    time_ms: int
    name: str
    size: int
    stamp: str


class Folder(Protocol):
    """Where files are put.

    Attributes:
        uri: Its address.
        settle_ms: For how long a file may still grow once it is there.
    """

    uri: str
    settle_ms: int

    def files(self) -> Iterator[Listed]:
        """All files, in any depth and any order. Raises CallError where there is no such folder, and SourceUnavailable
        where there was one.
        """
        ...

    def content(self, file: Listed) -> pa.Buffer:
        """The bytes of a file. Raises SourceChanged where it is not the file any more that was listed."""
        ...


def open_folder(path: str | os.PathLike[str], storage: Mapping[str, Any] | None) -> Folder:
    """Return the folder at a path or an s3:// address. storage: as `hoodoo.open` takes it."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise CallError(f"A folder of files is a path or s3://bucket/prefix, got {printable(path)}.", path=str(path))
    if text.startswith(("s3://", "s3a://")):
        return _Prefix(text, storage)
    return _LocalFolder(text)


class _LocalFolder:
    settle_ms = 2_000

    def __init__(self, path: str) -> None:
        self.uri = os.path.abspath(path.removeprefix("file://"))
        self._was_there = os.path.isdir(self.uri)

    def files(self) -> Iterator[Listed]:
        self._require_there()
        for folder, _, names in os.walk(self.uri, onerror=self._refuse):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found = os.stat(path)
                except FileNotFoundError:
                    continue  # deleted, or moved, since the folder was read
                yield _listed(os.path.relpath(path, self.uri).replace(os.sep, "/"), found)

    def content(self, file: Listed) -> pa.Buffer:
        try:
            with open(os.path.join(self.uri, file.name), "rb") as source:
                data = pa.py_buffer(source.read())
                found = _listed(file.name, os.fstat(source.fileno()))
        except FileNotFoundError:
            raise _changed(self.uri, file) from None
        if found != file or data.size != file.size:
            raise _changed(self.uri, file)
        return data

    def _require_there(self) -> None:
        """A folder that was never there is a wrong path; one that was may come back, as a disk does."""
        if os.path.isdir(self.uri):
            self._was_there = True
        elif self._was_there:
            raise SourceUnavailable(
                f"The folder {printable(self.uri)} is gone: it was deleted, moved or unmounted. Bring it back.",
                path=self.uri,
            )
        else:
            raise CallError(f"There is no folder {printable(self.uri)}.", path=self.uri)

    @staticmethod
    def _refuse(problem: OSError) -> None:
        if not isinstance(problem, FileNotFoundError):
            raise CallError(
                f"Cannot read the folder {printable(problem.filename)}: {problem.strerror}.", path=str(problem.filename)
            ) from None


def _listed(name: str, found: os.stat_result) -> Listed:
    """A file moved into the folder keeps the time at which it was written; when it was moved, its status tells."""
    return Listed(
        max(found.st_mtime_ns, found.st_ctime_ns) // 1_000_000,
        name,
        found.st_size,
        f"{found.st_size}-{found.st_mtime_ns}",
    )


class _Prefix:
    settle_ms = 0  # an object is there as a whole, or not at all

    def __init__(self, uri: str, storage: Mapping[str, Any] | None) -> None:
        from hoodoo.storage.s3 import S3Store  # boto3 takes 0.2 s to import: only those who use it pay

        self.store: S3Store = S3Store(uri, storage)
        self.uri = self.store.uri

    def files(self) -> Iterator[Listed]:
        for key, size, time_ms, tag in self.store.objects():
            yield Listed(time_ms, key, size, f"{size}-{tag}")

    def content(self, file: Listed) -> pa.Buffer:
        try:
            data = pa.py_buffer(self.store.get(file.name))
            tag = self.store.version(file.name)
        except FileNotFoundError:
            raise _changed(self.uri, file) from None
        if f"{data.size}-{tag}" != file.stamp:
            raise _changed(self.uri, file)
        return data


def _changed(uri: str, file: Listed) -> SourceChanged:
    return SourceChanged(
        f"{printable(file.name)} in {printable(uri)} was deleted or written anew as it was about to be read. Nothing "
        "was written; a new plan looks what is there.",
        file=file.name,
    )
