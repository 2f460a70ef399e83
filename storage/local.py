"""Store in a local folder.

To create a file atomically and durably, it is written under a temporary name, synced, and hard-linked to its final
name. Then the folder is synced. No other method is atomic and durable: rename overwrites silently, and O_EXCL followed
by a write leaves a partial file after a kill.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hoodoo.errors import (
    CorruptTable,
    HoodooError,
    OptionError,
    StoreDenied,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TableNotFound,
)
from hoodoo.redact import printable
from hoodoo.storage.mounts import detect_network_file_system
from hoodoo.storage.store import SCRATCH, BytesLike, Store

_FOLDER_ATTEMPTS = 20
_ALLOW_NETWORK = "allow_network_fs"


def _as_error(problem: OSError, key: str) -> HoodooError | OSError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"No space left on the disk: cannot write {key!r}. Free some space and try again.", key=key)
    if problem.errno == errno.EROFS:
        return StoreDenied(
            f"Cannot write {key!r} on a read-only file system. Mount it for writing, or choose another location.",
            key=key,
        )
    if problem.errno in (errno.EACCES, errno.EPERM):
        return StoreDenied(
            f"No permission to write {key!r} ({problem.strerror}). Give this user write permission for the table's "
            "folder.",
            key=key,
        )
    if isinstance(problem, (FileNotFoundError, FileExistsError)):
        return problem
    return StoreUnavailable(
        f"Cannot write or delete {key!r}: {problem.strerror}. Check the disk and try again.", key=key
    )


def _behind_link(key: str) -> CorruptTable:
    return CorruptTable(
        f"Path {key} contains a symbolic link, which is not allowed in a table. Nothing was read or deleted. Remove "
        "the link.",
        file=key,
    )


def _read_error(problem: OSError, key: str) -> HoodooError | OSError:
    if problem.errno in (errno.ENOENT, errno.ENOTDIR):
        return FileNotFoundError(errno.ENOENT, "no such key", key)
    if problem.errno == errno.ELOOP:
        return _behind_link(key)
    if problem.errno in (errno.EACCES, errno.EPERM):
        return StoreDenied(
            f"No permission to read {key!r} ({problem.strerror}). Give this user read permission for the table's "
            "folder.",
            key=key,
        )
    return StoreUnavailable(f"Cannot read {key!r}: {problem.strerror}. Check the disk and try again.", key=key)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _absolute_root(text: str) -> str:
    if text.startswith("file:"):
        rest = text.removeprefix("file:")
        host, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest.removeprefix("/"))
        if host not in ("", "localhost") or not rest.startswith("/") or not path.strip("/"):
            raise OptionError(
                f"{printable(text)} is not a valid file URL. Use file:///absolute/path, or a plain path.",
                option="path",
            )
        text = "/" + path.lstrip("/")
    elif "://" in text:
        raise OptionError(
            f"URL scheme {printable(text.split('://')[0])} is not supported. Use a local path or s3://bucket/prefix.",
            uri=printable(text.split("://")[0]),
        )
    expanded = os.path.expanduser(text)
    if text.startswith("~") and expanded == text:
        raise OptionError(
            f"Path {printable(text)} refers to the unknown user {printable(text.split('/')[0][1:])}. Write ./~... if "
            "the name of the folder begins with '~'.",
            option="path",
        )
    try:
        root = os.path.abspath(expanded)
    except FileNotFoundError:
        raise OptionError(
            f"Relative path {printable(text)} cannot be resolved, because the working directory of this process was "
            "deleted. Pass an absolute path.",
            option="path",
        ) from None
    _require_folder(root)
    return root


def _require_folder(root: str) -> None:
    path = root
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    if os.path.islink(path) and not os.path.exists(path):
        raise OptionError(
            f"Path {printable(path)} is a symbolic link to a missing folder. Create the folder, or remove the link.",
            option="path",
        )
    if os.path.exists(path) and not os.path.isdir(path):
        raise OptionError(
            f"Path {printable(path)} is a file, but a table is a folder. Choose another path. To load a file into a "
            "table, pass it to upsert().",
            option="path",
        )


class LocalStore(Store):
    """Store in a local folder.

    `root` may begin with `~`. Symbolic links in the last segment of a key are not followed.
    """

    def __init__(self, uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        if unknown := sorted(set(self._options) - {_ALLOW_NETWORK}):
            raise OptionError(
                f"Unknown storage options {printable(unknown)} for a local path: expected {_ALLOW_NETWORK}.",
                options=unknown,
            )
        self.root = _absolute_root(os.fspath(uri))
        self.uri = self.root
        self._was_there = os.path.isdir(self.root)
        if not self._options.get(_ALLOW_NETWORK) and (kind := detect_network_file_system(self.root)):
            raise StoreRefused(
                f"Path {self.root} is on a network file system ({kind}), where two machines may both create the same "
                "file. Use a local disk or S3. If this mount has an atomic link() and shows new files to all machines "
                f"at once, you can pass storage={{'{_ALLOW_NETWORK}': True}}.",
                file_system=kind,
            )

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self.root, self._options)

    @property
    def medium(self) -> str:
        folder = self.root
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return "" if self._options.get(_ALLOW_NETWORK) else f"device {os.stat(folder).st_dev}"

    def _path(self, key: str) -> str:
        return os.path.join(self.root, key)

    def _create_folder(self, folder: str) -> None:
        # A late write to a dropped or renamed table must not create an incomplete table at its old path.
        if os.path.isdir(folder):
            return
        if folder == self.root and self._was_there:
            if os.path.isdir(folder):
                return  # another thread created it
            raise TableNotFound(
                f"Table {self.root} was dropped or renamed while it was open in this process. Open the table at its "
                "new path.",
                path=self.root,
            )
        parent = os.path.dirname(folder)
        self._create_folder(parent)
        with contextlib.suppress(FileExistsError):  # another thread or process created it
            os.mkdir(folder, 0o775)  # never world-writable, whatever the umask is, because commits could be forged
            _sync_folder(parent)
        self._was_there |= folder == self.root

    def _scratch(self, data: BytesLike, durable: bool) -> str:
        path = os.path.join(self.root, SCRATCH, secrets.token_hex(16))
        self._create_folder(os.path.dirname(path))
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o664)
        try:
            view = memoryview(data).cast("B")
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def put_if_absent(self, key: str, data: BytesLike, durable: bool = True) -> str:
        target = self._path(key)
        try:
            scratch = self._scratch(data, durable)
            try:
                self._hard_link(scratch, target)
            finally:
                with contextlib.suppress(OSError):  # orphan removal deletes a temporary file that is left
                    os.unlink(scratch)
        except OSError as problem:
            raise _as_error(problem, key) from None
        if durable:
            self.settle(key)
        return self.version(key)

    def settle(self, key: str) -> None:
        """Sync a file's folder to disk.

        A power failure then cannot remove the file. Until the sync succeeds, the outcome of creating the file is
        unknown.
        """
        try:
            _sync_folder(os.path.dirname(self._path(key)))
        except OSError as problem:
            raise StoreUnavailable(
                f"Cannot sync the folder of {key!r} to disk: {problem.strerror}. Check the disk and try again.", key=key
            ) from None

    def _hard_link(self, scratch: str, target: str) -> None:
        # The link is retried, because other processes may remove empty folders (prune_folders).
        for _ in range(_FOLDER_ATTEMPTS):
            try:
                return os.link(scratch, target)
            except FileNotFoundError:
                with contextlib.suppress(FileNotFoundError):
                    self._create_folder(os.path.dirname(target))
        return os.link(scratch, target)

    def put(self, key: str, data: BytesLike) -> None:
        target = self._path(key)
        try:
            scratch = self._scratch(data, True)
            self._create_folder(os.path.dirname(target))
            # Hadoop would reject the new bytes because of a stale checksum file
            Path(os.path.dirname(target), f".{os.path.basename(target)}.crc").unlink(missing_ok=True)
            os.replace(scratch, target)
        except OSError as problem:
            raise _as_error(problem, key) from None
        self.settle(key)

    def get(self, key: str) -> bytes:
        return self.get_range(key, 0, -1)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as problem:
            raise _read_error(problem, key) from None

    def size(self, key: str) -> int:
        try:
            return os.lstat(self._path(key)).st_size
        except OSError as problem:
            raise _read_error(problem, key) from None

    def above(self) -> Iterator[Store]:
        options = self._options | {_ALLOW_NETWORK: True}  # no files are created in the parent folders
        return (LocalStore(str(folder), options) for folder in Path(self.root).parents)

    def beside(self, suffix: str) -> LocalStore:
        return LocalStore(self.root + suffix, self._options)

    def version(self, key: str) -> str:
        try:
            status = os.lstat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as problem:
            raise _read_error(problem, key) from None
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def modified_ms(self, key: str) -> int | None:
        try:
            return int(os.lstat(self._path(key)).st_mtime * 1000)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise _read_error(problem, key) from None

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        folder, _, _ = prefix.rpartition("/")
        yield from sorted(self._walk(folder, prefix, after))

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[tuple[str, int]]:
        try:
            entries = list(os.scandir(self._path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise _read_error(problem, folder) from None
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if key.startswith(prefix) or f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                        yield from self._walk(key, prefix, after)
                elif (
                    key.startswith(prefix) and key > after
                ):  # checked before the size, because a folder may contain many files
                    yield key, entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # deleted after the folder was read
            except OSError as problem:
                raise _read_error(problem, key) from None

    def names(self, folder: str, after: str = "") -> Sequence[str]:
        try:
            return sorted(name for name in os.listdir(self._path(folder)) if name > after)
        except OSError as problem:
            if isinstance(error := _read_error(problem, folder), FileNotFoundError):
                return []
            raise error from None

    def folders(self) -> Sequence[str]:
        return [name for name in self.names("") if os.path.isdir(self._path(name))]

    def delete(self, key: str) -> None:
        """Delete a file.

        Raises CorruptTable if a folder in its path is a symbolic link, which may lead outside the table.
        """
        try:
            folder = self._open_parent_folder(key)
        except FileNotFoundError:
            return
        try:
            os.unlink(key.rpartition("/")[2], dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise _as_error(problem, key) from None
        finally:
            os.close(folder)

    def _open_parent_folder(self, key: str) -> int:
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            for segment in key.split("/")[:-1]:
                before = descriptor
                try:
                    descriptor = os.open(segment, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=before)
                except OSError as problem:
                    if problem.errno == errno.ENOTDIR and stat.S_ISLNK(os.lstat(segment, dir_fd=before).st_mode):
                        raise _behind_link(key) from None
                    raise
                finally:
                    os.close(before)
            return descriptor
        except OSError as problem:
            raise _read_error(problem, key) from None

    def require_private(self) -> None:
        try:
            mode = os.stat(os.path.join(self.root, ".hoodie")).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise _read_error(problem, ".hoodie") from None
        if mode & stat.S_IWOTH:
            raise StoreRefused(
                (
                    f"Folder {self.root}/.hoodie is world-writable, so any user of this machine could forge commits. "
                    f"Run chmod -R o-w {self.root}/.hoodie."
                ),
                path=self.root,
            )

    def prune_folders(self, key: str) -> None:
        folder = os.path.dirname(self._path(key))
        while folder.startswith(self.root + os.sep):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def remove_empty_folders(self, folder: str) -> None:
        for path, _, _ in os.walk(self._path(folder), topdown=False):
            with contextlib.suppress(OSError):  # the folder is not empty
                os.rmdir(path)

    def open_input(self, key: str) -> pa.NativeFile:
        if self.size(key) == 0:
            return pa.BufferReader(b"")
        try:
            return pa.memory_map(self._path(key), "r")
        except OSError as problem:
            raise _read_error(problem, key) from None

    def mapped(self, key: str, in_memory: int = 0) -> pa.Buffer:
        with self.open_input(key) as source:
            return source.read_buffer()

    def url(self, key: str) -> str:
        return f"file://{self._path(key)}"  # Hadoop uses the path without percent decoding
