"""Codec for Parquet blocks in log files.

The content has about a third of the size of Avro, and a reader of one column decodes only that column. The content
contains no statistics, because the slot stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.format.names import COMMIT_SEQNO
from hoodoo.format.parquet import encodings


def encode_parquet(rows: pa.Table, limit: int) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Encode rows as Parquet log blocks.

    Yields the row range and bytes of each block. `rows` has the five meta columns first. The rows of a block have at
    most `limit` bytes in memory, unless a single row is larger.
    """
    for begin, end in _ranges(rows, 0, len(rows), limit):
        yield begin, end, _file(rows.slice(begin, end - begin).unify_dictionaries())


def _ranges(rows: pa.Table, begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    if end - begin <= 1 or rows.slice(begin, end - begin).nbytes <= limit:
        if end > begin:
            yield begin, end
        return
    middle = (begin + end) // 2
    yield from _ranges(rows, begin, middle, limit)
    yield from _ranges(rows, middle, end, limit)


def _file(rows: pa.Table) -> pa.Buffer:
    dictionary, other_encodings = encodings.choose(rows, plain=(COMMIT_SEQNO,))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,
        column_encoding=other_encodings,
        write_page_checksum=True,
        store_schema=False,
        write_statistics=False,
    ) as writer:
        writer.write_table(rows, row_group_size=max(1, len(rows)))
    return sink.getvalue()


def decode_parquet(content: memoryview, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Table:
    """Decode a Parquet log block.

    The rows have the types of `schema`. `columns` selects columns and their order. Raises pa.ArrowException, OSError or
    ValueError if the bytes are damaged.
    """
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)), page_checksum_verification=True, pre_buffer=False)
    stored = set(file.schema_arrow.names)
    stored_fields = {field.name: field for field in schema if field.name in stored}
    names = list(stored_fields) if columns is None else [name for name in columns if name in stored_fields]
    rows = file.read(columns=names, use_threads=False).select(names)
    rows = rows.cast(pa.schema([stored_fields[name] for name in names]))
    rows.validate(full=True)  # Arrow's Parquet reader accepts any bytes as text
    return rows


__all__ = ["decode_parquet", "encode_parquet"]
