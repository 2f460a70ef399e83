"""Equal hashes are not equal keys. The index knows hashes, and a key may share its hash with another, in one file
group, in several, or in one batch: inserts were refused or dropped, rows doubled, deletes without effect.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from colliding_keys import few_hashes, pair
from model_changes import net, step
from table_machine import SCHEMA as MACHINE_SCHEMA
from table_machine import Machine

import hoodoo
from hoodoo.writers.routing import locate
from hoodoo.writers.staging import staged

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
A, B = pair(random.Random(5))
SEEDS = int(os.environ.get("HOODOO_MODEL_SEEDS", "1"))
STEPS = 25


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"id": [key for key, _ in pairs], "v": [value for _, value in pairs]}, SCHEMA)


def found(table: hoodoo.Table) -> dict[str, int]:
    listed = table.scan().to_arrow().to_pylist()
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row["v"] for row in listed}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", type=request.param)


@pytest.fixture
def apart(table: hoodoo.Table) -> hoodoo.Table:
    """Both keys, in two file groups."""
    table.insert(rows((A, 1)), bulk=True)
    table.insert(rows((B, 2)), bulk=True)
    assert len(list(table.handle.history.head().groups())) == 2
    return table


def test_a_new_key_is_inserted_although_another_one_has_its_hash(table: hoodoo.Table) -> None:
    """insert(B) was refused with KeyExists; with existing='keep' it vanished and counted as nothing."""
    table.insert(rows((A, 1)))
    assert table.insert(rows((B, 2))).inserted == 1
    with pytest.raises(hoodoo.KeyExists) as refused:
        table.insert(rows((A, 3), (B, 4)))
    assert sorted(refused.value.details["keys"]) == sorted([A, B])
    assert table.insert(rows((A, 3), (B, 4), ("c", 5)), existing="keep").inserted == 1
    assert found(table) == {A: 1, B: 2, "c": 5}


def test_changes_of_a_key_go_to_the_file_group_that_has_it(apart: hoodoo.Table) -> None:
    """The last file group with the hash got every change: the other key was doubled, and its delete did nothing."""
    for number, key in enumerate((A, B, A)):
        result = apart.upsert(rows((key, 10 + number)))
        assert (result.inserted, result.updated) == (0, 1)
    assert found(apart) == {A: 12, B: 11}
    apart.compact()
    assert apart.verify().problems == []  # which held two keys with one hash for one key twice
    apart.delete(rows((A, 0)))
    assert found(apart) == {B: 11}
    apart.delete(rows((B, 0)))
    assert found(apart) == {}


def test_a_merge_takes_no_key_for_another_one_with_its_hash(table: hoodoo.Table) -> None:
    """It goes by hashes first, and begins anew where a file group turns out to lack the key."""
    table.insert(rows((A, 1)))
    merge = table.merge(rows((B, 2))).when_matched_update({"v": "100"}).when_not_matched_insert({"v": "source.v"})
    done = merge.execute()
    assert (done.inserted, done.updated, done.retries, found(table)) == (1, 0, 0, {A: 1, B: 2})
    done = merge.execute()
    assert (done.inserted, done.updated, found(table)) == (0, 1, {A: 1, B: 100})
    assert table.merge(rows((A, 1))).when_not_matched_by_source_delete().execute().deleted == 1
    table.merge(rows((B, 3))).when_not_matched_insert_all().execute()
    assert found(table) == {A: 1, B: 3}


@pytest.mark.parametrize("new_keys", ["insert", "ignore", "fail"])
def test_an_upsert_of_columns_takes_no_key_for_another_one_with_its_hash(table: hoodoo.Table, new_keys: str) -> None:
    table.insert(rows((A, 1)))
    if new_keys == "fail":
        with pytest.raises(hoodoo.KeyNotFound):
            table.upsert(rows((B, 2)), columns=["v"], new_keys=new_keys)
    else:
        table.upsert(rows((B, 2)), columns=["v"], new_keys=new_keys)
    assert found(table) == {A: 1, **({B: 2} if new_keys == "insert" else {})}


def test_a_writer_that_may_not_retry_plans_anew_where_keys_share_their_hash(table: hoodoo.Table) -> None:
    """It raised CommitConflict at every call: the plan that compares keys was counted as a retry."""
    table.insert(rows((A, 1)))
    table.set_options(max_retries=0)
    table.merge(rows((B, 2))).when_matched_update({"v": "9"}).when_not_matched_insert({"v": "source.v"}).execute()
    assert found(table) == {A: 1, B: 2}
    table.delete(rows((B, 0)))
    table.upsert(rows((B, 3)), columns=["v"])
    assert found(table) == {A: 1, B: 3}


def test_both_keys_are_found_by_get(apart: hoodoo.Table) -> None:
    for asked in ([A, B], [A], [B]):
        assert apart.get(asked)["id"].to_pylist() == asked


def test_a_batch_that_holds_both_keys_puts_the_new_one_into_a_base(tmp_path: Path) -> None:
    """In a log of the other's file group no index of Hudi would find it, and its next upsert there would double it."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="merge_on_read", compact_after_logs=None)
    table.insert(rows((A, 1)))
    result = table.upsert(rows((A, 2), (B, 3)))
    assert (result.inserted, result.updated) == (1, 1)
    in_bases = [group.base.file.rows for group in table.handle.history.head().groups() if group.base]
    assert sum(in_bases) == 2 and found(table) == {A: 2, B: 3}


def test_a_key_that_got_into_the_log_of_another_is_found_there_and_goes_to_the_base_next(tmp_path: Path) -> None:
    """An append whose hash has one match costs no read; where a second match makes it doubtful, the log is asked."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="merge_on_read", compact_after_logs=None)
    table.insert(rows((A, 1)), bulk=True)
    table.upsert(rows((B, 2)))  # one match: a log of the group of A
    with pytest.raises(hoodoo.KeyExists):
        table.insert(rows((B, 3)))
    assert found(table) == {A: 1, B: 2}
    table.insert(rows((B, 3)), existing="keep")
    table.upsert(rows((A, 4), (B, 5)))
    assert found(table) == {A: 4, B: 5}
    (group,) = table.handle.history.head().groups()
    assert group.base and group.base.file.rows == 2 and not group.logs


def test_an_append_whose_hash_has_one_match_reads_no_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="merge_on_read", compact_after_logs=None)
    table.insert(rows((A, 1), ("c", 1)), bulk=True)
    monkeypatch.setattr(locate.slices, "read_rows_of_keys", None)  # not even called
    table.upsert(rows((A, 2), ("c", 2), ("d", 1)))
    assert found(table) == {A: 2, "c": 2, "d": 1}


def test_a_purge_of_one_key_leaves_the_other_and_is_proved(apart: hoodoo.Table) -> None:
    report = apart.maintenance.purge(rows((A, 0)), older_than_hours=0)
    assert report.files_proved and report.rows_deleted == 1
    assert found(apart) == {B: 2}
    again = apart.maintenance.purge(
        rows((A, 0)), older_than_hours=0
    )  # only B has the hash now: nothing is written for A
    assert again.files_proved and (again.rows_deleted, again.instants) == (0, ())
    assert found(apart) == {B: 2}


def test_an_insert_conflicts_with_an_append_that_took_its_key_for_another(tmp_path: Path) -> None:
    """One writer appends B to the log of A's file group; one that looked before inserts B: one of them is rebased."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="merge_on_read")
    table.insert(rows((A, 1)), bulk=True)
    for first, second in (("upsert", "insert"), ("insert", "upsert"), ("insert", "delete")):
        slow, fast = hoodoo.open(tmp_path / "t"), hoodoo.open(tmp_path / "t")
        begin = slow.handle.timeline.begin

        def begun(*arguments: Any, fast: Any = fast, first: str = first, begin: Any = begin, slow: Any = slow) -> Any:
            attempt = begin(*arguments)
            slow.handle.timeline.begin = begin
            getattr(fast, first)(rows((B, 2)))
            return attempt

        slow.handle.timeline.begin = begun
        result = (
            slow.insert(rows((B, 3)), existing="keep") if second == "insert" else getattr(slow, second)(rows((B, 3)))
        )
        assert result.retries == 1
        assert found(table) == {A: 1} | ({B: 2} if second == "insert" else {B: 3} if second == "upsert" else {})
        table.delete(rows((B, 0)))


@pytest.mark.parametrize(
    ("kind", "order", "partition"),
    [
        ("merge_on_read", "ts", ("city",)),
        ("merge_on_read", None, ()),
        ("copy_on_write", "ts", ()),
        ("copy_on_write", None, ("city",)),
        pytest.param("merge_on_read", "ts", (), marks=pytest.mark.deep),
        pytest.param("merge_on_read", None, ("city",), marks=pytest.mark.deep),
        pytest.param("copy_on_write", "ts", ("city",), marks=pytest.mark.deep),
        pytest.param("copy_on_write", None, (), marks=pytest.mark.deep),
    ],
)
def test_any_history_of_keys_with_few_hashes_is_that_of_a_dict(
    tmp_path: Path, kind: str, partition: tuple[str, ...], order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the hash is, it has five values here: all operations, compaction, clustering, gets, changes, purge."""
    few_hashes(monkeypatch, 5)
    for seed in range(SEEDS):
        machine = Machine(tmp_path / str(seed), kind, ("a", "b"), partition, order, seed)
        machine.hashes_tell = False
        for number in range(STEPS):
            machine.step()
            machine.check()
            if number % 4 == 0:
                check_gets(machine)
                check_changes(machine)
                machine.check_with_hudi()
            if number % 9 == 8:
                purge(machine)
        assert machine.table.verify().problems == []


def identities(machine: Machine, count: int) -> list[dict[str, Any]]:
    named = list(dict.fromkeys((*machine.model.key, *machine.model.partition_by)))
    return [{name: row[name] for name in named} for row in (machine.row() for _ in range(count))]


def check_gets(machine: Machine) -> None:
    asked = identities(machine, 4)
    names = {machine.model.identity(key) for key in asked}
    want = [row for identity, (row, _) in machine.model.rows.items() if identity in names]
    assert machine.found_in(machine.table.get(asked)) == sorted(
        repr({name: row[name] for name in MACHINE_SCHEMA.names}) for row in want
    )


def check_changes(machine: Machine) -> None:
    until = machine.last
    since = machine.rng.randint(max(1, machine.table.handle.history.head().min_readable), until)
    table, snapshots = machine.table, machine.model.snapshots
    ends = [hoodoo.Cursor(table.cursor.table, seq) for seq in (since, until)]
    assert shown(table.changes(*ends)) == listed(net(snapshots[since], snapshots[until]))
    every = [one for seq in range(since, until) for one in step(snapshots[seq], snapshots[seq + 1])]
    assert shown(table.changes(*ends, versions="all")) == listed(every)


def listed(changes: list[tuple[Any, Any]]) -> list[str]:
    def image(row: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: row[name] for name in MACHINE_SCHEMA.names}

    return sorted(repr((op, image(before), image(after))) for _, (op, before, after) in changes)


def shown(changes: Any) -> list[str]:
    return sorted(repr((row["op"], row["before"], row["after"])) for row in changes.to_arrow().to_pylist())


def purge(machine: Machine) -> None:
    some, before = identities(machine, 2), dict(machine.model.rows)
    seq = machine.table.cursor.seq
    report = machine.table.maintenance.purge(some, older_than_hours=0)
    machine.model.delete(some)
    assert report.files_proved and report.rows_deleted == len(before) - len(machine.model.rows)
    for slot in range(seq + 1, machine.table.cursor.seq + 1):
        machine.model.snapshots[slot] = dict(machine.model.rows)
    machine.last = machine.table.cursor.seq
    machine.check()


def test_a_base_of_another_engine_may_hold_two_keys_with_one_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adoption refused such a table: it "holds a record key twice"."""
    few_hashes(monkeypatch, 1)
    hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="copy_on_write").upsert(rows((A, 1), (B, 2), ("c", 3)))
    foreign = tmp_path / "t" / ".hoodie"
    for path in sorted((foreign / ".hoodoo").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (foreign / ".hoodoo").rmdir()
    table = hoodoo.open(tmp_path / "t")
    table.upsert(rows((B, 5), ("d", 4)))
    assert found(table) == {A: 1, B: 5, "c": 3, "d": 4}


def test_staged_rows_from_spark_are_told_apart_by_their_keys(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real colliding keys, for Spark's tasks hash in processes of their own."""
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)

    def send(*pairs: tuple[str, int]) -> Any:
        return spark.createDataFrame(rows(*pairs).to_pandas())

    for kind in KINDS:
        table = hoodoo.create(tmp_path / kind, SCHEMA, key="id", type=kind)
        table.insert(send((A, 1)), bulk=True)
        assert table.insert(send((A, 9), (B, 2)), existing="keep").inserted == 1
        table.upsert(send((A, 3), ("c", 1)))
        table.upsert(send((B, 4)))
        assert found(table) == {A: 3, B: 4, "c": 1}
        with pytest.raises(hoodoo.KeyExists):
            table.insert(send((A, 9)))
        table.delete(send((A, 0)))
        assert found(table) == {B: 4, "c": 1}
        assert table.verify().problems == []


def test_the_hashes_of_the_pair_are_equal() -> None:
    from hoodoo.format.hashing import hash64

    assert A != B and len(np.unique(hash64(pa.array([A, B])))) == 1
