"""Follow a table of PostgreSQL by recorded change events of Debezium.

recorded.jsonl has the events, and recorded.csv has the final rows of the database. The program needs only hoodoo.
pipeline.py does this with real servers.

    python recorded.py [FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import shop

import hoodoo
from hoodoo.sources import Limits, Part, Placing, Planned, Source, SourceLag
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import UNAVAILABLE, DebeziumDecoder

EVENTS = Path(__file__).with_name("recorded.jsonl")
"""A line for each message: the step of the story in which it came, its key, and its value."""
ROWS = Path(__file__).with_name("recorded.csv")


class Recorded(Source):
    """Messages of a topic that were written down, decoded as those that come from Kafka.

    Attributes:
        name: That of the topic as a source.
        arrived: How many of them are there yet.
    """

    name = f"kafka:{shop.TOPIC}"

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        self.messages, self.arrived = messages, 0

    def arrive(self, step: int) -> None:
        """Let the messages of a step come, and all before."""
        self.arrived = sum(message["step"] <= step for message in self.messages)

    def plan(self, position: str, limits: Limits) -> Planned | None:
        start = int(position or 0)
        stop = min(self.arrived, start + limits.rows)
        return Planned((start, stop, limits.bad_rows), str(stop)) if start < stop else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        start, stop, bad_rows = planned.what  # type: ignore[misc]
        bad = BadMessages(shop.TOPIC, bad_rows, lambda number, _: str(number))
        decoder = DebeziumDecoder(shop.TOPIC, columns, unknown, Placing.of(columns), "fail")
        numbers = [number for number in range(start, stop) if self.messages[number]["value"] is not None]
        keys, values = ([_bytes(self.messages[number][part]) for number in numbers] for part in ("key", "value"))
        skipped = stop - start - len(numbers)  # after a delete comes a message without a value, for Kafka's own sake
        for rows, _ in decoder.rows(numbers, keys, values, bad):
            yield Part(rows, unavailable=UNAVAILABLE)
        yield Part(pa.table({}), bad.table(), tuple(decoder.left_out), skipped + decoder.skipped, UNAVAILABLE)

    def lag(self, position: str) -> SourceLag:
        return SourceLag(self.arrived - int(position or 0), "messages", 0.0)


def write(messages: Sequence[dict[str, Any]], rows: bytes) -> None:
    """Make the recording anew."""
    EVENTS.write_text("".join(json.dumps(message, ensure_ascii=False) + "\n" for message in messages))
    ROWS.write_bytes(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="A table follows recorded changes of PostgreSQL.")
    parser.add_argument("folder", nargs="?", help="where the table is made, to stay; else it is thrown away at the end")
    given = parser.parse_args()
    recorded = Recorded([json.loads(line) for line in EVENTS.read_text().splitlines()])
    with shop.made(given.folder) as table:
        job, seen = hoodoo.ingest(recorded, table, name="orders"), []
        for number, title in enumerate(shop.STEPS):
            recorded.arrive(number)
            job.run()
            shop.show(title, shop.rows(table))
            seen.append(table.cursor)
        shop.look_back(table, seen)
        shop.require_same(table, shop.rows_of_csv(ROWS.read_bytes()))


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


if __name__ == "__main__":
    main()
