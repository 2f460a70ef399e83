"""Rows made from change events, in the form of the quarantine.

Such a row is incomplete: a value may not have been sent, and stored rows of its key may be in other partitions. The
stored form contains this information, so that a replay has the same result as the job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.sources.debezium import NOT_SENT
from hoodoo.sources.debezium_kept import with_note
from hoodoo.table.quarantine.schema import CHANGE
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, row_bytes, row_of


@dataclass(frozen=True)
class ChangeContext:
    """Information for the replay of a row that was made from a change event.

    Attributes:
        unavailable: The placeholder string for a value that was not sent.
        unplaced: True if stored rows of its key may be in other partitions.
    """

    unavailable: str
    unplaced: bool

    def noted(self, not_sent: Sequence[str] = ()) -> bytes:
        """Return the context as bytes. `not_sent` contains the names of columns that the event does not have."""
        said = {"unavailable": self.unavailable, "unplaced": self.unplaced, "not_sent": sorted(not_sent)}
        return json.dumps(said, sort_keys=True).encode()


def as_changes(bad: BadRows, rows: pa.Table, context: ChangeContext) -> BadRows:
    """Mark bad rows as made from change events.

    Args:
        bad: Bad rows.
        rows: All rows of the batch, including the bad rows.
        context: Information for a replay.

    Returns:
        The bad rows.
    """
    if not bad.count:
        return bad
    marks = [name for name in rows.column_names if name.startswith(NOT_SENT)]  # NOT_SENT itself gives ''
    payloads = list[bytes]()
    found = bad.found
    for row, content, cut in zip(*(found[name].to_pylist() for name in ("row", "payload", "payload_cut")), strict=True):
        if not cut:
            lacks = [name.removeprefix(NOT_SENT) for name in marks if pc.fill_null(rows[name][row], False).as_py()]
            content = with_note(row_of(content), CHANGE, context.noted(lacks))
        payloads.append(content)
    at = found.schema.get_field_index("payload")
    return replace(bad, found=found.set_column(at, found.schema.field(at), pa.array(payloads, pa.binary())))


def change_bytes(rows: pa.Table, row: int, config: TableConfig, context: ChangeContext) -> bytes:
    """Encode a row made from a change event for the quarantine.

    Args:
        rows: Rows with the names of the table.
        row: The position of the row.
        config: The configuration of the table.
        context: Information for a replay.

    Returns:
        The row in Arrow's IPC stream format.
    """
    return with_note(row_of(row_bytes(rows, row, config.columns.columns)), CHANGE, context.noted())


__all__ = ["ChangeContext", "as_changes", "change_bytes"]
