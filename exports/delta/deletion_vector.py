"""Deletion vectors: which rows of a Parquet file a reader of Delta passes over.

The format is that of Delta's protocol, "Deletion Vector Format": positions as a 64-bit roaring bitmap in its portable
form, without runs. It knows numbers and bytes, no files.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from typing import Any

import numpy as np

_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
"""From the letters of Python's base 85 to those of ZeroMQ's, which the protocol asks for."""
_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_NO_RUNS = 12346
"""The cookie of a 32-bit roaring bitmap without runs."""
_ARRAY_MAX = 4096
"""A container of more positions than these is written as bits."""
_AT = len(_VERSION)
_LENGTH_BYTES, _SUM_BYTES = 4, 4


def file_of(positions: np.ndarray) -> bytes:
    """Return the bytes of a file with one deletion vector. positions: int64, ascending."""
    vector = _MAGIC + _roaring64(positions.astype(np.uint64))
    return b"".join([_VERSION, struct.pack(">I", len(vector)), vector, struct.pack(">I", zlib.crc32(vector))])


def file_name(number: uuid.UUID) -> str:
    """The name of the file of a vector, which readers make of its number."""
    return f"deletion_vector_{number}.bin"


def descriptor(folder: str, number: uuid.UUID, size: int, cardinality: int) -> dict[str, Any]:
    """What the action of a data file says of its vector.

    Args:
        folder: Where the vector's file is, relative to the table.
        number: What names the file.
        size: The bytes of the file.
        cardinality: How many positions the vector has.
    """
    return {
        "storageType": "u",
        "pathOrInlineDv": folder + base64.b85encode(number.bytes).translate(_Z85).decode(),
        "offset": _AT,
        "sizeInBytes": size - _AT - _LENGTH_BYTES - _SUM_BYTES,
        "cardinality": cardinality,
    }


def _roaring64(values: np.ndarray) -> bytes:
    highs, starts = np.unique(values >> np.uint64(32), return_index=True)
    parts = np.split(values & np.uint64(0xFFFFFFFF), starts[1:])
    said = [struct.pack("<I", high) + _roaring32(part) for high, part in zip(highs.tolist(), parts, strict=True)]
    return struct.pack("<Q", len(highs)) + b"".join(said)


def _roaring32(values: np.ndarray) -> bytes:
    keys, starts = np.unique(values >> np.uint64(16), return_index=True)
    parts = np.split((values & np.uint64(0xFFFF)).astype("<u2"), starts[1:])
    head, offsets, body = [struct.pack("<II", _NO_RUNS, len(keys))], [], []
    at = 8 + 8 * len(keys)
    for key, part in zip(keys.tolist(), parts, strict=True):
        head.append(struct.pack("<HH", key, len(part) - 1))
        offsets.append(struct.pack("<I", at))
        body.append(_container(part))
        at += len(body[-1])
    return b"".join([*head, *offsets, *body])


def _container(values: np.ndarray) -> bytes:
    if len(values) <= _ARRAY_MAX:
        return values.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()
