"""Files that a job has taken from a folder.

A file is identified by its path in the folder and by its stamp. The stamp contains the size and the modification time,
or the ETag of an object. Times do not show whether a file is new: clocks are changed, files are moved, and their status
changes. The position therefore lists every file that was read, as long as it is in the folder, and for a grace period
after that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hoodoo.errors import SourceLost
from hoodoo.redact import printable
from hoodoo.sources.folders import ListedFile

_KIND = "files"


class ReadFile(NamedTuple):
    """File that a job has read.

    Attributes:
        stamp: Stamp of the file when it was read: it differs after the file is rewritten.
        digest: Digest of the content of a small file. '' for other files.
        gone_ms: Time at which the file was first missing in the folder, in ms since 1970. 0: the file exists.
    """

    stamp: str
    digest: str = ""
    gone_ms: int = 0


class PartiallyReadFile(NamedTuple):
    """File that a job has read partially.

    Attributes:
        name: Path of the file, relative to the folder.
        stamp: Stamp of the file: it differs after the file is rewritten.
        offset: The part that was read: decoded bytes of text, or rows of Parquet and Avro.
        line: Number of lines of text before the offset.
        digest: Digest of the content of a small file. '' for other files.
    """

    name: str
    stamp: str
    offset: int
    line: int
    digest: str = ""


@dataclass(frozen=True)
class ReadFiles:
    """Files that a job has taken from a folder.

    Attributes:
        folder: Address of the folder. '' in positions of earlier versions, which did not record it.
        seen: The files that were read, by path.
        partial: The partially read file, or None.
        before_ms: Files last changed before this time count as read, in ms since 1970. 0, except in positions of
            earlier versions.
        hudi_ms: Modification time before which all files were read, in ms since 1970. It is used for checkpoints of
            Apache Hudi's streamer.
    """

    folder: str = ""
    seen: Mapping[str, ReadFile] = field(default_factory=dict)
    partial: PartiallyReadFile | None = None
    before_ms: int = 0
    hudi_ms: int = 0

    @classmethod
    def parse(cls, position: str, folder: str = "") -> ReadFiles:
        """Parse the list of read files.

        Args:
            position: The position, or '' for a folder that was never read.
            folder: Address of the folder that the position must belong to. '': any folder.

        Raises:
            SourceLost: The position belongs to another source, or to another folder.
        """
        if not position:
            return cls(folder)
        taken = cls._parse(position)
        if folder and taken.folder and taken.folder != folder:
            raise SourceLost(
                f"The position belongs to another folder: expected {printable(folder)}, got {printable(taken.folder)}. "
                "To read all its files, give the job another name. If the folder was moved, continue in its new folder "
                "with job.reset(job.position(), ...), which keeps the list of files that were read.",
                position=position[:1000],
            )
        return replace(taken, folder=folder) if folder else taken

    @classmethod
    def _parse(cls, position: str) -> ReadFiles:
        try:
            content: dict[str, Any] = json.loads(position)
            if content["source"] == _KIND and "folder" in content:
                seen = {
                    str(name): ReadFile(str(fields[0]), str(fields[1]), int(fields[2]))
                    for name, fields in content["seen"].items()
                }
                partial = content.get("partial")
                return cls(
                    str(content["folder"]),
                    seen,
                    PartiallyReadFile(
                        str(partial[0]), str(partial[1]), int(partial[2]), int(partial[3]), str(partial[4])
                    )
                    if partial
                    else None,
                    hudi_ms=int(content["hudi"]),
                )
            if content["source"] == _KIND and content["upto"] >= 0:
                seen = {str(name): ReadFile(str(stamp)) for name, (_, stamp) in content["seen"].items()}
                return cls("", seen, None, int(content["upto"]), int(content["upto"]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass
        raise SourceLost(
            f"The position belongs to another source: expected a position of a folder of files, got "
            f"{printable(position, 200)}. To read all its files, give the job another name.",
            position=position[:1000],
        )

    def text(self) -> str:
        content: dict[str, Any] = {
            "source": _KIND,
            "folder": self.folder,
            "hudi": self.hudi_ms,
            "seen": {name: list(self.seen[name]) for name in sorted(self.seen)},
        }
        if self.partial:
            content["partial"] = list(self.partial)
        return json.dumps(content, separators=(",", ":"))

    def to_hudi(self) -> str:
        """Return a checkpoint for Hudi's streamer.

        It is a time before which all files were read. The streamer reads every newer file. It may read some files
        again, but misses none.
        """
        return str(self.hudi_ms - 1) if self.hudi_ms else ""

    def is_taken(self, file: ListedFile) -> bool:
        return file.name in self.seen or max(file.time_ms, file.changed_ms) < self.before_ms

    def new(self, listed: Iterable[ListedFile]) -> list[ListedFile]:
        """Select new and rewritten files."""
        return sorted(
            file
            for file in listed
            if (entry.stamp != file.stamp if (entry := self.seen.get(file.name)) else not self.is_taken(file))
        )

    def mark_as_read(self, files: Collection[ListedFile]) -> ReadFiles:
        digests = {file.name: self.seen[file.name].digest for file in files if file.name in self.seen}
        entries = {file.name: ReadFile(file.stamp, digests.get(file.name, "")) for file in files}
        return replace(self, seen={**self.seen, **entries})

    def remove_departed_files(
        self, listed: Collection[ListedFile], unread: Sequence[str], now_ms: int, grace_ms: int
    ) -> ReadFiles:
        """Remove files that left the folder long ago.

        Args:
            listed: All files in the folder.
            unread: Files and subfolders (with a `/` at the end) that could not be inspected. They and the files in
                these subfolders count as existing.
            now_ms: The current time, in ms since 1970.
            grace_ms: Time for which a file is remembered after it left the folder, in ms.

        Returns:
            The updated position. Files that count as read because of `before_ms` are now listed by name.
        """
        there = {file.name for file in listed}
        seen = dict[str, ReadFile]()
        for name, entry in self.seen.items():
            if name in there or name.startswith(tuple(unread)):
                seen[name] = entry._replace(gone_ms=0)
            elif not entry.gone_ms or entry.gone_ms > now_ms:
                seen[name] = entry._replace(gone_ms=now_ms)
            elif now_ms - entry.gone_ms <= grace_ms:
                seen[name] = entry
        if self.before_ms:
            seen |= {one.name: ReadFile(one.stamp) for one in listed if one.name not in seen and self.is_taken(one)}
        return replace(self, seen=seen, before_ms=0)
