"""HTTP endpoint for metrics of ingestion jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hoodoo.arguments import LOOPBACK
from hoodoo.compactor.service_log import log_event
from hoodoo.ingestion.scheduler import SchedulableJob, log


@contextmanager
def serve_job_metrics(jobs: Sequence[SchedulableJob], number: int | None, address: str = LOOPBACK) -> Iterator[str]:
    """Serve the metrics of ingestion jobs.

    Args:
        jobs: The jobs.
        number: Port; 0 chooses a free port. None: no metrics are served.
        address: Address that serves the metrics.

    Yields:
        The URL of the metrics; '' if no metrics are served.

    Raises:
        OptionError: The port is in use, or the process lacks the permission.
    """
    if number is None:
        yield ""
        return
    from hoodoo.compactor.status.metrics import PrometheusEndpoint  # its package is only loaded where it is used
    from hoodoo.ingestion.metrics import JobCollector

    endpoint = PrometheusEndpoint(JobCollector(jobs), number, address)
    log_event(logging.INFO, "metrics", to=log, metrics=endpoint.url)
    try:
        yield endpoint.url
    finally:
        endpoint.close()


__all__ = ["serve_job_metrics"]
