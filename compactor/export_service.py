"""Exporting to other formats as a table service: to those of the option `export_formats`.

It comes before cleaning, so that the newest version and snapshot of an export name no file that a clean deletes.
"""

from __future__ import annotations

import logging

from hoodoo.compactor.service_turn import Service, Turn, Work
from hoodoo.errors import HoodooError
from hoodoo.exports.results import ExportResult
from hoodoo.redact import redact
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import BOTH_FORMATS, DELTA, ICEBERG, NO_FORMAT
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context

log = logging.getLogger("hoodoo.compactor")
_CLOCK = "export"


def formats(config: TableConfig) -> tuple[str, ...]:
    """The formats that the table's option asks for."""
    asked = config.options.export_formats
    return {NO_FORMAT: (), BOTH_FORMATS: (DELTA, ICEBERG)}.get(asked, (asked,))


def due(turn: Turn) -> bool:
    """A worker exports once in `export_every_s` where the table changed; it and a writer do where a clean is due."""
    if turn.config.options.export_formats == NO_FORMAT:
        return False
    cleans = turn.has_passed(turn.view.cleaned_at_commit)
    duty = turn.duty
    if duty is None:
        return cleans
    return (cleans or duty.worker.once or duty.is_time(_CLOCK)) and duty.changed(turn.view)


def run(turn: Turn) -> bool:
    """Export up to the view of the turn. Returns False: nothing is left to do at once."""
    result = export(turn.context, turn.config, turn.view)
    if turn.duty:
        turn.duty.looked(turn.view)
        turn.duty.next_in(_CLOCK, turn.config.options.export_every_s)
    written = sum(one.bytes for one in (result.delta, result.iceberg) if one)
    if written:
        done = Work(1, bytes_written=written, seconds=turn.seconds())
        turn.tell("exported", done, slot=result.slot, bytes=written)
    return False


def export(context: Context, config: TableConfig, view: View) -> ExportResult:
    """Export `view` to the formats of the table's option."""
    from hoodoo.exports import export as exporting

    timeline = context.timeline
    return exporting.export(
        context.store,
        timeline.history,
        config,
        view,
        timeline.environment.now_ms(),
        delta=DELTA in formats(config),
        iceberg=ICEBERG in formats(config),
        mode=config.options.export_mode,
    )


def before_clean(context: Context, config: TableConfig, view: View) -> None:
    """Export before a clean that somebody asked for. A failure is logged: the clean goes on."""
    if config.options.export_formats == NO_FORMAT:
        return
    try:
        export(context, config, view)
    except (HoodooError, OSError) as problem:
        log.warning("exporting before a clean failed, the clean goes on: %s", redact(str(problem)))


EXPORT = Service("export", due, run)
