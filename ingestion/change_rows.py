"""Conversion of change events to quarantine rows.

Such a row is incomplete: the database may have left out a value, and stored rows of its key may be in other partitions.
The quarantine row contains this information, so that a replay has the same result as the job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.sources.debezium import NOT_SENT
from hoodoo.sources.debezium_kept import encode_row_with_metadata
from hoodoo.table.quarantine.schema import CHANGE
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, deserialize_row, serialize_row


@dataclass(frozen=True)
class ReplayContext:
    """Context that a replay of a change event needs.

    Attributes:
        unavailable: The placeholder string that Debezium sends for an unchanged large value.
        unplaced: True if the table may store rows of the key in other partitions.
    """

    unavailable: str
    unplaced: bool

    def noted(self, not_sent: Sequence[str] = ()) -> bytes:
        content = {"unavailable": self.unavailable, "unplaced": self.unplaced, "not_sent": sorted(not_sent)}
        return json.dumps(content, sort_keys=True).encode()


def add_replay_information(bad: BadRows, rows: pa.Table, context: ReplayContext) -> BadRows:
    """Add replay information to bad rows.

    Args:
        bad: Bad rows of a batch.
        rows: All rows of the batch, including the bad rows.
        context: Information that a replay needs.

    Returns:
        The bad rows, with the information in each payload. Truncated payloads stay unchanged, since they cannot be
        replayed.
    """
    if not bad.count:
        return bad
    markers = [name for name in rows.column_names if name.startswith(NOT_SENT)]  # NOT_SENT itself gives ''
    payloads = list[bytes]()
    table = bad.found
    for row, content, is_cut in zip(
        *(table[name].to_pylist() for name in ("row", "payload", "payload_cut")), strict=True
    ):
        if not is_cut:
            missing = [name.removeprefix(NOT_SENT) for name in markers if pc.fill_null(rows[name][row], False).as_py()]
            content = encode_row_with_metadata(deserialize_row(content), CHANGE, context.noted(missing))
        payloads.append(content)
    index = table.schema.get_field_index("payload")
    return replace(bad, found=table.set_column(index, table.schema.field(index), pa.array(payloads, pa.binary())))


def change_bytes(rows: pa.Table, row: int, config: TableConfig, context: ReplayContext) -> bytes:
    return encode_row_with_metadata(
        deserialize_row(serialize_row(rows, row, config.columns.columns)), CHANGE, context.noted()
    )


__all__ = ["ReplayContext", "add_replay_information", "change_bytes"]
