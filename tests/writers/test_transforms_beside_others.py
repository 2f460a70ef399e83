"""Transforms beside changes of columns, other handles, earlier releases and other engines."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from transformed import KINDS, QUIET, SCHEMA, at, batch, row, stored

import hoodoo
from hoodoo.errors import UnsupportedTable
from hoodoo.format import properties as java
from hoodoo.timeline.layout import CHECKPOINTS, CLAIMS, PROPERTIES, slot_key
from hoodoo.timeline.slots import slot as slots
from hoodoo.timeline.views import checkpoint


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=hoodoo.day("ts"), type=request.param, **QUIET)


# ---------------------------------------------------------------- columns, other handles, other engines


def test_a_source_is_neither_dropped_nor_retyped_and_a_rename_is_followed(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("n", pa.int32()))
    table = hoodoo.create(
        tmp_path / "t", schema, key="id", partition_by=[hoodoo.day("ts"), hoodoo.bucket(4, "n")], **QUIET
    )
    table.upsert([row(1) | {"n": 3}])
    behind = hoodoo.open(table.path)
    for refused in (
        lambda: table.alter.drop_column("n"),
        lambda: table.alter.drop_column("ts"),
        lambda: table.alter.widen_column("n", pa.int64()),
        lambda: table.alter([hoodoo.RenameColumn("n", "m"), hoodoo.DropColumn("m")]),
        lambda: table.alter.drop_column("ts_day"),
        lambda: table.alter.rename_column("ts_day", "day"),
    ):
        with pytest.raises(hoodoo.SchemaError, match="is the source of|is a partition column"):
            refused()
    wide = pa.Table.from_pylist([row(2) | {"n": 1 << 40}], schema.set(4, pa.field("n", pa.int64())))
    with pytest.raises(hoodoo.ColumnError, match="'n'"):
        table.upsert(wide, evolve=True)
    table.alter([hoodoo.RenameColumn("ts", "at"), hoodoo.RenameColumn("n", "m")], rewrite=True)
    assert {name: str(one) for name, one in table.inspect.transforms.items()} == {
        "ts_day": "day(at)",
        "n_bucket": "bucket(4, m)",
    }
    behind.upsert([{"id": 2, "at": at(2), "zip": "z", "v": 1, "m": 3}])
    found = hoodoo.open(table.path).scan(where="at >= '2026-03-02'")
    assert [one["id"] for one in found.to_arrow().to_pylist()] == [2] and len(found.tasks()) == 1
    table.alter.add_column("ts", pa.int64(), default=5, rewrite=True)
    table.upsert([{"id": 3, "at": at(3), "zip": "z", "v": 1, "m": 3}])
    assert table.get([3])["ts_day"].to_pylist() == [dt.date(2026, 3, 3)]


def test_a_restore_to_before_a_rename_finds_the_source_again(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1)))
    table.savepoints.create("before")
    before = table.cursor
    table.alter.rename_column("ts", "at", rewrite=True)
    table.restore(before)
    assert str(table.inspect.transforms["ts_day"]) == "day(ts)"
    table.upsert(batch(row(2, at(2))))
    assert [one["ts_day"].day for one in stored(table)] == [1, 2]


def test_a_source_that_another_engine_retyped_makes_nothing_any_more(tmp_path: Path) -> None:
    """The bucket of a long is another one than that of the same int: keys would move. A batch has to say where its rows
    belong, as for any partition column.
    """
    schema = SCHEMA.append(pa.field("n", pa.int32()))
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by=[hoodoo.day("ts"), hoodoo.bucket(4, "n")])
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
    with pytest.raises(UnsupportedTable, match="newer version of hoodoo and requires the features transforms"):
        hoodoo.open(table.path)
    with pytest.raises(UnsupportedTable, match="newer version of hoodoo and requires the features transforms"):
        checkpoint.decode(data, "c")


def test_tables_without_transforms_are_open_to_older_releases(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="zip")
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
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=hoodoo.day("ts"))
    store = table.handle.store
    values = java.parse_properties(store.get(PROPERTIES))
    assert values["hoodoo.transform.ts_day"] == "day(6)"
    store.put(PROPERTIES, java.format_properties(values | {"hoodoo.transform.ts_day": text}, "today"))
    if text == "day(99)":
        assert hoodoo.open(table.path).inspect.transforms == {}
        return
    with pytest.raises(hoodoo.CorruptTable, match="hoodoo.transform.ts_day"):
        hoodoo.open(table.path).inspect.transforms  # noqa: B018


def by_another_engine(table: hoodoo.Table, rows: list[dict[str, Any]]) -> None:
    """Write `rows` as an engine that knows no transform and leaves no slot."""
    store = table.handle.store
    said = store.get(PROPERTIES)
    values = {
        name: text for name, text in java.parse_properties(said).items() if not name.startswith("hoodoo.transform")
    }
    store.put(PROPERTIES, java.format_properties(values, "today"))
    other = hoodoo.open(table.path)
    assert other.inspect.transforms == {}
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
    slot = slots.decode_commit_file(writer.handle.store.get(slot_key(writer.cursor.seq - 1)), "s")
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
    writer.maintenance.cluster()
    expected.remove(0)  # the key was written into the partition where it is, with the day of that
    check(writer)
    assert checkpoint.decode(checkpoint.encode(writer.handle.look().view), "c").foreign_rows
    problems = [problem.text for problem in writer.verify().problems]
    assert len(problems) == 1 and "a value of 'ts_day' that differs from day(ts)" in problems[0]
    assert writer.delete(where=where).deleted == len(expected) and writer.verify().problems == []
