"""Collector of bad messages and bad lines of a source, up to a maximum number."""

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
        kept: Function that returns the form of a message for the quarantine, from its number and its bytes. None: the
            original bytes are stored.
    """

    def __init__(self, where: str, most: int, place: Callable[[int, bytes], str]) -> None:
        """Create an empty collector.

        Args:
            where: The file or the topic, for errors.
            most: The maximum number of bad messages. One more raises TooManyBadRows.
            place: Returns the location of a message from its number and bytes. The location must be equal each time the
                message is read, and differ for other bytes.
        """
        self.where, self.most, self.place = where, most, place
        self.kept: Callable[[int, bytes], bytes] | None = None
        self.found: list[dict[str, object]] = []

    def note(self, number: int, detail: str, payload: bytes, reason: str = "decode") -> None:
        """Add a bad message. Raises TooManyBadRows, whose `details` contain all bad messages so far as `found`."""
        kept = self.kept(number, payload) if self.kept else None
        self.note_at(self.place(number, payload), detail, payload, reason, kept)

    def note_at(
        self, place: str, detail: str, payload: bytes, reason: str = "decode", kept: bytes | None = None
    ) -> None:
        """Add a bad message with the location `place`. Raises TooManyBadRows."""
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
        """Return all bad messages, with the schema BAD.

        The schema is REPLAYABLE if the quarantine stores one of the messages in another form.
        """
        replayable = any(one["kept"] is not None for one in self.found)
        return pa.Table.from_pylist(self.found, REPLAYABLE if replayable else BAD)


def said(problem: BaseException) -> str:
    """Return the message of an error in one line."""
    return problem.message if isinstance(problem, HoodooError) else str(problem).partition("\n")[0]
