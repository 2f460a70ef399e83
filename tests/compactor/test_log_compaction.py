"""Log compaction changes no row, leaves the base alone, and steps aside for every writer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.compactor.compaction import log_compaction, plans, triggers
from hoodoo.compactor.compaction.log_compaction import choose_compaction_type, compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.timeline.hudi.external_history import ExternalHistory
from hoodoo.timeline.views.view import View

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])


def rows(ids: list[int], ts: int) -> pa.Table:
    return pa.table(
        {"id": [f"{i:04d}" for i in ids], "ts": [ts] * len(ids), "text": [f"{i} at {ts}" for i in ids]}, schema=SCHEMA
    )


def make(path: Path, order_by: str | tuple[str, ...] | None = "ts", commits: int = 6, seed: int = 1) -> hoodoo.Table:
    chance = random.Random(seed)
    table = hoodoo.create(path, SCHEMA, key="id", order_by=order_by, compact_after_logs=None, clean_every=None)
    table.upsert(rows(list(range(500)), 50))
    pool = list(range(500))
    for number in range(commits):
        changed = chance.sample(pool, 60)
        if number % 3 == 2:
            table.delete(pa.table({"id": [f"{i:04d}" for i in changed[:5]]}))
            pool = [i for i in pool if i not in changed[:5]]
        else:
            batch = rows(changed, chance.randrange(100))
            gone = [order_by is not None and chance.random() < 0.1 for _ in changed]
            table.upsert(batch.append_column("_hoodie_is_deleted", pa.array(gone)))
            pool = [i for i in pool if i not in {key for key, deleted in zip(changed, gone, strict=True) if deleted}]
    return table


def content(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    meta = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"]
    return table.scan(columns=[*SCHEMA.names, *meta], meta=True, **how).to_arrow().sort_by("id").to_pylist()


def logs_of(table: hoodoo.Table) -> int:
    return max(len(group.logs) for group in table.handle.history.head().groups())


def everything(view: View) -> list[Any]:
    return behind(view, 2)


@pytest.mark.parametrize("order_by", ["ts", ("ts", "text"), None], ids=["ts", "ts, text", "None"])
def test_rows_their_identity_and_every_earlier_snapshot_stay_as_they_were(
    tmp_path: Path, order_by: str | tuple[str, ...] | None
) -> None:
    for seed in range(4):
        table = make(tmp_path / f"t{seed}", order_by, seed=seed)
        before, old = (
            content(table),
            {
                seq: content(table, as_of=str(hoodoo.Cursor(table.cursor.table, seq)))
                for seq in range(2, table.cursor.seq + 1)
            },
        )
        mark = table.cursor
        result = compact_logs(table.handle.context(), everything)
        assert (result.groups, result.logs, logs_of(table)) == (1, 6, 1)
        assert content(table) == before
        assert {seq: content(table, as_of=str(hoodoo.Cursor(table.cursor.table, seq))) for seq in old} == old
        assert table.incremental(since=mark).count() == 0, "nothing changed, so no reader is told of anything"
        assert content(hoodoo.open(table.path)) == before
        assert table.verify().ok
        assert plans.compact_files(table.handle.context()).groups == 1
        assert content(table) == before, "the merged log goes into the base as the six would have"


def test_the_merged_logs_are_cleaned_and_other_readers_see_the_same_rows_before_and_after(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    expected = [{name: row[name] for name in SCHEMA.names} for row in content(table)]

    def others() -> list[dict[str, Any]]:
        return sorted(
            ({name: row[name] for name in SCHEMA.names} for row in hudi_rows(table.path)), key=lambda row: row["id"]
        )

    assert others() == expected
    compact_logs(table.handle.context(), everything)
    assert others() == expected
    table.upsert(
        rows([int(expected[0]["id"])], 0)
    )  # stale, but a commit: the snapshot before it needs the six logs no more
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert len([path for path in Path(table.path).iterdir() if ".log." in path.name]) == 2
    assert others() == expected
    assert table.verify().ok
    theirs = ExternalHistory(table.handle.store).head()  # what is left when our own folder is lost
    (group,) = theirs.groups()
    assert [log.file.path for log in group.logs] == [
        log.file.path for group in table.handle.history.head().groups() for log in group.logs
    ]


def test_later_writes_find_what_the_merged_log_deletes(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    gone = sorted({f"{i:04d}" for i in range(500)} - {row["id"] for row in content(table)})
    compact_logs(table.handle.context(), everything)
    result = table.upsert(rows([int(gone[0])], 1))
    assert (result.inserted, content(table)[-1] is not None) == (1, True)
    assert [row["ts"] for row in content(table) if row["id"] == gone[0]] == [1], (
        "a deleted key is free whatever its ordering value"
    )


def test_a_log_that_came_meanwhile_wins_and_nothing_of_the_attempt_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t")
    alive = [int(row["id"]) for row in content(table)]
    run = log_compaction.MergeLogsTask.__call__

    def slow(self: log_compaction.MergeLogsTask) -> Any:
        done = run(self)
        monkeypatch.undo()
        hoodoo.open(table.path).upsert(rows(alive[:3], 1000))
        return done

    monkeypatch.setattr(log_compaction.MergeLogsTask, "__call__", slow)
    assert compact_logs(table.handle.context(), everything).groups == 0
    assert logs_of(table) == 7
    assert [row["ts"] for row in content(table)][:3] == [1000] * 3
    names = {path.name for path in Path(table.path).iterdir() if ".log." in path.name}
    assert len(names) == 7, "the log that came too late was deleted"


def test_of_several_groups_only_those_that_nobody_touched_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None, clean_every=None)
    table.insert(rows(list(range(100)), 0), bulk=True)
    table.insert(rows(list(range(100, 200)), 0), bulk=True)
    for ts in range(3):
        table.upsert(rows([1, 101], ts))
    run, calls = log_compaction.MergeLogsTask.__call__, []

    def slow(self: log_compaction.MergeLogsTask) -> Any:
        done = run(self)
        calls.append(self)
        if len(calls) == 1:
            hoodoo.open(table.path).upsert(rows([101], 9))
        return done

    monkeypatch.setattr(log_compaction.MergeLogsTask, "__call__", slow)
    result = compact_logs(table.handle.context(), everything)
    assert (result.groups, sorted(len(group.logs) for group in table.handle.history.head().groups())) == (1, [1, 4])
    assert [row["ts"] for row in content(table) if row["id"] == "0101"] == [9]
    on_disk = {path.name for path in Path(table.path).iterdir() if result.instant in path.name}
    assert len(on_disk) == 1, "a completed instant's file would count for Hudi, so the other was deleted before"


def test_a_group_under_a_plan_is_left_alone_and_a_writer_rebases_over_a_newer_log(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert compact_logs(table.handle.context(), lambda view: list(view.groups())).groups == 0
    plans.run_open_plans(table.handle.context(), table.handle.history.head())
    for ts in range(3):
        table.upsert(rows([int(content(table)[0]["id"])], 200 + ts))
    assert compact_logs(table.handle.context(), everything).groups == 1


def test_what_a_full_compaction_would_cost_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    groups = list(table.handle.history.head().groups())
    assert choose_compaction_type(groups) == ([], groups), "a small base is rewritten"
    monkeypatch.setattr(triggers, "_BASE_MIN", 0)
    monkeypatch.setattr(triggers, "_PAYS", 0)
    assert choose_compaction_type(groups) == (groups, [])
