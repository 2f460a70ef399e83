"""Worker process that runs table services.

Writers then do not have to run them. Several workers can serve one table, and one worker can serve many tables. If a
worker dies, another worker runs its open plan. This module starts and stops a worker. service_loop.py decides which
services run on a table.
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

from hoodoo.arguments import LOOPBACK, check_address, check_flag, check_number, check_port, convert_names
from hoodoo.compactor.catalog_entries import CatalogEntries, collect_entries_by_table
from hoodoo.compactor.export_service import EXPORT
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.service_log import log_event, record
from hoodoo.compactor.service_loop import ServiceLoop, ServiceTarget
from hoodoo.engine.local import LocalEngine
from hoodoo.engine.protocol import Engine
from hoodoo.errors import OptionError
from hoodoo.redact import printable

_GRACE_S = 8.0
_MEMORY_MIN = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """Result of running a worker.

    Attributes:
        failed: The paths of the tables whose last round failed, in whole or in part.
        finished: False if a table was still being served when the grace period ended.
    """

    failed: tuple[str, ...]
    finished: bool


class _ThreadsOfWorker:
    # At most one task per core runs at a time, or as many as `limits` allows. Memory does not grow with the number of
    # tables.
    remote = False

    def __init__(self, limits: ServiceLimits) -> None:
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


def _ignore_progress(path: str, done: int, groups: int) -> None: ...


class Worker:
    """Worker that runs table services.

    `stop`, SIGTERM and SIGINT stop it.

    Attributes:
        name: The name of the worker: host name, process id and a random suffix.
        services: The services that the worker runs.
        stopped: The event that is set when the worker has to stop.
    """

    def __init__(
        self,
        tables: Sequence[Any],
        services: Iterable[str] = tuple(SERVICES),
        poll_seconds: float = 1.0,
        once: bool = False,
        logs_min: int | None = None,
        grace_seconds: float = _GRACE_S,
        engine: Engine | None = None,
        limits: ServiceLimits | None = None,
        metrics_port: int | None = None,
        metrics_address: str = LOOPBACK,
        progress: Callable[[str, int, int], None] = _ignore_progress,
        register: str | Sequence[str] | None = None,
        register_hudi: str | Sequence[str] | None = None,
        catalog: object = None,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a worker.

        It starts when `run` is called.

        Args:
            tables: The open tables to serve, each once.
            services: The services to run, from 'compact', 'cluster', 'export', 'clean' and 'archive'. Default: all.
            poll_seconds: Seconds between two checks of an idle table, above 0. Default 1.0.
            once: True stops the worker when no work is left. Default False.
            logs_min: Minimum number of log files that makes a file group due for compaction, at least 1. None
                (default): half the option `compact_after_logs` of the table.
            grace_seconds: Seconds that running file groups have to finish after a stop. Default 8.
            engine: The engine of hoodoo.engine that rewrites file groups. None (default): this process.
            limits: Limits on the resources that the worker uses for all tables together. Each table gets an equal share
                of the memory and of the byte rate. With `engine`, the number of concurrent file groups applies to each
                table. None (default): 1 GiB of memory and no other limit.
            metrics_port: The port that serves metrics in Prometheus' text format, 0 for any free port. None (default):
                no metrics.
            metrics_address: The address that serves the metrics, such as '0.0.0.0' for other machines. Default
                '127.0.0.1'.
            progress: A function that receives the path of the table, the number of finished file groups, and the total
                number of file groups of the running plan. Default: a function that does nothing.
            register: The Iceberg table to update in a catalog for each table, as 'namespace.table', in the order of
                `tables`. A single string for one table. The worker updates the entry after each of its exports, which
                the option `export_formats` of the table enables. None (default): no entries.
            register_hudi: The Hudi entry of each table in a Hive metastore or in Glue, in the same form as `register`.
                `Table.register` creates such an entry. The worker updates it every `export_every_seconds` if the table
                has changed. None (default): no entries.
            catalog: A pyiceberg catalog, or the name of a catalog in pyiceberg's configuration. None (default): the
                catalog named 'default'. A failing catalog does not delay any service, and is retried.
            catalog_properties: Properties of a named catalog. They override the properties in the configuration.
                Default: no properties.

        Raises:
            EngineError: A catalog is needed, but pyiceberg is not installed.
            OptionError: An argument has an invalid value.
        """
        self.services = convert_names("services", services)
        for name in self.services:
            if name not in SERVICES:
                raise OptionError(
                    f"Service {printable(name)} does not exist: expected one of {', '.join(SERVICES)}.",
                    option="services",
                )
        served = _service_targets(tables)
        if not self.services or not served:
            raise OptionError(
                "A worker needs at least one table and one service. Pass both.",
                option="services" if served else "tables",
            )
        check_number("poll_seconds", poll_seconds, 0, optional=False)
        if not poll_seconds:
            raise OptionError(
                "Option poll_seconds is invalid: expected a positive number of seconds, got 0.", option="poll_seconds"
            )
        check_flag("once", once)
        check_number("logs_min", logs_min, 1, whole=True)
        check_number("grace_seconds", grace_seconds, 0, optional=False)
        check_port("metrics_port", metrics_port)
        self.metrics_address = check_address("metrics_address", metrics_address)
        if engine is not None and not (hasattr(engine, "remote") and callable(getattr(engine, "map", None))):
            raise OptionError(
                f"Option engine is invalid: expected an engine of hoodoo.engine, got {printable(engine)}.",
                option="engine",
            )
        if limits is not None and not isinstance(limits, ServiceLimits):
            raise OptionError(
                f"Option limits is invalid: expected Limits(...), got {printable(limits)}.", option="limits"
            )
        if not callable(progress):
            raise OptionError(
                f"Option progress is invalid: expected a function, got {printable(progress)}.", option="progress"
            )
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.poll_seconds, self.once, self.logs_min, self.grace_seconds, self.metrics_port, self.progress = (
            poll_seconds,
            once,
            logs_min,
            grace_seconds,
            metrics_port,
            progress,
        )
        self.stopped = threading.Event()
        self._stopped_at = 0.0
        for path, times in Counter(table.path for table in served).items():
            if times > 1:
                raise OptionError(f"Table {path} was passed {times} times. Pass each table only once.", option="tables")
        if (register is not None or register_hudi is not None) and EXPORT.name not in self.services:
            raise OptionError(
                f"Catalog entries are updated by the service {EXPORT.name!r}, which is not in services: "
                f"{','.join(self.services)}. Add it.",
                option="services",
            )
        self.entries: Mapping[str, CatalogEntries] = collect_entries_by_table(
            [target.path for target in served], register, register_hudi, catalog, catalog_properties
        )
        limits = limits or ServiceLimits()
        shared, table_limits = engine or _ThreadsOfWorker(limits), _share_of_limits(limits, len(served))
        self.loops = [ServiceLoop(self, table, shared, table_limits) for table in served]

    def stop(self) -> None:
        """Tell the worker to stop.

        The call does not wait for the end. The worker finishes the file groups that it is rewriting, and leaves the
        rest of the plan to other workers. Signal handlers and other threads may call this method.
        """
        self._stopped_at = self._stopped_at or time.monotonic()
        self.stopped.set()
        for loop in self.loops:
            loop.quiet.set()

    def run(self) -> Outcome:
        """Run table services until the worker stops.

        In the main thread, SIGTERM and SIGINT stop the worker. The previous signal handlers are restored at the end.

        Returns:
            The outcome: the tables that failed, and whether all work was finished.
        """
        with self._signals(), self._serve_metrics() as where:
            log_event(
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
            failed = tuple(loop.table.path for loop in self.loops if loop.has_failing_work)
            log_event(logging.INFO, "stopped", worker=self.name, finished=finished)
            return Outcome(failed, finished)

    def _ended(self, thread: threading.Thread) -> bool:
        while thread.is_alive():
            thread.join(0.2)
            if self.stopped.is_set() and time.monotonic() - self._stopped_at > self.grace_seconds:
                return not thread.is_alive()
        return True

    @contextmanager
    def _serve_metrics(self) -> Iterator[dict[str, Any]]:
        # Yields the URL as a field for the log record `started`.
        if self.metrics_port is None:
            yield {}
            return
        from hoodoo.compactor.status.metrics import (
            PrometheusEndpoint,
            TableCollector,
        )  # imports prometheus_client only if metrics are served

        endpoint = PrometheusEndpoint(TableCollector(self.loops), self.metrics_port, self.metrics_address)
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


def _service_targets(tables: Sequence[Any]) -> list[ServiceTarget]:
    is_list = isinstance(tables, Iterable) and not isinstance(tables, (str, bytes, dict))
    candidates = list(tables) if is_list and not hasattr(tables, "handle") else None  # a single table is not a list
    if candidates is None or not all(
        isinstance(candidate, ServiceTarget) or hasattr(candidate, "handle") for candidate in candidates
    ):
        raise OptionError(
            f"Option tables is invalid: expected a list of open tables, such as [hoodoo.open(path)], got "
            f"{printable(tables)}.",
            option="tables",
        )
    return [
        candidate if isinstance(candidate, ServiceTarget) else candidate.handle.services() for candidate in candidates
    ]


def _share_of_limits(limits: ServiceLimits, tables: int) -> ServiceLimits:
    # All tables are served at the same time.
    share = min(tables, LocalEngine().threads)
    rate = limits.bytes_per_second and max(1, round(limits.bytes_per_second / tables))
    return replace(limits, memory_bytes=max(_MEMORY_MIN, limits.memory_bytes // share), bytes_per_second=rate)


__all__ = ["SERVICES", "Outcome", "ServiceTarget", "Worker", "record", "log_event"]
