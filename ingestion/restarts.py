"""A job that goes on from elsewhere: from a place that somebody names, or from where another one has read.

Both are a commit of the job with no rows. So they happen once, whoever else runs the job, and rows that were read
before stay where they are.
"""

from __future__ import annotations

from typing import Any

from hoodoo.errors import CommitConflict, OptionError
from hoodoo.ingestion.positions import stored, whole
from hoodoo.redact import printable
from hoodoo.sources.source import Source, hudi_place
from hoodoo.table import Table
from hoodoo.timeline.applications import Application
from hoodoo.timeline.slots.streamed import HUDI_STREAMER


def reset(source: Source, table: Table, name: str, place: str, expect_number: int) -> Application:
    """Let a job go on from a place.

    Args:
        source: What it reads.
        table: Where its rows go.
        name: Its name.
        place: As `Source.position_at` takes it.
        expect_number: The number of its newest commit, -1 where it has made none.

    Returns:
        How far it is now.

    Raises:
        CommitConflict: Its newest commit has another number.
        OptionError: The source has no such place.
    """
    at = table.application(name)
    if at.version != expect_number:
        raise CommitConflict(
            f"The newest commit of {printable(name)} has the number {at.version}, not {expect_number}: somebody else "
            f"has gone on or reset it. Look again, and expect {at.version} if you still want to.",
            application=name,
            version=at.version,
        )
    return _go_on(source, table, at, _of(source, "position_at")(whole(table.handle.store, place)))


def go_on_from(source: Source, table: Table, name: str, other: str) -> Application:
    """Let a job that has read nothing begin where another application has read to.

    Args:
        source: What it reads.
        table: Where its rows go.
        name: Its name.
        other: The other application; 'hudi-streamer' is Apache Hudi's.

    Returns:
        How far it is now.

    Raises:
        OptionError: The job has read something, the other one has not, or its position is none of the source.
    """
    at, theirs = table.application(name), table.application(other)
    if at.version >= 0 and at.position:
        raise OptionError(
            f"{printable(name)} has read its source itself, up to number {at.version}. Reset it to another place, or "
            "give the job another name.",
            option="name",
        )
    if not theirs.position:
        known = [one.name for one in table.applications() if one.position]
        raise OptionError(
            f"No commit says how far {printable(other)} has read; of others there are {printable(known)}.",
            option="other",
        )
    position = whole(table.handle.store, theirs.position)
    if other == HUDI_STREAMER:
        position = _of(source, "from_hudi")(position)
    else:
        source.lag(position)  # refuses what is none of its own
    return _go_on(source, table, at, position)


def _of(source: Source, method: str) -> Any:
    """A method that sources of users may lack."""
    return getattr(source, method, None) or getattr(Source, method).__get__(source)


def _go_on(source: Source, table: Table, at: Application, position: str) -> Application:
    transaction = at.next(stored(table.handle.store, position), hudi_place(source, position), overtake=True)
    result = table.upsert([], transaction=transaction)
    if result.skipped:
        raise CommitConflict(f"Another process of {printable(at.name)} was first. Look again.", application=at.name)
    return table.application(at.name)


__all__ = ["go_on_from", "reset"]
