"""A folder, or a prefix of a bucket, into which others put files: each file is read once, whole."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from hoodoo.arguments import number_from, one_of
from hoodoo.errors import OptionError, SourceLost
from hoodoo.redact import printable
from hoodoo.sources.file_rows import damaged, file_rows
from hoodoo.sources.folders import Folder, Listed, open_folder
from hoodoo.sources.places import EARLIEST, LATEST, time_ms
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag
from hoodoo.sources.taken_files import TakenFiles
from hoodoo.writers.batches.row_files import compression_of, is_file_name, kind_of

_KINDS = ("json", "csv", "parquet", "avro")
_SPELLINGS = {"jsonl": "json", "ndjson": "json", "json lines": "json"}


class Files(Source):
    """The files of a folder, in any depth.

    A file is taken once, as a whole, in the order of times and then of names. Names that begin with '.' or '_', empty
    files and files that are still growing are left for later or for good.

    Attributes:
        name: 'files:' and the address of the folder.
        passed_over: Files whose names do not tell what they hold, as of the newest look.
    """

    reads_ahead = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        pattern: str = "*",
        grace_s: float = 3600.0,
        settle_s: float | None = None,
        on_change: str = "fail",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Name a folder. Nothing is read yet.

        Args:
            path: A folder of this machine, or s3://bucket/prefix.
            format: What all files hold: 'json' (a JSON object a line), 'csv' (with a header), 'parquet' or 'avro'. None
                (default): what the name of each says, as `trips.jsonl.gz` does.
            pattern: Which files, by their paths below the folder: '*' stands for any signs, '/' among them. Default:
                all.
            grace_s: For how long after the youngest file that was taken an older one may still appear, in seconds.
                Files are remembered by name for so long. Default: an hour.
            settle_s: For how long a file must not have changed, in seconds. None (default): 2 in a folder of this
                machine, 0 on S3, where an object appears whole.
            on_change: What to do about a file that is written anew within the grace: 'fail' (default) stops the job,
                'again' reads it once more.
            storage: For S3, as `hoodoo.open` takes it.

        Raises:
            OptionError: An argument does not have one of the values above.
            CallError: The path is none.
        """
        wanted = None if format is None else _SPELLINGS.get(str(format).lower(), format)
        if wanted is not None:
            one_of("format", wanted, _KINDS)
        one_of("on_change", on_change, ("fail", "again"))
        if not isinstance(pattern, str) or not pattern:
            raise OptionError(f"pattern takes a text such as '*.jsonl', got {printable(pattern)}.", option="pattern")
        self.folder: Folder = open_folder(path, storage)
        self.format, self.pattern, self.on_change = wanted, pattern, on_change
        self.grace_ms = int(number_from("grace_s", grace_s, 0, optional=False) * 1000)
        settle = number_from("settle_s", settle_s, 0)
        self.settle_ms = self.folder.settle_ms if settle is None else int(settle * 1000)
        self.name = f"files:{self.folder.uri}"
        self.passed_over: tuple[str, ...] = ()
        if wanted is None and is_file_name(pattern):
            kind_of(pattern)

    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the oldest files that were not taken.

        Args:
            position: The position of an earlier plan; '' for none.
            limits: The files have at most `limits.bytes` together; one file may have more.

        Returns:
            The files, or None where there is no new one.

        Raises:
            SourceLost: A file was written anew after it was read, or the position is that of another source.
            CallError: There is no such folder.
            SourceUnavailable: There was one, and it is gone.
        """
        taken, now_ms = TakenFiles.of(position), _now_ms()
        new = taken.new(self._files(now_ms))
        self._require_unchanged(taken, new)
        chosen, size = list[Listed](), 0
        for file in new:
            if chosen and size + file.size > limits.bytes:
                break
            chosen.append(file)
            size += file.size
        if not chosen:
            return None
        after = taken.and_these(chosen, new[len(chosen) :], now_ms, self.grace_ms)
        return Planned((tuple(chosen), limits.bad_rows), after.text())

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read files one by one.

        Args:
            planned: What `plan` gave.
            columns: The columns of the table, as text is to be read.
            unknown: Are columns wanted that `columns` does not have?

        Yields:
            The rows of a file, and what in it is none.

        Raises:
            SourceChanged: A file was deleted or written anew since it was planned.
            EngineError: A file of Avro has a codec whose package is not installed.
            DataError: A file is not what its name says, or is damaged.
            TooManyBadRows: A file has more bad rows than the plan was told.
        """
        files, bad_max = cast("tuple[tuple[Listed, ...], int]", planned.what)
        for file in files:
            data = _decompressed(file.name, self.folder.content(file))
            kind = self.format or kind_of(file.name)
            yield replace(file_rows(file.name, kind, data, columns, unknown, bad_max), bytes=file.size)

    def lag(self, position: str) -> SourceLag:
        """Count the files that wait, those that are still growing among them.

        Args:
            position: How far the folder was read.

        Returns:
            How many files there are, and for how long the oldest has been waiting.
        """
        now_ms = _now_ms()
        new = TakenFiles.of(position).new(self._files(now_ms, settle_ms=0))
        return SourceLag(len(new), "files", max(0.0, (now_ms - new[0].time_ms) / 1000) if new else 0.0)

    def position_at(self, place: str) -> str:
        """Look a place up.

        Args:
            place: 'earliest', 'latest' (all files that are there count as taken), a time (older files do), or a
                position.

        Returns:
            The position.

        Raises:
            OptionError: It is none of these.
            SourceLost: The position is that of another source.
        """
        if place == EARLIEST:
            return TakenFiles().text()
        if place == LATEST:
            now_ms = _now_ms()
            return TakenFiles().and_these(self._files(now_ms), [], now_ms, self.grace_ms).text()
        if (moment := time_ms(place)) is not None:
            return TakenFiles(max(0, moment)).text()
        return super().position_at(place)

    def from_hudi(self, place: str) -> str:
        """Read a place of Apache Hudi's streamer.

        Args:
            place: The time of the youngest file that it took, in ms since 1970.

        Returns:
            The position after all files of that time.

        Raises:
            OptionError: It is no such time.
        """
        if not place.isascii() or not place.isdigit():
            raise OptionError(f"{printable(place)} is no time in ms, as Hudi's streamer has it.", option="place")
        return TakenFiles(int(place) + 1).text()

    def to_hudi(self, position: str) -> str:
        """Spell a position as Apache Hudi's streamer does.

        Args:
            position: The position of a plan.

        Returns:
            The time up to which all files were taken, in ms since 1970; '' for none.
        """
        return TakenFiles.of(position).to_hudi()

    def __repr__(self) -> str:
        return f"<files of {self.folder.uri}>"

    def _files(self, now_ms: int, settle_ms: int | None = None) -> list[Listed]:
        settled = now_ms - (self.settle_ms if settle_ms is None else settle_ms)
        found, odd = list[Listed](), list[str]()
        for file in self.folder.files():
            if not file.size or any(part[:1] in "._" for part in file.name.split("/")):
                continue
            if not fnmatch.fnmatchcase(file.name, self.pattern):
                continue
            if self.format is None and not is_file_name(file.name):
                odd.append(file.name)
            elif file.time_ms <= settled or file.time_ms > now_ms:  # a date ahead of the clock says nothing
                found.append(file)
        self.passed_over = tuple(sorted(odd))
        return found

    def _require_unchanged(self, taken: TakenFiles, new: list[Listed]) -> None:
        changed = next((file for file in new if file.name in taken.seen), None)
        if changed and self.on_change == "fail":
            raise SourceLost(
                f"{printable(changed.name)} in {printable(self.folder.uri)} was read already, and was written anew "
                "since. Put changes into files of other names; or pass on_change='again' (--on-change again), and it "
                "is read once more.",
                file=changed.name,
            )


def _decompressed(name: str, data: pa.Buffer) -> pa.Buffer:
    compression = compression_of(name)
    if compression is None:
        return data
    try:
        with pa.input_stream(pa.BufferReader(data), compression=compression) as source:
            return pa.py_buffer(source.read())
    except OSError as problem:
        raise damaged(name, compression, problem) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__ = ["Files"]
