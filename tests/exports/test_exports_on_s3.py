"""Exports of a table on S3: a real server, whose objects readers open by themselves."""

from __future__ import annotations

import json
from typing import Any

import iceberg_reader
import polars as pl
import pyarrow as pa
import pytest
import seaweed
from deltalake import DeltaTable
from exported_tables import plain

import hoodoo
from hoodoo.storage.s3 import S3Store

pytestmark = pytest.mark.xdist_group("s3")

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])


def some(*numbers: int, v: int = 0, parts: tuple[str, str] = ("a", "b")) -> list[dict[str, Any]]:
    return [{"id": f"k{number}", "part": parts[number % 2], "v": v} for number in numbers]


@pytest.fixture
def table(s3: dict[str, Any]) -> hoodoo.Table:
    return hoodoo.create(
        f"{seaweed.place()}/t",
        SCHEMA,
        key="id",
        partition_by="part",
        compact_after_logs=None,
        clean_every=None,
        storage=s3,
    )


def delta_options(s3: dict[str, Any]) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": s3["endpoint"],
        "AWS_REGION": s3["region"],
        "AWS_ACCESS_KEY_ID": s3["access_key"],
        "AWS_SECRET_ACCESS_KEY": s3["secret_key"],
        "AWS_ALLOW_HTTP": "true",
    }


def check_iceberg(table: hoodoo.Table, s3: dict[str, Any]) -> int:
    """Each snapshot has the rows of its slot. Returns how many there are."""
    store = S3Store(table.path, s3)
    found = json.loads(store.get(f"metadata/v{store.get('metadata/version-hint.text').decode()}.metadata.json"))
    assert found["location"] == table.path

    def read(location: str) -> bytes:
        return store.get(location.removeprefix(f"{table.path}/"))

    for snapshot in found["snapshots"]:
        seen = table.scan(as_of=int(snapshot["summary"]["hoodoo.slot"])).to_arrow()
        assert plain(iceberg_reader.rows(found, snapshot, read)) == plain(seen)
    return len(found["snapshots"])


@pytest.mark.parametrize(("mode", "iceberg_version"), [("read_optimized", 2), ("merged", 2), ("merged", 3)])
def test_every_export_to_s3_shows_the_rows_of_its_slot(
    table: hoodoo.Table, s3: dict[str, Any], mode: str, iceberg_version: int
) -> None:
    options = delta_options(s3)
    for turn in range(3):
        table.upsert(some(*range(turn, turn + 6), v=turn))
        table.delete([{"id": f"k{turn}", "part": "ab"[turn % 2]}])
        if mode == "read_optimized":
            table.compact()
        table.export(delta=True, iceberg=True, mode=mode, iceberg_version=iceberg_version)
        want = plain(table.scan().to_arrow())
        assert plain(pl.read_delta(table.path, storage_options=options).to_arrow().cast(SCHEMA)) == want
        if mode == "read_optimized":
            assert plain(DeltaTable(table.path, storage_options=options).to_pyarrow_table()) == want
    assert check_iceberg(table, s3) == 3


def test_of_two_exporters_on_s3_the_second_goes_on_from_the_first(table: hoodoo.Table, s3: dict[str, Any]) -> None:
    other = hoodoo.open(table.path, storage=s3)
    for turn, exporter in enumerate([table, other, table, other]):
        table.insert(some(turn * 10, turn * 10 + 1, parts=("a b", "ü")))
        result = exporter.export(delta=True, iceberg=True)
        assert result.delta is not None and result.iceberg is not None
        assert result.slot == table.cursor.seq
    rows = DeltaTable(table.path, storage_options=delta_options(s3)).to_pyarrow_table()
    assert plain(rows) == plain(table.scan().to_arrow())
    assert check_iceberg(table, s3) == 4
