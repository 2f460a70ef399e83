"""Validation of the results of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from hoodoo.errors import DataError, HoodooError, OptionError
from hoodoo.redact import printable
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag


class ValidatedSource(Source):
    """Source whose results are validated by type.

    Attributes:
        name: Name of the source, or the name of its class if it lacks a name.
        source: The wrapped source.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = str(getattr(source, "name", type(source).__name__))

    def plan(self, position: str, limits: Limits) -> Planned | None:
        with self._add_source_to_errors():
            planned = self.source.plan(position, limits)
        if planned is not None and not isinstance(planned, Planned):
            raise self._wrong("plan() must return a hoodoo.sources.Planned or None", planned)
        return planned

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        with self._add_source_to_errors():
            parts: Any = self.source.read(planned, columns, unknown)
            if not isinstance(parts, Iterable) or isinstance(parts, pa.Table):
                raise self._wrong("read() must yield hoodoo.sources.Part objects", parts)
            for part in parts:
                if not isinstance(part, Part):
                    raise self._wrong("read() must yield hoodoo.sources.Part objects", part)
                yield part

    def lag(self, position: str) -> SourceLag:
        with self._add_source_to_errors():
            lag = self.source.lag(position)
        if not isinstance(lag, SourceLag):
            raise self._wrong("lag() must return a hoodoo.sources.SourceLag", lag)
        return lag

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Let the source quarantine a whole file.

        Args:
            origin: The `origin` of the part whose columns do not match the table.
            problem: The error that describes the mismatch.

        Returns:
            The rows that the quarantine stores instead of the file, or None if the error stops the job.
        """
        refused = getattr(self.source, "refused", None)
        with self._add_source_to_errors():
            return None if refused is None else refused(origin, problem)

    @contextmanager
    def _add_source_to_errors(self) -> Iterator[None]:
        # Errors of hoodoo stay unchanged.
        try:
            yield
        except OptionError as problem:
            if "answer" not in problem.details:
                raise
            details = {**problem.details, "source": self.name}
            raise OptionError(
                f"{printable(self.name)} is not a valid source: {problem.message}", **details
            ) from problem
        except HoodooError:
            raise
        except Exception as problem:
            raise DataError(
                f"Source {printable(self.name)} failed: {type(problem).__name__}: {printable(str(problem), 500)}. "
                "Nothing of this batch was written.",
                source=self.name,
            ) from problem

    def _wrong(self, rule: str, found: object) -> DataError:
        text = f"a {type(found).__name__}" if isinstance(found, (pa.Table, pa.RecordBatch)) else printable(found)
        return DataError(
            f"{printable(self.name)} is not a valid source: its {rule}, got {text}.",
            source=self.name,
        )


__all__ = ["ValidatedSource"]
