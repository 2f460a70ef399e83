"""What jobs say to Prometheus. Nothing is asked of a source here: each job measures between two batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hoodoo.ingestion.report import IngestReport
from hoodoo.ingestion.turns import Running

_LABELS = ["application", "table"]
_COUNTERS: dict[str, tuple[str, Callable[[IngestReport], float]]] = {
    "hoodoo_ingest_rows": ("Rows in commits, as they were read", lambda report: report.rows),
    "hoodoo_ingest_bytes": ("Bytes of what was read, where the source counts them", lambda report: report.bytes),
    "hoodoo_ingest_skipped": ("Messages that changed no row", lambda report: report.skipped),
    "hoodoo_ingest_batches": ("Commits", lambda report: report.batches),
    "hoodoo_ingest_lost_races": ("Times that another process was first", lambda report: report.lost_races),
    "hoodoo_ingest_retries": ("Times that the store or the source did not answer", lambda report: report.retries),
}


class JobCollector(Collector):
    """Reads the reports of jobs when it is asked."""

    def __init__(self, jobs: Sequence[Running]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        said = [((job.name, job.table.path), job.report, job.lag, job.fine) for job in self._jobs]
        up = GaugeMetricFamily("hoodoo_ingest_up", "1 if the job's last look at its source went well", labels=_LABELS)
        waiting = GaugeMetricFamily(
            "hoodoo_ingest_lag", "What waits in the source", labels=[*_LABELS, "unit", "partition"]
        )
        age = GaugeMetricFamily("hoodoo_ingest_lag_seconds", "For how long the oldest of it has waited", labels=_LABELS)
        bad = CounterMetricFamily("hoodoo_ingest_bad_rows", "Rows that were set aside", labels=[*_LABELS, "reason"])
        phases = CounterMetricFamily("hoodoo_ingest_seconds", "Time of batches by phase", labels=[*_LABELS, "phase"])
        for labels, report, lag, fine in said:
            up.add_metric(labels, float(fine))
            if lag is not None:
                for partition, count in (lag.partitions or {"": lag.waiting}).items():
                    waiting.add_metric([*labels, lag.unit, partition], count)
                age.add_metric(labels, lag.seconds)
            for phase, seconds in report.seconds.items():
                phases.add_metric([*labels, phase], seconds)
            for reason, count in report.reasons.items():
                bad.add_metric([*labels, reason], count)
        yield from (up, waiting, age, bad, phases)
        for name, (text, amount) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, report, _, _ in said:
                counter.add_metric(labels, amount(report))
            yield counter


__all__ = ["JobCollector"]
