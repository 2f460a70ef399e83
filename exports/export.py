"""Exports a table to other formats: what is asked for is checked as a whole before anything is written."""

from __future__ import annotations

from hoodoo.exports.delta import delta_export
from hoodoo.exports.iceberg import iceberg_export
from hoodoo.exports.overlays import Overlays
from hoodoo.exports.request import Request
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
) -> ExportResult:
    """Bring the formats that are asked for up to `view`, the newest one.

    now_ms: the time, by which files that nobody needs are deleted. rebuild: make them right whatever is there. mode:
    what becomes of logs.

    Raises SchemaError or PartitionValueError, before anything is written, where a format cannot hold the table, and
    ForeignExport where another writer committed to it.
    """
    if delta:
        delta_export.require_exportable(config, view)
    if iceberg:
        iceberg_export.require_exportable(config, view)
    overlays = Overlays(store) if mode == MERGED else None
    request = Request(store, history, config, view.seq, now_ms, rebuild, overlays)
    of_delta, of_iceberg = (
        delta_export.export(request) if delta else None,
        iceberg_export.export(request) if iceberg else None,
    )
    slot = min((slot for _, slot in filter(None, (of_delta, of_iceberg))), default=view.seq)
    return ExportResult(slot, of_delta and of_delta[0], of_iceberg and of_iceberg[0])
