"""The worker: a process that runs table services beside the writers, so that writers need not.

Any number of workers may serve one table, and one worker many tables. If a worker dies, another one runs the plan that
it leaves. This module decides when a worker starts and stops; service_loop.py decides what is done for a table. It does
not know how tables are opened.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hoodoo.arguments import flag, names, number_from, port
from hoodoo.compactor.catalog_entries import CatalogEntries, given_entries
from hoodoo.compactor.export_service import EXPORT
from hoodoo.compactor.limits import Limits
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.service_log import record, say
from hoodoo.compactor.service_loop import ServiceLoop, ServiceTarget
from hoodoo.engine.local import LocalEngine
from hoodoo.engine.protocol import Engine
from hoodoo.errors import OptionError
from hoodoo.redact import printable

_GRACE_S = 8.0
_MEMORY_MIN = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """How a worker ended.

    Attributes:
        failed: The paths of the tables whose last round raised an error.
        finished: False if a file group was still in work when the grace period ended.
    """

    failed: tuple[str, ...]
    finished: bool


class _ThreadsOfWorker:
    """Runs tasks in this process, one per core or as many as `limits` say over all tables together: memory does not
    grow with the number of tables.
    """

    remote = False

    def __init__(self, limits: Limits) -> None:
        self.threads = limits.at_once(LocalEngine().threads)
        self._local = LocalEngine(self.threads)
        self._permits = threading.BoundedSemaphore(self.threads)

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]:
        def permitted(item: Any) -> Any:
            with self._permits:
                return task(item)

        return self._local.map(permitted, items, at_once)


def _silent(path: str, done: int, groups: int) -> None:
    """Nobody looks at the progress."""


class Worker:
    """Serves tables until `stop` is called or SIGTERM or SIGINT arrives.

    Attributes:
        name: The name of the worker: its host, its process and a random part.
        services: The services that it runs.
        stopped: The event that is set once the worker is to stop.
    """

    def __init__(
        self,
        tables: Sequence[Any],
        services: Iterable[str] = tuple(SERVICES),
        poll_s: float = 1.0,
        once: bool = False,
        logs_min: int | None = None,
        grace_s: float = _GRACE_S,
        engine: Engine | None = None,
        limits: Limits | None = None,
        metrics_port: int | None = None,
        progress: Callable[[str, int, int], None] = _silent,
        register: str | Sequence[str] | None = None,
        register_hudi: str | Sequence[str] | None = None,
        catalog: object = None,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Make a worker, which serves once `run` is called.

        Args:
            tables: The open tables to serve, each once.
            services: Which of 'compact', 'cluster', 'export', 'clean' and 'archive' to run. Default: all.
            poll_s: How many seconds pass between two looks at an idle table, above 0. Default 1.0.
            once: True ends the worker when nothing is left to do. Default False.
            logs_min: How many log files make a file group due, from 1. None (default): half the option
                `compact_after_logs` of the table.
            grace_s: How many seconds file groups in work have to finish after a stop. Default 8.
            engine: Where file groups are rewritten: an engine of hoodoo.engine. None (default): this process.
            limits: What the worker takes of the machine, all tables together. Each table gets an equal part of memory
                and rate. With `engine` the number of file groups at a time counts for each table. None (default): 1 GiB
                of memory and no other limit.
            metrics_port: The port on 127.0.0.1 that serves metrics in Prometheus' text form, 0 for any free port. None
                (default): no metrics.
            progress: A function that is told the path of the table, the number of file groups done, and the number of
                all file groups of the plan in work. Default: nothing is told.
            register: The Iceberg table of each table's export in a catalog, 'namespace.table', in the order of
                `tables`; a text for one table. The worker moves it after each of its exports, which the option
                `export_formats` of the table asks for. None (default): none.
            register_hudi: Hudi's own entry of each table in a Hive metastore or in Glue, likewise: what
                `Table.register` makes. The worker brings it up to date where the table changed, every `export_every_s`.
                None (default): none.
            catalog: A catalog of pyiceberg, or the name of one in pyiceberg's configuration. None (default): the one
                that is called 'default' there. One that fails delays no service; it is tried again.
            catalog_properties: Properties of a catalog that is named, which go before those in the configuration.
                Default none.

        Raises:
            EngineError: A catalog is asked for, and pyiceberg is not installed.
            OptionError: An argument does not have one of the values above.
        """
        self.services = names("services", services)
        for name in self.services:
            if name not in SERVICES:
                raise OptionError(
                    f"Unknown service {printable(name)}; known: {', '.join(SERVICES)}.", option="services"
                )
        served = _targets(tables)
        if not self.services or not served:
            raise OptionError(
                "A worker needs at least one table and one service.", option="services" if served else "tables"
            )
        number_from("poll_s", poll_s, 0, optional=False)
        if not poll_s:
            raise OptionError("poll_s takes a positive number of seconds, got 0.", option="poll_s")
        flag("once", once)
        number_from("logs_min", logs_min, 1, whole=True)
        number_from("grace_s", grace_s, 0, optional=False)
        port("metrics_port", metrics_port)
        if engine is not None and not (hasattr(engine, "remote") and callable(getattr(engine, "map", None))):
            raise OptionError(f"engine takes an engine of hoodoo.engine, got {printable(engine)}.", option="engine")
        if limits is not None and not isinstance(limits, Limits):
            raise OptionError(f"limits takes Limits(...), got {printable(limits)}.", option="limits")
        if not callable(progress):
            raise OptionError(f"progress takes a function, got {printable(progress)}.", option="progress")
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.poll_s, self.once, self.logs_min, self.grace_s, self.metrics_port, self.progress = (
            poll_s,
            once,
            logs_min,
            grace_s,
            metrics_port,
            progress,
        )
        self.stopped = threading.Event()
        self._stopped_at = 0.0
        for path, times in Counter(table.path for table in served).items():
            if times > 1:
                raise OptionError(f"A worker serves a table once, and {path} is named {times} times.", option="tables")
        if (register is not None or register_hudi is not None) and EXPORT.name not in self.services:
            raise OptionError(
                f"Entries in catalogs are kept by the service {EXPORT.name!r}, which is not among services "
                f"{','.join(self.services)}. Add it.",
                option="services",
            )
        self.entries: Mapping[str, CatalogEntries] = given_entries(
            [one.path for one in served], register, register_hudi, catalog, catalog_properties
        )
        limits = limits or Limits()
        shared, part = engine or _ThreadsOfWorker(limits), _part(limits, len(served))
        self.loops = [ServiceLoop(self, table, shared, part) for table in served]

    def stop(self) -> None:
        """Stop the worker soon.

        File groups in work are finished, the rest of their plan is left to other workers. It can be called in signal
        handlers and threads.
        """
        self._stopped_at = self._stopped_at or time.monotonic()
        self.stopped.set()
        for loop in self.loops:
            loop.quiet.set()

    def run(self) -> Outcome:
        """Serve the tables until the worker is stopped.

        In the main thread SIGTERM and SIGINT stop it. Their former handlers are restored at the end.

        Returns:
            How the worker ended.
        """
        with self._signals(), self._metrics() as where:
            say(
                logging.INFO,
                "started",
                worker=self.name,
                tables=len(self.loops),
                services=",".join(self.services),
                **where,
            )
            threads = [
                threading.Thread(target=loop.run, name=f"serve {loop.table.path}", daemon=True) for loop in self.loops
            ]
            for thread in threads:
                thread.start()
            finished = all([self._ended(thread) for thread in threads])
            failed = tuple(loop.table.path for loop in self.loops if loop.failing)
            say(logging.INFO, "stopped", worker=self.name, finished=finished)
            return Outcome(failed, finished)

    def _ended(self, thread: threading.Thread) -> bool:
        while thread.is_alive():
            thread.join(0.2)
            if self.stopped.is_set() and time.monotonic() - self._stopped_at > self.grace_s:
                return not thread.is_alive()
        return True

    @contextmanager
    def _metrics(self) -> Iterator[dict[str, Any]]:
        """Serve metrics, if asked; what the `started` record says of it."""
        if self.metrics_port is None:
            yield {}
            return
        from hoodoo.compactor.status.metrics import (
            Endpoint,
            TableCollector,
        )  # their package is only loaded where it is used

        endpoint = Endpoint(TableCollector(self.loops), self.metrics_port)
        try:
            yield {"metrics": endpoint.url}
        finally:
            endpoint.close()

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


def _targets(tables: Sequence[Any]) -> list[ServiceTarget]:
    """What a worker needs of each table. Raises OptionError."""
    several = isinstance(tables, Iterable) and not isinstance(tables, (str, bytes, dict))
    given = list(tables) if several and not hasattr(tables, "handle") else None  # a table alone is not several
    if given is None or not all(isinstance(one, ServiceTarget) or hasattr(one, "handle") for one in given):
        raise OptionError(
            f"tables takes a list of open tables, such as [hoodoo.open(path)], got {printable(tables)}.",
            option="tables",
        )
    return [one if isinstance(one, ServiceTarget) else one.handle.services() for one in given]


def _part(limits: Limits, tables: int) -> Limits:
    """What one of so many tables may take: tables work at the same time and cannot ask each other."""
    share = min(tables, LocalEngine().threads)
    rate = limits.bytes_per_second and limits.bytes_per_second / tables
    return replace(limits, memory_bytes=max(_MEMORY_MIN, limits.memory_bytes // share), bytes_per_second=rate)


__all__ = ["SERVICES", "Outcome", "ServiceTarget", "Worker", "record", "say"]
