"""Partial log blocks: tables without an ordering column log the columns that an upsert of some columns or an update
sets, and no others; every reader and service sees whole rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hudi_rows import hudi_rows
from tiers import sized

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster
from hoodoo.compactor.compaction import merge_group, plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.engine.local import LocalEngine
from hoodoo.format.log.block import DataBlock, base_instants, decode_log
from hoodoo.readers.lookup import look_up_in
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.timeline.slots.slot import LOG, PARTIAL, DataFile
from hoodoo.writers.files import in_place
from hoodoo.writers.merging import meeting

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("n", pa.int64()),
        ("v", pa.float64()),
        ("word", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
FREE = ("n", "v", "word", "tags")
QUIET: dict[str, Any] = {
    "compact_after_logs": None,
    "slow_after_logs": None,
    "clean_every": None,
    "partial_logs": True,
}
Row = dict[str, Any]


@pytest.fixture(params=["avro", "parquet"])
def log_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def values(rng: random.Random) -> Row:
    return {
        "n": rng.choice([None, rng.randrange(1000)]),
        "v": rng.choice([None, rng.random()]),
        "word": rng.choice([None, "", f"w{rng.randrange(6)}"]),
        "tags": rng.choice([None, [], ["a", None]]),
    }


def row(number: int, rng: random.Random) -> Row:
    return {"id": number, "day": f"d{number % 2}"} | values(rng)


def made(path: Path, rows: int = 200, schema: pa.Schema = SCHEMA, **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, schema, key="id", partition_by="day", **QUIET | options)
    rng = random.Random(0)
    table.insert(pa.Table.from_pylist([row(number, rng) for number in range(rows)], SCHEMA))
    return table


def found(table: hoodoo.Table, **how: Any) -> dict[int, Row]:
    return {one["id"]: one for one in table.scan(**how).to_arrow().to_pylist()}


def some(number: int, **given: Any) -> Row:
    return {"id": number, "day": f"d{number % 2}"} | given


def logs(table: hoodoo.Table) -> list[DataFile]:
    return [log.file for group in table.handle.history.head().groups() for log in group.logs]


def blocks(table: hoodoo.Table, file: DataFile) -> list[DataBlock]:
    read = decode_log((Path(table.path) / file.path).read_bytes())
    return [block for block in read if isinstance(block, DataBlock)]


def set_in(table: hoodoo.Table, file: DataFile) -> list[tuple[bool, list[str]]]:
    return [(block.partial, block.rows.schema.names[5:]) for block in blocks(table, file)]


# ---- what is written
def test_an_upsert_of_some_columns_logs_these_columns_only(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", log_format=log_format)
    result = table.upsert([some(number, word="x", n=number) for number in range(0, 100, 2)], columns="given")
    assert (result.updated, result.inserted, result.exact) == (50, 0, True)
    (log,) = logs(table)
    assert set_in(table, log) == [(True, ["n", "word"])]
    assert (log.partial, log.rows, log.updates) == (1, 50, 50)
    assert PARTIAL in table.handle.history.head().needs, "who does not know of it must not read the table"
    assert log.stats["n"] == [0, 98, 0] and log.stats["word"] == ["x", "x", 0] and log.stats["id"] == [0, 98, 0]
    assert not log.stats.keys() & {"v", "tags", "day"}
    assert log.order, "it says over which rows of the base its records lie"
    stored = found(table)
    assert all(stored[number]["word"] == "x" for number in range(0, 100, 2))
    assert table.verify().problems == []


def test_an_update_logs_and_reads_only_what_it_sets_and_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    before, read = found(table), list[tuple[str, ...]]()
    call = SliceTask.located

    def noted(self: SliceTask) -> Any:
        read.append(self.columns)
        return call(self)

    monkeypatch.setattr(SliceTask, "located", noted)
    assert table.update({"word": "upper(word)"}, where="v < 0.5").updated
    assert set(read) == {("_hoodie_record_key", "id", "word")}
    monkeypatch.undo()
    assert {tuple(names) for log in logs(table) for _, names in set_in(table, log)} == {("word",)}
    for key, one in found(table).items():
        changes = before[key]["v"] is not None and before[key]["v"] < 0.5 and before[key]["word"]
        assert one == before[key] | ({"word": before[key]["word"].upper()} if changes else {})


def test_an_update_by_a_function_logs_the_columns_that_it_returns(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    before = found(table)
    table.update(lambda rows: {"n": pc.add(rows["n"], 1)})
    assert {tuple(names) for log in logs(table) for _, names in set_in(table, log)} == {("n",)}
    assert found(table) == {key: one | {"n": None if one["n"] is None else one["n"] + 1} for key, one in before.items()}


@pytest.mark.parametrize(
    ("options", "write"),
    [
        ({"order_by": "n"}, lambda table: table.upsert([some(1, n=5000, word="x")], columns="given")),
        ({"order_by": "n"}, lambda table: table.update({"word": "'x'"})),
        ({"partial_logs": False}, lambda table: table.upsert([some(1, word="x")], columns="given")),
        ({"partial_logs": False}, lambda table: table.update({"word": "'x'"})),
        ({}, lambda table: table.upsert([some(1, word="x")], columns="given", merge="keep_non_null")),
        ({}, lambda table: table.upsert([some(1, word="x")], columns="given", unavailable="?")),
        ({}, lambda table: table.upsert([some(1) | values(random.Random(5))], columns="given")),
        (
            {},
            lambda table: table.upsert(
                [some(1, n=7, _hoodie_is_deleted=False), some(2, n=7, _hoodie_is_deleted=True)], columns="given"
            ),
        ),
    ],
    ids=["ordered", "ordered update", "option", "option update", "nulls keep", "unavailable", "all columns", "deletes"],
)
def test_whole_rows_are_logged_where_parts_would_not_do(
    tmp_path: Path, options: Row, write: Callable[[hoodoo.Table], Any]
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="day", **QUIET | options)
    rng = random.Random(1)
    table.insert(pa.Table.from_pylist([row(number, rng) | {"n": number} for number in range(20)], SCHEMA))
    write(table)
    assert logs(table) and not any(log.partial for log in logs(table))
    names = {tuple(names) for log in logs(table) for _, names in set_in(table, log)}
    assert names == {tuple(SCHEMA.names)}


def test_a_key_that_needs_its_base_gets_a_whole_row_there(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 6)
    table.delete([some(2)])
    table.upsert([some(2, word="again"), some(4, word="x"), some(77, word="new")], columns="given")
    stored = found(table)
    assert stored[2] == some(2, n=None, v=None, word="again", tags=None)
    assert stored[77] == some(77, n=None, v=None, word="new", tags=None)
    assert stored[4]["word"] == "x" and not any(log.partial for log in logs(table))


@pytest.mark.parametrize("narrow", ["upsert", "update"])
def test_a_narrow_column_of_a_wide_table_takes_less_than_a_third_of_whole_rows(
    tmp_path: Path, log_format: str, narrow: str
) -> None:
    rng = random.Random(2)
    wide = pa.schema([("id", pa.int64()), ("n", pa.int64()), *((f"c{number}", pa.string()) for number in range(20))])
    rows = [{"id": key, "n": 0} | {f"c{i}": f"{rng.random()}" for i in range(20)} for key in range(2000)]
    data = pa.Table.from_pylist(rows, wide)
    table = hoodoo.create(tmp_path / "t", wide, key="id", log_format=log_format, **QUIET)
    table.insert(data)
    index = wide.get_field_index("n")
    whole = table.upsert(data.set_column(index, "n", pc.add(data["n"], 1)))
    if narrow == "upsert":
        part = table.upsert(pa.table({"id": data["id"], "n": pc.add(data["n"], 2)}), columns="given")
    else:
        part = table.update({"n": "n + 1"})
    assert part.updated == whole.updated == 2000
    assert part.bytes_written < whole.bytes_written / 3
    assert set(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == {2}


def test_stored_rows_are_not_read_for_an_upsert_of_some_columns_unless_a_check_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", 20)
    before, read = found(table), list[str]()

    def noted(*given: Any) -> pa.Table:
        read.append("a slice")
        return look_up_in(*given)

    monkeypatch.setattr(meeting, "look_up_in", noted)
    same = some(4, word=before[4]["word"])
    assert table.upsert([same, some(6, word="x")], columns="given").updated == 2, "equal rows are logged, too"
    assert found(table) == before | {6: before[6] | {"word": "x"}} and not read
    assert table.changes("earliest").count() == 20
    table.set_checks({"short": "word != 'gift' OR n = 9999"})
    with pytest.raises(hoodoo.CheckFailed, match="short"):
        table.upsert([some(4, word="gift")], columns="given")
    assert read


# ---- what is read
def test_where_finds_rows_by_the_values_that_a_partial_log_gave_them(tmp_path: Path, log_format: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", row_group_rows=50, log_format=log_format, **QUIET)
    data = [{"id": n, "day": "d", "n": n, "v": float(n), "word": "old", "tags": None} for n in range(400)]
    table.insert(pa.Table.from_pylist(data, SCHEMA))
    table.upsert([{"id": 7, "n": 5000}, {"id": 300, "n": 6000}], columns="given")
    table.upsert([{"id": 7, "word": "new"}], columns="given")
    assert sorted(found(table, where="n > 4000")) == [7, 300]
    assert sorted(found(table, where="n > 4000 AND v = 300.0")) == [300]
    assert sorted(found(table, where="word = 'new' AND n = 5000")) == [7]
    assert sorted(found(table, where="n = 7 OR n = 300")) == []
    assert sorted(found(table, where="id >= 299 AND id < 302")) == [299, 300, 301]
    assert found(table, where="id = 300")[300] == data[300] | {"n": 6000}
    assert sorted(found(table, where="NOT (id < 398)")) == [398, 399]
    assert len(found(table, where="tags IS NULL")) == 400
    assert found(table, where="word IS NULL") == {} == found(table, where="v IS NULL")
    assert table.update({"v": 0.0}, where="n > 4000").updated == 2
    assert table.delete(where="n = 6000").deleted == 1
    assert 300 not in found(table)


def test_logs_that_set_none_of_the_columns_that_are_read_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t")
    table.upsert([some(4, word="x")], columns="given")
    table.upsert([some(4, n=-1), some(6, n=-2)], columns="given")
    opened, read = list[str](), slices.read_verified

    def noted(store: Any, file: DataFile, *more: Any) -> Any:
        opened.append(file.path)
        return read(store, file, *more)

    monkeypatch.setattr(slices, "read_verified", noted)
    first, second = (
        log.path for log in slices.logs_in_order(next(g for g in table.handle.history.head().groups() if g.logs))
    )
    for columns, where, logged in (
        (["id", "v", "tags"], None, []),
        (["id"], "n < 0", [second]),
        (["word"], "id = 4", [first]),
        (["id", "day"], None, []),
    ):
        opened.clear()
        assert table.scan(columns=columns, where=where).count()
        opened.clear()
        assert len(table.scan(columns=columns, where=where).to_arrow())
        assert [path for path in opened if ".log." in path] == logged
    assert len(table.scan().to_arrow()) == 200 and {first, second} <= set(opened)


def test_change_data_and_incremental_pulls_show_whole_rows(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", log_format=log_format)
    start, before = table.cursor, found(table)
    table.upsert([some(1, word="one"), some(2, word="two")], columns="given")
    first, between = table.cursor, found(table)
    table.upsert([some(2, n=22), some(3, n=33)], columns="given")
    after = found(table)

    def told(**how: Any) -> list[tuple[Any, Any]]:
        changes = table.changes(start, **how).to_arrow().to_pylist()
        return [(one["before"], one["after"]) for one in sorted(changes, key=lambda one: one["after"]["id"])]

    assert told() == [(before[key], after[key]) for key in (1, 2, 3)]
    assert told(versions="all") == [
        (before[1], between[1]),
        (before[2], between[2]),
        (between[2], after[2]),
        (between[3], after[3]),
    ]
    pulled = table.incremental(first).to_arrow().to_pylist()
    assert sorted(pulled, key=lambda one: one["id"]) == [after[2], after[3]]
    narrow = table.incremental(start, columns=["id", "v"]).to_arrow().to_pylist()
    assert sorted(narrow, key=lambda one: one["id"]) == [{"id": key, "v": after[key]["v"]} for key in (1, 2, 3)]
    assert found(table, as_of=str(first)) == between


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("seed", range(sized(3, 30)))
def test_any_grouping_of_logs_gives_one_answer(
    tmp_path: Path, seed: int, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random columns of random rows, updates, whole rows and deletes; services in between, or not."""
    rng = random.Random(seed)
    if not by_row:
        monkeypatch.setattr(slices, "lies_over_rows", lambda group: False)
    how = {"log_format": rng.choice(["avro", "parquet"]), "row_group_rows": 64, "checkpoint_every": 3}
    served, alone = made(tmp_path / "served", **how), made(tmp_path / "alone", **how)
    model, snapshots, planned = found(served), dict[str, dict[int, Row]](), False
    for _ in range(14):
        kind = rng.choices(["columns", "update", "whole", "delete"], [6, 2, 1, 1])[0]
        keys = rng.sample(range(205), rng.choice([1, 10, 60]))
        if kind == "columns":
            names = rng.sample(FREE, rng.randint(1, 3))
            batch = [some(key) | {name: values(rng)[name] for name in names} for key in keys]
            schema = pa.schema([field for field in SCHEMA if field.name in ("id", "day", *names)])
            for table in (served, alone):
                table.upsert(pa.Table.from_pylist(batch, schema), columns="given", new_keys="ignore")
            model |= {one["id"]: model[one["id"]] | one for one in batch if one["id"] in model}
        elif kind == "update":
            least, word = rng.randrange(1000), f"u{rng.randrange(3)}"
            for table in (served, alone):
                table.update({"word": f"'{word}'", "v": "v * 2"}, where=f"n >= {least}")
            for key, one in model.items():
                if one["n"] is not None and one["n"] >= least:
                    model[key] = one | {"word": word, "v": None if one["v"] is None else one["v"] * 2}
        elif kind == "whole":
            batch = [row(key, rng) for key in keys if key in model]
            for table in (served, alone):
                table.upsert(pa.Table.from_pylist(batch, SCHEMA))
            model |= {one["id"]: one for one in batch}
        else:
            for table in (served, alone):
                table.delete([some(key) for key in keys[:5]])
            model = {key: one for key, one in model.items() if key not in keys[:5]}
        context = served.handle.context()
        if planned:
            served.compact()
        service = rng.choices(["", "logs", "compact", "plan", "cluster"], [4, 4, 1, 1, 1])[0]
        planned = service == "plan"
        if service == "logs":
            compact_logs(context, lambda view: behind(view, 2))
        elif service == "compact":
            served.compact()
        elif service == "plan":
            plans.schedule(context, plans.plan_behind)
        elif service == "cluster":
            assert cluster(context, by=rng.choice([(), ("n",)])).yielded == 0
        assert found(served) == model
        snapshots[str(served.cursor)] = dict(model)
    assert found(alone) == model
    limit = rng.randrange(1000)
    assert found(alone, where=f"n < {limit}") == {
        key: one for key, one in model.items() if one["n"] is not None and one["n"] < limit
    }
    assert sorted(one["id"] for one in alone.scan(columns=["id"], where="v IS NULL").to_arrow().to_pylist()) == sorted(
        key for key, one in model.items() if one["v"] is None
    )
    asked = rng.sample(sorted(model), 20)
    assert alone.get([some(key) for key in asked]).to_pylist() == [model[key] for key in asked]
    for cursor, rows in snapshots.items():
        assert found(served, as_of=cursor) == rows
    since = rng.choice(list(snapshots))
    told = {}
    for one in served.changes(since).to_arrow().to_pylist():
        told[(one["before"] or one["after"])["id"]] = (one["before"], one["after"])
    was = snapshots[since]
    assert told == {
        key: (was.get(key), model.get(key)) for key in was.keys() | model.keys() if was.get(key) != model.get(key)
    }
    for table in (served, alone):
        assert {one["id"]: {name: one[name] for name in SCHEMA.names} for one in hudi_rows(table.path)} == model
        assert {one["id"]: one for one in hoodoo.open(table.path).scan().to_arrow().to_pylist()} == model
        if by_row:
            assert table.verify().problems == []
        table.compact()
        assert found(table) == model and not logs(table)


# ---- services
def test_log_compaction_makes_one_log_of_partial_and_whole_rows(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", log_format=log_format)
    table.upsert([some(number, word="x") for number in range(0, 80, 2)], columns="given")
    table.upsert([some(number, n=number) for number in range(40, 120, 2)], columns="given")
    table.upsert(pa.Table.from_pylist([row(number, random.Random(9)) for number in range(0, 10, 2)], SCHEMA))
    table.delete([some(8), some(50)])
    before, mark, meta = found(table), table.cursor, table.scan(meta=True).to_arrow().sort_by("id")
    assert compact_logs(table.handle.context(), lambda view: behind(view, 2)).logs == 4
    (log,) = logs(table)
    assert sorted(set_in(table, log)) == [
        (False, SCHEMA.names),
        (True, ["n"]),
        (True, ["n", "word"]),
        (True, ["word"]),
    ]
    assert log.partial and log.order and len(set(base_instants((Path(table.path) / log.path).read_bytes()))) == 1
    assert found(table) == before and table.incremental(mark).count() == 0
    times = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"]
    assert table.scan(meta=True).to_arrow().sort_by("id").select(times) == meta.select(times)
    assert table.verify().problems == []


def test_log_compaction_keeps_blocks_as_they_are_where_merging_would_make_more_of_them(tmp_path: Path) -> None:
    """Hudi reads the logs before, too, and failed where a row followed the delete of its key."""
    table, rng = made(tmp_path / "t"), random.Random(3)
    for name in FREE:
        table.upsert(
            pa.Table.from_pylist(
                [some(key) | {name: values(rng)[name]} for key in rng.sample(range(0, 200, 2), 60)],
                pa.schema([SCHEMA.field("id"), SCHEMA.field("day"), SCHEMA.field(name)]),
            ),
            columns="given",
        )
    gone = list(range(0, 40, 2))
    table.delete([some(key) for key in gone])
    before, count = found(table), len(logs(table))
    compact_logs(table.handle.context(), lambda view: behind(view, 2))
    (log,) = logs(table)
    assert [names for _, names in set_in(table, log)] == [[name] for name in FREE] and count == 5
    keys = {int(key) for block in blocks(table, log) for key in block.rows["_hoodie_record_key"].to_pylist()}
    assert keys and not keys & set(gone)
    assert found(table) == before
    assert {one["id"]: {name: one[name] for name in SCHEMA.names} for one in hudi_rows(table.path)} == before
    table.compact()
    assert found(table) == before


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["in place", "as a whole"])
@pytest.mark.parametrize("growth", [1.5, 1e6], ids=["held", "too large to be held"])
def test_compaction_completes_partial_rows_within_any_budget(
    tmp_path: Path, small: int, growth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(4)
    table = made(tmp_path / "t", 3000, row_group_rows=500)
    for _ in range(5):
        names = rng.sample(FREE, 2)
        batch = [some(key) | {name: values(rng)[name] for name in names} for key in rng.sample(range(3000), 300)]
        schema = pa.schema([field for field in SCHEMA if field.name in ("id", "day", *names)])
        table.upsert(pa.Table.from_pylist(batch, schema), columns="given")
    table.delete([some(key) for key in range(0, 3000, 7)])
    table.upsert([some(key) | values(rng) for key in range(1, 700, 7)])
    before = found(table)
    rows = table.scan().to_arrow().to_pylist()
    monkeypatch.setattr(in_place, "_SMALL", small)
    monkeypatch.setattr(merge_group, "_LOG_GROWTH", growth)
    table.compact()
    assert not logs(table) and found(table) == before
    assert table.scan().to_arrow().to_pylist() == rows, "in the same order as the slices were read"
    assert table.verify().problems == []


def test_columns_that_no_partial_log_sets_are_copied_by_a_compaction_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", 4000, row_group_rows=1000)
    table.upsert([some(key, word="y") for key in range(0, 4000, 16)], columns="given")
    before, decoded = found(table), set[str]()
    monkeypatch.setattr(in_place, "_SMALL", 0)
    wide = in_place._Rewrite._wide

    def noted(self: Any, number: int, names: Any = None) -> pa.Table:
        decoded.update(names or ["all"])
        return wide(self, number, names)

    monkeypatch.setattr(in_place._Rewrite, "_wide", noted)
    table.compact()
    assert "word" in decoded and not decoded & {"all", "n", "v", "tags"}
    assert found(table) == before


# ---- changes of columns
def test_partial_logs_follow_changes_of_columns(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", 20, log_format=log_format)
    stored = found(table)
    table.upsert([some(4, word="four", n=4)], columns="given")
    stored[4] |= {"word": "four", "n": 4}
    table.rename_column("word", "text", rewrite=True)
    assert not logs(table)
    table.upsert([some(6, text="six", n=6)], columns="given")
    stored[6] |= {"word": "six", "n": 6}
    table.add_column("more", pa.int64())
    table.drop_column("n")
    assert [log.partial for log in logs(table)] == [1]
    stored = {
        key: {"id": key, "day": one["day"], "v": one["v"], "text": one["word"], "tags": one["tags"], "more": None}
        for key, one in stored.items()
    }
    assert found(table) == stored
    table.upsert([some(4, more=1), some(5, more=2)], columns="given")
    table.update({"text": "text || '!'"}, where="id = 4")
    stored[4] |= {"more": 1, "text": "four!"}
    stored[5] |= {"more": 2}
    assert found(table) == stored
    assert found(table, where="more = 1") == {4: stored[4]}
    assert found(table, where="text = 'four!'") == {4: stored[4]}
    assert found(table, columns=["id", "more"]) == {
        key: {"id": key, "more": one["more"]} for key, one in stored.items()
    }
    compact_logs(table.handle.context(), lambda view: behind(view, 2))
    assert found(table) == stored
    table.compact()
    assert found(table) == stored and table.verify().problems == []


def test_a_column_added_after_a_partial_log_is_not_set_by_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 10)
    table.upsert([some(2, word="x")], columns="given")
    table.add_column("late", pa.int64(), default=7)
    table.upsert([some(2, late=8)], columns="given")
    table.upsert([some(2, n=1)], columns="given")
    assert (found(table)[2]["late"], found(table)[2]["word"], found(table)[2]["n"]) == (8, "x", 1)
    table.compact()
    assert found(table)[2]["late"] == 8


# ---- beside others
def test_a_slot_and_a_checkpoint_say_that_a_log_is_partial(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 20, checkpoint_every=2)
    for number in range(5):
        table.upsert([some(2, word=f"{number}")], columns="given")
    again = hoodoo.open(table.path)
    assert [log.partial for log in logs(again)] == [1] * 5
    assert all(
        file.partial
        for slot in again.handle.history.slots(2, table.cursor.seq)
        for file in slot.files
        if file.kind == LOG
    )


def test_partial_rows_that_are_logged_while_a_clustering_works_are_brought_along(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 60)

    class Beside(LocalEngine):
        """Runs tasks, then lets somebody write before what they made is completed."""

        def map(self, task: Any, items: Any, at_once: int | None = None, waiting: bool = False) -> list[Any]:
            made = super().map(task, items)
            other = hoodoo.open(table.path)
            other.upsert([some(4, word="while"), some(5, word="while")], columns="given")
            other.update({"n": -1}, where="id < 10")
            return made

    result = cluster(replace(table.handle.context(), engine=Beside(1)), by=["n"])
    stored = found(table)
    assert result.yielded == 0 and [stored[key]["word"] for key in (4, 5)] == ["while"] * 2
    assert {key for key, one in stored.items() if one["n"] == -1} == set(range(10))
    assert any(log.partial for log in logs(table)) and table.verify().problems == []


def test_salvage_gives_a_partial_row_to_no_key_whose_row_is_lost(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", row_group_rows=100, **QUIET)
    rng = random.Random(6)
    table.bulk_insert(pa.Table.from_pylist([row(number, rng) for number in range(300)], SCHEMA), sort="id")
    table.upsert([some(key, word="kept") | {"day": "d"} for key in (150, 250)], columns=["word"])
    stored = found(table)
    (group,) = table.handle.history.head().groups()
    assert group.base is not None
    file = Path(table.path) / group.base.file.path
    data = bytearray(file.read_bytes())
    chunk = pq.ParquetFile(file).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    for at in range(start, start + chunk.total_compressed_size):
        data[at] ^= 0xFF
    file.write_bytes(data)
    report = table.salvage(accept_loss=True)
    lost = {int(loss.key) for loss in report.lost if loss.key is not None}
    assert found(table) == {key: one for key, one in stored.items() if not 100 <= key < 200}
    assert 150 in lost or any(loss.key is None for loss in report.lost)
    assert found(table)[250]["word"] == "kept" and table.verify().problems == []


def test_salvage_of_a_damaged_partial_log_names_its_keys_and_keeps_their_rows(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 20)
    before = found(table)
    table.upsert([some(4, word="lost"), some(6, word="lost")], columns="given")
    table.upsert([some(6, n=-6), some(8, n=-8)], columns="given")
    path = (
        Path(table.path)
        / slices.logs_in_order(next(group for group in table.handle.history.head().groups() if group.logs))[0].path
    )
    data = bytearray(path.read_bytes())
    data[data.rindex(b"lost")] ^= 1
    path.write_bytes(data)
    with pytest.raises(hoodoo.CorruptTable):
        table.scan().to_arrow()
    report = table.salvage(accept_loss=True)
    assert {(loss.key, loss.kept) for loss in report.lost} == {("4", True), ("6", True)}
    assert found(table) == before | {key: before[key] | {"n": -key} for key in (6, 8)}


def test_a_batch_of_some_columns_may_bring_a_new_one(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 6)
    before = found(table)
    table.upsert([some(4, word="x", note="new")], columns="given", evolve=True)
    assert [names for log in logs(table) for _, names in set_in(table, log)] == [["word", "note"]]
    stored = {key: one | {"note": None} for key, one in before.items()}
    assert found(table) == stored | {4: stored[4] | {"word": "x", "note": "new"}}


def test_a_null_is_refused_in_a_column_that_takes_none(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="day", **QUIET)
    table.insert([some(1, n=1, must=1)], missing="null")
    with pytest.raises(hoodoo.ColumnError, match="must"):
        table.upsert([some(1, must=None)], columns="given")
    assert table.upsert([some(1, n=None)], columns="given").updated == 1
    assert (found(table)[1]["n"], found(table)[1]["must"]) == (None, 1)


def test_two_writers_of_different_columns_of_a_row_keep_both(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 10)
    one, other = hoodoo.open(table.path), hoodoo.open(table.path)
    one.upsert([some(4, word="one")], columns="given")
    other.upsert([some(4, n=-2)], columns="given")
    assert other.delete([some(6)]).deleted == 1
    assert one.upsert([some(6, word="back")], columns="given", new_keys="ignore").updated == 0
    assert (found(table)[4]["word"], found(table)[4]["n"], 6 in found(table)) == ("one", -2, False)
