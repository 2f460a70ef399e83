"""Puffin files with Iceberg deletion vectors.

Iceberg's format version 3 uses them. The format is defined in the Puffin specification. Equal input gives equal bytes,
because several exporters may write the same file.
"""

from __future__ import annotations

import json
import struct

import numpy as np

from hoodoo.exports.deletion_vectors import encode_deletion_vector
from hoodoo.exports.iceberg.iceberg_schema import Json

_MAGIC = b"PFA1"
_UNCOMPRESSED_FOOTER = bytes(4)
_POSITION_ID = 2147483545
# The id of the metadata column `_pos`, to which a deletion vector refers.


def encode_puffin_file(path: str, positions: np.ndarray) -> tuple[bytes, Json]:
    """Encode a deletion vector as a Puffin file.

    Args:
        path: The path of the data file, as in its manifest entry.
        positions: The positions of the deleted rows: int64, ascending, below 2^32.

    Returns:
        The bytes of the file, and the fields of a manifest entry with the location of the vector in the file.
    """
    vector = encode_deletion_vector(positions)
    blob = {
        "type": "deletion-vector-v1",
        "fields": [_POSITION_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(_MAGIC),
        "length": len(vector),
        "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
    }
    footer = json.dumps({"blobs": [blob], "properties": {"created-by": "hoodoo"}}, separators=(",", ":")).encode()
    size = struct.pack("<i", len(footer))
    data = b"".join([_MAGIC, vector, _MAGIC, footer, size, _UNCOMPRESSED_FOOTER, _MAGIC])
    return data, {"content_offset": len(_MAGIC), "content_size_in_bytes": len(vector)}
