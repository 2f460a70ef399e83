"""Check of an ingestion job, without writes."""

from __future__ import annotations

from itertools import islice

from hoodoo.errors import TooManyBadRows
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.reading import SourceBatch, SourceReader
from hoodoo.ingestion.report import CheckReport
from hoodoo.sources.source import BAD, Limits
from hoodoo.timeline.applications import Application
from hoodoo.writers.batches.bad_rows import no_bad_rows, together

_LIMITS = Limits(rows=100, bytes=1 << 20, bad_rows=100)
_TOLD = 10


def check(reading: SourceReader, state: Application, position: str) -> CheckReport:
    planned = reading.source.plan(position, _LIMITS)
    lag = reading.source.lag(position)
    if planned is None:
        batch = SourceBatch(reading.table.schema.empty_table(), BAD.empty_table(), no_bad_rows(0), (), 0, None)
    else:
        try:
            batch = reading.read(planned, reading.table.handle.newest_config(), _LIMITS.rows)
        except TooManyBadRows as problem:
            messages = problem.details.get("found", BAD.empty_table())
            batch = SourceBatch(reading.table.schema.empty_table(), messages, no_bad_rows(0), (), 0, None)
    rows, left_out = reading.apply_transform(batch.rows)
    columns: tuple[str, ...] = ()
    misfits = batch.misfits
    if len(rows):
        named = reading.table.handle.newest_config().name_mapping.rows(rows)
        columns = tuple(name for name in named.column_names if name != IS_DELETED)
        rejected = reading.misfits(named, _LIMITS.bad_rows)
        misfits = together([misfits, rejected])
    problems_of_messages = zip(batch.messages["place"].to_pylist(), batch.messages["detail"].to_pylist(), strict=True)
    problems = [*(f"{place}: {detail}" for place, detail in problems_of_messages), *misfits.found["detail"].to_pylist()]
    bad = len(batch.messages) + misfits.count
    return CheckReport(
        application=state.name,
        version=state.version,
        position=state.position,
        rows=len(batch.rows) + batch.bad,
        bad=bad,
        problems=tuple(islice(problems, _TOLD)),
        columns=columns,
        unknown=tuple(sorted({*batch.unknown, *left_out})),
        skipped=batch.skipped,
        waiting=lag.waiting,
        unit=lag.unit,
        lag_seconds=lag.seconds,
    )


__all__ = ["check"]
