"""Streams without Spark around them: exactly once, in order, within their limits, wherever they are stopped, whatever
writers and services do.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stream_query import Checkpoint, Query
from table_machine import Machine

import hoodoo
from hoodoo.timeline.layout import LEASES

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
CASES = [
    ("merge_on_read", ("city",), "ts"),
    ("merge_on_read", (), None),
    ("copy_on_write", ("city",), None),
    ("copy_on_write", (), "ts"),
]
LIMITS = [{}, {"maxCommitsPerTrigger": 2}, {"maxFilesPerTrigger": 3}, {"maxRowsPerTrigger": 5}]
BOTH = [
    pytest.param(case, LIMITS[(number + more) % len(LIMITS)], marks=[pytest.mark.deep] if more else [])
    for number, case in enumerate(CASES)
    for more in (0, 1)
]
STEPS = ["upsert"] * 4 + ["flagged"] * 3 + ["delete"] * 2 + ["keep", "overwrite", "whole", "drop", "compact", "cluster"]


def make(path: Path, **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", **{"compact_after_logs": None, "clean_every": None, **options}
    )


def rows(ids: range, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "city": [f"c{i % 3}" for i in ids], "ts": [ts] * len(ids)}, schema=SCHEMA)


def plain(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


def flat(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch]


def stop_at_random_points(machine: Machine, rng: random.Random, steps: int, **options: Any) -> Checkpoint:
    """A stream that is stopped anywhere and started again, while the table changes; in the end it has caught up."""
    checkpoint = Checkpoint()
    query = Query(checkpoint, machine.table.path, **options)
    for _ in range(steps):
        getattr(machine, rng.choice(STEPS))()
        machine.last = machine.table.cursor.seq
        for _ in range(rng.randint(0, 3)):
            how_far = rng.choice(["through", "through", "decided", "run"])
            if how_far == "through":
                query.trigger()
            elif query.decide() and how_far == "run":
                query.run()
        if rng.random() < 0.4:
            if rng.random() < 0.5:
                query.stop()
            query = Query(checkpoint, machine.table.path, **options)
    query.drain()
    return checkpoint


@pytest.mark.parametrize(("case", "limit"), BOTH, ids=str)
def test_an_incremental_stream_into_another_table_that_is_stopped_anywhere_keeps_it_the_same(
    tmp_path: Path, case: Any, limit: dict[str, int]
) -> None:
    kind, partition, order = case
    seed = zlib.crc32(repr((case, limit)).encode()) % 1000
    machine = Machine(tmp_path / "a", kind, ("a", "b"), partition, order, seed)
    checkpoint = stop_at_random_points(machine, random.Random(seed), 25, mode="incremental", deletes="true", **limit)
    other = hoodoo.create(tmp_path / "b", machine.table.schema, key=("a", "b"), partition_by=partition)
    sink = other.sink("copy")
    for number, batch in sorted(checkpoint.batches.items()):
        table = pa.Table.from_pylist(
            batch, schema=machine.table.schema.append(pa.field("_hoodie_is_deleted", pa.bool_()))
        )
        sink(table, number)
        sink(table, number)  # a batch that is tried again changes nothing
    assert machine.found(other.scan()) == machine.want(machine.model.rows)


@pytest.mark.parametrize(("case", "limit"), BOTH, ids=str)
def test_a_stream_of_every_change_that_is_stopped_anywhere_gives_what_changes_gives_in_one_read(
    tmp_path: Path, case: Any, limit: dict[str, int]
) -> None:
    kind, partition, order = case
    seed = zlib.crc32(repr((case, limit)).encode()) % 1000
    machine = Machine(tmp_path / "a", kind, ("a", "b"), partition, order, seed)
    checkpoint = stop_at_random_points(machine, random.Random(seed), 25, mode="changes", versions="all", **limit)
    whole = machine.table.changes("earliest", versions="all").to_arrow().to_pylist()
    assert plain(flat(checkpoint.batches.values())) == plain(whole)


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_net_change_stream_rebuilds_the_table(tmp_path: Path, kind: str) -> None:
    machine = Machine(tmp_path / "a", kind, ("a", "b"), ("city",), "ts", 5)
    checkpoint = stop_at_random_points(machine, random.Random(5), 30, mode="changes", maxFilesPerTrigger=2)
    there: dict[Any, dict[str, Any]] = {}
    for _, batch in sorted(checkpoint.batches.items()):
        for change in batch:
            image = change["after"] or change["before"]
            identity = machine.model.identity(image)
            assert repr(there.pop(identity, None)) == repr(change["before"])
            if change["after"]:
                there[identity] = change["after"]
    assert plain(list(there.values())) == machine.want(machine.model.rows)


def test_a_batch_has_the_same_rows_whenever_it_is_asked_for(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for number in range(6):
        table.upsert(rows(range(number * 10, number * 10 + 15), number))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, mode="changes", maxCommitsPerTrigger=2)
    query.drain()
    first = {number: plain(batch) for number, batch in checkpoint.batches.items()}
    table.delete(rows(range(0, 40)))
    table.compact()
    again = Query(checkpoint, table.path, mode="changes", maxCommitsPerTrigger=5)
    for number in range(len(first)):
        checkpoint.done = number
        again.run()
    assert {number: plain(batch) for number, batch in checkpoint.batches.items()} == first


def test_limits_bound_every_batch_also_those_of_the_first_snapshot(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(30)))  # three partitions, so three file groups of ten rows
    for number in range(4):
        table.upsert(rows(range(6), 2 + number))
    groups = list(table.handle.history.head().groups())
    by_files = Query(Checkpoint(), table.path, maxFilesPerTrigger=1).drain()
    assert len(by_files) == len(groups) == 3 and len(flat(by_files)) == 30
    by_rows = Query(Checkpoint(), table.path, maxRowsPerTrigger=40).drain()
    assert [len(batch) for batch in by_rows] == [20, 10]  # a group's logs count as rows: 10 and 4 times 2
    checkpoint = Checkpoint()
    by_commits = Query(checkpoint, table.path, maxCommitsPerTrigger=1).drain()
    assert [len(batch) for batch in by_commits] == [30, 6, 6, 6, 6]
    table.upsert(rows(range(9), 20))
    table.upsert(rows(range(9), 21))
    table.upsert(rows(range(1), 22))
    assert [len(batch) for batch in Query(checkpoint, table.path, maxRowsPerTrigger=18).drain()] == [
        9,
        1,
    ]  # two commits at once, whose newest versions are nine rows
    assert Query(checkpoint, table.path).drain() == []


def test_a_trigger_that_asks_for_all_there_is_ignores_limits(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(30)))
    assert [len(batch) for batch in Query(Checkpoint(), table.path, once=True, maxFilesPerTrigger=1).drain()] == [30]


def test_available_now_reads_up_to_the_head_of_its_start_and_ends(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(30)))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, available_now=True, maxFilesPerTrigger=1)
    table.upsert(rows(range(30, 60)))
    assert sorted(row["id"] for row in flat(query.drain())) == list(range(30))
    table.upsert(rows(range(60, 70)))
    after = Query(checkpoint, table.path, available_now=True, maxCommitsPerTrigger=1)
    table.upsert(rows(range(70, 80)))
    assert [sorted(row["id"] for row in batch) for batch in after.drain()] == [list(range(30, 60)), list(range(60, 70))]


def test_a_stream_starts_where_it_is_told_to(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.upsert(rows(range(3)))
    second = table.upsert(rows(range(3, 6)))
    table.savepoints.create("here", second.cursor)
    table.upsert(rows(range(6, 9)))
    for start, ids in (
        ("earliest", range(9)),
        (first.instant, range(3, 9)),
        (str(second.cursor), range(6, 9)),
        ("here", range(6, 9)),
        ("latest", range(0)),
    ):
        for name in ("since", "startingPosition"):
            checkpoint = Checkpoint()
            assert sorted(row["id"] for row in flat(Query(checkpoint, table.path, **{name: start}).drain())) == list(
                ids
            )
    table.upsert(rows(range(9, 10)))
    assert [row["id"] for row in flat(Query(checkpoint, table.path, since="latest").drain())] == [
        9
    ]  # it was latest when the stream began


def test_columns_where_and_meta_shape_the_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    written = table.upsert(rows(range(9)))
    [batch] = Query(Checkpoint(), table.path, columns="ts,id", where="id < 2").drain()
    assert plain(batch) == plain([{"ts": 1, "id": 0}, {"ts": 1, "id": 1}])
    [batch] = Query(Checkpoint(), table.path, columns='["_hoodie_commit_time"]', meta="true").drain()
    assert batch == [{"_hoodie_commit_time": written.instant}] * 9
    [batch] = Query(Checkpoint(), table.path, mode="changes", columns="id", where="id = 4").drain()
    assert batch == [{"op": "i", "instant": written.instant, "before": None, "after": {"id": 4}}]


def test_commits_of_services_make_no_batches_and_cost_no_position(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(9)))
    checkpoint = Checkpoint()
    Query(checkpoint, table.path, mode="changes").drain()
    table.upsert(rows(range(9), 2))
    query = Query(checkpoint, table.path, mode="changes")
    assert len(query.drain()) == 1
    table.compact()
    assert query.drain() == []
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.upsert(rows(range(3), 3))
    assert [change["op"] for change in flat(query.drain())] == ["u", "u", "u"]


@pytest.mark.parametrize("mode", [{"mode": "changes"}, {"mode": "incremental", "deletes": "true"}], ids=str)
def test_a_stream_behind_what_is_readable_gets_an_error_that_names_the_earliest_position_and_no_rows(
    tmp_path: Path, mode: dict[str, str]
) -> None:
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(9)))
    checkpoint = Checkpoint()
    Query(checkpoint, table.path, **mode).drain()
    for number in range(4):
        table.upsert(rows(range(9), 2 + number))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    earliest = table.handle.history.head().min_readable
    late = Query(checkpoint, table.path, **mode)
    with pytest.raises(hoodoo.SnapshotExpired, match=f"Use slot {earliest}"):
        late.trigger()
    assert set(checkpoint.batches) == {0}


def test_an_incremental_stream_that_is_behind_goes_on_with_the_first_snapshot_that_is_there(tmp_path: Path) -> None:
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(9)))
    checkpoint = Checkpoint()
    Query(checkpoint, table.path).drain()
    for number in range(4):
        table.upsert(rows(range(number * 3, 9), 2 + number))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    batches = Query(checkpoint, table.path, maxCommitsPerTrigger=1).drain()
    assert plain(flat(batches)) == plain(table.incremental(hoodoo.Cursor(table.cursor.table, 2)).to_arrow().to_pylist())


def test_files_that_a_clean_takes_after_planning_are_an_expired_snapshot_for_the_task(tmp_path: Path) -> None:
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(9)))
    query = Query(Checkpoint(), table.path)
    assert query.decide()
    parts = query.parts(0)
    table.upsert(rows(range(9), 2))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    for part in parts:
        with pytest.raises(hoodoo.SnapshotExpired, match="was cleaned"):
            list(query.reader.read(part))


def test_a_first_snapshot_that_takes_several_batches_is_held_while_it_is_read(tmp_path: Path) -> None:
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(30)))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, maxFilesPerTrigger=1)
    assert query.trigger()
    table.upsert(rows(range(30), 2))
    table.upsert(rows(range(30), 3))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    query.trigger()
    query.stop()
    query = Query(checkpoint, table.path, maxFilesPerTrigger=1)
    query.trigger()
    assert sorted((row["id"], row["ts"]) for number in range(3) for row in checkpoint.batches[number]) == [
        (i, 1) for i in range(30)
    ]
    assert {row["ts"] for row in flat(query.drain())} == {3}


def test_the_first_snapshot_of_changes_is_held_as_well_and_what_came_after_it_is_retentions(tmp_path: Path) -> None:
    """Its rows were refused as expired, although a lease kept their files."""
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(30)))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, mode="changes", maxFilesPerTrigger=1)
    assert query.trigger()
    table.upsert(rows(range(30), 2))
    table.upsert(rows(range(30), 3))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    query.trigger()
    query.trigger()
    assert sorted(
        (row["after"]["id"], row["after"]["ts"]) for number in range(3) for row in checkpoint.batches[number]
    ) == [(i, 1) for i in range(30)]
    with pytest.raises(hoodoo.SnapshotExpired) as caught:
        query.drain()
    assert caught.value.details["earliest"] == table.handle.history.head().min_readable


def test_what_holds_a_first_snapshot_is_given_back_once_it_is_read(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(30)))
    query = Query(Checkpoint(), table.path, maxFilesPerTrigger=1)
    query.trigger()
    assert len(list(table.handle.store.list(LEASES))) == 1
    query.drain()
    assert not list(table.handle.store.list(LEASES))


def test_a_consumer_moves_with_the_stream_and_keeps_what_it_has_not_read(tmp_path: Path) -> None:
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows(range(9)))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, mode="changes", consumer="board", maxFilesPerTrigger=1)
    query.trigger()
    assert table.consumer("board").position.seq == 0  # not before the whole snapshot is through
    query.drain()
    assert table.consumer("board").position == table.cursor
    for number in range(4):
        table.upsert(rows(range(9), 2 + number))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    late = Query(checkpoint, table.path, mode="changes", consumer="board", maxCommitsPerTrigger=1)
    assert [len(batch) for batch in late.drain()] == [9, 9, 9, 9]
    fresh = Query(Checkpoint(), table.path, mode="changes", consumer="board")
    assert fresh.drain() == []  # a new checkpoint starts where the consumer is
    checkpoint.done -= 2
    del checkpoint.offsets[-2:]
    assert (
        len(Query(checkpoint, table.path, mode="changes", consumer="board").drain()) == 1
    )  # an older checkpoint is read again; the consumer stays where it is
    assert table.consumers()[0].slots <= 1


@pytest.mark.parametrize("mode", ["changes", "incremental"])
@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_change_of_columns_ends_the_stream_with_an_error_that_says_so_and_a_restart_goes_on(
    tmp_path: Path, kind: str, mode: str
) -> None:
    """What came before the change and was not read yet is read under the new columns."""
    table = make(tmp_path / "t", type=kind)
    table.upsert(rows(range(3)))
    checkpoint = Checkpoint()
    query = Query(checkpoint, table.path, mode=mode)
    query.drain()
    table.upsert(rows(range(2, 5), 2))
    table.alter([hoodoo.RenameColumn("ts", "at"), hoodoo.AddColumn("more", pa.string(), default="d")], rewrite=True)
    with pytest.raises(hoodoo.SchemaError, match="Restart the query"):
        query.trigger()
    table.upsert(pa.table({"id": [9], "city": ["c0"], "at": [3]}))
    found = flat(Query(checkpoint, table.path, mode=mode, maxCommitsPerTrigger=1).drain())
    images = [row["after"] for row in found] if mode == "changes" else found
    new = [{"id": i, "city": f"c{i % 3}", "at": 2, "more": None} for i in (2, 3, 4)]
    assert plain(images) == plain([*new, {"id": 9, "city": "c0", "at": 3, "more": "d"}])
    if mode == "changes":
        before = {"id": 2, "city": "c2", "at": 1, "more": None}
        assert [row["before"] for row in found if row["op"] == "u"] == [before]


def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    Query(checkpoint, make(tmp_path / "a").path)
    with pytest.raises(hoodoo.PositionError, match="another table"):
        Query(checkpoint, make(tmp_path / "b").path).trigger()


def test_a_table_that_was_put_back_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    checkpoint = Checkpoint(offsets=[json.dumps({"table": table.cursor.table, "slot": 99})])
    with pytest.raises(hoodoo.PositionError, match="restored from a backup"):
        Query(checkpoint, table.path).trigger()


def test_a_stream_that_read_what_another_engine_took_back_ends_with_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(3)))
    checkpoint = Checkpoint()
    Query(checkpoint, table.path).drain()
    table.upsert(rows(range(3), 2))
    query = Query(checkpoint, table.path)
    history = query.reader._table.handle.history
    undone = replace(history.head(), undone=((2, 2),))
    monkeypatch.setattr(history, "head", lambda: undone)
    monkeypatch.setattr(history, "known_head", lambda: undone)
    with pytest.raises(hoodoo.RangeUndone, match="Use slot 1, or slot 3 or later"):
        query.trigger()
    assert set(checkpoint.batches) == {0}


def test_an_empty_table_gives_no_batch_and_then_what_is_written(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    checkpoint = Checkpoint()
    for _ in range(2):
        assert Query(checkpoint, table.path).drain() == []
    table.upsert(rows(range(3)))
    assert [len(batch) for batch in Query(checkpoint, table.path).drain()] == [3]
