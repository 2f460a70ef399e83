"""One scan of a lazy dataset, which does what pyarrow's Scanner does, on the thread of whoever asks.

pyarrow's own reads ahead on threads of Arrow. Where the rows come from Python, a process that ends before the last of
them was read is aborted then. This one knows batches and their schema, and not where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds


class LazyScanner:
    """A scan of which nothing was read yet. Each call that gives rows reads anew.

    Args:
        schema: The columns that it gives.
        dataset_schema: The columns of the dataset.
        batches: Reads them.
    """

    def __init__(
        self, schema: pa.Schema, dataset_schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        self._schema, self._dataset_schema, self._batches = schema, dataset_schema, batches

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that the scan gives."""
        return self._schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self._dataset_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read batch by batch."""
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Make a reader, which reads batch by batch."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Read into a table."""
        return pa.Table.from_batches(self._batches(), self._schema)

    def count_rows(self) -> int:
        """Count the rows."""
        return sum(batch.num_rows for batch in self._batches())

    def head(self, num_rows: int) -> pa.Table:
        """Read at most so many rows; no more than needed is read."""
        found, left = list[pa.RecordBatch](), num_rows
        for batch in self._batches() if num_rows > 0 else ():
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(found, self._schema)

    def take(self, indices: pa.Array) -> pa.Table:
        """Read the rows at these places."""
        return ds.InMemoryDataset(self.to_table()).take(indices)
