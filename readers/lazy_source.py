"""Interface of a read for lazy datasets and frames: a schema, rows, and a restriction to a query's columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.task import Task

T = TypeVar("T")


class LazySource(Protocol):
    """Interface of a read that reads on demand. `Rows` implements it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def tables(self, rows: int = ...) -> Iterator[pa.Table]:
        """Read the rows in tables of about `rows` rows."""

    def count(self) -> int:
        """Count the rows."""

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> LazySource:
        """Return this read for a query that uses only `columns`, and only rows for which `tree` is true.

        Other columns and rows may be left out or included.
        """

    def _each_task(self) -> Iterator[Task]:
        """Yield the tasks of the read."""

    def _guarded(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. Errors are converted to the errors of a read."""
