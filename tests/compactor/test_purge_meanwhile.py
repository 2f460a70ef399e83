"""What other writers and workers do while a purge runs, and what dead ones left, is purged as well or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import FaultyStore
from purged import KINDS, batch, files, impatient, key, keys_of, make, where_named
from tables import later

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning import final_key_search
from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.compactor.compaction import plans
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.layout import INDEX, STAGING, TIMELINE
from hoodoo.writers import operations
from hoodoo.writers.staging.staged_files import PARTITION


def test_files_of_a_dead_writer_are_deleted_if_old_and_named_if_young(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    [live] = files(table, "x")
    attempt = table.handle.context().timeline.begin("commit")
    attempt.start()
    orphan = live.with_name(f"{live.name.partition('_')[0]}_0-0-0_{attempt.instant}.parquet")
    orphan.write_bytes(live.read_bytes())
    report = impatient(table).maintenance.purge(keys_of((1, "x")))
    begun = Instant(attempt.instant, "commit", State.INFLIGHT).key
    assert report.pending == (begun, f"city=x/{orphan.name}") and not report.files_proved
    ahead = later(table, 30)
    report = ahead.maintenance.purge(keys_of((1, "x")))
    assert report.files_proved and not orphan.exists() and report.files_deleted == 1
    assert where_named(table, 1, "x") == []
    with pytest.raises(hoodoo.AlreadyCommitted):
        table.maintenance.rollback(attempt.instant)  # the sweep ended it


def test_a_write_whose_file_is_not_there_yet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had read the file that the purge deletes, and put the row into its own once the purge had looked: what was
    called proved was not so. Once it has ended nothing of it is left.
    """
    monkeypatch.setattr(final_key_search, "_PAUSES_S", (0,))  # the write goes on only after the purge
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    store = FaultyStore(table.path)
    writer, reports, named = hoodoo.Table(store), list[PurgeReport](), list[list[str]]()

    def purged_before_the_file_is_there(number: int, operation: str, path: str) -> None:
        if path.startswith("city=x/"):
            if operation == "put_if_absent" and not reports:
                reports.append(table.maintenance.purge(keys_of((1, "x"))))
            elif operation == "delete":
                named.append(where_named(table, 1, "x"))

    store.fault = purged_before_the_file_is_there
    done = writer.upsert(batch([2], "x", 1))
    [pending] = reports[0].pending
    assert pending.startswith(TIMELINE) and not reports[0].files_proved
    assert len(named[0]) == 1 and done.retries == 1  # the file came, and went as the write began again
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved and where_named(table, 1, "x") == []


def test_a_purge_waits_for_the_writes_that_are_under_way(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    attempt = table.handle.context().timeline.begin("commit")
    pauses: list[float] = []

    def ends_meanwhile(pause_seconds: float) -> None:
        pauses.append(pause_seconds)
        if len(pauses) == 2:
            attempt.abandon()

    patient = hoodoo.Table(table.handle.store, Environment(sleep=ends_meanwhile))
    assert patient.maintenance.purge(keys_of((1, "x"))).files_proved
    assert len(pauses) == 2


def test_an_index_entry_that_a_dead_writer_left_is_deleted_if_old_and_named_if_young(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1, 2], "x", 0))
    [live] = Path(table.path, INDEX).glob("*")
    attempt = table.handle.context().timeline.begin("commit")
    attempt.start()
    left = live.with_name(f"{live.name.rpartition('_')[0]}_{attempt.instant}")
    left.write_bytes(live.read_bytes())  # it is written before its file
    report = impatient(table).maintenance.purge(keys_of((1, "x")))
    assert (report.pending[:1], report.holders) == ((f"{INDEX}{left.name}",), ())
    assert later(table, 30).maintenance.purge(keys_of((1, "x"))).files_proved and not left.exists()


def test_staged_rows_of_another_writer_are_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(batch([1], "x", 0))
    staged = Path(table.path, STAGING, "0" * 32, "part")
    staged.parent.mkdir(parents=True)
    with pa.ipc.new_file(staged, pa.schema([("_hoodie_record_key", pa.string())])) as writer:
        writer.write_table(pa.table({"_hoodie_record_key": [key(1)]}))
    report = table.maintenance.purge(keys_of((1, "x")))
    assert [path.rpartition("/")[2] for path in report.pending] == ["part"] and not report.files_proved


def test_a_key_that_a_writer_brings_back_meanwhile_is_purged_as_well_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    writer = hoodoo.open(table.path)
    begin, again = type(table.handle.timeline).begin, [3]

    def brought_back(self: Any, action: str, *given: Any) -> Any:
        if action == "clean" and again[0]:
            again[0] -= 1
            writer.upsert(batch([1], "x", 9))
        return begin(self, action, *given)

    monkeypatch.setattr(type(table.handle.timeline), "begin", brought_back)
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved
    assert where_named(table, 1, "x") == []
    again[0] = 100
    writer.upsert(batch([1], "x", 10))
    report = table.maintenance.purge(keys_of((1, "x")))
    assert report.holders and not report.files_proved


def test_a_worker_that_still_runs_a_plan_which_somebody_else_completed_is_named(tmp_path: Path) -> None:
    """It may write the plan's files once more, with the key, after the proof."""
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1, 2], "x", 0))
    table.upsert(batch([2], "x", 1))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    hint = heartbeats.running_plan_hint_path(plan.instant)
    table.handle.store.put(hint, b"a worker")
    report = table.maintenance.purge(keys_of((1, "x")))
    assert (report.holders, report.pending) == ((), (hint,)) and not report.files_proved
    table.handle.store.delete(hint)
    assert table.maintenance.purge(keys_of((1, "x"))).files_proved


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_a_purge_found_absent_and_a_writer_brings_meanwhile_is_deleted_by_the_same_commit(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first delete of a purge named only the rows it found: an insert of another of its keys in between was not
    looked at, and stood after it.
    """
    table = make(tmp_path / "t", kind)
    table.upsert(batch([1, 2], "x", 1))
    write = operations.run

    def meanwhile(task: Any) -> Any:
        monkeypatch.undo()
        hoodoo.open(table.path).insert(batch([9], "x", 1), bulk=True)  # into a file group of its own
        return write(task)

    monkeypatch.setattr(operations, "run", meanwhile)
    assert table.maintenance.purge(keys_of((1, "x"), (9, "x"))).files_proved
    slots = list(table.handle.history.slots(0, table.cursor.seq))
    deletes = [slot.seq for slot in slots if slot.operation == "DELETE"]
    insert = next(slot.seq for slot in slots if slot.operation == "BULK_INSERT")
    assert deletes == [insert + 1], "one delete, after the insert, of both keys"
    assert table.scan(columns=["user"]).to_arrow()["user"].to_pylist() == [key(2)]


def test_an_old_index_entry_of_another_partition_is_no_holder(tmp_path: Path) -> None:
    """The clean of a purge takes superseded files of all partitions with it; their entries name keys of
    theirs, not those that were purged.
    """
    table = make(tmp_path / "t", "copy_on_write")
    table.upsert(pa.concat_tables([batch([1], "x", 0), batch([1], "y", 0)]))
    table.upsert(batch([1], "y", 1))
    assert table.maintenance.purge(keys_of((1, "x")), older_than_hours=0).files_proved


def test_staged_rows_of_another_partition_are_not_pending(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    table.upsert(batch([1], "x", 0))
    staged = batch([1], "y", 1).append_column("_hoodie_record_key", pa.array([key(1)]))
    for named, pending in ((True, 0), (False, 1)):
        rows = staged.append_column(PARTITION, pa.array(["city=y"])) if named else staged
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        table.handle.store.put(STAGING + "elsewhere/rows", sink.getvalue())
        assert len(table.maintenance.purge(keys_of((1, "x"))).pending) == pending
