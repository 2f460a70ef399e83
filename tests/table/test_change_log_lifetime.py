"""A change log lives and dies with the base file whose rewrite it tells of: cleaned, swept, saved, verified and purged
with it.
"""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import simulation
from change_logs import KINDS, MODES, batch, checkpoint_columns, files_of, history, live_logs, logged, make
from faulty_store import Died, FaultyStore

import hoodoo
from hoodoo.errors import CorruptTable
from hoodoo.format.names import is_change_log_path
from hoodoo.readers.changes.change_log_reader import read_change_log
from hoodoo.table import Table
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.slots import slot
from hoodoo.timeline.views import checkpoint
from hoodoo.writers.files import tasks

# ---------------------------------------------------------------- life and death


@KINDS
def test_a_change_log_is_cleaned_with_its_base_file(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch((1, "a", 1, "x")))
    for n in range(2, 5):
        table.upsert(batch((n, "a", 1, "x")))  # fills the small file up
    assert len(files_of(tmp_path / "t")) == 3
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert files_of(tmp_path / "t") == live_logs(table)
    assert len(live_logs(table)) == 1
    if kind == "merge_on_read":
        table.upsert(batch((1, "a", 2, "y")))
        table.compact()
        table.upsert(batch((1, "a", 3, "z")))
        table.maintenance.clean(retain_hours=0, retain_commits=1)
        assert files_of(tmp_path / "t") == set()
    assert table.verify().problems == []


def test_a_savepoint_keeps_the_change_log_of_what_it_keeps(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    table.savepoints.create("kept")
    kept = files_of(tmp_path / "t")
    table.upsert(batch((1, "a", 3, "z")))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert kept < files_of(tmp_path / "t")
    table.restore("kept")
    assert table.scan().to_arrow()["v"].to_pylist() == ["y"]
    table.savepoints.delete("kept")
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert files_of(tmp_path / "t") == set()  # a restored file group is new
    assert table.verify().problems == []


@KINDS
@pytest.mark.parametrize("what", ["die", "die after"])
def test_a_writer_that_dies_at_any_write_leaves_a_change_log_only_where_it_committed_or_a_sweep_takes_it(
    tmp_path: Path, kind: str, what: str
) -> None:
    table = make(tmp_path / "0", kind)
    table.upsert(batch((1, "a", 1, "x")))
    number, died = 0, True
    while died:
        number, died = number + 1, False
        store = FaultyStore(str(tmp_path / "0"))
        store.fault = lambda count, operation, key, at=number: what if count == at else None
        try:
            Table(store).upsert(batch((number + 1, "a", number + 1, "y")))
        except Died:
            died = True
        healed = hoodoo.open(tmp_path / "0")
        healed.maintenance.sweep(older_than_hours=0)
        assert files_of(tmp_path / "0") == {path for file in logged(healed) for path in file.changes}
        assert healed.verify().problems == []
    assert number > 8


def test_a_task_that_runs_twice_writes_one_change_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    ran: list[tuple[Any, Any]] = []

    def twice(task: tasks.WriteTask) -> tasks.WriteTaskResult:
        ran.append((tasks.run(pickle.loads(pickle.dumps(task))), tasks.run(task)))
        return ran[-1][1]

    monkeypatch.setattr("hoodoo.writers.operations.run", twice)
    table.upsert(batch((1, "a", 2, "y")))
    assert ran[0][0].file == ran[0][1].file
    assert len(files_of(tmp_path / "t")) == 1
    assert table.verify().problems == []


def test_a_write_that_is_given_up_takes_its_change_log_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))

    def fails(task: tasks.WriteTask) -> tasks.WriteTaskResult:
        tasks.run(task)
        raise OSError("after the files")

    monkeypatch.setattr("hoodoo.writers.operations.run", fails)
    with pytest.raises(OSError, match="after the files"):
        table.upsert(batch((1, "a", 2, "y")))
    assert files_of(tmp_path / "t") == set()


def test_verify_and_readers_find_a_change_log_that_is_missing_or_damaged(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    (file,), (path,) = logged(table), files_of(tmp_path / "t")
    data = (tmp_path / "t" / path).read_bytes()
    (tmp_path / "t" / path).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    assert [(one.code, one.file) for one in table.verify().problems] == [("DAMAGED_FILE", path)]
    with pytest.raises(CorruptTable, match="does not match|do not match"):
        read_change_log(table.handle.store, table.handle.config, file)
    (tmp_path / "t" / path).unlink()
    assert [(one.code, one.file) for one in table.verify().problems] == [("MISSING_FILE", path)]
    with pytest.raises(CorruptTable, match="missing"):
        read_change_log(table.handle.store, table.handle.config, file)
    assert table.scan().to_arrow()["v"].to_pylist() == ["y"]


def test_simulated_worlds_with_change_logs_break_nothing_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writers, services, purges, crashes and lost replies in any order, as tests/simulator makes them; here each table
    keeps a change log.
    """
    properties_of, logged_in = hoodie_properties.create_properties, []
    left_over = simulation.left_over

    def looked(oracle: Any, key: str) -> str:
        logged_in.append(key) if is_change_log_path(key) else None
        return left_over(oracle, key)

    monkeypatch.setattr(simulation, "left_over", looked)
    for seed in range(60):
        monkeypatch.setattr(
            hoodie_properties, "create_properties", lambda *given, mode=[*MODES][seed % 3]: properties_of(*given, mode)
        )
        outcome = simulation.simulate(seed)
        assert not outcome.violation, f"seed {seed}: {outcome.violation}"
    assert len(logged_in) > 20


# ---------------------------------------------------------------- what slots and checkpoints say


def test_slots_and_checkpoints_remember_change_logs_and_an_older_hoodoo_is_told(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    one = history(table)[-1]
    data = slot.encode_commit_file(one)
    assert slot.decode_commit_file(data, "s") == one
    assert slot.strict_json(data, "s")["v"] == 3
    view = table.handle.timeline.history.head()
    assert checkpoint.decode(checkpoint.encode(view), "c") == view
    assert "changes" in checkpoint_columns(table)


@pytest.mark.parametrize(
    "changes",
    [
        {"../out.cdc": [1, ""]},
        {"p=a/x.parquet": [1, ""]},
        {"p=b/.f_20260307162604102.log.1_0-0-0.cdc": [1, ""]},
        {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": [-1, ""]},
        {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": ["1", ""]},
        {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": 1},
    ],
)
def test_a_slot_or_checkpoint_that_names_another_file_as_a_change_log_is_damaged(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Who could plant one would have a clean delete, or a reader open, what it names."""
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    one = history(table)[-1]
    planted = dataclasses.replace(one, files=(dataclasses.replace(one.files[0], changes=changes),))
    with pytest.raises(CorruptTable):
        slot.decode_commit_file(slot.encode_commit_file(planted), "s")
    view = table.handle.timeline.history.head()
    group = next(view.groups())
    assert group.base is not None
    group = dataclasses.replace(group, base=group.base._replace(file=planted.files[0]))
    with pytest.raises(CorruptTable):
        checkpoint.decode(checkpoint.encode(dataclasses.replace(view, partitions={"p=a": {group.file_id: group}})), "c")


# ---------------------------------------------------------------- purging


def holding(path: Path, *texts: str) -> set[str]:
    """Files outside of slots and timeline that hold one of `texts`, by their bytes or, for Parquet, their rows."""
    found = set()
    for file in path.rglob("*"):
        if file.is_file() and ".hoodie" not in file.parts and file.name != ".hoodie_partition_metadata":
            data = (
                str(pq.read_table(file, partitioning=None).to_pylist()).encode()
                if file.suffix == ".parquet"
                else file.read_bytes()
            )
            found |= {file.name for text in texts if text.encode() in data}
    return found


@KINDS
@pytest.mark.parametrize("mode", MODES)
def test_a_purge_leaves_no_change_log_that_holds_a_row(tmp_path: Path, kind: str, mode: str) -> None:
    """Neither of rows that are there, nor of one that was deleted before, whose image only a live file's change log
    still has.
    """
    table = make(tmp_path / "t", kind, mode)
    table.upsert(batch(*((n, "a", 1, f"secret{n}") for n in range(70, 80))))
    table.upsert(batch((71, "a", 2, "secret71"), (5, "a", 1, "new")))
    table.upsert(batch((72, "a", 2, "secret72"), (7, "a", 1, "also new")))
    if kind == "merge_on_read":
        table.compact()
    table.delete(batch((71, "a", 0, "")))
    table.upsert(batch((6, "a", 1, "newer")))  # merge-on-read too rewrites its small file here
    assert holding(tmp_path / "t", "secret71", "k71")
    report = table.maintenance.purge(batch((71, "a", 0, ""), (72, "a", 0, "")))
    assert report.files_proved
    assert holding(tmp_path / "t", "secret71", "secret72", "k71", "k72") == set()
    left = {"k5", "k6", "k7", *(f"k{n}" for n in range(70, 80) if n not in (71, 72))}
    assert set(table.scan().to_arrow()["id"].to_pylist()) == left
    assert table.verify().problems == []


def test_a_key_that_begins_like_a_purged_one_is_not_taken_for_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((7, "a", 1, "x"), (70, "a", 1, "x")))
    table.upsert(batch((70, "a", 2, "y")))
    assert table.maintenance.purge(batch((7, "a", 0, ""))).files_proved
    assert table.scan().to_arrow()["id"].to_pylist() == ["k70"]


def test_a_consumer_that_reads_past_the_delete_and_the_rewrite_after_it_is_not_in_the_way(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x"), (2, "a", 1, "x")))
    table.delete(batch((1, "a", 0, "")))
    reader = table.consumer("billing", start=table.cursor)
    with pytest.raises(hoodoo.PurgeBlocked, match="billing"):
        table.maintenance.purge(batch((1, "a", 0, "")))
    reader.commit(table.cursor)
    assert table.maintenance.purge(batch((1, "a", 0, ""))).files_proved


def test_a_purge_that_a_savepoint_blocks_names_the_change_log(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x"), (2, "a", 1, "x")))
    table.delete(batch((1, "a", 0, "")))
    table.maintenance.clean(retain_hours=0, retain_commits=1)  # only the change log holds the row now
    table.savepoints.create("eod")
    with pytest.raises(hoodoo.PurgeBlocked, match="eod") as blocked:
        table.maintenance.purge(batch((1, "a", 0, "")))
    assert any(is_change_log_path(path) for path in blocked.value.details["files"])
