"""Restarts of an ingestion job at another position.

Each change is a commit of the job without rows. It therefore happens exactly once, even if other processes run the job.
Rows in the table stay.
"""

from __future__ import annotations

from typing import Any

from hoodoo.errors import CommitConflict, OptionError
from hoodoo.ingestion.positions import load_position, store_position
from hoodoo.redact import printable
from hoodoo.sources.source import Source, streamer_checkpoint
from hoodoo.table import Table
from hoodoo.timeline.applications import Application
from hoodoo.timeline.slots.streamed import HUDI_STREAMER


def reset(source: Source, table: Table, name: str, start: str, expect_number: int) -> Application:
    state = table.inspect.application(name)
    if state.version != expect_number:
        raise CommitConflict(
            f"The newest commit of {printable(name)} has another number: expected {expect_number}, got "
            f"{state.version}, because another process committed or reset it. Read the position again, and pass "
            f"{state.version} if you still want to reset it.",
            application=name,
            version=state.version,
        )
    return _go_on(
        source, table, state, _method_or_default(source, "position_at")(load_position(table.handle.store, start))
    )


def continue_from(source: Source, table: Table, name: str, other: str) -> Application:
    state, other_state = table.inspect.application(name), table.inspect.application(other)
    if state.version >= 0 and state.position:
        raise OptionError(
            f"{printable(name)} already has a position, number {state.version}. Reset this job to another position, "
            "or pass the name of a new job.",
            option="name",
        )
    if not other_state.position:
        candidates = [one.name for one in table.inspect.applications() if one.position]
        raise OptionError(
            f"Application {printable(other)} has no stored position. Use an application with a position: "
            f"{printable(candidates)}.",
            option="other",
        )
    position = load_position(table.handle.store, other_state.position)
    if other == HUDI_STREAMER:
        position = _method_or_default(source, "from_hudi")(position)
    else:
        source.lag(position)  # raises an error for a position of another source
    return _go_on(source, table, state, position)


def _method_or_default(source: Source, method: str) -> Any:
    # A user's source may lack the method.
    return getattr(source, method, None) or getattr(Source, method).__get__(source)


def _go_on(source: Source, table: Table, state: Application, position: str) -> Application:
    transaction = state.next(
        store_position(table.handle.store, position), streamer_checkpoint(source, position), overtake=True
    )
    result = table.upsert([], transaction=transaction)
    if result.skipped:
        raise CommitConflict(
            f"Another process of {printable(state.name)} committed first. Read the position of the job again.",
            application=state.name,
        )
    return table.inspect.application(state.name)


__all__ = ["continue_from", "reset"]
