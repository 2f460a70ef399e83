"""A part of the rows of a read, which can be read anywhere: in a thread, or on Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from hoodoo.timeline.slot import DataFile


class Task(ABC):
    """Reads a part of the rows where it is called; picklable, so that it runs on Spark as well."""

    @abstractmethod
    def __call__(self) -> pa.Table:
        """All rows of the part."""

    def stream(self, rows: int) -> Iterator[pa.Table]:
        """The same in tables of about `rows` rows, where memory can be saved by that."""
        yield self()

    @property
    def plain(self) -> DataFile | None:
        """The base file whose rows, all of them, are the part's; None where they have to be merged or chosen."""
        return None
