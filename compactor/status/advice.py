"""Advice on a table's services, such as compaction that lags."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hoodoo.compactor import heartbeats
from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.compactor.cleaning.retention import (
    Retention,
    find_oldest_kept_snapshot,
    list_consumers_delaying_cleaning,
    retention,
)
from hoodoo.compactor.cleaning.sweep import pending_writes_before
from hoodoo.compactor.clustering.units import plan_packing
from hoodoo.compactor.compaction.triggers import CompactionTriggers
from hoodoo.compactor.heartbeats import PLAN_FRESH_S, WORKER, ServiceProblem, running_plan_hint_path
from hoodoo.compactor.status.figures import TableFigures, compute_figures
from hoodoo.errors import StoreDenied, StoreFull, StoreRefused
from hoodoo.format.names import instant_of_ms
from hoodoo.storage.store import Store
from hoodoo.timeline.holds import consumers, leases
from hoodoo.timeline.layout import HEARTBEATS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

_ORPHAN_MS = 86_400_000
_PATIENCE = 3  # work counts as late after this multiple of its expected time


@dataclass(frozen=True)
class Services:
    """State of a table's services.

    Attributes:
        figures: The figures about the services and the layout of the table.
        workers: Seconds since the last heartbeat of each worker, by worker name.
        plans: Seconds since a process last reported that it runs the plan, by instant of each open plan. None if no
            process reported it.
        held: Bytes beyond retention that a savepoint, a pinned slot or a consumer keeps, by holder.
        advice: Recommended actions, then the state of open plans and the holders of files, one sentence each. Empty if
            all services are up to date and nothing holds files.
        owners: The worker that runs the plan, by instant of each open plan. '' if no worker runs it.
        plan_ages: Age of each open plan in seconds, by instant.
        dead: The names of workers whose last heartbeat is older than the option `worker_timeout_seconds`.
        problems: The last error of each failing service, newest first.
        lags: True if a service is late or failed. False if `advice` is empty, or only reports open plans on schedule
            and files that a savepoint, a pinned slot or a consumer keeps.
    """

    figures: TableFigures
    workers: dict[str, float]
    plans: dict[str, float | None]
    held: dict[str, int]
    advice: tuple[str, ...]
    owners: dict[str, str] = field(default_factory=dict)
    plan_ages: dict[str, float] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    problems: tuple[ServiceProblem, ...] = ()
    lags: bool = False


def services(timeline: TableTimeline, config: TableConfig, view: View, path: str) -> Services:
    return _StateOfServices(timeline, config, view, path).all()


class _StateOfServices:
    def __init__(self, timeline: TableTimeline, config: TableConfig, view: View, path: str) -> None:
        self.timeline, self.config, self.view, self.path = timeline, config, view, path
        self.now = timeline.environment.now_ms()
        self.keep: Retention = retention(config.options)
        self.figures = compute_figures(timeline, self.view, config)
        self.leased = self._leased()

    @property
    def store(self) -> Store:
        return self.timeline.store

    def all(self) -> Services:
        workers = {key[len(HEARTBEATS + WORKER) :]: self._age(key) for key, _ in self.store.list(HEARTBEATS + WORKER)}
        seen_workers = {name: age for name, age in workers.items() if age is not None}
        plans = {instant: self._age(running_plan_hint_path(instant)) for instant in self.view.plans}
        owners = {instant: heartbeats.find_plan_worker(self.store, instant) for instant in plans}
        ages = {instant: max(0.0, (self.now - plan.planned_at) / 1000) for instant, plan in self.view.plans.items()}
        dead = tuple(name for name, age in seen_workers.items() if age >= self.config.options.worker_timeout_seconds)
        problems = tuple(heartbeats.problems(self.store))
        held_bytes = self._bytes_kept_by_holder()
        late_plans, other_plans = self._describe_open_plans(plans, owners)
        advice = (
            *self._about_problems(problems),
            *self._about_workers(seen_workers, dead),
            *self._about_compaction(seen_workers),
            *late_plans,
            *self._about_cleaning(),
            *self._about_consumers(),
            *self._about_layout(set(seen_workers) - set(dead)),
            *self._about_exports(),
        )
        return Services(
            self.figures,
            seen_workers,
            plans,
            held_bytes,
            (*advice, *other_plans, *self._about_kept_files(held_bytes)),
            owners,
            ages,
            dead,
            problems,
            lags=bool(advice),
        )

    def _leased(self) -> set[int]:
        try:
            return leases.list_protected_commits(self.store)
        except (
            StoreDenied,
            StoreFull,
            StoreRefused,
        ):  # reading leases writes to the store to learn its time, and the caller may lack the permission
            return set()

    def _age(self, key: str) -> float | None:
        modified_ms = self.store.modified_ms(key)
        return None if modified_ms is None else max(0.0, (self.now - modified_ms) / 1000)

    # ---- workers and errors
    def _about_problems(self, problems: tuple[ServiceProblem, ...]) -> Iterator[str]:
        for problem in problems:
            file = f" on {problem.file}" if problem.file and problem.file not in problem.message else ""
            when = dt.datetime.fromtimestamp(problem.at_ms / 1000, dt.timezone.utc).isoformat(timespec="seconds")
            yield (
                f"{problem.service.capitalize()} failed in {problem.worker} "
                f"{span(max(0, self.now - problem.at_ms) / 1000)} ago ({when.replace('+00:00', 'Z')}){file}: "
                f"{problem.error}: {problem.message}"
            )

    def _about_workers(self, workers: dict[str, float], dead: tuple[str, ...]) -> Iterator[str]:
        alive = len(workers) - len(dead)
        for name in dead:
            remedy = "other workers are alive" if alive else f"start another worker: `hoodoo worker {self.path}`"
            yield f"Worker {name} is dead or hangs: its last heartbeat was {span(workers[name])} ago; {remedy}."

    # ---- compaction
    def _about_compaction(self, workers: dict[str, float]) -> Iterator[str]:
        figures, options = self.figures, self.config.options
        triggers = CompactionTriggers.from_table_options(options)
        has_many = triggers.logs is not None and figures.logs_max >= triggers.logs * _PATIENCE
        is_old = triggers.age_seconds is not None and figures.lag_seconds > triggers.age_seconds * _PATIENCE
        alive = [age for age in workers.values() if age < options.worker_timeout_seconds]
        if figures.groups_behind and (has_many or is_old):
            verb = "has" if figures.groups_behind == 1 else "have"
            lag_text = (
                f"{several(figures.groups_behind, 'file group')} {verb} logs, the oldest for "
                f"{span(figures.lag_seconds)}"
            )
            if alive:
                yield (
                    f"{several(len(alive), 'worker')} cannot keep up: {lag_text}, one with {figures.logs_max}: "
                    f"start more of `hoodoo worker {self.path}`, on other machines."
                )
            else:
                since = f"for {span(min(workers.values()))}" if workers else "here"
                yield f"No worker has sent a heartbeat {since} and {lag_text}: start `hoodoo worker {self.path}`."
        if figures.backpressure:
            yield (
                f"Writers wait after each commit: a file group has {figures.logs_max} logs, but "
                f"slow_after_logs is {options.slow_after_logs}."
            )

    def _describe_open_plans(
        self, plans: dict[str, float | None], owners: dict[str, str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        # Sentences about late plans come first.
        late, on_schedule = list[str](), list[str]()
        for instant, hint in plans.items():
            # the time of a plan may be ahead of the clock
            age = max(0.0, (self.now - self.view.plans[instant].planned_at) / 1000)
            owner = owners[instant] or "an unknown worker"
            if age > PLAN_FRESH_S * _PATIENCE and (hint is None or hint > PLAN_FRESH_S):
                late.append(
                    f"Plan {instant} has been open for {span(age)}, but no worker runs it: its worker died or "
                    f"hangs. `hoodoo compact {self.path}` or any worker completes it."
                )
            elif age > 3600:
                late.append(
                    f"Plan {instant} has been run by {owner} for {span(age)}: "
                    "it may hang. Check its log. A second worker may run the plan at the same time."
                )
            elif hint is None or hint > PLAN_FRESH_S:
                on_schedule.append(
                    f"Plan {instant} has been waiting for {span(age)}: `hoodoo compact {self.path}` or any "
                    "worker completes it."
                )
            else:
                on_schedule.append(f"Plan {instant} has been run by {owner} for {span(age)}.")
        return late, on_schedule

    # ---- cleaning
    def _bytes_kept_by_holder(self) -> dict[str, int]:
        # Keys are savepoints, pinned slots and consumers.
        beyond = find_oldest_kept_snapshot(self.timeline, self.view, replace(self.keep, consumer_hours=None))
        cleanable_paths = {
            entry.path
            for entry in cleanable(
                self.view, find_oldest_kept_snapshot(self.timeline, self.view, self.keep), self.leased
            )
        }
        kept_files = [
            entry for entry in self.view.superseded if entry.dropped <= beyond and entry.path not in cleanable_paths
        ]
        holders = {f"savepoint {name}": seq for name, seq in self.view.savepoints.items()}
        holders |= {f"pinned slot {seq}": seq for seq in self.leased}
        bytes_by_holder = {
            name: sum(entry.size for entry in kept_files if entry.is_needed_at(seq)) for name, seq in holders.items()
        }
        for awaited_consumer in list_consumers_delaying_cleaning(self.timeline, self.view, self.keep):
            bytes_by_holder[f"consumer {awaited_consumer.name}"] = sum(
                entry.size for entry in kept_files if entry.dropped > awaited_consumer.position
            )
        return {name: size for name, size in bytes_by_holder.items() if size}

    def _about_kept_files(self, held: dict[str, int]) -> Iterator[str]:
        remedies = {
            "savepoint": "`hoodoo savepoint {path} {name} --delete` deletes the savepoint",
            "pinned": "they can be deleted after the reader releases its pin, or after the pin expires",
            "consumer": "the consumer must commit a newer position, or be dropped",
        }
        for holder, size in held.items():
            kind, _, name = holder.partition(" ")
            verb = "holds" if kind != "consumer" else "has not read past"
            yield (
                f"Cleaning cannot delete {amount(size)}: {holder} {verb} them; "
                f"{remedies[kind].format(path=self.path, name=name)}."
            )

    def _about_cleaning(self) -> Iterator[str]:
        every = self.config.options.clean_every
        since = self.view.commits - self.view.cleaned_at_commit
        if self.figures.cleanable_bytes and (not every or since > every * _PATIENCE):
            unclean = (
                f"{amount(self.figures.cleanable_bytes)} could be cleaned and no clean ran for "
                f"{several(since, 'commit')}"
            )
            yield f"{unclean}: `hoodoo clean {self.path}`, or start a worker, or set clean_every."
        if dead := pending_writes_before(self.store, instant_of_ms(max(0, self.now - _ORPHAN_MS))):
            yield (
                f"{several(len(dead), 'write')} began more than a day ago and never finished, the first "
                f"{dead[0]}: `hoodoo sweep {self.path}` rolls them back and deletes their files."
            )

    # ---- consumers and layout
    def _about_consumers(self) -> Iterator[str]:
        awaited_names = {
            awaited_consumer.name
            for awaited_consumer in list_consumers_delaying_cleaning(self.timeline, self.view, self.keep)
        }
        for awaited_consumer in consumers.all_of(self.store):
            behind = self.view.seq - awaited_consumer.position
            if awaited_consumer.position and awaited_consumer.name not in awaited_names:
                yield (
                    f"Consumer {awaited_consumer.name} lags by {several(behind, 'slot')}, and cleaning no longer "
                    "keeps files for it. Drop it, or register it again."
                )

    def _about_layout(self, workers: set[str]) -> Iterator[str]:
        units = plan_packing(self.view, self.config.options.target_file_bytes)
        groups = sum(len(unit.groups) for unit in units)
        if groups and not workers:
            yield (
                f"{several(groups, 'small file')} could be packed into {sum(unit.outputs for unit in units)}: "
                f"`hoodoo cluster {self.path}`, or start a worker."
            )

    # ---- exports
    def _about_exports(self) -> Iterator[str]:
        for name, lag in self.figures.exports.items():
            if lag.seconds > self.config.options.export_every_seconds * _PATIENCE:
                yield (
                    f"Readers of {name.capitalize()} do not see {several(lag.slots, 'commit')}, the oldest from "
                    f"{span(lag.seconds)} ago: `hoodoo export {self.path} --{name}`, or start a worker."
                )


def several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def amount(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
