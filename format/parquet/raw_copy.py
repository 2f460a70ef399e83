"""Raw copy of row groups, without decoding.

Only the constant column of file names is encoded again. The caller can pass further columns, which replace the columns
with the same names. The footer is written with the new offsets. Page checksums stay valid, because pages do not change.
Offsets outside the pages (page index, Parquet's own bloom filters) are dropped from the footer.

Files with different schemas cannot be copied, so the caller decodes them. The caller must check the digests first,
because damaged bytes are copied too, and pyarrow may crash on a damaged footer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.format.names import COMMIT_TIME, FILE_NAME, META_COLUMNS
from hoodoo.format.parquet import base_file, statistics
from hoodoo.format.parquet.thrift_compact import BINARY, I16, I32, I64, LIST, STRUCT, Struct, decode, encode

MAGIC = b"PAR1"
_ARROW = b"parquet-cpp-arrow version"
# ids of the fields in Parquet's Thrift structs
_SCHEMA, _ROWS, _GROUPS, _KEY_VALUES, _CREATED_BY, _ORDERS, _ENCRYPTION, _SIGNING_KEY = 2, 3, 4, 5, 6, 7, 8, 9
_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _SORTING, _GROUP_OFFSET, _GROUP_SIZE, _ORDINAL = 1, 2, 3, 4, 5, 6, 7
_FILE_PATH, _FILE_OFFSET, _META, _INDEX_OFFSETS, _CRYPTO = 1, 2, 3, (4, 5, 6, 7), (8, 9)
_PATH, _RAW_SIZE, _SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _FILTERS = 3, 6, 7, 9, 10, 11, (14, 15)
_REPETITION, _NAME, _FIELD_ID, _OPTIONAL = 3, 4, 9, 1
_ORDINAL_MAX = (1 << 15) - 1


class CannotCopyFile(ValueError):
    """Error for base files that cannot be copied.

    Such files must be decoded. The files have different schemas or writers, or a file is encrypted, damaged or unusual.
    """


@dataclass
class CopySource:
    data: pa.Buffer
    footer: Struct

    @staticmethod
    def parse(data: pa.Buffer | bytes, whole: bool = True) -> CopySource:
        """Parse the footer of a base file.

        `whole` is True if the file has all columns of a base file, including the column of file names.
        """
        buffer = pa.py_buffer(data)
        tail = bytes(buffer.slice(max(0, len(buffer) - 8)))
        length = struct.unpack("<I", tail[:4])[0] if len(tail) == 8 and tail[4:] == MAGIC else 0
        if not 0 < length <= len(buffer) - 12:
            raise CannotCopyFile("A base file has no valid Parquet footer.")
        try:
            source = CopySource(buffer, decode(buffer.slice(len(buffer) - 8 - length, length)))
            source._require_plain()
            if whole:
                source._require_file_names()
            return source
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as problem:
            raise CannotCopyFile(f"The Parquet footer of a base file is invalid: {problem}") from None

    def _require_plain(self) -> None:
        if _ENCRYPTION in self.footer or _SIGNING_KEY in self.footer:
            raise CannotCopyFile("A base file is encrypted.")
        for group in self.groups():
            chunks = group[_CHUNKS][1][1]
            for chunk in chunks:
                start, size = span(chunk)
                if (
                    not 4 <= start <= start + size <= len(self.data)
                    or _FILE_PATH in chunk
                    or any(field in chunk for field in _CRYPTO)
                ):
                    raise CannotCopyFile("A column chunk is outside of its base file.")
            if [_path(chunk) for chunk in chunks] != [_path(chunk) for chunk in self.groups()[0][_CHUNKS][1][1]]:
                raise CannotCopyFile("The row groups of a base file have different columns.")

    @property
    def rows(self) -> int:
        return int(self.footer[_ROWS][1])

    def groups(self) -> list[Struct]:
        return list(self.footer[_GROUPS][1][1])

    def schema(self, with_ids: bool = True) -> list[Any]:
        """Return the schema in the footer.

        The name of the root element is left out. `with_ids=False` also omits the field ids of the columns, which do not
        affect their layout.
        """
        root, *rest = self.footer[_SCHEMA][1][1]
        if not with_ids:
            rest = [{number: value for number, value in element.items() if number != _FIELD_ID} for element in rest]
        return [{number: value for number, value in root.items() if number != _NAME}, *rest]

    def key_values(self) -> dict[str, str]:
        entries = self.footer[_KEY_VALUES][1][1] if _KEY_VALUES in self.footer else []
        try:
            return {entry[1][1].decode(): entry[2][1].decode() for entry in entries}
        except (KeyError, UnicodeDecodeError) as problem:
            raise CannotCopyFile(f"An entry in the Parquet footer of a base file is invalid: {problem}") from None

    def writer(self) -> bytes:
        name = bytes(self.footer[_CREATED_BY][1]) if _CREATED_BY in self.footer else b""
        return _ARROW if name.startswith(_ARROW) else name

    def _require_file_names(self) -> None:
        # The new file has an optional column of file names.
        elements = [element for element in self.footer[_SCHEMA][1][1][1:] if element[_NAME][1] == FILE_NAME.encode()]
        if len(elements) != 1 or elements[0].get(_REPETITION, (I32, -1))[1] != _OPTIONAL:
            raise CannotCopyFile("The column of file names in a base file has an unexpected encoding.")


def _path(chunk: Struct) -> list[bytes]:
    return list(chunk[_META][1][_PATH][1][1])


def _top_level_column(chunk: Struct) -> str:
    return _path(chunk)[0].decode(errors="replace")


def group_rows(group: Struct) -> int:
    return int(group[_GROUP_ROWS][1])


def uncompressed_group_bytes(group: Struct) -> int:
    return int(group[_GROUP_BYTES][1])


def dictionary_columns_of_group(group: Struct) -> frozenset[str]:
    chunks = group[_CHUNKS][1][1]
    return frozenset(_top_level_column(chunk) for chunk in chunks if chunk[_META][1].get(_DICTIONARY_PAGE, (I64, 0))[1])


def span(chunk: Struct) -> tuple[int, int]:
    meta = chunk[_META][1]
    start = meta[_DATA_PAGE][1]
    if 0 < meta.get(_DICTIONARY_PAGE, (I64, 0))[1] < start:
        start = meta[_DICTIONARY_PAGE][1]
    return start, meta[_SIZE][1]


def require_compatible_files(sources: Sequence[CopySource], with_ids: bool = True) -> None:
    """Require base files that can be copied into one file.

    Raises CannotCopyFile if their row groups cannot be copied into one file. `with_ids=True` also compares the field
    ids of the columns.
    """
    first = sources[0]
    for other in sources[1:]:
        if other.schema(with_ids) != first.schema(with_ids) or other.footer.get(_ORDERS) != first.footer.get(_ORDERS):
            raise CannotCopyFile("The base files have different schemas.")
        if other.writer() != first.writer():
            raise CannotCopyFile("The base files were written by different Parquet writers.")


class RowGroupCopier:
    """Writer that copies row groups of base files.

    The copied files must be compatible (`require_compatible_files`). The new file has the schema of
    the file `like`, by default of the first copied file.
    """

    def __init__(self, sink: Any, file_name: str, compression: str, like: CopySource | None = None) -> None:
        self._sink, self._file_name, self._compression = sink, file_name, compression
        self._at = 0
        self._groups: list[Struct] = []
        self._first = like
        self._names: dict[int, tuple[pa.Buffer, Struct]] = {}
        self.rows = 0
        self._put(MAGIC)

    def _put(self, data: Any) -> None:
        self._sink.write(data)
        self._at += len(data)

    def add(self, source: CopySource) -> None:
        self._first = self._first or source
        for group in source.groups():
            self.add_group(source, group)

    def add_group(self, source: CopySource, group: Struct, anew: CopySource | None = None) -> None:
        """Copy one row group.

        Args:
            source: The file that contains the row group.
            group: One of `source.groups()`.
            anew: A file of one row group with the same rows. Its columns replace the columns of `source` with the same
                names.

        Raises:
            ValueError: `anew` has a different number of rows than `group`.
        """
        self._first = self._first or source
        if group_rows(group):
            self._groups.append(self._group(source, group, anew))
            self.rows += group_rows(group)

    def _group(self, source: CopySource, group: Struct, anew: CopySource | None) -> Struct:
        name_data, name_chunk = self._encode_file_names(group_rows(group))
        replacements = {tuple(_path(name_chunk)): (name_data, name_chunk)}
        if anew:
            (new_group,) = anew.groups()
            if group_rows(new_group) != group_rows(group):
                raise ValueError("a column chunk has a different number of rows than its row group")
            replacements |= {tuple(_path(chunk)): (anew.data, chunk) for chunk in new_group[_CHUNKS][1][1]}
        new_chunks, begin = [], self._at
        for chunk in group[_CHUNKS][1][1]:
            data, chunk = replacements.get(tuple(_path(chunk)), (source.data, chunk))
            start, size = span(chunk)
            new_chunks.append(_move_chunk_entry(chunk, self._at - start))
            self._put(data.slice(start, size))
        raw = sum(chunk[_META][1][_RAW_SIZE][1] for chunk in new_chunks)
        new: Struct = {_CHUNKS: (LIST, (STRUCT, new_chunks)), _GROUP_BYTES: (I64, raw), _GROUP_ROWS: group[_GROUP_ROWS]}
        if _SORTING in group:
            new[_SORTING] = group[_SORTING]
        new |= {_GROUP_OFFSET: (I64, begin), _GROUP_SIZE: (I64, self._at - begin)}
        if len(self._groups) <= _ORDINAL_MAX:
            new[_ORDINAL] = (I16, len(self._groups))
        return new

    def _encode_file_names(self, rows: int) -> tuple[pa.Buffer, Struct]:
        if rows not in self._names:
            table = pa.table({FILE_NAME: base_file.constant(self._file_name, rows)})
            sink = pa.BufferOutputStream()
            pq.write_table(
                table,
                sink,
                row_group_size=rows,
                compression=self._compression,
                write_page_checksum=True,
                store_schema=False,
            )
            name_file = CopySource.parse(sink.getvalue(), whole=False)
            (group,) = name_file.groups()
            (chunk,) = group[_CHUNKS][1][1]
            self._names[rows] = name_file.data, chunk
        return self._names[rows]

    def close(self, key_values: Mapping[str, str]) -> statistics.Stats:
        """Write the footer of the new file.

        Returns the column statistics. The statistics contain the table's own columns and the commit time.
        """
        assert self._first is not None
        entries = [{1: (BINARY, key.encode()), 2: (BINARY, value.encode())} for key, value in key_values.items()]
        changed: dict[int, tuple[int, Any]] = {
            _ROWS: (I64, self.rows),
            _GROUPS: (LIST, (STRUCT, self._groups)),
            _KEY_VALUES: (LIST, (STRUCT, entries)),
        }
        footer = {
            number: (self._first.footer | changed)[number]
            for number in sorted(self._first.footer.keys() | changed.keys())
        }
        data = encode(footer)
        tail = data + struct.pack("<I", len(data)) + MAGIC
        self._put(tail)
        return _footer_statistics(tail)


def _move_chunk_entry(chunk: Struct, by: int) -> Struct:
    kind, meta = chunk[_META]
    meta = {number: value for number, value in meta.items() if number not in _FILTERS}
    for number in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
        if meta.get(number, (I64, 0))[1]:
            meta[number] = (I64, meta[number][1] + by)
    new = {number: value for number, value in chunk.items() if number not in _INDEX_OFFSETS}
    return new | {_FILE_OFFSET: (I64, 0), _META: (kind, meta)}


def _footer_statistics(tail: bytes) -> statistics.Stats:
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + tail))
    schema = metadata.schema.to_arrow_schema()
    own = pa.schema(
        [field for field in schema if field.name not in META_COLUMNS] + [pa.field(COMMIT_TIME, pa.string())]
    )
    return statistics.statistics_from_footer(metadata, own)


def copied_bytes(source: CopySource) -> int:
    return sum(span(chunk)[1] for group in source.groups() for chunk in group[_CHUNKS][1][1])


__all__ = [
    "CannotCopyFile",
    "RowGroupCopier",
    "CopySource",
    "copied_bytes",
    "uncompressed_group_bytes",
    "dictionary_columns_of_group",
    "group_rows",
    "require_compatible_files",
]
