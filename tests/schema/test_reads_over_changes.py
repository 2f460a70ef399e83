"""Every read and every repair of a table whose live files were written under several schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo import AddColumn, DropColumn, MoveColumn, RenameColumn

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("a", pa.int32()), ("b", pa.string()), ("f", pa.float32())]
)


def row(key: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "part": "pqr"[key % 3], "a": key, "b": f"b{key}", "f": 0.5} | values


def make(path: Path, kind: str, **options: Any) -> hoodoo.Table:
    """Keys 0 to 8 in three partitions: p has files of the first schema (a, b), q of the second (b, n, int64), r of the
    third. A log lies over each where the table has logs.
    """
    quiet: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="part", type=kind, **quiet | options)
    table.upsert(pa.Table.from_pylist([row(key) for key in range(9)], schema=SCHEMA))
    table.savepoints.create("first")
    table.alter([DropColumn("f"), AddColumn("n", pa.int32(), default=7), MoveColumn("b", first=True)])
    write(table, *(row(key, n=key) for key in (1, 4, 7)))
    table.alter([AddColumn("s", pa.struct([("x", pa.int32())]))])
    write(table, *(row(key, n=2**20, s={"x": key}) for key in (2, 5)))
    return table


def write(table: hoodoo.Table, *rows: dict[str, Any]) -> None:
    schema = hoodoo.open(table.path).schema
    table.upsert(pa.Table.from_pylist([{n: one.get(n) for n in schema.names} for one in rows], schema=schema))


def want() -> list[dict[str, Any]]:
    found = []
    for key in range(9):
        n = key if key % 3 == 1 else 2**20 if key in (2, 5) else None
        s = {"x": key} if key in (2, 5) else None
        found.append({"b": f"b{key}", "id": key, "part": "pqr"[key % 3], "a": key, "n": n, "s": s})
    return found


def rows_of(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**how).to_arrow().to_pylist(), key=lambda one: one["id"])


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return make(tmp_path / "t", request.param)


def test_every_form_of_a_scan_gives_the_same_rows(table: hoodoo.Table) -> None:
    scan = table.scan()
    assert rows_of(table) == want() and scan.count() == 9
    batches = pa.Table.from_batches(list(scan.batches()), scan.schema)
    assert sorted(batches.to_pylist(), key=lambda one: one["id"]) == want()
    assert scan.to_dataset().to_table().sort_by("id").to_pylist() == want()
    assert sorted(scan.to_polars()["id"].to_list()) == list(range(9))
    assert list(scan.to_pandas().sort_values("id")["b"]) == [f"b{key}" for key in range(9)]
    assert table.scan(columns=["n"]).to_arrow()["n"].null_count == 4
    assert table.scan(where="n IS NULL").count() == 4 and table.scan(columns=["s"]).count() == 9
    meta = table.scan(meta=True, verified=True).to_arrow()
    assert meta.sort_by("id").select(list(want()[0])).to_pylist() == want()


def test_a_read_of_bases_only_has_the_columns_of_now(table: hoodoo.Table) -> None:
    found = rows_of(table, read_optimized=True)
    assert list(found[0]) == ["b", "id", "part", "a", "n", "s"]
    assert found[1]["n"] == (1 if table.type == "copy_on_write" else None)


def test_snapshots_and_savepoints_have_the_columns_of_their_time(table: hoodoo.Table) -> None:
    assert rows_of(table, as_of="first") == [row(key) for key in range(9)]
    assert table.inspect.schema_at("first").names == SCHEMA.names
    with table.pin(as_of="first") as pin:
        assert sorted(pin.scan().to_arrow()["f"].to_pylist()) == [0.5] * 9
    assert table.get([3], as_of="first").to_pylist() == [row(3)]
    with pytest.raises(hoodoo.HoodooError):
        table.scan(columns=["f"])
    with pytest.raises(hoodoo.HoodooError):
        table.scan(columns=["n"], as_of="first")
    assert table.scan(where="f = 0.5", as_of="first").count() == 9


def test_filters_find_rows_whatever_the_file_calls_the_column_and_whatever_its_bounds_say(table: hoodoo.Table) -> None:
    table.alter.widen_column("a", pa.int64())
    write(table, row(9, a=2**40))
    table.alter([RenameColumn("a", "z"), RenameColumn("n", "a")], rewrite=True)
    write(table, row(10, a=10, z=3))

    def keys(where: Any) -> list[int]:
        return sorted(table.scan(where=where).to_arrow()["id"].to_pylist())

    assert keys("z = 1099511627776") == [9] and keys("z = 3") == [3, 10] and keys("z BETWEEN 7 AND 8") == [7, 8]
    assert keys("a = 1048576") == [2, 5] and keys("a IS NULL") == [0, 3, 6, 8, 9]
    assert keys("a IS NOT NULL AND z = 4") == [4] and keys("part = 'q' AND a > 2") == [4, 7, 10]
    assert keys(pc.field("z") >= 8) == [8, 9]
    assert keys("id = 5 AND z = 5") == [5]


def test_a_required_column_of_an_older_file_prunes_nothing_that_is_null_there(table: hoodoo.Table) -> None:
    assert [one["id"] for one in rows_of(table, where="n < 0 OR n IS NULL")] == [0, 3, 6, 8]


def test_the_head_is_verified_under_all_its_schemas(table: hoodoo.Table) -> None:
    assert table.verify().problems == []
    table.compact()
    assert rows_of(table) == want() and table.verify().problems == []


def test_a_purge_finds_its_keys_in_files_of_every_schema(table: hoodoo.Table) -> None:
    table.savepoints.delete("first")
    done = table.maintenance.purge(pa.table({"id": [0, 1, 2], "part": ["p", "q", "r"]}), older_than_hours=0)
    assert done.files_proved and done.rows_deleted == 3
    assert rows_of(table) == want()[3:]


@pytest.mark.parametrize("kind", KINDS)
def test_salvage_of_a_file_of_an_older_schema_keeps_its_sound_rows(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind, row_group_rows=1)
    base = next(g.base for g in table.handle.history.head().groups() if g.partition == "part=p" or g.partition == "p")
    assert base is not None and base.file.schema == 0
    file = Path(table.path) / base.file.path
    data = bytearray(file.read_bytes())
    meta = pq.ParquetFile(file).metadata
    at = next(i for i in range(meta.num_columns) if meta.schema.column(i).path == "b")
    page = meta.row_group(1).column(at)
    data[page.data_page_offset + page.total_compressed_size - 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(hoodoo.CorruptTable):
        rows_of(table)
    found = table.maintenance.salvage(accept_loss=True)
    assert len(found.lost) == 1
    lost = int(found.lost[0].key or "-1")
    assert lost in (0, 3, 6)
    assert rows_of(table) == [one for one in want() if one["id"] != lost]
    assert hoodoo.open(table.path).verify().problems == []


def test_salvage_of_a_log_of_an_older_schema_keeps_its_sound_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    [log] = [entry.file for g in table.handle.history.head().groups() if g.partition.endswith("q") for entry in g.logs]
    assert log.schema == 2
    file = Path(table.path) / log.path
    data = bytearray(file.read_bytes())
    data[-14] ^= 1
    file.write_bytes(data)
    found = table.maintenance.salvage(accept_loss=True)
    assert found.instant
    assert [one["id"] for one in rows_of(table)] == list(range(9))
    assert rows_of(table)[2] == want()[2] and rows_of(table)[0] == want()[0]
    assert hoodoo.open(table.path).verify().problems == []


def test_clustering_brings_files_of_several_schemas_together(table: hoodoo.Table) -> None:
    table.maintenance.cluster(sort_by="a")
    assert rows_of(table) == want()
    assert {e.file.schema for g in table.handle.history.head().groups() for e in g.files()} == {3}
    assert rows_of(table, where="a = 4") == [want()[4]]


@pytest.mark.parametrize("kept", ["before_after", "before", "keys"])
@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_a_table_with_a_change_log_have_the_columns_of_their_end(
    tmp_path: Path, kind: str, kept: str
) -> None:
    table = make(tmp_path / "t", kind, change_log=kept)
    since = table.cursor
    write(table, row(1, a=50, n=5), row(2, a=51))
    table.alter([RenameColumn("a", "z"), RenameColumn("n", "a")], rewrite=True)
    write(table, row(1, a=6, z=52))
    for versions in ("net", "all"):
        found = table.changes(since, versions=versions).to_arrow().to_pylist()
        last = [one for one in found if one["after"]["id"] == 1][-1]
        first = next(one for one in found if one["after"]["id"] == 1)
        assert (first["before"]["z"], first["before"]["a"]) == (1, 1)
        assert (last["after"]["z"], last["after"]["a"]) == (52, 6)
    from hudi_rows import hudi_rows

    assert {one["id"]: one["z"] for one in hudi_rows(table.path)} == {one["id"]: one["z"] for one in rows_of(table)}


def test_the_error_that_asks_for_a_rewrite_tells_what_becomes_of_change_logs(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write", change_log="before_after")
    with pytest.raises(hoodoo.RewriteNeeded, match="Change logs are not rewritten"):
        table.alter.rename_column("a", "z")


def test_a_follower_gets_each_step_with_the_columns_of_its_end(table: hoodoo.Table) -> None:
    since = table.cursor
    write(table, row(0, a=50))
    table.alter.add_column("late", pa.int32(), default=None)
    write(table, row(0, a=51, late=1))
    steps = [one.to_arrow() for one in table.follow(since, most_commits=1, timeout_seconds=0)]
    images = [(step.schema.field("after").type, step.to_pylist()) for step in steps if len(step)]
    assert [(len(kind), rows[0]["after"]["a"]) for kind, rows in images] == [(6, 50), (7, 51)]
    assert images[1][1][0]["before"]["late"] is None
