"""A part of a read, which can run anywhere: in a thread, or on Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from hoodoo.timeline.slots.slot import DataFile


class Task(ABC):
    """Reads a part of the rows where it is called.

    It pickles, so that it runs on Spark too.
    """

    @abstractmethod
    def __call__(self) -> pa.Table:
        """Read all rows of the part."""

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """Read the rows of the part in tables, where that saves memory.

        Args:
            rows: About how many rows a table has.

        Yields:
            The next rows.
        """
        yield self()

    @property
    def plain(self) -> DataFile | None:
        """The base file that holds exactly the rows of the part, or None where they have to be merged or filtered."""
        return None
