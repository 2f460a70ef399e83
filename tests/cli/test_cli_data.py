"""What a script gets: values as they are, all of them, and an exit code that tells whether rows are in the table."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli_files import json_file, row
from patience import PATIENCE_S
from rich.console import Console

import hoodoo
from hoodoo.cli.show import CommandOutput
from hoodoo.compactor import heartbeats
from hoodoo.compactor.status import lag


def wide_table(path: Path, rows: int = 3_000) -> hoodoo.Table:
    names = ["id", *(f"column_{number}" for number in range(40))]
    table = hoodoo.create(path, pa.schema([(name, pa.int64()) for name in names] + [("text", pa.string())]), key="id")
    ids = pa.array(range(1_000_000, 1_000_000 + rows), pa.int64())
    table.upsert(pa.table([*[ids] * len(names), pa.array(["x" * 300] * rows)], names=[*names, "text"]))
    return table


def test_rows_into_a_pipe_are_all_there_and_whole(tmp_path: Path) -> None:
    """`hoodoo scan t | wc -l` said 22, wide rows were folded at 160 characters, texts cut at 60, and 1000000 was
    1,000,000.
    """
    wide_table(tmp_path / "t")
    found = subprocess.run(
        [sys.executable, "-m", "hoodoo", "scan", tmp_path / "t"], capture_output=True, text=True, check=True
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 3_001 and "rows;" not in found.stdout
    assert all(line.count("x" * 300) == 1 and len(line.split()) == 42 for line in lines[1:])
    assert sorted(line.split()[0] for line in lines[1:]) == [str(1_000_000 + number) for number in range(3_000)]


def test_a_row_whose_text_looks_like_a_secret_is_shown_as_it_is(tmp_path: Path, run: Any) -> None:
    """A column with "password=abc" came out of `hoodoo scan` as "password=***": other data than the table has."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("note", pa.string())]), key="id")
    table.upsert([{"id": 1, "note": "password=abc"}])
    assert "password=abc" in run("scan", table.path)[1]


@pytest.mark.parametrize("command", ["history", "timeline", "services", "files"])
def test_a_row_is_a_line_at_80_columns(tmp_path: Path, command: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit took eight lines, each of eleven columns of five characters."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("p", pa.int64())]), key="id")
    table.insert_overwrite(pa.table({"id": range(200_000), "p": [0] * 200_000}), whole_table=True)
    table.upsert([{"id": 1, "p": 2}])
    pending = table.handle.context().timeline.begin("deltacommit").instant
    monkeypatch.setattr(CommandOutput, "piped", property(lambda self: False))
    monkeypatch.setattr("hoodoo.cli.show.create_console", lambda error=False: Console(file=sys.stdout, width=80))
    lines = run(command, table.path)[1].splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = {"history": 3, "timeline": 4, "files": len(table.inspect.files())}.get(command)
    assert rows is None or len(lines) == rows + 2
    assert command in ("services", "files") or any("200,000" in line and "INSERT_OVERW" in line for line in lines)
    assert command != "timeline" or any(pending in line for line in lines)


@pytest.mark.parametrize("command", ["history", "timeline", "files"])
def test_wide_lists_have_every_column_and_fold_none(
    tmp_path: Path, command: str, run: Any, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide_table(tmp_path / "t", 30)
    monkeypatch.setattr(CommandOutput, "piped", property(lambda self: False))
    head, *rows = run(command, tmp_path / "t", "--wide")[1].splitlines()
    found = lines(command, tmp_path / "t")
    assert len(rows) == len(found) == (1 if command == "files" else 2)
    left_out = {"application", "version", "position"} if command == "history" else set()
    assert set(head.split()) == set(found[0]) - left_out


@pytest.mark.parametrize("command", ["incremental", "changes", "diff", "get", "history", "timeline"])
def test_no_command_cuts_what_goes_into_a_pipe(tmp_path: Path, run: Any, command: str) -> None:
    wide_table(tmp_path / "t", 30)
    more = {
        "incremental": ["--since", "earliest"],
        "changes": ["--since", "earliest"],
        "diff": ["earliest"],
        "get": ["1000000"],
    }
    code, out, err = run(command, tmp_path / "t", *more.get(command, []))
    assert (code, err) == (0, "") and "…" not in out
    assert len(out.splitlines()) - out.count("next --since") == {"get": 2, "history": 3, "timeline": 3}.get(command, 31)


def test_a_table_at_a_terminal_is_cut_and_says_so(trips: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandOutput, "piped", property(lambda self: False))
    hoodoo.open(trips).upsert(
        pa.Table.from_pylist([{**row(f"k{number:03}"), "at": None} for number in range(30)]).set_column(
            2, "at", pa.array([0] * 30, pa.timestamp("us", "UTC"))
        )
    )
    out = run("scan", trips)[1]
    assert "the first 20 rows" in out and "k029" not in out


def test_an_upsert_that_committed_exits_0_whatever_fails_afterwards(
    trips: Path, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script took 1 for "not written" and wrote again."""
    rows = json_file(tmp_path / "rows.jsonl", [row("z")])

    def refuse(*_: Any, **__: Any) -> Any:
        raise hoodoo.StoreUnavailable("the store went away")

    with monkeypatch.context() as patched:
        patched.setattr(lag, "measure", refuse)
        code, out, err = run("upsert", trips, rows)
        assert (code, err) == (0, "") and "inserted" in out
        assert run("upsert", trips, rows, "--json")[0] == 0
    for broken in (ValueError("no such thing"), OSError(28, "No space left on device"), UnicodeError("ascii")):

        def fail(*_: Any, problem: Exception = broken, **__: Any) -> Any:
            raise problem

        with monkeypatch.context() as patched:
            patched.setattr(CommandOutput, "document", fail)
            code, _, err = run("upsert", trips, rows)
            assert code == 0 and "The rows are upserted" in err
    with monkeypatch.context() as patched:
        patched.setattr("hoodoo.compactor.inline.checkpoint.write", refuse)
        patched.setattr("hoodoo.compactor.cleaning.clean.clean", refuse)
        assert run("upsert", trips, rows)[0] == 0
    assert "z" in run("get", trips, "z")[1]


def test_a_reader_that_went_away_does_not_make_a_write_fail(trips: Path, tmp_path: Path) -> None:
    rows = json_file(tmp_path / "rows.jsonl", [row("z")])
    command = [sys.executable, "-m", "hoodoo", "upsert", str(trips), str(rows)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout and running.stderr
    running.stdout.close()
    said = running.stderr.read()
    running.stderr.close()
    assert (running.wait(PATIENCE_S), said) == (0, b"")


def test_a_file_of_a_kind_that_cannot_be_written_is_refused_before_anything_is_read(
    trips: Path, tmp_path: Path, run: Any
) -> None:
    """`--output x.xlsx` was asked what x.xlsx holds, after the whole table had been read."""
    for path in (trips, tmp_path / "no such table"):
        code, _, err = run("scan", path, "--output", tmp_path / "x.xlsx")
        assert code == 1 and "Cannot write" in err and ".parquet, .csv, .json or .jsonl" in err
    assert not list(tmp_path.glob("x.xlsx*"))


# ---- services
def failing_worker(trips: Path, monkeypatch: pytest.MonkeyPatch) -> hoodoo.Worker:
    worker = hoodoo.Worker([hoodoo.open(trips)], once=True)

    def damaged(*_: Any, **__: Any) -> Any:
        raise hoodoo.CorruptTable("The block is damaged. Run maintenance.salvage().", file="city=x/.f.log.1")

    monkeypatch.setattr("hoodoo.compactor.cleaning.archive.archive", damaged)
    return worker


def test_services_names_the_last_error_of_each_service_until_it_works(
    trips: Path, run: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that nothing is behind, while every round of the only worker failed."""
    with monkeypatch.context() as patched:
        worker = failing_worker(trips, patched)
        assert worker.run().failed
    out = run("services", trips)[1]
    assert "Nothing is due" not in out
    assert f"Archive failed in {worker.name}" in out and "on city=x/.f.log.1: CorruptTable: " in out
    said = machine("services", trips)
    assert [(one["service"], one["error"], one["file"]) for one in said["problems"]] == [
        ("archive", "CorruptTable", "city=x/.f.log.1")
    ]
    archive = worker.loops[0].duties["archive"]
    archive.clocks["archive"] = archive.backoff.at = 0.0
    worker.run()
    assert machine("services", trips)["problems"] == [] and "Nothing is due." in run("services", trips)[1]


def test_services_tells_dead_workers_as_dead(trips: Path, run: Any, machine: Any) -> None:
    table = hoodoo.open(trips)
    table.set_options(worker_timeout_seconds=0.01)
    heartbeats.beat(table.handle.store, "w1")
    time.sleep(0.02)
    out = run("services", trips)[1]
    assert (
        re.search(r"dead, heartbeat \d+ s ago", out)
        and "Worker w1 is dead or hangs" in out
        and "Nothing is due" not in out
    )
    assert machine("services", trips)["dead"] == ["w1"]


def test_services_tells_the_age_and_the_owner_of_a_plan(trips: Path, run: Any, machine: Any) -> None:
    from hoodoo.compactor.compaction import plans

    table = hoodoo.open(trips)
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan
    assert f"Plan {plan.instant} has been waiting" in run("services", trips)[1]
    table.handle.store.put(heartbeats.running_plan_hint_path(plan.instant), b"w7")
    assert f"Plan {plan.instant} has been run by w7" in run("services", trips)[1]
    said = machine("services", trips)
    assert said["owners"] == {plan.instant: "w7"} and 0 <= said["plan_ages"][plan.instant] < 300


def test_what_others_left_in_place_of_problems_hides_nothing(trips: Path, machine: Any) -> None:
    table = hoodoo.open(trips)
    for number, body in enumerate((b"", b"[1]", b"{}", b'[{"worker": 1}]', b"\xff")):
        table.handle.store.put(f"{heartbeats.HEARTBEATS}{heartbeats.PROBLEMS}{number}", body)
    assert machine("services", trips)["problems"] == []


def test_history_marks_counts_that_may_be_too_high(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, ts bigint", key="id", order_by="ts", type="merge_on_read")
    table.upsert([{"id": 1, "ts": 5}])
    table.upsert([{"id": 1, "ts": 1}])
    monkeypatch.setattr(CommandOutput, "piped", property(lambda self: False))
    _, *rows = run("history", table.path)[1].splitlines()
    assert ["<= 1" in row for row in rows if "UPSERT" in row] == [True, False]
