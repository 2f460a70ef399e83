"""Prometheus metrics of ingestion jobs.

A scrape never contacts a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hoodoo.ingestion.report import IngestReport
from hoodoo.ingestion.scheduler import SchedulableJob

_LABELS = ["application", "table"]
_COUNTERS: dict[str, tuple[str, Callable[[IngestReport], float]]] = {
    "hoodoo_ingest_rows": ("Rows read", lambda report: report.rows),
    "hoodoo_ingest_bytes": ("Bytes read from the source, if the source counts bytes", lambda report: report.bytes),
    "hoodoo_ingest_skipped": ("Messages that change no row", lambda report: report.skipped),
    "hoodoo_ingest_lost": (
        "Messages that were deleted from the source before they were read",
        lambda report: report.lost,
    ),
    "hoodoo_ingest_batches": ("Commits", lambda report: report.batches),
    "hoodoo_ingest_lost_races": (
        "Batches discarded because another process committed first",
        lambda report: report.lost_races,
    ),
    "hoodoo_ingest_retries": ("Retries after the store or the source did not respond", lambda report: report.retries),
}


class JobCollector(Collector):
    def __init__(self, jobs: Sequence[SchedulableJob]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        measured = [((job.name, job.table.path), job.report, job.lag, job.fine, job.quarantined) for job in self._jobs]
        up = GaugeMetricFamily("hoodoo_ingest_up", "1 if the newest batch succeeded", labels=_LABELS)
        waiting = GaugeMetricFamily(
            "hoodoo_ingest_lag",
            "Items of the source that wait",
            labels=[*_LABELS, "unit", "partition"],
        )
        age = GaugeMetricFamily(
            "hoodoo_ingest_lag_seconds", "Age of the oldest waiting item in seconds", labels=_LABELS
        )
        bad = CounterMetricFamily("hoodoo_ingest_bad_rows", "Rows quarantined", labels=[*_LABELS, "reason"])
        phases = CounterMetricFamily("hoodoo_ingest_seconds", "Seconds of batches by phase", labels=[*_LABELS, "phase"])
        waits = GaugeMetricFamily(
            "hoodoo_ingest_quarantined", "Rows in the quarantine that wait for a decision", labels=_LABELS
        )
        left_out = GaugeMetricFamily(
            "hoodoo_ingest_left_out",
            "1 for each column that is left out because the table does not have it",
            labels=[*_LABELS, "column"],
        )
        skipped = GaugeMetricFamily(
            "hoodoo_ingest_passed_over", "Files and subfolders that the newest listing skipped", labels=_LABELS
        )
        for labels, report, lag, is_up, quarantined in measured:
            up.add_metric(labels, float(is_up))
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
            for labels, report, *_ in measured:
                counter.add_metric(labels, amount(report))
            yield counter


__all__ = ["JobCollector"]
