"""A worker keeps entries in catalogs: what happens where a catalog fails or does not answer.

With real catalogs it is in tests/formats.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import iceberg_reader
import pytest
from exported_tables import make, rows
from patience import PATIENCE_S
from worker_tables import loop_of

import hoodoo
from hoodoo.compactor import catalog_entries
from hoodoo.compactor.catalog_entries import CatalogEntries
from hoodoo.compactor.service_loop import ServiceLoop
from hoodoo.compactor.status.metrics import TableCollector
from hoodoo.compactor.worker import Worker


def keeps(loop: ServiceLoop, opened: Callable[[], Any], iceberg: str = "lake.rides", hudi: str = "") -> None:
    """The worker of `loop` keeps these entries in the catalog that `opened` gives."""
    loop.worker.entries = {loop.table.path: CatalogEntries(iceberg, hudi, opened, threading.Lock())}


def away() -> Any:
    raise ConnectionRefusedError("nobody listens there")


def again_at_once(loop: ServiceLoop) -> None:
    for tried in loop.duties["export"].parts.values():
        tried.at = 0.0


def test_a_catalog_that_fails_is_logged_and_counted_and_delays_no_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    table = make(path, export_formats="iceberg", retain_hours=0, retain_commits=1)
    for version in range(3):
        table.upsert(rows(1, 2, version=version))
    with loop_of(table, "export", "clean", once=True) as loop:
        keeps(loop, away, hudi="lake.rides_hudi")
        loop.run_due_services()
        assert iceberg_reader.metadata(path)["snapshots"] and loop.work["clean"].runs == 1
        assert (loop.work["export"].runs, loop.work["export"].failures) == (1, 2)
        assert loop.has_failing_work and not loop.duties["export"].backoff.failures
        loop._tell()
        metrics = {one.name: one.samples for one in TableCollector([loop]).collect()}
    counted = {one.labels["service"]: one.value for one in metrics["hoodoo_service_failures"] if "total" in one.name}
    assert counted == {"export": 2.0, "clean": 0.0}
    for name in ("lake.rides", "lake.rides_hudi"):
        assert f"event=registration_failed table={path} entry={name}" in caplog.text
    problems = {one.service for one in table.maintenance.services().problems}
    assert problems == {"register lake.rides", "register-hudi lake.rides_hudi"}


def test_an_entry_that_failed_is_tried_again_without_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t", export_formats="iceberg")
    table.upsert(rows(1))
    with loop_of(table, "export") as loop:
        keeps(loop, away)
        loop.run_due_services()
        table.upsert(rows(2))
        loop.run_due_services()
        assert loop.work["export"].failures == 1, "it is put off"
        again_at_once(loop)
        monkeypatch.setattr(catalog_entries, "_update_iceberg_entry", lambda *given: "moved")
        loop.run_due_services()
        assert not loop.has_failing_work and loop.work["export"].failures == 1
    assert len(iceberg_reader.metadata(tmp_path / "t")["snapshots"]) == 1


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that comes is waited for, however slow the machine is; what the worker logs is heard."""
    caplog.set_level("INFO", "hoodoo.worker")
    monkeypatch.setattr(catalog_entries, "_AT_ONCE_S", PATIENCE_S)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that catalogs were asked."""
    found: list[Any] = []

    class Counted(catalog_entries._CatalogRequest):
        def __init__(self, ask: Callable[[], str]) -> None:
            found.append(self)
            super().__init__(ask)

    monkeypatch.setattr(catalog_entries, "_CatalogRequest", Counted)
    return found


def test_a_catalog_that_does_not_answer_is_a_failure_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, questions: list[Any]
) -> None:
    monkeypatch.setattr(catalog_entries, "_TIMEOUT_S", 0.0)
    answer = threading.Event()

    def silent() -> Any:
        answer.wait()
        return away()

    table = make(tmp_path / "t", export_formats="iceberg")
    table.upsert(rows(1))
    with loop_of(table, "export") as loop:
        keeps(loop, silent)
        for _ in range(3):
            loop.run_due_services()
            again_at_once(loop)
        assert loop.work["export"].failures == 3 and len(questions) == 1
        assert "has not responded" in caplog.text
        answer.set()
        questions[0]._thread.join()
        for failures, asked in ((4, 1), (5, 2)):
            loop.run_due_services()
            assert (loop.work["export"].failures, len(questions)) == (failures, asked)
            again_at_once(loop)


def test_a_catalog_that_is_slow_holds_up_nothing_and_hears_of_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: list[Any]
) -> None:
    """Compaction waited for a metastore that hung, a minute each time."""
    monkeypatch.setattr(catalog_entries, "_AT_ONCE_S", 0.0)
    answer = threading.Event()
    monkeypatch.setattr(catalog_entries, "_update_iceberg_entry", lambda *given: answer.wait() and "moved")
    table = make(tmp_path / "t", type="merge_on_read", export_formats="iceberg")
    with loop_of(table, "compact", "export", logs_min=1) as loop:
        keeps(loop, away)
        table.upsert(rows(1))
        table.upsert(rows(1, version=1))
        loop.run_due_services()
        table.upsert(rows(1, version=2))
        loop.duties["export"].clocks["export"] = 0.0
        loop.run_due_services()
        assert loop.work["compact"].runs == 2 and not loop.has_failing_work
        assert len(questions) == 1
        answer.set()
        for asked in (2, 2):
            questions[-1]._thread.join()
            loop.run_due_services()
            assert len(questions) == asked, "it is asked once more, for the table changed meanwhile"
        assert loop.work["export"].failures == 0
        assert not loop.worker.entries[table.path].unanswered()


def test_an_entry_of_hudi_needs_no_export_and_does_not_wait_for_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[str] = []
    monkeypatch.setattr(
        catalog_entries, "_update_hudi_entry", lambda entries, *given: brought.append(entries.hudi) or "refreshed"
    )
    for number, formats in enumerate(("none", "delta")):
        path = tmp_path / formats
        table = make(path, export_formats=formats)
        table.upsert(rows(1))
        if formats == "delta":
            (path / "_delta_log").mkdir()
            (path / f"_delta_log/{0:020d}.json").write_text("{}")
        with loop_of(table, "export") as loop:
            keeps(loop, away, iceberg="", hudi=f"lake.t{number}")
            loop.run_due_services()
            assert loop.has_failing_work == (formats == "delta")
        assert brought[-1] == f"lake.t{number}"


def test_an_entry_is_brought_up_to_date_once_for_many_commits_of_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[str] = []
    monkeypatch.setattr(
        catalog_entries, "_update_hudi_entry", lambda entries, *given: brought.append(entries.hudi) or "refreshed"
    )
    table = make(tmp_path / "t")
    with loop_of(table, "export") as loop:
        keeps(loop, away, iceberg="", hudi="lake.t")
        for number in range(3):
            table.upsert(rows(number))
            loop.run_due_services()
        assert len(brought) == 1
        loop.duties["export"].clocks["export"] = 0.0
        loop.run_due_services()
        assert len(brought) == 2
        loop.duties["export"].clocks["export"] = 0.0
        loop.run_due_services()
        assert len(brought) == 2, "nothing was committed since"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"register": "rides"}, "namespace.table"),
        ({"register": ["lake.a", "lake.b"]}, "one entry per table, in the order of the tables: expected 1, got 2"),
        ({"register_hudi": []}, "got 0"),
        ({"register_hudi": "a.b.c"}, "do not support nested namespaces"),
        ({"register": "lake.a", "register_hudi": "lake.a"}, "both name 'lake.a'"),
        ({"register_hudi": "lake.a", "catalog_properties": {"type": "sql"}}, "hive or glue, got 'sql'"),
        ({"register": 7}, "a list with one name per table"),
        ({"catalog": "prod"}, "needs the name of an entry"),
        ({"catalog_properties": {"type": "sql"}}, "needs the name of an entry"),
        ({"register": "lake.a", "services": ["compact"]}, "updated by the service 'export'"),
    ],
)
def test_what_cannot_be_is_refused_as_the_worker_is_made(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    table = make(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError, match=said):
        Worker([table], **given)


def test_a_table_alone_is_no_list_of_tables(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="expected a list of open tables"):
        Worker(make(tmp_path / "t"))  # type: ignore[arg-type]


def test_two_tables_cannot_have_one_entry(tmp_path: Path) -> None:
    tables = [make(tmp_path / name) for name in "ab"]
    with pytest.raises(hoodoo.OptionError, match="contains 'lake.rides' twice"):
        Worker(tables, register=["lake.rides", "lake.rides"])
