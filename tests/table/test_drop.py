"""`hoodoo.drop` deletes a table and nothing else, on a disk and on S3, and finishes what an interrupted call began."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import seaweed

import hoodoo
from hoodoo.storage.local import LocalStore
from hoodoo.storage.s3 import S3Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline.layout import PROPERTIES

ROWS = [{"id": 1, "city": "rome", "n": 1}, {"id": 2, "city": "oslo", "n": 2}]
OTHERS = ("notes.txt", "city=rome/_readme", "city=rome/rows.parquet", "metadata/notes.txt", "_delta_log/notes.txt")


def made(path: Any, storage: dict[str, Any] | None = None) -> hoodoo.Table:
    """A table with base files, logs, an export of each format, and one more commit."""
    columns = {"id": "bigint", "city": "string", "n": "bigint"}
    table = hoodoo.create(path, columns, key="id", partition_by="city", storage=storage)
    table.insert(ROWS)
    table.upsert([{"id": 1, "city": "rome", "n": 5}])
    table.export(delta=True, iceberg=True, mode="merged")
    table.upsert([{"id": 2, "city": "oslo", "n": 5}])
    return table


def left(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


@pytest.fixture(scope="module")
def kept_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(made(tmp_path_factory.mktemp("made") / "t").path)


@pytest.fixture
def table(kept_table: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept_table, tmp_path / "t")


def test_a_dropped_table_leaves_no_file_and_no_folder(table: Path) -> None:
    (table / ".hoodie/.temp/empty").mkdir(parents=True)
    files = [one for one in table.rglob("*") if one.is_file()]
    size = sum(one.stat().st_size for one in files)
    result = hoodoo.drop(table)
    assert (result.path, result.files, result.bytes, result.kept) == (str(table), len(files), size, [])
    assert not table.exists()
    with pytest.raises(hoodoo.TableNotFound):
        hoodoo.drop(table)
    assert made(table).count() == 2


def test_files_of_others_stay_and_are_listed(table: Path) -> None:
    for name in OTHERS:
        (table / name).write_bytes(b"x")
    (table / "city=rome/.rows.parquet.crc").write_bytes(b"x")
    base = next(one for one in (table / "city=oslo").glob("*.parquet"))
    base.with_name(f".{base.name}.crc").write_bytes(b"checksum")
    shutil.copytree(table, table / "inner", ignore=shutil.ignore_patterns("*.txt"))
    inner = [f"inner/{one}" for one in left(table / "inner") if (table / "inner" / one).is_file()]
    result = hoodoo.drop(table)
    assert result.kept == sorted([*OTHERS, "city=rome/.rows.parquet.crc", *inner])
    assert not (table / "city=oslo").exists() and not (table / ".hoodie").exists()
    assert [one for one in left(table) if (table / one).is_file()] == result.kept
    assert hoodoo.open(table / "inner").count() == 2


def test_metadata_that_another_writer_committed_to_stays(table: Path) -> None:
    log = table / "_delta_log"
    (log / f"{len(list(log.glob('0*.json'))):020d}.json").write_text('{"commitInfo": {"timestamp": 1}}\n')
    newest = max((table / "metadata").glob("v*.metadata.json"))
    newest.with_name("v99.metadata.json").write_text(newest.read_text())
    (table / "metadata/version-hint.text").write_text("99")
    names = {str(one.relative_to(table)) for folder in (log, newest.parent) for one in folder.iterdir()}
    result = hoodoo.drop(table)
    assert set(result.kept) == {name for name in names if not name.startswith("metadata/deletion_vector_")}


@pytest.mark.parametrize("after", [0, 3, 20, 10_000])
def test_an_interrupted_drop_is_finished_by_the_next_call(
    table: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = list[str]()
    real = LocalStore.delete

    def delete(self: LocalStore, key: str) -> None:
        if len(deleted) >= after or key == PROPERTIES:
            raise hoodoo.StoreDenied("interrupted")
        deleted.append(key)
        real(self, key)

    monkeypatch.setattr(LocalStore, "delete", delete)
    with pytest.raises(hoodoo.StoreDenied):
        hoodoo.drop(table)
    monkeypatch.undo()
    assert (table / PROPERTIES).exists()
    assert hoodoo.drop(table).kept == [] and not table.exists()


def test_a_damaged_table_can_be_dropped(table: Path) -> None:
    (table / PROPERTIES).write_bytes(b"nonsense")
    hoodoo.drop(table)
    assert not table.exists()


def test_a_path_without_a_table_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(hoodoo.TableNotFound, match="Correct the path"):
            hoodoo.drop(path)
    assert left(tmp_path) == ["notes.txt"]


def test_nothing_is_deleted_behind_a_symbolic_link(table: Path, tmp_path: Path) -> None:
    (table / ".hoodie").rename(tmp_path / "elsewhere")
    (table / ".hoodie").symlink_to(tmp_path / "elsewhere")
    before = left(tmp_path)
    with pytest.raises(hoodoo.CorruptTable, match="symbolic link"):
        hoodoo.drop(table)
    assert left(tmp_path) == before


@pytest.mark.xdist_group("s3")
def test_a_table_on_s3_is_dropped(s3: dict[str, Any]) -> None:
    path = seaweed.place()
    made(path, s3)
    store = open_store(path, s3)
    store.put("notes.txt", b"x")
    beside = S3Store(path + "2", s3)
    beside.put("notes.txt", b"x")
    assert hoodoo.drop(path, storage=s3).kept == ["notes.txt"]
    assert [key for key, _ in store.list("")] == ["notes.txt"] and beside.exists("notes.txt")
    with pytest.raises(hoodoo.TableNotFound):
        hoodoo.drop(path, storage=s3)
