"""Loop that runs the services of one table.

Other tables and long compactions do not delay the loop or its heartbeats. A round heals the table and then runs each
service that is due. A failing service is retried with backoff, and does not prevent other services from running. If no
service is due, a round only checks whether there are new slots.

The hints in heartbeats/ only avoid duplicate work. Every worker produces the same output for a plan, and one slot
completes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hoodoo.compactor import heartbeats
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.service_log import log_event, log_failure
from hoodoo.compactor.service_turn import (
    LOOK_AGAIN_S,
    Backoff,
    Service,
    ServiceCounters,
    ServiceRun,
    ServiceState,
    WorkerSettings,
    change_hint_or_log_error,
)
from hoodoo.engine.protocol import Engine
from hoodoo.errors import TableNotFound, TableReplaced
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import HEARTBEATS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.context import Context

BEAT_S = 10.0
_STALE_HINT_S = 3600.0
_UNFIT_FAILURES = 3


@dataclass(frozen=True)
class ServiceTarget:
    """Table that a worker serves.

    `context` and `anew` raise HoodooError if the table cannot be served. `anew` opens the table that is at the path
    now, which may be a different table.
    """

    path: str
    context: Callable[[], Context]
    anew: Callable[[], ServiceTarget]


class LoopSettings(WorkerSettings, Protocol):
    """Settings of a worker loop.

    `progress` receives the table's path, and the finished and the total number of file groups of the running plan.
    """

    services: tuple[str, ...]
    grace_seconds: float
    stopped: threading.Event
    progress: Callable[[str, int, int], None]


class _CountingEngine:
    # Progress displays show the number. Tasks of a remote engine are not counted.
    def __init__(self, engine: Engine, tell: Callable[[int, int], None]) -> None:
        self._engine, self._tell = engine, tell
        self.remote, self.threads = engine.remote, engine.threads

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]:
        if self.remote:
            return self._engine.map(task, items, at_once, waiting)
        done = 0
        self._tell(0, len(items))

        def told(item: Any) -> Any:
            nonlocal done
            result = task(item)
            done += 1
            self._tell(done, len(items))
            return result

        return self._engine.map(told, items, at_once, waiting)


class ServiceLoop:
    """Loop that runs the services of one table.

    Metrics are read from `work` and `seen`.
    """

    def __init__(self, worker: LoopSettings, table: ServiceTarget, engine: Engine, limits: ServiceLimits) -> None:
        self.worker, self.table, self.limits = worker, table, limits
        self.engine = _CountingEngine(engine, lambda done, groups: worker.progress(table.path, done, groups))
        self.quiet = threading.Event()  # set when heartbeats have to stop
        self.backoff = Backoff(worker.poll_seconds)
        self.duties = {name: ServiceState(name, worker) for name in SERVICES if name in worker.services}
        self.seen: tuple[Context, TableConfig] | None = None
        self._healed = (0, 0.0)  # head and time of the last complete check of the table
        self._store: Store | None = None
        self._beating = threading.Thread(target=self._renew_heartbeats, name=f"beat {table.path}", daemon=True)
        self._beat_seconds = BEAT_S
        self._idle_since = time.monotonic()
        self._problem: heartbeats.ServiceProblem | None = None  # error of the newest round
        self._told: dict[str, heartbeats.ServiceProblem] = {}

    @property
    def work(self) -> dict[str, ServiceCounters]:
        return {name: duty.work for name, duty in self.duties.items()}

    @property
    def has_failing_work(self) -> bool:
        """True if a part of the work is failing."""
        return bool(self.backoff.failures or any(duty.parts or duty.backoff.failures for duty in self.duties.values()))

    # ---- the two threads
    def run(self) -> None:
        try:
            while not self.worker.stopped.is_set():
                busy, wait = self._guarded_round()
                if self.worker.once and not busy:
                    return
                if not busy:
                    self.worker.stopped.wait(wait)
        finally:
            self.quiet.set()
            if self._beating.ident:
                self._beating.join(self.worker.grace_seconds)

    def _guarded_round(self) -> tuple[bool, float]:
        # Returns whether the round did work, and the seconds to wait if it did not. Exceptions are logged and the round
        # is retried later, so that no error ends the loop.
        try:
            busy = self.run_due_services()
        except (TableReplaced, TableNotFound) as problem:
            return self._serve_new_table(problem)
        except Exception as problem:
            wait = self.backoff.failed()
            self._problem = heartbeats.ServiceProblem.of(self.worker.name, "round", problem, self._now_ms())
            log_failure("round_failed", problem, table=self.table.path, retry_seconds=wait)
            self._tell()
            return False, wait
        self.backoff.failures = 0
        self._problem = None
        self._tell()
        if busy:
            self._idle_since = time.monotonic()
        return busy, self.worker.poll_seconds

    def _now_ms(self) -> int:
        return self.seen[0].timeline.environment.now_ms() if self.seen else int(time.time() * 1000)

    def _serve_new_table(self, problem: TableReplaced | TableNotFound) -> tuple[bool, float]:
        # The previous table was replaced or was missing.
        try:
            self.table = self.table.anew()
        except Exception as refusal:
            wait = self.backoff.failed()
            missing = isinstance(refusal, TableNotFound)
            if not missing or self.backoff.failures == 1:  # log a missing table only once
                event = "table_missing" if missing else "round_failed"
                log_failure(event, refusal, table=self.table.path, retry_seconds=wait)
            return False, wait
        if isinstance(problem, TableReplaced):
            log_event(logging.WARNING, "table_replaced", table=self.table.path, message=str(problem))
        else:
            log_event(logging.INFO, "table_appeared", table=self.table.path)
        self.backoff.failures, self._problem, self.seen = 0, None, None
        self._told.clear()
        for duty in self.duties.values():
            duty.reset()
        return True, self.worker.poll_seconds

    def _tell(self) -> None:
        # The errors are stored with the table if they have changed since the last call.
        problems = {"round": self._problem} if self._problem else {}
        for duty in self.duties.values():
            problems |= duty.problems
        if problems != self._told and self._store is not None:
            self._hint(lambda store: heartbeats.replace_worker_errors(store, self.worker.name, problems.values()))
            self._told = problems

    def _renew_heartbeats(self) -> None:
        while not self.quiet.is_set():
            self._send_heartbeat()
            self.quiet.wait(self._beat_seconds)
        self._hint(lambda store: heartbeats.delete_heartbeat(store, self.worker.name))

    def _send_heartbeat(self) -> None:
        # A heartbeat is sent only if the worker runs a service with `spares_writers`, and no such service keeps
        # failing.
        spares = [duty for name, duty in self.duties.items() if SERVICES[name].spares_writers]
        tries = [self.backoff, *(part_backoff for duty in spares for part_backoff in duty.tries)]
        if spares and all(tried_backoff.failures < _UNFIT_FAILURES for tried_backoff in tries):
            self._hint(lambda store: heartbeats.beat(store, self.worker.name))
        for hint_key in [duty.holding for duty in self.duties.values() if duty.holding]:
            self._hint(
                lambda store, hint_key=hint_key: heartbeats.write_hint_if_table_exists(  # type: ignore[misc]
                    store, hint_key, self.worker.name.encode()
                )
            )

    def _hint(self, action: Callable[[Store], None], event: str = "beat_failed") -> None:
        assert self._store is not None
        change_hint_or_log_error(self.table.path, self._store, action, event)

    # ---- one round
    def run_due_services(self) -> bool:
        """Run each due service once.

        The table is repaired first. Returns True if more work may be left.
        """
        if self._is_idle():
            return False
        context = replace(self.table.context(), engine=self.engine)
        first, self._store = self._store is None, context.store
        self._beat_seconds = min(BEAT_S, context.timeline.last_state().config.options.worker_timeout_seconds / 3)
        if first:
            self._prepare_first_round()
        state = context.timeline.heal()
        if state.external:
            state = context.timeline.prepare_for_write()  # include the commits of other engines
        self._healed = state.view.seq, time.monotonic()
        self.seen = context, state.config
        busy = False
        for name, duty in self.duties.items():
            if self.worker.stopped.is_set():
                break
            turn = self._turn(context, state.config, duty)
            if self._is_due(SERVICES[name], duty, turn):
                busy |= self._serve(SERVICES[name], duty, turn)
        return busy

    def _is_idle(self) -> bool:
        # The table is unchanged since a recent check, and no service is due. Reads the store at most once, to find new
        # slots.
        seq, checked_at = self._healed
        if self.seen is None or self.backoff.failures or time.monotonic() - checked_at >= LOOK_AGAIN_S:
            return False
        context, config = self.seen
        if context.timeline.history.head().seq != seq:
            return False
        duties = self.duties.items()
        return not any(self._is_due(SERVICES[name], duty, self._turn(context, config, duty)) for name, duty in duties)

    def _turn(self, context: Context, config: TableConfig, duty: ServiceState) -> ServiceRun:
        return ServiceRun(
            context,
            config,
            context.timeline.history.known_head(),
            self.limits,
            self.worker.stopped.is_set,
            self.table.path,
            duty,
            time.monotonic() - self._idle_since,
        )

    def _is_due(self, service: Service, duty: ServiceState, turn: ServiceRun) -> bool:
        # A failed service is due as soon as its backoff is over.
        return not duty.backoff.is_before_next_attempt and (duty.backoff.failures > 0 or service.due(turn))

    def _serve(self, service: Service, duty: ServiceState, turn: ServiceRun) -> bool:
        try:
            busy = service.run(turn)
        except Exception as problem:
            duty.require_table_check()  # otherwise the next check would skip the unchanged table
            wait = duty.failed(problem, self._now_ms())
            log_failure("service_failed", problem, table=self.table.path, service=service.name, retry_seconds=wait)
            return False
        duty.succeeded()
        return busy

    def _prepare_first_round(self) -> None:
        # Sends the first heartbeat before the first round, which may be long.
        self._send_heartbeat()
        self._beating.start()
        self._hint(_sweep_hints, "sweep_failed")


def _sweep_hints(store: Store) -> None:
    now_ms = time.time() * 1000
    for key, _ in list(store.list(HEARTBEATS)):
        modified_ms = store.modified_ms(key)
        if modified_ms is not None and now_ms - modified_ms > _STALE_HINT_S * 1000:
            store.delete(key)
