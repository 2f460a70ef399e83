"""Change events of a real run of Debezium on PostgreSQL, and a source that brings any.

tests/data/debezium has the SQL that was run, the events in the order in which they came, and the rows that the database
ended with: 'plain' without schemas and with the connector's own settings, 'rich' with schemas, decimals as text
and times in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hoodoo.arguments import convert_time_units
from hoodoo.sources import Limits, Part, Placing, Planned, SchemaRegistry, Source, SourceLag
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import EVENT, UNAVAILABLE, DebeziumDecoder
from hoodoo.sources.debezium_avro import DebeziumAvroDecoder

ID = ("id", pa.int64())
LSN = ("_event_lsn", pa.int64())
GOLDEN = Path(__file__).parents[1] / "data" / "debezium"
Event = tuple[bytes | None, bytes | None]
"""The key of a message and its value."""


def golden_events(run: str, table: str) -> list[Event]:
    """The messages of one source table, tombstones included."""
    found = list[Event]()
    for line in (GOLDEN / f"postgres-{run}.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["topic"] == f"pg.shop.{table}":
            found.append((sent(event["key"]), sent(event["value"])))
    return found


def golden_rows(run: str, table: str) -> list[dict[str, Any]]:
    """The rows that the database ended with; numbers are text."""
    rows = json.loads((GOLDEN / f"postgres-{run}.rows.json").read_text(), parse_int=str, parse_float=str)
    found: list[dict[str, Any]] = rows[table]
    return found


def sent(value: Any) -> bytes | None:
    """A value as a message brings it."""
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def change(
    op: str,
    key: Any,
    after: Any = None,
    before: Any = None,
    lsn: int | None = 1,
    connector: str = "postgresql",
    **more: Any,
) -> Event:
    """An event without a schema."""
    source = {"version": "3.0.8.Final", "connector": connector, "snapshot": "false", "lsn": lsn, **more}
    event = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}
    return sent(key), sent(event)


class Changes(Source):
    """Brings events, some of them at once: of JSON, or of Avro with a registry."""

    name = "changes"

    def __init__(
        self,
        events: Sequence[Event],
        at_once: int = 1_000,
        truncate: str = "fail",
        registry: SchemaRegistry | None = None,
        before: str = EVENT,
        time_unit: str | dict[str, str] | None = None,
    ) -> None:
        self.units = convert_time_units(time_unit)
        self.events, self.at_once, self.truncate, self.before = events, at_once, truncate, before
        self.schemas = None if registry is None else AvroSchemas(registry, times=False)

    def plan(self, position: str, limits: Limits) -> Planned | None:
        start = int(position or 0)
        stop = min(len(self.events), start + self.at_once)
        return Planned((start, stop, limits.bad_rows), str(stop)) if start < stop else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        start, stop, bad_max = planned.what  # type: ignore[misc]
        bad = BadMessages("changes", bad_max, lambda number, _: f"0:{number}")
        asked = ("Changes", columns, unknown, Placing.of(columns), self.truncate, self.before)
        decoder = DebeziumDecoder(*asked) if self.schemas is None else DebeziumAvroDecoder(*asked, self.schemas)
        decoder.units = self.units
        there = [number for number in range(start, stop) if self.events[number][1] is not None]
        parts = decoder.rows(
            there, [self.events[one][0] for one in there], [self.events[one][1] or b"" for one in there], bad
        )
        rows = [rows for rows, _ in parts]
        whole = pa.concat_tables(rows, promote_options="permissive") if rows else pa.table({})
        if decoder.emptied is not None:
            behind = decoder.emptied + 1
            yield Part(pa.table({}), skipped=behind - start, position=str(behind), emptied=True)
            return
        skipped = decoder.skipped + stop - start - len(there)
        yield Part(whole, bad.table(), tuple(sorted(decoder.left_out)), skipped, UNAVAILABLE, unplaced=decoder.unplaced)

    def lag(self, position: str) -> SourceLag:
        return SourceLag(len(self.events) - int(position or 0), "events", 0.0)


def decoded(
    events: Sequence[Event],
    *columns: tuple[str, pa.DataType],
    key: Sequence[str] = ("id",),
    placed_by: Sequence[str] = (),
    order_by: Sequence[str] = (),
    unknown: bool = False,
    **how: Any,
) -> tuple[pa.Table, pa.Table]:
    """The rows of events by the columns of a table, and what is bad of them; `how` is as `Changes` takes it."""
    schema = pa.schema(columns).append(pa.field("_hoodie_is_deleted", pa.bool_()))
    placing = Placing(tuple((name,) for name in key), tuple(placed_by), tuple(order_by))
    source = Changes(events, len(events), **how)
    planned = source.plan("", Limits(bad_rows=10_000))
    assert planned is not None
    [part] = source.read(planned, placing.noted_on(schema), unknown)
    return part.rows, part.bad


__all__ = ["ID", "LSN", "Changes", "Event", "change", "decoded", "golden_events", "golden_rows", "sent"]
