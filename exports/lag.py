"""Lag of an export: commits that it does not contain yet."""

from __future__ import annotations

from hoodoo.errors import SnapshotExpired
from hoodoo.exports.base_files import yield_commit_changes
from hoodoo.exports.delta import log as delta_log
from hoodoo.exports.iceberg import metadata_files, table_metadata
from hoodoo.exports.results import ExportLag
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.table_options import DELTA
from hoodoo.timeline.slots.slot import COMPLETED
from hoodoo.timeline.views.view import View


def export_lag(store: Store, history: History, view: View, format: str, now_ms: int) -> ExportLag:
    slot, merges = _newest_delta_slot(store) if format == DELTA else _iceberg(store)
    missing = _unexported_slots(history, slot, view, merges)
    since = view.completed_at if not missing else history.slot(missing[0]).completed_at
    return ExportLag(slot, len(missing), max(0, now_ms - since) / 1000 if missing else 0.0)


def _unexported_slots(history: History, slot: int, view: View, merges: bool) -> list[int]:
    # Archived slots are left out, because they are unknown.
    first = max(slot, history.oldest_slot() - 1)
    try:
        return [
            step.slot.seq
            for step in yield_commit_changes(history, first, view.seq)
            if step.changes or merges and step.slot.outcome == COMPLETED and step.slot.writes_rows
        ]
    except SnapshotExpired:
        return [view.seq]


def _newest_delta_slot(store: Store) -> tuple[int, bool]:
    # The second value is True if the export includes the contents of log files.
    newest = delta_log.newest(store)
    return newest.slot, bool(newest.overlays)


def _iceberg(store: Store) -> tuple[int, bool]:
    version, metadata = metadata_files.find_newest_metadata(store)
    if metadata is None or not table_metadata.is_written_by_hoodoo(metadata, version):
        return 0, False
    return int(metadata["properties"][table_metadata.SLOT]), bool(table_metadata.merged_logs_digest(metadata))
