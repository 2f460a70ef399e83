"""`df.write.format("hoodoo")` without Spark around it: whatever tasks do twice or leave half done, the rows are there
once or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import hoodoo
from hoodoo.engine.spark import dumps, loads
from hoodoo.spark.source import HoodooSource
from hoodoo.spark.write import HoodooWriter, planned
from hoodoo.writers.staging import staged

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
STAGING = ".hoodie/.hoodoo/staging/"


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")


@pytest.fixture(params=["sent back", "staged"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results come back from tasks, large ones are staged."""
    if request.param == "staged":
        monkeypatch.setattr(staged, "_INLINE_BYTES", 0)


def rows(ids: range, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "city": [f"c{i % 2}" for i in ids], "ts": [ts] * len(ids)}, schema=SCHEMA)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(4))


def writer(table: hoodoo.Table, schema: pa.Schema = SCHEMA, overwrite: bool = False, **options: str) -> HoodooWriter:
    return loads(dumps(HoodooWriter(planned({"path": table.path, **options}, from_arrow_schema(schema), overwrite))))


def run(table: hoodoo.Table, *parts: pa.Table, **options: str) -> None:
    one = writer(table, parts[0].schema, **options)
    one.commit([loads(dumps(one.write(batches(part)))) for part in parts])


def ids(table: hoodoo.Table) -> list[int]:
    assert not list(table.handle.store.list(STAGING))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.usefixtures("way")
def test_each_operation_does_what_the_method_of_its_name_does(table: hoodoo.Table) -> None:
    run(table, rows(range(6)), rows(range(4, 9), 2), operation="upsert")
    assert ids(table) == list(range(9)) and sorted(table.scan().to_arrow()["ts"].to_pylist()) == [1] * 4 + [2] * 5
    run(table, rows(range(0, 2)), operation="delete")
    assert ids(table) == list(range(2, 9))
    with pytest.raises(hoodoo.KeyExists):
        run(table, rows(range(8, 12)), operation="insert")
    run(table, rows(range(8, 12)), operation="insert", existing="keep")
    run(table, rows(range(20, 22)), operation="bulk_insert")
    assert ids(table) == [*range(2, 12), 20, 21]
    with pytest.raises(hoodoo.DuplicateKeys):
        run(table, rows(range(30, 31)), rows(range(30, 31), 2), duplicates="fail")
    flags = rows(range(2, 4), 9).append_column("_hoodie_is_deleted", pa.array([True, False]))
    run(table, flags, operation="upsert")
    assert ids(table) == [*range(3, 12), 20, 21]


@pytest.mark.usefixtures("way")
def test_a_write_that_names_no_operation_is_an_insert_and_replaces_nothing(table: hoodoo.Table) -> None:
    """It upserted, and columns that Spark had filled with nulls replaced stored values unseen."""
    run(table, rows(range(3)))
    before = table.cursor
    more = rows(range(2, 4), 9)
    with pytest.raises(hoodoo.KeyExists, match=r"exist: .*\.option\(\"operation\", \"upsert\"\)") as refused:
        run(table, more)
    assert refused.value.details["keys"] == ["2"] and table.cursor == before and ids(table) == [0, 1, 2]
    with pytest.raises(hoodoo.KeyExists) as said:
        run(table, more, operation="insert")
    assert "option" not in said.value.message
    run(table, more, existing="keep")
    run(table, more, operation="upsert")
    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.usefixtures("way")
def test_an_attempt_that_runs_twice_does_not_double_rows(table: hoodoo.Table) -> None:
    one = writer(table, operation="insert")
    one.write(batches(rows(range(10))))  # lost: Spark takes one attempt of a task
    one.commit([one.write(batches(rows(range(10))))])
    assert ids(table) == list(range(10))


@pytest.mark.usefixtures("way")
def test_an_abort_leaves_nothing_behind_and_no_commit(table: hoodoo.Table) -> None:
    before = table.cursor
    one = writer(table)
    done = one.write(batches(rows(range(10))))
    one.abort([done, None])
    assert ids(table) == [] and table.cursor == before


def test_a_transaction_is_written_once(table: hoodoo.Table) -> None:
    run(table, rows(range(3)), transaction="job:1")
    at = table.cursor
    run(table, rows(range(3, 6)), transaction="job:1")
    assert (ids(table), table.cursor) == ([0, 1, 2], at)
    run(table, rows(range(3, 6)), transaction="job:2")
    assert ids(table) == list(range(6))


def test_a_batch_past_the_bound_is_refused_by_the_task_or_by_the_commit_and_pointed_to_the_way_that_has_none(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 20_000)
    one = writer(table, operation="upsert")
    with pytest.raises(hoodoo.EngineError, match=r"upsert\(df\)"):
        one.write(batches(rows(range(2000))))
    one.abort([None])
    parts = [one.write(batches(rows(range(start, start + 300)))) for start in (0, 300, 600)]
    with pytest.raises(hoodoo.EngineError, match=r"Nothing was written. Use hoodoo.open\(path\).upsert\(df\)"):
        one.commit(parts)
    assert ids(table) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"overwrite": True}, (hoodoo.OptionError, "insert_overwrite")),
        ({"schema": pa.schema([("id", pa.int64())])}, (hoodoo.ColumnError, "no column 'city'")),
        ({"schema": SCHEMA.append(pa.field("more", pa.int64()))}, (hoodoo.ColumnError, "'more'")),
    ],
)
def test_a_write_that_cannot_be_is_refused_before_any_task_runs(
    table: hoodoo.Table, change: dict[str, Any], problem: Any
) -> None:
    kind, says = problem
    with pytest.raises(kind, match=says):
        writer(table, **change)


def test_an_empty_batch_writes_nothing(table: hoodoo.Table) -> None:
    at = table.cursor
    run(table, SCHEMA.empty_table())
    assert table.cursor == at


def test_a_stream_is_pointed_to_the_sink(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.EngineError, match=r"foreachBatch\(table.sink"):
        HoodooSource({"path": table.path}).streamWriter(from_arrow_schema(SCHEMA), False)


@pytest.mark.usefixtures("way")
def test_a_task_refuses_rows_that_no_reader_takes(table: hoodoo.Table) -> None:
    """Spark's cast of bytes to text looks at nothing; such rows were acknowledged and poisoned their file groups."""
    run(table, rows(range(4)))
    before = table.cursor
    text = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"x\xff\xfe"))
    bad = pa.table({"id": pa.array([1, 2]), "city": text, "ts": pa.array([2, 2])})
    with pytest.raises(hoodoo.ColumnError, match="'city', row 1 .*'id': 2.*UTF-8"):
        run(table, bad)
    assert table.cursor == before and len(table.scan().to_arrow()) == 4


@pytest.mark.usefixtures("way")
def test_tasks_hold_bad_rows_back_and_the_commit_keeps_them_once(table: hoodoo.Table) -> None:
    """Equal rows of different tasks are numbered together, and a retry with other tasks finds each where it was."""
    bad = pa.table({"id": [7, None, None], "city": ["c1"] * 3, "ts": [None, 1, 1]}, SCHEMA)
    parts = [pa.concat_tables([rows(range(3)), bad.slice(0, 2)]), pa.concat_tables([bad.slice(2), rows(range(3, 6))])]
    with pytest.raises(hoodoo.DataError):
        run(table, *parts)
    run(table, *parts, on_bad_rows="quarantine")
    run(table, *reversed(parts), on_bad_rows="quarantine", operation="upsert")
    assert ids(table) == list(range(6))
    found = table.quarantine().rows().to_pylist()
    assert sorted((one["reason"], one["position"][-2:]) for one in found) == [
        ("null_key", ":0"),
        ("null_key", ":1"),
        ("null_order", ":0"),
    ]


@pytest.mark.usefixtures("way")
def test_limits_are_judged_over_all_tasks_before_any_commit(table: hoodoo.Table) -> None:
    bad = pa.table({"id": [None, None], "city": ["c1"] * 2, "ts": [1, 2]}, SCHEMA)
    before = table.cursor
    with pytest.raises(hoodoo.TooManyBadRows):
        run(table, rows(range(3)), bad, bad, on_bad_rows="quarantine", max_bad_rows="3")
    with pytest.raises(hoodoo.TooManyBadRows):
        run(table, rows(range(100)), bad, on_bad_rows="quarantine", max_bad_share="0.015")
    assert table.cursor == before and table.quarantine().count() == 4
    run(table, rows(range(100)), bad, on_bad_rows="quarantine", max_bad_share="0.5")
    assert len(ids(table)) == 100


@pytest.mark.usefixtures("way")
def test_tasks_and_the_commit_hold_rows_against_checks(table: hoodoo.Table) -> None:
    table.set_checks({"new": "ts > 0"})
    with pytest.raises(hoodoo.CheckFailed, match="new"):
        run(table, rows(range(3, 5), ts=0))
    one = writer(table)
    done = [one.write(batches(rows(range(3))))]
    table.set_checks({"newer": "ts > 1"})  # while tasks are at work
    with pytest.raises(hoodoo.CheckFailed, match="newer"):
        one.commit(done)
    assert ids(table) == []
