"""Lazy polars frame that reads rows on demand.

polars passes the columns, the condition and the number of rows to read. The condition is used here only to prune files.
polars filters the rows by its own rules, which treat NaN as the greatest number.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError
from polars.io.plugins import register_io_source

from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.readers.lazy_source import LazySource
from hoodoo.readers.predicate import from_polars
from hoodoo.readers.predicate.tree import Predicate


def polars_lazy_frame(rows: LazySource) -> pl.LazyFrame:
    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        return _read_frames(rows, with_columns, predicate, n_rows, batch_size or BATCH_ROWS)

    return register_io_source(read, schema=_to_polars(rows.schema.empty_table()).schema, is_pure=True)


def _read_frames(
    rows: LazySource, columns: list[str] | None, predicate: pl.Expr | None, row_limit: int | None, size: int
) -> Iterator[pl.DataFrame]:
    # `row_limit` is the number of rows to read before filtering, or None for all rows.
    schema = rows.schema
    wanted = schema.names if columns is None else columns
    needed = {*wanted} if predicate is None else {*wanted, *predicate.meta.root_names()}
    tree = None if predicate is None or row_limit is not None else _parse_predicate(predicate, schema)
    narrowed = rows._narrowed([name for name in schema.names if name in needed], tree)
    left = row_limit
    for part in narrowed.tables(size if left is None else max(1, min(size, left))):
        if left is not None:
            part = part.slice(0, left)
            left -= part.num_rows
        frame = _to_polars(part)
        yield (frame if predicate is None else frame.filter(predicate)).select(wanted)
        if left == 0:
            return


def _parse_predicate(predicate: pl.Expr, schema: pa.Schema) -> Predicate | None:
    try:
        return from_polars.convert_polars_expression(predicate, schema)
    except (PolarsError, pa.ArrowException):
        return None  # a literal without an Arrow type


def _to_polars(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
