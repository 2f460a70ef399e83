"""Tables to export, and what readers of Delta and Iceberg see of them against what hoodoo sees."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import iceberg_reader
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

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


def check_delta(path: Path, optimized: bool = False) -> dict[int, int]:
    """Each version, as deltalake reads it, has the rows of its slot; the slots grow. Returns them."""
    table, slots = hoodoo.open(path), slots_of_delta(path)
    assert list(slots) == list(range(min(slots), max(slots) + 1))
    assert list(slots.values()) == sorted(set(slots.values()))
    for version, slot in slots.items():
        seen = table.scan(as_of=slot, read_optimized=optimized)
        read = DeltaTable(path, version=version).to_pyarrow_table()
        assert read.schema.names == seen.to_arrow().schema.names
        assert plain(read) == plain(seen.to_arrow()), (version, slot)
    assert DeltaTable(path).version() == max(slots)
    return slots


def check_iceberg(path: Path, optimized: bool = False) -> list[int]:
    """Each snapshot has the rows of its slot, and they follow on each other. Returns the slots."""
    table, found = hoodoo.open(path), iceberg_reader.metadata(path)
    slots = [int(one["summary"]["hoodoo.slot"]) for one in found["snapshots"]]
    assert slots == sorted(set(slots))
    assert [one["timestamp-ms"] for one in found["snapshots"]] == sorted(
        one["timestamp-ms"] for one in found["snapshots"]
    )
    assert found["current-snapshot-id"] == found["snapshots"][-1]["snapshot-id"] == found["refs"]["main"]["snapshot-id"]
    for snapshot, slot in zip(found["snapshots"], slots, strict=True):
        seen = table.scan(as_of=slot, read_optimized=optimized).to_arrow()
        assert plain(iceberg_reader.rows(found, snapshot)) == plain(seen), slot
    return slots


def check_hint(path: Path) -> None:
    """The hint names the newest metadata file: DuckDB looks no further."""
    hinted = (path / "metadata/version-hint.text").read_text()
    assert iceberg_reader.metadata(path)["properties"]["hoodoo.version"] == hinted


def check(path: Path, optimized: bool = False) -> None:
    check_delta(path, optimized)
    check_iceberg(path, optimized)


def merged_rows(path: Path, version: int | None = None) -> list[Any]:
    """The rows of a version with deletion vectors: deltalake's SQL passes over dead rows, its `to_pyarrow_table` does
    not read such tables.
    """
    query = QueryBuilder().register("t", DeltaTable(path, version=version)).execute("SELECT * FROM t")
    schema = hoodoo.open(path).scan().to_arrow().schema
    found = pa.table(query)
    return plain(found.select([name for name in schema.names if name in found.schema.names]).cast(_like(found, schema)))


def _like(found: pa.Table, schema: pa.Schema) -> pa.Schema:
    """Its columns, of the types that the table has: deltalake has views for texts."""
    return pa.schema([field for field in schema if field.name in found.schema.names])


def check_merged(path: Path, slots: Any = None) -> None:
    """Each version and each snapshot has the rows of its slot, logs and all. slots: only those of these slots."""
    table = hoodoo.open(path)
    for version, slot in slots_of_delta(path).items():
        if slots is None or slot in slots:
            assert merged_rows(path, version) == plain(table.scan(as_of=slot).to_arrow()), (version, slot)
    check_iceberg_merged(path, slots)


def check_iceberg_merged(path: Path, slots: Any = None) -> None:
    table, found = hoodoo.open(path), iceberg_reader.metadata(path)
    for snapshot in found["snapshots"]:
        slot = int(snapshot["summary"]["hoodoo.slot"])
        if slots is None or slot in slots:
            assert plain(iceberg_reader.rows(found, snapshot)) == plain(table.scan(as_of=slot).to_arrow()), slot
