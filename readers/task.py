"""Tasks, which read independent parts of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.format.name_mapping import NameMapping
from hoodoo.timeline.slots.slot import DataFile


class Task(ABC):
    """Task that reads an independent part of a table.

    A task is a callable without arguments. It can be pickled, so that Spark can run it.
    """

    @abstractmethod
    def __call__(self) -> pa.Table:
        """Read all rows of the task."""

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """Read the rows of the task as Arrow tables.

        Args:
            rows: The approximate number of rows in a table.

        Yields:
            The next rows.
        """
        yield self()

    @property
    def plain(self) -> DataFile | None:
        """Base file with exactly the rows of the task.

        None if rows must be merged or filtered.
        """
        return None


@dataclass(frozen=True)
class RenamedTask(Task):
    """Task that restores original column names.

    It reads the rows of another task. The original name of a column is its name at its creation.

    Attributes:
        task: The other task.
        name_mapping: The mapping between the names.
    """

    task: Task
    name_mapping: NameMapping

    def __call__(self) -> pa.Table:
        return self.name_mapping.rows_with_original_names(self.task())

    def stream(self, rows: int) -> Iterator[pa.Table]:
        return map(self.name_mapping.rows_with_original_names, self.task.stream(rows))
