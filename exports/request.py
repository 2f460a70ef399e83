"""What an export is asked for, the same for each format."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.exports.overlays import Overlays
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig


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
    """

    store: Store
    history: History
    config: TableConfig
    until: int
    now_ms: int
    rebuild: bool = False
    overlays: Overlays | None = None
