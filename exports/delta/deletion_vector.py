"""Deletion vectors: which rows of a Parquet file a reader of Delta passes over.

The format is that of Delta's protocol, "Deletion Vector Format", around the bitmap that logs have for positions, too.
It knows numbers and bytes, no files.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from typing import Any

import numpy as np

from hoodoo.format.position_bitmap import bitmap

_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
"""From the letters of Python's base 85 to those of ZeroMQ's, which the protocol asks for."""
_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_AT = len(_VERSION)
_LENGTH_BYTES, _SUM_BYTES = 4, 4


def file_of(positions: np.ndarray) -> bytes:
    """Return the bytes of a file with one deletion vector. positions: int64, ascending, below 2^32."""
    vector = _MAGIC + bitmap(positions)
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
