"""A part of a source that was read, and the next one, which is read while the last one is committed.

One part is read ahead, no more. What was read ahead counts only if the commit before it went through, and if the table
still has the columns that it was read for: else it is thrown away and read anew. This module knows nothing of commits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import TooManyBadRows
from hoodoo.ingestion.reading import Read
from hoodoo.sources.source import Planned


@dataclass(frozen=True)
class Taken:
    """A part of a source.

    Attributes:
        planned: Which part.
        columns: The columns of the table that it was read for.
        found: What it brought, or why that is too bad.
        seconds: How long each phase took.
    """

    planned: Planned
    columns: pa.Schema
    found: Read | TooManyBadRows
    seconds: dict[str, float]


Take = Callable[[str], Taken | None]


class Ahead:
    """What one job has read ahead."""

    def __init__(self, take: Take) -> None:
        """Begin with nothing.

        Args:
            take: What reads the part after a position, or says that there is none.
        """
        self._take = take
        self._thread = ThreadPoolExecutor(1, "hoodoo-ingest-ahead")
        self._key = ""
        self._reading: Future[Taken | None] | None = None

    def begin(self, key: str, position: str) -> None:
        """Begin to read what follows.

        Args:
            key: The position, as the commit before it carries it.
            position: The same, as the source understands it.
        """
        self._key, self._reading = key, self._thread.submit(self._take, position)

    def of(self, key: str, columns: Callable[[], pa.Schema]) -> Taken | None:
        """Wait for what was read ahead, and forget it.

        Args:
            key: The position of the newest commit.
            columns: Looks up the columns of the table now, where something was read ahead.

        Returns:
            The part that follows; None where none was read ahead, or not of these.

        Raises:
            HoodooError: What reading it raised.
        """
        reading, self._reading = self._reading, None
        if reading is None:
            return None
        problem = reading.exception()
        if key != self._key:
            return None
        if problem is not None:
            raise problem
        taken = reading.result()
        return taken if taken is not None and taken.columns.equals(columns(), check_metadata=True) else None

    def wait(self) -> None:
        """Wait until the source is not asked any more."""
        if self._reading is not None:
            self._reading.exception()

    def drop(self) -> None:
        """Wait as well, and throw away what was read ahead."""
        self.wait()
        self._reading = None


__all__ = ["Ahead", "Take", "Taken"]
