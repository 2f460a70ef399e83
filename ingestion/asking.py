"""The questions of a job to its source. A source may be a user's, so what it answers is looked at before it is used.

It knows the kinds of answers only: what a position or a part means is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from hoodoo.errors import DataError, HoodooError, OptionError
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag


class Asked(Source):
    """A source, whose answers are of the kinds that `Source` says.

    Attributes:
        name: The name of the source; that of its class where it has none.
        source: The source itself.
    """

    def __init__(self, source: Source) -> None:
        """Wrap a source.

        Args:
            source: One of `hoodoo.sources`, or an object with the three methods of one.
        """
        self.source = source
        self.name = str(getattr(source, "name", type(source).__name__))

    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Ask the source what the next commit brings.

        Args:
            position: How far it was read.
            limits: How much the commit takes.

        Returns:
            The part, or None.

        Raises:
            DataError: The source answered something else.
            OptionError: It could not make its answer of what it has.
        """
        with self._named():
            planned = self.source.plan(position, limits)
        if planned is not None and not isinstance(planned, Planned):
            raise self._wrong("plan() returned", planned, "returns a hoodoo.sources.Planned, or None")
        return planned

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Have the source read a part.

        Args:
            planned: What `plan` returned.
            columns: The columns of the table.
            unknown: Are other columns wanted too?

        Yields:
            Rows, and what was none.

        Raises:
            DataError: The source yielded something else.
            OptionError: It could not make a part of what it has.
        """
        with self._named():
            parts: Any = self.source.read(planned, columns, unknown)
            if not isinstance(parts, Iterable) or isinstance(parts, pa.Table):
                raise self._wrong("read() returned", parts, "yields each hoodoo.sources.Part")
            for part in parts:
                if not isinstance(part, Part):
                    raise self._wrong("read() yielded", part, "yields each hoodoo.sources.Part")
                yield part

    def lag(self, position: str) -> SourceLag:
        """Ask the source what is not in the table yet.

        Args:
            position: How far it was read.

        Returns:
            How much waits, and for how long.

        Raises:
            DataError: The source answered something else.
            OptionError: It could not make its answer of what it has.
        """
        with self._named():
            lag = self.source.lag(position)
        if not isinstance(lag, SourceLag):
            raise self._wrong("lag() returned", lag, "returns a hoodoo.sources.SourceLag")
        return lag

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Ask the source to set aside a file whose columns do not match the table.

        Args:
            origin: The `origin` of the part that has the columns.
            problem: The error.

        Returns:
            What the quarantine stores instead of the file, or None if the error stops the job.
        """
        refused = getattr(self.source, "refused", None)
        with self._named():
            return None if refused is None else refused(origin, problem)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn errors of the source into errors that name it. An error of hoodoo goes through."""
        try:
            yield
        except OptionError as problem:
            if "answer" not in problem.details:
                raise
            details = {**problem.details, "source": self.name}
            raise OptionError(f"{printable(self.name)} does not answer: {problem.message}", **details) from problem
        except HoodooError:
            raise
        except Exception as problem:
            raise DataError(
                f"Source {printable(self.name)} failed: {type(problem).__name__}: {printable(str(problem), 500)}. "
                "Nothing of this batch was written.",
                source=self.name,
            ) from problem

    def _wrong(self, what: str, found: object, wanted: str) -> DataError:
        method = what.partition(" ")[0]
        text = f"a {type(found).__name__}" if isinstance(found, (pa.Table, pa.RecordBatch)) else printable(found)
        return DataError(
            f"{printable(self.name)} does not answer as a source does: its {what} {text}, where {method} {wanted}.",
            source=self.name,
        )


__all__ = ["Asked"]
