"""Lazy scanner, which reads rows on demand.

pyarrow's own Scanner prefetches in Arrow threads. If the rows come from Python, and the process exits before all rows
are read, these threads abort the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds


class LazyScanner:
    """Lazy scanner, which reads rows on demand.

    It has the methods of pyarrow's Scanner. Each call reads the rows again.

    Args:
        schema: The columns that the scan returns.
        dataset_schema: The columns of the dataset.
        batches: Function that reads the rows and returns an iterator of record batches.
    """

    def __init__(
        self, schema: pa.Schema, dataset_schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        self._schema, self._dataset_schema, self._batches = schema, dataset_schema, batches

    @property
    def projected_schema(self) -> pa.Schema:
        return self._schema

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._dataset_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(), self._schema)

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._batches())

    def head(self, num_rows: int) -> pa.Table:
        batches, left = list[pa.RecordBatch](), num_rows
        for batch in self._batches() if num_rows > 0 else ():
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(batches, self._schema)

    def take(self, indices: pa.Array) -> pa.Table:
        return ds.InMemoryDataset(self.to_table()).take(indices)
