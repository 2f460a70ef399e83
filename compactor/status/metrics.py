"""Prometheus metrics of a worker.

They contain figures of each table and counters of finished work. The figures are measured for each scrape, from the
newest view that the worker knows. Each worker has its own registry. By default, the endpoint listens on 127.0.0.1 only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hoodoo.arguments import LOOPBACK
from hoodoo.compactor.compaction.compaction_service import postponed
from hoodoo.compactor.service_loop import ServiceLoop
from hoodoo.compactor.service_turn import ServiceCounters
from hoodoo.compactor.status.figures import TableFigures, compute_figures
from hoodoo.errors import HoodooError, OptionError
from hoodoo.exports.results import ExportLag
from hoodoo.redact import redact

_LOGS = (0, 1, 2, 5, 10, 20, 50, 100)

GAUGES: dict[str, tuple[str, Callable[[TableFigures], float]]] = {
    "hoodoo_head_slot": ("Newest slot of the commit sequence", lambda f: f.head),
    "hoodoo_min_readable_slot": ("Oldest snapshot that can be read", lambda f: f.min_readable),
    "hoodoo_file_groups": ("File groups of the newest snapshot", lambda f: f.groups),
    "hoodoo_file_groups_behind": ("File groups that have logs", lambda f: f.groups_behind),
    "hoodoo_delta_bytes": ("Log bytes that are not compacted", lambda f: f.log_bytes),
    "hoodoo_base_bytes": ("Bytes of the base files of the newest snapshot", lambda f: f.base_bytes),
    "hoodoo_logs_per_file_group_max": ("Most logs of one file group", lambda f: f.logs_max),
    "hoodoo_read_amplification_ratio": (
        "Bytes that a snapshot read takes per byte of base files",
        lambda f: f.read_amplification,
    ),
    "hoodoo_file_median_bytes": ("Median size of the base files", lambda f: f.file_bytes_median),
    "hoodoo_small_files": ("Base files below half the target size", lambda f: f.small_files),
    "hoodoo_lag_commits": ("Commits since the oldest log that is not compacted", lambda f: f.lag_commits),
    "hoodoo_lag_seconds": ("Age of the oldest log that is not compacted", lambda f: f.lag_seconds),
    "hoodoo_oldest_plan_age_seconds": ("Age of the oldest open compaction plan", lambda f: f.oldest_plan_seconds),
    "hoodoo_cleanable_bytes": ("Bytes that a clean would delete", lambda f: f.cleanable_bytes),
    "hoodoo_backpressure": ("1 while logs make writers wait", lambda f: float(f.backpressure)),
}
EXPORT_GAUGES: dict[str, tuple[str, Callable[[ExportLag], float]]] = {
    "hoodoo_export_lag_slots": ("Slots that readers of an exported format do not see", lambda lag: lag.slots),
    "hoodoo_export_lag_seconds": ("Age of the oldest of these slots", lambda lag: lag.seconds),
}
COUNTERS: dict[str, tuple[str, Callable[[ServiceCounters], float]]] = {
    "hoodoo_service_runs": ("Runs of a service that did something", lambda w: w.runs),
    "hoodoo_service_file_groups": ("File groups a service rewrote", lambda w: w.groups),
    "hoodoo_service_read_bytes": ("Bytes a service read", lambda w: w.bytes_read),
    "hoodoo_service_written_bytes": ("Bytes a service wrote", lambda w: w.bytes_written),
    "hoodoo_service_deleted_bytes": ("Bytes a service deleted", lambda w: w.bytes_deleted),
    "hoodoo_service_seconds": ("Time a service worked", lambda w: w.seconds),
    "hoodoo_service_failures": ("Runs of a service that raised", lambda w: w.failures),
}


class TableCollector(Collector):
    """Prometheus collector for table figures.

    It measures each table for each scrape. If a table cannot be measured, the collector shows the table's last figures
    and sets `hoodoo_up` to 0.
    """

    def __init__(self, loops: Sequence[ServiceLoop]) -> None:
        self._loops = loops
        self._last: dict[str, TableFigures] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            measured = [(loop.table.path, *self._measured(loop)) for loop in self._loops]
        up = GaugeMetricFamily("hoodoo_up", "1 if the last round of the table's services succeeded", labels=["table"])
        plans = GaugeMetricFamily(
            "hoodoo_compaction_plans", "Open compaction plans by state", labels=["table", "state"]
        )
        logs = HistogramMetricFamily("hoodoo_logs_per_file_group", "Logs of each file group", labels=["table"])
        for path, figures, is_up in measured:
            up.add_metric([path], float(is_up))
            if figures:
                for state, count in figures.plans.items():
                    plans.add_metric([path, state], count)
                buckets = [(str(float(bound)), float(sum(count <= bound for count in figures.logs))) for bound in _LOGS]
                logs.add_metric([path], [*buckets, ("+Inf", float(len(figures.logs)))], sum(figures.logs))
        yield from (up, plans, logs)
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["table"])
            for path, figures, _ in measured:
                if figures:
                    gauge.add_metric([path], value(figures))
            yield gauge
        for name, (text, lag_value) in EXPORT_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["table", "format"])
            for path, figures, _ in measured:
                for format, lag in figures.exports.items() if figures else ():
                    gauge.add_metric([path, format], lag_value(lag))
            yield gauge
        for name, (text, amount) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["table", "service"])
            for loop in self._loops:
                for service, work in loop.work.items():
                    counter.add_metric([loop.table.path, service], amount(work))
            yield counter

    def _measured(self, loop: ServiceLoop) -> tuple[TableFigures | None, bool]:
        path, seen = loop.table.path, loop.seen
        if seen is None:
            return None, False
        context, config = seen
        try:
            postponed_plans = postponed(loop.duties.get("compact"))
            self._last[path] = compute_figures(
                context.timeline, context.timeline.history.known_head(), config, set(postponed_plans)
            )
        except (HoodooError, OSError):
            return self._last.get(path), False
        return self._last[path], not loop.has_failing_work


class PrometheusEndpoint:
    def __init__(self, collector: Collector, port: int, address: str = LOOPBACK) -> None:
        """Start to serve metrics on a port.

        Port 0 selects any free port. Raises OptionError if the address or the port cannot be used.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as problem:
            raise OptionError(
                f"metrics_port (--metrics-port) {port} of {redact(address)} cannot be served: {problem.strerror}. "
                "Choose another port, or 0 for any free port, or an address of this machine.",
                option="metrics_port",
            ) from None
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
