"""Request to export a table to one format."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.exports.overlays import LogFileChangesCache
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig

NEWEST, ALL = "newest", "all"
"""Commits that get Iceberg snapshots: the newest ('newest'), or all that changed base files ('all')."""
HISTORIES = (NEWEST, ALL)
ICEBERG_VERSIONS = (2, 3)
"""Versions of the Iceberg format that an export can write."""


@dataclass(frozen=True)
class ExportRequest:
    """Request to export a table to one format.

    Attributes:
        store: The store of the table.
        history: The slots of the table.
        config: The configuration of the table.
        until: The slot to export, which readers will see.
        now_ms: The current time in ms since 1970. It decides which unused files are old enough to delete.
        rebuild: True replaces the existing metadata, even if another writer wrote it.
        overlays: The overlays that show the contents of logs to readers. None: logs are not exported.
        each_slot: True creates one snapshot per slot instead of one per export, in formats with this choice. Not
            allowed with overlays.
        iceberg_version: The version of the Iceberg format. None keeps the version of the existing export.
        change_feed: True enables the change data feed of the Delta log. An enabled feed stays enabled.
    """

    store: Store
    history: History
    config: TableConfig
    until: int
    now_ms: int
    rebuild: bool = False
    overlays: LogFileChangesCache | None = None
    each_slot: bool = False
    iceberg_version: int | None = None
    change_feed: bool = False
