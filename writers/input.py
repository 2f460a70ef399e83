"""What a caller hands in as rows, as a pyarrow Table: Arrow, pandas, polars, DuckDB, what speaks the Arrow C stream,
and plain Python. Types stay as they come; what the table makes of them is `batch`'s affair.

Every failure is a ColumnError that names the column and, where a value is at fault, its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.storage.redact import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ArrowStream(Protocol):
    """Speaks the Arrow C stream: tables and readers of pyarrow, DataFrames of pandas and polars, relations of DuckDB,
    scans of hoodoo.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """Speaks the Arrow C array: a record batch of any library."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


ArrowLike: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | ArrowArray | DataFrame"
    " | Mapping[str, Iterable[object]] | Sequence[Mapping[str, object]] | Iterator[pa.RecordBatch]"
)
"""Rows as a caller has them. A Spark DataFrame is evaluated once; the others are taken by `to_arrow`."""

_TAKEN = (
    "pass a pyarrow Table, RecordBatch or RecordBatchReader, a pandas, polars or Spark DataFrame, a DuckDB relation, "
    "whatever else has __arrow_c_stream__, a list of dicts, a dict of lists, or record batches one after the other"
)
_PROBLEMS = (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError)
"""What Arrow raises for Python values that it cannot take."""


def to_arrow(data: ArrowLike, index: Sequence[str] = ()) -> pa.Table:
    """`data` as a pyarrow Table. index: the table's columns; an index of a pandas DataFrame that is called so and is no
    column already counts as one. Raises ColumnError.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    module = type(data).__module__.split(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data, index)
    if module == "polars":
        return _of_polars(data)
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        return _streamed(data)
    if hasattr(data, "__arrow_c_array__"):
        return _taken(data, lambda: pa.Table.from_batches([pa.record_batch(data)]))
    if isinstance(data, Mapping):
        return _of_columns(data)
    if isinstance(data, (list, tuple, Iterator)):
        return _of_items(data)
    raise ColumnError(f"Cannot take rows from {type(data).__name__}; {_TAKEN}.", type=type(data).__name__)


def _streamed(data: Any) -> pa.Table:
    return _taken(data, lambda: pa.RecordBatchReader.from_stream(data).read_all())


def _taken(data: Any, take: Callable[[], pa.Table]) -> pa.Table:
    """What `take` gives. A library that speaks Arrow may hold types that Arrow's table does not, and say so anyhow."""
    try:
        return take()
    except _PROBLEMS as problem:
        raise ColumnError(
            f"Cannot take rows from {type(data).__name__}: {_line(problem)}. Cast its columns to "
            f"plain types, or {_TAKEN}.",
            type=type(data).__name__,
        ) from None


def _of_polars(frame: Any) -> pa.Table:
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    for name, kind in getattr(frame, "schema", {}).items():
        if str(kind).startswith("Object"):  # polars hands out addresses in its own memory for them
            raise ColumnError(f"Column {name!r} holds Python objects. Give it a plain type.", column=name)
    return _streamed(frame)


def _of_pandas(frame: Any, index: Sequence[str]) -> pa.Table:
    names = [str(name) for name in frame.columns]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None) if _repeats(names) else None
    if twice is not None:
        raise ColumnError(f"The DataFrame has column {twice!r} more than once. Rename or drop one.", column=twice)
    wanted = set(index) - set(names)
    if kept := [name for name in frame.index.names if name in wanted]:
        frame = frame.reset_index([name for name in frame.index.names if name in kept])
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except _PROBLEMS as problem:
        for name in frame.columns:
            _array(str(name), frame[name])
        raise ColumnError(f"Cannot take the DataFrame: {_line(problem)}. Give its columns plain types.") from None


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays = {_named(name): _array(name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    for name, length in lengths.items():
        if length != (first := next(iter(lengths.values()))):
            raise ColumnError(
                f"Column {name!r} has {length} values, {next(iter(lengths))!r} has {first}. Give each column as many.",
                column=name,
            )
    return pa.table(list(arrays.values()), names=list(arrays))


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise ColumnError(f"Columns have names of text, got {printable(name)}. Rename it.", column=printable(name))
    return name


def _of_items(data: Iterable[Any]) -> pa.Table:
    """Rows as dicts, or batches of rows."""
    items = list(data)
    if not items:
        return pa.table({})
    if all(isinstance(item, Mapping) for item in items):
        return _of_rows(items)
    parts: list[pa.Table] = []
    for number, item in enumerate(items):
        if not isinstance(item, (pa.RecordBatch, pa.Table)):
            raise ColumnError(
                f"Item {number} of the rows is a {type(item).__name__}, neither a dict nor a record batch; {_TAKEN}.",
                type=type(item).__name__,
            )
        parts.append(item if isinstance(item, pa.Table) else pa.Table.from_batches([item]))
        if parts[-1].schema.names != parts[0].schema.names or parts[-1].schema.types != parts[0].schema.types:
            raise ColumnError(f"Batch {number} has other columns than the first. Give all of them one schema.")
    return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


def _of_rows(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    for number, row in enumerate(rows):
        if len(row) < len(names):
            missing = next(name for name in names if name not in row)
            raise ColumnError(
                f"Row {number} has no {missing!r}, which other rows have. Add it; nothing is filled with nulls for "
                "you.",
                column=missing,
                row=number,
            )
    return _of_columns({name: [row[name] for row in rows] for name in names})


def _array(name: Any, values: Any) -> pa.Array | pa.ChunkedArray:
    """One column of Python values, a numpy array, a pandas Series or an Arrow array."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise ColumnError(f"Column {name!r} takes a list of values, got {printable(values)}.", column=name)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    pandas = type(values).__module__.split(".")[0] == "pandas"
    try:
        return pa.array(values, from_pandas=pandas)
    except _PROBLEMS as problem:
        row = _first_refused(values, pandas)
        value = values.iloc[row] if pandas else values[row]
        raise ColumnError(
            f"Column {name!r}, row {row}: {printable(value)} does not fit the values before it, or no Arrow type "
            f"({_line(problem)}). Give the column values of one type.",
            column=name,
            row=row,
        ) from None


def _first_refused(values: Any, pandas: bool) -> int:
    """The first row up to which Arrow takes no column."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(values.iloc[:middle] if pandas else values[:middle], from_pandas=pandas)
            low = middle
        except _PROBLEMS:
            high = middle
    return low


def _line(problem: BaseException) -> str:
    """An error's text in one line."""
    text = str(problem.args[0]) if problem.args else str(problem)
    return printable(text.splitlines()[0] if text else type(problem).__name__).strip("'\"").rstrip(".")


__all__ = ["to_arrow"]
