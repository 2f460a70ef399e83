"""Job of `hoodoo demo`, which keeps a table of flights up to date.

The job loads the schedule of a year, upserts departures and arrivals, and deletes the flights that never departed. A
worker process compacts the table at the same time. Then the job reads the newest snapshot, the changes since an
instant, and the snapshot at that instant. pandas computes the expected results from the source file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid
from rich.text import Text

import hoodoo
from hoodoo.demo.engine import DemoEngine, Groups, choose_engine
from hoodoo.demo.flights import HALVES, KEY, SCHEMA, Expectation, Flights, source_bytes
from hoodoo.errors import CallError, HoodooError
from hoodoo.terminal import format_cell, format_value

NAME = "hoodoo_demo_flights"
_CUT = 11  # the change read and the time travel start at the end of this half month, 30 June
_WORKER_ENDS_S = 30.0
_TIMELINE_SHOWN = 12


@dataclass
class DemoReport:
    """Report of a demo run."""

    path: str
    engine: str
    flights: int
    writes: list[dict[str, Any]] = field(default_factory=list)
    cut: str = ""
    cut_cursor: str = ""
    deleted: int = 0
    compactions: int = 0
    compacted_groups: int = 0
    compacted_bytes: int = 0
    log_files_max: int = 0
    checks: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0


def run_demo(path: str, engine: str, rows: int | None, keep: bool, to: Console) -> DemoReport:
    """Run the demo, and check its result.

    Args:
        path: The path of the demo table.
        engine: 'auto', 'spark' or 'local'.
        rows: About how many flights to use. None: all flights.
        keep: True keeps an earlier demo table, and creates a new table next to it.
        to: The console to print to.

    Raises:
        CallError: The path is not usable, or the package with the flights is not installed.
        EngineError: `engine` is 'spark', and Spark is not available.
    """
    began = time.monotonic()
    data = source_bytes()
    folder = _prepare_folder(path, keep)
    with to.status("starting"):
        chosen, why_not = choose_engine(engine)
    try:
        if why_not:
            to.print(
                Text(
                    f"Spark is not used: {format_value(why_not)}. The job runs in this process instead.", style="yellow"
                )
            )
        story = _Demo(folder, chosen, Flights(data, rows), Expectation(data, rows), to).run()
    finally:
        chosen.stop()
    story.seconds = round(time.monotonic() - began, 2)
    _farewell(story, to)
    return story


# ---- where the table goes
def _prepare_folder(path: str, keep: bool) -> str:
    """Prepare an empty folder for the demo table.

    With `keep`, the earlier table stays, and the path gets the next free number as a suffix. Raises CallError if `path`
    is not local, or contains anything except a demo table.
    """
    if "://" in path:
        raise CallError(f"The demo writes only to a local folder, got {format_value(path)}.")
    if not os.path.exists(path) or not os.listdir(path):
        return path
    if not _is_demo_table(path):
        raise CallError(
            f"Path {format_value(path)} exists and is not a demo table. Choose another path: hoodoo demo --path DIR"
        )
    if not keep:
        shutil.rmtree(path)
        return path
    number = 2
    while os.path.exists(f"{path}-{number}"):
        number += 1
    return f"{path}-{number}"


def _is_demo_table(path: str) -> bool:
    if any(name != ".hoodie" and not name.startswith("month=") for name in os.listdir(path)):
        return False
    try:
        return hoodoo.open(path).name == NAME
    except HoodooError:
        return False


# ---- the worker beside the writer
@contextmanager
def _run_worker(path: str) -> Iterator[list[dict[str, Any]]]:
    """Run a worker process while a block runs.

    Yields:
        A list that contains the log records of the worker after the block.
    """
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "hoodoo", "worker", path, "--json", "--poll", "0.2"],
            stdout=said,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield records
        finally:
            code = _stop_worker(process)
            said.seek(0)
            records += [json.loads(line) for line in said if line.endswith("\n")]
            records.append({"event": "exit", "code": code})


def _stop_worker(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_WORKER_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# ---- the job
class _Demo:
    def __init__(self, path: str, engine: DemoEngine, flights: Flights, expected: Expectation, to: Console) -> None:
        self.engine, self.flights, self.expected, self.to = engine, flights, expected, to
        self.story = DemoReport(path, engine.name, len(flights))

    def run(self) -> DemoReport:
        self.title(f"{len(self.flights):,} flights from New York in 2013, on {self.engine.name}")
        self.table = hoodoo.create(
            self.story.path, SCHEMA, key=KEY, partition_by="month", order_by="updated_at", name=NAME
        )
        self.say(
            f"A merge-on-read table at {format_value(self.table.path)}: key {', '.join(KEY)}; partitioned by month; "
            "the newer updated_at wins."
        )
        with _run_worker(self.table.path) as records:
            self.write()
            self.wait_for_worker()
        self.compaction(records)
        self.reads()
        self.timeline()
        self.check("verify() finds that slots, files, keys and index are consistent", not self.table.verify().problems)
        return self.story

    def title(self, text: str) -> None:
        self.to.print()
        self.to.print(Text(text, style="bold cyan"))

    def say(self, text: str) -> None:
        self.to.print(Text(text))

    def check(self, what: str, holds: bool) -> None:
        self.story.checks[what] = bool(holds)
        self.to.print(Text.assemble(("  ok    " if holds else "  WRONG ", "bold green" if holds else "bold red"), what))

    # -- writes
    def write(self) -> None:
        feeds = list(self.flights.feeds())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.to, transient=True) as progress:
            bar = progress.add_task("schedule", total=len(feeds) + 2)
            self.upsert("the schedule of the year", self.flights.schedule())
            progress.advance(bar)
            for feed in feeds:
                month = f"{min(feed.half, HALVES - 1) // 2 + 1:02d}"
                progress.update(bar, description=f"{feed.kind} of month {month}")
                self.upsert(f"{feed.kind}", feed.rows)
                progress.advance(bar)
                if feed.half <= _CUT:
                    self.story.cut, self.story.cut_cursor = self.last.instant, str(self.last.cursor)
            progress.update(bar, description="flights that never left")
            self.delete()
            progress.advance(bar)
        self.written()

    def upsert(self, what: str, rows: Any) -> None:
        began = time.monotonic()
        self.last = self.table.upsert(self.engine.frame(rows))
        self.note(what, len(rows), time.monotonic() - began)

    def delete(self) -> None:
        keys, began = self.flights.get_undeparted_keys(), time.monotonic()
        self.last = self.table.delete(self.engine.frame(keys))
        self.story.deleted = len(keys)
        self.note("delete flights that never left", len(keys), time.monotonic() - began)

    def note(self, what: str, rows: int, seconds: float) -> None:
        logs = self.last.lag.log_files_max if self.last.lag else 0
        self.story.log_files_max = max(self.story.log_files_max, logs)
        entry = {
            "what": what,
            "rows": rows,
            "seconds": round(seconds, 3),
            "bytes": self.last.bytes_written,
            "instant": self.last.instant,
        }
        self.story.writes.append({**entry, "stale": self.last.stale, "log_files_max": logs})

    def written(self) -> None:
        self.title("What was written")
        kinds: dict[str, list[dict[str, Any]]] = {}
        for entry in self.story.writes:
            kinds.setdefault(entry["what"], []).append(entry)
        rows = []
        for what, entries in kinds.items():
            seconds, count = sum(entry["seconds"] for entry in entries), sum(entry["rows"] for entry in entries)
            rows.append(
                [
                    what,
                    format_cell(len(entries)),
                    format_cell(count),
                    format_cell(sum(entry["bytes"] for entry in entries)),
                    f"{seconds:.1f}",
                    format_cell(int(count / max(seconds, 1e-3))),
                ]
            )
        self.grid(["write", "commits", "rows", "bytes", "seconds", "rows/s"], rows)
        self.say(
            "Arrivals include estimates that a later feed corrected. Departures include late repetitions, "
            "which must not overwrite newer rows."
        )

    def wait_for_worker(self) -> None:
        """Wait until the worker has compacted the last writes.

        The wait only makes the report more interesting: reads also merge log files before compaction.
        """
        end = time.monotonic() + 10
        while (
            self.table.maintenance.lag().open_plans or self.table.maintenance.lag().log_files_max >= 5
        ) and time.monotonic() < end:
            time.sleep(0.1)

    def compaction(self, records: list[dict[str, Any]]) -> None:
        done = [record for record in records if record["event"] == "compacted"]
        story, lag = self.story, self.table.maintenance.lag()
        story.compactions, story.compacted_groups = len(done), sum(record["groups"] for record in done)
        story.compacted_bytes = sum(record["bytes_read"] for record in done)
        self.title("What the worker process did meanwhile")
        self.say(
            f"{story.compactions} compactions of {story.compacted_groups} file groups, {story.compacted_bytes:,} "
            "bytes of bases and logs read. "
            f"Most logs a file group ever had: {story.log_files_max}; now {lag.log_files_max}."
        )
        self.check(
            "the worker exited after SIGTERM (exit code 0)",
            records[-1] == {"event": "exit", "code": 0},
        )

    # -- reads
    def reads(self) -> None:
        self.now()
        self.changed()
        self.as_it_was()

    def now(self) -> None:
        scan = self.table.scan()
        rows = self.engine.rows(scan)
        self.title(f"The table as it is: {len(rows):,} flights that left")
        wrong = self.expected.differences(rows)
        self.check(
            f"the table equals pandas on the source file, {len(self.expected.final):,} rows, column by column",
            not wrong,
        )
        if wrong:
            self.say(f"        different: {', '.join(wrong)}")
        gone = self.story.flights - len(rows)
        self.check(
            f"the {self.story.deleted:,} flights that never left are gone",
            gone == self.story.deleted == int(self.expected.all["dep_time"].isna().sum()),
        )

    def changed(self) -> None:
        found = self.engine.groups(self.table.incremental(since=self.story.cut), "carrier")
        self.title(
            f"Pulled incrementally: what changed since instant {self.story.cut} (the feeds up to 30 June), by carrier"
        )
        top = sorted(found.items(), key=lambda item: -item[1][0])[:6]
        self.grid(
            ["carrier", "flights", "mean arrival delay, min"],
            [[name, format_cell(count), "·" if mean is None else f"{mean:.1f}"] for name, (count, mean) in top],
        )
        self.check(
            "what changed equals pandas on the source file", _same(found, self.expected.count_changes_by_carrier(_CUT))
        )

    def as_it_was(self) -> None:
        then = self.engine.groups(self.table.scan(as_of=self.story.cut), "status")
        today = self.engine.groups(self.table.scan(), "status")
        self.title(f"Read as of instant {self.story.cut}, and at the newest commit")
        rows = [
            [status, format_cell(then.get(status, (0, None))[0]), format_cell(today.get(status, (0, None))[0])]
            for status in ("scheduled", "departed", "arrived")
        ]
        self.grid(["status", "then", "now"], rows)
        self.check(
            "the table as it was equals pandas on the source file",
            {status: count for status, (count, _) in then.items()} == self.expected.count_by_status(_CUT),
        )

    def timeline(self) -> None:
        entries = self.table.inspect.timeline()
        self.title(f"The timeline: {len(entries)} instants, the newest {min(len(entries), _TIMELINE_SHOWN)}")
        rows = [
            [
                str(e.slot),
                e.instant,
                e.action,
                e.state,
                e.operation,
                format_cell(e.inserted),
                format_cell(e.updated),
                format_cell(e.deleted),
            ]
            for e in entries[-_TIMELINE_SHOWN:]
        ]
        self.grid(["slot", "instant", "action", "state", "operation", "inserted", "updated", "deleted"], rows)

    def grid(self, names: list[str], rows: list[list[str]]) -> None:
        table = Grid(show_edge=False, pad_edge=False, header_style="bold")
        for number, name in enumerate(names):
            figures = all(row[number][:1].isdigit() or row[number][:1] in "-·" for row in rows)
            table.add_column(name, justify="right" if figures and name not in ("slot", "instant") else "left")
        for row in rows:
            table.add_row(*map(Text, row))
        self.to.print(table)


def _same(found: Groups, wanted: Groups) -> bool:
    def near(one: float | None, other: float | None) -> bool:
        return one is other if one is None or other is None else abs(one - other) < 1e-6

    return found.keys() == wanted.keys() and all(
        found[name][0] == wanted[name][0] and near(found[name][1], wanted[name][1]) for name in found
    )


def _farewell(story: DemoReport, to: Console) -> None:
    fine = all(story.checks.values())
    to.print()
    verdict = f"{len(story.checks)} checks hold" if fine else "SOME CHECKS FAILED"
    to.print(
        Text(
            f"Done in {story.seconds:.1f} s; {verdict}. The table stays at {format_value(story.path)}. Open it:",
            style="bold green" if fine else "bold red",
        )
    )
    to.print()
    for line in (
        "import hoodoo",
        f"flights = hoodoo.open({story.path!r})",
        "flights.scan(where=\"carrier = 'UA' AND dep_delay > 120\").to_pandas()",
    ):
        to.print(Text(f"    {line}"), soft_wrap=True)
    to.print()
    to.print(
        Text(f"or: hoodoo scan {format_value(story.path)} --where \"carrier = 'UA' AND dep_delay > 120\"", style="dim"),
        soft_wrap=True,
    )
