"""Tasks: parts of a read, which can run in a thread or on Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.format.name_mapping import NameMapping
from hoodoo.timeline.slots.slot import DataFile


class Task(ABC):
    """Callable that reads a part of the rows.

    A task can be pickled, so that Spark can run it.
    """

    @abstractmethod
    def __call__(self) -> pa.Table:
        """Read all rows of the part."""

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """Read the rows of the part in tables, if this saves memory. The default reads all rows into one table.

        Args:
            rows: The approximate number of rows in a table.

        Yields:
            The next rows.
        """
        yield self()

    @property
    def plain(self) -> DataFile | None:
        """The base file with exactly the rows of the part, or None if the rows must be merged or filtered."""
        return None


@dataclass(frozen=True)
class RenamedTask(Task):
    """Task that returns the rows of another task with the names that the columns were created from.

    Attributes:
        task: The other task.
        name_mapping: The mapping between the names.
    """

    task: Task
    name_mapping: NameMapping

    def __call__(self) -> pa.Table:
        """See `Task`."""
        return self.name_mapping.original_rows(self.task())

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """See `Task`."""
        return map(self.name_mapping.original_rows, self.task.stream(rows))
