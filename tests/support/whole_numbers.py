"""A source that users could write, its rows, and the columns of tables that take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from hoodoo.sources import Limits, Part, Planned, Source, SourceLag

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


def row(number: int, ts: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": number, "part": "ab"[number % 2], "ts": ts, "v": f"v{number}", **more}


class Numbers(Source):
    """A source that users could write: whole numbers up to `there`, a fixed number of them in a batch."""

    name = "numbers"

    def __init__(self, there: int, at_once: int = 10) -> None:
        self.there, self.at_once, self.reads = there, at_once, 0

    def plan(self, position: str, limits: Limits) -> Planned | None:
        start = int(position or 0)
        stop = min(self.there, start + self.at_once)
        return Planned((start, stop), str(stop)) if start < stop else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        self.reads += 1
        start, stop = planned.what  # type: ignore[misc]
        yield Part(pa.Table.from_pylist([row(number) for number in range(start, stop)], SCHEMA))

    def lag(self, position: str) -> SourceLag:
        return SourceLag(self.there - int(position or 0), "numbers", 0.0)
