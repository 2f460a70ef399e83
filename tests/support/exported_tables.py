"""Tables to export: with columns of every type that both formats have, in folders with odd names."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo

EVERY = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("amount", pa.decimal128(38, 4)),
        ("items", pa.list_(pa.struct([("n", pa.int32()), ("word", pa.string())]))),
        ("named", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])),
    ]
)
"""A column of each type that both formats have."""
NARROW = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
ODD_FOLDERS = ["a/b", "c d", "e%", "%2F", "ü", "g=h", "i&j", "k'l", "#m", "n?o", "p+q", "t\tu", "metadata2", "_x"]


def every_row(number: int, version: int = 0, part: str | None = "a") -> dict[str, Any]:
    """A row with negative numbers, times before 1970, and nulls in every fifth."""
    if number % 5 == 4:
        return {"id": number, "part": part}
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999) + dt.timedelta(days=number * 97, microseconds=number)
    return {
        "id": number,
        "part": part,
        "flag": number % 2 == 0,
        "small": -number,
        "single": number / 4,
        "double": -number / 8,
        "text": f"text {version} {number}",
        "bytes": bytes([number % 256, 0, 255]),
        "day": moment.date(),
        "at": moment.replace(tzinfo=dt.timezone.utc),
        "local": moment,
        "amount": Decimal("1234567890123456789012345678901234.5678") * (1 - 2 * (number % 2)) + number,
        "items": [{"n": number, "word": None}, {"n": None, "word": "w"}],
        "named": [("k", number), ("l", None)],
        "inner": {"x": number, "deep": {"y": str(version)}},
    }


def rows(*numbers: int, version: int = 0, part: str | None = "a") -> pa.Table:
    return pa.Table.from_pylist([every_row(number, version, part) for number in numbers], schema=EVERY)


def make(path: Path, schema: pa.Schema = EVERY, **options: Any) -> hoodoo.Table:
    """A table in which no service runs by itself."""
    settings = {"key": "id", "partition_by": "part", "type": "copy_on_write", "clean_every": None} | options
    if settings["type"] == "merge_on_read":
        settings["compact_after_logs"] = None
    return hoodoo.create(path, schema, **settings)


def narrow(path: Path, **options: Any) -> hoodoo.Table:
    return make(path, NARROW, **{"type": "merge_on_read"} | options)


def some(*numbers: int, ts: int = 1, v: int = 0, part: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "part": part, "ts": ts, "v": v} for number in numbers]


def plain(found: Any) -> list[Any]:
    """Rows in an order, so that two tables of them can be compared."""
    rows = found.to_pylist() if isinstance(found, pa.Table) else found
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


def slots_of_delta(path: Path) -> dict[int, int]:
    """Version -> the slot that it says to show, of the versions that are there."""
    found = {}
    for file in sorted((path / "_delta_log").glob("*.json")):
        said = [json.loads(line) for line in file.read_text().splitlines()]
        found[int(file.stem)] = next(one["txn"]["version"] for one in said if "txn" in one)
    return found
