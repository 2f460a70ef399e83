"""HFiles read by their description (docs/format.md 13.6), and by that Hudi's metadata table: a second opinion that
shares no code with hoodoo.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import fastavro
from hudi_blocks import blocks


@dataclass
class HFile:
    """What an HFile holds: its entries, the facts in it, and its blocks as magic and uncompressed content."""

    entries: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, bytes] = field(default_factory=dict)
    blocks: list[tuple[bytes, bytes]] = field(default_factory=list)
    trailer: dict[int, Any] = field(default_factory=dict)


def read_hfile(data: bytes) -> HFile:
    """Every byte of an HFile without Bloom filters, checked against what its frames say."""
    found = HFile()
    size, at = _varint(data, len(data) - 4096 + 8)
    assert data[-4096 : -4096 + 8] == b'TRABLK"$'
    assert data[at + size :] == b"\0" * (len(data) - at - size - 4) + struct.pack(">i", 3)
    found.trailer = {number: value for number, value in _message(data[at : at + size])}
    offsets, at = [], 0
    while at < len(data) - 4096:
        magic = data[at : at + 8]
        disk, plain, before, kind, chunk, end = struct.unpack_from(">iiqbii", data, at + 8)
        assert (before, kind, chunk) == (-1, 0, 16384)
        content = data[at + 33 : at + end]
        sums = data[at + end : at + 33 + disk]
        assert sums == b"\0" * (4 * -(-end // chunk))
        text = gzip.decompress(content) if found.trailer[12] == 1 else content
        assert len(text) == plain
        found.blocks.append((magic, text))
        offsets.append((at, 33 + disk))
        at += 33 + disk
    assert at == len(data) - 4096
    _entries(found)
    _check_index(found, offsets)
    return found


def _entries(found: HFile) -> None:
    for magic, text in found.blocks:
        at = 0
        while magic == b"DATABLK*" and at < len(text):
            whole, size, short = struct.unpack_from(">iih", text, at)
            key = text[at + 10 : at + 10 + short]
            assert text[at + 10 + short : at + 8 + whole] == bytes.fromhex("007fffffffffffffff04")
            at += 8 + whole
            found.entries[key.decode()] = text[at : at + size]
            assert text[at + size] == 0
            at += size + 1
    assert list(map(str.encode, found.entries)) == sorted(map(str.encode, found.entries))


def _check_index(found: HFile, offsets: list[tuple[int, int]]) -> None:
    magics = [magic for magic, _ in found.blocks]
    data = magics.count(b"DATABLK*")
    assert magics == [b"DATABLK*"] * data + [b"IDXROOT2", b"IDXROOT2", b"FILEINF2"]
    index, at, firsts = found.blocks[data][1], 0, []
    for number in range(data):
        assert struct.unpack_from(">qi", index, at) == offsets[number]
        size, at = _hadoop_varint(index, at + 12)
        assert struct.unpack_from(">h", index, at) == (size - 2,)
        firsts.append(index[at + 2 : at + size])
        at += size
        short = struct.unpack_from(">h", found.blocks[number][1], 8)[0]
        assert firsts[-1] == found.blocks[number][1][10 : 10 + short]
    assert at == len(index)
    assert found.blocks[data + 1][1] == b""
    facts = found.blocks[-1][1]
    assert facts[:4] == b"PBUF"
    size, at = _varint(facts, 4)
    assert at + size == len(facts)
    for _, pair in _message(facts[at:]):
        name, value = (part for _, part in _message(pair))
        found.facts[name.decode()] = value
    assert found.trailer[1] == offsets[-1][0]
    assert found.trailer[2] == offsets[data][0]
    assert found.trailer[3] == sum(len(text) for magic, text in found.blocks if magic == b"DATABLK*")
    assert (found.trailer[5], found.trailer[7]) == (data, len(found.entries))
    assert (found.trailer[9], found.trailer[10]) == (0, offsets[data - 1][0])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _hadoop_varint(data: bytes, at: int) -> tuple[int, int]:
    (first,) = struct.unpack_from("b", data, at)
    if first >= -112:
        return first, at + 1
    size = -112 - first
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _message(data: bytes) -> list[tuple[int, Any]]:
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            found.append((tag >> 3, data[at : at + value]))
            at += value
        else:
            assert tag & 7 == 0
            found.append((tag >> 3, value))
    return found


def log_records(data: bytes) -> list[tuple[str, dict[str, dict[str, Any]], HFile]]:
    """Of each block of HFile records in a log of the metadata table: its instant, its records by key, and the file."""
    found = []
    for kind, header, content in blocks(data):
        if kind != 4:
            continue
        assert set(header) == {0, 2}
        file = read_hfile(content)
        found.append((header[0], records(file, header[2]), file))
    return found


def records(file: HFile, schema: str) -> dict[str, dict[str, Any]]:
    """The records of an HFile by key, as fastavro reads them under `schema`."""
    parsed, found = fastavro.parse_schema(json.loads(schema)), {}
    for key, value in file.entries.items():
        stream = io.BytesIO(value)
        found[key] = fastavro.schemaless_reader(stream, parsed, None)
        assert stream.tell() == len(value)
    return found
