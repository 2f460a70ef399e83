"""Source that reads each file of a folder once."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from hoodoo.arguments import check_allowed_value, check_number
from hoodoo.errors import (
    ColumnError,
    CorruptTable,
    DataError,
    EngineError,
    HoodooError,
    OptionError,
    SourceLost,
    UnsupportedTable,
)
from hoodoo.redact import printable
from hoodoo.sources.file_blocks import RowBatches, TextBlocks
from hoodoo.sources.file_rows import FileRows, bad_row_of_file, damaged, shown
from hoodoo.sources.folders import Folder, ListedFile, open_folder, unreadable
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag
from hoodoo.sources.start_points import EARLIEST, LATEST, parse_time_ms
from hoodoo.sources.taken_files import PartiallyReadFile, ReadFile, ReadFiles
from hoodoo.writers.batches.row_files import compression_of, has_supported_extension, kind_of

_KINDS = ("json", "csv", "parquet", "avro")
_BLOCK = 8 << 20  # decoded bytes of a file per block
_FORMAT_ALIASES = {"jsonl": "json", "ndjson": "json", "json lines": "json"}


@dataclass(frozen=True)
class _BatchPlan:
    """Plan of one batch of files.

    Attributes:
        before: Files that earlier batches have read.
        files: Files to read in this batch.
        limits: Limits of the batch.
        now_ms: Time of the plan, in ms since 1970.
        left_ms: Earliest modification time of the new files that a later batch reads, in ms since 1970.
    """

    before: ReadFiles
    files: tuple[ListedFile, ...]
    limits: Limits
    now_ms: int
    left_ms: int


class Files(Source):
    """Source for the files of a folder.

    Each file in the folder and its subfolders is read once. Files are read sorted by modification time and then by
    name. A file is identified by its path, size and modification time. On S3, it is identified by its key and ETag.
    Files whose names begin with '.' or '_', empty files, and files that are still growing are not read.

    Attributes:
        name: 'files:' and the address of the folder.
        passed_over: Files and subfolders that the latest listing skipped: their names do not indicate a format, or they
            cannot be read.
    """

    reads_ahead = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        pattern: str = "*",
        grace_seconds: float = 86_400.0,
        settle_seconds: float | None = None,
        on_change: str = "fail",
        on_bad_file: str = "fail",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a source for the files of a folder.

        Nothing is read yet.

        Args:
            path: A local folder, or s3://bucket/prefix.
            format: Format of all files: 'json' (one JSON object per line), 'csv' (with a header), 'parquet' or 'avro'.
                None (default): the format in the name of each file, such as `trips.jsonl.gz`.
            pattern: Pattern for the paths of files, relative to the folder. '*' matches any characters, including '/'.
                Default: all files.
            grace_seconds: Seconds for which the source remembers a file that left the folder. If the file comes back
                unchanged within this time, it is not read again. Default: one day.
            settle_seconds: Seconds for which a file must be unchanged before it is read. None (default): 2 for a
                local folder, and 0 on S3, where an object appears as a whole.
            on_change: Handling of a file that is rewritten after it was read: 'fail' (default) stops the job, 'again'
                reads the file once more.
            on_bad_file: Handling of a file that is damaged, cannot be read, lacks a key column, or has a column whose
                type does not match the table: 'fail' (default) stops the job, 'quarantine' adds a row for the file to
                the quarantine and continues.
            storage: Options for S3, as in `hoodoo.open`.

        Raises:
            OptionError: An argument is invalid.
            CallError: The path is not a path.
        """
        file_format = None if format is None else _FORMAT_ALIASES.get(str(format).lower(), format)
        if file_format is not None:
            check_allowed_value("format", file_format, _KINDS)
        check_allowed_value("on_change", on_change, ("fail", "again"))
        check_allowed_value("on_bad_file", on_bad_file, ("fail", "quarantine"))
        if not isinstance(pattern, str) or not pattern:
            raise OptionError(
                f"Option pattern is invalid: expected a string such as '*.jsonl', got {printable(pattern)}.",
                option="pattern",
            )
        self.folder: Folder = open_folder(path, storage)
        self.format, self.pattern, self.on_change, self.on_bad_file = file_format, pattern, on_change, on_bad_file
        self.grace_ms = int(check_number("grace_seconds", grace_seconds, 0, optional=False) * 1000)
        settle = check_number("settle_seconds", settle_seconds, 0)
        self.settle_ms = self.folder.settle_ms if settle is None else int(settle * 1000)
        self.name = f"files:{self.folder.uri}"
        self.passed_over: tuple[str, ...] = ()
        self._first_seen = dict[ListedFile, tuple[int, float]]()
        self._same = set[tuple[str, str]]()
        self._planned = dict[str, ListedFile]()
        self._refused = set[str]()
        self._open: tuple[tuple[str, str, int], _FileReader] | None = None
        if file_format is None and has_supported_extension(pattern):
            kind_of(pattern)

    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the files for the next batch.

        Args:
            position: The position of an earlier plan, or '' for the first batch.
            limits: Limits of the batch. Files are chosen up to `limits.bytes`, but at least one. A larger file is read
                in several batches.

        Returns:
            The files, or None if all files were read.

        Raises:
            SourceLost: A file was rewritten after it was read, a file was removed before it was read to its end, or the
                position belongs to another source.
            CallError: The folder does not exist.
            SourceUnavailable: The folder existed before and is missing now, or a file system does not respond.
        """
        now_ms = _now_ms()
        read_files = ReadFiles.parse(position, self.folder.uri)
        all_files, ready = self._list_files(now_ms)
        new, unchanged = self._unread_files(read_files, ready)
        new = self._move_partial_first(read_files, new, all_files)
        chosen, size = list[ListedFile](), 0
        for file in new:
            if chosen and size + file.size > limits.bytes:
                break
            chosen.append(file)
            size += file.size
        if not chosen:
            return None
        before = read_files.remove_departed_files(
            all_files, list(self.folder.unreadable), now_ms, self.grace_ms
        ).mark_as_read(unchanged)
        after = replace(before.mark_as_read(chosen), partial=None)
        left_ms = min((file_.time_ms for file_ in new[len(chosen) :]), default=now_ms)
        return Planned(_BatchPlan(before, tuple(chosen), limits, now_ms, left_ms), after.text())

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read the planned files.

        Reading stops when the batch reaches its limits.

        Args:
            planned: The result of `plan`.
            columns: The columns of the table, whose types text is converted to.
            unknown: True to also return columns that the table does not have.

        Yields:
            Rows, and bad lines. The last part has the position that was reached.

        Raises:
            SourceChanged: A file was deleted or rewritten since it was planned.
            SourceUnavailable: The file system does not respond.
            EngineError: An Avro file has a codec whose package is not installed.
            DataError: A file is damaged or cannot be read, and on_bad_file is 'fail'.
            ColumnError: A file lacks a key column, or has columns that cannot be read, and on_bad_file is 'fail'.
            TooManyBadRows: A file has more bad rows than the limits allow.
        """
        last: Part | None = None
        for part in self._read_files(cast(_BatchPlan, planned.what), columns, unknown):
            if last is not None:
                yield last
            last = part
        if last is not None:
            yield last

    def _read_files(self, work: _BatchPlan, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        limits, rows, size = work.limits, 0, 0
        entries = dict[str, ReadFile]()
        self._planned, self._refused = {shown(file.name): file for file in work.files}, set()

        def position(partial: tuple[ListedFile, _FileReader] | None = None) -> str:
            unread_times = [file.time_ms for file in work.files if file.name not in entries]
            read_times = [file.time_ms for file in work.files if file.name in entries and file.time_ms <= work.now_ms]
            hudi_ms = max([work.before.hudi_ms, *(time - self.grace_ms for time in read_times)])
            hudi_ms = max(0, min([hudi_ms, work.left_ms, *unread_times]))
            read_entries = {**work.before.seen, **entries}
            reached = replace(work.before, seen=read_entries, partial=None, hudi_ms=hudi_ms)
            if partial is not None:
                file, reader = partial
                digest = self.folder.digest(file)
                partial_read = PartiallyReadFile(file.name, file.stamp, reader.offset, reader.line, digest)
                reached = replace(reached, partial=partial_read)
            return reached.text()

        for number, file in enumerate(work.files):
            if number and (rows >= limits.rows or size >= limits.bytes):
                yield Part(pa.table({}), position=position())
                return
            decoder = FileRows(file.name, columns, unknown, limits.bad_rows)
            reader: _FileReader | None = None
            before = rows
            try:
                reader = self._open_reader(file, work.before, columns, limits.bytes)
                while file.name not in self._refused:
                    part = reader.next(decoder, limits.bytes - size, limits.rows - rows)
                    if part is None:
                        break
                    size, rows = size + reader.size, rows + len(part.rows) + len(part.bad)
                    full = rows >= limits.rows or size >= limits.bytes
                    if full and not reader.ended():
                        self.folder.require_same(file)
                        self._open, reader = ((file.name, file.stamp, reader.offset), reader), None
                        yield replace(part, position=position((file, self._open[1])))
                        return
                    yield part
                self.folder.require_same(file)
                digest = self.folder.digest(file)
            except (HoodooError, OSError) as problem:
                if isinstance(problem, OSError):
                    problem = unreadable(file.name, problem)
                if self.on_bad_file == "fail" or type(problem) not in (DataError, ColumnError):
                    raise problem from None
                yield Part(pa.table({}), bad_row_of_file(file.name, file.stamp, problem), bytes=file.size)
                rows, digest = before + 1, ""
            else:
                yield Part(pa.table({}), bytes=file.size)
            finally:
                if reader is not None:
                    reader.close()
            entries[file.name] = ReadFile(file.stamp, digest)
        yield Part(pa.table({}), position=position())

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Create the quarantine row of a rejected file.

        Args:
            origin: Path of the file: the `origin` of the part whose columns do not match.
            problem: The error that describes the mismatch.

        Returns:
            A row for the file, with the schema `BAD`. None if on_bad_file is 'fail': the error then stops the job.
        """
        file = self._planned.get(origin)
        if file is None or self.on_bad_file == "fail":
            return None
        self._refused.add(file.name)
        return bad_row_of_file(file.name, file.stamp, problem)

    def _open_reader(self, file: ListedFile, taken: ReadFiles, columns: pa.Schema, record_max: int) -> _FileReader:
        # If an earlier batch read only a part of the file, reading continues there.
        partial = taken.partial if taken.partial and self._has_same_content(file, taken.partial) else None
        offset, line = (partial.offset, partial.line) if partial else (0, 0)
        open_reader, self._open = self._open, None
        if open_reader is not None:
            if open_reader[0] == (file.name, file.stamp, offset) and offset:
                return open_reader[1]
            open_reader[1].close()
        return _FileReader(self.folder, file, self.format or kind_of(file.name), columns, offset, line, record_max)

    def _move_partial_first(
        self, taken: ReadFiles, new: list[ListedFile], all_files: list[ListedFile]
    ) -> list[ListedFile]:
        # Raises SourceLost if the partially read file is missing or changed.
        partial = taken.partial
        if partial is None:
            return new
        file = next((listed_file for listed_file in all_files if listed_file.name == partial.name), None)
        if file is not None and (self._has_same_content(file, partial) or self.on_change == "again"):
            return [file, *(listed_file for listed_file in new if listed_file.name != file.name)]
        event = "was rewritten" if file else "was removed"
        raise SourceLost(
            f"File {printable(partial.name)} of {printable(self.folder.uri)} {event} before it was completely "
            "read. Restore the file, or reset the job.",
            file=partial.name,
        )

    def _unread_files(self, taken: ReadFiles, ready: list[ListedFile]) -> tuple[list[ListedFile], list[ListedFile]]:
        # The second list has the files with a new time but the content that was read. Raises SourceLost if a file was
        # rewritten and on_change is 'fail'.
        new, unchanged = list[ListedFile](), list[ListedFile]()
        for file in taken.new(ready):
            entry = taken.seen.get(file.name)
            if entry is None or entry.gone_ms:
                new.append(file)
            elif self._has_same_content(file, entry):
                unchanged.append(file)
            elif self.on_change == "fail":
                raise SourceLost(
                    f"File {printable(file.name)} of {printable(self.folder.uri)} was rewritten after it was "
                    "read. Write changes to files with other names, or pass on_change='again' (--on-change "
                    "again) to read rewritten files again.",
                    file=file.name,
                )
            else:
                new.append(file)
        return new, unchanged

    def _has_same_content(self, file: ListedFile, read: ReadFile | PartiallyReadFile) -> bool:
        # Only small files have a digest of their content for this comparison. A large file with another time counts as
        # changed.
        if file.stamp == read.stamp or (file.name, file.stamp) in self._same:
            return True
        is_equal = bool(read.digest) and read.digest == self.folder.digest(file)
        if is_equal:
            self._same.add((file.name, file.stamp))
        return is_equal

    def lag(self, position: str) -> SourceLag:
        """Count the unread files of the folder.

        Args:
            position: The position of an earlier plan, or '' for the beginning.

        Returns:
            The number of files, and the age of the oldest file.
        """
        now_ms = _now_ms()
        taken = ReadFiles.parse(position, self.folder.uri)
        all_files, ready = self._list_files(now_ms, settle_ms=0)
        new = [
            listed_file for listed_file in taken.new(ready) if (listed_file.name, listed_file.stamp) not in self._same
        ]
        unread = [name for name in self.folder.unreadable if name not in taken.seen]
        waiting = (
            len(new)
            + len(unread)
            + (taken.partial is not None and all(taken.partial.name != listed_file.name for listed_file in new))
        )
        return SourceLag(waiting, "files", max(0.0, (now_ms - new[0].time_ms) / 1000) if new else 0.0)

    def position_at(self, start: str) -> str:
        """Convert a start point such as 'latest' to a position.

        Args:
            start: 'earliest' (no file counts as read), 'latest' (all current files count as read), a time (files
                modified before it count as read), or a position. The position of another folder is applied to this
                folder, for use after a folder was moved.

        Returns:
            The position.

        Raises:
            OptionError: `start` is not one of these values.
            SourceLost: The position belongs to another source.
        """
        if start == EARLIEST:
            return ReadFiles(self.folder.uri).text()
        if start == LATEST:
            return self._position_before(None).text()
        if (moment := parse_time_ms(start)) is not None:
            return self._position_before(max(0, moment)).text()
        if start.startswith("{"):
            return replace(ReadFiles.parse(start), folder=self.folder.uri).text()
        return super().position_at(start)

    def _position_before(self, time: int | None) -> ReadFiles:
        # `time` is in ms since 1970. None: all files that no longer grow count as read.
        now_ms = _now_ms()
        all_files, ready = self._list_files(now_ms)
        old_files = ready if time is None else [listed_file for listed_file in all_files if listed_file.time_ms < time]
        hudi_ms = (
            time
            if time is not None
            else max(0, max((listed_file.time_ms for listed_file in old_files), default=0) - self.grace_ms)
        )
        taken = ReadFiles(self.folder.uri, hudi_ms=hudi_ms).mark_as_read(old_files)
        return taken.remove_departed_files(all_files, list(self.folder.unreadable), now_ms, self.grace_ms)

    def from_hudi(self, checkpoint: str) -> str:
        """Convert a checkpoint of Hudi's streamer to a position.

        Args:
            checkpoint: Modification time of the newest file that the streamer read, in ms since 1970.

        Returns:
            The position after all files modified up to that time.

        Raises:
            OptionError: `checkpoint` is not such a time.
        """
        if not checkpoint.isascii() or not checkpoint.isdigit():
            raise OptionError(
                f"Checkpoint of Hudi's streamer is invalid: expected a time in ms, got {printable(checkpoint)}.",
                option="checkpoint",
            )
        return self._position_before(int(checkpoint) + 1).text()

    def to_hudi(self, position: str) -> str:
        """Convert a position to a checkpoint of Hudi's streamer.

        Args:
            position: The position of a plan.

        Returns:
            The modification time up to which all files were read, in ms since 1970. '' if no file was read.
        """
        return ReadFiles.parse(position).to_hudi()

    def __repr__(self) -> str:
        return f"<files of {self.folder.uri}>"

    def _list_files(self, now_ms: int, settle_ms: int | None = None) -> tuple[list[ListedFile], list[ListedFile]]:
        # Ready files match the pattern and no longer change.
        settle = self.settle_ms if settle_ms is None else settle_ms
        all_files, ready, unknown_formats = list[ListedFile](), list[ListedFile](), list[str]()
        first_seen = dict[ListedFile, tuple[int, float]]()
        clock = time.monotonic()
        for file in self.folder.files():
            all_files.append(file)
            if not file.size or any(part[:1] in "._" for part in file.name.split("/")):
                continue
            if not fnmatch.fnmatchcase(file.name, self.pattern):
                continue
            if self.format is None and not has_supported_extension(file.name):
                unknown_formats.append(file.name)
            elif file.changed_ms <= now_ms - settle or not settle:
                ready.append(file)
            else:  # its time may be wrong, so this process also measures how long the file stays unchanged
                changed, since = self._first_seen.get(file, (file.changed_ms, clock))
                since = since if changed == file.changed_ms else clock
                first_seen[file] = (file.changed_ms, since)
                if clock - since >= settle / 1000:
                    ready.append(file)
        self._first_seen = first_seen
        self.passed_over = tuple(sorted({*unknown_formats, *self.folder.unreadable}))
        return all_files, ready


class _FileReader:
    """Reader of one open file.

    Attributes:
        offset: The part of the file that was read: decoded bytes of text, or rows of Parquet and Avro.
        line: The number of lines of text that were read.
        size: Size of the newest block in bytes: the larger one of its decoded text and its rows.
    """

    def __init__(
        self, folder: Folder, file: ListedFile, kind: str, columns: pa.Schema, offset: int, line: int, record_max: int
    ) -> None:
        self._file, self._kind, self.size = file, kind, 0
        self._raw = folder.open(file)
        try:
            self._blocks = self._open_blocks(kind, columns, offset, line, record_max)
        except BaseException:
            self._raw.close()
            raise

    def _open_blocks(
        self, kind: str, columns: pa.Schema, offset: int, line: int, record_max: int
    ) -> TextBlocks | RowBatches:
        compression = compression_of(self._file.name)
        with self._add_file_to_errors():
            text: Any = pa.input_stream(self._raw, compression=compression) if compression else self._raw
            if kind in ("json", "csv"):
                return TextBlocks(text, kind == "csv", offset, line, record_max)
            source = pa.BufferReader(text.read()) if compression else text
            return RowBatches(source, kind, columns, offset)

    @property
    def offset(self) -> int:
        return self._blocks.offset

    @property
    def line(self) -> int:
        return self._blocks.line

    def next(self, decoder: FileRows, bytes_max: int, rows_max: int) -> Part | None:
        # Returns None at the end of the file.
        line = self.line
        with self._add_file_to_errors():
            block = self._blocks.next(min(bytes_max, _BLOCK), rows_max)
            if block is None:
                return None
            if isinstance(block, pa.Table):
                self.size = block.nbytes
                return decoder.table(block)
            assert isinstance(self._blocks, TextBlocks)
            if self._kind == "json":
                part = decoder.json(block, line)
            else:
                header = self._blocks.header
                part = decoder.csv(header, block, line - self._blocks.count_line_ends(header))
            self.size = max(len(block), part.rows.nbytes)
            return part

    def ended(self) -> bool:
        with self._add_file_to_errors():
            return self._blocks.ended()

    def close(self) -> None:
        self._raw.close()

    @contextmanager
    def _add_file_to_errors(self) -> Iterator[None]:
        name = self._file.name
        try:
            yield
        except EngineError as problem:
            raise EngineError(f"{printable(name)}: {problem.message}", **{**problem.details, "file": name}) from None
        except (CorruptTable, UnsupportedTable) as problem:
            raise damaged(name, self._kind, problem) from None
        except HoodooError as problem:
            if type(problem) is DataError and "file" not in problem.details:
                raise damaged(name, self._kind, problem) from None
            raise
        except OSError as problem:
            if problem.errno is not None:
                raise unreadable(name, problem) from None
            raise damaged(name, self._kind, problem) from None
        except Exception as problem:
            raise damaged(name, self._kind, problem) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__ = ["Files"]
