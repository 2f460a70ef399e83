"""An export dies at any write, is overtaken at any write, or meets another writer: the next has a whole history."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import exported
import iceberg_reader
import pytest
from broken_exports import ended_at_each_write, faulty, overtaken_at_each_write, run
from deltalake import DeltaTable
from exported_tables import make, plain, rows
from faulty_store import Died

import hoodoo


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported, with a checkpoint's worth of slots since, and a clean after which versions have to go."""
    path = tmp_path_factory.mktemp("history") / "t"
    table = make(path)
    table.upsert(rows(0, 1))
    table.export(delta=True, iceberg=True)
    for turn in range(11):
        table.upsert(rows(turn % 3, turn + 2, version=turn, part="ab"[turn % 2]))
        if turn == 6:
            table.export(delta=True, iceberg=True)
    table.maintenance.clean(retain_hours=0, retain_commits=3)
    table.upsert(rows(90))
    return path


@pytest.mark.parametrize(
    "kind", ["die", "lost after", *(pytest.param(one, marks=pytest.mark.deep) for one in ("die after", "lost"))]
)
def test_an_export_that_ends_at_any_write_is_finished_by_the_next(history: Path, tmp_path: Path, kind: str) -> None:
    assert ended_at_each_write(history, tmp_path, kind, exported.check) > 15


def test_a_dead_first_export_is_finished_by_the_next(history: Path, tmp_path: Path) -> None:
    for number in itertools.count(1):
        path = tmp_path / str(number)
        shutil.copytree(history, path, ignore=shutil.ignore_patterns("_delta_log", "metadata"))
        store = faulty(path, lambda at, operation, key, number=number: "die" if at == number else None)  # type: ignore[misc]
        try:
            run(path, store)
            break
        except Died:
            run(path)
            exported.check(path)
            exported.check_hint(path)
    assert number > 5


@pytest.mark.parametrize("commits", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_of_two_exports_at_once_one_history_comes(history: Path, tmp_path: Path, commits: bool) -> None:
    """The second runs as a whole before some write of the first, on the same slots or with one more."""

    def overtake(path: Path) -> None:
        if commits:
            hoodoo.open(path).upsert(rows(91, 92, part="c"))
        run(path)

    assert overtaken_at_each_write(history, tmp_path, overtake, exported.check) > 15


def test_a_commit_of_another_writer_to_the_delta_log_is_named_and_healed(history: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(history, path)
    version = run(path).delta.version + 1
    gone = DeltaTable(path).file_uris()[0].split(f"{path}/")[1].replace("%", "%25")
    said = [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, {"remove": {"path": gone, "dataChange": True}}]
    (path / f"_delta_log/{version:020d}.json").write_text("\n".join(map(json.dumps, said)))
    with pytest.raises(hoodoo.ForeignExport, match=f"Version {version} .*rebuild=True") as refused:
        hoodoo.open(path).export(delta=True)
    assert refused.value.details == {"format": "delta", "version": version}
    assert hoodoo.open(path).export(iceberg=True).iceberg.snapshots == 0, "the other format goes on"
    healed = hoodoo.open(path).export(delta=True, rebuild=True)
    assert healed.delta.version == version + 1
    table = hoodoo.open(path)
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())
    table.upsert(rows(77))
    table.export(delta=True)
    assert plain(DeltaTable(path).to_pyarrow_table()) == plain(table.scan().to_arrow())


def test_a_commit_of_another_writer_to_the_iceberg_metadata_is_named_and_healed(history: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(history, path)
    run(path)
    found = iceberg_reader.metadata(path)
    number = int(found["properties"]["hoodoo.version"]) + 1
    (path / f"metadata/v{number}.metadata.json").write_text(json.dumps({**found, "last-updated-ms": 2**45}))
    with pytest.raises(hoodoo.ForeignExport, match=rf"v{number}\.metadata\.json .*rebuild=True") as refused:
        hoodoo.open(path).export(iceberg=True)
    assert refused.value.details == {"format": "iceberg", "version": number}
    healed = hoodoo.open(path).export(iceberg=True, rebuild=True)
    assert healed.iceberg.metadata == f"metadata/v{number + 1}.metadata.json"
    exported.check_iceberg(path)
    assert iceberg_reader.metadata(path)["last-sequence-number"] == found["last-sequence-number"] + 1


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"commitInfo": 5}', '{"txn": {"appId": "hoodoo"}}'])
def test_a_damaged_version_or_metadata_file_is_named_and_healed(history: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(history, path)
    done = run(path)
    (path / f"_delta_log/{done.delta.version:020d}.json").write_text(text)
    (path / done.iceberg.metadata).write_text(text)
    for asked in ({"delta": True}, {"iceberg": True}):
        with pytest.raises(hoodoo.ForeignExport, match="rebuild"):
            hoodoo.open(path).export(**asked)
        hoodoo.open(path).export(**asked, rebuild=True)
    want = plain(hoodoo.open(path).scan().to_arrow())
    assert plain(DeltaTable(path).to_pyarrow_table()) == want
    exported.check_iceberg(path)


def test_the_export_of_another_table_is_not_gone_on_from(history: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(history, path)
    run(path)
    other = make(tmp_path / "u")
    other.upsert(rows(5))
    for folder in ("_delta_log", "metadata"):
        shutil.copytree(path / folder, tmp_path / "u" / folder)
    for asked in ({"delta": True}, {"iceberg": True}):
        with pytest.raises(hoodoo.ForeignExport, match="another table"):
            other.export(**asked)
        other.export(**asked, rebuild=True)
    assert DeltaTable(tmp_path / "u").to_pyarrow_table()["id"].to_pylist() == [5]
    exported.check_iceberg(tmp_path / "u")
