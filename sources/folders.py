"""Local folders and S3 prefixes with input files.

A folder is not a store: its files belong to other programs. Nothing is written to it, and network file systems are
supported. Links to files are followed. Links to folders are not followed, because they may form a cycle. They count as
unreadable.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import xxhash

from hoodoo.errors import CallError, DataError, HoodooError, SourceChanged, SourceUnavailable
from hoodoo.redact import printable

if TYPE_CHECKING:
    from hoodoo.storage.s3 import S3Store

_SMALL = 64 << 10  # maximum bytes of a file whose content is compared if its time has changed
_TRANSIENT_ERRORS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE}
    | {errno.ENOMEM, errno.ENOBUFS, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
    | {errno.ECONNRESET, errno.ECONNABORTED, errno.ENODEV, errno.ENXIO}
)  # transient failures of a disk or a network


@dataclass(frozen=True, order=True)
class ListedFile:
    """Listed file of a folder.

    Attributes:
        time_ms: Modification time, in ms since 1970.
        name: Path relative to the folder, with `/` between its parts.
        size: Size in bytes.
        stamp: String that identifies the content: it differs after the file is rewritten.
        changed_ms: Time of the last change of its content or its metadata, in ms since 1970.
    """

    time_ms: int
    name: str
    size: int
    stamp: str
    changed_ms: int = field(default=0, compare=False)


class Folder(Protocol):
    """Interface of a folder with input files.

    Attributes:
        uri: Address of the folder.
        settle_ms: Time after its last change during which a file may still grow, in ms.
        unreadable: Files and subfolders that the newest listing could not inspect, with the reason. Names of subfolders
            end with `/`.
    """

    uri: str
    settle_ms: int
    unreadable: dict[str, str]

    def files(self) -> Iterator[ListedFile]:
        """Yield all files of the folder.

        This includes subfolders. The order is undefined. Raises CallError if the folder does not exist, and
        SourceUnavailable if it existed before.
        """
        ...

    def open(self, file: ListedFile) -> pa.NativeFile:
        """Open a file for reading.

        Raises SourceChanged if the file was deleted or rewritten since it was listed.
        """
        ...

    def require_same(self, file: ListedFile) -> None:
        """Check that a file is unchanged since its listing.

        Raises SourceChanged if it was deleted or rewritten.
        """
        ...

    def digest(self, file: ListedFile) -> str:
        """Return a digest of a small file.

        It is '' for a large file. On S3 it is always '', because the ETag identifies the content.
        """
        ...


def open_folder(path: str | os.PathLike[str], storage: Mapping[str, Any] | None) -> Folder:
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise CallError(
            f"The folder of files is invalid: expected a path or s3://bucket/prefix, got {printable(path)}.",
            path=str(path),
        )
    if text.startswith(("s3://", "s3a://")):
        return _S3Folder(text, storage)
    return _LocalFolder(text)


class _LocalFolder:
    settle_ms = 2_000

    def __init__(self, path: str) -> None:
        self.uri = os.path.abspath(path.removeprefix("file://"))
        self.unreadable = dict[str, str]()
        self._existed = os.path.isdir(self.uri)

    def files(self) -> Iterator[ListedFile]:
        self._require_existence()
        self.unreadable.clear()
        for folder, folders, names in os.walk(self.uri, onerror=self._record_unreadable):
            for path in (os.path.join(folder, name) for name in folders):
                if os.path.islink(path):
                    self.unreadable[self._relative_name(path) + "/"] = "It is a link to a folder, which is not followed"
            for name in names:
                path = os.path.join(folder, name)
                try:
                    stat = os.stat(path)
                except OSError as problem:
                    if not isinstance(problem, FileNotFoundError) or os.path.islink(path):
                        self._record_unreadable(problem)  # else the file was deleted or moved since the folder was read
                    continue
                yield _listed_file(self._relative_name(path), stat)

    def open(self, file: ListedFile) -> pa.NativeFile:
        try:
            source = pa.OSFile(os.fsencode(os.path.join(self.uri, file.name)))
        except FileNotFoundError:
            raise _changed_file_error(self.uri, file) from None
        except OSError as problem:
            raise unreadable(file.name, problem) from None
        if _listed_file(file.name, os.fstat(source.fileno())) != file:
            source.close()
            raise _changed_file_error(self.uri, file)
        return source

    def require_same(self, file: ListedFile) -> None:
        try:
            stat = os.stat(os.path.join(self.uri, file.name))
        except OSError:
            raise _changed_file_error(self.uri, file) from None
        if _listed_file(file.name, stat) != file:
            raise _changed_file_error(self.uri, file)

    def digest(self, file: ListedFile) -> str:
        if file.size > _SMALL:
            return ""
        with self.open(file) as source:
            try:
                return xxhash.xxh3_64_hexdigest(source.read())
            except OSError as problem:
                raise unreadable(file.name, problem) from None

    def _require_existence(self) -> None:
        if os.path.isdir(self.uri):
            self._existed = True
        elif self._existed:
            raise SourceUnavailable(
                f"Folder {printable(self.uri)} does not exist any more: it was deleted, moved or "
                "unmounted. Restore it.",
                path=self.uri,
            )
        else:
            raise CallError(f"Folder {printable(self.uri)} does not exist. Correct the path.", path=self.uri)

    def _relative_name(self, path: str) -> str:
        return os.path.relpath(path, self.uri).replace(os.sep, "/")

    def _record_unreadable(self, problem: OSError) -> None:
        # Raises SourceUnavailable for a transient failure.
        path = os.fspath(problem.filename)
        if path == self.uri and not isinstance(problem, FileNotFoundError):
            if problem.errno in _TRANSIENT_ERRORS:
                raise unreadable(path, problem)
            raise CallError(
                f"Folder {printable(path)} cannot be read: {problem.strerror}. Correct its permissions.", path=path
            ) from None
        if problem.errno in _TRANSIENT_ERRORS:
            raise unreadable(self._relative_name(path), problem)
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        if not isinstance(problem, FileNotFoundError) or os.path.islink(path):
            self.unreadable[self._relative_name(path) + "/" * is_folder] = problem.strerror or str(problem)


def unreadable(name: str, problem: OSError) -> HoodooError:
    reason = problem.strerror or str(problem) or type(problem).__name__
    if problem.errno in _TRANSIENT_ERRORS:
        return SourceUnavailable(f"File {printable(name)} cannot be read now: {reason}. Try again later.", file=name)
    return DataError(
        f"File {printable(name)} cannot be read: {reason}. Correct its permissions or remove it, or pass "
        "on_bad_file='quarantine' (--on-bad-file quarantine).",
        file=name,
    )


def _listed_file(name: str, stat: os.stat_result) -> ListedFile:
    return ListedFile(
        stat.st_mtime_ns // 1_000_000,
        name,
        stat.st_size,
        f"{stat.st_size}-{stat.st_mtime_ns}",
        max(stat.st_mtime_ns, stat.st_ctime_ns) // 1_000_000,
    )


class _S3Folder:
    settle_ms = 0  # an object appears as a whole

    def __init__(self, uri: str, storage: Mapping[str, Any] | None) -> None:
        from hoodoo.storage.s3 import S3Store  # boto3 takes 0.2 s to import, so it is loaded on demand

        self.store: S3Store = S3Store(uri, storage)
        self.uri = self.store.uri
        self.unreadable = dict[str, str]()

    def files(self) -> Iterator[ListedFile]:
        for key, size, time_ms, tag in self.store.objects():
            yield ListedFile(time_ms, key, size, f"{size}-{tag}", time_ms)

    def open(self, file: ListedFile) -> pa.NativeFile:
        try:
            source = self.store.open_input(file.name)
        except FileNotFoundError:
            raise _changed_file_error(self.uri, file) from None
        self.require_same(file)
        return source

    def require_same(self, file: ListedFile) -> None:
        if f"{file.size}-{self.store.version(file.name)}" != file.stamp:
            raise _changed_file_error(self.uri, file)

    def digest(self, file: ListedFile) -> str:
        return ""  # the ETag identifies the content


def _changed_file_error(uri: str, file: ListedFile) -> SourceChanged:
    return SourceChanged(
        f"File {printable(file.name)} of {printable(uri)} was deleted or rewritten while it was read. Nothing was "
        "written. Plan again.",
        file=file.name,
    )
