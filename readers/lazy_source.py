"""What lazy forms of rows ask of a read: its columns, and its rows narrowed to what a query needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.task import Task

T = TypeVar("T")


class LazySource(Protocol):
    """A read of which nothing was read yet; `Rows` is one."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def tables(self, rows: int = ...) -> Iterator[pa.Table]:
        """Read the rows, about so many at a time."""

    def count(self) -> int:
        """Count the rows."""

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> LazySource:
        """The same rows, for somebody who looks at `columns` only, and only at rows for which `tree` is true: other
        columns and rows may be left out, and need not be.
        """

    def _each_task(self) -> Iterator[Task]:
        """The parts of the read."""

    def _guarded(self, work: Callable[[], T]) -> T:
        """What `work` gives, with the errors of a read."""
