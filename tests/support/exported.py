"""What readers of Delta and Iceberg see of exported tables, against what hoodoo sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iceberg_reader
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from exported_tables import plain, slots_of_delta

import hoodoo


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
