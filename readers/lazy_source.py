"""Lazy source of rows, which are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.task import Task

T = TypeVar("T")


class LazySource(Protocol):
    """Interface of a read that runs on demand."""

    @property
    def schema(self) -> pa.Schema: ...

    def tables(self, rows: int = ...) -> Iterator[pa.Table]:
        """Read the rows as Arrow tables of limited size."""

    def count(self) -> int: ...

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> LazySource:
        """Restrict the read to some columns and rows.

        The result has at least `columns`, and the rows for which `tree` is true. The result may contain further columns
        and rows, because the query filters them itself.
        """

    def _each_task(self) -> Iterator[Task]:
        """List the tasks of the read one by one."""

    def _convert_errors(self, work: Callable[[], T]) -> T:
        """Convert the exceptions of a call to read errors."""
