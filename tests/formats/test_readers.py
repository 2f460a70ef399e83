"""What pyiceberg, polars and DuckDB read of exported tables; run by `make formats`, never by `make test`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import iceberg_reader
import polars as pl
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from exported_tables import ODD_FOLDERS, make, rows, slots_of_delta
from pyiceberg.table import StaticTable

import hoodoo


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars warns unless one of its two ways to plan a scan is chosen."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("httpfs", "avro", "delta", "iceberg"):
        import_extension(name)
        connection.execute(f"LOAD {name}")
    connection.execute("SET TimeZone='UTC'")
    return connection


def comparable(value: Any) -> Any:
    """Readers differ in how they spell a zone and a map, and pyiceberg has an empty list for a null one."""
    if isinstance(value, dict):
        return [(name, comparable(one)) for name, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [comparable(one) for one in value] or None
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


def plain(table: pa.Table, names: list[str]) -> list[str]:
    found = table.select(names).to_pylist()
    return sorted(repr([comparable(row[name]) for name in names]) for row in found)


def static(path: Path) -> StaticTable:
    return StaticTable.from_metadata(f"{iceberg_reader.metadata(path)['location']}/metadata/{newest(path)}")


def newest(path: Path) -> str:
    return f"v{(path / 'metadata/version-hint.text').read_text()}.metadata.json"


def check(path: Path, duck: duckdb.DuckDBPyConnection, where: str = "true", merged: bool = False) -> None:
    seen = hoodoo.open(path).scan(read_optimized=not merged).to_arrow()
    names = seen.schema.names
    want = plain(duck.execute(f"SELECT * FROM seen WHERE {where}").to_arrow_table(), names)
    for reader in (f"iceberg_scan('{path}')", f"delta_scan('file://{path}')"):
        assert plain(duck.execute(f"SELECT * FROM {reader} WHERE {where}").to_arrow_table(), names) == want, reader
    scan = static(path).scan() if where == "true" else static(path).scan(row_filter=where)
    assert plain(scan.to_arrow(), names) == want
    file = f"file://{path}/metadata/{newest(path)}"
    for lazy in (pl.scan_iceberg(file), pl.scan_iceberg(file, reader_override="native"), pl.scan_delta(str(path))):
        some = lazy if where == "true" else lazy.filter(pl.sql_expr(where))
        assert plain(some.collect().to_arrow(), names) == want


def test_every_reader_sees_every_type_and_each_snapshot(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    path = tmp_path / "t"
    table = make(path)
    for turn in range(4):
        table.upsert(rows(*range(turn * 3, turn * 3 + 6), version=turn, part="ab"[turn % 2]))
        table.export(delta=True, iceberg=True)
    check(path, duck)
    for where in ("part = 'a'", "id BETWEEN 4 AND 9", "small < -7", "text = 'text 1 5'"):
        check(path, duck, where)
    assert each_snapshot(path, duck) == 4


def each_snapshot(path: Path, duck: duckdb.DuckDBPyConnection) -> int:
    """Each snapshot has the rows of its slot; DuckDB reads it under the newest columns. Returns how many there are."""
    table, found = hoodoo.open(path), static(path)
    for snapshot in found.metadata.snapshots:
        assert snapshot.summary is not None
        seen = table.scan(as_of=int(snapshot.summary["hoodoo.slot"] or 0)).to_arrow()
        want = plain(seen, seen.schema.names)
        assert plain(found.scan(snapshot_id=snapshot.snapshot_id).to_arrow(), seen.schema.names) == want
        query = f"SELECT * FROM iceberg_scan('{path}', snapshot_from_id={snapshot.snapshot_id})"
        read = duck.execute(query).to_arrow_table()
        names = [name for name in seen.schema.names if name in read.schema.names]
        assert plain(read, names) == plain(seen, names)
    return len(found.metadata.snapshots)


def test_every_reader_sees_each_slot_of_an_export_of_all(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    path = tmp_path / "t"
    table = make(path)
    for turn in range(24):  # so that small manifests are merged
        table.upsert(rows(*range(turn * 3, turn * 3 + 6), version=turn, part="abc"[turn % 3]))
    table.alter.add_column("more", pa.int64())
    table.upsert([{"id": 1, "part": "a", "more": 7}], columns="given")
    table.delete(where="part = 'b'")
    table.export(delta=True, iceberg=True, history="all")
    check(path, duck)
    assert each_snapshot(path, duck) == 27  # that of the empty table, too


def test_every_reader_finds_odd_folders_and_default_partitions(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string())]))
    table.upsert([{"id": number, "part": part} for number, part in enumerate([*ODD_FOLDERS, None])])
    table.export(delta=True, iceberg=True)
    check(path, duck)
    table.upsert([{"id": 99, "part": ""}])
    table.export(delta=True, iceberg=True)
    check(path, duck)


@pytest.mark.filterwarnings("ignore:partition_by contains column")
@pytest.mark.parametrize("name", ["small", "flag", "day", "at", "local", "amount", "bytes"])
def test_every_reader_sees_partitions_of_any_type(tmp_path: Path, duck: duckdb.DuckDBPyConnection, name: str) -> None:
    path = tmp_path / "t"
    table = make(path, partition_by=name)
    table.upsert(rows(*range(6)))
    table.export(delta=True, iceberg=True)
    check(path, duck)
    check(path, duck, "id BETWEEN 2 AND 4")


def test_every_reader_sees_two_partition_columns(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    path = tmp_path / "t"
    table = make(path, partition_by=["part", "small"])
    table.upsert(rows(*range(5)))
    table.upsert(rows(*range(5, 10), part=None))
    table.export(delta=True, iceberg=True)
    check(path, duck)
    check(path, duck, "part = 'a'")
    check(path, duck, "small < -2")


def test_every_reader_sees_columns_that_changed(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32()), ("b", pa.string())]))
    table.upsert([{"id": 1, "part": "x", "a": 1, "b": "one"}, {"id": 2, "part": "y", "a": 2, "b": "two"}])
    table.export(delta=True, iceberg=True)
    table.alter.add_column("c", pa.int64())
    table.upsert([{"id": 3, "part": "x", "a": 3, "b": "three", "c": 3}])
    table.export(delta=True, iceberg=True)
    check(path, duck)
    table.alter.rename_column("b", "label", rewrite=True)
    table.alter.drop_column("a")
    table.upsert([{"id": 4, "part": "y", "label": "four", "c": None}])
    table.export(delta=True, iceberg=True)
    check(path, duck)


def test_every_reader_starts_at_a_checkpoint_once_a_clean_took_versions(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "t"
    table = make(path, type="merge_on_read")
    for turn in range(14):
        table.upsert(rows(turn, turn + 1, version=turn, part="ab"[turn % 2]))
        table.compact()
    table.export(delta=True, iceberg=True)
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    table.upsert(rows(2, 77))
    table.export(delta=True, iceberg=True)
    assert min(slots_of_delta(path)) > 0
    check(path, duck)


@pytest.mark.parametrize("versions", [(2, 2), (3, 3), (2, 3)], ids=["2", "3", "2 then 3"])
def test_every_reader_sees_what_logs_say_where_an_export_merges_them(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, versions: tuple[int, int]
) -> None:
    path = tmp_path / "t"
    table = make(path, type="merge_on_read")
    table.upsert(rows(*range(40)))
    table.upsert(rows(*range(50, 70), part="b"))
    for turn in range(13):
        table.upsert(rows(turn, turn + 1, 100 + turn, version=turn))
        table.delete([{"id": 20 + turn, "part": "a"}])
        table.upsert([{"id": 50 + turn, "part": "b", "text": f"some {turn}"}], columns="given")
        if turn == 7:
            table.compact()
        table.export(delta=True, iceberg=True, mode="merged", iceberg_version=versions[turn > 5])
    check(path, duck, merged=True)
    for where in ("part = 'a'", "id BETWEEN 4 AND 9", "small < -7", "text = 'some 12'"):
        check(path, duck, where, merged=True)
    found = static(path)
    for snapshot in found.metadata.snapshots:
        assert snapshot.summary is not None
        seen = table.scan(as_of=int(snapshot.summary["hoodoo.slot"] or 0)).to_arrow()
        read = found.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert plain(read, seen.schema.names) == plain(seen, seen.schema.names)


@pytest.mark.parametrize("upgraded", [False, True])
def test_duckdb_has_the_row_ids_of_the_specification(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, upgraded: bool
) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string())]), type="merge_on_read")
    for turn in range(8):
        table.upsert([{"id": number, "part": "ab"[turn % 2]} for number in range(turn, turn + 20)])
        table.delete([{"id": turn + 3, "part": "ab"[turn % 2]}])
        if turn in (3, 6):
            table.compact()
        table.export(iceberg=True, mode="merged", iceberg_version=3 if not upgraded or turn > 4 else 2)
    found = iceberg_reader.metadata(path)
    dead = iceberg_reader.dead_rows(found["snapshots"][-1])
    want = [
        row_id
        for file, ids in iceberg_reader.row_ranges(found, found["snapshots"][-1]).items()
        for at, row_id in enumerate(ids)
        if file not in dead or at not in dead[file][1]
    ]
    read = duck.execute(f"SELECT _row_id FROM iceberg_scan('{path}')").fetchall()
    assert sorted(row_id for (row_id,) in read) == sorted(want)


def test_pyiceberg_is_kept_from_writing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string())]))
    table.upsert([{"id": 1, "part": "x"}])
    table.export(iceberg=True)
    properties = static(path).properties
    assert properties["gc.enabled"] == "false"
    assert properties["write.py-location-provider.impl"] == "none: hoodoo writes this table"
