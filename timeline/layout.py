"""Paths of timeline files, relative to the table. Hudi's files have Hudi's paths; hoodoo's are in `.hoodie/.hoodoo`."""

from __future__ import annotations

HOODIE = ".hoodie/"
"""Hudi's folder. It also contains the instants of table version 6."""
PROPERTIES = ".hoodie/hoodie.properties"
PROPERTIES_BACKUP = ".hoodie/hoodie.properties.backup"
METADATA_TABLE = ".hoodie/metadata"
INDEX_DEFINITIONS = ".hoodie/.index_defs"
TIMELINE = ".hoodie/timeline/"
HISTORY = ".hoodie/timeline/history/"
MARKERS = ".hoodie/.temp/"
HUDI_HEARTBEATS = ".hoodie/.heartbeat/"
HUDI_LOCK = ".hoodie/lock"
OURS = ".hoodie/.hoodoo/"
CLAIMS = OURS + "instants/"
SLOTS = OURS + "commits/"
TURN_REQUESTS = SLOTS + "turn-request-"
"""Turn requests of writers that lose races for slots. They sort after all slots, so listing the slots finds them."""
CHECKPOINTS = OURS + "checkpoints/"
WATERMARKS = OURS + "watermark/"
LEASES = OURS + "readers/"
CONSUMERS = OURS + "consumers/"
PUBLISHED = OURS + "published/"
"""Markers for published slots that have no instant in Hudi's timeline."""
HEARTBEATS = OURS + "heartbeats/"
INDEX = OURS + "index/"
KEYS = OURS + "keys/"
STAGING = OURS + "staging/"
SALVAGED = OURS + "salvaged/"
"""Copies of damaged files, under their paths. They are kept until a user deletes them manually."""

OVERLAYS = OURS + "overlay/"
"""Effects of logs on base files, for readers of exports (exports/overlays.py)."""

VECTORS = "metadata/deletion_vector_"
"""Prefix of the deletion vectors of Delta exports. Trino needs a folder name of letters and digits."""

POSITIONS = OURS + "positions/"
"""Application positions that are too long for a slot, by digest (ingestion/positions.py)."""


def position_key(position: str) -> str | None:
    """Return the key of the file that an application position refers to, or None for an inline position."""
    name, colon, digest = position.partition(":")
    return POSITIONS + digest if name == "sha256" and colon else None


def slot_key(seq: int) -> str:
    """Return the key of slot `seq`."""
    return f"{SLOTS}{seq:020d}"


def checkpoint_key(seq: int) -> str:
    """Return the key of the checkpoint of slot `seq`."""
    return f"{CHECKPOINTS}{seq:020d}.view"
