"""Tables that are partitioned by transforms of columns: what a write fills, checks and refuses, and what a read leaves
out.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from transformed import KINDS, QUIET, SCHEMA, at, batch, row, stored

import hoodoo


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=hoodoo.day("ts"), type=request.param, **QUIET)


# ---------------------------------------------------------------- create


def test_create_adds_a_column_for_each_transform_and_partitions_by_it(tmp_path: Path) -> None:
    by = [hoodoo.day("ts"), "zip", hoodoo.bucket(4, "id"), hoodoo.truncate(2, "zip"), hoodoo.hour("ts")]
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=by)
    assert table.partition_by == ("ts_day", "zip", "id_bucket", "zip_trunc", "ts_hour")
    assert table.schema.names == [*SCHEMA.names, "ts_day", "id_bucket", "zip_trunc", "ts_hour"]
    kinds = [pa.date32(), pa.int32(), pa.string(), pa.string()]
    assert table.schema.types == [*SCHEMA.types, *kinds]
    wanted = {"ts_day": "day(ts)", "id_bucket": "bucket(4, id)", "zip_trunc": "truncate(2, zip)", "ts_hour": "hour(ts)"}
    assert {name: str(one) for name, one in table.inspect.transforms.items()} == wanted
    table.upsert(batch(row(7, at(31, 23))))
    [found] = stored(hoodoo.open(table.path))
    assert (found["ts_day"], found["zip_trunc"], found["ts_hour"]) == (dt.date(2026, 3, 31), "12", "2026-03-31-23")
    assert list((tmp_path / "t").glob("ts_day=2026-03-31/zip=12345/id_bucket=*/zip_trunc=12/ts_hour=2026-03-31-23"))


REFUSED: dict[str, tuple[type[hoodoo.HoodooError], str, dict[str, Any]]] = {
    "a missing column": (hoodoo.SchemaError, "'at' is not in the schema", {"partition_by": hoodoo.day("at")}),
    "another type": (hoodoo.SchemaError, r"day\(zip\) needs a date", {"partition_by": [hoodoo.day("zip")]}),
    "twice": (hoodoo.SchemaError, "'ts_day' more than once", {"partition_by": [hoodoo.day("ts"), hoodoo.day("ts")]}),
    "one name": (
        hoodoo.SchemaError,
        "'id_bucket' more than once",
        {"partition_by": [hoodoo.bucket(2, "id"), hoodoo.bucket(3, "id")]},
    ),
    "a name and a transform": (hoodoo.SchemaError, "'ts_day'", {"partition_by": ["ts_day", hoodoo.day("ts")]}),
    "a column that is there": (
        hoodoo.SchemaError,
        "which is already in the schema",
        {"partition_by": hoodoo.day("ts"), "schema": SCHEMA.append(pa.field("ts_day", pa.date32()))},
    ),
    "a column that is there in capitals": (
        hoodoo.SchemaError,
        "TS_DAY",
        {"partition_by": hoodoo.day("ts"), "schema": SCHEMA.append(pa.field("TS_DAY", pa.date32()))},
    ),
    "the ordering column": (
        hoodoo.OptionError,
        "allow_moving_keys",
        {"partition_by": hoodoo.day("ts"), "order_by": "ts"},
    ),
    "no list": (hoodoo.OptionError, "partition_by must be", {"partition_by": 7}),
    "a list of others": (hoodoo.OptionError, "partition_by must be", {"partition_by": ["zip", 7]}),
    "a flag that is none": (hoodoo.OptionError, "allow_moving_keys", {"partition_by": "zip", "allow_moving_keys": 1}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_create_refuses_what_cannot_be_and_makes_nothing(tmp_path: Path, name: str) -> None:
    error, says, how = REFUSED[name]
    with pytest.raises(error, match=says):
        hoodoo.create(tmp_path / "t", **{"schema": SCHEMA, "key": "id", **how})
    assert not (tmp_path / "t" / ".hoodie").exists()


def test_a_transform_of_the_ordering_column_moves_keys_where_that_is_allowed(tmp_path: Path) -> None:
    by = {"partition_by": hoodoo.day("ts"), "order_by": "ts"}
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", allow_moving_keys=True, **by)
    table.upsert(batch(row(1, at(1))))
    table.upsert(batch(row(1, at(2))))
    assert [one["ts"] for one in stored(table)] == [at(1), at(2)]


# ---------------------------------------------------------------- writes

WRITES: dict[str, Callable[[hoodoo.Table, Any], Any]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "insert": lambda table, rows: table.insert(rows),
    "bulk_insert": lambda table, rows: table.insert(rows, bulk=True),
    "insert_overwrite": lambda table, rows: table.insert_overwrite(rows),
    "upsert of some columns": lambda table, rows: table.upsert(rows, columns="given"),
    "merge": lambda table, rows: table.merge(rows).when_matched_update_all().when_not_matched_insert_all().execute(),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_fills_the_column_takes_it_where_it_is_right_and_refuses_it_where_it_is_not(
    table: hoodoo.Table, write: str
) -> None:
    rows = [row(1, at(1, 23)), row(2, at(2)), row(3, None)]
    WRITES[write](table, batch(*rows))
    days = [dt.date(2026, 3, 1), dt.date(2026, 3, 2), None]
    assert stored(table) == [one | {"ts_day": day} for one, day in zip(rows, days, strict=True)]
    WRITES[write](table, batch(row(4, at(3)), row(5, None), ts_day=[dt.date(2026, 3, 3), None]))
    before = table.cursor
    for given, says in (
        (
            batch(row(6, at(3)), row(7, at(3)), ts_day=[dt.date(2026, 3, 3), dt.date(2026, 3, 4)]),
            "in row 1 .*got '2026-03-04'",
        ),
        (batch(row(6, at(3)), ts_day=pa.array([None], pa.date32())), "in row 0 .*got None"),
        (batch(row(6, None), ts_day=[dt.date(2026, 3, 3)]), r"expected None from day\(ts\)"),
    ):
        with pytest.raises(hoodoo.ColumnError, match=says) as refused:
            WRITES[write](table, given)
        assert "'ts_day'" in refused.value.message and "day(ts)" in refused.value.message
        assert "'id': " in str(refused.value.details["key"])
    assert table.cursor == before and table.verify().problems == []


def test_the_source_is_cast_to_the_type_of_the_table_before_the_column_is_made_of_it(table: hoodoo.Table) -> None:
    zone = dt.timezone(dt.timedelta(hours=-5))
    table.upsert([row(1, dt.datetime(2026, 3, 1, 22, tzinfo=zone))])
    local = pa.array([dt.datetime(2026, 3, 1, 22, tzinfo=zone)]).cast(pa.timestamp("ns", "America/Lima"))
    table.upsert(batch(row(2)).set_column(1, "ts", local))
    assert [one["ts_day"] for one in stored(table)] == [dt.date(2026, 3, 2)] * 2


def test_a_batch_without_the_source_is_refused_whatever_it_brings_besides(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1)))
    lacking = batch(row(1)).drop_columns(["ts"])
    with_day = lacking.append_column("ts_day", pa.array([dt.date(2026, 3, 1)]))
    for given in (lacking, with_day):
        for missing in ("fail", "null"):
            with pytest.raises(
                hoodoo.ColumnError, match="'ts' .the source of partition column 'ts_day'. is not in the batch"
            ):
                table.upsert(given, missing=missing)
    with pytest.raises(hoodoo.ColumnError, match="neither partition column 'ts_day' nor its source column 'ts'"):
        table.upsert(lacking, columns="given")
    with pytest.raises(hoodoo.ColumnError, match="neither partition column 'ts_day' nor its source column 'ts'"):
        table.upsert(batch(row(1, at(2))), columns=["v"])
    for nothing in ([], batch()):
        assert not table.upsert(nothing, columns="given").files and not table.upsert(nothing).files


def test_an_upsert_of_some_columns_finds_the_row_by_the_day_or_by_the_source(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, at(1, 5)), row(2, at(2, 5))))
    table.upsert([{"id": 1, "ts_day": dt.date(2026, 3, 1), "v": 10}], columns="given")
    table.upsert([{"id": 2, "ts": at(2, 9), "v": 20}], columns="given")
    assert [(one["ts"], one["v"], one["zip"]) for one in stored(table)] == [
        (at(1, 5), 10, "12345"),
        (at(2, 9), 20, "12345"),
    ]
    table.upsert([{"id": 1, "ts": at(2), "v": 30}], columns="given")
    assert [(one["id"], one["ts"], one["zip"]) for one in stored(table)] == [
        (1, at(1, 5), "12345"),
        (1, at(2), None),
        (2, at(2, 9), "12345"),
    ], "another day is another partition, in which the key is new"
    with pytest.raises(hoodoo.ColumnError, match="'ts' .the source of"):
        table.upsert([{"id": 9, "ts_day": dt.date(2026, 3, 1), "v": 10}], columns="given")


def test_keys_are_deleted_and_found_by_the_day_the_source_or_in_every_partition(table: hoodoo.Table) -> None:
    table.upsert(batch(*(row(key, at(1 + key % 3, 5)) for key in range(9))))
    assert table.get([{"id": 1, "ts": at(2, 7)}]).num_rows == 1, "only the day counts"
    assert table.get([{"id": 1, "ts_day": dt.date(2026, 3, 2)}]).num_rows == 1
    assert table.get([{"id": 1, "ts": at(1)}]).num_rows == 0 and table.get([1]).num_rows == 1
    assert table.delete([{"id": 1, "ts": at(1)}]).deleted == 0
    assert table.delete([{"id": 1, "ts": at(2)}, {"id": 2, "ts": at(3)}]).deleted == 2
    assert table.delete([{"id": 4, "ts_day": dt.date(2026, 3, 2), "ts": None}]).deleted == 1
    assert table.delete([7, 8]).deleted == 2
    flags = batch(row(0, None), row(3, at(1))).append_column("_hoodie_is_deleted", pa.array([True, True]))
    table.upsert(flags.append_column("ts_day", pa.array([dt.date(2026, 3, 1)] * 2)))
    assert [one["id"] for one in stored(table)] == [5, 6]


def test_bare_keys_tell_their_buckets(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=hoodoo.bucket(8, "id"), **QUIET)
    table.upsert(batch(*map(row, range(50))))
    assert sorted(table.get([3, 4, 99])["id"].to_pylist()) == [3, 4]
    assert table.delete([3, 4, 99]).deleted == 2
    assert table.delete(batch(row(5))).deleted == 1 and table.scan().count() == 47
    both = hoodoo.create(
        tmp_path / "b", SCHEMA, key="id", partition_by=[hoodoo.bucket(8, "id"), hoodoo.day("ts")], **QUIET
    )
    both.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(50))))
    assert both.delete([3, 4, 99]).deleted == 2, "the day is not told: every partition is looked in"
    assert both.delete([{"id": 5, "ts": at(1)}, {"id": 6, "ts": at(1)}]).deleted == 1
    with pytest.raises(
        hoodoo.ColumnError, match="'ts_day' but not all partition columns: id_bucket, ts_day, zip_trunc"
    ):
        three = [hoodoo.bucket(8, "id"), hoodoo.day("ts"), hoodoo.truncate(1, "zip")]
        hoodoo.create(tmp_path / "c", SCHEMA, key="id", partition_by=three).delete([{"id": 5, "ts": at(1)}])


def test_update_and_merge_do_not_set_a_source(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1), row(2)))
    day = dt.date(2026, 3, 1)
    assert table.update(lambda rows: rows.set_column(3, "v", pc.add(rows["v"], 1))).updated == 2
    for refused in (
        lambda: table.update({"ts": at(1, 2)}),
        lambda: table.update(lambda rows: {"ts": pa.array([at(9)] * len(rows))}),
        lambda: table.merge([{"id": 1, "ts_day": day, "v": 1}]).when_matched_update({"ts": at(1)}).execute(),
        lambda: table.merge([row(9)]).when_not_matched_by_source_update({"ts": at(1)}).execute(),
    ):
        with pytest.raises(hoodoo.ColumnError, match=r"'ts' is the source of .*'ts_day' \(day\(ts\)\)"):
            refused()
    assert [one["ts"] for one in stored(table)] == [at(1), at(1)]


def test_a_merge_takes_the_source_of_the_day_where_it_stays_in_the_partition(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, at(1, 5))))
    table.merge([row(1, at(1, 7), v=5), row(2, at(2), v=6)]).when_matched_update_all().when_not_matched_insert(
        {"ts": "source.ts", "v": "source.v"}
    ).execute()
    assert [(one["id"], one["ts"], one["ts_day"].day, one["v"]) for one in stored(table)] == [
        (1, at(1, 7), 1, 5),
        (2, at(2), 2, 6),
    ]
    moved = [{"id": 1, "ts_day": dt.date(2026, 3, 1), **{"ts": at(8), "zip": "x", "v": 7}}]
    with pytest.raises(hoodoo.ColumnError, match=r"expected '2026-03-08' from day\(ts\)"):
        table.merge(moved).when_matched_update_all().execute()
    with pytest.raises(hoodoo.ColumnError, match="Add 'ts': 'source.ts' to the clause"):
        table.merge([row(9, at(9))]).when_not_matched_insert({"v": "1"}).execute()
    with pytest.raises(hoodoo.DuplicateKeys):
        table.merge([row(1, at(1, 2)), row(1, at(1, 3))]).when_matched_delete().execute()
    assert table.merge([row(1, at(1, 2)), row(1, at(2, 3))]).when_matched_delete().execute().deleted == 1


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_are_set_aside_and_the_others_written(tmp_path: Path, kind: str) -> None:
    by = [hoodoo.day("ts"), hoodoo.truncate(10, "v")]
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=by, type=kind, **QUIET)
    small, first, second = -(1 << 63), dt.date(2026, 3, 1), dt.date(2026, 3, 2)
    given = batch(
        row(1), row(2), row(3, v=small), row(None), row(5, zip="x"), ts_day=[first, second, first, first, first]
    )
    with pytest.raises(hoodoo.PartitionValueError, match=r"'v': the number in row 0 .*truncate\(10, v\)"):
        table.upsert(given.slice(2))
    how: dict[str, Any] = {"on_bad_rows": hoodoo.BadRowLimits(share=1.0)}
    result = table.upsert(given, **how)
    assert (result.inserted, result.quarantined) == (2, 3)
    kept = table.quarantine().rows().sort_by("position")
    assert sorted(kept["reason"].to_pylist()) == ["bad_partition", "bad_partition", "null_key"]
    told = " ".join(kept["detail"].to_pylist())
    assert "expected '2026-03-01' from day(ts)" in told and "is too small for partition column 'v_trunc'" in told
    assert "row 0" not in told, "it has another number in the next batch"
    table.upsert(batch(row(6), row(None)), **how)
    assert [one["id"] for one in stored(table)] == [1, 5, 6]
    assert table.quarantine().replay().replayed == 0


def test_rows_that_failed_a_check_are_replayed_without_the_column_that_they_lack(table: hoodoo.Table) -> None:
    table.set_checks({"small": "v < 10"})
    result = table.upsert(batch(row(1), row(2, at(2), v=99)), on_bad_rows=hoodoo.BadRowLimits(share=1.0))
    assert result.quarantined == 1
    table.set_checks({})
    assert table.quarantine().replay().replayed == 1
    assert [one["ts_day"] for one in stored(table)] == [dt.date(2026, 3, 1), dt.date(2026, 3, 2)]


def test_a_row_is_purged_by_its_source(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1), row(2, at(2))))
    table.maintenance.purge([{"id": 2, "ts": at(2)}], older_than_hours=0)
    assert [one["id"] for one in stored(table)] == [1]


CONTRADICTED: dict[str, Callable[[hoodoo.Table, Any], Any]] = {
    "delete": lambda table, rows: table.delete(rows),
    "get": lambda table, rows: table.get(rows),
    "purge": lambda table, rows: table.maintenance.purge(rows, older_than_hours=0),
    "merge update": lambda table, rows: table.merge(rows).when_matched_update({"v": "source.v"}).execute(),
    "merge delete": lambda table, rows: table.merge(rows).when_matched_delete().execute(),
    "merge insert": lambda table, rows: table.merge(rows).when_not_matched_insert({"ts": "source.ts"}).execute(),
    "flagged upsert": lambda table, rows: table.upsert(
        rows.append_column("_hoodie_is_deleted", pa.array([True] * len(rows)))
    ),
}


@pytest.mark.parametrize("call", CONTRADICTED)
def test_every_call_refuses_a_partition_value_that_contradicts_its_source(table: hoodoo.Table, call: str) -> None:
    table.insert(batch(row(1), row(2)))
    before = table.cursor
    given = batch(row(2), row(1), ts_day=[dt.date(2026, 3, 1), dt.date(2026, 2, 28)])
    with pytest.raises(
        hoodoo.ColumnError, match=r"'ts_day' .* in row 1 .*: expected '2026-03-01' from day\(ts\), got '2026-02-28'"
    ):
        CONTRADICTED[call](table, given)
    assert table.cursor == before


def test_the_error_names_the_time_zone_in_which_the_partition_value_is_right(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "is correct for time zone America/Lima, but partition columns are computed in UTC"
    given = batch(row(1), ts_day=[dt.date(2026, 2, 28)])
    lima = given.set_column(1, "ts", given["ts"].cast(pa.timestamp("us", "America/Lima")))
    with pytest.raises(hoodoo.ColumnError, match=hint):
        table.upsert(lima)
    monkeypatch.setenv("TZ", "America/Lima")
    time.tzset()
    try:
        with pytest.raises(hoodoo.ColumnError, match=hint):
            table.merge(given).when_matched_delete().execute()
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(hoodoo.ColumnError) as other:
        table.upsert(batch(row(1), ts_day=[dt.date(2026, 2, 1)]))
    assert "time zone" not in other.value.message


def test_a_merge_of_all_columns_leaves_source_columns_out_that_the_table_does_not_have(table: hoodoo.Table) -> None:
    table.insert(batch(row(1)))
    given = [{**row(1, at(1, 7), v=5), "op": "u"}, {**row(2, at(2)), "op": "c"}]
    table.merge(given).when_matched_update_all(where="source.op = 'u'").execute()
    table.merge(given).when_not_matched_insert_all().when_matched_update_all().execute()
    assert [(one["id"], one["ts"], one["v"]) for one in stored(table)] == [(1, at(1, 7), 5), (2, at(2), 0)]
    with pytest.raises(hoodoo.ColumnError, match="'_hoodie_commit_time' is not in the table"):
        table.merge([{**row(1), "_hoodie_commit_time": "1"}]).when_matched_update_all().execute()


# ---------------------------------------------------------------- a timestamp as it is


def test_a_timestamp_as_partition_column_warns_of_its_folders_and_names_the_transform(tmp_path: Path) -> None:
    noon = dt.datetime(2026, 3, 1, 12)
    rows = pa.table({"id": [1, 2, 3], "Placed At": [noon, noon, noon + dt.timedelta(seconds=1)]})
    with pytest.warns(UserWarning, match="one folder per distinct time, 2 for these rows") as told:
        table = hoodoo.create(tmp_path / "t", rows, key="id", partition_by=["Placed At"], rename="snake")
    assert 'hoodoo.day("placed_at")' in str(told[0].message) and told[0].filename == __file__
    table.insert(rows)
    assert len({file for file in table.inspect.files()["partition"].to_pylist()}) == 2
    with pytest.warns(
        UserWarning, match=r"'ts', a timestamp, which creates one folder per distinct time\. Use hoodoo.day"
    ):
        hoodoo.create(tmp_path / "u", {"id": "long", "ts": "timestamp"}, key="id", partition_by="ts")
    hoodoo.create(tmp_path / "v", rows, key="id", partition_by=hoodoo.day("Placed At"), rename="snake")  # no warning
