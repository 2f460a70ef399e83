"""The paths of the timeline's files below a table's root: Hudi's files where Hudi has them, ours below
`.hoodie/.hoodoo`.
"""

from __future__ import annotations

HOODIE = ".hoodie/"
"""Hudi's folder, in which the instants of table version 6 lie."""
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
PLEAS = SLOTS + "plea-"
"""Of writers that lose every race for a slot; they sort after all slots, so whoever lists those finds them."""
CHECKPOINTS = OURS + "checkpoints/"
WATERMARKS = OURS + "watermark/"
LEASES = OURS + "readers/"
CONSUMERS = OURS + "consumers/"
PUBLISHED = OURS + "published/"
"""Slots that leave nothing in Hudi's timeline say here that they are published."""
HEARTBEATS = OURS + "heartbeats/"
INDEX = OURS + "index/"
KEYS = OURS + "keys/"
STAGING = OURS + "staging/"
SALVAGED = OURS + "salvaged/"
"""Copies of damaged files, under their paths, until somebody deletes them by hand."""

OVERLAYS = OURS + "overlay/"
"""What logs made of base files, for readers of exports (exports/overlays.py)."""

POSITIONS = OURS + "positions/"
"""Positions of applications that are too long for a slot, by their digests (ingestion/positions.py)."""


def position_key(position: str) -> str | None:
    """Return the key of the file that a position of an application names; None where the position is all there is."""
    name, colon, digest = position.partition(":")
    return POSITIONS + digest if name == "sha256" and colon else None


def slot_key(seq: int) -> str:
    """Return the key of slot `seq`."""
    return f"{SLOTS}{seq:020d}"


def checkpoint_key(seq: int) -> str:
    """Return the key of the checkpoint of slot `seq`."""
    return f"{CHECKPOINTS}{seq:020d}.view"
