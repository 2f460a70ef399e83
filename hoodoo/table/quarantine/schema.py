"""Schema of quarantine tables."""

from __future__ import annotations

import pyarrow as pa

from hoodoo.errors import OptionError
from hoodoo.storage.store import Store

SUFFIX = "__quarantine"
"""Suffix that turns the path of a table into the path of its quarantine."""
NEW, REPLAYED, DROPPED = "new", "replayed", "dropped"
STATES = (NEW, REPLAYED, DROPPED)
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("position", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("payload", pa.binary()),
        ("payload_cut", pa.bool_()),
        ("application", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("state", pa.string()),
        ("resolved_at", pa.timestamp("us", "UTC")),
    ]
)
KEY = ("source", "position")
"""Key columns: the origin of a bad row, and the identity of its content."""
EVENT, CHANGE = b"hoodoo.event", b"hoodoo.change"
"""Metadata keys that mark payloads as change events, or as rows derived from change events."""
ROWS_AT_ONCE = 200
"""Number of quarantine rows in memory at the same time."""


def store_beside(store: Store) -> Store:
    """Return the store of a table's quarantine.

    Raises:
        OptionError: The table is at the root of a bucket, so its quarantine cannot be next to it.
    """
    beside = store.beside(SUFFIX)
    if beside is None:
        raise OptionError(
            f"The quarantine of {store.uri} needs a parent folder. Create tables in a folder, or under a "
            "prefix in a bucket.",
            path=store.uri,
        )
    return beside
