"""What a source brings that is no row: gathered while the others are decoded, and not without end."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hoodoo.errors import HoodooError, TooManyBadRows
from hoodoo.redact import printable
from hoodoo.sources.source import BAD, REPLAYABLE

DETAIL_MAX = 500


class BadMessages:
    """The bad messages, or lines, of one part of a source.

    Attributes:
        kept: Makes what the quarantine stores of a message, from its number and its bytes. None: it stores the bytes.
    """

    def __init__(self, where: str, most: int, place: Callable[[int, bytes], str]) -> None:
        """Begin with none.

        Args:
            where: The file or the topic, in words.
            most: With more of them the search ends.
            place: What the number and the bytes of a message say of where it stands: the same whenever it is read, and
                another one for other bytes.
        """
        self.where, self.most, self.place = where, most, place
        self.kept: Callable[[int, bytes], bytes] | None = None
        self.found: list[dict[str, object]] = []

    def note(self, number: int, detail: str, payload: bytes, reason: str = "decode") -> None:
        """Add one. Raises TooManyBadRows, whose `details` have those so far as `found`."""
        kept = self.kept(number, payload) if self.kept else None
        self.note_at(self.place(number, payload), detail, payload, reason, kept)

    def note_at(
        self, place: str, detail: str, payload: bytes, reason: str = "decode", kept: bytes | None = None
    ) -> None:
        """Add one that stands at `place`. Raises TooManyBadRows."""
        said = detail.encode(errors="backslashreplace").decode()[:DETAIL_MAX]
        self.found.append({"place": place, "reason": reason, "detail": said, "payload": payload, "kept": kept})
        if len(self.found) > self.most:
            first = self.found[0]
            raise TooManyBadRows(
                f"{printable(self.where)} has more than {self.most:,} bad rows, the first at {first['place']}: "
                f"{first['detail']}",
                file=self.where,
                bad=len(self.found),
                found=self.table(),
            )

    def table(self) -> pa.Table:
        """All of them, as BAD, or as REPLAYABLE if the quarantine stores one of them in another form."""
        replayable = any(one["kept"] is not None for one in self.found)
        return pa.Table.from_pylist(self.found, REPLAYABLE if replayable else BAD)


def said(problem: BaseException) -> str:
    """What an error says, in one line."""
    return problem.message if isinstance(problem, HoodooError) else str(problem).partition("\n")[0]
