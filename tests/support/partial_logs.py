"""Tables whose logs hold rows of some columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo
from hoodoo.format.log.block import DataBlock, decode_log
from hoodoo.timeline.slots.slot import DataFile

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("n", pa.int64()),
        ("v", pa.float64()),
        ("word", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
FREE = ("n", "v", "word", "tags")
QUIET: dict[str, Any] = {
    "compact_after_logs": None,
    "slow_after_logs": None,
    "clean_every": None,
    "partial_logs": True,
}
Row = dict[str, Any]


def values(rng: random.Random) -> Row:
    return {
        "n": rng.choice([None, rng.randrange(1000)]),
        "v": rng.choice([None, rng.random()]),
        "word": rng.choice([None, "", f"w{rng.randrange(6)}"]),
        "tags": rng.choice([None, [], ["a", None]]),
    }


def row(number: int, rng: random.Random) -> Row:
    return {"id": number, "day": f"d{number % 2}"} | values(rng)


def made(path: Path, rows: int = 200, schema: pa.Schema = SCHEMA, **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, schema, key="id", partition_by="day", **QUIET | options)
    rng = random.Random(0)
    table.insert(pa.Table.from_pylist([row(number, rng) for number in range(rows)], SCHEMA))
    return table


def found(table: hoodoo.Table, **how: Any) -> dict[int, Row]:
    return {one["id"]: one for one in table.scan(**how).to_arrow().to_pylist()}


def some(number: int, **given: Any) -> Row:
    return {"id": number, "day": f"d{number % 2}"} | given


def logs(table: hoodoo.Table) -> list[DataFile]:
    return [log.file for group in table.handle.history.head().groups() for log in group.logs]


def blocks(table: hoodoo.Table, file: DataFile) -> list[DataBlock]:
    read = decode_log((Path(table.path) / file.path).read_bytes())
    return [block for block in read if isinstance(block, DataBlock)]


def set_in(table: hoodoo.Table, file: DataFile) -> list[tuple[bool, list[str]]]:
    return [(block.partial, block.rows.schema.names[5:]) for block in blocks(table, file)]
