"""Tables with `export_formats`: workers export, and whoever cleans does before."""

from __future__ import annotations

from pathlib import Path

import exported
import iceberg_reader
import pytest
from deltalake import DeltaTable
from exported import make, rows
from worker_tables import loop_of

import hoodoo


def shown(path: Path) -> int:
    """The slot that the newest version shows."""
    return max(exported.slots_of_delta(path).values(), default=0)


def test_a_worker_exports_a_table_that_asks_for_it_and_no_other(tmp_path: Path) -> None:
    asks = make(tmp_path / "t", export_formats="both")
    asks.upsert(rows(1, 2))
    quiet = make(tmp_path / "u")
    quiet.upsert(rows(1, 2))
    for table in (asks, quiet):
        with loop_of(table, "export") as loop:
            loop.round()
    exported.check(tmp_path / "t")
    assert shown(tmp_path / "t") == asks.cursor.seq
    assert not (tmp_path / "u/_delta_log").exists() and not (tmp_path / "u/metadata").exists()


def test_a_worker_exports_once_for_many_commits_of_a_minute(tmp_path: Path) -> None:
    table = make(tmp_path / "t", export_formats="iceberg")
    table.upsert(rows(1))
    with loop_of(table, "export") as loop:
        loop.round()
        for number in range(3):
            table.upsert(rows(number))
            loop.round()
        assert len(iceberg_reader.metadata(tmp_path / "t")["snapshots"]) == 1
        loop.duties["export"].clocks["export"] = 0.0
        loop.round()
        assert loop.work["export"].runs == 2 and loop.work["export"].bytes_written > 0
    assert exported.check_iceberg(tmp_path / "t")[-1] == table.cursor.seq
    assert not (tmp_path / "t/_delta_log").exists()


def test_a_writer_exports_before_it_cleans(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, export_formats="delta", clean_every=3, retain_hours=0, retain_commits=1)
    table.upsert(rows(1, 2))
    assert not (path / "_delta_log").exists(), "a commit does not wait for an export"
    for version in range(4):
        table.upsert(rows(1, 2, version=version))
    assert shown(path) > 2
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2, "the newest version names no file that a clean deleted"


def test_a_clean_that_is_asked_for_exports_first_and_goes_on_where_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    table = make(path, export_formats="both")
    for version in range(4):
        table.upsert(rows(1, 2, version=version))
    table.clean(retain_hours=0, retain_commits=1)
    assert shown(path) == 5
    (path / f"_delta_log/{9:020d}.json").write_text("{}")
    for version in range(4):
        table.upsert(rows(1, 2, version=version + 9))
    assert table.clean(retain_hours=0, retain_commits=1).files > 0
    assert "the clean goes on" in caplog.text and "FOREIGN_EXPORT" in caplog.text


def test_an_unknown_format_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="one of none, delta, iceberg, both"):
        make(tmp_path / "t", export_formats="paimon")
