"""Encoder for HFiles of Hudi's metadata table.

HFiles are sorted key-value files.

The format is version 3 as Hudi writes it (docs/format.md 13.6), with big-endian numbers. Equal entries give equal
bytes. Every block except the trailer has this layout:

    8  magic
    4  bytes on disk after this header: content, and 4 zero bytes for each begun 16 KiB of header and content
    4  bytes of the content before compression
    8  -1
    1  0: no checksum
    4  16384
    4  bytes of header and content
    .  content, gzip

A file consists of the data blocks (`DATABLK*`), their index, an empty index of meta blocks (both `IDXROOT2`), file
information (`FILEINF2`), and a trailer of 4096 bytes.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence

from hoodoo.format import leb128

_HEADER = 33
_CHUNK = 16384
_BLOCK_MAX = 1 << 16
# Maximum bytes of the entries in one data block, unless a single entry is larger.
_TRAILER = 4096
_VERSION = 3
_GZIP = 1
_KEY_TYPE = b"\0" + b"\x7f" + b"\xff" * 7 + b"\x04"  # no family, the largest possible time, a put
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"


def encode_hfile(values: Mapping[str, bytes], schema: str, created_ms: int) -> bytes:
    """Encode keys and values as an HFile.

    Args:
        values: The value of each key, at least one.
        schema: The Avro schema of the values, as JSON.
        created_ms: The creation time stored in the file, in ms since 1970.

    Returns:
        The bytes of the file.
    """
    entries = sorted((key.encode(), value) for key, value in values.items())
    out, index, plain_bytes, last_block = b"", b"", 0, 0
    chunks = list(_divide_into_blocks(entries))
    for chunk in chunks:
        plain = b"".join(_entry(key, value) for key, value in chunk)
        block, last_block = _block(b"DATABLK*", plain), len(out)
        first = _short(chunk[0][0])
        index += struct.pack(">qi", last_block, len(block)) + _hadoop_varint(len(first)) + first
        out, plain_bytes = out + block, plain_bytes + len(plain)
    index_at = len(out)
    out += _block(b"IDXROOT2", index) + _block(b"IDXROOT2", b"")
    facts_at = len(out)
    out += _block(b"FILEINF2", _facts(entries, schema, created_ms))
    return out + _trailer(facts_at, index_at, plain_bytes, len(chunks), len(entries), last_block)


_Entries = Sequence[tuple[bytes, bytes]]


def _divide_into_blocks(entries: _Entries) -> Iterable[_Entries]:
    chunk: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        length = len(_entry(key, b"")) + len(value)
        if chunk and size + length > _BLOCK_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += length
    yield chunk


def _entry(key: bytes, value: bytes) -> bytes:
    full_key = _short(key) + _KEY_TYPE
    return struct.pack(">ii", len(full_key), len(value)) + full_key + value + b"\0"


def _short(key: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key


def _block(magic: bytes, plain: bytes) -> bytes:
    content = gzip.compress(plain, mtime=0)
    end = _HEADER + len(content)
    sums = b"\0" * (4 * -(-end // _CHUNK))
    return magic + struct.pack(">iiqbii", len(content) + len(sums), len(plain), -1, 0, _CHUNK, end) + content + sums


def _facts(entries: _Entries, schema: str, created_ms: int) -> bytes:
    count = len(entries)
    facts = {
        "schema": schema.encode(),
        "hfile.LASTKEY": _short(entries[-1][0]),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", sum(len(value) for _, value in entries) // count),
        "hfile.AVG_KEY_LEN": struct.pack(">i", sum(len(key) for key, _ in entries) // count),
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
    }
    pairs = (_field(1, name.encode()) + _field(2, value) for name, value in facts.items())
    message = b"".join(_field(1, pair) for pair in pairs)
    return b"PBUF" + leb128.encoded(len(message)) + message


def _trailer(facts_at: int, index_at: int, plain_bytes: int, blocks: int, entries: int, last_block: int) -> bytes:
    numbers = {1: facts_at, 2: index_at, 3: plain_bytes, 5: blocks, 6: 0, 7: entries, 8: 1, 9: 0, 10: last_block}
    message = b"".join(_number(field, value) for field, value in numbers.items())
    message += _field(11, _COMPARATOR) + _number(12, _GZIP)
    text = b'TRABLK"$' + leb128.encoded(len(message)) + message
    return text.ljust(_TRAILER - 4, b"\0") + struct.pack(">i", _VERSION)


# ---- protocol buffers, and Hadoop's variable-length integer
def _number(field: int, value: int) -> bytes:
    return leb128.encoded(field << 3) + leb128.encoded(value)


def _field(field: int, value: bytes) -> bytes:
    return leb128.encoded(field << 3 | 2) + leb128.encoded(len(value)) + value


def _hadoop_varint(number: int) -> bytes:
    if number <= 0x7F:
        return bytes([number])
    text = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return struct.pack("b", -112 - len(text)) + text
