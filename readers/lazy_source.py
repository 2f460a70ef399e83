"""Interface of reads that return only the columns and rows that a query needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.task import Task

T = TypeVar("T")


class LazySource(Protocol):
    """Interface of a read that runs on demand, such as a scan or a change feed."""

    @property
    def schema(self) -> pa.Schema: ...

    def tables(self, rows: int = ...) -> Iterator[pa.Table]:
        """Read the rows as Arrow tables of limited size."""

    def count(self) -> int: ...

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> LazySource:
        """Return a read that contains at least the columns `columns` and the rows for which `tree` is true.

        The result may contain further columns and rows, because the query filters them itself.

        """

    def _each_task(self) -> Iterator[Task]:
        """Yield the tasks of the read one by one."""

    def _convert_errors(self, work: Callable[[], T]) -> T:
        """Call `work`, and convert its exceptions to the errors of a read, such as SnapshotExpired."""
