"""Tables with `export_formats`: workers export, and whoever cleans does before."""

from __future__ import annotations

from pathlib import Path

import exported
import iceberg_reader
import pytest
from deltalake import DeltaTable
from exported_tables import make, rows, slots_of_delta
from worker_tables import loop_of

import hoodoo
from hoodoo.compactor.status.metrics import TableCollector
from hoodoo.timeline.environment import Environment


def shown(path: Path) -> int:
    """The slot that the newest version shows."""
    return max(slots_of_delta(path).values(), default=0)


def test_a_worker_exports_a_table_that_asks_for_it_and_no_other(tmp_path: Path) -> None:
    asks = make(tmp_path / "t", export_formats="both")
    asks.upsert(rows(1, 2))
    quiet = make(tmp_path / "u")
    quiet.upsert(rows(1, 2))
    for table in (asks, quiet):
        with loop_of(table, "export") as loop:
            loop.run_due_services()
    exported.check(tmp_path / "t")
    assert shown(tmp_path / "t") == asks.cursor.seq
    assert not (tmp_path / "u/_delta_log").exists() and not (tmp_path / "u/metadata").exists()


def test_a_worker_exports_once_for_many_commits_of_a_minute(tmp_path: Path) -> None:
    table = make(tmp_path / "t", export_formats="iceberg")
    table.upsert(rows(1))
    with loop_of(table, "export") as loop:
        loop.run_due_services()
        for number in range(3):
            table.upsert(rows(number))
            loop.run_due_services()
        assert len(iceberg_reader.metadata(tmp_path / "t")["snapshots"]) == 1
        loop.duties["export"].clocks["export"] = 0.0
        loop.run_due_services()
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
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert shown(path) == 5
    (path / f"_delta_log/{9:020d}.json").write_text("{}")
    for version in range(4):
        table.upsert(rows(1, 2, version=version + 9))
    assert table.maintenance.clean(retain_hours=0, retain_commits=1).files > 0
    assert "cleaning continues" in caplog.text and "FOREIGN_EXPORT" in caplog.text


def test_the_services_say_how_far_exports_are_behind(tmp_path: Path) -> None:
    table = make(tmp_path / "t", export_formats="both", export_every_seconds=0)
    table.upsert(rows(1))
    table.upsert(rows(2))
    behind = table.maintenance.services()
    assert set(behind.figures.exports) == {"delta", "iceberg"}
    assert {lag.slots for lag in behind.figures.exports.values()} == {2}
    table.export(delta=True, iceberg=True)
    table.savepoints.create("s")
    fine = table.maintenance.services()
    for format, lag in fine.figures.exports.items():
        assert (lag.slot, lag.slots, lag.seconds) == (table.cursor.seq - 1, 0, 0.0), format
    assert not any("Readers of" in text for text in fine.advice)
    later = Environment().now_ms() + 60_000
    table.upsert(rows(3))
    seen = hoodoo.Table(table.handle.store, Environment(now_ms=lambda: later)).maintenance.services()
    assert all(lag.slots == 1 and lag.seconds > 0 for lag in seen.figures.exports.values())
    (delta,) = (text for text in seen.advice if "Readers of Delta" in text)
    assert "1 commit" in delta and "--delta" in delta


def test_logs_are_behind_only_where_an_export_tells_of_them(tmp_path: Path) -> None:
    table = make(tmp_path / "t", type="merge_on_read", export_formats="both")
    table.upsert(rows(1))
    table.export(delta=True, mode="merged")
    table.export(iceberg=True)
    table.upsert(rows(1, version=2))
    exports = table.maintenance.services().figures.exports
    assert exports["delta"].slots == 1 and exports["iceberg"].slots == 0


def test_metrics_say_it_of_each_format(tmp_path: Path) -> None:
    table = make(tmp_path / "t", export_formats="delta")
    with loop_of(table, "export") as loop:
        loop.run_due_services()
        table.upsert(rows(1))
        table.upsert(rows(2))
        loop.run_due_services()  # within the minute: it looks, and does not export
        found = {one.name: one.samples for one in TableCollector([loop]).collect()}
    (slots,) = found["hoodoo_export_lag_slots"]
    assert (slots.labels["format"], slots.value) == ("delta", 2.0)
    assert [one.labels["format"] for one in found["hoodoo_export_lag_seconds"]] == ["delta"]


def test_a_table_that_exports_nothing_has_no_lag(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(1))
    assert table.maintenance.services().figures.exports == {}


def test_an_unknown_format_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="one of none, delta, iceberg, both"):
        make(tmp_path / "t", export_formats="paimon")
