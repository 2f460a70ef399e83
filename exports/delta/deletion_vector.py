"""Deletion vectors in Delta tables.

A deletion vector lists the rows of a Parquet file that readers must skip. The format is defined in the Delta protocol,
"Deletion Vector Format".
"""

from __future__ import annotations

import base64
import uuid
from typing import Any

import numpy as np

from hoodoo.exports.deletion_vectors import encode_deletion_vector
from hoodoo.timeline.layout import VECTORS

_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
# Maps the alphabet of Python's base 85 to ZeroMQ's Z85, which the protocol requires.
_VERSION = b"\x01"
_AT = len(_VERSION)
_LENGTH_BYTES, _SUM_BYTES = 4, 4


def file_of(positions: np.ndarray) -> bytes:
    return _VERSION + encode_deletion_vector(positions)


def key_of(number: uuid.UUID) -> str:
    return f"{VECTORS}{number}.bin"


def describe_deletion_vector(number: uuid.UUID, size: int, cardinality: int) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": VECTORS.partition("/")[0] + base64.b85encode(number.bytes).translate(_Z85).decode(),
        "offset": _AT,
        "sizeInBytes": size - _AT - _LENGTH_BYTES - _SUM_BYTES,
        "cardinality": cardinality,
    }
