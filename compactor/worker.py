"""A process that compacts and cleans tables beside their writers, so that writers need not.

Any number of workers may serve one table, and one worker many tables: a plan's output is the same whoever makes it and its completion
is one slot, so the hints in heartbeats/ only save work. A worker that dies leaves a plan that another one runs.
Knows nothing of how tables are opened, nor of how its records reach a person.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hoodoo.compactor import inline, plans
from hoodoo.compactor.archive import archive
from hoodoo.compactor.clean import clean
from hoodoo.compactor.sweep import sweep
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import OptionError, TryAgainError
from hoodoo.storage.redact import redact
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.layout import HEARTBEATS
from hoodoo.timeline.options import Options
from hoodoo.timeline.view import FileGroup, Plan, View
from hoodoo.writers.operations import Context

log = logging.getLogger("hoodoo.worker")
SERVICES = ("compact", "clean")
BEAT_S = 10.0
_PATIENCE_S = 300.0  # ... unless there was nothing else to do for this long: its holder may hang
_STALE_HINT_S = 3600.0
_SWEEP_EVERY_S = 3600.0
_ORPHAN_HOURS = 24.0  # a write that began longer ago and is pending still counts as dead
_OLD_DELTA_S = 600.0  # logs older than this are compacted however few they are
_BYTES_MIN = 1 << 20  # below this many log bytes only their number and age count: a tiny table would be compacted after every commit
_PLAN_GROUPS = 64  # file groups of one plan: few enough that several workers share a table
_LOOK_AGAIN_S = 15.0  # how often an unchanged table is looked over for what grew old
_BACKOFF_MAX_S = 60.0
_GRACE_S = 8.0
_UNFIT_FAILURES = 3


@dataclass(frozen=True)
class Served:
    """What a worker needs of a table; the facade gives it. Both calls look at the table anew and raise HoodooError if it cannot be served."""

    path: str
    context: Callable[[], Context]
    config: Callable[[], TableConfig]


@dataclass(frozen=True)
class Outcome:
    """How a worker ended. failed: tables whose last round raised; finished: False if a file group in hand outlived the grace period."""

    failed: tuple[str, ...]
    finished: bool


def record(event: str, fields: dict[str, Any]) -> str:
    """One line `event=... key=value ...`: values without blanks stand bare, others as JSON text, so that no control character gets through."""
    return " ".join(f"{name}={_plain(value)}" for name, value in {"event": event, **fields}.items())


def _plain(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[\w.,/:@+*-]+", text, re.ASCII) else json.dumps(text)


def say(level: int, event: str, **fields: Any) -> None:
    """Log a record; handlers that want fields find them in `.hoodoo`."""
    safe = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
    log.log(level, "%s", record(event, safe), extra={"hoodoo": {"event": event, **safe}})


def due(view: View, logs_min: int, old_before_seq: int) -> list[FileGroup]:
    """File groups worth compacting now, most logs first: many logs, many log bytes against the base's, or logs up to slot `old_before_seq`."""

    def is_due(group: FileGroup) -> bool:
        log_bytes = sum(entry.file.size for entry in group.logs)
        base_bytes = group.base.file.size if group.base else 0
        return len(group.logs) >= logs_min or log_bytes > max(base_bytes // 2, _BYTES_MIN) or group.logs[0].seq <= old_before_seq

    return [group for group in plans.behind(view, 1) if is_due(group)]


def default_logs_min(options: Options) -> int:
    """Half of what makes a writer compact by itself, so that a living worker is always first."""
    default = Options.compact_after_logs or 1
    return max(1, (default if options.compact_after_logs is None else options.compact_after_logs) // 2)


class _Permits:
    """Runs tasks in this process, at most one per core over all tables together: memory does not grow with the number of tables."""

    remote = False

    def __init__(self) -> None:
        self._local = LocalEngine()
        self._permits = threading.BoundedSemaphore(self._local.threads)

    def map(self, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        def permitted(item: Any) -> Any:
            with self._permits:
                return task(item)

        return self._local.map(permitted, items)


class _Backoff:
    """Failures in a row, and when to try again."""

    def __init__(self, base_s: float) -> None:
        self.base_s, self.failures, self.at = base_s, 0, 0.0

    def failed(self) -> float:
        """Count a failure; seconds to wait."""
        self.failures += 1
        wait = round(min(_BACKOFF_MAX_S, self.base_s * 2.0 ** min(self.failures, 16)), 3)
        self.at = time.monotonic() + wait
        return wait

    @property
    def waiting(self) -> bool:
        return time.monotonic() < self.at


class Worker:
    """Serves tables until `stop()`, SIGTERM or SIGINT; with `once`, until nothing is left to do.

    services: which of 'compact' and 'clean'. poll_s: seconds between looks at an idle table.
    logs_min: logs of one file group that make it due (default: half the table's compact_after_logs).
    """

    def __init__(
        self,
        tables: Sequence[Served],
        services: Iterable[str] = SERVICES,
        poll_s: float = 1.0,
        once: bool = False,
        logs_min: int | None = None,
        grace_s: float = _GRACE_S,
    ) -> None:
        self.services = tuple(services)
        for name in self.services:
            if name not in SERVICES:
                raise OptionError(f"Unknown service {name!r}; known: {', '.join(SERVICES)}.", option="services")
        if not self.services or not tables:
            raise OptionError("A worker needs at least one table and one service.", option="services" if tables else "tables")
        if poll_s <= 0:
            raise OptionError(f"poll_s takes a positive number of seconds, got {poll_s!r}.", option="poll_s")
        if logs_min is not None and logs_min < 1:
            raise OptionError(f"logs_min takes a whole number from 1, got {logs_min!r}.", option="logs_min")
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.poll_s, self.once, self.logs_min, self.grace_s = poll_s, once, logs_min, grace_s
        self.stopped = threading.Event()
        self._stopped_at = 0.0
        engine = _Permits()
        self._servants = [_Servant(self, table, engine) for table in tables]

    def stop(self) -> None:
        """End soon: file groups in hand are finished, the rest of their plan is left to others. Safe in signal handlers and threads."""
        self._stopped_at = self._stopped_at or time.monotonic()
        self.stopped.set()
        for servant in self._servants:
            servant.quiet.set()

    def run(self) -> Outcome:
        """Serve. In the main thread SIGTERM and SIGINT stop it; their former handlers are put back at the end."""
        with self._signals():
            say(logging.INFO, "started", worker=self.name, tables=len(self._servants), services=",".join(self.services))
            threads = [threading.Thread(target=servant.run, name=f"serve {servant.table.path}", daemon=True) for servant in self._servants]
            for thread in threads:
                thread.start()
            finished = all([self._ended(thread) for thread in threads])
            failed = tuple(servant.table.path for servant in self._servants if servant.failing)
            say(logging.INFO, "stopped", worker=self.name, finished=finished)
            return Outcome(failed, finished)

    def _ended(self, thread: threading.Thread) -> bool:
        while thread.is_alive():
            thread.join(0.2)
            if self.stopped.is_set() and time.monotonic() - self._stopped_at > self.grace_s:
                return not thread.is_alive()
        return True

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Servant:
    """Serves one table, on a thread of its own, with another one that beats: neither another table nor a long compaction holds it up."""

    def __init__(self, worker: Worker, table: Served, engine: _Permits) -> None:
        self.worker, self.table, self.engine = worker, table, engine
        self.quiet = threading.Event()  # no more heartbeats
        self.backoff = _Backoff(worker.poll_s)
        self._postponed: dict[str, _Backoff] = {}
        self._store: Store | None = None
        self._beating = threading.Thread(target=self._keep_beating, name=f"beat {table.path}", daemon=True)
        self._beat_s = BEAT_S
        self._holding = ""
        self._idle_since = time.monotonic()
        self._looked_at: dict[str, tuple[int, float]] = {}
        self._sweep_at = time.monotonic() + _SWEEP_EVERY_S

    @property
    def failing(self) -> bool:
        """Did the last round, or the last run of a plan that is still open, raise?"""
        return bool(self.backoff.failures or self._postponed)

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
                self._beating.join(self.worker.grace_s)

    def _guarded_round(self) -> tuple[bool, float]:
        """Was there anything to do, and how long to wait if not. Whatever goes wrong is logged and tried again: a service must outlive it."""
        try:
            busy = self.round()
        except Exception as problem:
            wait = self.backoff.failed()
            self._failed("round_failed", problem, retry_s=wait)
            return False, wait
        self.backoff.failures = 0
        if busy:
            self._idle_since = time.monotonic()
        return busy, self.worker.poll_s

    def _keep_beating(self) -> None:
        while not self.quiet.is_set():
            self._beat()
            self.quiet.wait(self._beat_s)
        self._try("beat_failed", lambda store: inline.stop_beating(store, self.worker.name))

    def _beat(self) -> None:
        """Only who compacts keeps writers from doing so, and only while it succeeds."""
        if "compact" in self.worker.services and self.backoff.failures < _UNFIT_FAILURES:
            self._try("beat_failed", lambda store: inline.beat(store, self.worker.name))
        if held := self._holding:
            self._try("beat_failed", lambda store: store.put(held, self.worker.name.encode()))

    def _try(self, event: str, action: Callable[[Store], None]) -> None:
        """Do something that is only a hint: a failure is logged."""
        assert self._store is not None
        try:
            action(self._store)
        except Exception as problem:
            self._failed(event, problem)

    def _failed(self, event: str, problem: Exception, **fields: Any) -> None:
        level = logging.WARNING if isinstance(problem, TryAgainError) else logging.ERROR
        say(level, event, table=self.table.path, **fields, error=type(problem).__name__, message=str(problem))

    # ---- one round
    def round(self) -> bool:
        """Heal, then the most urgent thing there is; True if there may be more."""
        context = replace(self.table.context(), engine=self.engine)
        config = self.table.config()
        first, self._store = self._store is None, context.store
        self._beat_s = min(BEAT_S, config.options.worker_timeout_s / 3)
        if first:
            self._start()
        view = context.timeline.heal()
        if "compact" in self.worker.services and (self._run_open(context, view) or self._compact_due(context, config, view)):
            return True
        return "clean" in self.worker.services and self._clean(context, config, view)

    def _start(self) -> None:
        """Beat before anything else: the first round may be a long one. Then sweep what workers that were killed left."""
        self._beat()
        self._beating.start()
        self._try("sweep_failed", _sweep_hints)

    def _changed(self, service: str, view: View) -> bool:
        """Is a look worth it: is the head another than at this service's last look, or was that long ago?"""
        seq, at = self._looked_at.get(service, (0, 0.0))
        if seq == view.seq and time.monotonic() - at < _LOOK_AGAIN_S:
            return False
        self._looked_at[service] = view.seq, time.monotonic()
        return True

    def _run_open(self, context: Context, view: View) -> bool:
        for instant in set(self._postponed) - set(view.plans):
            del self._postponed[instant]
        for plan in sorted(view.plans.values(), key=lambda plan: plan.seq):
            if self.worker.stopped.is_set():
                return False
            waits = plan.instant in self._postponed and self._postponed[plan.instant].waiting
            if not waits and self._run(context, plan):
                return True
        return False

    def _compact_due(self, context: Context, config: TableConfig, view: View) -> bool:
        if self.worker.stopped.is_set() or not self._changed("compact", view):
            return False
        logs_min = self.worker.logs_min or default_logs_min(config.options)

        def choose(newest: View) -> list[FileGroup]:
            return due(newest, logs_min, self._old_before(context, newest))[:_PLAN_GROUPS]

        plan = plans.schedule(context, choose)
        if plan is None:
            return False
        say(logging.INFO, "planned", table=self.table.path, instant=plan.instant, groups=len(plan.groups))
        self._looked_at.pop("compact", None)  # there may be more groups than one plan takes
        self._run(context, plan)
        return True

    def _old_before(self, context: Context, view: View) -> int:
        """The newest slot that was complete `_OLD_DELTA_S` ago; 0 if none was."""
        history = context.timeline.history
        before = context.timeline.environment.now_ms() - int(_OLD_DELTA_S * 1000)
        return min(view.seq, history.last_completed_by(before)) if history.slot(history.oldest_slot()).completed_at <= before else 0

    def _run(self, context: Context, plan: Plan) -> bool:
        """Run `plan` unless somebody else does. False: it was left alone, or failed and is postponed."""
        with self._hold(context, plan) as held:
            if not held:
                return False
            began = time.monotonic()
            try:
                result = plans.run(context, plan, self.worker.stopped.is_set)
            except Exception as problem:
                wait = self._postponed.setdefault(plan.instant, _Backoff(self.worker.poll_s)).failed()
                self._failed("plan_failed", problem, instant=plan.instant, retry_s=wait)
                return False
        fields = {"table": self.table.path, "instant": plan.instant, "seconds": round(time.monotonic() - began, 3)}
        if result.instants:
            say(logging.INFO, "compacted", **fields, groups=result.groups, bytes_read=result.bytes_read, bytes_written=result.bytes_written)
        else:
            say(logging.INFO, "plan_left" if self.worker.stopped.is_set() else "plan_done_by_another", **fields)
        return True

    @contextmanager
    def _hold(self, context: Context, plan: Plan) -> Iterator[bool]:
        """Say that this worker runs `plan`, if nobody else does. A hint: two holders do no harm."""
        key = inline.plan_hint(plan.instant)
        held = self._take(context, key)
        try:
            self._holding = key if held else ""
            yield held
        finally:
            self._holding = ""
            if held:
                self._try("beat_failed", lambda store: store.delete(key))

    def _take(self, context: Context, key: str) -> bool:
        store, at = context.store, context.store.modified_ms(key)
        if at is None:
            try:
                store.put_if_absent(key, self.worker.name.encode(), durable=False)
            except FileExistsError:
                return False
            return True
        patient = time.monotonic() - self._idle_since < _PATIENCE_S
        if patient and context.timeline.environment.now_ms() - at < inline.PLAN_FRESH_S * 1000:
            return False
        store.put(key, self.worker.name.encode())
        return True

    def _clean(self, context: Context, config: TableConfig, view: View) -> bool:
        every = config.options.clean_every
        if not self.worker.stopped.is_set() and time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_EVERY_S
            swept = sweep(context.timeline, _ORPHAN_HOURS)
            if swept.rolled_back or swept.files:
                say(logging.INFO, "swept", table=self.table.path, rolled_back=swept.rolled_back, files=swept.files, bytes=swept.bytes)
        if self.worker.stopped.is_set() or not every or view.commits - view.cleaned_at_commit < every or not self._changed("clean", view):
            return False
        result = clean(context.timeline, config)
        archived = archive(context.timeline, config)
        if archived.slots or archived.instants:
            say(logging.INFO, "archived", table=self.table.path, slots=archived.slots, instants=archived.instants)
        if result.files:
            say(logging.INFO, "cleaned", table=self.table.path, instant=result.instant, files=result.files, bytes=result.bytes)
        return bool(result.files)


def _sweep_hints(store: Store) -> None:
    now_ms = time.time() * 1000
    for key, _ in list(store.list(HEARTBEATS)):
        at = store.modified_ms(key)
        if at is not None and now_ms - at > _STALE_HINT_S * 1000:
            store.delete(key)


__all__ = ["SERVICES", "Outcome", "Served", "Worker", "record", "say"]
