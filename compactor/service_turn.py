"""Table services, and one turn of a service.

A service has a name, a function that decides whether it is due, and a function that runs it. A writer gives each
service a turn after its commit, and a worker does so in each round. Both use the list in service_list.py.

Work is a service if users choose it by name, or if it needs separate failures, backoff and metrics. Other work is a
step of a service: orphan removal and the expiry of partitions are steps of cleaning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from hoodoo.compactor import heartbeats
from hoodoo.compactor.catalog_entries import CatalogEntries
from hoodoo.compactor.limits import ServiceLimits, never
from hoodoo.compactor.service_log import log_event, log_failure
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context

LOOK_AGAIN_S = 15.0  # interval at which an unchanged table is checked for work that is due because of its age
# after this idle time a worker also takes work that another worker holds, because that worker may hang
_PATIENCE_S = 300.0
_BACKOFF_MAX_S = 60.0
NO_LIMITS = ServiceLimits()


@dataclass(frozen=True)
class Service:
    """Table service such as compaction or cleaning.

    Attributes:
        name: The name that the argument `services` of a worker accepts.
        due: Function that returns whether the service should run. It does not access the store, except to check for a
            live worker (`Turn.has_live_worker`).
        run: Function that runs the service for one turn. It returns True if there may be more work.
        spares_writers: True if a worker's heartbeat means that the worker runs this service. A worker sends heartbeats
            only if it runs such a service, and stops sending them while such a service keeps failing. Writers that see
            a heartbeat may leave work to the worker. The `due` function of each service decides this.
    """

    name: str
    due: Callable[[ServiceRun], bool]
    run: Callable[[ServiceRun], bool]
    spares_writers: bool = False


@dataclass
class ServiceCounters:
    """Number of runs, files, bytes and failures of a table service.

    Attributes:
        runs: Number of turns that did some work.
        groups: Number of file groups that were rewritten.
        bytes_read: Number of bytes that were read.
        bytes_written: Number of bytes that were written.
        bytes_deleted: Number of bytes that were deleted.
        seconds: Duration of the turns, in seconds.
        failures: Number of failures, of whole turns and of parts of their work.
    """

    runs: int = 0
    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0
    seconds: float = 0.0
    failures: int = 0

    def add(self, done: ServiceCounters) -> None:
        self.runs += done.runs
        self.groups += done.groups
        self.bytes_read += done.bytes_read
        self.bytes_written += done.bytes_written
        self.bytes_deleted += done.bytes_deleted
        self.seconds += done.seconds


class Backoff:
    """Exponential backoff after failures."""

    def __init__(self, base_seconds: float) -> None:
        self.base_seconds, self.failures, self.at = base_seconds, 0, 0.0

    def failed(self) -> float:
        self.failures += 1
        wait = round(min(_BACKOFF_MAX_S, self.base_seconds * 2.0 ** min(self.failures, 16)), 3)
        self.at = time.monotonic() + wait
        return wait

    def reset(self) -> None:
        self.failures, self.at = 0, 0.0

    @property
    def is_before_next_attempt(self) -> bool:
        return time.monotonic() < self.at


class WorkerSettings(Protocol):
    """Settings of a worker for its services.

    `entries` are the catalog entries to update, by table path.
    """

    name: str
    poll_seconds: float
    once: bool
    logs_min: int | None
    entries: Mapping[str, CatalogEntries]


class ServiceState:
    """State of one service on one table.

    A worker keeps it between runs of the service. `parts` contains the backoff of each failed part of the work, by
    name. `problems` contains the last error of each failing part, and of the service itself, until a later attempt
    succeeds.
    """

    def __init__(self, service: str, worker: WorkerSettings) -> None:
        self.service, self.worker, self.work = service, worker, ServiceCounters()
        self.backoff = Backoff(worker.poll_seconds)
        self.parts: dict[str, Backoff] = {}
        self.problems: dict[str, heartbeats.ServiceProblem] = {}
        self.holding = ""  # key of the hint for the part that is being worked on
        self.clocks: dict[str, float] = {}  # time of the next run of each periodic task, by the monotonic clock
        self.done_at_commit = 0
        self._looked_at = (0, 0.0)

    @property
    def tries(self) -> list[Backoff]:
        return [self.backoff, *self.parts.values()]

    def reset(self) -> None:
        """Reset the state of the service.

        The counters in `work` stay. Call it when another table is at the path.
        """
        self.backoff.reset()
        self.parts.clear()
        self.problems.clear()
        self.clocks.clear()
        self.done_at_commit = 0
        self.require_table_check()

    # ---- time of the last check
    def changed(self, view: View) -> bool:
        seq, checked_at = self._looked_at
        return seq != view.seq or time.monotonic() - checked_at >= LOOK_AGAIN_S

    def looked(self, view: View) -> None:
        self._looked_at = view.seq, time.monotonic()

    def require_table_check(self) -> None:
        self._looked_at = (0, 0.0)

    # ---- periodic tasks
    def is_time(self, what: str, first_seconds: float = 0.0) -> bool:
        now = time.monotonic()
        return now >= self.clocks.setdefault(what, now + first_seconds)

    def schedule_next_run(self, what: str, seconds: float) -> None:
        self.clocks[what] = time.monotonic() + seconds

    # ---- failures
    def failed(self, problem: Exception, now_ms: int, part: str = "") -> float:
        backoff = self.parts.setdefault(part, Backoff(self.worker.poll_seconds)) if part else self.backoff
        self.work.failures += 1
        failing_name = part or self.service
        self.problems[failing_name] = heartbeats.ServiceProblem.of(self.worker.name, failing_name, problem, now_ms)
        return backoff.failed()

    def succeeded(self, part: str = "") -> None:
        self.problems.pop(part or self.service, None)
        if part:
            self.parts.pop(part, None)
        else:
            self.backoff.failures = 0

    def waits(self, part: str) -> bool:
        return part in self.parts and self.parts[part].is_before_next_attempt


@dataclass(frozen=True)
class ServiceRun:
    """One run of a table service.

    `view` is the newest view at the beginning of the turn. `duty` is the state that the worker keeps for the service,
    or None if a writer runs the turn after its commit. `idle_seconds` is the time that the worker has been idle.
    """

    context: Context
    config: TableConfig
    view: View
    limits: ServiceLimits = NO_LIMITS
    stopped: Callable[[], bool] = never
    table: str = ""
    duty: ServiceState | None = None
    idle_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def now_ms(self) -> int:
        return self.context.timeline.environment.now_ms()

    def has_live_worker(self) -> bool:
        return heartbeats.any_worker_sent_heartbeat(
            self.context.store, self.now_ms, self.config.options.worker_timeout_seconds
        )

    def enough_commits_since(self, commit: int) -> bool:
        every = self.config.options.clean_every
        return bool(every) and self.view.commits - commit >= (every or 0)

    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)

    # ---- log records and counters of a worker
    def tell(self, event: str, done: ServiceCounters | None = None, /, **fields: Any) -> None:
        if self.duty is None:
            return
        if done:
            self.duty.work.add(done)
        log_event(logging.INFO, event, table=self.table, **fields)

    @contextmanager
    def claim_work(self, key: str) -> Iterator[bool]:
        """Claim work for this worker.

        The claim is a file that other workers see. Yields False if another worker holds the claim.

        A hint only avoids duplicate work, so two holders do no harm. The worker's heartbeat renews the hint.
        """
        assert self.duty is not None
        is_holder = self._take(self.duty, key)
        try:
            self.duty.holding = key if is_holder else ""
            yield is_holder
        finally:
            self.duty.holding = ""
            if is_holder:
                change_hint_or_log_error(self.table, self.context.store, lambda store: store.delete(key))

    def _take(self, duty: ServiceState, key: str) -> bool:
        store, modified_ms = self.context.store, self.context.store.modified_ms(key)
        if modified_ms is None:
            try:
                store.put_if_absent(key, duty.worker.name.encode(), durable=False)
            except FileExistsError:
                return False
            return True
        if self.idle_seconds < _PATIENCE_S and self.now_ms - modified_ms < heartbeats.PLAN_FRESH_S * 1000:
            return False
        store.put(key, duty.worker.name.encode())
        return True


def change_hint_or_log_error(
    table: str, store: Store, action: Callable[[Store], None], event: str = "beat_failed"
) -> None:
    try:
        action(store)
    except Exception as problem:
        log_failure(event, problem, table=table)
