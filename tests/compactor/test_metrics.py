"""What a worker tells Prometheus, and what `services` tells a person: right figures, and advice that names the state it
is about.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S, wait_for
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tables import later

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.status.advice import amount, span
from hoodoo.compactor.worker import ServiceTarget, Worker
from hoodoo.errors import StoreUnavailable
from hoodoo.timeline.layout import HEARTBEATS

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])


def batch(ids: range, part: str, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "part": [part] * len(ids), "ts": [ts] * len(ids)}, SCHEMA)


def make(path: Path, **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="part",
        order_by="ts",
        **{"compact_after_logs": None, "clean_every": None, **options},
    )


def samples(url: str) -> dict[tuple[str, ...], float]:
    """(name, label values in order of name) -> value of every sample."""
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


@contextmanager
def serving(worker: Worker, caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """A running worker; the URL of its metrics."""
    caplog.set_level("INFO", "hoodoo.worker")
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        url: str = wait_for(lambda: next(iter(_served(caplog)), None), "start")  # type: ignore[assignment]
        wait_for(lambda: all(loop.seen or loop.backoff.failures for loop in worker.loops), "a round of each table")
        yield url
    finally:
        worker.stop()
        thread.join(PATIENCE_S)


def _served(caplog: pytest.LogCaptureFixture) -> list[str]:
    """URLs of the metrics of workers that said that they have started."""
    events = [getattr(entry, "hoodoo", {}) for entry in caplog.records]
    return [event["metrics"] for event in events if event.get("event") == "started"]


# ---- metrics
def test_the_figures_of_a_table_are_served_in_prometheus_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make(tmp_path / "t", slow_after_logs=3)
    table.upsert(batch(range(10), "a", 0))
    table.upsert(batch(range(10), "b", 0))
    for ts in range(3):
        table.upsert(batch(range(10), "a", 1 + ts))
    view = table.handle.history.head()
    [behind] = view.groups(["part=a"])
    worker = Worker([later(table, 1)], ["archive"], poll_seconds=0.05, metrics_port=0)
    with serving(worker, caplog) as url:
        assert url.startswith("http://127.0.0.1:") and url.endswith("/metrics")
        found = samples(url)
    path = table.path
    assert found["hoodoo_up", path] == 1
    assert found["hoodoo_head_slot", path] == view.seq
    assert found["hoodoo_delta_bytes", path] == sum(log.file.size for log in behind.logs)
    assert (
        found["hoodoo_logs_per_file_group_max", path],
        found["hoodoo_file_groups", path],
        found["hoodoo_file_groups_behind", path],
    ) == (3, 2, 1)
    assert found["hoodoo_logs_per_file_group_bucket", "0.0", path] == 1
    assert (
        found["hoodoo_logs_per_file_group_bucket", "5.0", path] == 2 == found["hoodoo_logs_per_file_group_count", path]
    )
    assert found["hoodoo_logs_per_file_group_sum", path] == 3
    assert found["hoodoo_read_amplification_ratio", path] > 1
    assert found["hoodoo_lag_commits", path] == 3 and found["hoodoo_lag_seconds", path] > 3000
    assert found["hoodoo_small_files", path] == 2 and found["hoodoo_file_median_bytes", path] > 0
    assert found["hoodoo_backpressure", path] == 1
    assert found["hoodoo_service_runs_total", "archive", path] == 0
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(url, timeout=2)  # a worker that ended serves nothing


def test_names_follow_prometheus_conventions_and_nothing_is_registered_globally(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path / "t")
    with serving(Worker([table], ["archive"], poll_seconds=0.05, metrics_port=0), caplog) as url:
        text = urllib.request.urlopen(url, timeout=10).read().decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) > 20
    for family in families:
        assert family.name.startswith("hoodoo_") and family.documentation
        assert not any(unit in family.name for unit in ("_ms", "_mb", "_kb", "_hours", "_percent"))
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("hoodoo")]


def test_work_is_counted_by_service_and_failures_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", clean_every=1, retain_hours=0, retain_commits=1)
    for ts in range(8):
        table.upsert(batch(range(10), "a", ts))
    table.set_options(compact_after_logs=10)

    def broken(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr("hoodoo.compactor.clustering.cluster.pack_small_files", broken)
    worker = Worker([table], poll_seconds=0.02, metrics_port=0)
    with serving(worker, caplog) as url:
        wait_for(
            lambda: all(
                samples(url)[name, service, table.path]
                for name, service in (
                    ("hoodoo_service_runs_total", "compact"),
                    ("hoodoo_service_failures_total", "cluster"),
                )
            ),
            "a compaction and a failed clustering",
        )
        found = samples(url)
        assert found["hoodoo_service_file_groups_total", "compact", table.path] == 1
        assert found["hoodoo_service_read_bytes_total", "compact", table.path] > 0
        assert found["hoodoo_service_written_bytes_total", "compact", table.path] > 0
        assert found["hoodoo_service_seconds_total", "compact", table.path] > 0
        assert found["hoodoo_up", table.path] == 0  # clustering fails, and is not hidden by the services that work
    assert table.maintenance.lag().log_files_max == 0


def test_a_table_that_cannot_be_reached_is_down_and_the_others_are_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path / "t")

    def broken() -> Any:
        raise StoreUnavailable("away")

    with serving(
        Worker([table, ServiceTarget("gone", broken, broken)], poll_seconds=0.05, metrics_port=0), caplog
    ) as url:
        found = samples(url)
    assert (found["hoodoo_up", table.path], found["hoodoo_up", "gone"]) == (1, 0)
    assert ("hoodoo_head_slot", "gone") not in found


def test_plans_are_counted_by_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make(tmp_path / "t")
    for part in "ab":
        for ts in range(2):
            table.upsert(batch(range(10), part, ts))
        assert plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    running = min(table.handle.history.head().plans)
    table.handle.store.put(heartbeats.running_plan_hint_path(running), b"another")
    aged = later(table, 10 / 3600)  # a hint that is older than 30 s would be that of a dead worker
    with serving(Worker([aged], ["archive"], poll_seconds=0.05, metrics_port=0), caplog) as url:
        found = samples(url)
    assert {
        state: found["hoodoo_compaction_plans", state, table.path] for state in ("open", "running", "postponed")
    } == {"open": 1, "running": 1, "postponed": 0}
    assert found["hoodoo_oldest_plan_age_seconds", table.path] > 5


def test_a_port_that_is_taken_is_an_error_before_anything_is_served(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(hoodoo.OptionError, match=rf"{port} of 127\.0\.0\.1 .* Choose another port"):
            Worker([make(tmp_path / "t")], metrics_port=port).run()


def test_metrics_are_served_at_the_given_address_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker([make(tmp_path / "t")], poll_seconds=0.05, metrics_port=0, metrics_address="127.0.0.2")
    with serving(worker, caplog) as url:
        assert url.startswith("http://127.0.0.2:") and urllib.request.urlopen(url, timeout=10).status == 200
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url.replace("127.0.0.2", "127.0.0.1"), timeout=2)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_url_of_an_ipv6_address_has_brackets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker([make(tmp_path / "t")], poll_seconds=0.05, metrics_port=0, metrics_address="::1")
    with serving(worker, caplog) as url:
        assert url.startswith("http://[::1]:") and urllib.request.urlopen(url, timeout=10).status == 200


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="metrics_port"):
        Worker([make(tmp_path / "t")], metrics_port=70_000)


# ---- advice
def advice(table: hoodoo.Table) -> str:
    return "\n".join(table.maintenance.services().advice)


def test_where_nothing_is_behind_there_is_no_advice(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch(range(10), "a", 0))
    found = table.maintenance.services()
    assert (found.advice, found.workers, found.plans, found.held) == ((), {}, {}, {})
    assert found.figures.groups == 1


def test_logs_without_a_worker_advise_to_start_one_and_with_one_to_start_more(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for ts in range(3):
        table.upsert(batch(range(10), "a", ts))
    assert advice(table) == ""
    ahead = later(table, 3)
    assert (
        "No worker has sent a heartbeat here and 1 file group has logs, the oldest for 3 h: "
        f"start `hoodoo worker {table.path}`." in advice(ahead)
    )
    heartbeats.beat(table.handle.store, "w1")
    aged = time.time() - 7 * 3600
    os.utime(Path(table.path, HEARTBEATS, heartbeats.WORKER + "w1"), (aged, aged))
    assert "No worker has sent a heartbeat for 10 h and 1 file group" in advice(ahead)
    heartbeats.beat(table.handle.store, "w1")
    table.set_options(compact_age_seconds=None, compact_after_logs=10)
    for ts in range(15):
        table.upsert(batch(range(10), "a", 10 + ts))
    assert "1 worker cannot keep up: 1 file group has logs" in advice(table)
    assert list(table.maintenance.services().workers) == ["w1"]


def test_a_plan_that_nobody_runs_and_one_that_hangs_are_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for ts in range(2):
        table.upsert(batch(range(10), "a", ts))
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    assert plan and re.search(rf"Plan {plan.instant} has been waiting for \d+ s: `hoodoo compact", advice(table))
    ahead = later(table, 2)
    assert f"Plan {plan.instant} has been open for 2 h, but no worker runs it" in advice(
        ahead
    ) and f"`hoodoo compact {table.path}`" in advice(ahead)
    table.handle.store.put(heartbeats.running_plan_hint_path(plan.instant), b"w1")
    soon = time.time() + 2 * 3600
    os.utime(Path(table.path, heartbeats.running_plan_hint_path(plan.instant)), (soon, soon))
    assert f"Plan {plan.instant} has been run by w1 for 2 h: it may hang" in advice(ahead)
    table.compact()
    assert "Plan" not in advice(ahead)


def test_what_keeps_cleaning_from_deleting_is_named_with_its_bytes(tmp_path: Path) -> None:
    table = make(tmp_path / "t", retain_hours=0, retain_commits=1, type="copy_on_write")
    first = table.upsert(batch(range(10), "a", 0))
    table.savepoints.create("eod")
    second = table.upsert(batch(range(10), "a", 1))
    pin = table.pin(as_of=second.cursor)
    third = table.upsert(batch(range(10), "a", 2))
    reader = table.consumer("billing", start=third.cursor)
    table.upsert(batch(range(10), "a", 3))
    table.maintenance.clean()
    sizes = {entry.added: entry.size for entry in table.handle.history.head().superseded}
    found = table.maintenance.services()
    assert found.held == {
        "savepoint eod": sizes[first.cursor.seq],
        f"pinned slot {second.cursor.seq}": sizes[second.cursor.seq],
        "consumer billing": sizes[third.cursor.seq],
    }
    assert (
        f"Cleaning cannot delete {amount(sizes[first.cursor.seq])}: savepoint eod holds them; `hoodoo savepoint "
        f"{table.path} eod --delete`"
    ) in advice(table)
    assert f"pinned slot {second.cursor.seq} holds them; they can be deleted after" in advice(table)
    assert "consumer billing has not read past them; the consumer must commit" in advice(table)
    table.savepoints.delete("eod")
    pin.release()
    reader.drop()
    table.maintenance.clean()
    assert table.maintenance.services().held == {} and advice(table) == ""


def test_a_consumer_that_is_no_longer_waited_for_is_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t", retain_hours=0, retain_commits=1, consumer_hours=1, type="copy_on_write")
    table.upsert(batch(range(10), "a", 0))
    table.consumer("billing", start=table.cursor)
    table.upsert(batch(range(10), "a", 1))
    assert "no longer keeps" not in advice(table)
    assert "Consumer billing lags by 1 slot, and cleaning no longer keeps files for it" in advice(later(table, 2))


def test_a_table_that_nobody_cleans_and_writes_that_never_ended_are_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t", retain_hours=0, retain_commits=1, type="copy_on_write")
    for ts in range(3):
        table.upsert(batch(range(10), "a", ts))
    assert f"could be cleaned and no clean ran for 4 commits: `hoodoo clean {table.path}`" in advice(table)
    instant = table.handle.context().timeline.begin("commit").instant
    assert "never finished" not in advice(table)
    assert (
        f"1 write began more than a day ago and never finished, the first {instant}: `hoodoo sweep {table.path}`"
        in advice(later(table, 25))
    )


def test_writers_that_wait_and_files_that_are_small_are_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t", slow_after_logs=2)
    for ts in range(3):
        table.upsert(batch(range(10), "a", ts))
    assert "Writers wait after each commit: a file group has 2 logs, but slow_after_logs is 2." in advice(table)
    for number in range(6):
        table.insert(batch(range(100 + number, 101 + number), "b", 0), bulk=True)
    assert f"6 small files could be packed into 1: `hoodoo cluster {table.path}`" in advice(table)
    table.maintenance.cluster()
    assert "small files" not in advice(table)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_lengths_of_time_are_said_in_one_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (4_000_000_000, "4 GB"),
        (5e15, "5e+03 TB"),
        (2.5e12, "2.5 TB"),
    ],
)
def test_amounts_are_said_in_one_unit(size: float, said: str) -> None:
    assert amount(size) == said
