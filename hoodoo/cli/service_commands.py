"""Commands that run table services or export tables."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import hoodoo
from hoodoo.cli.show import CommandOutput, send_logs_to
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.compactor.service_loop import ServiceTarget
from hoodoo.errors import EngineError, TableNotFound
from hoodoo.table import Table
from hoodoo.writers.context import Context


def compact(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(
        out,
        "compacting",
        "compacted",
        lambda: table.compact(logs_min=given.logs_min, strategy=given.strategy, **_limits(given)),
    )


def cluster(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(
        out,
        "clustering",
        "clustered",
        lambda: table.maintenance.cluster(given.sort_by, order=given.order, **_limits(given)),
    )


def sweep(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(out, "sweeping", "swept", lambda: table.maintenance.sweep(given.older_than_hours))


def clean(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    kept = {name: getattr(given, name) for name in ("retain_hours", "retain_commits", "retain_versions")}
    _run(out, "cleaning", "cleaned", lambda: table.maintenance.clean(**kept))


def expire(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(out, "dropping old partitions", "expired", lambda: table.maintenance.expire(given.older_than_hours))


def archive(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(
        out,
        "archiving",
        "archived",
        lambda: table.maintenance.archive(given.older_than_hours, keep_instants=given.keep_instants),
    )


def adopt(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    _run(out, "adopting", "adopted", table.maintenance.adopt)


def export(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    formats = {"delta": given.delta, "iceberg": given.iceberg, "change_feed": given.change_feed}
    versions = {"history": given.history, "iceberg_version": given.iceberg_version}
    how = {"mode": given.mode, "rebuild": given.rebuild, **versions}
    where = {"register": given.register, "catalog": given.catalog, "catalog_properties": dict(given.catalog_property)}
    _run(out, "exporting", "exported", lambda: table.export(**formats, **how, **where))


def register(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    with out.working("registering"):
        done = table.register(given.name, catalog=given.catalog, catalog_properties=dict(given.catalog_property))
    if out.machine:
        out.document(asdict(done))
    else:
        out.listing([asdict(entry) for entry in done.entries])


def _run(out: CommandOutput, doing: str, done: str, service: Callable[[], Any]) -> None:
    with out.working(doing):
        result = service()
    out.document(asdict(result), done)


def _limits(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "memory_bytes": given.memory,
        "bytes_per_second": given.max_bytes_per_second,
        "groups_at_once": given.groups_at_once,
    }


def worker(
    given: argparse.Namespace, out: CommandOutput, paths: Sequence[str], open_table: Callable[[str], Table]
) -> int:
    """Run `hoodoo worker PATH...`, which runs table services until SIGTERM.

    A table that does not exist yet is served once it exists. Raises TableNotFound if none of the tables exists.
    """
    named = {name: value for name, value in _limits(given).items() if value is not None}
    with out.plan_progress() as progress:
        level = logging.getLevelNamesMapping()[given.log_level.upper()]
        send_logs_to(sys.stdout if out.machine else sys.stderr, level, out.machine)
        tables, missing = list[Table | ServiceTarget](), list[TableNotFound]()
        for path in paths:
            try:
                tables.append(open_table(path))
            except TableNotFound as problem:
                missing.append(problem)
                tables.append(_create_service_target(path, problem, open_table))
        if len(missing) == len(tables):
            raise missing[0]
        worker = hoodoo.Worker(
            tables,
            given.services,
            given.poll,
            given.once,
            given.logs_min,
            engine=_create_engine(given.engine),
            limits=ServiceLimits(**named),
            metrics_port=given.metrics_port,
            metrics_address=given.metrics_address,
            progress=progress,
            register=given.register,
            register_hudi=given.register_hudi,
            catalog=given.catalog,
            catalog_properties=dict(given.catalog_property),
        )
        outcome = worker.run()
    if not outcome.finished:  # do not wait for the current file group: another worker repeats its plan
        sys.stdout.flush()
        os._exit(0)
    return int(given.once and bool(outcome.failed))


def _create_service_target(path: str, problem: TableNotFound, open_table: Callable[[str], Table]) -> ServiceTarget:
    """Create a service target for a table that does not exist yet."""

    def context() -> Context:
        raise problem

    return ServiceTarget(str(problem.details.get("path", path)), context, lambda: open_table(path).handle.services())


def _create_engine(name: str) -> Any:
    """Create the engine for an `--engine` value.

    The Spark session is a local classic session, or the server in $SPARK_REMOTE.
    """
    if name == "local":
        return None
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError("--engine spark needs PySpark. Install it: pip install 'hoodoo[spark]'.") from None
    from hoodoo.engine.spark import SparkEngine

    builder = SparkSession.builder.appName("hoodoo worker")
    if not os.environ.get("SPARK_REMOTE"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise, executors start the first python3 on PATH
        builder = builder.config("spark.ui.enabled", "false")  # the UI would be open to the network
    return SparkEngine(builder.getOrCreate())
