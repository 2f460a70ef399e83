"""A part of a read, which can run anywhere: in a thread, or on Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.format.spellings import Spellings
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


@dataclass(frozen=True)
class RenamedTask(Task):
    """Reads what another task reads, and gives it by the names that its columns were created from.

    Attributes:
        task: The other task.
        spellings: The names.
    """

    task: Task
    spellings: Spellings

    def __call__(self) -> pa.Table:
        """See `Task`."""
        return self.spellings.original_rows(self.task())

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """See `Task`."""
        return map(self.spellings.original_rows, self.task.stream(rows))
