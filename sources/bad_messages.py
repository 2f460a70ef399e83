"""Collector of bad messages, which cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hoodoo.errors import HoodooError, TooManyBadRows
from hoodoo.redact import printable
from hoodoo.sources.source import BAD, REPLAYABLE

DETAIL_MAX = 500


class BadMessages:
    """Collector of bad messages, which cannot be decoded.

    kept: Function that encodes a message for the quarantine, from its number and its bytes. None: the quarantine stores
        the original bytes.
    """

    def __init__(self, where: str, most: int, place: Callable[[int, bytes], str]) -> None:
        """Create a collector of bad messages.

        Args:
            where: The name of the file or topic, for errors.
            most: The maximum number of bad messages. One more raises TooManyBadRows.
            place: Function that returns the location of a message in the source from its number and bytes. The location
                must be equal each time the message is read, and differ for other bytes.
        """
        self.where, self.most, self.place = where, most, place
        self.kept: Callable[[int, bytes], bytes] | None = None
        self.found: list[dict[str, object]] = []

    def note(self, number: int, detail: str, payload: bytes, reason: str = "decode") -> None:
        """Add a bad message by its number.

        Raises TooManyBadRows if there are more than the maximum.

        The `details` of the error contain all bad messages so far as `found`.
        """
        kept = self.kept(number, payload) if self.kept else None
        self.add_at_location(self.place(number, payload), detail, payload, reason, kept)

    def add_at_location(
        self, place: str, detail: str, payload: bytes, reason: str = "decode", kept: bytes | None = None
    ) -> None:
        shown_detail = detail.encode(errors="backslashreplace").decode()[:DETAIL_MAX]
        self.found.append({"place": place, "reason": reason, "detail": shown_detail, "payload": payload, "kept": kept})
        if len(self.found) > self.most:
            first = self.found[0]
            raise TooManyBadRows(
                f"{printable(self.where)} has too many bad rows: expected at most {self.most:,}. The first is at "
                f"{first['place']}: {first['detail']}",
                file=self.where,
                bad=len(self.found),
                found=self.table(),
            )

    def table(self) -> pa.Table:
        """Return the bad messages as a table.

        The schema is REPLAYABLE if the quarantine stores at least one message in another encoding than its original
        bytes.
        """
        replayable = any(message["kept"] is not None for message in self.found)
        return pa.Table.from_pylist(self.found, REPLAYABLE if replayable else BAD)


def said(problem: BaseException) -> str:
    return problem.message if isinstance(problem, HoodooError) else str(problem).partition("\n")[0]
