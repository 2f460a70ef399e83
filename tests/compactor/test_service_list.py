"""A table service is a value: writers and workers walk one list, and another one is a line in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from worker_tables import batch, loop_of, table_of

import hoodoo
from hoodoo.cli.main import parser
from hoodoo.compactor import heartbeats
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.service_turn import Service, ServiceCounters, ServiceRun
from hoodoo.errors import OptionError


def polishing(turns: list[tuple[str, int]], fails: bool = False) -> Service:
    def run(turn: ServiceRun) -> bool:
        turns.append(("worker" if turn.duty else "writer", turn.view.seq))
        if turn.duty:
            turn.duty.looked(turn.view)
        if fails:
            raise RuntimeError("no polish left")
        turn.tell("polished", ServiceCounters(1, groups=2))
        return False

    return Service("polish", lambda turn: turn.duty is None or turn.duty.changed(turn.view), run)


def test_a_service_that_is_added_to_the_list_is_run_by_writers_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[tuple[str, int]] = []
    monkeypatch.setitem(SERVICES, "polish", polishing(turns))
    table = table_of(tmp_path / "t")
    table.upsert(batch(np.arange(4), 0))
    assert turns == [("writer", 2)]
    with caplog.at_level("INFO", "hoodoo.worker"), loop_of(table, "polish") as loop:
        loop.run_due_services()
        loop.run_due_services()
        assert turns[1:] == [("worker", 2)], "an unchanged table is not worth a turn"
        assert loop.work["polish"].runs == 1 and loop.work["polish"].groups == 2
    [line] = [entry.getMessage() for entry in caplog.records if "polished" in entry.getMessage()]
    assert f"table={table.path}" in line
    assert "polish" in parser().parse_args(["worker", table.path]).services, "the command line runs all there are"
    monkeypatch.undo()
    with pytest.raises(OptionError, match="polish"):
        hoodoo.Worker([table], ["polish"])


def test_a_service_that_fails_after_a_commit_leaves_the_commit_and_the_other_services_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[tuple[str, int]] = []
    others = dict(SERVICES)
    monkeypatch.setattr("hoodoo.compactor.inline.SERVICES", {"polish": polishing(turns, fails=True), **others})
    table = table_of(tmp_path / "t", compact_after_logs=1)
    for ts in range(3):
        assert table.upsert(batch(np.arange(4), ts)).cursor
    assert len(turns) == 3 and table.maintenance.lag().log_files_max == 0
    assert "polish after a commit failed, but the commit is final: no polish left" in caplog.text


def test_only_workers_that_do_what_writers_would_do_keep_them_from_it(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    for service, said in (("archive", False), ("compact", True)):
        with loop_of(table, service) as loop:
            loop.run_due_services()
            beat = heartbeats.HEARTBEATS + heartbeats.WORKER + loop.worker.name
            assert table.handle.store.exists(beat) == said


def test_a_service_that_failed_is_due_again_however_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is failing until it succeeds; a service that is not due would stay so for ever."""
    turns: list[tuple[str, int]] = []
    table = table_of(tmp_path / "t")
    monkeypatch.setitem(SERVICES, "polish", polishing(turns, fails=True))
    with loop_of(table, "polish", poll_seconds=0.001) as loop:
        loop.run_due_services()
        assert loop.has_failing_work and loop.duties["polish"].problems["polish"].error == "RuntimeError"
        monkeypatch.setitem(SERVICES, "polish", polishing(turns))
        loop.duties["polish"].looked(table.handle.history.head())  # nothing changed
        loop.duties["polish"].backoff.at = 0.0
        loop.run_due_services()
        assert not loop.has_failing_work and not loop.duties["polish"].problems


def test_work_adds_up() -> None:
    total = ServiceCounters(failures=1)
    total.add(ServiceCounters(1, 2, 3, 4, 5, 0.5))
    total.add(ServiceCounters(1, 1, 1, 1, 1, 0.25))
    assert total == ServiceCounters(2, 3, 4, 5, 6, 0.75, 1)
