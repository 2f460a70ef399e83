"""Timeline files: one Avro record in an object container, to and from a plain dict.

It knows the container and the caps that keep a damaged or hostile file from harming the reader. Which kind of record
belongs to which action, and what the fields mean, it does not know. Layout: docs/format.md section 4.3; container: Avro
specification, "Object Container Files".

    "Obj" 1 | map {avro.schema: JSON} | 16 bytes sync marker | 1 record | its bytes | the record | the sync marker
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from typing import Any

import fastavro

from hoodoo.errors import CorruptTable
from hoodoo.format import leb128
from hoodoo.format.timeline.avro_schemas import SCHEMAS, Json

SIZE_CAP = 1 << 30
"""Bytes of one timeline file; a commit that wrote a million files has about 200 MB."""
SCHEMA_CAP = 1 << 20
"""Bytes of the schema inside."""
NESTING_CAP = 32
"""Levels of the schema; Apache Hudi's deepest (clustering plans) has 14."""

_MAGIC = b"Obj\x01"
_SYNC = 16


def encode(kind: str, record: dict[str, Any]) -> bytes:
    """Bytes of a timeline file with one `record`; `kind` is the name of its schema. Equal records give equal bytes.

    Absent fields take their defaults. Raises ValueError for a field the schema does not have or a value of another
    type, KeyError for another kind.
    """
    text, parsed = _own(kind)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, parsed, record, strict_allow_default=True)
    datum = body.getvalue()
    sync = hashlib.blake2b(datum, digest_size=_SYNC).digest()
    header = _MAGIC + _varint(1) + _bytes(b"avro.schema") + _bytes(text) + _varint(0)
    return b"".join((header, sync, _varint(1), _varint(len(datum)), datum, sync))


def decode(data: bytes, kind: str | None = None) -> dict[str, Any]:
    """The one record of a timeline file. Of a kind in `SCHEMAS` it has exactly that schema's fields, whichever release
    of Hudi wrote it.

    Raises CorruptTable for bytes that are not such a file, exceed the caps or, where `kind` is given, hold a record of
    another kind.
    """
    if len(data) > SIZE_CAP:
        raise CorruptTable(
            f"A timeline file has {len(data):,} bytes, more than the {SIZE_CAP:,} that are read.", bytes=len(data)
        )
    schema_text, datum = _ContainerReader(data).container()
    name, writer, reader = _foreign(schema_text)
    if kind not in (None, name):
        raise CorruptTable(f"A timeline file holds a {name} where a {kind} belongs.", found=name, expected=kind)
    stream = io.BytesIO(datum)
    try:
        record = fastavro.schemaless_reader(stream, writer, reader)
    except Exception as error:  # noqa: BLE001  damaged bytes make the decoder raise almost anything
        raise CorruptTable(
            f"The {name} in a timeline file cannot be decoded: {str(error)[:200]!r}.", kind=name
        ) from None
    if stream.tell() != len(datum) or not isinstance(record, dict):
        raise CorruptTable(
            f"The {name} in a timeline file is followed by {len(datum) - stream.tell()} stray bytes.", kind=name
        )
    return record


@functools.cache
def _own(kind: str) -> tuple[bytes, Any]:
    schema = SCHEMAS[kind]()
    return json.dumps(schema, separators=(",", ":")).encode(), fastavro.parse_schema(schema)


@functools.lru_cache(maxsize=64)
def _foreign(text: bytes) -> tuple[str, Any, Any]:
    """Name, parsed schema, and the schema to resolve it to (None: as it is) of the schema text inside a file."""
    try:
        schema = json.loads(text)
        _check_schema(schema, frozenset(), 0, {})
        name, parsed = schema["name"], fastavro.parse_schema(schema)
    except CorruptTable:
        raise
    except Exception as error:  # noqa: BLE001  whatever a parser makes of arbitrary bytes, they are no schema
        raise CorruptTable(f"A timeline file carries a schema that is none: {error!r}.") from None
    return name, parsed, _own(name)[1] if name in SCHEMAS else None


def _check_schema(schema: Json, open_records: frozenset[str], depth: int, known: dict[str, bool]) -> None:
    """Refuse what could make the decoder recurse or loop without using up bytes: deep or recursive types, arrays of
    nothing.

    known: of each record defined so far, whether it surely has a byte.
    """
    if depth > NESTING_CAP:
        raise CorruptTable(f"A timeline file carries a schema nested deeper than {NESTING_CAP} levels.")
    if isinstance(schema, str):
        if schema.rpartition(".")[2] in open_records:
            raise CorruptTable(f"A timeline file carries the schema of {schema}, which contains itself.")
    elif isinstance(schema, list):
        for branch in schema:
            _check_schema(branch, open_records, depth + 1, known)
    elif schema["type"] == "record":
        for field in schema["fields"]:
            _check_schema(field["type"], open_records | {schema["name"].rpartition(".")[2]}, depth + 1, known)
        known[schema["name"].rpartition(".")[2]] = _takes_bytes(schema, known)
    else:
        if schema["type"] == "array" and not _takes_bytes(schema["items"], known):
            raise CorruptTable("A timeline file carries a schema with an array whose items take no bytes.")
        for part in ("items", "values"):
            if part in schema:
                _check_schema(schema[part], open_records, depth + 1, known)


def _takes_bytes(schema: Json, known: dict[str, bool]) -> bool:
    """True if every value of the type surely has at least one byte; a fixed counts as unsure."""
    if isinstance(schema, list):
        return True
    if isinstance(schema, str):
        return schema in ("boolean", "int", "long", "float", "double", "bytes", "string") or known.get(
            schema.rpartition(".")[2], False
        )
    if schema["type"] == "record":
        return any(_takes_bytes(field["type"], known) for field in schema["fields"])
    return schema["type"] in ("array", "map", "enum") or _takes_bytes(schema["type"], known)


def _varint(number: int) -> bytes:
    """Avro's zigzag variable-length long, of a number >= 0."""
    return leb128.encoded(number << 1)


def _bytes(value: bytes) -> bytes:
    return _varint(len(value)) + value


class _ContainerReader:
    """Reads a container from its start; every step past the end is CorruptTable."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def container(self) -> tuple[bytes, bytes]:
        """Schema text and the bytes of the one record."""
        if self._take(len(_MAGIC)) != _MAGIC:
            raise CorruptTable("A timeline file is not an Avro file: it does not begin with 'Obj' 1.")
        schema = self._schema()
        sync = self._take(_SYNC)
        count, size = self._long(), self._long()
        datum = self._take(size)
        if count != 1 or self._take(_SYNC) != sync or self._at != len(self._data):
            raise CorruptTable(
                "A timeline file does not hold exactly one record: it is torn, or something was appended."
            )
        return schema, datum

    def _schema(self) -> bytes:
        meta = self._map()
        if meta.get(b"avro.codec", b"null") != b"null":
            raise CorruptTable(
                f"A timeline file is compressed with {meta[b'avro.codec']!r}; timeline files are not compressed."
            )
        if not 0 < len(meta.get(b"avro.schema", b"")) <= SCHEMA_CAP:
            raise CorruptTable("A timeline file carries no schema, or one that is too large.")
        return meta[b"avro.schema"]

    def _map(self) -> dict[bytes, bytes]:
        meta: dict[bytes, bytes] = {}
        while count := self._long():
            if count < 0:  # a negative count is followed by the size in bytes, which nobody needs here
                self._long()
            for _ in range(abs(count)):
                key = self._take(self._long())
                meta[key] = self._take(self._long())
        return meta

    def _long(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise CorruptTable("A timeline file holds a number of more than 64 bits.")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise CorruptTable(
                f"A timeline file is cut off: {size} bytes were expected at byte {self._at} of {len(self._data)}."
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
