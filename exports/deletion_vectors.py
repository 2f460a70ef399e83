"""Deletion vectors of Parquet files.

A deletion vector lists the rows that readers must skip. Delta and Iceberg define the same bytes: "Deletion Vector
Format" in the Delta protocol, and `deletion-vector-v1` in the Puffin specification. They contain the same kind of
bitmap that Hudi's logs use for positions.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from hoodoo.format.position_bitmap import encode_roaring64

_MAGIC = struct.pack("<I", 1681511377)


def encode_deletion_vector(positions: np.ndarray) -> bytes:
    """Encode row positions as a deletion vector.

    The result includes length and checksum. Positions are int64, ascending and below 2^32.
    """
    vector = _MAGIC + encode_roaring64(positions)
    return b"".join([struct.pack(">I", len(vector)), vector, struct.pack(">I", zlib.crc32(vector))])
