"""Decoder for quarantined change events.

`hoodoo.ingestion` decodes the events. It is imported only for a quarantine that contains change events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from hoodoo.table.quarantine.payloads import comes_from_change_event

_READER = "hoodoo.ingestion.replaying"


@dataclass(frozen=True)
class DecodedChanges:
    """Changes decoded from quarantined change events.

    Attributes:
        positions: Indices of the quarantine rows that contain these changes, or that need no change.
        rows: The changes with the current column names of the table. Deletes are marked by `_hoodie_is_deleted`.
        unavailable: The placeholder string for values that the source did not send, or None without a placeholder.
        details: Descriptions of the problem of each row that cannot be replayed.
    """

    positions: Sequence[int]
    rows: pa.Table
    unavailable: str | None = None
    details: Sequence[str] = ()


def decode_change_events(target: Any, rows: pa.Table, units: Mapping[str, str]) -> Iterator[DecodedChanges]:
    """Decode quarantined change events.

    Args:
        target: The table that the changes apply to.
        rows: Quarantine rows that are change events, or derived from change events, in order.
        units: Time units by column, which override the units of the ingestion job.

    Yields:
        The changes to write, and the problems found.
    """
    if len(rows):
        yield from import_module(_READER).decode_change_events(target, rows, units)


def get_event_keys(target: Any, rows: pa.Table) -> Sequence[tuple[Sequence[int], pa.Table]]:
    """Return the keys of quarantined change events.

    Args:
        target: The table that the events apply to.
        rows: Rows of its quarantine. Rows other than change events are ignored.

    Returns:
        Indices of events in `rows`, and the keys of these events with the column names of the table. Events with
        unreadable keys are omitted.
    """
    if any(map(comes_from_change_event, rows["payload"].to_pylist())):
        found: Sequence[tuple[Sequence[int], pa.Table]] = import_module(_READER).read_event_keys(target, rows)
        return found
    return []
