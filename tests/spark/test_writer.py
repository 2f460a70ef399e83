"""`df.write.format("hoodoo")` without Spark around it: whatever tasks do twice or leave half done, the rows are there
once or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import hoodoo
from hoodoo.engine.spark import dumps, loads
from hoodoo.spark.source import HoodooSource
from hoodoo.spark.stream_write import read_query_id
from hoodoo.spark.write import HoodooWriter, plan_write
from hoodoo.writers import operations
from hoodoo.writers.staging import staged, staged_rows

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
STAGING = ".hoodie/.hoodoo/staging/"


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")


@pytest.fixture(params=["sent back", "staged", "large"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results come back from tasks, larger ones are staged, and a large batch is never in one piece in memory."""
    if request.param != "sent back":
        monkeypatch.setattr(staged, "_INLINE_BYTES", 0)
    if request.param == "large":
        monkeypatch.setattr(staged, "IN_PROCESS_BYTES", -1)
        monkeypatch.delattr(staged, "load_prepared_rows")


def rows(ids: range, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "city": [f"c{i % 2}" for i in ids], "ts": [ts] * len(ids)}, schema=SCHEMA)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(4))


def writer(table: hoodoo.Table, schema: pa.Schema = SCHEMA, overwrite: bool = False, **options: str) -> HoodooWriter:
    return loads(dumps(HoodooWriter(plan_write({"path": table.path, **options}, from_arrow_schema(schema), overwrite))))


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
    with pytest.raises(hoodoo.KeyExists, match=r"exist already: .*\.option\(\"operation\", \"upsert\"\)") as refused:
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


def test_a_batch_has_no_limit_and_a_large_one_is_merged_file_group_by_file_group(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past 64 MiB it was refused."""
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 20_000)
    most = []
    loaded = staged_rows.LoadStagedChanges.__call__

    def counted(load: Any) -> Any:
        changes = loaded(load)
        most.append(len(changes.rows))
        return changes

    monkeypatch.setattr(staged_rows.LoadStagedChanges, "__call__", counted)
    run(table, *(rows(range(start, start + 1000)) for start in (0, 1000, 2000)))
    assert len(most) == 2 and max(most) == 1500  # a file group of each of the two partitions
    run(table, rows(range(0, 3000, 2), 2), operation="upsert")
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["ts"]) for row in found) == [(i, 1 + (i % 2 == 0)) for i in range(3000)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"overwrite": True}, (hoodoo.OptionError, "insert_overwrite")),
        ({"schema": pa.schema([("id", pa.int64())])}, (hoodoo.ColumnError, "'city' .*is not in the batch")),
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


def streamed(table: hoodoo.Table, checkpoint: Path, number: int, *parts: pa.Table, **options: str) -> None:
    """A micro-batch, as Spark runs it: one writer where it is planned, and another one where it is committed."""

    def made() -> Any:
        given = {"path": table.path, "sink": "s", "checkpointlocation": str(checkpoint), **options}
        return loads(dumps(HoodooSource(given))).streamWriter(from_arrow_schema(SCHEMA), False)

    one = made()
    messages = [loads(dumps(one.write(batches(part)))) for part in parts]
    other = made()
    try:
        other.commit(messages, number)
    except hoodoo.HoodooError:
        made().abort(messages, number)
        raise


def checkpoint_of(folder: Path, number: int) -> Path:
    folder.mkdir()
    (folder / "metadata").write_text(f'{{"id":"{uuid.UUID(int=number)}"}}')
    return folder


@pytest.mark.usefixtures("way")
def test_a_micro_batch_of_a_stream_is_written_once(table: hoodoo.Table, tmp_path: Path) -> None:
    here = checkpoint_of(tmp_path / "c", 1)
    streamed(table, here, 0, rows(range(3)), rows(range(3, 5)))
    at = table.cursor
    streamed(table, here, 0, rows(range(3)), rows(range(3, 5)))  # its commit was not heard of
    assert table.cursor == at
    streamed(table, here, 1, rows(range(5, 7)))
    streamed(table, here, 2)
    streamed(table, here, 3, rows(range(4, 7), 2), operation="upsert")
    assert ids(table) == list(range(7)) and table.history()[0].version == 3
    with pytest.raises(hoodoo.KeyExists, match="has no option operation"):
        streamed(table, here, 4, rows(range(2)))
    assert ids(table) == list(range(7))


def test_a_number_that_a_sink_has_from_another_query_is_an_error_and_no_skip(
    table: hoodoo.Table, tmp_path: Path
) -> None:
    """With a new checkpoint numbers begin at 0: such batches were taken for old ones and lost."""
    one, other = checkpoint_of(tmp_path / "a", 1), checkpoint_of(tmp_path / "b", 2)
    for number in range(3):
        streamed(table, one, number, rows(range(number, number + 1)))
    before = table.cursor
    for number in (0, 2):
        with pytest.raises(
            hoodoo.OptionError, match=f"already contains batch 2 of query .*1, so batch {number} of query .*2 is"
        ):
            streamed(table, other, number, rows(range(10, 12)))
    assert table.cursor == before and ids(table) == [0, 1, 2]
    streamed(table, other, 0, rows(range(10, 12)), sink="another")
    streamed(table, other, 3, rows(range(12, 13)))
    with pytest.raises(hoodoo.OptionError, match="already contains batch 3"):
        streamed(table, one, 3, rows(range(13, 14)))
    assert ids(table) == [0, 1, 2, 10, 11, 12]


def test_two_queries_that_commit_one_number_at_a_time_are_told_apart(
    table: hoodoo.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one had looked before the first one committed."""
    one, other = checkpoint_of(tmp_path / "a", 1), checkpoint_of(tmp_path / "b", 2)
    looked = operations.is_committed

    def first_the_other(*given: Any) -> bool:
        found = looked(*given)
        monkeypatch.setattr(operations, "is_committed", looked)
        streamed(table, one, 0, rows(range(3)))
        return found

    monkeypatch.setattr(operations, "is_committed", first_the_other)
    with pytest.raises(hoodoo.OptionError, match="already contains batch 0 of query"):
        streamed(table, other, 0, rows(range(3, 6)))
    assert ids(table) == [0, 1, 2]


STREAMS = {
    "no sink": ({"sink": ""}, False, hoodoo.OptionError, "needs the option sink"),
    "long sink": ({"sink": "s" * 901}, False, hoodoo.OptionError, "1 to 900"),
    "complete": ({}, True, hoodoo.OptionError, r"outputMode\('append'\)"),
    "no checkpoint": ({"checkpointLocation": ""}, False, hoodoo.OptionError, "is not visible to a data source"),
    "transaction": ({"transaction": "a:1"}, False, hoodoo.OptionError, "does not accept the option transaction"),
    "unknown": ({"snik": "a"}, False, hoodoo.OptionError, "Did you mean 'sink'"),
    "operation": ({"operation": "merge"}, False, hoodoo.OptionError, "operation must be"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_cannot_be_written_is_refused_before_any_task_runs(table: hoodoo.Table, name: str) -> None:
    change, overwrite, kind, says = STREAMS[name]
    given = {"path": table.path, "sink": "s", "checkpointLocation": "c", "queryName": "q", **change}
    with pytest.raises(kind, match=says):
        HoodooSource(given).streamWriter(from_arrow_schema(SCHEMA), overwrite)


@pytest.mark.parametrize("content", [None, "no JSON", "{}", "[1]"])
def test_a_checkpoint_that_does_not_tell_its_query_is_an_error_and_nothing_is_written(
    table: hoodoo.Table, tmp_path: Path, content: str | None
) -> None:
    folder, before = checkpoint_of(tmp_path / "c", 1), table.cursor
    (folder / "metadata").unlink()
    if content is not None:
        (folder / "metadata").write_text(content)
    with pytest.raises(hoodoo.EngineError, match="query's id cannot be read"):
        streamed(table, folder, 0, rows(range(3)))
    assert table.cursor == before and ids(table) == []


def test_a_checkpoint_may_be_named_by_a_uri(tmp_path: Path) -> None:
    folder = checkpoint_of(tmp_path / "a b", 7)
    for text in (str(folder), folder.as_uri(), f"file:{tmp_path}/a%20b"):
        assert read_query_id(text, {}) == str(uuid.UUID(int=7))


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
