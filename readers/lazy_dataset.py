"""Lazy PyArrow Dataset, which reads rows on demand.

Nothing is read before the dataset is scanned. Each scan reads only the columns and files that it needs, and merges rows
while it reads. It writes no file.

DuckDB and other engines pass their columns and conditions to `scanner`. Each condition is used twice: as a predicate
tree that prunes files by statistics, and unchanged to filter rows. Native pyarrow code cannot call Python objects, so
it gets a dataset fragment with one in-memory file, which is built when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Never, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.readers.lazy_scanner import LazyScanner
from hoodoo.readers.lazy_source import LazySource
from hoodoo.readers.predicate import from_arrow

Projection: TypeAlias = "Sequence[str] | dict[str, pc.Expression] | None"
"""Columns of a scan: names, or a dict of names and expressions.

None means all columns.
"""
_FORMAT = ds.IpcFileFormat()
_FILE_OPTIONS = {
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
}
# Scanner options for reading files. Query engines pass them, but they have no effect on this scanner.


class LazyDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """Lazy PyArrow Dataset, which reads rows on demand.

    Args:
        rows: The rows.
        where: A condition that selects rows. None (default): all rows.
    """

    def __init__(self, rows: LazySource, where: pc.Expression | None = None) -> None:
        self._rows, self._where = rows, where
        dataset = ds.FileSystemDataset(
            [_create_fragment(rows.schema, lambda: _read_batches(rows, rows.schema.names, where))], rows.schema, _FORMAT
        )
        super().__init__(rows.schema, [dataset])

    def __reduce__(self) -> Never:
        raise TypeError(
            "The dataset of a read cannot be pickled. Send the tasks() of the read instead, or open the table in the "
            "other process."
        )

    def scanner(
        self,
        columns: Projection = None,
        filter: pc.Expression | None = None,
        batch_size: int = BATCH_ROWS,
        **options: Any,
    ) -> LazyScanner:
        """Create a scanner that reads rows on demand.

        Args:
            columns: The columns, by name, or as expressions by name. None (default): all.
            filter: A condition that selects rows. None (default): all rows.
            batch_size: The maximum number of rows in a batch.
            **options: Options for scanners of files. They are accepted and ignored.

        Raises:
            ArrowInvalid: A column does not exist, or the filter does not match the columns.
            TypeError: An option is unknown.
        """
        if unknown := set(options) - _FILE_OPTIONS:
            raise TypeError(f"scanner() has no option {min(unknown)!r}. Remove it.")
        where = self._combine_filters(filter)
        sample = ds.InMemoryDataset(self.schema.empty_table()).scanner(columns=columns, filter=where)
        needed = self._needed_columns(columns)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in _read_batches(self._rows, needed, where, batch_size):
                if isinstance(columns, dict):
                    yield from ds.InMemoryDataset([batch]).scanner(columns=columns, use_threads=False).to_batches()
                else:
                    yield batch if columns is None else batch.select(list(columns))  # a column may be requested twice

        return LazyScanner(sample.projected_schema, self.schema, batches)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        return self.scanner(*arguments, **options).to_table()

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        return self.scanner(*arguments, **options).to_batches()

    def take(self, indices: pa.Array, *arguments: Any, **options: Any) -> pa.Table:
        return self.scanner(*arguments, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        where = self._combine_filters(filter)
        if where is None:
            return self._rows.count()
        return sum(batch.num_rows for batch in _read_batches(self._rows, [], where))

    def head(self, num_rows: int, *arguments: Any, **options: Any) -> pa.Table:
        return self.scanner(*arguments, **{"batch_size": max(1, min(num_rows, BATCH_ROWS)), **options}).head(num_rows)

    def filter(self, expression: pc.Expression) -> LazyDataset:
        return LazyDataset(self._rows, self._combine_filters(expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """List the parts that may contain matching rows.

        A fragment is read when it is scanned.

        Raises:
            ValueError: The dataset is filtered.
        """
        if self._where is not None:
            raise ValueError("Fragments of a filtered dataset are not available. Pass the filter to get_fragments().")
        rows, schema = self._rows, self.schema
        tree = None if filter is None else from_arrow.convert_arrow_expression(filter, schema)

        def of(task: Callable[[], pa.Table]) -> ds.Fragment:
            return _create_fragment(schema, lambda: rows._convert_errors(task).select(schema.names).to_batches())

        return map(of, rows._narrowed(schema.names, tree)._each_task())

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        """Read the rows into memory and sort them."""
        return self._read_all().sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.Dataset:
        """Join the rows with the rows of another dataset."""
        return self._read_all().join(_read_into_memory(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.Dataset:
        """Join the rows with the nearest rows of a dataset."""
        return self._read_all().join_asof(_read_into_memory(right_dataset), *arguments, **options)

    def _read_all(self) -> ds.Dataset:
        return ds.InMemoryDataset(self.to_table())

    def _combine_filters(self, filter: pc.Expression | None) -> pc.Expression | None:
        if self._where is None or filter is None:
            return self._where if filter is None else filter
        return self._where & filter

    def _needed_columns(self, columns: Projection) -> list[str]:
        if columns is None:
            return list(self.schema.names)
        if not isinstance(columns, dict):
            return list(dict.fromkeys(columns))
        column_sets = [from_arrow.find_columns(expression, self.schema) for expression in columns.values()]
        return [name for name in self.schema.names if any(name in column_set for column_set in column_sets)]


def _read_into_memory(dataset: ds.Dataset) -> ds.Dataset:
    return dataset._read_all() if isinstance(dataset, LazyDataset) else dataset


def _read_batches(
    rows: LazySource, columns: Sequence[str], where: pc.Expression | None, size: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    schema = rows.schema
    tree = None if where is None else from_arrow.convert_arrow_expression(where, schema)
    needed = {*columns} if where is None else {*columns, *from_arrow.find_columns(where, schema)}
    for part in rows._narrowed([name for name in schema.names if name in needed], tree).tables(size):
        matching = part if where is None else part.filter(where)
        if len(matching):
            yield from matching.select(list(columns)).to_batches(size)


# ---- for native pyarrow code
def _create_fragment(
    schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch] | list[pa.RecordBatch]]
) -> ds.Fragment:
    return _FORMAT.make_fragment("rows", fs.PyFileSystem(_InMemoryFileSystem(schema, read)))


class _InMemoryFileSystem(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    # The file with the rows is created when pyarrow opens it.
    def __init__(self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch] | list[pa.RecordBatch]]) -> None:
        self._schema, self._read_all = schema, read

    def open_input_file(self, path: str) -> pa.NativeFile:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._schema) as writer:
            for batch in self._read_all():
                writer.write_batch(batch)
        return pa.BufferReader(sink.getvalue())

    open_input_stream = open_input_file

    def get_type_name(self) -> str:
        return "hoodoo"

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File) for path in paths]

    def normalize_path(self, path: str) -> str:
        return path

    def _raise_read_only(self, *arguments: object) -> Never:
        raise OSError("The dataset of a table is read-only. Use upsert() or another write method of the table.")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _raise_read_only
    delete_file = move = copy_file = open_output_stream = open_append_stream = _raise_read_only
