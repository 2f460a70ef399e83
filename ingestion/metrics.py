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
    "hoodoo_ingest_lost": ("Messages that are gone from the source and were not read", lambda report: report.lost),
    "hoodoo_ingest_batches": ("Commits", lambda report: report.batches),
    "hoodoo_ingest_lost_races": ("Times that another process was first", lambda report: report.lost_races),
    "hoodoo_ingest_retries": ("Times that the store or the source did not answer", lambda report: report.retries),
}


class JobCollector(Collector):
    """Reads the reports of jobs when it is asked."""

    def __init__(self, jobs: Sequence[Running]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        said = [((job.name, job.table.path), job.report, job.lag, job.fine, job.quarantined) for job in self._jobs]
        up = GaugeMetricFamily("hoodoo_ingest_up", "1 if the job's last look at its source went well", labels=_LABELS)
        waiting = GaugeMetricFamily(
            "hoodoo_ingest_lag", "What waits in the source", labels=[*_LABELS, "unit", "partition"]
        )
        age = GaugeMetricFamily("hoodoo_ingest_lag_seconds", "For how long the oldest of it has waited", labels=_LABELS)
        bad = CounterMetricFamily("hoodoo_ingest_bad_rows", "Rows that were set aside", labels=[*_LABELS, "reason"])
        phases = CounterMetricFamily("hoodoo_ingest_seconds", "Time of batches by phase", labels=[*_LABELS, "phase"])
        waits = GaugeMetricFamily("hoodoo_ingest_quarantined", "Rows that wait in the quarantine", labels=_LABELS)
        left_out = GaugeMetricFamily(
            "hoodoo_ingest_left_out", "1 for each column that the table does not have", labels=[*_LABELS, "column"]
        )
        skipped = GaugeMetricFamily(
            "hoodoo_ingest_passed_over", "Files and subfolders that the newest look skipped", labels=_LABELS
        )
        for labels, report, lag, fine, quarantined in said:
            up.add_metric(labels, float(fine))
            if lag is not None:
                for partition, count in (lag.partitions or {"": lag.waiting}).items():
                    waiting.add_metric([*labels, lag.unit, partition], count)
                age.add_metric(labels, lag.seconds)
            for phase, seconds in report.seconds.items():
                phases.add_metric([*labels, phase], seconds)
            for reason, count in report.reasons.items():
                bad.add_metric([*labels, reason], count)
            if quarantined is not None:
                waits.add_metric(labels, quarantined)
            for column in report.unknown:
                left_out.add_metric([*labels, column], 1)
            skipped.add_metric(labels, len(report.passed_over))
        yield from (up, waiting, age, bad, phases, waits, left_out, skipped)
        for name, (text, amount) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, report, *_ in said:
                counter.add_metric(labels, amount(report))
            yield counter


__all__ = ["JobCollector"]
