"""Exports a table to other formats: what is asked for is checked as a whole before anything is written."""

from __future__ import annotations

from hoodoo.errors import HoodooError, OptionError
from hoodoo.exports.delta import delta_export
from hoodoo.exports.iceberg import iceberg_export
from hoodoo.exports.overlays import Overlays
from hoodoo.exports.request import ALL, NEWEST, Request
from hoodoo.exports.results import ExportResult
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import MERGED, READ_OPTIMIZED
from hoodoo.timeline.views.view import View


def export(
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
) -> ExportResult:
    """Bring the formats that are asked for up to `view`, the newest one.

    now_ms: the time, by which files that nobody needs are deleted. rebuild: make them right whatever is there. mode:
    what becomes of logs. snapshots: of which slots Iceberg gets them.

    Raises OptionError where all slots are asked for in the mode 'merged', SchemaError or PartitionValueError where a
    format cannot hold the table, all before anything is written, and ForeignExport where another writer committed to
    it.
    """
    if (mode, snapshots) == (MERGED, ALL):
        raise OptionError(
            "history='all' gives a snapshot for each slot, and mode='merged' one for each export: what logs said at "
            "older slots is not made anew. Pass mode='read_optimized' (--mode read_optimized), or leave out history "
            "(--history).",
            option="history",
        )
    if delta:
        delta_export.require_exportable(config, view)
    if iceberg:
        iceberg_export.require_exportable(config, view)
    overlays = Overlays(store) if mode == MERGED else None
    request = Request(store, history, config, view.seq, now_ms, rebuild, overlays, snapshots == ALL)
    try:
        of_delta = delta_export.export(request) if delta else None
        of_iceberg = iceberg_export.export(request) if iceberg else None
    except HoodooError:
        _forget_overlays(request)
        raise
    _forget_overlays(request)
    slot = min((slot for _, slot in filter(None, (of_delta, of_iceberg))), default=view.seq)
    return ExportResult(slot, of_delta and of_delta[0], of_iceberg and of_iceberg[0])


def _forget_overlays(request: Request) -> None:
    """Delete overlays that were written of slots that a purge, or a clean, has passed meanwhile."""
    if request.overlays and request.history.head().min_readable > request.until:
        request.overlays.forget_passed(request.history)
