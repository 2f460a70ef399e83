"""Dry run of an ingestion job: it reads about a hundred rows and writes nothing."""

from __future__ import annotations

from itertools import islice

from hoodoo.errors import TooManyBadRows
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.reading import Read, Reading
from hoodoo.ingestion.report import CheckReport
from hoodoo.sources.source import BAD, Limits
from hoodoo.timeline.applications import Application
from hoodoo.writers.batches.bad_rows import none_of, together

_LIMITS = Limits(rows=100, bytes=1 << 20, bad_rows=100)
_TOLD = 10


def check(reading: Reading, at: Application, position: str) -> CheckReport:
    """Read about a hundred of the next rows, and report what the job would write and quarantine.

    Args:
        reading: The reader of the source.
        at: The state of the job: its name, newest commit and position.
        position: The position of the job, in the source's format.

    Returns:
        The report of the dry run.
    """
    planned = reading.source.plan(position, _LIMITS)
    lag = reading.source.lag(position)
    if planned is None:
        found = Read(reading.table.schema.empty_table(), BAD.empty_table(), none_of(0), (), 0, None)
    else:
        try:
            found = reading.read(planned, reading.table.handle.newest_config(), _LIMITS.rows)
        except TooManyBadRows as problem:
            messages = problem.details.get("found", BAD.empty_table())
            found = Read(reading.table.schema.empty_table(), messages, none_of(0), (), 0, None)
    rows, strange = reading.transformed(found.rows)
    columns: tuple[str, ...] = ()
    misfits = found.misfits
    if len(rows):
        named = reading.table.handle.newest_config().name_mapping.rows(rows)
        columns = tuple(name for name in named.column_names if name != IS_DELETED)
        more = reading.misfits(named, _LIMITS.bad_rows)
        misfits = together([misfits, more])
    told = zip(found.messages["place"].to_pylist(), found.messages["detail"].to_pylist(), strict=True)
    problems = [*(f"{place}: {detail}" for place, detail in told), *misfits.found["detail"].to_pylist()]
    bad = len(found.messages) + misfits.count
    return CheckReport(
        application=at.name,
        version=at.version,
        position=at.position,
        rows=len(found.rows) + found.bad,
        bad=bad,
        problems=tuple(islice(problems, _TOLD)),
        columns=columns,
        unknown=tuple(sorted({*found.unknown, *strange})),
        skipped=found.skipped,
        waiting=lag.waiting,
        unit=lag.unit,
        lag_seconds=lag.seconds,
    )


__all__ = ["check"]
