"""One table's rounds of services, on a thread of its own, with another one that beats: neither another table nor a long
compaction holds it up.

A round heals the table, then runs each service in turn; one that fails is put off and keeps no other from its turn. The
hints in heartbeats/ only save work: a plan's output is the same whoever makes it, and its completion is one slot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning import retention
from hoodoo.compactor.cleaning.archive import archive
from hoodoo.compactor.cleaning.clean import clean
from hoodoo.compactor.cleaning.sweep import sweep
from hoodoo.compactor.clustering import cluster
from hoodoo.compactor.compaction import log_compaction, plans
from hoodoo.compactor.compaction.strategies import CompactionPlan
from hoodoo.compactor.compaction.triggers import Triggers, due
from hoodoo.compactor.limits import Limits
from hoodoo.compactor.service_log import failure, say
from hoodoo.errors import TableReplaced
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.layout import HEARTBEATS
from hoodoo.timeline.view import FileGroup, Plan, View
from hoodoo.writers.operations import Context, Engine

BEAT_S = 10.0
# a plan that another worker holds is left alone, unless there was nothing else to do for this long: its holder may hang
_PATIENCE_S = 300.0
_STALE_HINT_S = 3600.0
_HOUR_S = 3600.0  # between sweeps, and between cleans and archivings of a table that is not written
_EXPIRE_EVERY_S = 600.0
_ORPHAN_HOURS = 24.0  # a write that began longer ago and is pending still counts as dead
_LOOK_AGAIN_S = 15.0  # how often an unchanged table is looked over for what grew old
_BACKOFF_MAX_S = 60.0
_UNFIT_FAILURES = 3
_UNITS = 8


@dataclass(frozen=True)
class ServiceTarget:
    """What a worker needs of a table; the facade gives it. Each call looks at the table anew and raises HoodooError if
    it cannot be served. anew: the table that is at its path now, which may be another one.
    """

    path: str
    context: Callable[[], Context]
    config: Callable[[], TableConfig]
    anew: Callable[[], ServiceTarget]


class WorkerSettings(Protocol):
    """What a loop asks of its worker. progress: told of file groups of the plan in hand, done and all."""

    name: str
    services: tuple[str, ...]
    poll_s: float
    once: bool
    logs_min: int | None
    grace_s: float
    stopped: threading.Event
    progress: Callable[[str, int, int], None]


@dataclass
class Work:
    """What a service did on one table since the worker started."""

    runs: int = 0
    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0
    seconds: float = 0.0
    failures: int = 0


class Backoff:
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


class _Counting:
    """An engine that tells how many of the tasks in hand are done, as far as this process knows."""

    def __init__(self, engine: Engine, tell: Callable[[int, int], None]) -> None:
        self._engine, self._tell = engine, tell
        self.remote, self.threads = engine.remote, engine.threads

    def map(self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None) -> list[Any]:
        if self.remote:
            return self._engine.map(task, items, at_once)
        done = 0
        self._tell(0, len(items))

        def told(item: Any) -> Any:
            nonlocal done
            result = task(item)
            done += 1
            self._tell(done, len(items))
            return result

        return self._engine.map(told, items, at_once)


class ServiceLoop:
    """Serves one table for `worker` until it stops; `work` and `seen` are for those who measure."""

    def __init__(self, worker: WorkerSettings, table: ServiceTarget, engine: Engine, limits: Limits) -> None:
        self.worker, self.table, self.limits = worker, table, limits
        self.engine = _Counting(engine, lambda done, groups: worker.progress(table.path, done, groups))
        self.quiet = threading.Event()  # no more heartbeats
        self.backoff = Backoff(worker.poll_s)
        self.postponed: dict[str, Backoff] = {}
        self.work = {name: Work() for name in worker.services}
        self.seen: tuple[Context, TableConfig] | None = None
        self._unmerged: dict[str, Backoff] = {}  # file groups whose logs could not be merged
        self._put_off = {name: Backoff(worker.poll_s) for name in worker.services}
        self._store: Store | None = None
        self._beating = threading.Thread(target=self._keep_beating, name=f"beat {table.path}", daemon=True)
        self._beat_s = BEAT_S
        self._holding = ""
        self._idle_since = time.monotonic()
        self._looked_at: dict[str, tuple[int, float]] = {}
        self._next = {"sweep": time.monotonic() + _HOUR_S, "expire": 0.0, "clean": 0.0, "archive": 0.0}
        self._archived_at_commit = 0
        self._problems: dict[str, heartbeats.Problem] = {}  # service -> its last error, until it succeeds
        self._told: dict[str, heartbeats.Problem] = {}

    @property
    def failing(self) -> bool:
        """Did the last round, a service in it, or the last run of a plan or merge of logs that is still owed, raise?"""
        return bool(
            self.backoff.failures
            or self.postponed
            or self._unmerged
            or any(one.failures for one in self._put_off.values())
        )

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
        """Was there anything to do, and how long to wait if not. Whatever goes wrong is logged and tried again: a
        service must outlive it.
        """
        try:
            busy = self.round()
        except TableReplaced as problem:
            return self._take_up(problem)
        except Exception as problem:
            wait = self.backoff.failed()
            self._failed("round", problem)
            failure("round_failed", problem, table=self.table.path, retry_s=wait)
            self._tell()
            return False, wait
        self.backoff.failures = 0
        self._problems.pop("round", None)
        self._tell()
        if busy:
            self._idle_since = time.monotonic()
        return busy, self.worker.poll_s

    def _take_up(self, problem: TableReplaced) -> tuple[bool, float]:
        """Serve the table that was created in place of the one that was dropped: nothing known of that one counts."""
        try:
            self.table = self.table.anew()
        except Exception as refusal:  # there is none yet, or one that cannot be served
            wait = self.backoff.failed()
            failure("round_failed", refusal, table=self.table.path, retry_s=wait)
            return False, wait
        say(logging.WARNING, "table_replaced", table=self.table.path, message=str(problem))
        self.backoff.failures, self._archived_at_commit = 0, 0
        for known in (self.postponed, self._unmerged, self._looked_at, self._problems, self._told):
            known.clear()
        for each in self._put_off.values():
            each.failures, each.at = 0, 0.0
        self.seen = None
        return True, self.worker.poll_s

    # ---- what failed, for whoever asks the table
    def _failed(self, service: str, problem: Exception) -> None:
        now_ms = self.seen[0].timeline.environment.now_ms() if self.seen else int(time.time() * 1000)
        self._problems[service] = heartbeats.Problem.of(self.worker.name, service, problem, now_ms)

    def _tell(self) -> None:
        """Leave what fails beside the table, if it is another thing than last time."""
        if self._problems != self._told and self._store is not None:
            told = dict(self._problems)
            self._try("beat_failed", lambda store: heartbeats.tell(store, self.worker.name, told.values()))
            self._told = told

    def _keep_beating(self) -> None:
        while not self.quiet.is_set():
            self._beat()
            self.quiet.wait(self._beat_s)
        self._try("beat_failed", lambda store: heartbeats.stop_beating(store, self.worker.name))

    def _beat(self) -> None:
        """Only who compacts keeps writers from doing so, and only while it succeeds with all there is."""
        if "compact" in self._put_off and all(one.failures < _UNFIT_FAILURES for one in self._tries()):
            self._try("beat_failed", lambda store: heartbeats.beat(store, self.worker.name))
        if held := self._holding:
            self._try("beat_failed", lambda store: heartbeats.leave(store, held, self.worker.name.encode()))

    def _tries(self) -> list[Backoff]:
        """What a compaction goes through, as far as it failed lately."""
        return [self.backoff, self._put_off["compact"], *list(self.postponed.values()), *list(self._unmerged.values())]

    def _try(self, event: str, action: Callable[[Store], None]) -> None:
        """Do something that is only a hint: a failure is logged."""
        assert self._store is not None
        try:
            action(self._store)
        except Exception as problem:
            failure(event, problem, table=self.table.path)

    # ---- one round
    def round(self) -> bool:
        """Heal, then each service in turn; True if there may be more to do."""
        context = replace(self.table.context(), engine=self.engine)
        config = self.table.config()
        first, self._store = self._store is None, context.store
        self._beat_s = min(BEAT_S, config.options.worker_timeout_s / 3)
        if first:
            self._start()
        context.timeline.heal()
        self.seen = context, config
        busy = False
        for name, service in SERVICES.items():
            if self.worker.stopped.is_set():
                break
            if name in self.worker.services and not self._put_off[name].waiting:
                busy |= self._serve(name, service, context, config)
        return busy

    def _serve(self, name: str, service: Service, context: Context, config: TableConfig) -> bool:
        try:
            busy = service(self, context, config, context.timeline.history.head())
        except Exception as problem:
            self.work[name].failures += 1
            self._looked_at.pop(name, None)  # else the next look would take an unchanged table for one that is in order
            wait = self._put_off[name].failed()
            self._failed(name, problem)
            failure("service_failed", problem, table=self.table.path, service=name, retry_s=wait)
            return False
        self._put_off[name].failures = 0
        self._problems.pop(name, None)
        return busy

    def _start(self) -> None:
        """Beat before anything else: the first round may be a long one. Then sweep what workers
        that were killed left.
        """
        self._beat()
        self._beating.start()
        self._try("sweep_failed", _sweep_hints)

    def did(
        self,
        service: str,
        seconds: float,
        groups: int = 0,
        bytes_read: int = 0,
        bytes_written: int = 0,
        bytes_deleted: int = 0,
    ) -> None:
        work = self.work[service]
        work.runs += 1
        work.groups += groups
        work.bytes_read += bytes_read
        work.bytes_written += bytes_written
        work.bytes_deleted += bytes_deleted
        work.seconds += seconds

    def changed(self, service: str, view: View) -> bool:
        """Is a look worth it: is the head another than at this service's last look, or was that long ago?"""
        seq, at = self._looked_at.get(service, (0, 0.0))
        if seq == view.seq and time.monotonic() - at < _LOOK_AGAIN_S:
            return False
        self._looked_at[service] = view.seq, time.monotonic()
        return True

    def due(self, what: str) -> bool:
        return not self.worker.stopped.is_set() and time.monotonic() >= self._next[what]

    # ---- compaction
    def compact(self, context: Context, config: TableConfig, view: View) -> bool:
        """Run plans that are open, else plan and run what is due."""
        return self._run_open(context, view) or self._compact_due(context, config, view)

    def _run_open(self, context: Context, view: View) -> bool:
        for instant in set(self.postponed) - set(view.plans):
            del self.postponed[instant]
            self._problems.pop(f"plan {instant}", None)
        for plan in sorted(view.plans.values(), key=lambda plan: plan.seq):
            if self.worker.stopped.is_set():
                return False
            waits = plan.instant in self.postponed and self.postponed[plan.instant].waiting
            if not waits and self._run(context, plan):
                return True
        return False

    def _compact_due(self, context: Context, config: TableConfig, view: View) -> bool:
        if self.worker.stopped.is_set() or not self.changed("compact", view):
            return False
        triggers = Triggers.of(config.options, self.worker.logs_min)

        def split(newest: View) -> tuple[list[FileGroup], list[FileGroup]]:
            return log_compaction.split(due(context.timeline, newest, triggers), self.limits)

        def heavy(newest: View) -> CompactionPlan:
            return plans.BY_LOG_SIZE.plan(newest, split(newest)[1])

        merged, problem = self._merge_light(context, lambda newest: split(newest)[0])
        plan = plans.schedule(context, heavy)
        if plan:
            say(logging.INFO, "planned", table=self.table.path, instant=plan.instant, groups=len(plan.groups))
            self._looked_at.pop("compact", None)  # there may be more groups than one plan takes
            self._run(context, plan)
        if problem:
            raise problem
        return merged or plan is not None

    def _merge_light(self, context: Context, light: Callable[[View], list[FileGroup]]) -> tuple[bool, Exception | None]:
        """Merge logs; a failure is returned, for what else is due. Groups whose logs are still there then are left
        alone for a while.
        """
        owed = {group.file_id for group in light(context.timeline.history.head())}
        self._unmerged = {file_id: tried for file_id, tried in self._unmerged.items() if file_id in owed}

        def choose(newest: View) -> list[FileGroup]:
            return [
                group
                for group in light(newest)
                if group.file_id not in self._unmerged or not self._unmerged[group.file_id].waiting
            ]

        try:
            return self._merge_logs(context, choose), None
        except Exception as problem:
            failed = {
                group.file_id: self._unmerged.get(group.file_id) or Backoff(self.worker.poll_s)
                for group in choose(context.timeline.history.head())
            }
            for tried in failed.values():
                tried.failed()
            self._unmerged = self._unmerged | failed
            return False, problem

    def _merge_logs(self, context: Context, choose: Callable[[View], list[FileGroup]]) -> bool:
        """Merge logs among themselves where a full compaction would rewrite a large base for little."""
        began = time.monotonic()
        result = log_compaction.compact_logs(context, choose, self.worker.stopped.is_set, self.limits)
        if not result.groups:
            return False
        seconds = round(time.monotonic() - began, 3)
        self.did("compact", seconds, result.groups, result.bytes_read, result.bytes_written)
        say(
            logging.INFO,
            "logs_merged",
            table=self.table.path,
            instant=result.instant,
            groups=result.groups,
            logs=result.logs,
            seconds=seconds,
        )
        return True

    def _run(self, context: Context, plan: Plan) -> bool:
        """Run `plan` unless somebody else does. False: it was left alone, or failed and is postponed."""
        with self._hold(context, plan) as held:
            if not held:
                return False
            began = time.monotonic()
            try:
                result = plans.run(context, plan, self.worker.stopped.is_set, self.limits)
            except Exception as problem:
                wait = self.postponed.setdefault(plan.instant, Backoff(self.worker.poll_s)).failed()
                self.work["compact"].failures += 1
                self._failed(f"plan {plan.instant}", problem)
                failure("plan_failed", problem, table=self.table.path, instant=plan.instant, retry_s=wait)
                return False
        self._problems.pop(f"plan {plan.instant}", None)
        seconds = round(time.monotonic() - began, 3)
        fields = {"table": self.table.path, "instant": plan.instant, "seconds": seconds}
        if result.instants:
            self.did("compact", seconds, result.groups, result.bytes_read, result.bytes_written)
            say(
                logging.INFO,
                "compacted",
                **fields,
                groups=result.groups,
                bytes_read=result.bytes_read,
                bytes_written=result.bytes_written,
            )
        else:
            say(logging.INFO, "plan_left" if self.worker.stopped.is_set() else "plan_done_by_another", **fields)
        return True

    @contextmanager
    def _hold(self, context: Context, plan: Plan) -> Iterator[bool]:
        """Say that this worker runs `plan`, if nobody else does. A hint: two holders do no harm."""
        key = heartbeats.plan_hint(plan.instant)
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
        if patient and context.timeline.environment.now_ms() - at < heartbeats.PLAN_FRESH_S * 1000:
            return False
        store.put(key, self.worker.name.encode())
        return True

    # ---- the others
    def cluster(self, context: Context, config: TableConfig, view: View) -> bool:
        """Pack small files, a few units a round: logs may have grown meanwhile."""
        if not self.changed("cluster", view):
            return False
        began = time.monotonic()
        result = cluster.pack(context, self.limits, self.worker.stopped.is_set, units=_UNITS)
        if not result.units:
            return False
        seconds = round(time.monotonic() - began, 3)
        self.did("cluster", seconds, result.units, result.bytes_read, result.bytes_written)
        say(
            logging.INFO,
            "clustered",
            table=self.table.path,
            units=result.units,
            yielded=result.yielded,
            files_before=result.files_before,
            files_after=result.files_after,
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
            seconds=seconds,
        )
        return True

    def clean(self, context: Context, config: TableConfig, view: View) -> bool:
        """Drop partitions that outlived their time, delete what dead writers left, then what
        retention does not keep.
        """
        hours = config.options.partition_ttl_hours
        if hours is not None and self.due("expire"):
            expired, _ = retention.expire(context, hours)
            self._next["expire"] = time.monotonic() + _EXPIRE_EVERY_S
            if expired.instant:
                say(
                    logging.INFO,
                    "expired",
                    table=self.table.path,
                    instant=expired.instant,
                    partitions=len(expired.partitions),
                    rows=expired.rows,
                )
        if self.due("sweep"):
            swept = sweep(context.timeline, _ORPHAN_HOURS)
            self._next["sweep"] = time.monotonic() + _HOUR_S
            if swept.rolled_back or swept.files:
                say(
                    logging.INFO,
                    "swept",
                    table=self.table.path,
                    rolled_back=swept.rolled_back,
                    files=swept.files,
                    bytes=swept.bytes,
                    **swept.kinds,
                )
        wanted = self._every(config, view, view.cleaned_at_commit) or self.due("clean") or self.worker.once
        if self.worker.stopped.is_set() or not wanted or not self.changed("clean", view):
            return False
        began = time.monotonic()
        result = clean(context.timeline, config)
        self._next["clean"] = time.monotonic() + _HOUR_S
        if result.files:
            self.did("clean", time.monotonic() - began, bytes_deleted=result.bytes)
            say(
                logging.INFO,
                "cleaned",
                table=self.table.path,
                instant=result.instant,
                files=result.files,
                bytes=result.bytes,
            )
        return bool(result.files)

    def archive(self, context: Context, config: TableConfig, view: View) -> bool:
        """Archive as often as the table is cleaned."""
        if not self._every(config, view, self._archived_at_commit) and not self.due("archive"):
            return False
        began = time.monotonic()
        result = archive(context.timeline, config)
        self._archived_at_commit, self._next["archive"] = view.commits, time.monotonic() + _HOUR_S
        if result.slots or result.instants:
            self.did("archive", time.monotonic() - began)
            say(logging.INFO, "archived", table=self.table.path, slots=result.slots, instants=result.instants)
        return False

    def _every(self, config: TableConfig, view: View, commit: int) -> bool:
        """Are as many commits since that one as the table takes between two cleans?"""
        every = config.options.clean_every
        return every is not None and view.commits - commit >= every


Service = Callable[[ServiceLoop, Context, TableConfig, View], bool]
SERVICES: dict[str, Service] = {
    "compact": ServiceLoop.compact,
    "cluster": ServiceLoop.cluster,
    "clean": ServiceLoop.clean,
    "archive": ServiceLoop.archive,
}
"""In the order of a round. Each returns True if there may be more to do at once."""


def _sweep_hints(store: Store) -> None:
    now_ms = time.time() * 1000
    for key, _ in list(store.list(HEARTBEATS)):
        at = store.modified_ms(key)
        if at is not None and now_ms - at > _STALE_HINT_S * 1000:
            store.delete(key)
