"""Delta and Iceberg metadata beside a table: their readers see what hoodoo sees, at every slot that was exported."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import exported
import iceberg_reader
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from exported_tables import EVERY, ODD_FOLDERS, make, plain, rows

import hoodoo
from hoodoo.exports.base_files import require_no_partition_at
from hoodoo.timeline.views.view import View


def both(table: hoodoo.Table, **more: bool) -> Any:
    return table.export(delta=True, iceberg=True, **more)


def test_a_call_that_asks_for_no_format_names_both(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match=r"delta=True .*iceberg=True"):
        make(tmp_path / "t").export()
    assert not (tmp_path / "t/_delta_log").exists() and not (tmp_path / "t/metadata").exists()


def test_every_version_and_snapshot_equals_the_scan_at_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    both(table)
    for turn in range(4):
        table.upsert(rows(*range(turn * 3, turn * 3 + 6), version=turn, part="ab"[turn % 2]))
        both(table)
    table.delete([{"id": 3, "part": "b"}, {"id": 0, "part": "a"}])
    table.upsert(rows(50, part="c"))
    table.insert_overwrite(rows(1, 2, version=9))
    table.maintenance.cluster(sort_by="small")
    table.restore(4)
    result = both(table)
    assert list(exported.check_delta(path)) == list(range(result.delta.version + 1))
    assert exported.check_iceberg(path)[-1] == result.slot == table.cursor.seq
    assert plain(pl.read_delta(str(path)).to_arrow()) == plain(pl.from_arrow(table.scan().to_arrow()).to_arrow())


def test_an_export_of_what_was_exported_writes_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1, 2))
    both(table)
    before = fingerprint(tmp_path / "t")
    again = both(table)
    assert (again.delta.files, again.iceberg.files, again.delta.versions, again.iceberg.snapshots) == (0, 0, 0, 0)
    assert fingerprint(tmp_path / "t") == before


def fingerprint(path: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for folder in folders or ("_delta_log", "metadata")
        for file in sorted((path / folder).iterdir())
    }


def test_metadata_that_were_deleted_are_written_with_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    for turn in range(14):
        table.upsert(rows(turn, turn + 1, version=turn))
    both(table)
    before = fingerprint(path)
    assert any("checkpoint" in name for name in before)
    for folder in ("_delta_log", "metadata"):
        shutil.rmtree(path / folder)
    both(table)
    assert fingerprint(path) == before


def test_rows_in_folders_of_any_name_are_found(tmp_path: Path) -> None:
    path = tmp_path / "t t"
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = make(path, schema)
    table.upsert([{"id": number, "part": name} for number, name in enumerate(ODD_FOLDERS)])
    both(table)
    exported.check(path)
    assert DeltaTable(path).metadata().partition_columns == ["part"]
    some = DeltaTable(path).to_pyarrow_table(filters=[("part", "=", "a/b")])
    assert some["id"].to_pylist() == [0]


PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["x", None]),
    "empty text": (pa.string(), ["x", ""]),
    "null and empty text": (pa.string(), ["x", "", None]),
    "int": (pa.int32(), [-1, 5, None]),
    "long": (pa.int64(), [-(2**40), None]),
    "date": (pa.date32(), [dt.date(1960, 2, 29), dt.date(2026, 1, 1), None]),
    "bool": (pa.bool_(), [True, False, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-2.25"), Decimal("0.50"), None]),
    "time": (pa.timestamp("us", "UTC"), [dt.datetime(1960, 1, 1, 0, 0, 0, 1, dt.timezone.utc), None]),
    "local time": (pa.timestamp("us"), [dt.datetime(2026, 1, 1, 12), None]),
    "bytes": (pa.binary(), [b"\x01z", None]),
}


@pytest.mark.filterwarnings("ignore:partition_by contains column 'part', a timestamp:UserWarning")
@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_column_of_any_type_has_the_values_of_its_rows(tmp_path: Path, name: str) -> None:
    kind, values = PARTITIONS[name]
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", kind), ("v", pa.int64())]))
    table.upsert([{"id": number, "part": value, "v": number} for number, value in enumerate(values)])
    both(table)
    table.upsert([{"id": number, "part": value, "v": -number} for number, value in enumerate(values)])
    both(table)
    exported.check(path)
    declared = name in ("text", "int", "long", "date", "bool")
    assert DeltaTable(path).metadata().partition_columns == (["part"] if declared else [])


def test_a_first_empty_text_takes_the_partition_columns_out_of_the_delta_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string())]))
    table.upsert([{"id": 1, "part": "x"}, {"id": 2, "part": None}])
    table.export(delta=True)
    assert DeltaTable(path).metadata().partition_columns == ["part"]
    table.upsert([{"id": 3, "part": ""}])
    table.upsert([{"id": 4, "part": "y"}])
    table.export(delta=True)
    assert DeltaTable(path).metadata().partition_columns == []
    exported.check_delta(path)


def test_two_partition_columns_are_both_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, EVERY, partition_by=["part", "day"])
    table.upsert(rows(*range(6)))
    both(table)
    exported.check(path)
    assert DeltaTable(path).metadata().partition_columns == ["part", "day"]


def test_filters_on_bounds_and_partitions_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    for turn in range(5):
        table.upsert(rows(*range(turn * 7, turn * 7 + 7), part="abcde"[turn]))
    table.export(delta=True)
    read = QueryBuilder().register("t", DeltaTable(path))
    for where in (
        "id BETWEEN 7 AND 9",
        "part = 'c' AND small < -15",
        "amount < 0",
        "day < DATE '1971-01-01'",
        "at >= TIMESTAMP '1971-01-01T00:00:00Z'",
        "text = 'text 0 8'",
        "double > -1",
    ):
        some = pa.table(read.execute(f"SELECT id FROM t WHERE {where}").read_all())
        want = table.scan(where=where.replace("T00:00:00Z", " 00:00:00+00:00")).to_arrow()
        assert sorted(some["id"].to_pylist()) == sorted(want["id"].to_pylist()), where


def test_bounds_of_delta_are_never_within_the_values(tmp_path: Path) -> None:
    """Times are cut to milliseconds, and Parquet's bounds pass over NaN, which Delta takes for the greatest number: the
    largest number there is stands for it.
    """
    path = tmp_path / "t"
    table = make(path)
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 123_456)
    row = {"id": 1, "part": "a", "at": moment.replace(tzinfo=dt.timezone.utc), "local": moment, "double": 1.0}
    table.upsert(pa.Table.from_pylist([row, {"id": 2, "part": "a", "double": float("nan")}], schema=EVERY))
    table.export(delta=True)
    [said] = [line for line in (path / f"_delta_log/{1:020d}.json").read_text().splitlines() if '"add"' in line]
    stats = json.loads(json.loads(said)["add"]["stats"])
    assert (stats["minValues"]["at"], stats["maxValues"]["at"]) == (
        "1969-12-31T23:59:59.123Z",
        "1969-12-31T23:59:59.124Z",
    )
    assert stats["minValues"]["local"] == "1969-12-31T23:59:59.123"
    assert stats["minValues"]["double"] == 1.0 and stats["maxValues"]["double"] == sys.float_info.max
    assert stats["numRecords"] == 2 and stats["nullCount"]["at"] == 1
    read = QueryBuilder().register("t", DeltaTable(path))
    where = "at > TIMESTAMP '1969-12-31T23:59:59.123400Z'"
    assert pa.table(read.execute(f"SELECT id FROM t WHERE {where}").read_all())["id"].to_pylist() == [1]


def test_columns_that_came_went_and_changed_are_read_at_every_version(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32()), ("b", pa.string())]))
    table.upsert([{"id": 1, "part": "x", "a": 1, "b": "one"}, {"id": 2, "part": "y", "a": 2, "b": "two"}])
    both(table)
    table.alter.add_column("c", pa.int64())
    table.upsert([{"id": 3, "part": "x", "a": 3, "b": "three", "c": 3}])
    both(table)
    table.alter.rename_column("b", "label", rewrite=True)
    both(table)
    table.alter.drop_column("a", rewrite=True)
    table.alter.add_column("b", pa.float64())
    table.upsert([{"id": 4, "part": "y", "label": "four", "c": None, "b": 4.5}])
    both(table)
    table.alter.widen_column("c", pa.int64())
    exported.check(path)
    found = iceberg_reader.metadata(path)
    ids = {field["name"]: field["id"] for field in found["schemas"][-1]["fields"]}
    before = {field["name"]: field["id"] for field in found["schemas"][0]["fields"]}
    assert ids["label"] == before["b"] != ids["b"], "a column keeps its id, and a new one has another"


def test_a_wider_whole_number_is_read_from_files_from_before(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32())]))
    table.upsert([{"id": 1, "part": "x", "a": 1}])
    table.alter.widen_column("a", pa.int64(), rewrite=True)
    table.upsert([{"id": 2, "part": "y", "a": 2**40}])
    both(table)
    exported.check(path)


def test_a_type_that_iceberg_does_not_read_as_the_new_one_is_refused_until_files_are_written_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("a", pa.int32())]))
    table.upsert([{"id": 1, "part": "x", "a": 1}])
    table.alter.widen_column("a", pa.float64())
    with pytest.raises(hoodoo.SchemaError, match="'a' is double.*cluster") as refused:
        table.export(iceberg=True)
    assert refused.value.details == {"columns": ["a"], "format": "iceberg"}
    table.maintenance.cluster(sort_by="a")
    table.export(iceberg=True)
    exported.check_iceberg(path)


def test_a_time_of_day_is_refused_by_delta_before_anything_is_written_and_held_by_iceberg(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.string()), ("tea", pa.time64("us"))]))
    table.upsert([{"id": 1, "part": "x", "tea": dt.time(16)}])
    with pytest.raises(hoodoo.SchemaError, match=r"Delta has no type for column 'tea' \(time64\[us\]\)") as refused:
        both(table)
    assert refused.value.details == {"columns": ["tea"], "format": "delta"}
    assert not (path / "_delta_log").exists() and not (path / "metadata").exists()
    table.export(iceberg=True)
    exported.check_iceberg(path)
    table.alter.drop_column("tea")
    table.upsert([{"id": 2, "part": "x"}])
    table.export(delta=True)
    exported.check_delta(path)


@pytest.mark.parametrize("folder", ["metadata", "_delta_log"])
def test_a_partition_in_the_way_of_an_export_is_named(folder: str) -> None:
    with pytest.raises(hoodoo.PartitionValueError, match=folder):
        require_no_partition_at(View(partitions={f"{folder}/x": {}}), folder)
    require_no_partition_at(View(partitions={f"part={folder}": {}}), folder)


def test_of_a_merge_on_read_table_base_files_show(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, type="merge_on_read")
    table.upsert(rows(*range(8)))
    both(table)
    table.upsert(rows(1, 2, version=1))
    table.delete([{"id": 3, "part": "a"}])
    result = both(table)
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan(read_optimized=True).to_arrow())
    assert result.delta.versions == 0, "logs are no base files"
    table.compact()
    both(table)
    exported.check(path, optimized=True)
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())
    newest = (path / f"_delta_log/{DeltaTable(path).version():020d}.json").read_text()
    assert '"dataChange":true' in newest and '"dataChange":false' not in newest, "readers see rows that logs held"
    assert "last compaction" in DeltaTable(path).metadata().description


def test_moving_rows_changes_no_data(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(*range(8)))
    both(table)
    table.maintenance.cluster(sort_by="small")
    both(table)
    newest = (path / f"_delta_log/{DeltaTable(path).version():020d}.json").read_text()
    assert '"dataChange":false' in newest and '"dataChange":true' not in newest
    assert iceberg_reader.metadata(path)["snapshots"][-1]["summary"]["operation"] == "replace"


def test_a_moved_table_is_read_from_where_it_is_once_it_was_exported_there(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1, 2))
    both(table)
    table.upsert(rows(2, 3))
    both(table)
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    shutil.rmtree(tmp_path / "t")
    exported.check_delta(tmp_path / "u")
    both(hoodoo.open(tmp_path / "u"))
    exported.check(tmp_path / "u")
    assert iceberg_reader.metadata(tmp_path / "u")["location"] == f"file://{tmp_path}/u"


def test_a_table_without_partitions_and_an_empty_one_are_exported(tmp_path: Path) -> None:
    table = make(tmp_path / "t", partition_by=None)
    both(table)
    exported.check(tmp_path / "t")
    table.upsert(rows(1))
    table.delete(rows(1))
    both(table)
    exported.check(tmp_path / "t")


def test_every_file_that_is_removed_from_one_of_many_manifests_is_found(tmp_path: Path) -> None:
    """Which manifest holds a file is told by ranges of slots and paths, so that few are read."""
    path = tmp_path / "t"
    table = make(path, pa.schema([("id", pa.int64()), ("part", pa.int64())]))
    for turn in range(26):  # so that small manifests are merged
        table.upsert([{"id": turn * 10 + number, "part": (turn + number) % 9} for number in range(3)])
        table.export(iceberg=True)
    assert len(exported.check_iceberg(path)) == 26
    newest = iceberg_reader.metadata(path)["snapshots"][-1]
    assert len(iceberg_reader.records(newest["manifest-list"])) <= 21


def test_what_keeps_other_writers_out_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path)
    table.upsert(rows(1))
    both(table)
    with pytest.raises(Exception, match="hoodooReadOnly"):
        from deltalake import write_deltalake

        write_deltalake(path, rows(2), mode="append")
    properties = iceberg_reader.metadata(path)["properties"]
    assert properties["gc.enabled"] == "false" and properties["write.format.default"] == "parquet"
    for name in ("write.location-provider.impl", "write.py-location-provider.impl", "write.delete.format.default"):
        assert "hoodoo" in properties[name]
    assert properties["read.parquet.vectorization.enabled"] == "false"
    said = json.loads((path / "_delta_log/00000000000000000000.json").read_text().splitlines()[2])
    assert said["metaData"]["configuration"]["delta.appendOnly"] == "true"


def test_a_delta_export_has_no_statistics_of_a_struct_that_a_file_lacks(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, ok boolean", key="id", type="copy_on_write")
    table.insert([{"id": 1, "ok": True}])
    table.alter.add_column("c", pa.struct([("a", pa.int64())]))
    table.alter.add_column("d", pa.int64())
    table.export(delta=True, iceberg=True)
    logs = sorted((tmp_path / "t" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    added = [line["add"] for line in lines if "add" in line]
    counts = [json.loads(one["stats"])["nullCount"] for one in added]
    assert {"id": 0, "ok": 0, "d": 1} in counts and not any("c" in one for one in counts)
