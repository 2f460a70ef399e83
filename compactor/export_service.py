"""Service that exports the table.

It exports to Delta or Iceberg, and updates catalog entries. The option `export_formats` selects the formats. The
service runs before cleaning, so that the newest exported snapshot does not refer to files that cleaning deletes. A
catalog entry that fails is retried separately, and delays neither the export nor other entries.
"""

from __future__ import annotations

import logging

from hoodoo.compactor.catalog_entries import OF_HUDI, OF_ICEBERG
from hoodoo.compactor.service_log import log_failure
from hoodoo.compactor.service_turn import Service, ServiceCounters, ServiceRun, ServiceState
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
    option = config.options.export_formats
    return {NO_FORMAT: (), BOTH_FORMATS: (DELTA, ICEBERG)}.get(option, (option,))


def due(turn: ServiceRun) -> bool:
    if turn.config.options.export_formats == NO_FORMAT and not _has_entries(turn):
        return False
    return _is_full_export_due(turn) or any(turn.duty and not turn.duty.waits(part) for part in _open_entries(turn))


def _has_entries(turn: ServiceRun) -> bool:
    return bool(turn.duty and turn.table in turn.duty.worker.entries)


def _open_entries(turn: ServiceRun) -> set[str]:
    # Entries are open if they failed, or if their catalog has not responded yet.
    if turn.duty is None or not _has_entries(turn):
        return set()
    return {*turn.duty.parts, *turn.duty.worker.entries[turn.table].unanswered()}


def _is_full_export_due(turn: ServiceRun) -> bool:
    # If no full export is due, only single catalog entries may need an update.
    cleans = turn.enough_commits_since(turn.view.cleaned_at_commit)
    duty = turn.duty
    if duty is None:
        return cleans
    return (cleans or duty.worker.once or duty.is_time(_CLOCK)) and duty.changed(turn.view)


def run(turn: ServiceRun) -> bool:
    duty = turn.duty
    is_whole = duty is None or duty.backoff.failures > 0 or _is_full_export_due(turn)  # else only open entries
    _update_catalog_entries(turn, OF_HUDI, is_whole)
    if is_whole:
        _export(turn)
    _update_catalog_entries(turn, OF_ICEBERG, is_whole)
    return False


def _update_catalog_entries(turn: ServiceRun, kind: str, whole: bool) -> None:
    # If `whole` is False, only entries that failed or wait for a response are updated.
    duty = turn.duty
    if duty is None or turn.table not in duty.worker.entries:
        return
    for part in duty.worker.entries[turn.table].parts(kind):
        if (whole or part in _open_entries(turn)) and not duty.waits(part):
            _update_catalog_entry(turn, duty, part, whole)


def _update_catalog_entry(turn: ServiceRun, duty: ServiceState, part: str, anew: bool) -> None:
    # Fetches the response of a running update. A failure is logged, and starts the backoff of the entry.
    began, name = turn.seconds(), part.partition(" ")[2]
    try:
        change = duty.worker.entries[turn.table].update_or_await_entry(part, turn.context, anew, duty.worker.once)
    except Exception as problem:
        wait = duty.failed(problem, turn.now_ms, part)
        log_failure("registration_failed", problem, table=turn.table, entry=name, retry_seconds=wait)
        return
    if change is None:
        return
    duty.succeeded(part)
    if change != "kept":
        seconds = round(turn.seconds() - began, 3)
        turn.tell("registered", ServiceCounters(1, seconds=seconds), entry=name, change=change, seconds=seconds)


def _export(turn: ServiceRun) -> None:
    result = export(turn.context, turn.config, turn.view)
    if turn.duty:
        turn.duty.looked(turn.view)
        turn.duty.schedule_next_run(_CLOCK, turn.config.options.export_every_seconds)
    written = sum(format_result.bytes for format_result in (result.delta, result.iceberg) if format_result)
    if written:
        work = ServiceCounters(1, bytes_written=written, seconds=turn.seconds())
        turn.tell("exported", work, slot=result.slot, bytes=written)


def export(context: Context, config: TableConfig, view: View) -> ExportResult:
    from hoodoo.exports import export as exporting

    timeline = context.timeline
    return exporting.export_table(
        context.store,
        timeline.history,
        config,
        view,
        timeline.environment.now_ms(),
        delta=DELTA in formats(config),
        iceberg=ICEBERG in formats(config),
        mode=config.options.export_mode,
    )


def export_before_clean(context: Context, config: TableConfig, view: View) -> None:
    if config.options.export_formats == NO_FORMAT:
        return
    try:
        export(context, config, view)
    except (HoodooError, OSError) as problem:
        log.warning("export before cleaning failed; cleaning continues: %s", redact(str(problem)))


EXPORT = Service("export", due, run)
