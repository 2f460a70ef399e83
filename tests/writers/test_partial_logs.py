"""Partial log blocks: tables without an ordering column log the columns that an upsert of some columns or an update
sets, and no others; every reader and service sees whole rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi_rows import hudi_rows
from partial_logs import FREE, QUIET, SCHEMA, Row, found, logs, made, row, set_in, some, values
from tiers import sized

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster_files
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.readers.lookup import look_up_in
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.timeline.slots.slot import PARTIAL, DataFile
from hoodoo.writers.merging import group_merge


@pytest.fixture(params=["avro", "parquet"])
def log_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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

    monkeypatch.setattr(group_merge, "look_up_in", noted)
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
    opened, read = list[str](), slices.read_verified_file

    def noted(store: Any, file: DataFile, *more: Any) -> Any:
        opened.append(file.path)
        return read(store, file, *more)

    monkeypatch.setattr(slices, "read_verified_file", noted)
    first, second = (
        log.path for log in slices.sort_logs_by_instant(next(g for g in table.handle.history.head().groups() if g.logs))
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
@pytest.mark.parametrize("seed", range(sized(2, 30)))
def test_any_grouping_of_logs_gives_one_answer(
    tmp_path: Path, seed: int, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random columns of random rows, updates, whole rows and deletes; services in between, or not."""
    rng = random.Random(seed)
    if not by_row:
        monkeypatch.setattr(slices, "has_row_positions", lambda group: False)
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
            plans.commit_compaction_plan(context, plans.plan_groups_with_logs)
        elif service == "cluster":
            assert cluster_files(context, by=rng.choice([(), ("n",)])).yielded == 0
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
