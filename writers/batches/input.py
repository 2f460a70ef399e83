"""Conversion of input data to a pyarrow Table.

Supported inputs are Arrow data, pandas, polars, DuckDB, any object with the Arrow C stream interface, plain Python data
and files. Types stay unchanged; `batch` converts them to the table's types.

Every failure is a ColumnError that names the column and, for an invalid value, its row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import pyarrow as pa

from hoodoo.arguments import is_utf8
from hoodoo.errors import ColumnError
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.writers.batches.python_times import replace_missing_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ArrowStream(Protocol):
    """Object with the Arrow C stream interface.

    Examples are pyarrow tables and readers, pandas and polars DataFrames, DuckDB relations and hoodoo scans.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """Object with the Arrow C array interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


ArrowLike: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | ArrowArray | DataFrame"
    " | Mapping[str, object] | Sequence[Mapping[str, object]] | Iterator[pa.RecordBatch]"
    " | str | os.PathLike[str]"
)
"""Input rows, such as a DataFrame, Arrow data, Python dicts, or the path of files."""

_TAKEN = (
    "pass a pyarrow Table, RecordBatch or RecordBatchReader, a pandas, polars or Spark DataFrame, a DuckDB "
    "relation, any object with __arrow_c_stream__, a list of dicts, a dict of lists, an iterator of record "
    "batches, or the path of files"
)
NO_COLUMNS = pa.schema([])
_DECIMAL = pa.decimal256(76, 38)  # can represent every decimal of a table
_PROBLEMS = (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError)
"""Exceptions that Arrow raises for Python values that it cannot convert."""


def to_arrow(
    data: ArrowLike, columns: pa.Schema = NO_COLUMNS, whole: Callable[[str], bool] = lambda name: True
) -> pa.Table:
    """Convert input rows to a pyarrow Table.

    Args:
        data: The input rows.
        columns: The columns of the table. An index level of a pandas DataFrame becomes a column if the table has a
            column with its name. Python dicts and pairs become maps if the table's column is a map.
        whole: Function that returns whether each row of a list of dicts must contain a column if any row contains it.
            Default: always.

    Raises:
        ColumnError: The data cannot be converted.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    module = type(data).__module__.split(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return _from_pandas(data, columns)
    if module == "pandas" and type(data).__name__ == "Series":  # a row, such as frame.iloc[0]
        return _from_item_list([cast("Any", data).to_dict()], columns, whole)
    if module == "polars":
        return _from_polars(data)
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        return _read_arrow_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _convert_to_arrow(data, lambda: pa.Table.from_batches([pa.record_batch(data)]))
    if isinstance(data, Mapping) and _is_single_row(data, columns):
        return _from_item_list([data], columns, whole)
    if isinstance(data, Mapping):
        return _from_column_dict(data, columns)
    if isinstance(data, (str, os.PathLike)):
        from hoodoo.writers.batches.row_files import (
            read_local_files,  # imported on demand, because few batches come from files
        )

        flag = pa.field(IS_DELETED, pa.bool_())
        return read_local_files(data, columns if IS_DELETED in columns.names else columns.append(flag), whole)
    if isinstance(data, (list, tuple, Iterator)):
        return _from_item_list(data, columns, whole)
    raise ColumnError(f"Cannot read rows from {type(data).__name__}; {_TAKEN}.", type=type(data).__name__)


def _read_arrow_stream(data: Any) -> pa.Table:
    return _convert_to_arrow(data, lambda: pa.RecordBatchReader.from_stream(data).read_all())


def _convert_to_arrow(data: Any, take: Callable[[], pa.Table]) -> pa.Table:
    try:
        return take()
    except _PROBLEMS as problem:
        raise ColumnError(
            f"Cannot read rows from {type(data).__name__}: {_first_line(problem)}. Cast its columns to plain types, "
            f"or {_TAKEN}.",
            type=type(data).__name__,
        ) from None


def _from_polars(frame: Any) -> pa.Table:
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    for name, kind in getattr(frame, "schema", {}).items():
        if str(kind).startswith("Object"):  # polars would export memory addresses
            raise ColumnError(
                f"Column {name!r} contains Python objects. Convert it to a type such as int64 or string.", column=name
            )
        if "Int128" in str(kind):
            raise ColumnError(
                f"Column {name!r} is {kind}, which Arrow does not support. Cast it to Int64 or Decimal.", column=name
            )
    return _read_arrow_stream(frame)


def _from_pandas(frame: Any, columns: pa.Schema) -> pa.Table:
    names = [str(name) for name in frame.columns]
    duplicate = next((name for n, name in enumerate(names) if name in names[:n]), None) if _repeats(names) else None
    if duplicate is not None:
        raise ColumnError(
            f"The DataFrame has column {duplicate!r} more than once. Rename or drop one of them.", column=duplicate
        )
    for name, kind in zip(names, frame.dtypes, strict=True):
        if str(kind).startswith("period["):  # Arrow would convert them to integers
            raise ColumnError(
                f"Column {name!r} contains pandas periods, which are not supported. Convert them with "
                ".dt.to_timestamp(), or to strings.",
                column=name,
            )
    index_names = set(columns.names) - set(names)
    if kept := [name for name in frame.index.names if name in index_names]:
        frame = frame.reset_index([name for name in frame.index.names if name in kept])
    if any(_has_maps(field.type) and frame[field.name].dtype == object for field in columns if field.name in names):
        return _from_column_dict({str(name): frame[name] for name in frame.columns}, columns)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except _PROBLEMS as problem:
        arrays = {str(name): _column_to_arrow(str(name), frame[name], columns) for name in frame.columns}
        if not any(pa.types.is_decimal256(array.type) for array in arrays.values()):
            raise ColumnError(
                f"Cannot convert the DataFrame to Arrow: {_first_line(problem)}. Cast its columns to plain types."
            ) from None
        return pa.table(arrays)


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)


def _from_column_dict(values_by_name: Mapping[Any, Any], columns: pa.Schema) -> pa.Table:
    arrays = {_named(name): _column_to_arrow(name, values, columns) for name, values in values_by_name.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    for name, length in lengths.items():
        if length != (first := next(iter(lengths.values()))):
            raise ColumnError(
                f"Column {name!r} has {length} values: expected {first}, as in column {next(iter(lengths))!r}. Pass "
                "the same number of values for all columns.",
                column=name,
            )
    return pa.table(list(arrays.values()), names=list(arrays))


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise ColumnError(
            f"Column name {printable(name)} is invalid: expected a string. Rename the column.", column=printable(name)
        )
    if not is_utf8(name):
        raise ColumnError(
            f"The name of column {printable(name)} cannot be encoded as UTF-8. Rename the column.",
            column=printable(name),
        )
    return name


def _from_item_list(data: Iterable[Any], columns: pa.Schema, whole: Callable[[str], bool]) -> pa.Table:
    items = list(data)
    if not items:
        return pa.table({})
    if all(isinstance(item, Mapping) for item in items):
        return _from_row_dicts(items, columns, whole)
    parts: list[pa.Table] = []
    for number, item in enumerate(items):
        if not isinstance(item, (pa.RecordBatch, pa.Table)):
            raise ColumnError(
                f"Item {number} of the rows is a {type(item).__name__}: expected a dict or a record batch; {_TAKEN}.",
                type=type(item).__name__,
            )
        parts.append(item if isinstance(item, pa.Table) else pa.Table.from_batches([item]))
        if parts[-1].schema.names != parts[0].schema.names or parts[-1].schema.types != parts[0].schema.types:
            raise ColumnError(
                f"Batch {number} has different columns from the first batch. Use one schema for all batches."
            )
    return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


def _from_row_dicts(rows: Sequence[Mapping[Any, Any]], columns: pa.Schema, whole: Callable[[str], bool]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    for number, row in enumerate(rows):
        missing = (
            next((name for name in names if name not in row and whole(name)), None) if len(row) < len(names) else None
        )
        if missing is not None:
            raise ColumnError(
                f"Row {number} has no {missing!r}, but other rows have it. Add it, or upsert rows with "
                'different columns in separate calls with columns="given". missing="null" overwrites '
                "stored values of columns without a default with null.",
                column=missing,
                row=number,
            )
    return _from_column_dict({name: [row.get(name) for row in rows] for name in names}, columns)


def _is_single_row(data: Mapping[Any, Any], columns: pa.Schema) -> bool:
    # In a row, at least one value is not a list, and only columns with a nested type have lists.
    lists = [name for name, value in data.items() if not _is_value(value)]
    nested = {field.name for field in columns if pa.types.is_nested(field.type)}
    return len(lists) < len(data) and all(name in nested for name in lists)


def _is_value(value: object) -> bool:
    return isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__")


def _column_to_arrow(name: Any, values: Any, columns: pa.Schema) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise ColumnError(
            f"Column {name!r} is invalid: expected a list of values, got {printable(values)}. Pass a list or an array.",
            column=name,
        )
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    pandas = type(values).__module__.split(".")[0] == "pandas"
    if isinstance(values, (list, tuple)):
        values = replace_missing_times(str(name), values)
    elif pandas and values.dtype == object:
        replace_missing_times(str(name), values.tolist())  # from_pandas turns NaT into null
    number = columns.get_field_index(name) if isinstance(name, str) else -1
    try:
        if number >= 0 and _has_maps(columns.field(number).type):
            return pa.array(values, _infer_type(values, columns.field(number).type), from_pandas=pandas)
        return pa.array(values, from_pandas=pandas)
    except _PROBLEMS as problem:
        kind = columns.field(number).type if number >= 0 else pa.null()
        large = pa.types.is_decimal(kind) or pa.types.is_floating(kind)
        if large and (decimals := _try_as_decimals(values, pandas)) is not None:
            return decimals
        row = _first_unconvertible_row(values, pandas)
        value = values.iloc[row] if pandas else values[row]
        raise ColumnError(
            f"Column {name!r}, row {row}: {printable(value)} does not match the type of the values before it, "
            f"or has no Arrow type ({_first_line(problem)}). Use one type for all values of a column.",
            column=name,
            row=row,
        ) from None


def _try_as_decimals(values: Any, pandas: bool) -> pa.Array | None:
    # Numbers may be too large for Arrow's default types.
    for scale in (_DECIMAL.scale, 0):
        try:
            return pa.array(values, pa.decimal256(_DECIMAL.precision, scale), from_pandas=pandas)
        except _PROBLEMS:
            continue
    return None


def _has_maps(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_maps(kind.field(index).type) for index in range(kind.num_fields))


def _infer_type(values: Iterable[Any], kind: pa.DataType) -> pa.DataType:
    # The table's type `kind` determines whether dicts and lists of pairs become maps.
    values_without_nulls = [value for value in values if not _is_null(value)]
    if not values_without_nulls:
        return pa.null()
    if pa.types.is_map(kind):
        pairs = [
            pair for value in values_without_nulls for pair in (value.items() if isinstance(value, Mapping) else value)
        ]
        if not pairs:
            return kind
        keys = _infer_type([key for key, _ in pairs], kind.key_type)
        return pa.map_(keys, _infer_type([item for _, item in pairs], kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_infer_type([item for value in values_without_nulls for item in value], kind.value_type))
    if pa.types.is_struct(kind):
        names = dict.fromkeys(name for value in values_without_nulls for name in value)
        return pa.struct([(name, _infer_field_type(name, values_without_nulls, kind)) for name in names])
    return pa.array(values_without_nulls).type


def _infer_field_type(name: str, structs: Sequence[Mapping[str, Any]], kind: pa.DataType) -> pa.DataType:
    values, number = [value.get(name) for value in structs], kind.get_field_index(name)
    return _infer_type(values, kind.field(number).type if number >= 0 else pa.null())


def _is_null(value: Any) -> bool:
    return value is None or isinstance(value, float) and math.isnan(value)


def _first_unconvertible_row(values: Any, pandas: bool) -> int:
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(values.iloc[:middle] if pandas else values[:middle], from_pandas=pandas)
            low = middle
        except _PROBLEMS:
            high = middle
    return low


def _first_line(problem: BaseException) -> str:
    text = str(problem.args[0]) if problem.args else str(problem)
    return printable(text.splitlines()[0] if text else type(problem).__name__).strip("'\"").rstrip(".")


__all__ = ["to_arrow"]
