"""Users without permission get an error of hoodoo, and are never told that something was done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from another_user import another_user

import hoodoo


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint, city string", key="id", partition_by="city")
    for n in range(3):
        table.upsert([{"id": 1, "n": n, "city": "a"}])
    table.savepoints.create("s")
    table.compact(logs_min=1)
    (
        table.scan().count(),
        table.maintenance.clean(retain_hours=99),
        table.maintenance.sweep(),
    )  # to import all modules
    return table


@pytest.mark.parametrize(
    ("folder", "mode", "call"),
    [
        ("", 0o000, lambda table: table.count()),
        (".hoodie", 0o000, lambda table: table.count()),
        (".hoodie/.hoodoo/checkpoints", 0o444, lambda table: table.count()),
        ("city=a", 0o444, lambda table: table.maintenance.sweep()),
        ("city=a", 0o000, lambda table: table.scan().to_arrow()),
    ],
)
def test_a_folder_without_permission_is_an_error_of_hoodoo(
    table: hoodoo.Table, folder: str, mode: int, call: Callable[[hoodoo.Table], Any]
) -> None:
    """It was a PermissionError of Python."""
    closed = Path(table.path) / folder
    with another_user(Path(table.path)):
        closed.chmod(mode)
        try:
            with pytest.raises(hoodoo.HoodooError) as refused:
                call(hoodoo.open(table.path))
        finally:
            closed.chmod(0o755)
    assert refused.value.code == "STORE_DENIED" and "No permission to read" in refused.value.message


def test_cleaning_counts_only_the_files_that_it_deleted(table: hoodoo.Table) -> None:
    """A user without permission to delete was told how many files were deleted."""
    table.savepoints.delete("s")
    partition = Path(table.path) / "city=a"
    with another_user(Path(table.path)):
        partition.chmod(0o555)
        before = sorted(os.listdir(partition))
        try:
            done = hoodoo.open(table.path).maintenance.clean(retain_hours=0, retain_commits=1, retain_versions=1)
        finally:
            partition.chmod(0o755)
        assert (done.files, done.bytes, sorted(os.listdir(partition))) == (0, 0, before)
        assert done.instant and "may not delete the files" in done.why
        hoodoo.open(table.path).count()  # with permission, they are deleted when the table is opened
        assert len(os.listdir(partition)) < len(before)


def test_a_pattern_with_an_unreadable_folder_loads_no_file(tmp_path: Path) -> None:
    """The files of the other folders were loaded, as glob skips what it may not list."""
    table = hoodoo.create(tmp_path / "t", "id bigint", key="id")
    for day, key in (("mon", 1), ("tue", 2)):
        (tmp_path / "in" / day).mkdir(parents=True)
        (tmp_path / "in" / day / "1.jsonl").write_text(f'{{"id": {key}}}\n')
    closed = tmp_path / "in/tue"
    with another_user(tmp_path):
        closed.chmod(0o000)
        try:
            for pattern in ("in/*/*.jsonl", "in/**/*.jsonl", "*/tue/*.jsonl"):
                with pytest.raises(hoodoo.CallError, match="in/tue' cannot be read"):
                    table.upsert(str(tmp_path / pattern))
            assert table.upsert(str(tmp_path / "in/m*/*.jsonl")).inserted == 1
        finally:
            closed.chmod(0o755)
        assert table.upsert(str(tmp_path / "in/*/*.jsonl")).inserted == 1


def test_a_link_to_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error said that the table had been dropped while this process had it open."""
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    for path in (tmp_path / "link", tmp_path / "link/t"):
        with pytest.raises(hoodoo.OptionError, match="link' is a symbolic link to a missing folder"):
            hoodoo.create(path, "id bigint", key="id")
    (tmp_path / "missing").mkdir()
    assert hoodoo.create(tmp_path / "link/t", "id bigint", key="id").count() == 0
