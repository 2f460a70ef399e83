"""What tests of topics on a mock of a broker share: the columns of their tables, and a look at what is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from hoodoo.sources import Kafka, Limits, Part

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def read(source: Kafka, position: str = "", limits: Limits | None = None, **how: Any) -> tuple[Part, str]:
    """Read what comes after a position, which there is.

    Args:
        source: The topic.
        position: The position; '' is the beginning.
        limits: How much may be read.
        how: The `columns` of the table, COLUMNS unless named; and `unknown`, whether others are wanted.

    Returns:
        What was read, and the position after it.
    """
    planned = source.plan(position, limits or Limits())
    assert planned is not None
    [part] = source.read(planned, how.get("columns", COLUMNS), how.get("unknown", False))
    return part, planned.position
