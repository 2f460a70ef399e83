"""Export of a table to Delta and Iceberg."""

from __future__ import annotations

from hoodoo.errors import HoodooError, OptionError
from hoodoo.exports.delta import delta_export
from hoodoo.exports.iceberg import iceberg_export
from hoodoo.exports.overlays import LogFileChangesCache
from hoodoo.exports.request import ALL, NEWEST, ExportRequest
from hoodoo.exports.results import ExportResult
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import MERGED, READ_OPTIMIZED
from hoodoo.timeline.views.view import View


def export_table(
    store: Store,
    history: History,
    config: TableConfig,
    view: View,
    now_ms: int,
    delta: bool = False,
    iceberg: bool = False,
    rebuild: bool = False,
    mode: str = READ_OPTIMIZED,
    snapshots: str = NEWEST,
    iceberg_version: int | None = None,
    change_feed: bool = False,
) -> ExportResult:
    """Export a table to Delta or Iceberg.

    The newest state is exported.

    Args:
        store: The store of the table.
        history: The slots of the table.
        config: The configuration of the table.
        view: The newest view.
        now_ms: The current time in ms since 1970. It decides which unused files are old enough to delete.
        delta: True exports a Delta log.
        iceberg: True exports Iceberg metadata.
        rebuild: True replaces the existing metadata, even if another writer wrote it.
        mode: 'merged' exports the contents of logs as overlays. 'read_optimized' exports base files only.
        snapshots: 'newest' for one Iceberg snapshot per export, or 'all' for one per slot that changed base files.
        iceberg_version: The version of the Iceberg format, 2 or 3. None keeps the version of the existing export. A
            first export then has version 2.
        change_feed: True enables the change data feed of the Delta log.

    Raises:
        OptionError: `mode` is 'merged', and `snapshots` is 'all' or the Delta log has or gets a change data feed. Or
            the existing export has a newer `iceberg_version`, and `rebuild` is False. Nothing was written.
        SchemaError: A format cannot represent a column. Nothing was written.
        PartitionValueError: A partition has the folder that a format needs. Nothing was written.
        ForeignExport: Another writer committed to the exported metadata of a format.
    """
    if (mode, snapshots) == (MERGED, ALL):
        raise OptionError(
            "history='all' does not work with mode='merged': a merged export cannot reconstruct the rows of log files "
            "at older slots. Pass mode='read_optimized' (--mode read_optimized), or leave out history (--history).",
            option="history",
        )
    if mode == MERGED and change_feed:
        raise OptionError(
            "change_feed does not support merged exports: expected mode 'read_optimized', got 'merged'. Pass "
            "mode='read_optimized' (--mode read_optimized), or leave out change_feed (--change-feed).",
            option="change_feed",
        )
    if delta:
        delta_export.require_exportable(config, view)
    if iceberg:
        iceberg_export.require_exportable(config, view)
        iceberg_export.require_iceberg_version(store, iceberg_version, rebuild)
    overlays = LogFileChangesCache(store) if mode == MERGED else None
    request = ExportRequest(
        store, history, config, view.seq, now_ms, rebuild, overlays, snapshots == ALL, iceberg_version, change_feed
    )
    try:
        of_delta = delta_export.export_to_delta(request) if delta else None
        of_iceberg = iceberg_export.export_to_iceberg(request) if iceberg else None
    except HoodooError:
        _delete_unreadable_overlays(request)
        raise
    _delete_unreadable_overlays(request)
    slot = min((slot for _, slot in filter(None, (of_delta, of_iceberg))), default=view.seq)
    return ExportResult(slot, of_delta and of_delta[0], of_iceberg and of_iceberg[0])


def _delete_unreadable_overlays(request: ExportRequest) -> None:
    # A purge or cleaning may have made the slot of the overlays unreadable during the export.
    if request.overlays and request.history.head().min_readable > request.until:
        request.overlays.delete_unused_files(request.history)
