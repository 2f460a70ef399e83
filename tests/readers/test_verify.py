"""verify() finds every planted corruption, says what kind it is and names the file; a sound table has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from figures import record

import hoodoo
from hoodoo.format.log import block as log_block
from hoodoo.index.bloom import entry
from hoodoo.index.key_index import KeyIndex
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.slices import slices
from hoodoo.readers.verify import CODES, TableVerifier
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.hudi.publish import find_publication_file
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.slots.slot import DataFile, Slot, encode_commit_file
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files import log_file, tasks
from hoodoo.writers.files.base_sink import put_base
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.log_file import add_row_positions

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
Plant = Callable[[Table], str]
"""Damages a table; the file that verify() must name."""


def rows(ids: range, city: str, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": [city] * len(ids), "ts": [ts] * len(ids)}, SCHEMA)


def make(path: Path) -> Table:
    options = {"compact_after_logs": None, "clean_every": None, "checkpoint_every": 3}
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", **options)
    table.upsert(rows(range(10), "p", 1))
    table.upsert(rows(range(10, 20), "q", 1))
    table.upsert(rows(range(5), "p", 2))
    table.insert(
        rows(range(100, 6000), "p", 1)
    )  # the base of p grows: the old one is superseded, the new keys are a set in a file
    table.upsert(rows(range(10, 12), "q", 3))
    table.upsert(rows(range(3), "p", 4))
    return table


def group(table: Table, city: str) -> FileGroup:
    return next(table.handle.history.head().groups([f"city={city}"]))


def base(table: Table) -> str:
    found = group(table, "p").base
    assert found
    return found.file.path


def log(table: Table) -> str:
    return group(table, "p").logs[-1].file.path


def file_of(table: Table, key: str) -> Path:
    return Path(table.path, key)


def delete(key_of: Callable[[Table], str]) -> Plant:
    def plant(table: Table) -> str:
        key = key_of(table)
        file_of(table, key).unlink()
        return key

    return plant


def flip(key_of: Callable[[Table], str]) -> Plant:
    def plant(table: Table) -> str:
        key = key_of(table)
        data = bytearray(file_of(table, key).read_bytes())
        data[len(data) // 2] ^= 4
        file_of(table, key).write_bytes(data)
        return key

    return plant


def truncate(key_of: Callable[[Table], str]) -> Plant:
    def plant(table: Table) -> str:
        key = key_of(table)
        file_of(table, key).write_bytes(file_of(table, key).read_bytes()[:-7])
        return key

    return plant


def slot_file(seq: int) -> Callable[[Table], str]:
    return lambda table: layout.slot_key(table.cursor.seq if seq < 0 else seq)


def rewritten(table: Table, seq: int, change: Callable[[Slot], Slot]) -> str:
    """Replace slot `seq` by a valid one that says something else."""
    table.handle.store.put(layout.slot_key(seq), encode_commit_file(change(table.handle.history.slot(seq))))
    return layout.slot_key(seq)


def fork(table: Table) -> str:
    rewritten(table, 4, lambda slot: replace(slot, operation="INSERT"))
    return layout.slot_key(5)  # does not follow any more


def planted_ahead(table: Table) -> str:
    key = layout.slot_key(table.cursor.seq + 3)
    table.handle.store.put(key, encode_commit_file(replace(table.handle.history.slot(4), seq=table.cursor.seq + 3)))
    return key


def of_another_table(table: Table) -> str:
    seq, view = table.cursor.seq + 1, table.handle.history.head()
    table.handle.store.put(
        layout.slot_key(seq),
        encode_commit_file(replace(table.handle.history.slot(seq - 1), seq=seq, prev=view.sha, table="f" * 32)),
    )
    return layout.slot_key(seq)


def swapped(table: Table) -> str:
    other = group(table, "q").base
    assert other
    file_of(table, base(table)).write_bytes(file_of(table, other.file.path).read_bytes())
    return base(table)


def newest_checkpoint(table: Table) -> str:
    return max(key for key, _ in table.handle.store.list(layout.CHECKPOINTS))


def lying_checkpoint(table: Table) -> str:
    key = newest_checkpoint(table)
    view = checkpoint.decode(table.handle.store.get(key), key)
    table.handle.store.put(
        key,
        checkpoint.encode(
            replace(view, partitions={name: groups for name, groups in view.partitions.items() if name != "city=q"})
        ),
    )
    return key


def shortened(table: Table) -> str:
    seq = table.cursor.seq
    key = find_publication_file(table.handle.history.slot(seq))
    file_of(table, layout.slot_key(seq)).unlink()
    return key


def published(table: Table) -> str:
    return find_publication_file(table.handle.history.slot(table.cursor.seq))


def altered_instant(table: Table) -> str:
    newest = table.handle.history.slot(table.cursor.seq - 1)
    table.handle.store.put(published(table), table.handle.store.get(find_publication_file(newest)))
    return published(table)


def index_of(table: Table) -> str:
    found = group(table, "p").base
    assert found
    return found.file.index


def wrong_index(table: Table) -> str:
    table.handle.store.put(index_of(table), entry.encode(np.arange(50, dtype=np.uint64)))
    return index_of(table)


def add(table: Table, slot: Slot) -> None:
    """Take the next slot, and have it published."""
    table.handle.store.put(Instant(slot.instant, slot.action, State.INFLIGHT).key, b"")
    table.handle.store.put(layout.slot_key(slot.seq), encode_commit_file(slot))
    hoodoo.open(table.path)


def replaced_base(table: Table, city: str, change: Callable[[pa.Table], pa.Table]) -> str:
    """A newest slot that brings, under a right digest, a base file whose rows `change` made."""
    view, config = table.handle.history.head(), table.handle.newest_config()
    old = group(table, city)
    stored = slices.read_file_slice(table.handle.store, config, old, config.stored_schema)
    target = FileTarget(old.partition, old.file_id, "20991231235959000")
    file = put_base(table.handle.store, config, table.handle.index, target, change(stored))
    newest = table.handle.history.slot(view.seq)
    slot = replace(
        newest,
        seq=view.seq + 1,
        prev=view.sha,
        instant="20991231235959000",
        completed_at=view.completed_at + 10,
        files=(file,),
        inserted=(),
        deleted=(),
    )
    add(table, slot)
    return file.path


def key_twice(table: Table) -> str:
    replaced_base(table, "q", lambda stored: pa.concat_tables([stored, stored.slice(0, 1)]))
    return "city=q"


def key_in_two_groups(table: Table) -> str:
    replaced_base(table, "q", lambda stored: stored)
    view = table.handle.history.head()
    slot = table.handle.history.slot(view.seq)
    copy = replace(slot.files[0], file_id="00000000-0000-0000-0000-000000000000-0")
    slot = replace(
        slot,
        seq=view.seq + 1,
        prev=view.sha,
        instant="20991231235959500",
        completed_at=view.completed_at + 1000,
        files=(copy,),
    )
    add(table, slot)
    return "city=q"


def wrong_partition(table: Table) -> str:
    return replaced_base(
        table,
        "q",
        lambda stored: stored.set_column(
            stored.schema.get_field_index("city"), "city", pa.array(["elsewhere"] * len(stored))
        ),
    )


def wrong_row_count(table: Table) -> str:
    replaced_base(table, "q", lambda stored: stored)
    seq = table.cursor.seq
    rewritten(table, seq, lambda slot: replace(slot, files=(replace(slot.files[0], rows=3, origin="hudi"),)))
    file_of(table, find_publication_file(table.handle.history.slot(seq))).unlink()
    hoodoo.open(table.path)
    return table.handle.history.slot(seq).files[0].path


def key_set(table: Table) -> str:
    return next(key for key, _ in table.handle.store.list(layout.KEYS))


def superseded(table: Table) -> str:
    return table.handle.history.head().superseded[0].path


def properties(table: Table) -> str:
    values = file_of(table, layout.PROPERTIES).read_text()
    checksum = next(line for line in values.splitlines() if line.startswith("hoodie.table.checksum="))
    file_of(table, layout.PROPERTIES).write_text(values.replace(checksum, "hoodie.table.checksum=1"))
    return layout.PROPERTIES


def check_set_later(table: Table) -> str:
    table.set_checks({"early": "ts < 4"})
    return base(table)


def unreadable_row(table: Table) -> str:
    """A log as a writer with a fault would have written it: its bytes are those in the slot, and no record."""
    real = log_block.encode_records

    def faulty(rows: pa.Table, schema: pa.Schema) -> tuple[np.ndarray, np.ndarray]:
        data, offsets = real(rows, schema)
        data = data.copy()
        data[offsets[0] + 4] = 6  # a branch that its union does not have
        return data, offsets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_block, "encode_records", faulty)
        table.upsert(rows(range(2), "p", 9))
    return log(table)


def with_positions(change: Callable[[np.ndarray], np.ndarray]) -> Plant:
    """A log as a writer with a fault would have written it: its records name rows that `change` made."""

    def plant(table: Table) -> str:
        def faulty(index: KeyIndex, base: DataFile | None, changes: KeyedChanges) -> KeyedChanges:
            found = add_row_positions(index, base, changes)
            assert found.at is not None
            return replace(found, at=change(found.at))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks, "add_row_positions", faulty)
            table.upsert(rows(range(2, 5), "p", 9))
        return log(table)

    return plant


def stale_base_instant(table: Table) -> str:
    """A log that gives rows of an older base the instant of the newest one, which has other rows in their places."""
    table.delete([{"id": 0, "city": "p"}])
    table.compact()
    newest = group(table, "p").base
    assert newest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "add_row_positions", lambda index, base, changes: replace(changes, at=np.array([2, 3])))
        patch.setattr(
            log_file, "_instant_of", lambda base: newest.file.name.rpartition("_")[2].removesuffix(".parquet")
        )
        table.upsert(rows(range(2, 4), "p", 9))
    found = group(table, "p").logs[-1].file
    rewritten(table, table.cursor.seq, lambda slot: replace(slot, files=(replace(found, order="0" * 32),)))
    return found.path


def entry_of_other_rows(table: Table) -> str:
    """An entry whose keys are right and whose rows are not, under the digest that the slot names."""
    found = group(table, "p").base
    assert found
    store = table.handle.store
    mine = entry.IndexEntryReader(store).cells(found.file.index)
    assert mine
    wrong = replace(mine, values=mine.values ^ np.uint64(1))
    store.put(found.file.index, entry.encode_base_file_entry(wrong, "", ""))
    return found.file.index


PLANTED: dict[str, tuple[str, Plant]] = {
    "records over the next rows": ("POSITIONS", with_positions(lambda at: at + 1)),
    "records over rows that are not there": ("POSITIONS", with_positions(lambda at: at + 10**6)),
    "rows of an older base under the newest one's instant": ("POSITIONS", stale_base_instant),
    "an index entry of other rows": ("INDEX", entry_of_other_rows),
    "a missing base file": ("MISSING_FILE", delete(base)),
    "a missing log file": ("MISSING_FILE", delete(log)),
    "a missing file that only an older snapshot needs": ("MISSING_FILE", delete(superseded)),
    "one flipped bit in a base file": ("DAMAGED_FILE", flip(base)),
    "one flipped bit in a log file": ("DAMAGED_FILE", flip(log)),
    "a truncated log file": ("DAMAGED_FILE", truncate(log)),
    "the bytes of another base file": ("DAMAGED_FILE", swapped),
    "a record that no reader takes": ("UNREADABLE", unreadable_row),
    "a missing slot": ("SLOT", delete(slot_file(4))),
    "one flipped bit in a slot": ("SLOT", flip(slot_file(5))),
    "a truncated newest slot": ("SLOT", truncate(slot_file(-1))),
    "a slot planted far ahead": ("SLOT", planted_ahead),
    "a forked sequence": ("CHAIN", fork),
    "a slot of another table": ("CHAIN", of_another_table),
    "a lost newest slot": ("SHORTENED", shortened),
    "one flipped bit in a checkpoint": ("CHECKPOINT", flip(newest_checkpoint)),
    "a checkpoint that leaves a partition out": ("CHECKPOINT", lying_checkpoint),
    "an unpublished slot": ("UNPUBLISHED", delete(published)),
    "a published instant that says something else": ("PUBLISHED", altered_instant),
    "a missing index entry": ("INDEX", delete(index_of)),
    "one flipped bit in an index entry": ("INDEX", flip(index_of)),
    "an index entry of other keys": ("INDEX", wrong_index),
    "a key twice in one file": ("DUPLICATE_KEY", key_twice),
    "a key in two file groups": ("DUPLICATE_KEY", key_in_two_groups),
    "rows of another partition": ("WRONG_PARTITION", wrong_partition),
    "a wrong number of rows": ("ROWS", wrong_row_count),
    "a missing set of keys": ("KEY_SET", delete(key_set)),
    "one flipped bit in a set of keys": ("KEY_SET", flip(key_set)),
    "rows that were there before a check": ("CHECK", check_set_later),
    "a wrong checksum of the properties": ("PROPERTIES", properties),
}


def test_a_sound_table_has_no_problem(tmp_path: Path) -> None:
    report = make(tmp_path / "t").verify()
    assert report.problems == [] and report.ok
    assert (report.rows, report.slots, report.files) == (5920, 7, 4)


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_corruption_is_found_by_name(tmp_path: Path, what: str) -> None:
    code, plant = PLANTED[what]
    table = make(tmp_path / "t")
    named = plant(table)
    found = table.verify().problems
    assert (code, named) in {(problem.code, problem.file) for problem in found}
    assert {problem.code for problem in found} <= set(CODES)
    assert all(problem.text for problem in found)


def test_every_kind_of_problem_is_planted_once_at_least() -> None:
    record("O2", planted=len(PLANTED), kinds=len(CODES), found=len(PLANTED))
    assert {code for code, _ in PLANTED.values()} == set(CODES)


def test_a_file_that_only_a_savepoint_needs_is_looked_at_too(tmp_path: Path) -> None:
    """It was cut to ten bytes, and the table called sound; restoring the savepoint then failed."""
    table = make(tmp_path / "t")
    table.savepoints.create("kept")
    table.compact()
    old = next(one.path for one in table.handle.history.head().superseded if one.path.endswith(".parquet"))
    (Path(table.path) / old).write_bytes(b"PAR1 short")
    assert ("DAMAGED_FILE", old) in {(found.code, found.file) for found in table.verify().problems}


def test_what_is_said_of_a_damaged_published_instant_heals_it(tmp_path: Path) -> None:
    """It was to be restored from a backup, for ever; but the slot knows what it said."""
    table = make(tmp_path / "t")
    seq = table.cursor.seq
    file = file_of(table, find_publication_file(table.handle.history.slot(seq)))
    file.write_bytes(file.read_bytes()[:20])
    [problem] = table.verify().problems
    assert problem.code == "PUBLISHED" and "Delete it" in problem.text
    file.unlink()
    assert hoodoo.open(table.path).verify().ok


def test_a_table_that_changes_during_the_check_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report said that slots were lost, or ended in a FileNotFoundError of a checkpoint."""
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint", key="id", checkpoint_every=3, clean_every=2)
    table.set_options(retain_hours=0.00001, retain_commits=1)

    def work(times: int) -> None:
        other = hoodoo.open(tmp_path / "t")
        for n in range(times):
            other.upsert([{"id": n % 9, "n": n}])
            if n % 3 == 0:
                other.compact(logs_min=1), other.maintenance.clean()

    work(20)
    for step in (
        "_check_checkpoint",
        "_report_slots_after_gap",
        "_report_instants_without_slot",
        "_check_superseded_files",
        "_check_partition",
    ):
        before, turns = getattr(TableVerifier, step), [2]

        def meanwhile(self: TableVerifier, *given: Any, before: Any = before, turns: list[int] = turns) -> Any:
            if turns[0]:
                turns[0] -= 1
                work(10)
            return before(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(TableVerifier, step, meanwhile)
            report = table.verify()
        assert report.ok and not turns[0], (step, report)


def test_damage_is_reported_although_the_table_changes_during_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint", key="id")
    table.insert([{"id": 1, "n": 1}])
    [file] = tmp_path.glob("t/*.parquet")
    file.write_bytes(file.read_bytes()[:-8] + b"damaged!")
    before = TableVerifier._check_superseded_files

    def meanwhile(self: TableVerifier, view: Any) -> None:
        hoodoo.open(tmp_path / "t").set_options(clean_every=view.seq + 1)
        before(self, view)

    monkeypatch.setattr(TableVerifier, "_check_superseded_files", meanwhile)
    assert {one.code for one in table.verify().problems} == {"DAMAGED_FILE"}
