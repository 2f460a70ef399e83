"""Hudi's log files read by their description (docs/format.md 10) and by fastavro: a second opinion that shares no code
with hoodoo.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro


def blocks(data: bytes) -> Iterator[tuple[int, dict[int, str], bytes]]:
    """Type, header and content of each block."""
    at = 0
    while at < len(data):
        assert data[at : at + 6] == b"#HUDI#"
        length, version, kind, entries = struct.unpack_from(">qiii", data, at + 6)
        assert version == 1
        p, header = at + 26, {}
        for _ in range(entries):
            key, size = struct.unpack_from(">ii", data, p)
            header[key] = data[p + 8 : p + 8 + size].decode()
            p += 8 + size
        (size,) = struct.unpack_from(">q", data, p)
        content, p = data[p + 8 : p + 8 + size], p + 8 + size
        assert struct.unpack_from(">iq", data, p) == (0, length + 6)
        yield kind, header, content
        at += 14 + length
        assert p + 12 == at


def change_records(data: bytes) -> list[dict[str, Any]]:
    """The records of a change log, as fastavro reads them under the schema in each block."""
    found = []
    for kind, header, content in blocks(data):
        assert kind == 6
        assert set(header) == {0, 2}
        version, count = struct.unpack_from(">ii", content)
        assert version == 3
        schema, at = fastavro.parse_schema(json.loads(header[2])), 8
        for _ in range(count):
            (size,) = struct.unpack_from(">i", content, at)
            stream = io.BytesIO(content[at + 4 : at + 4 + size])
            found.append(fastavro.schemaless_reader(stream, schema, None))
            assert stream.tell() == size
            at += 4 + size
        assert at == len(content)
    return found
