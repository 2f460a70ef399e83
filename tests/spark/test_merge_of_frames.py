"""Merges and upserts of columns take a DataFrame of any size: what tasks stage and route leaves the rows that the same
rows in this process leave.

Such a DataFrame was collected into the driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hoodoo
from hoodoo.writers.staging import staged
from hoodoo.writers.staging.staged_merge import StagedMerge

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("n", pa.int64()), ("s", pa.string())]
)
DDL = "id long, city string, ts long, n long, s string"
KINDS = [("merge_on_read", None), ("merge_on_read", "ts"), ("copy_on_write", "ts")]
Row = tuple[int, str, int, int | None, str | None]


@pytest.fixture(autouse=True)
def _everything_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", -1)


def some_rows(seed: int, ids: range) -> list[Row]:
    drawn = random.Random(seed)
    return [
        (i, f"c{i % 3}", drawn.randrange(9), drawn.choice([None, i]), drawn.choice([None, "a", f"s{i}"])) for i in ids
    ]


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def twins(folder: Path, kind: str, order_by: str | None) -> tuple[hoodoo.Table, hoodoo.Table]:
    """Two tables with the same rows, some of them in logs, some deleted there."""
    made = []
    for name in ("ours", "frames"):
        how: dict[str, Any] = {"key": "id", "partition_by": "city", "order_by": order_by, "type": kind}
        table = hoodoo.create(folder / name, SCHEMA, compact_after_logs=None, clean_every=None, **how)
        table.upsert(arrow(some_rows(1, range(60))))
        table.upsert(arrow(some_rows(2, range(20, 40))))
        table.delete(arrow(some_rows(2, range(30, 36))).select(["id", "city"]))
        made.append(table)
    return made[0], made[1]


def plain(table: hoodoo.Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().sort_by("id").to_pylist()


def counts(result: hoodoo.WriteResult) -> tuple[int, int, int, int]:
    return result.inserted, result.updated, result.deleted, result.stale


def merged(table: hoodoo.Table, source: Any) -> hoodoo.WriteResult:
    merge = table.merge(source).when_matched_delete("source.n % 5 = 0").when_matched_update_all("source.n % 2 = 0")
    merge = merge.when_matched_update({"n": "target.n + coalesce(source.n, 1000)", "ts": "target.ts + 1"})
    merge = merge.when_not_matched_insert_all("source.id % 3 <> 0")
    merge = merge.when_not_matched_insert({"ts": "source.ts", "s": "'new ' || source.id"})
    return merge.when_not_matched_by_source_update({"s": "'left'"}, where="target.id < 10").execute()


@pytest.mark.parametrize(("kind", "order_by"), KINDS)
def test_each_clause_of_a_merge_does_in_tasks_what_it_does_here(
    session: Any, tmp_path: Path, kind: str, order_by: str | None
) -> None:
    ours, frames = twins(tmp_path, kind, order_by)
    rows = some_rows(3, range(15, 90))
    random.Random(4).shuffle(rows)
    frame = session.createDataFrame(rows, DDL).repartition(5)
    want, got = merged(ours, arrow(rows)), merged(frames, frame)
    assert counts(got) == counts(want) and plain(frames) == plain(ours)
    assert frames.verify().ok and not list(frames.handle.store.list(".hoodie/.hoodoo/staging/"))


def take_newer(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
    return {"n": pc.add(pc.fill_null(stored["n"], 0), pc.fill_null(newer["n"], 1))}


MODES: dict[str, Callable[[], dict[str, Any]]] = {
    "columns": lambda: {"columns": ["n", "_hoodie_is_deleted"]},
    "keep_non_null": lambda: {"merge": "keep_non_null"},
    "a function": lambda: {"merge": hoodoo.CustomMerge(take_newer)},
    "ignore": lambda: {"columns": "given", "new_keys": "ignore"},
}


SESSIONS_KINDS_AND_MODES = [
    pytest.param(session, *table, mode, marks=[] if (j + k) % 3 == i else [pytest.mark.deep])
    for i, session in enumerate(("classic", "connect"))
    for j, table in enumerate(KINDS)
    for k, mode in enumerate(MODES)
]


@pytest.mark.parametrize(("session", "kind", "order_by", "mode"), SESSIONS_KINDS_AND_MODES, indirect=["session"])
def test_rows_of_a_key_take_over_stored_values_in_their_order_in_tasks_as_here(
    session: Any, tmp_path: Path, kind: str, order_by: str | None, mode: str
) -> None:
    """Each key three times, a delete among them in some; in one Spark partition, so that there is an order."""
    ours, frames = twins(tmp_path, kind, order_by)
    drawn = random.Random(5)
    rows = [(*row, drawn.random() < 0.2) for seed in (6, 7, 8) for row in some_rows(seed, range(15, 75))]
    drawn.shuffle(rows)
    frame = session.createDataFrame(rows, f"{DDL}, _hoodie_is_deleted boolean").coalesce(1)
    if mode == "ignore":
        frame = frame.drop("s")
    want = ours.upsert(frame.toArrow(), **MODES[mode]())
    got = frames.upsert(frame, **MODES[mode]())
    assert counts(got) == counts(want) and plain(frames) == plain(ours)
    assert not list(frames.handle.store.list(".hoodie/.hoodoo/staging/"))


def test_what_is_wrong_with_a_frame_is_said_before_anything_is_written(session: Any, tmp_path: Path) -> None:
    _, table = twins(tmp_path, "merge_on_read", None)
    at, rows = table.cursor, some_rows(9, range(50, 70))
    twice = session.createDataFrame([*rows, *rows[:2]], DDL).repartition(7, "ts")
    with pytest.raises(hoodoo.DuplicateKeys, match="more than once: '5[01]'"):
        table.merge(twice).when_matched_delete().execute()
    frame = session.createDataFrame(rows, DDL).repartition(3)
    with pytest.raises(hoodoo.KeyNotFound, match="10 keys of the update are not in the table: '60', '61'"):
        table.upsert(frame, columns=["n"], new_keys="fail")
    with pytest.raises(hoodoo.ColumnError, match="nothing"):
        table.upsert(frame, columns=["nothing"])
    with pytest.raises(hoodoo.ColumnError, match="m"):
        table.merge(frame.withColumnRenamed("n", "m")).when_matched_update_all().execute()
    with pytest.raises(hoodoo.ColumnError, match="id"):
        table.merge(frame.drop("id")).when_matched_delete().execute()
    with pytest.raises(hoodoo.ExpressionError):
        table.merge(frame).when_matched_update({"n": "source.s * 2"}).execute()
    assert table.cursor == at and not list(table.handle.store.list(".hoodie/.hoodoo/staging/"))


def test_a_merge_of_a_frame_that_others_overtake_is_made_anew_on_the_new_rows(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = twins(tmp_path, "merge_on_read", None)
    planned, rows = StagedMerge.plan, [(i, f"c{i % 3}", 0, 1, None) for i in range(20)]
    overtaken: list[hoodoo.WriteResult] = []

    def overtake(self: StagedMerge, *arguments: Any) -> Any:
        found = planned(self, *arguments)
        if not overtaken:
            overtaken.append(hoodoo.open(table.path).update({"n": "100"}))
        return found

    monkeypatch.setattr(StagedMerge, "plan", overtake)
    result = table.merge(session.createDataFrame(rows, DDL)).when_matched_update({"n": "target.n + source.n"}).execute()
    assert result.retries == 1 and [row["n"] for row in plain(table)[:20]] == [101] * 20


def test_a_purge_names_the_source_rows_that_a_merge_has_staged(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both those that wait to be routed and those that wait to be written."""
    _, table = twins(tmp_path, "merge_on_read", None)
    planned, pending = StagedMerge.plan, list[str]()

    def plan(self: StagedMerge, *arguments: Any) -> Any:
        found = planned(self, *arguments)
        if not pending:
            keys = pa.table({"id": [7], "city": ["c1"]})
            pending.extend(hoodoo.open(table.path).maintenance.purge(keys).pending)
        return found

    monkeypatch.setattr(StagedMerge, "plan", plan)
    frame = session.createDataFrame([(i, f"c{i % 3}") for i in range(9)], "id long, city string").coalesce(1)
    assert table.merge(frame).when_matched_update({"n": "-1"}).execute().updated == 8
    assert len(pending) == 2
