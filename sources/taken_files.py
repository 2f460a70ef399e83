"""Which files of a folder were taken: the position of a folder, and what is new beside it. Reads no file.

A time alone is no position: of several files of one time a limit may have cut some off, and a file may appear that
began earlier than another one that was taken. So everything older than `upto` counts as taken, and the files since are
named. `upto` follows the youngest file that was taken at a distance, the grace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hoodoo.errors import SourceLost
from hoodoo.redact import printable
from hoodoo.sources.folders import Listed

_KIND = "files"


@dataclass(frozen=True)
class TakenFiles:
    """The files of a folder that were taken.

    Attributes:
        upto: All files that are older, in ms since 1970.
        seen: Time and stamp of the others, by name.
    """

    upto: int = 0
    seen: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, position: str) -> TakenFiles:
        """Read a position. Raises SourceLost where it is none of a folder."""
        if not position:
            return cls()
        try:
            said = json.loads(position)
            seen = {str(name): (int(time), str(stamp)) for name, (time, stamp) in said["seen"].items()}
            if said["source"] == _KIND and said["upto"] >= 0:
                return cls(int(said["upto"]), seen)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise SourceLost(
            f"The application has read another source before: its position {printable(position)} is none of a folder "
            "of files. Give the job another name.",
            position=position[:1000],
        )

    def text(self) -> str:
        """The position: the same text for the same files."""
        seen = {name: list(self.seen[name]) for name in sorted(self.seen)}
        return json.dumps({"source": _KIND, "upto": self.upto, "seen": seen}, separators=(",", ":"))

    def to_hudi(self) -> str:
        """The time up to which all files were taken, in ms since 1970, as Hudi's streamer has it; '' for none.

        It takes what is younger, so that files since `upto` come to it once more, and none is left out.
        """
        return str(self.upto - 1) if self.upto else ""

    def new(self, listed: Iterable[Listed]) -> list[Listed]:
        """The files that were not taken, the oldest first, and what was taken and has been written anew."""
        return sorted(
            file for file in listed if file.time_ms >= self.upto and self.seen.get(file.name, ("", ""))[1] != file.stamp
        )

    def and_these(self, taken: Sequence[Listed], left: Sequence[Listed], now_ms: int, grace_ms: int) -> TakenFiles:
        """Count more files as taken.

        Args:
            taken: The files.
            left: New files that are not taken yet: none of them may fall behind `upto`.
            now_ms: The time. A file that is dated ahead of it moves nothing.
            grace_ms: The distance at which `upto` follows.
        """
        seen = {**self.seen, **{file.name: (file.time_ms, file.stamp) for file in taken}}
        youngest = min(max(time for time, _ in seen.values()), now_ms) if seen else 0
        upto = max(self.upto, min([youngest - grace_ms, *(file.time_ms for file in left)]))
        return TakenFiles(upto, {name: said for name, said in seen.items() if said[0] >= upto})
