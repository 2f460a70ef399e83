"""When a job looks at its source again, how fast it goes, and what ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hoodoo.errors import CommitConflict, DataError, HoodooError, SourceUnavailable, StoreFull, StoreUnavailable
from hoodoo.ingestion import scheduler, stopping
from hoodoo.ingestion.pace import JobSpeedLimit, Stopwatch
from hoodoo.ingestion.report import BatchReport
from hoodoo.ingestion.scheduler import RACES_MAX, SchedulableJob, ScheduledJob
from hoodoo.sources import Limits


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stopped = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()

    def is_set(self) -> bool:
        return self.stopped.is_set()

    def set(self) -> None:
        self.stopped.set()


class Job:
    """What happens at each look: rows, None for nothing new, or an error. When each look was is in `looks`."""

    def __init__(self, clock: Clock, *events: Any, pace: JobSpeedLimit = JobSpeedLimit(), name: str = "job") -> None:  # noqa: B008
        self.clock, self.events, self.pace, self.name = clock, list(events), pace, name
        self.looks = list[float]()
        self.lag, self.fine, self.table = None, True, None
        self.report = SimpleNamespace(lost_races=0, retries=0)

    def take(self, goes_on: bool = False) -> BatchReport | None:
        self.looks.append(self.clock.now)
        if not self.events:
            self.clock.set()
            return None
        event = self.events.pop(0)
        if isinstance(event, Exception):
            raise event
        return None if event is None else BatchReport(self.name, 0, "", event, 0, 0)

    def measure_lag(self) -> None:
        self.measured = self.clock.now

    def ended(self) -> None:
        self.over = True

    def count(self, lost_races: int = 0, retries: int = 0) -> None:
        self.report.lost_races += lost_races
        self.report.retries += retries


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scheduler, "time", clock)
    monkeypatch.setattr(scheduler.random, "uniform", lambda low, high: high)
    return clock


def run(
    clock: Clock, *jobs: Job, once: bool = False, failure: Callable[[SchedulableJob, HoodooError], None] | None = None
) -> None:
    each: Any = [ScheduledJob(job, once, 5.0) for job in jobs]  # type: ignore[arg-type]
    scheduler.run_jobs(each, clock, failure)  # type: ignore[arg-type]


def test_a_job_looks_again_at_once_after_a_batch_and_after_a_while_where_nothing_was_new(clock: Clock) -> None:
    job = Job(clock, 10, 10, None, None, 10)
    run(clock, job)
    assert job.looks == [100, 100, 100, 105, 110, 110]


def test_a_while_of_any_length_is_waited_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock.set()
        return True

    monkeypatch.setattr(clock, "wait", wait)
    run(clock, Job(clock, 10, 10, pace=JobSpeedLimit(min_seconds=1e12)))
    assert waits == [threading.TIMEOUT_MAX]


def test_commits_of_a_job_that_goes_on_are_kept_apart_and_those_of_one_that_ends_are_not(clock: Clock) -> None:
    job = Job(clock, 10, 10, None, pace=JobSpeedLimit(min_seconds=3))
    run(clock, job)
    assert job.looks == [100, 103, 106, 111]
    once = Job(clock, 10, 10, None, pace=JobSpeedLimit(min_seconds=3))
    clock.stopped.clear()
    run(clock, once, once=True)
    assert once.looks == [111, 111, 111]


def test_rows_come_no_faster_than_they_may(clock: Clock) -> None:
    pace = JobSpeedLimit(rows_per_second=100)
    assert (
        pace.limit_rows_by_rate(Limits(500_000)).rows == 1_000
        and JobSpeedLimit().limit_rows_by_rate(Limits(500_000)).rows == 500_000
    )
    assert JobSpeedLimit(rows_per_second=0.01).limit_rows_by_rate(Limits(5)).rows == 1
    job = Job(clock, 1_000, 200, None, pace=pace)
    run(clock, job, once=True)
    assert job.looks == [100, 110, 112]


def test_a_store_that_does_not_answer_is_waited_for_longer_and_longer_and_named(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hoodoo.ingest")
    job = Job(clock, *[StoreUnavailable("no answer")] * 12, 1)
    run(clock, job)
    waits = [round(later - earlier, 3) for earlier, later in zip(job.looks, job.looks[1:], strict=False)]
    assert waits[:12] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 30]
    assert job.report.retries == 12
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3 and "no answer" in said[0] and "times=10" in said[1] and "responds again" in said[2]


def test_a_job_that_ends_gives_up_a_store_that_never_answers(clock: Clock) -> None:
    with pytest.raises(StoreUnavailable):
        run(clock, Job(clock, *[StoreUnavailable("no answer")] * 5), once=True)


def test_a_store_without_room_is_waited_for_and_named(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "hoodoo.ingest")
    job = Job(clock, *[StoreFull("No space left.")] * 3, 1)
    run(clock, job)
    waits = [round(later - earlier, 3) for earlier, later in zip(job.looks, job.looks[1:], strict=False)]
    assert waits[:3] == [0.2, 0.4, 0.8] and job.report.retries == 3 and job.fine
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "store is full" in said[0] and "No space left" in said[0] and "responds again" in said[1]


def test_a_job_that_ends_gives_up_a_store_that_stays_full(clock: Clock) -> None:
    job = Job(clock, *[StoreFull("No space left.")] * 6)
    with pytest.raises(StoreFull):
        run(clock, job, once=True)
    assert len(job.looks) == 5


def test_a_job_that_goes_on_stands_by_where_another_process_is_always_first(clock: Clock) -> None:
    job = Job(clock, *[CommitConflict("first")] * (RACES_MAX + 1), 1)
    run(clock, job)
    assert job.looks == [*[100] * RACES_MAX, 105, 110, 110] and job.report.lost_races == RACES_MAX + 1


def test_a_job_that_ends_says_where_another_process_is_always_first(clock: Clock) -> None:
    with pytest.raises(CommitConflict):
        run(clock, Job(clock, *[CommitConflict("first")] * RACES_MAX), once=True)


def test_jobs_take_turns_and_one_that_fails_keeps_no_other_from_its_own(clock: Clock) -> None:
    failed = list[str]()
    good, bad = Job(clock, 1, None, 1, name="good"), Job(clock, 1, DataError("damaged"), 1, name="bad")
    run(clock, bad, good, failure=lambda job, problem: failed.append(f"{job.name}: {problem.message}"))
    assert failed == ["bad: damaged"] and not bad.fine and good.fine
    assert good.looks == [100, 100, 105, 105]


def test_a_batch_is_told_though_nobody_can_say_what_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    job, told = Job(clock, 7, None), list[BatchReport]()

    def away() -> None:
        raise SourceUnavailable("no answer")

    monkeypatch.setattr(job, "measure_lag", away)
    each: Any = [ScheduledJob(job, True, 5.0, told.append, measure_lag=True)]  # type: ignore[arg-type]
    scheduler.run_jobs(each, clock)  # type: ignore[arg-type]
    assert [batch.rows for batch in told] == [7] and job.fine and job.report.retries == 0


def test_a_watch_tells_phases_apart_and_waiting_from_writing() -> None:
    ticks = iter([0.0, 1.0, 3.0, 6.0])
    watch = Stopwatch(lambda: next(ticks))
    for phase in ("plan", "read", "write"):
        watch.ended(phase)
    watch.waited(2.0)
    assert watch.seconds == {"plan": 1, "read": 2, "write": 1, "wait": 2}


# ---- signals
@pytest.fixture
def ignored() -> Any:
    """SIGTERM does nothing, whatever did it before."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_batch_in_hand_has_some_time_and_then_the_process_ends(ignored: Any) -> None:
    ended = list[int]()
    over = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    with stopping.end_process_within(0.01, end):
        signal.raise_signal(signal.SIGTERM)
        over.wait()
    assert ended == [stopping.GAVE_UP]


def test_the_second_signal_does_not_wait_for_the_batch_in_hand(ignored: Any) -> None:
    ended = list[int]()
    over = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    with stopping.end_process_within(1_000_000, end):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        over.wait()
    assert ended == [128 + signal.SIGTERM]


def test_a_process_that_is_done_in_time_ends_as_it_wants(ignored: Any) -> None:
    ended = list[int]()
    with stopping.end_process_within(1_000_000, ended.append):
        signal.raise_signal(signal.SIGTERM)
    assert ended == [] and signal.set_wakeup_fd(-1) == -1
