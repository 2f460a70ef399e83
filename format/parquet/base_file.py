"""Reader and writer of base files.

The codec is zstd at level 1, because Spark 3.5 cannot read brotli. encodings.py chooses the encoding of each column.
The footer entries are written with add_key_value_metadata, because with store_schema=False pyarrow silently drops the
metadata of the schema (docs/format.md 7). Readers verify the checksum of each page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable, StoreUnavailable
from hoodoo.format.names import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from hoodoo.format.parquet import encodings, statistics
from hoodoo.format.parquet.hudi_bloom import FILTER_KEY, MAX_KEY, MIN_KEY, TYPE_KEY, bloom_and_key_range
from hoodoo.format.resolve import NO_CHANGES, ColumnMapping
from hoodoo.format.rows import take_rows

ROW_GROUP_BYTES = 128 << 20  # in memory
ROW_ORDER = "hoodoo.row_order"
"""Key of the footer entry with the digest of the row order."""
BATCH_ROWS = 65_536  # number of rows that readers hold in memory, unless a merge needs more
_GROUP_ROWS_MIN = 64
_DIGITS = 10
# Number of digits of the row number in a sequence number.
_LOW_DIGITS = (np.arange(1000)[:, None] // (100, 10, 1) % 10 + ord("0")).astype(np.uint8)
# uint8[1000, 3]: the last three digits of a thousand consecutive numbers.
_CONSTANT = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)


@dataclass(frozen=True)
class EncodedBaseFile:
    """Encoded base file, with its column statistics."""

    data: pa.Buffer
    rows: int
    stats: statistics.Stats
    min_key: str
    max_key: str


def constant(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def create_sequence_numbers(instant: str, task: int, rows: int) -> pa.StringArray:
    """Create the sequence number of each row.

    It has the form `<instant>_<task>_<row>`. The row number is padded to ten digits. Sequence numbers are unique within
    the commit.
    """
    prefix = np.frombuffer(f"{instant}_{task}_".encode(), np.uint8)
    low = len(prefix) + _DIGITS - _LOW_DIGITS.shape[1]
    thousand = np.empty((len(_LOW_DIGITS), low + _LOW_DIGITS.shape[1]), np.uint8)
    thousand[:, : len(prefix)], thousand[:, low:] = prefix, _LOW_DIGITS
    text = np.empty((-(-rows // len(thousand)), *thousand.shape), np.uint8)
    for number, part in enumerate(text):
        thousand[:, len(prefix) : low] = np.frombuffer(b"%0*d" % (low - len(prefix), number), np.uint8)
        part[:] = thousand
    offsets = np.arange(rows + 1, dtype=np.int64) * thousand.shape[1]
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text)).cast(pa.string())


def with_meta(rows: pa.Table, instant: str, task: int, keys: pa.Array, partition: str, file_name: str) -> pa.Table:
    n = len(rows)
    meta = [
        constant(instant, n),
        create_sequence_numbers(instant, task, n),
        keys,
        constant(partition, n),
        constant(file_name, n),
    ]
    return pa.table([*meta, *rows.columns], names=[*META_COLUMNS, *rows.schema.names])


def read_footer(source: pa.NativeFile, path: str) -> dict[str, str]:
    with _convert_read_errors(path):
        metadata = pq.read_metadata(source).metadata or {}
    return {
        key: metadata[key.encode()].decode()
        for key in (FILTER_KEY, TYPE_KEY, MIN_KEY, MAX_KEY, ROW_ORDER)
        if key.encode() in metadata
    }


class BaseFileWriter:
    """Streaming writer of a base file.

    It holds one row group in memory. The values of the first row group determine the encodings of the columns. A row
    group ends after `row_group_rows` rows, or earlier if they take `row_group_bytes` in memory.
    """

    def __init__(
        self,
        sink: Any,
        compression: str,
        row_group_rows: int,
        row_group_bytes: int = ROW_GROUP_BYTES,
        fields: Mapping[str, pa.Field] | None = None,
    ) -> None:
        """Create a writer of a base file.

        `fields` contains, for each column with a field id, the Arrow field with the id in its metadata.
        """
        self._fields = fields or {}
        self._sink, self._compression, self._group_rows, self._group_bytes = (
            sink,
            compression,
            row_group_rows,
            row_group_bytes,
        )
        self._pending: list[pa.Table] = []
        self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._collected: list[pq.FileMetaData] = []
        self._held = 0
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows to the file.

        The rows begin with Hudi's five meta columns. At least one call is required, even without rows, because it
        determines the schema.
        """
        self._pending.append(rows)
        self._held += len(rows)
        self._held_bytes += rows.nbytes
        if self._held >= self._next_group_rows():
            self._flush(last=False)

    def _next_group_rows(self) -> int:
        if self._held_bytes * self._group_rows <= self._group_bytes * self._held:
            return self._group_rows
        return min(self._group_rows, max(_GROUP_ROWS_MIN, self._held * self._group_bytes // max(1, self._held_bytes)))

    def _flush(self, last: bool) -> None:
        held, group = pa.concat_tables(self._pending), self._next_group_rows()
        writer = self._writer or self._open(held)
        complete_rows = len(held) if last else len(held) - len(held) % group
        if complete_rows:
            writer.write_table(held.slice(0, complete_rows).unify_dictionaries(), row_group_size=group)
        self._pending, self._held = [held.slice(complete_rows)], len(held) - complete_rows
        self._held_bytes = self._pending[0].nbytes if self._held else 0
        self.rows += complete_rows

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        dictionary, other_encodings = encodings.choose(first.slice(0, self._group_rows), plain=(COMMIT_SEQNO,))
        self._writer = pq.ParquetWriter(
            self._sink,
            pa.schema([self._with_id(field) for field in first.schema]),
            compression=self._compression,
            compression_level=1 if self._compression == "zstd" else None,
            use_dictionary=dictionary,
            column_encoding=other_encodings,
            write_page_checksum=True,
            store_schema=False,
            write_statistics=True,
            metadata_collector=self._collected,
        )
        return self._writer

    def _with_id(self, field: pa.Field) -> pa.Field:
        field_with_id = self._fields.get(field.name)
        if field_with_id is None:
            return field
        kind = field.type if pa.types.is_dictionary(field.type) else field_with_id.type
        return pa.field(field.name, kind, metadata=field_with_id.metadata)

    def close(self, footer: Mapping[str, str]) -> statistics.Stats:
        """Write the remaining rows and the footer.

        Returns the column statistics. The statistics contain the table's own columns and the commit time.
        """
        schema = self._pending[0].schema
        self._flush(last=True)
        assert self._writer is not None
        self._writer.add_key_value_metadata(dict(footer))
        self._writer.close()
        own = pa.schema(
            [field for field in schema if field.name not in META_COLUMNS] + [pa.field(COMMIT_TIME, pa.string())]
        )
        return statistics.statistics_from_footer(self._collected[0], own)


def encode_base_file(
    rows: pa.Table, compression: str, row_group_rows: int, footer: dict[str, str] | None = None
) -> EncodedBaseFile:
    """Encode rows as a base file.

    Constant columns may be dictionaries. `footer` contains the footer entries of an earlier file with exactly the same
    keys. By default, the entries are computed.
    """
    footer = bloom_and_key_range(rows[RECORD_KEY]) if footer is None else footer
    sink = pa.BufferOutputStream()
    writer = BaseFileWriter(sink, compression, row_group_rows)
    writer.write(rows)
    stats = writer.close(footer)
    return EncodedBaseFile(sink.getvalue(), len(rows), stats, footer.get(MIN_KEY, ""), footer.get(MAX_KEY, ""))


@dataclass(frozen=True)
class ExpectedFooter:
    """Expected footer of a base file.

    Attributes:
        rows: The number of rows.
        columns: The columns that the footer must have.
        schema: All columns with their types. None if columns may have been added or widened later.
    """

    rows: int
    columns: Set[str]
    schema: pa.Schema | None = None

    def require_equal(self, metadata: pq.FileMetaData, found: pa.Schema, there: Set[str]) -> None:
        """Require that a footer is as expected.

        Raises pa.ArrowInvalid if they differ. The footer has the columns `found`, whose names are `there`.
        """
        rows = sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        if rows != self.rows or metadata.num_rows != self.rows:
            raise pa.ArrowInvalid(f"the footer has {rows} rows, but the commit recorded {self.rows}")
        if not self.columns <= there:
            raise pa.ArrowInvalid(f"the footer lacks the column {min(self.columns - there)!r}")
        for field in self.schema or ():
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if field.name not in there or found.field(field.name).type != kind:
                raise pa.ArrowInvalid(f"the footer has a column {field.name!r} with a different type")


def read_base_file(
    source: pa.NativeFile,
    path: str,
    schema: pa.Schema,
    may_match: Callable[[statistics.Stats, int], bool] | None = None,
    footer: ExpectedFooter | None = None,
    resolution: ColumnMapping = NO_CHANGES,
) -> pa.Table:
    """Read the rows of a base file.

    Args:
        source: The file.
        path: The path of the file, for error messages.
        schema: The columns to return. A string column may be a dictionary. A column that the file lacks is null.
        may_match: Called with the statistics and the number of rows of each row group. Row groups for which it returns
            False are skipped. None: all row groups are read.
        footer: The expected content of the footer. None: the footer is not checked.
        resolution: Mapping from the columns of the file to the columns of `schema`.

    Raises:
        CorruptTable: The file is damaged. The error contains `path`.
    """
    with _convert_read_errors(path):
        file, names = _open_file(source, schema, footer, resolution)
        groups = _select_row_groups(file, may_match, resolution)
        table = file.read_row_groups(groups, columns=names, use_threads=False)
        rows = sum(file.metadata.row_group(g).num_rows for g in groups)
        if not names:  # all columns were added after the file was written
            return resolution.to_requested_columns(pa.table({"": pa.nulls(rows)}), list(schema))
        _require_rows(len(table), rows)
        return resolution.to_requested_columns(table, list(schema))


def _require_rows(rows: int, expected_rows: int) -> None:
    if rows != expected_rows:
        raise pa.ArrowInvalid(f"the pages contain {rows} rows, but the footer records {expected_rows}")


def count_row_group_rows(source: pa.NativeFile, path: str, footer: ExpectedFooter | None = None) -> list[int]:
    """Count the rows of each row group.

    `footer` is the expected content of the footer, or None to skip the check. Raises CorruptTable with the path `path`.
    """
    with _convert_read_errors(path):
        file = pq.ParquetFile(source)
        metadata = file.metadata
        if footer:
            footer.require_equal(metadata, file.schema_arrow, set(file.schema_arrow.names))
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


class RowGroupReader:
    """Reader for single row groups of a base file."""

    def __init__(
        self,
        source: pa.NativeFile,
        path: str,
        schema: pa.Schema,
        footer: ExpectedFooter | None = None,
        resolution: ColumnMapping = NO_CHANGES,
    ) -> None:
        self._source, self._path, self._schema, self._resolution = source, path, schema, resolution
        with _convert_read_errors(path):
            self._file, _ = _open_file(source, schema, footer, resolution)

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._file.metadata

    def read_column_chunk(self, group: int, leaf: int) -> bytes:
        """Read the encoded bytes of a column chunk.

        Args:
            group: The index of the row group.
            leaf: The index of the leaf column in the footer.

        Raises:
            CorruptTable: The bytes cannot be read.
        """
        column = self.metadata.row_group(group).column(leaf)
        start = min(column.dictionary_page_offset or column.data_page_offset, column.data_page_offset)
        with _convert_read_errors(self._path):
            return bytes(self._source.read_at(column.total_compressed_size, start))

    def decode(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        fields = list(self._schema) if columns is None else [self._schema.field(name) for name in columns]
        stored_names = set(self._file.schema_arrow.names)
        with _convert_read_errors(self._path):
            names = [
                name for name in self._resolution.names_of([field.name for field in fields]) if name in stored_names
            ]
            rows = self._file.metadata.row_group(group).num_rows
            if not names:  # all columns were added after the file was written
                return self._resolution.to_requested_columns(pa.table({"": pa.nulls(rows)}), fields)
            table = self._file.read_row_groups([group], columns=names, use_threads=False)
            _require_rows(len(table), rows)
            return self._resolution.to_requested_columns(table, fields)

    def read_matching_rows(
        self,
        seen: Sequence[str],
        condition: Callable[[pa.Table], np.ndarray],
        may_match: Callable[[statistics.Stats, int], bool] | None = None,
    ) -> tuple[pa.Table, np.ndarray]:
        """Read the rows that match a condition.

        Returns the rows and their positions in the file. Columns that the condition does not use are only decoded in
        row groups with a match. Only one row group is in memory at a time.

        Args:
            seen: The columns of the schema that the condition uses.
            condition: Returns the positions of the matching rows of a table, ascending.
            may_match: As in `read_base_file`.

        Raises:
            CorruptTable: The file is damaged.
        """
        with _convert_read_errors(self._path):
            groups = set(_select_row_groups(self._file, may_match, self._resolution))
        other_names = [name for name in self._schema.names if name not in seen]
        parts, positions, start = list[pa.Table](), list[np.ndarray](), 0
        for group in range(self.metadata.num_row_groups):
            rows = self.metadata.row_group(group).num_rows
            if group in groups:
                first = self.decode(group, seen)
                chosen = condition(first)
                if len(chosen):
                    parts.append(self._decode_remaining(first, group, other_names, chosen))
                    positions.append(start + chosen)
            start += rows
        if not parts:
            return self._schema.empty_table(), np.empty(0, np.int64)
        return pa.concat_tables(parts), np.concatenate(positions)

    def _decode_remaining(self, first: pa.Table, group: int, others: Sequence[str], chosen: np.ndarray) -> pa.Table:
        rest = self.decode(group, others)
        columns = [(first if name in first.schema.names else rest)[name] for name in self._schema.names]
        all_rows = pa.table(columns, schema=self._schema)
        return all_rows if len(chosen) == len(all_rows) else take_rows(all_rows, chosen)


def read_in_batches(
    source: pa.NativeFile,
    path: str,
    schema: pa.Schema,
    rows: int,
    may_match: Callable[[statistics.Stats, int], bool] | None = None,
    footer: ExpectedFooter | None = None,
    resolution: ColumnMapping = NO_CHANGES,
) -> Iterator[pa.Table]:
    """Read the rows of a base file in batches.

    A batch has at most `rows` rows. The other arguments are as in `read_base_file`.
    """
    with _convert_read_errors(path):
        file, names = _open_file(source, schema, footer, resolution)
        groups, rows_read = _select_row_groups(file, may_match, resolution), 0
        expected_rows = sum(file.metadata.row_group(g).num_rows for g in groups)
        for begin in (
            range(0, expected_rows, rows) if not names else ()
        ):  # all columns were added after the file was written
            empty_columns = pa.table({"": pa.nulls(min(rows, expected_rows - begin))})
            yield resolution.to_requested_columns(empty_columns, list(schema))
        if not names:
            return
        for batch in file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
            rows_read += len(batch)
            yield resolution.to_requested_columns(pa.Table.from_batches([batch]), list(schema))
        _require_rows(rows_read, expected_rows)


def _select_row_groups(
    file: pq.ParquetFile, may_match: Callable[[statistics.Stats, int], bool] | None, resolution: ColumnMapping
) -> list[int]:
    if may_match is None:
        return list(range(file.num_row_groups))
    group_stats = (_group_stats(file.metadata, g) for g in range(file.num_row_groups))
    return [
        g for g, (stats, rows) in enumerate(group_stats) if may_match(resolution.convert_statistics(stats, rows), rows)
    ]


def _open_file(
    source: pa.NativeFile,
    schema: pa.Schema,
    footer: ExpectedFooter | None = None,
    resolution: ColumnMapping = NO_CHANGES,
) -> tuple[pq.ParquetFile, list[str]]:
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False, read_dictionary=dictionaries)
    stored_schema = file.schema_arrow
    stored_names = set(stored_schema.names)
    if footer:
        footer.require_equal(file.metadata, stored_schema, stored_names)
    return file, [name for name in resolution.names_of(schema.names) if name in stored_names]


@contextmanager
def _convert_read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        OverflowError,
    ) as problem:  # pyarrow raises all of these for damaged footers
        if isinstance(problem, FileNotFoundError):
            raise
        if "AWS Error" in str(problem):
            raise StoreUnavailable(f"Connection to S3 failed while reading {path}. Try again.", file=path) from None
        raise CorruptTable(
            f"File {path} is damaged: {problem}. Restore the file from a backup, or run maintenance.salvage() "
            "(hoodoo salvage).",
            file=path,
        ) from None


def _group_stats(metadata: pq.FileMetaData, group: int) -> tuple[statistics.Stats, int]:
    return statistics.statistics_from_footer(metadata, metadata.schema.to_arrow_schema(), [group]), metadata.row_group(
        group
    ).num_rows


__all__ = [
    "EncodedBaseFile",
    "BaseFileWriter",
    "constant",
    "read_base_file",
    "read_in_batches",
    "encode_base_file",
    "create_sequence_numbers",
    "with_meta",
]
