"""Change events of a quarantine, as far as a replay and a purge know them.

How an event is decoded is known by the folders that take events in, which are above this one. They are only loaded for
a quarantine that has such events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from hoodoo.table.quarantine.payloads import is_change

_READER = "hoodoo.ingestion.replaying"


@dataclass(frozen=True)
class Changes:
    """Changes that a replay writes together.

    Attributes:
        positions: Positions of the rows of the quarantine that these changes are made from, or that need no change.
        rows: The changes by the names of the table, those that are deletes marked by `_hoodie_is_deleted`.
        unavailable: The string that stands for a value that was not sent. None: there is no such string.
        details: What is wrong with each of the rows that cannot be replayed.
    """

    positions: Sequence[int]
    rows: pa.Table
    unavailable: str | None = None
    details: Sequence[str] = ()


def changes_of(target: Any, rows: pa.Table, units: Mapping[str, str]) -> Iterator[Changes]:
    """Decode change events again.

    Args:
        target: The table that they are for.
        rows: Rows of its quarantine that are change events, or made from them, in order.
        units: Units of times by column, before those of the job.

    Yields:
        What becomes of them.
    """
    if len(rows):
        yield from import_module(_READER).changes_of(target, rows, units)


def event_keys(target: Any, rows: pa.Table) -> Sequence[tuple[Sequence[int], pa.Table]]:
    """Read which rows of the table change events are of.

    Args:
        target: The table that they are for.
        rows: Rows of its quarantine. Those that are not change events are ignored.

    Returns:
        Positions of events, and their keys by the names of the table. Events whose keys nobody can read are left out.
    """
    if any(map(is_change, rows["payload"].to_pylist())):
        found: Sequence[tuple[Sequence[int], pa.Table]] = import_module(_READER).event_keys(target, rows)
        return found
    return []
