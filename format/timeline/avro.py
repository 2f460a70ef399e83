"""Codec for timeline files in Avro.

Each file contains one record. The decoder has limits that protect it from damaged or hostile files. Layout:
docs/format.md section 4.3; container: Avro specification, "Object Container Files".

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
"""Maximum bytes of a timeline file."""
SCHEMA_CAP = 1 << 20
"""Maximum bytes of the Avro schema in a timeline file."""
NESTING_CAP = 32
"""Maximum nesting depth of the schema."""

_MAGIC = b"Obj\x01"
_SYNC = 16


def encode_timeline_file(kind: str, record: dict[str, Any]) -> bytes:
    """Encode a timeline file with one record.

    Equal records give equal bytes. Missing fields take their defaults.

    Raises:
        ValueError: The schema lacks a field of the record, or a value has another type.
        KeyError: `kind` is unknown.
    """
    text, parsed = _own(kind)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, parsed, record, strict_allow_default=True)
    datum = body.getvalue()
    sync = hashlib.blake2b(datum, digest_size=_SYNC).digest()
    header = _MAGIC + _encode_long(1) + _bytes(b"avro.schema") + _bytes(text) + _encode_long(0)
    return b"".join((header, sync, _encode_long(1), _encode_long(len(datum)), datum, sync))


def decode_timeline_file(data: bytes, kind: str | None = None) -> dict[str, Any]:
    """Decode a timeline file.

    A record of a kind in `SCHEMAS` is converted to that schema, so that files of all releases of Hudi have the same
    fields. Raises CorruptTable for damaged bytes, for bytes that exceed the limits, and for a record of another kind.
    """
    if len(data) > SIZE_CAP:
        raise CorruptTable(
            f"Timeline file is too large: expected at most {SIZE_CAP:,} bytes, got {len(data):,}.", bytes=len(data)
        )
    schema_text, datum = _ContainerReader(data).container()
    name, writer, reader = _parse_external_schema(schema_text)
    if kind not in (None, name):
        raise CorruptTable(
            f"Timeline file has the wrong kind: expected {kind}, got {name}. Restore the file from a backup.",
            found=name,
            expected=kind,
        )
    stream = io.BytesIO(datum)
    try:
        record = fastavro.schemaless_reader(stream, writer, reader)
    except Exception as error:  # noqa: BLE001  damaged bytes make the decoder raise almost anything
        raise CorruptTable(
            f"Timeline file with {name} is damaged: {str(error)[:200]!r}. Restore the file from a backup.", kind=name
        ) from None
    if stream.tell() != len(datum) or not isinstance(record, dict):
        raise CorruptTable(
            f"Timeline file with {name} is damaged: it has {len(datum) - stream.tell()} bytes after its record. "
            "Restore the file from a backup.",
            kind=name,
        )
    return record


@functools.cache
def _own(kind: str) -> tuple[bytes, Any]:
    schema = SCHEMAS[kind]()
    return json.dumps(schema, separators=(",", ":")).encode(), fastavro.parse_schema(schema)


@functools.lru_cache(maxsize=64)
def _parse_external_schema(text: bytes) -> tuple[str, Any, Any]:
    # Records are converted to the target schema, unless it is None.
    try:
        schema = json.loads(text)
        _require_safe_schema(schema, frozenset(), 0, {})
        name, parsed = schema["name"], fastavro.parse_schema(schema)
    except CorruptTable:
        raise
    except Exception as error:  # noqa: BLE001  whatever a parser makes of arbitrary bytes, they are no schema
        raise CorruptTable(f"Timeline file has an invalid schema: {error!r}. Restore the file from a backup.") from None
    return name, parsed, _own(name)[1] if name in SCHEMAS else None


def _require_safe_schema(schema: Json, open_records: frozenset[str], depth: int, known: dict[str, bool]) -> None:
    # Unsafe schemas have deep or recursive types, or arrays of items without bytes, which let the decoder recurse or
    # loop without reading bytes. `known` records for each record type whether its values always have a byte.
    if depth > NESTING_CAP:
        raise CorruptTable(
            f"Timeline file has a schema with more than {NESTING_CAP} levels. Restore the file from a backup."
        )
    if isinstance(schema, str):
        if schema.rpartition(".")[2] in open_records:
            raise CorruptTable(
                f"Timeline file has a recursive schema: {schema} contains itself. Restore the file from a backup."
            )
    elif isinstance(schema, list):
        for branch in schema:
            _require_safe_schema(branch, open_records, depth + 1, known)
    elif schema["type"] == "record":
        for field in schema["fields"]:
            _require_safe_schema(field["type"], open_records | {schema["name"].rpartition(".")[2]}, depth + 1, known)
        known[schema["name"].rpartition(".")[2]] = _has_bytes(schema, known)
    else:
        if schema["type"] == "array" and not _has_bytes(schema["items"], known):
            raise CorruptTable(
                "Timeline file has a schema with an array of items without bytes. Restore the file from a backup."
            )
        for part in ("items", "values"):
            if part in schema:
                _require_safe_schema(schema[part], open_records, depth + 1, known)


def _has_bytes(schema: Json, known: dict[str, bool]) -> bool:
    # Always False for a `fixed` type.
    if isinstance(schema, list):
        return True
    if isinstance(schema, str):
        return schema in ("boolean", "int", "long", "float", "double", "bytes", "string") or known.get(
            schema.rpartition(".")[2], False
        )
    if schema["type"] == "record":
        return any(_has_bytes(field["type"], known) for field in schema["fields"])
    return schema["type"] in ("array", "map", "enum") or _has_bytes(schema["type"], known)


def _encode_long(number: int) -> bytes:
    return leb128.encoded(number << 1)


def _bytes(value: bytes) -> bytes:
    return _encode_long(len(value)) + value


class _ContainerReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def container(self) -> tuple[bytes, bytes]:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise CorruptTable(
                "Timeline file is not an Avro file: it does not begin with 'Obj' 1. Restore the file from a backup."
            )
        schema = self._schema()
        sync = self._take(_SYNC)
        count, size = self._long(), self._long()
        datum = self._take(size)
        if count != 1 or self._take(_SYNC) != sync or self._at != len(self._data):
            raise CorruptTable("Timeline file does not contain exactly one record. Restore the file from a backup.")
        return schema, datum

    def _schema(self) -> bytes:
        meta = self._map()
        if meta.get(b"avro.codec", b"null") != b"null":
            raise CorruptTable(f"Timeline file is compressed with {meta[b'avro.codec']!r}: expected no compression.")
        if not 0 < len(meta.get(b"avro.schema", b"")) <= SCHEMA_CAP:
            raise CorruptTable(
                f"Timeline file has no schema, or a schema of more than {SCHEMA_CAP:,} bytes. Restore it from a backup."
            )
        return meta[b"avro.schema"]

    def _map(self) -> dict[bytes, bytes]:
        meta: dict[bytes, bytes] = {}
        while count := self._long():
            if count < 0:  # a negative count is followed by the size in bytes, which is not needed here
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
                raise CorruptTable("Timeline file is damaged: an integer is too large. Restore the file from a backup.")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise CorruptTable(
                f"Timeline file is truncated: expected {size} bytes at byte {self._at} of {len(self._data)}. Restore "
                "the file from a backup."
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
