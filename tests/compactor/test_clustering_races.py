"""Clustering beside writers: what they log meanwhile is brought along, what they rewrite makes the unit yield, a killed
one leaves what a sweep takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows
from memory_store import Died, MemoryStore
from scenario import SCHEMA, Clock, opened, rows
from tiers import sized

import hoodoo
from hoodoo.compactor.clustering.cluster import ClusterResult, cluster_files
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.engine.local import LocalEngine
from hoodoo.format.names import parse_data_file
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.commits.conflicts import WriteSet, explain_conflict, no_key_hashes
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi.publish import find_publication_file, is_rolled_back_externally
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.properties import hoodie_properties, table_options
from hoodoo.timeline.slots.slot import CLUSTER
from hoodoo.writers import operations
from hoodoo.writers.batches.batch import prepare_batch
from hoodoo.writers.sources import InMemoryBatch

CHOSEN = {"compact_after_logs": None, "clean_every": None, "target_file_bytes": 16 << 10}
HOWS = [{}, {"by": ["ts", "id"], "order": "zorder"}]


class Between(LocalEngine):
    """Runs tasks, then lets something happen before what they made is completed."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__(1)
        self._happens = happens

    def map(self, task: Any, items: Any, at_once: int | None = None, waiting: bool = False) -> list[Any]:
        made = super().map(task, items)
        happens, self._happens = self._happens, lambda: None
        happens()
        return made


def clustered(table: Table, happens: Callable[[], Any] = lambda: None, **how: Any) -> ClusterResult:
    return cluster_files(replace(table.handle.context(), engine=Between(happens)), **how)


def ids(first: int, last: int, ts: int, city: str = "p") -> pa.Table:
    return rows(*((f"k{n:03d}", city, ts) for n in range(first, last)))


def filled(table: Table, each: int = 40, city: str = "p") -> Table:
    for number in range(5):
        table.insert(ids(number * each, (number + 1) * each, 10, city), bulk=True)
    return table


def on_disk(tmp_path: Path, kind: str = "merge_on_read") -> Table:
    return filled(
        hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, **CHOSEN)
    )


def in_memory(kind: str = "merge_on_read") -> tuple[MemoryStore, Clock]:
    clock = Clock()
    store = MemoryStore(at_ms=clock.ms)
    settings = table_options.validate_new_options(CHOSEN)
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), kind, settings),
        Environment(now_ms=clock),
    )
    filled(opened(store, clock))
    return store, clock


def content(table: Table) -> dict[str, tuple[int, str]]:
    """Key -> ordering value and the commit that wrote the row."""
    found = table.scan(columns=["id", "ts", "_hoodie_commit_time"], meta=True).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["ts"], row["_hoodie_commit_time"]) for row in found}


def by_hudi(path: str) -> dict[str, tuple[int, str]]:
    return {row["id"]: (row["ts"], row["_hoodie_commit_time"]) for row in hudi_rows(path)}


def flagged(table: pa.Table, deleted: bool = True) -> pa.Table:
    return table.append_column("_hoodie_is_deleted", pa.array([deleted] * len(table)))


def data_files(store: Any) -> set[str]:
    return {
        key for key, _ in store.list("") if not key.startswith(".hoodie/") and parse_data_file(key.rpartition("/")[2])
    }


def known_files(table: Table) -> set[str]:
    view = table.handle.history.head()
    return {entry.file.path for group in view.groups() for entry in group.files()} | {
        entry.path for entry in view.superseded
    }


def logs(table: Table) -> list[str]:
    return sorted(entry.file.name for group in table.handle.history.head().groups() for entry in group.logs)


@pytest.mark.parametrize("how", HOWS)
def test_updates_and_deletes_logged_while_a_unit_works_are_brought_along(tmp_path: Path, how: dict[str, Any]) -> None:
    table, writer = on_disk(tmp_path), hoodoo.open(tmp_path / "t")
    results: list[hoodoo.WriteResult] = []
    cursor = table.cursor

    def write() -> None:
        results.append(writer.upsert(ids(30, 90, 20)))  # wins
        results.append(writer.upsert(ids(100, 110, 5)))  # stale
        results.append(writer.upsert(flagged(ids(40, 50, 30))))  # ordered deletes, of rows and of what was just logged
        results.append(writer.upsert(flagged(ids(110, 120, 5))))  # stale ones
        results.append(writer.delete(ids(120, 130, 0)))  # unconditional ones

    result = clustered(table, write, **how)
    assert (result.units, result.yielded) == (1, 0)
    gone = {f"k{n:03d}" for n in (*range(40, 50), *range(120, 130))}
    expected = {f"k{n:03d}" for n in range(200)} - gone
    found = content(table)
    assert set(found) == expected
    assert all(ts == (20 if 30 <= int(key[1:]) < 90 else 10) for key, (ts, _) in found.items())
    assert {commit for key, (_, commit) in found.items() if 30 <= int(key[1:]) < 90} == {results[0].instant}
    assert found == by_hudi(table.path) == content(hoodoo.open(table.path))
    changed = table.incremental(cursor).to_arrow()["id"].to_pylist()
    assert sorted(changed) == sorted(key for key in expected if 30 <= int(key[1:]) < 90)
    assert table.incremental(results[-1].cursor).to_arrow().num_rows == 0
    assert table.verify().problems == []
    table.upsert(ids(40, 50, 1))  # a deleted key is free, whatever its ordering value was
    table.upsert(ids(125, 135, 40))
    assert {key for key, (ts, _) in content(table).items()} == expected | {
        f"k{n:03d}" for n in (*range(40, 50), *range(125, 130))
    }
    assert content(table) == by_hudi(table.path)
    table.compact()
    assert content(table) == by_hudi(table.path)
    assert table.verify().problems == []


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(4, 12)))
def test_whatever_is_logged_while_units_work_the_table_is_as_if_nothing_had_been_clustered(seed: int) -> None:
    rng = random.Random(seed)
    store, clock = in_memory()
    plain_store, plain_clock = MemoryStore(store.data, clock.ms), Clock(clock.ms)
    table, writer, plain = opened(store, clock), opened(store, clock), opened(plain_store, plain_clock)

    merged: list[int] = []

    def write() -> None:
        for _ in range(rng.randint(1, 4)):
            batch = rows(*((f"k{n:03d}", "p", rng.randint(8, 14)) for n in rng.sample(range(200), rng.randint(1, 30))))
            name = rng.choice(["upsert", "flagged", "delete"])
            for each in (writer, plain):
                each.delete(batch) if name == "delete" else each.upsert(
                    flagged(batch, True) if name == "flagged" else batch
                )
            if rng.random() < 0.3:
                merged.append(
                    compact_logs(
                        writer.handle.context(), lambda view: [group for group in view.groups() if len(group.logs) > 1]
                    ).groups
                )

    carried = 0
    for turn in range(4):
        clustered(table, write, by=["ts" if turn % 2 else "id"], order=rng.choice(["linear", "hilbert"]))
        carried += len(logs(table))
        assert {key: ts for key, (ts, _) in content(table).items()} == {
            key: ts for key, (ts, _) in content(plain).items()
        }
        if rng.random() < 0.3:
            table.compact()
    assert table.verify().problems == []
    assert carried


def test_what_is_logged_between_the_look_and_the_slot_comes_along_in_a_second_log() -> None:
    store, clock = in_memory()
    writer = opened(store, clock)
    writer.upsert(ids(0, 5, 15))
    rounds = iter([20, 21])

    class Beaten(MemoryStore):
        """Somebody else's slot is always there first, twice."""

        def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
            if key.startswith(layout.SLOTS) and (ts := next(rounds, 0)):
                writer.upsert(ids(ts - 20, ts - 10, ts))
            super().put_if_absent(key, data, durable)

    beaten = Beaten(at_ms=clock.ms)
    beaten.data = store.data
    table = opened(beaten, clock)
    result = clustered(table)
    assert (result.units, result.yielded) == (1, 0)
    assert [parse_data_file(name).version for name in logs(table)] == [1, 2]  # type: ignore[union-attr]
    assert (
        sum(entry.file.rows for group in table.handle.history.head().groups() for entry in group.logs) == 20
    )  # the second brings only what came since
    assert [content(table)[f"k{n:03d}"][0] for n in (0, 1, 10, 11)] == [20, 21, 21, 10]
    assert table.verify().problems == []


def rewrite(table: Table) -> None:
    table.upsert(ids(195, 230, 10))  # new rows fill a small group


def compact(table: Table) -> None:
    table.upsert(ids(0, 20, 30))
    table.compact()


def plan(table: Table) -> None:
    table.upsert(ids(0, 20, 30))
    plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)


def come_back(table: Table) -> None:
    table.delete(ids(0, 5, 0))
    table.upsert(ids(0, 5, 1))


def overwrite(table: Table) -> None:
    table.insert_overwrite(ids(0, 50, 1))


@pytest.mark.parametrize("act", [rewrite, compact, plan, come_back, overwrite], ids=lambda act: act.__name__)
@pytest.mark.parametrize("how", HOWS)
def test_a_unit_whose_inputs_were_rewritten_yields_and_leaves_no_file(
    act: Callable[[Table], None], how: dict[str, Any]
) -> None:
    store, clock = in_memory()
    table, writer = opened(store, clock), opened(store, clock)
    result = clustered(table, lambda: act(writer), **how)
    assert (result.units, result.yielded) == (0, 1)
    other_store, other_clock = in_memory()
    act(other := opened(other_store, other_clock))
    assert {key: ts for key, (ts, _) in content(table).items()} == {key: ts for key, (ts, _) in content(other).items()}
    assert data_files(store) == known_files(table)
    assert not [
        key
        for key, _ in store.list(layout.TIMELINE)
        if result.instants
        or key.endswith(("replacecommit.requested", "replacecommit.inflight"))
        and act is not overwrite
    ]
    assert table.maintenance.sweep(0).rolled_back == 0
    table.compact()
    assert clustered(table, **how).yielded == 0


@pytest.mark.parametrize("how", HOWS)
def test_on_copy_on_write_any_write_to_an_input_makes_the_unit_yield(how: dict[str, Any]) -> None:
    store, clock = in_memory("copy_on_write")
    table, writer = opened(store, clock), opened(store, clock)
    result = clustered(table, lambda: writer.upsert(ids(0, 1, 20)), **how)
    assert (result.units, result.yielded) == (0, 1)
    assert data_files(store) == known_files(table)
    assert content(table)["k000"][0] == 20
    assert clustered(table, **how).units == 1


def test_a_write_to_another_partition_does_not_disturb_a_unit() -> None:
    for kind in ("merge_on_read", "copy_on_write"):
        store, clock = in_memory(kind)
        table, writer = opened(store, clock), opened(store, clock)
        result = clustered(table, lambda writer=writer: writer.upsert(ids(0, 50, 1, "q")))
        assert (result.units, result.yielded) == (1, 0)
        assert len(table.scan().to_arrow()) == 250


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_writer_that_meets_a_clustering_rebases_by_itself(kind: str) -> None:
    store, clock = in_memory(kind)
    table, service = opened(store, clock), opened(store, clock)
    context = replace(table.handle.context(), engine=Between(lambda: clustered(service)))
    result = operations.upsert(context, InMemoryBatch(prepare_batch(ids(0, 30, 20), table.handle.config)))
    assert (result.retries, result.updated, result.inserted) == (1, 30, 0)
    assert {ts for key, (ts, _) in content(table).items() if int(key[1:]) < 30} == {20}
    assert len(content(table)) == 200
    assert table.verify().problems == []


@pytest.mark.parametrize("how", HOWS)
def test_a_clustering_killed_at_any_step_leaves_the_rows_and_only_what_a_sweep_takes(how: dict[str, Any]) -> None:
    steps = 0
    for after in ("die", "die after"):
        step = 0
        while True:
            step += 1
            store, clock = in_memory()
            table, writer = opened(store, clock), opened(store, clock)
            writer.upsert(ids(0, 3, 12))
            before = {key: ts for key, (ts, _) in content(table).items()} | {"k100": 20}
            context = replace(
                table.handle.context(), engine=Between(lambda writer=writer: writer.upsert(rows(("k100", "p", 20))))
            )
            at = store.count + step

            def fault(number: int, operation: str, key: str, at: int = at, after: str = after) -> str | None:
                return after if number == at else None

            store.fault = fault
            try:
                cluster_files(context, **how)
                break
            except Died:
                pass
            steps += 1
            alive = opened(MemoryStore(store.data, clock.ms), clock)
            found = {key: ts for key, (ts, _) in content(alive).items()}
            assert found in (before, before | {"k100": 10})  # the writer in between may be the one that died
            clock.leap(2)
            alive.maintenance.sweep(1)
            assert data_files(alive.handle.store) == known_files(alive)
            assert {key: ts for key, (ts, _) in content(alive).items()} == found
            assert alive.verify().problems == []
    assert steps > 30


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_snapshots_and_savepoints_from_before_a_clustering_stay_what_they_were(tmp_path: Path, kind: str) -> None:
    table = on_disk(tmp_path, kind)
    table.upsert(ids(0, 20, 20))
    table.savepoints.create("before")
    cursor, before = table.cursor, content(table)
    clustered(table, by=["ts"])
    assert content(table) == before
    table.upsert(ids(10, 40, 30))
    then = table.scan(as_of=cursor, columns=["id", "ts"]).to_arrow().to_pylist()
    assert {row["id"]: row["ts"] for row in then} == {key: ts for key, (ts, _) in before.items()}
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.restore("before")
    assert {key: ts for key, (ts, _) in content(table).items()} == {key: ts for key, (ts, _) in before.items()}
    assert {key: ts for key, (ts, _) in by_hudi(table.path).items()} == {key: ts for key, (ts, _) in before.items()}
    assert table.verify().problems == []


def test_a_clustering_is_no_commit_to_retention() -> None:
    store, clock = in_memory()
    table = opened(store, clock)
    commits = table.handle.history.head().commits
    clustered(table, by=["ts"])
    assert table.handle.history.head().commits == commits


def test_a_log_conflicts_with_a_rewrite_of_its_group_unless_it_is_brought_along_up_to_its_slot() -> None:
    store, clock = in_memory()
    table = opened(store, clock)
    table.upsert(ids(0, 1, 20))
    slot = table.handle.history.slot(table.cursor.seq)
    (group,) = {file.file_id for file in slot.files}

    def judged(up_to: int | None) -> str:
        mine = WriteSet(rewrites={group}, replaces={group}, carried={} if up_to is None else {group: up_to})
        return explain_conflict(mine, "20990101000000000", slot, lambda slot, which: no_key_hashes())

    assert "was written" in judged(None) and "was written" in judged(slot.seq - 1)
    assert judged(slot.seq) == judged(slot.seq + 1) == ""


def test_a_clustering_that_another_engine_rolled_back_before_its_publication_is_noticed() -> None:
    store, clock = in_memory()
    table = opened(store, clock)
    clustered(table)
    slot = table.handle.history.slot(table.cursor.seq)
    assert slot.operation == CLUSTER and not is_rolled_back_externally(store, slot)
    store.delete(Instant(slot.instant, slot.action, State.INFLIGHT).key)
    store.delete(find_publication_file(slot))
    assert is_rolled_back_externally(store, slot)


def test_a_unit_that_somebody_rolled_back_yields_although_its_own_index_entries_are_gone(tmp_path: Path) -> None:
    """Bringing a log along it read the index entries of its new files, which the rollback had deleted, and called the
    table damaged.
    """
    table, other = on_disk(tmp_path), hoodoo.open(tmp_path / "t")
    before = len(content(table))

    def meanwhile() -> None:
        other.maintenance.sweep(older_than_hours=0)  # takes the unit for dead
        other.upsert(ids(3, 6, 20))

    result = clustered(table, meanwhile)
    assert (result.units, result.yielded) == (0, 1)
    assert len(content(table)) == before
    assert data_files(table.handle.store) == known_files(table)
