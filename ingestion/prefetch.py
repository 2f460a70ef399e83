"""Prefetch of the next batch of a job.

At most one batch is prefetched. It is used only if the commit before it succeeded and the columns of the table did not
change. Otherwise the batch is discarded and read again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import TooManyBadRows
from hoodoo.ingestion.reading import SourceBatch
from hoodoo.sources.source import Planned


@dataclass(frozen=True)
class PrefetchedBatch:
    """Batch that is read but not committed yet.

    Attributes:
        planned: The range of the source that the batch contains.
        columns: The columns of the table when the batch was read.
        found: The rows, or the error if there are too many bad rows.
        seconds: Duration of the phases 'plan' and 'read' in seconds.
    """

    planned: Planned
    columns: pa.Schema
    found: SourceBatch | TooManyBadRows
    seconds: dict[str, float]


Take = Callable[[str], PrefetchedBatch | None]


class BatchPrefetcher:
    """Prefetcher for the next batch, in another thread.

    It holds at most one batch.
    """

    def __init__(self, take: Take) -> None:
        """Create a reader without a batch.

        Args:
            take: Function that reads the batch after a source position. It returns None if all rows were read.
        """
        self._take = take
        self._thread = ThreadPoolExecutor(1, "hoodoo-ingest-ahead")
        self._key = ""
        self._reading: Future[PrefetchedBatch | None] | None = None

    def begin(self, key: str, position: str) -> None:
        """Start to read the next batch in another thread.

        Args:
            key: The position, or its digest, that the current commit stores.
            position: The position as the source returned it.
        """
        self._key, self._reading = key, self._thread.submit(self._take, position)

    def of(self, key: str, columns: Callable[[], pa.Schema]) -> PrefetchedBatch | None:
        """Wait for the prefetched batch.

        Args:
            key: The position, or its digest, that the newest commit stores.
            columns: Function that returns the current columns of the table.

        Returns:
            The batch. None if no batch was prefetched, or if the position or the columns have changed.

        Raises:
            HoodooError: The batch could not be read.
        """
        reading, self._reading = self._reading, None
        if reading is None:
            return None
        problem = reading.exception()
        if key != self._key:
            return None
        if problem is not None:
            raise problem
        taken = reading.result()
        return taken if taken is not None and taken.columns.equals(columns(), check_metadata=True) else None

    def wait(self) -> None:
        if self._reading is not None:
            self._reading.exception()

    def drop(self) -> None:
        self.wait()
        self._reading = None


__all__ = ["BatchPrefetcher", "Take", "PrefetchedBatch"]
