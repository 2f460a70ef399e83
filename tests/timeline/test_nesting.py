"""A sweep of one table deleted the files of another that lay in a folder below it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tables import ids, make, rows

import hoodoo
from hoodoo.storage.local import LocalStore


def test_no_table_is_made_in_a_folder_of_another(tmp_path: Path) -> None:
    make(tmp_path / "lake")
    with pytest.raises(hoodoo.NestedTable, match="must not be nested") as problem:
        make(tmp_path / "lake" / "deep" / "inner")
    assert problem.value.details["outer"] == str(tmp_path / "lake")
    assert not (tmp_path / "lake" / "deep").exists()


def test_no_table_is_made_in_a_folder_above_others(tmp_path: Path) -> None:
    """It was, and from then on no table below it could be written, by people who had touched none of them."""
    inner = make(tmp_path / "lake" / "deep" / "inner")
    with pytest.raises(hoodoo.NestedTable, match="contains another table, deep/inner"):
        make(tmp_path / "lake")
    assert not (tmp_path / "lake" / ".hoodie").exists()
    hoodoo.open(inner.path).upsert(rows(1))


def nested(tmp_path: Path) -> tuple[hoodoo.Table, Path]:
    """A table in a folder of another, as somebody may move it there."""
    inner = make(tmp_path / "inner", clean_every=None)
    inner.upsert(rows(1, 2))
    inner.upsert(rows(1, ts=2))
    outer = make(tmp_path / "lake")
    outer.upsert(rows(7))
    shutil.move(tmp_path / "inner", tmp_path / "lake" / "part=a" / "inner")
    return outer, tmp_path / "lake" / "part=a" / "inner"


def test_a_table_that_was_moved_there_is_read_but_not_written(tmp_path: Path) -> None:
    _, inner = nested(tmp_path)
    assert ids(hoodoo.open(inner)) == [1, 2]
    with pytest.raises(hoodoo.NestedTable):
        hoodoo.open(inner).upsert(rows(3))


def test_no_service_of_the_outer_table_touches_the_inner_one(tmp_path: Path) -> None:
    outer, inner = nested(tmp_path)
    before = {path: path.read_bytes() for path in inner.rglob("*") if path.is_file()}
    outer.upsert(rows(8))
    outer.maintenance.sweep(older_than_hours=0)
    outer.maintenance.clean(retain_hours=0, retain_commits=1)
    outer.compact()
    outer.maintenance.archive(older_than_hours=0)
    assert outer.maintenance.purge(
        rows(1), older_than_hours=0
    ).files_proved  # the key of a row that is in the inner table alone
    assert {path: path.read_bytes() for path in inner.rglob("*") if path.is_file()} == before
    assert outer.verify().problems == []


def test_who_may_not_look_into_the_folders_above_makes_tables_and_writes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials for one prefix of a bucket are refused everywhere else."""
    exists = LocalStore.exists

    def scoped(self: LocalStore, key: str) -> bool:
        if not self.root.startswith(str(tmp_path)):
            raise hoodoo.StoreDenied(f"{self.root} is not yours to look at.", key=key)
        return exists(self, key)

    monkeypatch.setattr(LocalStore, "exists", scoped)
    table = make(tmp_path / "t")
    table.upsert(rows(1))
    assert ids(hoodoo.open(tmp_path / "t")) == [1]
