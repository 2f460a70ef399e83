"""What the simulator found in hoodoo, each as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_store import FaultyStore
from stories import SCHEMA, archived_up_to_the_last_slot, ids, rows

import hoodoo
from hoodoo.table import Table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import TIMELINE


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", compact_after_logs=None, clean_every=None
    )


def before_its_slot(table: Table, other: Callable[[], Any]) -> Table:
    """Another handle of the table: `other` happens just before it takes its first slot."""
    store = FaultyStore(table.path)
    done: list[bool] = []

    def fault(number: int, operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key and not done:
            done.append(True)
            other()

    mine = Table(store)
    store.fault = fault
    return mine


def test_a_delete_under_a_transaction_that_finds_nothing_takes_a_key_that_was_inserted_meanwhile(table: Table) -> None:
    mine = before_its_slot(table, lambda: table.upsert(rows(("a", "p", 1))))
    assert mine.delete(rows(("a", "p", 0)), transaction=("app", 1)).retries == 1
    assert ids(table) == []


def test_a_drop_under_a_transaction_that_finds_no_partition_takes_one_that_was_made_meanwhile(table: Table) -> None:
    mine = before_its_slot(table, lambda: table.upsert(rows(("a", "p", 1))))
    assert mine.delete_partitions(["p"], transaction=("app", 1)).retries == 1
    assert ids(table) == []


@pytest.mark.parametrize("take", ["delete", "drop"])
def test_an_insert_that_keeps_a_key_inserts_it_if_it_was_taken_away_meanwhile(table: Table, take: str) -> None:
    table.upsert(rows(("a", "p", 1)))
    mine = before_its_slot(
        table, lambda: table.delete(rows(("a", "p", 0))) if take == "delete" else table.delete_partitions(["p"])
    )
    assert mine.insert(rows(("a", "p", 2), ("b", "q", 2)), existing="keep").inserted == 2
    assert ids(table) == ["a", "b"]


def pending_write(table: Table) -> str:
    """A writer that died with its data files written and no slot."""
    store = FaultyStore(table.path)
    mine = Table(store)
    store.fault = lambda number, operation, key: "die" if operation == "put_if_absent" and "/commits/" in key else None
    with pytest.raises(BaseException):  # noqa: B017 - the process ends here
        mine.upsert(rows(("dead", "p", 1)))
    return table.inspect.timeline()[-1].instant


def test_a_dead_write_can_be_rolled_back_after_a_clean_took_the_key_sets_of_slots_that_came_since(table: Table) -> None:
    instant = pending_write(table)
    for number in range(3):
        table.insert_overwrite(rows(("a", "p", number)))
    assert table.maintenance.clean(retain_hours=0, retain_commits=1).files == 2
    Table(FaultyStore(table.path)).maintenance.rollback(instant)
    assert ids(table) == ["a"]


def test_a_sweep_deletes_what_a_rolled_back_writer_put_when_its_request_came_late(table: Table) -> None:
    instant = pending_write(table)
    table.maintenance.rollback(instant)
    late = f"{TIMELINE}{instant}.deltacommit.inflight"
    table.handle.store.put(late, b"")
    table.maintenance.sweep(older_than_hours=0)
    assert not table.handle.store.exists(late)


def test_a_rollback_by_a_slow_clock_is_found_by_whoever_rolls_back_the_same_instant(table: Table) -> None:
    fast = Environment(now_ms=lambda: 4_000_000_000_000)
    store = FaultyStore(table.path)
    mine = Table(store, fast)
    store.fault = lambda number, operation, key: "die" if operation == "put_if_absent" and "/commits/" in key else None
    with pytest.raises(BaseException):  # noqa: B017 - the process ends here
        mine.upsert(rows(("dead", "p", 1)))
    instant = table.inspect.timeline()[-1].instant
    table.maintenance.rollback(instant)
    with pytest.raises(hoodoo.AlreadyCommitted, match="already rolled back"):
        Table(FaultyStore(table.path)).maintenance.rollback(instant)


def test_a_base_file_that_a_clean_takes_while_it_is_rewritten_costs_a_retry(table: Table) -> None:
    """Its rows are read first, and then its footer, whose filter has room for one key more."""
    table.upsert(rows(*((key, "p", 1) for key in "adefghij")))
    store = FaultyStore(table.path)
    mine = Table(store)
    reads: list[str] = []

    def cleaned_between_two_reads(number: int, operation: str, key: str) -> None:
        if key.endswith(".parquet"):
            reads.append(key)
            if len(reads) == 2:
                table.insert_overwrite(rows(("b", "p", 1)))
                table.maintenance.clean(retain_hours=0, retain_commits=1)

    inside, opened = store._around, store.open_input
    store.open_input = lambda key: inside("open_input", key, lambda: opened(key))  # type: ignore[method-assign]
    store.counted, store.fault = ("open_input",), cleaned_between_two_reads
    assert mine.upsert(rows(("c", "p", 1))).retries == 1
    assert reads[0] == reads[1]
    assert ids(table) == ["b", "c"]


def test_a_restore_whose_lease_cannot_be_given_back_is_done_all_the_same(table: Table) -> None:
    first = table.upsert(rows(("a", "p", 1)))
    table.upsert(rows(("b", "p", 1)))
    store = FaultyStore(table.path)
    mine = Table(store)
    store.fault = lambda number, operation, key: "lost" if operation == "delete" and "/readers/" in key else None
    assert mine.restore(first.cursor).instant
    assert ids(table) == ["a"]


def test_what_a_clean_deletes_of_checkpoints_leaves_archived_slots_their_own(tmp_path: Path) -> None:
    """A clean keeps the newest checkpoint that readers need; slots between the archived ones and that one had nothing
    to start from.
    """
    hours = iter(range(1_000_000))
    clock = Environment(now_ms=lambda: 3_000_000_000_000 + next(hours) * 3_600_000)
    hoodoo.create(
        tmp_path / "t",
        SCHEMA,
        key="id",
        type="copy_on_write",
        retain_hours=0,
        retain_commits=1,
        clean_every=None,
        checkpoint_every=1,
    )
    table = Table(FaultyStore(str(tmp_path / "t")), clock)
    for number in range(9):
        table.upsert(rows(("a", "p", number)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.maintenance.archive(older_than_hours=0, keep_instants=1_000_000).slots > 0
    for number in range(3):
        table.upsert(rows(("a", "p", number)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.verify().problems == []
    again = Table(FaultyStore(table.path), clock)
    again.maintenance.archive(older_than_hours=0, keep_instants=1_000_000)
    assert ids(again) == ["a"]


def test_a_sweep_ends_a_dead_write_whose_claim_was_archived(tmp_path: Path) -> None:
    table, _, dead = archived_up_to_the_last_slot(tmp_path)
    table.maintenance.sweep(older_than_hours=0)
    assert [key for key, _ in table.handle.store.list("") if dead in key] == []
    assert table.verify().problems == []


def test_a_readable_snapshot_is_found_although_slots_since_a_known_view_were_archived(tmp_path: Path) -> None:
    table, _, _ = archived_up_to_the_last_slot(tmp_path)
    old = table.handle.history.state(table.handle.history.oldest_slot() - 1)
    reader = Table(FaultyStore(table.path))
    reader.handle.history._views.clear()
    reader.handle.history._views[1] = type(old)(seq=1, sha="before the archived slots", table=old.table)
    reader.handle.history._head = None
    seq = reader.handle.history.head().seq
    assert reader.handle.history.state(seq - 1).seq == seq - 1
