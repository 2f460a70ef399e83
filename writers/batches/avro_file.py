"""Reader for Avro files."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from hoodoo.errors import EngineError, HoodooError
from hoodoo.format.avro.schema import convert_to_arrow_schema

_NO_CODEC = " codec is supported but you need to install"
"""Part of fastavro's error for a codec whose package is missing."""
_AVRO_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
_CODEC = re.compile(r"(?s)^(\w+) codec is supported.*")
_AVRO_ROWS = 10_000  # maximum number of records held as Python objects


def avro_rows(data: pa.Buffer) -> pa.Table:
    schema, batches = avro_batches(pa.BufferReader(data))
    return pa.concat_tables([schema.empty_table(), *batches])


def avro_batches(source: Any, skip: int = 0) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Read an Avro file in batches.

    Args:
        source: The file, open for reading in binary mode.
        skip: Number of rows to skip at the beginning. Default 0.

    Returns:
        The schema of the file, and an iterator over tables of at most 10,000 rows.

    Raises:
        EngineError: The package for the file's codec is not installed. The iterator may also raise it.
        ValueError: The file is damaged. The iterator may also raise it.
    """
    import fastavro

    with _convert_fastavro_errors():
        header: Any = fastavro.schemaless_reader(source, _AVRO_HEADER)
        if header["magic"] != b"Obj\x01":
            raise ValueError("the file is not an Avro file")
        writer_schema = json.loads(header["meta"]["avro.schema"])
        schema = convert_to_arrow_schema(json.dumps(writer_schema))
        header["meta"]["avro.schema"] = json.dumps(_without_logical_types(writer_schema)).encode()
        new_header = io.BytesIO()
        fastavro.schemaless_writer(new_header, _AVRO_HEADER, header)
        new_header.seek(0)
        stream: Any = _StreamWithNewHeader(new_header, source)
        reader = fastavro.reader(stream)

    def batches() -> Iterator[pa.Table]:
        rows = itertools.islice(reader, skip, None)
        while True:
            with _convert_fastavro_errors(reader.codec):
                records = list(itertools.islice(rows, _AVRO_ROWS))
                if not records:
                    return
                table = pa.Table.from_pylist(records, schema)
            yield table

    return schema, batches()


class _StreamWithNewHeader:
    # The header controls how fastavro converts values.

    def __init__(self, beginning: io.BytesIO, rest: Any) -> None:
        self._beginning, self._rest = beginning, rest

    def read(self, size: int) -> bytes:
        data = self._beginning.read(size)
        return data + self._rest.read(size - len(data)) if len(data) < size else data


@contextmanager
def _convert_fastavro_errors(codec: str = "") -> Iterator[None]:
    try:
        yield
    except HoodooError:
        raise
    except Exception as problem:
        if _NO_CODEC in str(problem):
            codec = codec or _CODEC.sub(r"\1", str(problem))
            raise EngineError(
                f"Avro codec {codec} needs a package that is not installed. Install it: pip install "
                f"'fastavro[{codec}]'.",
                library=codec,
            ) from None
        if isinstance(problem, pa.ArrowInvalid):
            raise
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def _without_logical_types(schema: Any) -> Any:
    # fastavro then returns times and UUIDs as they are stored, and Arrow can convert times of any year.
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    reduced = {
        name: _without_logical_types(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or value == "decimal"
    }
    return reduced


__all__ = ["avro_batches", "avro_rows"]
