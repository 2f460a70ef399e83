"""What a table service is, as a value: a name, when it is due, what it does in its turn. And a turn: a writer takes one
after its commit, a worker in each of its rounds; they walk the same list (service_list.py).

A service of its own has a name by which users choose it, and failures, pauses and figures of its own. What needs none
of these is a step in the turn of another service: sweeping and dropping old partitions are steps of cleaning.
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
from hoodoo.compactor.limits import Limits, never
from hoodoo.compactor.service_log import failure, say
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context

LOOK_AGAIN_S = 15.0  # how often an unchanged table is looked over for what grew old
# a part of the work that another worker holds is left alone, unless there was nothing else to do for this long: its
# holder may hang
_PATIENCE_S = 300.0
_BACKOFF_MAX_S = 60.0
NO_LIMITS = Limits()


@dataclass(frozen=True)
class Service:
    """A table service.

    Attributes:
        name: The name, as the argument `services` of a worker takes it.
        due: Tells whether a turn is worth taking. It asks the store nothing, except whether a worker lives
            (`Turn.a_worker_lives`).
        run: Takes the turn. It returns True if there may be more to do at once.
        spares_writers: True if a worker's heartbeat stands for this service. A worker gives heartbeats only if it runs
            such a service, and stops while one of them keeps failing. Writers that see a heartbeat may leave work to
            the worker; the `due` of each service decides that.
    """

    name: str
    due: Callable[[Turn], bool]
    run: Callable[[Turn], bool]
    spares_writers: bool = False


@dataclass
class Work:
    """What a service did in some turns.

    Attributes:
        runs: How many turns did something.
        groups: How many file groups were rewritten.
        bytes_read: How many bytes were read.
        bytes_written: How many bytes were written.
        bytes_deleted: How many bytes were deleted.
        seconds: How many seconds the turns took.
        failures: How many turns raised an error.
    """

    runs: int = 0
    groups: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0
    seconds: float = 0.0
    failures: int = 0

    def add(self, done: Work) -> None:
        """Add what another turn did, but for failures."""
        self.runs += done.runs
        self.groups += done.groups
        self.bytes_read += done.bytes_read
        self.bytes_written += done.bytes_written
        self.bytes_deleted += done.bytes_deleted
        self.seconds += done.seconds


class Backoff:
    """Failures in a row, and when to try again."""

    def __init__(self, base_s: float) -> None:
        self.base_s, self.failures, self.at = base_s, 0, 0.0

    def failed(self) -> float:
        """Count a failure, and return the seconds to wait."""
        self.failures += 1
        wait = round(min(_BACKOFF_MAX_S, self.base_s * 2.0 ** min(self.failures, 16)), 3)
        self.at = time.monotonic() + wait
        return wait

    def forget(self) -> None:
        """Forget all failures."""
        self.failures, self.at = 0, 0.0

    @property
    def waiting(self) -> bool:
        """True if it is too early to try again."""
        return time.monotonic() < self.at


class WorkerSettings(Protocol):
    """What a duty asks of its worker. entries: those in catalogs that it keeps, by the path of the table."""

    name: str
    poll_s: float
    once: bool
    logs_min: int | None
    entries: Mapping[str, CatalogEntries]


class Duty:
    """What a worker remembers of one service of one table between its turns. parts: parts of the work that failed, by
    name; problems: the last error of each, and of the service itself, until it succeeds.
    """

    def __init__(self, service: str, worker: WorkerSettings) -> None:
        self.service, self.worker, self.work = service, worker, Work()
        self.backoff = Backoff(worker.poll_s)
        self.parts: dict[str, Backoff] = {}
        self.problems: dict[str, heartbeats.ServiceProblem] = {}
        self.holding = ""  # the hint of the part in hand
        self.clocks: dict[str, float] = {}  # what runs now and then -> when next, by the monotonic clock
        self.done_at_commit = 0
        self._looked_at = (0, 0.0)

    @property
    def tries(self) -> list[Backoff]:
        """The service as a whole, and the parts of its work that failed lately."""
        return [self.backoff, *self.parts.values()]

    def forget(self) -> None:
        """Another table is at the path: nothing known of the old one counts, but the work that was done."""
        self.backoff.forget()
        self.parts.clear()
        self.problems.clear()
        self.clocks.clear()
        self.done_at_commit = 0
        self.look_again()

    # ---- when it looked
    def changed(self, view: View) -> bool:
        """Tell whether a look is worth it: the head moved since the last look, or that was long ago."""
        seq, at = self._looked_at
        return seq != view.seq or time.monotonic() - at >= LOOK_AGAIN_S

    def looked(self, view: View) -> None:
        """Remember that the service looked at `view` now."""
        self._looked_at = view.seq, time.monotonic()

    def look_again(self) -> None:
        """There may be more to do on an unchanged table."""
        self._looked_at = (0, 0.0)

    # ---- what runs now and then
    def is_time(self, what: str, first_s: float = 0.0) -> bool:
        """Tell whether it is time for `what`; the first time is `first_s` seconds after the first question."""
        now = time.monotonic()
        return now >= self.clocks.setdefault(what, now + first_s)

    def next_in(self, what: str, seconds: float) -> None:
        """Put `what` off for some seconds."""
        self.clocks[what] = time.monotonic() + seconds

    # ---- what fails
    def failed(self, problem: Exception, now_ms: int, part: str = "") -> float:
        """Put the service off, or a part of its work; seconds to wait."""
        tried = self.parts.setdefault(part, Backoff(self.worker.poll_s)) if part else self.backoff
        self.work.failures += 1
        said = part or self.service
        self.problems[said] = heartbeats.ServiceProblem.of(self.worker.name, said, problem, now_ms)
        return tried.failed()

    def succeeded(self, part: str = "") -> None:
        """Forget the failures of `part`, or of the whole service."""
        self.problems.pop(part or self.service, None)
        if part:
            self.parts.pop(part, None)
        else:
            self.backoff.failures = 0

    def waits(self, part: str) -> bool:
        """Tell whether it is too early to try `part` again."""
        return part in self.parts and self.parts[part].waiting


@dataclass(frozen=True)
class Turn:
    """A turn of one service at one table. view: the newest as it began. duty: of the worker that takes it; None for a
    writer, after its commit. idle_s: how long the worker has had nothing to do.
    """

    context: Context
    config: TableConfig
    view: View
    limits: Limits = NO_LIMITS
    stopped: Callable[[], bool] = never
    table: str = ""
    duty: Duty | None = None
    idle_s: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return self.context.timeline.environment.now_ms()

    def a_worker_lives(self) -> bool:
        """Tell whether a worker of this table gave a heartbeat lately; this asks the store."""
        return heartbeats.worker_lives(self.context.store, self.now_ms, self.config.options.worker_timeout_s)

    def has_passed(self, commit: int) -> bool:
        """Tell whether as many commits came since `commit` as the table takes between two cleans."""
        every = self.config.options.clean_every
        return bool(every) and self.view.commits - commit >= (every or 0)

    def seconds(self) -> float:
        """Return how many seconds the turn has taken."""
        return round(time.monotonic() - self.began, 3)

    # ---- what a worker says and counts, and a writer does not
    def tell(self, event: str, done: Work | None = None, /, **fields: Any) -> None:
        """Log a record of what a worker did; `done` counts as a run of the service."""
        if self.duty is None:
            return
        if done:
            self.duty.work.add(done)
        say(logging.INFO, event, table=self.table, **fields)

    @contextmanager
    def holding(self, key: str) -> Iterator[bool]:
        """Say by the hint `key` that this worker does a part of the work, if nobody else does. A hint: two holders do
        no harm. It is kept fresh by the worker's heartbeat.
        """
        assert self.duty is not None
        held = self._take(self.duty, key)
        try:
            self.duty.holding = key if held else ""
            yield held
        finally:
            self.duty.holding = ""
            if held:
                attempt_hint(self.table, self.context.store, lambda store: store.delete(key))

    def _take(self, duty: Duty, key: str) -> bool:
        store, at = self.context.store, self.context.store.modified_ms(key)
        if at is None:
            try:
                store.put_if_absent(key, duty.worker.name.encode(), durable=False)
            except FileExistsError:
                return False
            return True
        if self.idle_s < _PATIENCE_S and self.now_ms - at < heartbeats.PLAN_FRESH_S * 1000:
            return False
        store.put(key, duty.worker.name.encode())
        return True


def attempt_hint(table: str, store: Store, action: Callable[[Store], None], event: str = "beat_failed") -> None:
    """Do something that is only a hint: a failure is logged."""
    try:
        action(store)
    except Exception as problem:
        failure(event, problem, table=table)
