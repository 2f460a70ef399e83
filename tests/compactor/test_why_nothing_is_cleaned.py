"""A clean that deletes nothing says what keeps the files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    """Three commits, each of which rewrites the one file."""
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", type="copy_on_write")
    for number in range(3):
        made.upsert([{"id": 1, "v": number}])
    return made


def test_a_table_of_which_no_file_was_replaced_says_so(tmp_path: Path) -> None:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.upsert([{"id": 1, "v": 1}])
    assert made.maintenance.clean(retain_hours=0, retain_commits=0).why.startswith("no file was replaced")


def test_who_gives_up_hours_is_told_of_the_commits_that_stay(table: hoodoo.Table) -> None:
    """`clean(retain_hours=0)` deleted nothing and did not say why."""
    done = table.maintenance.clean(retain_hours=0)
    assert (done.files, done.why) == (
        0,
        "retain_commits=10 keeps the snapshots of the newest 10 commits, however old. Files that were replaced: 2",
    )
    assert "retain_commits=10" in repr(done)
    assert table.maintenance.clean(retain_commits=1).why.startswith("retain_hours=168 keeps")
    both = table.maintenance.clean().why
    assert "retain_hours=168" in both and "retain_commits=10" in both
    done = table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert (done.files, done.why) == (2, "")
    assert table.maintenance.clean(retain_hours=0, retain_commits=1).why.startswith("no file was replaced")


def test_what_holds_a_snapshot_is_named(table: hoodoo.Table) -> None:
    table.savepoints.create("start", as_of=2)
    with table.pin(as_of=3):
        why = table.maintenance.clean(retain_hours=0, retain_commits=1).why
        assert "savepoint 'start' needs them" in why and "a pin holds slot 3" in why
    assert table.maintenance.clean(retain_hours=0, retain_commits=1).files == 1
    assert "savepoint 'start'" in table.maintenance.clean(retain_hours=0, retain_commits=1).why


def test_a_consumer_that_is_behind_is_named(table: hoodoo.Table) -> None:
    table.consumer("billing", start=2)
    why = table.maintenance.clean(retain_hours=0, retain_commits=1).why
    assert why.startswith("consumer 'billing' has only read up to slot 2")
