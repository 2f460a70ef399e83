"""What the table of a quarantine is: where it lies, its columns, its key, and the states of its rows.

Knows neither where bad rows come from nor what becomes of them.
"""

from __future__ import annotations

import pyarrow as pa

from hoodoo.errors import OptionError
from hoodoo.storage.store import Store

SUFFIX = "__quarantine"
"""The quarantine of the table at `path` lies at `path` + SUFFIX."""
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
"""Whence a bad row came, and what its bytes are."""
EVENT, CHANGE = b"hoodoo.event", b"hoodoo.change"
"""Metadata of payloads that are change events, and rows made from change events: what a replay has to know of them."""
ROWS_AT_ONCE = 200
"""So many rows, with their payloads, are in memory together."""


def store_beside(store: Store) -> Store:
    """Find where the quarantine of the table in `store` lies, or will lie.

    Raises:
        OptionError: The table is at the root of a bucket, so that nothing can lie beside it.
    """
    beside = store.beside(SUFFIX)
    if beside is None:
        raise OptionError(
            f"There is no place beside {store.uri} for its quarantine. Create tables in a folder, or under a prefix in "
            "a bucket.",
            path=store.uri,
        )
    return beside
