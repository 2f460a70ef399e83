"""Tables that are partitioned by transforms of columns: what a write fills, checks and refuses, and what a read leaves
out.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.errors import UnsupportedTable
from hoodoo.format import properties as java
from hoodoo.format.transforms import value
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.pruning import Pruning
from hoodoo.timeline.layout import CHECKPOINTS, CLAIMS, PROPERTIES, slot_key
from hoodoo.timeline.slots import slot as slots
from hoodoo.timeline.views import checkpoint

UTC = dt.timezone.utc
KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("zip", pa.string()), ("v", pa.int64())])
QUIET: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}


def at(day: int, hour: int = 0, month: int = 3) -> dt.datetime:
    return dt.datetime(2026, month, day, hour, tzinfo=UTC)


FIRST = at(1)


def row(key: int | None, ts: dt.datetime | None = FIRST, zip: str | None = "12345", v: int = 0) -> dict[str, Any]:
    return {"id": key, "ts": ts, "zip": zip, "v": v}


def batch(*rows: dict[str, Any], **more: list[Any]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    return table


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, "id", hoodoo.day("ts"), type=request.param, **QUIET)


def stored(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    rows = table.scan(**how).to_arrow().sort_by([("id", "ascending"), (table.partition_by[0], "ascending")]).to_pylist()
    assert isinstance(rows, list)
    return rows


# ---------------------------------------------------------------- create


def test_create_adds_a_column_for_each_transform_and_partitions_by_it(tmp_path: Path) -> None:
    by = [hoodoo.day("ts"), "zip", hoodoo.bucket(4, "id"), hoodoo.truncate(2, "zip"), hoodoo.hour("ts")]
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=by)
    assert table.partition_by == ("ts_day", "zip", "id_bucket", "zip_trunc", "ts_hour")
    assert table.schema.names == [*SCHEMA.names, "ts_day", "id_bucket", "zip_trunc", "ts_hour"]
    kinds = [pa.date32(), pa.int32(), pa.string(), pa.string()]
    assert table.schema.types == [*SCHEMA.types, *kinds]
    wanted = {"ts_day": "day(ts)", "id_bucket": "bucket(4, id)", "zip_trunc": "truncate(2, zip)", "ts_hour": "hour(ts)"}
    assert {name: str(one) for name, one in table.transforms.items()} == wanted
    table.upsert(batch(row(7, at(31, 23))))
    [found] = stored(hoodoo.open(table.path))
    assert (found["ts_day"], found["zip_trunc"], found["ts_hour"]) == (dt.date(2026, 3, 31), "12", "2026-03-31-23")
    assert list((tmp_path / "t").glob("ts_day=2026-03-31/zip=12345/id_bucket=*/zip_trunc=12/ts_hour=2026-03-31-23"))


REFUSED: dict[str, tuple[type[hoodoo.HoodooError], str, dict[str, Any]]] = {
    "a missing column": (hoodoo.SchemaError, "'at' is not in the schema", {"partition_by": hoodoo.day("at")}),
    "another type": (hoodoo.SchemaError, r"day\(zip\) takes a date", {"partition_by": [hoodoo.day("zip")]}),
    "twice": (hoodoo.SchemaError, "'ts_day' more than once", {"partition_by": [hoodoo.day("ts"), hoodoo.day("ts")]}),
    "one name": (
        hoodoo.SchemaError,
        "'id_bucket' more than once",
        {"partition_by": [hoodoo.bucket(2, "id"), hoodoo.bucket(3, "id")]},
    ),
    "a name and a transform": (hoodoo.SchemaError, "'ts_day'", {"partition_by": ["ts_day", hoodoo.day("ts")]}),
    "a column that is there": (
        hoodoo.SchemaError,
        "the schema has one of that name",
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
    "no list": (hoodoo.OptionError, "partition_by takes", {"partition_by": 7}),
    "a list of others": (hoodoo.OptionError, "partition_by takes", {"partition_by": ["zip", 7]}),
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
    "bulk_insert": lambda table, rows: table.bulk_insert(rows),
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
            "'2026-03-04' in row 1",
        ),
        (batch(row(6, at(3)), ts_day=pa.array([None], pa.date32())), "None in row 0"),
        (batch(row(6, None), ts_day=[dt.date(2026, 3, 3)]), "makes it None"),
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
            with pytest.raises(hoodoo.ColumnError, match="no column 'ts', of which partition column 'ts_day' is made"):
                table.upsert(given, missing=missing)
    with pytest.raises(hoodoo.ColumnError, match="neither partition column 'ts_day' nor 'ts'"):
        table.upsert(lacking, columns="given")
    with pytest.raises(hoodoo.ColumnError, match="neither partition column 'ts_day' nor 'ts'"):
        table.upsert(batch(row(1, at(2))), columns=["v"])
    for nothing in ([], batch()):
        assert not table.upsert(nothing, columns="given").files and not table.upsert(nothing).files


def test_an_upsert_of_some_columns_finds_the_row_by_the_day_or_by_the_source(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, at(1, 5)), row(2, at(2, 5))))
    table.upsert([{"id": 1, "ts_day": dt.date(2026, 3, 1), "v": 10}], columns="given")
    table.upsert([{"id": 2, "ts": at(2, 9), "v": 20}], missing="keep")
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
    with pytest.raises(hoodoo.ColumnError, match="no column 'ts', of which"):
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
    both = hoodoo.create(tmp_path / "b", SCHEMA, "id", [hoodoo.bucket(8, "id"), hoodoo.day("ts")], **QUIET)
    both.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(50))))
    assert both.delete([3, 4, 99]).deleted == 2, "the day is not told: every partition is looked in"
    assert both.delete([{"id": 5, "ts": at(1)}, {"id": 6, "ts": at(1)}]).deleted == 1
    with pytest.raises(hoodoo.ColumnError, match="'ts_day' but not all of id_bucket, ts_day, zip_trunc"):
        three = [hoodoo.bucket(8, "id"), hoodoo.day("ts"), hoodoo.truncate(1, "zip")]
        hoodoo.create(tmp_path / "c", SCHEMA, "id", three).delete([{"id": 5, "ts": at(1)}])


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
        with pytest.raises(hoodoo.ColumnError, match=r"'ts' is the column of which .*'ts_day' is made \(day\(ts\)\)"):
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
    with pytest.raises(hoodoo.ColumnError, match="makes it '2026-03-08'"):
        table.merge(moved).when_matched_update_all().execute()
    with pytest.raises(hoodoo.ColumnError, match="no column 'ts', of which"):
        table.merge([row(9, at(9))]).when_not_matched_insert({"v": "1"}).execute()
    with pytest.raises(hoodoo.DuplicateKeys):
        table.merge([row(1, at(1, 2)), row(1, at(1, 3))]).when_matched_delete().execute()
    assert table.merge([row(1, at(1, 2)), row(1, at(2, 3))]).when_matched_delete().execute().deleted == 1


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_are_set_aside_and_the_others_written(tmp_path: Path, kind: str) -> None:
    by = [hoodoo.day("ts"), hoodoo.truncate(10, "v")]
    table = hoodoo.create(tmp_path / "t", SCHEMA, "id", by, type=kind, **QUIET)
    small, first, second = -(1 << 63), dt.date(2026, 3, 1), dt.date(2026, 3, 2)
    given = batch(
        row(1), row(2), row(3, v=small), row(None), row(5, zip="x"), ts_day=[first, second, first, first, first]
    )
    with pytest.raises(hoodoo.PartitionValueError, match=r"'v': the number in row 0 .*truncate\(10, v\)"):
        table.upsert(given.slice(2))
    how: dict[str, Any] = {"on_bad_rows": "quarantine", "max_bad_share": 1.0}
    result = table.upsert(given, **how)
    assert (result.inserted, result.quarantined) == (2, 3)
    kept = table.quarantine().rows().sort_by("position")
    assert sorted(kept["reason"].to_pylist()) == ["bad_partition", "bad_partition", "null_key"]
    told = " ".join(kept["detail"].to_pylist())
    assert "makes it '2026-03-01'" in told and "is too small for partition column 'v_trunc'" in told
    assert "row 0" not in told, "it has another number in the next batch"
    table.upsert(batch(row(6), row(None)), **how)
    assert [one["id"] for one in stored(table)] == [1, 5, 6]
    assert table.quarantine().replay().replayed == 0


def test_rows_that_failed_a_check_are_replayed_without_the_column_that_they_lack(table: hoodoo.Table) -> None:
    table.set_checks({"small": "v < 10"})
    result = table.upsert(batch(row(1), row(2, at(2), v=99)), on_bad_rows="quarantine", max_bad_share=1.0)
    assert result.quarantined == 1
    table.set_checks({})
    assert table.quarantine().replay().replayed == 1
    assert [one["ts_day"] for one in stored(table)] == [dt.date(2026, 3, 1), dt.date(2026, 3, 2)]


def test_a_row_is_purged_by_its_source(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1), row(2, at(2))))
    table.purge([{"id": 2, "ts": at(2)}], older_than_hours=0)
    assert [one["id"] for one in stored(table)] == [1]


# ---------------------------------------------------------------- reads

CONDITIONS = (
    "ts >= '2026-03-02' AND ts < '2026-03-03'",
    "ts = '2026-03-02 05:00:00'",
    "ts < '2026-03-02'",
    "ts <= '2026-03-02'",
    "ts > '2026-03-30'",
    "ts IN ('2026-03-02 05:00:00', '2026-04-09 00:00:00')",
    "NOT ts >= '2026-03-02'",
    "ts != '2026-03-02 05:00:00'",
    "ts IS NULL",
    "ts IS NOT NULL AND ts < '2026-03-02'",
    "id = 7",
    "id IN (7, 8)",
    "id != 7",
    "NOT id = 7",
    "NOT (id IN (7, 8) OR ts > '2026-03-03')",
    "id = 7 OR ts = '2026-03-02 05:00:00'",
    "zip = '12345'",
    "zip LIKE '12%'",
    "zip >= '2' AND zip < '3'",
    "zip = ''",
    "zip IS NULL",
    "v < 3",
)


def ways(count: int) -> list[list[Any]]:
    """Some ways of partitioning by transforms."""
    known = [
        [hoodoo.day("ts")],
        [hoodoo.month("ts"), hoodoo.bucket(3, "id")],
        [hoodoo.year("ts"), hoodoo.truncate(2, "zip")],
        [hoodoo.hour("ts")],
        [hoodoo.truncate(10, "id"), hoodoo.truncate(1, "zip")],
        [hoodoo.bucket(4, "zip"), hoodoo.bucket(2, "ts"), "v"],
    ]
    return known[:count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ways(6), ids=lambda by: "-".join(map(str, by)))
def test_a_table_is_a_dict_of_its_partitions_and_keys_whatever_is_written_and_asked(
    tmp_path: Path, kind: str, by: list[Any]
) -> None:
    draw = random.Random(f"{kind}{by}")
    table = hoodoo.create(tmp_path / "t", SCHEMA, "id", by, type=kind, **QUIET)
    model: dict[Any, dict[str, Any]] = {}

    def drawn() -> dict[str, Any]:
        ts = draw.choice([at(draw.randint(1, 9), draw.choice([0, 5, 23]), draw.choice([3, 3, 4])), None])
        return row(draw.randint(0, 40), ts, draw.choice(["12345", "1", "", "29999", "345", None]), draw.randint(0, 5))

    def place(one: dict[str, Any]) -> Any:
        made = [one[t] if isinstance(t, str) else value(t, one[t.column], SCHEMA.field(t.column).type) for t in by]
        return (one["id"], *(None if part == "" else part for part in made))

    for step in range(12):
        rows = list({place(one): one for one in (drawn() for _ in range(15))}.values())
        match draw.choice(["upsert", "upsert", "delete", "delete where", "service"]) if step else "upsert":
            case "upsert":
                table.upsert(batch(*rows))
                model |= {place(one): one for one in rows}
            case "delete":
                table.delete(batch(*rows))
                for one in rows:
                    model.pop(place(one), None)
            case "delete where":
                condition = draw.choice(CONDITIONS)
                gone = matching(model, condition)
                assert table.delete(where=condition).deleted == len(gone) or kind == "merge_on_read"
                model = {key: one for key, one in model.items() if one not in gone}
            case _:
                draw.choice([table.compact, table.cluster])()
        wanted = sorted(model.values(), key=str)
        assert sorted(plain(table), key=str) == wanted, f"after step {step}"
    for condition in CONDITIONS:
        found = plain(table, where=condition)
        assert sorted(found, key=str) == sorted(matching(model, condition), key=str), condition
    found = plain_rows(table.get(batch(*model.values())))
    assert sorted(found, key=str) == sorted(model.values(), key=str), "found by their sources"
    assert table.verify().problems == []
    theirs = [{name: one[name] for name in SCHEMA.names} for one in hudi_rows(tmp_path / "t")]
    assert len(theirs) == len(model), "Apache Hudi's readers see an ordinary partitioned table"


def plain(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    return plain_rows(table.scan(**how).to_arrow())


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    found = rows.select(SCHEMA.names).to_pylist()
    return [one | {"ts": one["ts"] and one["ts"].astimezone(UTC)} for one in found]


def matching(model: dict[Any, dict[str, Any]], condition: str) -> list[dict[str, Any]]:
    """The rows that a table without partitions says match: nothing is pruned by a partition there."""
    found = Filter.of(condition, SCHEMA)
    assert found
    return plain_rows(batch(*model.values()).filter(found.expression))


def groups(table: hoodoo.Table, where: str) -> list[str]:
    return sorted({task.group.partition for task in table.scan(where=where).tasks()})  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_on_the_source_opens_only_the_files_of_its_partitions(tmp_path: Path, kind: str) -> None:
    """Buckets have keys of the whole range, so that no statistics of a file help."""
    by = hoodoo.bucket(8, "id")
    table = hoodoo.create(tmp_path / "t", SCHEMA, "v", by, type=kind, **QUIET)
    table.upsert(batch(*(row(n % 40, v=n) for n in range(400))))
    table.upsert(batch(*(row(n % 40, v=n) for n in range(0, 400, 3))))
    assert len(table.scan().tasks()) == 8
    assert groups(table, "id = 7") == [f"id_bucket={value(by, 7, pa.int64())}"]
    both = {f"id_bucket={value(by, key, pa.int64())}" for key in (7, 8)}
    assert groups(table, "id IN (7, 8)") == sorted(both) == groups(table, "id = 7 OR id = 8")
    assert groups(table, "id = 7 AND id = 8") == sorted(set.intersection(*({name} for name in both)))
    assert len(groups(table, "id != 7")) == len(groups(table, "NOT id = 7")) == len(groups(table, "id > 3")) == 8
    assert table.update({"zip": "'x'"}, where="id = 7").files == 1
    expected = table.scan(where="id = 7").to_arrow()
    for file in (tmp_path / "t").glob("id_bucket=*/*"):
        if file.parent.name != groups(table, "id = 7")[0]:
            file.unlink()
    assert table.scan(where="id = 7").to_arrow().equals(expected) and len(expected) == 10, "no other file is opened"


@pytest.mark.parametrize(
    ("by", "where", "left"),
    [
        (hoodoo.day("ts"), "ts >= '2026-03-02' AND ts < '2026-03-03'", ["ts_day=2026-03-02"]),
        (hoodoo.day("ts"), "ts = '2026-03-02 05:00:00'", ["ts_day=2026-03-02"]),
        (hoodoo.day("ts"), "ts IS NULL", ["ts_day=__HIVE_DEFAULT_PARTITION__"]),
        (hoodoo.hour("ts"), "ts > '2026-04-09 05:30:00'", ["ts_hour=2026-04-09-05", "ts_hour=2026-04-09-23"]),
        (hoodoo.month("ts"), "ts < '2026-04-01'", ["ts_month=2026-03"]),
        (hoodoo.year("ts"), "ts < '2026-01-01'", []),
        (hoodoo.truncate(2, "zip"), "zip LIKE '123%'", ["zip_trunc=12"]),
        (hoodoo.truncate(2, "zip"), "zip = '345'", ["zip_trunc=34"]),
        (hoodoo.truncate(10, "id"), "id >= 25 AND id < 28", ["id_trunc=20"]),
    ],
    ids=str,
)
def test_partitions_alone_tell_what_a_condition_on_the_source_can_concern(
    tmp_path: Path, by: Any, where: str, left: list[str]
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, "v", by, **QUIET)
    moments = [*(at(day, hour, month) for month in (3, 4) for day in (1, 2, 9) for hour in (0, 5, 23)), None]
    zips = ["12345", "29999", "345", None]
    table.upsert(batch(*(row(n % 40, moments[n % 19], zips[n % 4], n) for n in range(400))))
    config, _, view = table.handle.look()
    condition = Filter.of(where, config.schema)
    assert condition
    pruning = Pruning(config, condition.tree, own=True)
    found = [partition for partition in view.partitions if pruning.may_match_in(partition)]
    unknown = [one for one in view.partitions if "__HIVE" in one and "IS NULL" not in where]
    assert sorted(found) == sorted([*left, *unknown]), "null and '' share a folder, which tells nothing"
    assert len(view.partitions) > len(found)


def test_pulls_changes_and_older_snapshots_prune_by_the_source_too(table: hoodoo.Table) -> None:
    start = table.cursor
    table.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(20))))
    middle = table.cursor
    table.upsert(batch(*(row(key, at(1 + key % 5), v=1) for key in range(10))))
    where = "ts >= '2026-03-02' AND ts < '2026-03-03'"
    assert len(table.incremental(start, where=where).tasks()) == 1
    assert sorted(table.incremental(middle, where=where).to_arrow()["id"].to_pylist()) == [1, 6]
    for versions in ("net", "all"):
        for since, count in ((start, 4), (middle, 2), ("earliest", 4)):
            changes = table.changes(since, where=where, versions=versions)
            every = table.changes(since, versions=versions).to_arrow()
            mine = [one for one in every.to_pylist() if one["after"]["ts_day"] == dt.date(2026, 3, 2)]
            assert sorted(map(repr, changes.to_arrow().to_pylist())) == sorted(map(repr, mine))
            assert len(mine) == (count if versions == "net" else count + 2 * (since != middle))
            assert len(changes.tasks()) == len(table.changes(since, versions=versions).tasks()) / 5
    assert len(table.scan(where=where, as_of=middle).tasks()) == 1


# ---------------------------------------------------------------- columns, other handles, other engines


def test_a_source_is_neither_dropped_nor_retyped_and_a_rename_is_followed(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("n", pa.int32()))
    table = hoodoo.create(tmp_path / "t", schema, "id", [hoodoo.day("ts"), hoodoo.bucket(4, "n")], **QUIET)
    table.upsert([row(1) | {"n": 3}])
    behind = hoodoo.open(table.path)
    for refused in (
        lambda: table.drop_column("n"),
        lambda: table.drop_column("ts"),
        lambda: table.widen_column("n", pa.int64()),
        lambda: table.alter([hoodoo.RenameColumn("n", "m"), hoodoo.DropColumn("m")]),
        lambda: table.drop_column("ts_day"),
        lambda: table.rename_column("ts_day", "day"),
    ):
        with pytest.raises(hoodoo.SchemaError, match="is made of column|is a partition column"):
            refused()
    wide = pa.Table.from_pylist([row(2) | {"n": 1 << 40}], schema.set(4, pa.field("n", pa.int64())))
    with pytest.raises(hoodoo.ColumnError, match="'n'"):
        table.upsert(wide, evolve=True)
    table.alter([hoodoo.RenameColumn("ts", "at"), hoodoo.RenameColumn("n", "m")], rewrite=True)
    assert {name: str(one) for name, one in table.transforms.items()} == {
        "ts_day": "day(at)",
        "n_bucket": "bucket(4, m)",
    }
    behind.upsert([{"id": 2, "at": at(2), "zip": "z", "v": 1, "m": 3}])
    found = hoodoo.open(table.path).scan(where="at >= '2026-03-02'")
    assert [one["id"] for one in found.to_arrow().to_pylist()] == [2] and len(found.tasks()) == 1
    table.add_column("ts", pa.int64(), default=5, rewrite=True)
    table.upsert([{"id": 3, "at": at(3), "zip": "z", "v": 1, "m": 3}])
    assert table.get([3])["ts_day"].to_pylist() == [dt.date(2026, 3, 3)]


def test_a_restore_to_before_a_rename_finds_the_source_again(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1)))
    table.savepoint("before")
    before = table.cursor
    table.rename_column("ts", "at", rewrite=True)
    table.restore(before)
    assert str(table.transforms["ts_day"]) == "day(ts)"
    table.upsert(batch(row(2, at(2))))
    assert [one["ts_day"].day for one in stored(table)] == [1, 2]


def test_a_source_that_another_engine_retyped_makes_nothing_any_more(tmp_path: Path) -> None:
    """The bucket of a long is another one than that of the same int: keys would move. A batch has to say where its rows
    belong, as for any partition column.
    """
    schema = SCHEMA.append(pa.field("n", pa.int32()))
    table = hoodoo.create(tmp_path / "t", schema, "id", [hoodoo.day("ts"), hoodoo.bucket(4, "n")])
    config = table.handle.config
    wider = [replace(one, kind=pa.int64()) if one.name == "n" else one for one in config.columns.columns]
    assert list(config.with_columns(config.columns.with_columns(wider)).transforms) == ["ts_day"]


def test_a_write_that_goes_by_a_day_is_not_in_the_way_of_one_to_another_day(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, at(1)), row(2, at(2))))
    other, days = hoodoo.open(table.path), iter((3, 1))

    def between(rows: pa.Table) -> Any:
        if (day := next(days, None)) is not None:
            other.upsert(batch(row(10 + day, at(day))))
        return {"v": pc.add(rows["v"], 1)}

    first = table.update(between, where="ts < '2026-03-02'")
    assert (first.retries, first.updated) == (0, 1), "a row of the third day came meanwhile"
    second = table.update(between, where="ts < '2026-03-02'")
    assert second.retries == 1 and second.updated == 2, "a row of the first day came meanwhile"


def test_an_older_release_refuses_the_table_by_its_first_slot_and_by_every_checkpoint(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(batch(row(1)))
    store, view = table.handle.store, table.handle.look().view
    data = checkpoint.encode(view)
    assert json.loads(store.get(slot_key(1)))["needs"] == ["transforms"]
    monkeypatch.setattr(slots, "KNOWN", slots.KNOWN - {slots.TRANSFORMS})
    with pytest.raises(UnsupportedTable, match="newer hoodoo, with transforms"):
        hoodoo.open(table.path)
    with pytest.raises(UnsupportedTable, match="newer hoodoo, with transforms"):
        checkpoint.decode(data, "c")


def test_tables_without_transforms_are_open_to_older_releases(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, "id", "zip")
    assert "needs" not in json.loads(table.handle.store.get(slot_key(1)))
    table.upsert(batch(row(1)))
    assert b"foreign_rows" not in checkpoint.encode(table.handle.look().view)


def test_a_checkpoint_that_does_not_know_whether_there_are_foreign_rows_is_no_damage(table: hoodoo.Table) -> None:
    """Those of earlier releases do not, and `verify` compares checkpoints with slots."""
    before, rows = table.scan().count(), [row(1) | {"ts_day": dt.date(2026, 3, 9)}]
    by_another_engine(table, rows)
    writer = hoodoo.open(table.path)
    writer.upsert(batch(row(2)))
    view = writer.handle.look().view
    assert view.foreign_rows and writer.scan().count() == before + 2
    checkpoint.write(writer.handle.store, replace(view, foreign_rows=False))
    assert {problem.code for problem in writer.verify().problems} == {"WRONG_PARTITION"}


@pytest.mark.parametrize("text", ["day(99)", "day(ts)", "week(6)", "day(5)", "bucket(0, 5)", ""])
def test_a_property_that_says_nothing_is_a_damaged_table_or_of_a_column_that_is_gone(tmp_path: Path, text: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, "id", hoodoo.day("ts"))
    store = table.handle.store
    values = java.parse(store.get(PROPERTIES))
    assert values["hoodoo.transform.ts_day"] == "day(6)"
    store.put(PROPERTIES, java.render(values | {"hoodoo.transform.ts_day": text}, "today"))
    if text == "day(99)":
        assert hoodoo.open(table.path).transforms == {}
        return
    with pytest.raises(hoodoo.CorruptTable, match="hoodoo.transform.ts_day"):
        hoodoo.open(table.path).transforms  # noqa: B018


def by_another_engine(table: hoodoo.Table, rows: list[dict[str, Any]]) -> None:
    """Write `rows` as an engine that knows no transform and leaves no slot."""
    store = table.handle.store
    said = store.get(PROPERTIES)
    values = {name: text for name, text in java.parse(said).items() if not name.startswith("hoodoo.transform")}
    store.put(PROPERTIES, java.render(values, "today"))
    other = hoodoo.open(table.path)
    assert other.transforms == {}
    other.upsert(rows)
    store.delete(slot_key(other.cursor.seq))
    for key, _ in [*store.list(CLAIMS), *store.list(CHECKPOINTS)]:
        store.delete(key)
    store.put(PROPERTIES, said)


def test_rows_of_another_engine_that_lie_where_transforms_say_leave_partitions_out(table: hoodoo.Table) -> None:
    """Nobody knows until they are looked at, which is when they are adopted; before, each partition may have any."""
    table.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(20))))
    rows = [row(key, at(1 + key % 5, 7)) | {"ts_day": dt.date(2026, 3, 1 + key % 5)} for key in range(3, 23)]
    by_another_engine(table, rows)
    where = "ts >= '2026-03-02' AND ts < '2026-03-03'"
    assert hoodoo.open(table.path).handle.look().view.foreign_rows
    writer = hoodoo.open(table.path)
    writer.upsert(batch(row(99, at(4))))
    slot = slots.decode(writer.handle.store.get(slot_key(writer.cursor.seq - 1)), "s")
    assert (slot.placed, "placed" in slot.needs, slot.published != "") == (1, True, True)
    view = writer.handle.look().view
    assert not view.foreign_rows and not checkpoint.decode(checkpoint.encode(view), "c").foreign_rows
    assert len(writer.scan(where=where).tasks()) == 1
    assert sorted(writer.scan(where=where).to_arrow()["id"].to_pylist()) == [1, 6, 11, 16, 21]


def test_rows_of_another_engine_are_found_though_their_partition_belies_them(table: hoodoo.Table) -> None:
    """Apache Hudi knows nothing of transforms: it may write a row into any partition. What it wrote is in files of ours
    after the next rewrite; from its commit on, no partition is left out by a transform, and snapshots before are read
    as ever.
    """
    table.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(20))))
    before, where = table.cursor, "ts >= '2026-03-02' AND ts < '2026-03-03'"
    wrong, fifth = row(0, at(2, 7)) | {"ts_day": dt.date(2026, 3, 1)}, dt.date(2026, 3, 5)
    by_another_engine(table, [wrong, row(99, at(2, 8)) | {"ts_day": fifth}])
    expected = [0, 1, 6, 11, 16, 99]

    def check(reader: hoodoo.Table) -> None:
        assert sorted(reader.scan(where=where).to_arrow()["id"].to_pylist()) == expected
        assert len(reader.scan(where=where, as_of=before).tasks()) == 1

    check(hoodoo.open(table.path))  # over the slots, as nobody has adopted it yet
    writer = hoodoo.open(table.path)
    writer.upsert(batch(row(3, at(4), v=5)))  # adopts it
    check(writer)
    writer.upsert([row(10, at(1), v=5), row(0, at(1), v=7), row(4, at(5), v=8)])  # rewrites its files, on copy-on-write
    writer.compact()
    writer.cluster()
    expected.remove(0)  # the key was written into the partition where it is, with the day of that
    check(writer)
    assert checkpoint.decode(checkpoint.encode(writer.handle.look().view), "c").foreign_rows
    problems = [problem.text for problem in writer.verify().problems]
    assert len(problems) == 1 and "another 'ts_day' than day(ts) makes" in problems[0]
    assert writer.delete(where=where).deleted == len(expected) and writer.verify().problems == []


# ---------------------------------------------------------------- a timestamp as it is


def test_a_timestamp_as_partition_column_warns_of_its_folders_and_names_the_transform(tmp_path: Path) -> None:
    noon = dt.datetime(2026, 3, 1, 12)
    rows = pa.table({"id": [1, 2, 3], "Placed At": [noon, noon, noon + dt.timedelta(seconds=1)]})
    with pytest.warns(UserWarning, match="each moment gets a folder of its own, 2 for these rows") as told:
        table = hoodoo.create(tmp_path / "t", rows, key="id", partition_by=["Placed At"], rename="snake")
    assert 'hoodoo.day("placed_at")' in str(told[0].message) and told[0].filename == __file__
    table.insert(rows)
    assert len({file for file in table.files()["partition"].to_pylist()}) == 2
    with pytest.warns(UserWarning, match=r"'ts', a timestamp: each moment gets a folder of its own\. hoodoo.day"):
        hoodoo.create(tmp_path / "u", {"id": "long", "ts": "timestamp"}, key="id", partition_by="ts")
    hoodoo.create(tmp_path / "v", rows, key="id", partition_by=hoodoo.day("Placed At"), rename="snake")  # no warning
