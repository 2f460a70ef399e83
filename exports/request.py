"""What an export is asked for, the same for each format."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.exports.overlays import Overlays
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig

NEWEST, ALL = "newest", "all"
"""Of which slots Iceberg gets snapshots: of the newest one at each export, or of each that changed base files."""
HISTORIES = (NEWEST, ALL)


@dataclass(frozen=True)
class Request:
    """What to bring a format up to.

    Attributes:
        store: Where the table is.
        history: Its slots.
        config: The table.
        until: The slot that readers shall see.
        now_ms: The time, in ms since 1970, by which files that nobody needs are deleted.
        rebuild: True makes the metadata right whatever they say now.
        overlays: By which readers see what logs say. None: they do not see it.
        each_slot: True asks for a snapshot of each slot also where a format has one for each export. Not with overlays.
    """

    store: Store
    history: History
    config: TableConfig
    until: int
    now_ms: int
    rebuild: bool = False
    overlays: Overlays | None = None
    each_slot: bool = False
