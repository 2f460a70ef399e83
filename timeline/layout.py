"""Layout of timeline files."""

from __future__ import annotations

HOODIE = ".hoodie/"
"""Hudi's metadata folder, which also contains the timeline files in table version 6."""
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
"""Path prefix of turn requests, with which slow writers ask fast writers to pause (turn_request.py)."""
CHECKPOINTS = OURS + "checkpoints/"
WATERMARKS = OURS + "watermark/"
LEASES = OURS + "readers/"
CONSUMERS = OURS + "consumers/"
PUBLISHED = OURS + "published/"
"""Folder of markers for published slots that have no instant in Hudi's timeline."""
HEARTBEATS = OURS + "heartbeats/"
INDEX = OURS + "index/"
KEYS = OURS + "keys/"
STAGING = OURS + "staging/"
SALVAGED = OURS + "salvaged/"
"""Folder of copies of damaged files, which stay until a user deletes them."""

OVERLAYS = OURS + "overlay/"
"""Folder with the effects of log files on base files, for readers of exports (exports/overlays.py)."""

VECTORS = "metadata/deletion_vector_"  # Trino needs a folder name of letters and digits
"""Path prefix of the deletion vectors of Delta exports."""

POSITIONS = OURS + "positions/"
"""Folder of source positions that are too long for a slot (commit file)."""


def position_key(position: str) -> str | None:
    name, colon, digest = position.partition(":")
    return POSITIONS + digest if name == "sha256" and colon else None


def slot_key(seq: int) -> str:
    return f"{SLOTS}{seq:020d}"


def checkpoint_key(seq: int) -> str:
    return f"{CHECKPOINTS}{seq:020d}.view"
