"""Command `hoodoo ingest`, which loads sources into tables."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import hoodoo
from hoodoo.cli.jobs_file import read_jobs_file
from hoodoo.cli.show import CommandOutput
from hoodoo.compactor.service_log import log_event
from hoodoo.errors import CallError, CommitConflict, HoodooError, SourceLost, TooManyBadRows, TryAgainError
from hoodoo.format.column_text import column_text
from hoodoo.ingestion.job import Job
from hoodoo.ingestion.metrics_endpoint import serve_job_metrics
from hoodoo.ingestion.new_job import ingest
from hoodoo.ingestion.reading import RowTransform
from hoodoo.ingestion.report import BatchReport
from hoodoo.ingestion.scheduler import SchedulableJob, ScheduledJob, log
from hoodoo.ingestion.scheduler import run_jobs as take_turns
from hoodoo.ingestion.stopping import end_process_within, stop_on_signals
from hoodoo.redact import printable
from hoodoo.sources import Files, Kafka, SchemaRegistry, Source, TableChanges
from hoodoo.sources.kafka import FORMATS, OF_REGISTRIES
from hoodoo.sources.source_columns import columns_of
from hoodoo.storage.store_of_path import open_store
from hoodoo.table import Table
from hoodoo.timeline.layout import PROPERTIES
from hoodoo.writers.batches.write_options import BadRowLimits

_EXIT_CODES: tuple[tuple[type[HoodooError], int], ...] = ((TooManyBadRows, 3), (SourceLost, 4), (CommitConflict, 5))


_OF_FILES = ("pattern", "grace_seconds", "settle_seconds", "on_change", "on_bad_file")
_OF_TOPICS = ("start", "on_loss", "tombstones", "truncate", "before", "registry", "time_unit")
_OF_TABLES = ("moves", "hold")
_FORMATS_OF_FILES, _FORMATS_OF_TOPICS = ("json", "csv", "parquet", "avro"), FORMATS
_NO_REGISTRY = f"--registry applies only to --format {' or '.join(OF_REGISTRIES)}. Leave out --registry."
_KAFKA = re.compile(r"kafka://(?P<servers>[^/]+)/(?P<topic>[^/]+)")


def run(
    given: argparse.Namespace, out: CommandOutput, open_table: Callable[[str], Table], storage: Mapping[str, Any] | None
) -> int:
    """Run `hoodoo ingest`, and return the exit code."""
    _require_one_task(given)
    if given.infer:
        return _print_inferred_columns(given, out, storage)
    asked = _arguments_per_job(given)
    jobs = list[Job]()
    for number, one in enumerate(asked, 1):
        with _add_job_to_errors(given, number, one):
            jobs.append(_job(one, open_table, storage))
    _require_distinct_jobs(jobs)
    _require_single_job(given, jobs)
    if given.check:
        try:
            return _check_jobs(given, asked, jobs, out)
        except tuple(kind for kind, _ in _EXIT_CODES) as problem:
            out.failure(problem.code, problem.message)
            return _exit_code(problem)
    if given.as_spark_offsets:
        return _print_spark_offsets(jobs)
    if given.reset is not None:
        out.document(asdict(jobs[0].reset(given.reset, given.expect_number)), "reset")
        return 0
    if given.other is not None:
        jobs[0].continue_from(given.other)
    stopped, failed = threading.Event(), dict[str, int]()
    level = given.log_level.upper() if given.log_level else logging.WARNING if given.once else logging.INFO
    logging.getLogger("hoodoo.ingest").setLevel(level)

    def failure(job: SchedulableJob, problem: HoodooError) -> None:
        failed[f"{job.name} {job.table.path}"] = _exit_code(problem)
        out.failure(problem.code, f"{job.name}: {problem.message}" if len(jobs) > 1 else problem.message)

    with (
        end_process_within(given.stop_seconds),
        stop_on_signals(stopped),
        serve_job_metrics(jobs, given.metrics_port, given.metrics_address),
        out.counting() as count,
    ):
        measured = out.is_text_at_terminal or given.metrics_port is not None
        began = time.monotonic()
        turns = [
            ScheduledJob(job, given.once, one.poll_seconds, _commit_reporter(job, out, count, began), measured)
            for job, one in zip(jobs, asked, strict=True)
        ]
        take_turns(turns, stopped, failure)
    for job in jobs:
        if f"{job.name} {job.table.path}" not in failed:
            out.document(_summarize_job(job), "ingested")
    return next(iter(failed.values()), 0)


def _print_inferred_columns(given: argparse.Namespace, out: CommandOutput, storage: Mapping[str, Any] | None) -> int:
    """Print the inferred columns of a source."""
    if given.path is not None:
        raise CallError("--infer inspects a source before its table exists. Leave out PATH.", option="infer")
    found = columns_of(_create_source(given, storage))
    text = column_text(found.schema)
    if out.machine:
        out.document({"schema": text, "rows": found.rows, "guessed": found.guessed, "bad": found.bad})
        return 0
    print(text)
    if found.guessed:
        log.warning("Columns without values have the guessed type string: %s.", ", ".join(found.guessed))
    if found.bad:
        log.warning("Lines or messages that are not valid rows, by reason: %s.", dict(found.bad))
    return 0


def _print_spark_offsets(jobs: Sequence[Job]) -> int:
    """Print the position of a job as an option for Spark's Kafka source."""
    job = jobs[0]
    if len(jobs) > 1 or not isinstance(job.source, Kafka):
        raise CallError(
            "--as-spark-offsets needs a single Kafka topic. Name its SOURCE and PATH.", option="as_spark_offsets"
        )
    print(job.source.to_spark(job.position()))
    return 0


def _exit_code(problem: HoodooError) -> int:
    return next((code for kind, code in _EXIT_CODES if isinstance(problem, kind)), 1)


def _require_one_task(given: argparse.Namespace) -> None:
    """Check that no exclusive options are combined."""
    tasks = {
        "--infer": given.infer,
        "--check": given.check,
        "--as-spark-offsets": given.as_spark_offsets,
        "--reset": given.reset is not None,
        "--continue": given.other is not None,
    }
    chosen = [flag for flag, is_given in tasks.items() if is_given]
    if len(chosen) > 1:
        raise CallError(f"{chosen[0]} and {chosen[1]} cannot be combined. Run two commands.", option=chosen[1])


def _require_single_job(given: argparse.Namespace, jobs: Sequence[Job]) -> None:
    """Check that several jobs do not share an option for one job."""
    if len(jobs) > 1 and (given.reset is not None or given.other is not None):
        raise CallError("--reset and --continue apply to a single job. Name its SOURCE and PATH.", option="reset")
    if (given.reset is None) != (given.expect_number is None):
        raise CallError(
            "--reset and --expect-number must be given together. `hoodoo applications PATH` shows the number.",
            option="reset",
        )


def _require_distinct_jobs(jobs: Sequence[Job]) -> None:
    seen = set[tuple[str, str]]()
    for job in jobs:
        if (key := (job.name, str(job.table.path))) in seen:
            raise CallError(
                f"Two jobs into {job.table.path} have the name {printable(job.name)}. Give each job its own name.",
                option="name",
            )
        seen.add(key)


@contextmanager
def _add_job_to_errors(given: argparse.Namespace, number: int, job: argparse.Namespace) -> Iterator[None]:
    try:
        yield
    except HoodooError as problem:
        if given.path is not None:
            raise
        what = f"Job {number} of {printable(given.source)}, from {printable(job.source)} into {printable(job.path)}"
        raise type(problem)(f"{what}: {problem.message}", **problem.details) from problem


def _check_jobs(
    given: argparse.Namespace, asked: Sequence[argparse.Namespace], jobs: Sequence[Job], out: CommandOutput
) -> int:
    """Check the rows of all jobs without writing them."""
    bad = 0
    for number, (one, job) in enumerate(zip(asked, jobs, strict=True), 1):
        with _add_job_to_errors(given, number, one):
            found = job.check()
        bad += found.bad
        out.document(asdict(found), "checked")
    return int(bad > 0)


def _summarize_job(job: Job) -> dict[str, Any]:
    """Summarize a finished job.

    `waiting` is None if the source is unavailable.
    """
    report, waiting = asdict(job.update_report()), None
    with suppress(TryAgainError):
        waiting = job.source.lag(job.position()).waiting
    return report | {"application": job.name, "waiting": waiting}


def _commit_reporter(
    job: Job, out: CommandOutput, count: Callable[[str], None], began: float
) -> Callable[[BatchReport], None]:
    def tell(batch: BatchReport) -> None:
        if out.machine:
            out.document({"batch": asdict(batch)})
            sys.stdout.flush()
            return
        if not out.is_text_at_terminal:
            fields = {"job": job.name, "version": batch.version, "rows": batch.rows, "bad": batch.bad}
            log_event(logging.INFO, "batch", to=log, **fields, seconds=sum(batch.seconds.values()))
            return
        report, lag = job.report, job.lag
        speed = report.rows / max(1e-3, time.monotonic() - began)
        waits = f", {lag.waiting:,} {lag.unit} waiting" if lag else ""
        count(f"{job.name}: {report.rows:,} rows, {speed:,.0f} rows/s, {report.bad:,} bad{waits}")

    return tell


def _arguments_per_job(given: argparse.Namespace) -> list[argparse.Namespace]:
    if given.path is not None:
        return [given]
    if not given.source.endswith(".toml"):
        raise CallError("PATH is missing. Write `hoodoo ingest SOURCE PATH`, or pass a jobs file that ends in .toml.")
    return read_jobs_file(given)


def _job(given: argparse.Namespace, open_table: Callable[[str], Table], storage: Mapping[str, Any] | None) -> Job:
    return ingest(
        _create_source(given, storage),
        open_table(given.path),
        given.name,
        given.operation,
        _imported_transform(given.transform),
        given.new_columns,
        given.missing,
        given.max_rows,
        given.max_bytes,
        BadRowLimits(given.max_bad_rows, given.max_bad_share),
        given.min_seconds,
        given.max_rows_per_second,
    )


def _create_source(given: argparse.Namespace, storage: Mapping[str, Any] | None) -> Source:
    """Create the source that the command line names.

    Raises:
        CallError: An argument does not apply to this kind of source.
    """
    every = (*_OF_FILES, *_OF_TOPICS, *_OF_TABLES)
    named = {name: getattr(given, name) for name in every if getattr(given, name) is not None}
    settings = {**_settings_in_file(given.settings_from), **dict(given.settings or [])}
    if given.source.startswith("kafka:"):
        _require_applicable(named, _OF_TOPICS)
        named |= _get_format(given.format, _FORMATS_OF_TOPICS, "a folder of files")
        if "time_unit" in named:
            named["time_unit"] = dict(named["time_unit"])
        return _topic(given.source, settings, named)
    if settings:
        raise CallError(
            "--setting applies only to a Kafka topic. Leave it out, or write SOURCE as kafka://broker:9092/topic.",
            option="settings",
        )
    on_s3 = storage if given.source.startswith(("s3://", "s3a://")) else None
    if _is_table(given.source, on_s3):
        _require_applicable(named, _OF_TABLES)
        _get_format(given.format, (), "a folder of files or a Kafka topic")
        return TableChanges(hoodoo.open(given.source, storage=on_s3), **named)
    _require_applicable(named, _OF_FILES)
    named |= _get_format(given.format, _FORMATS_OF_FILES, "a Kafka topic")
    return Files(given.source, storage=on_s3, **named)


def _topic(source: str, settings: Mapping[str, str], named: Mapping[str, Any]) -> Kafka:
    if (found := _KAFKA.fullmatch(source)) is None:
        raise CallError(
            f"{printable(source)} is not a valid Kafka topic. Write kafka://broker:9092/topic, with commas "
            "between brokers.",
            source=source,
        )
    return Kafka(found["servers"], found["topic"], settings=settings, **{**named, **_get_registry_settings(named)})


def _get_registry_settings(named: Mapping[str, Any]) -> dict[str, SchemaRegistry]:
    """Return the schema registry settings of a Kafka source.

    The login comes from the environment variable HOODOO_REGISTRY_AUTH if the URL does not contain it.

    Raises:
        CallError: The message format and --registry do not match.
    """
    url, format = named.get("registry"), named.get("format", "json")
    if (format in OF_REGISTRIES) != (url is not None):
        wrong = f"--format {format} needs --registry URL." if url is None else _NO_REGISTRY
        raise CallError(wrong, option="registry")
    if url is None:
        return {}
    user, colon, password = os.environ.get("HOODOO_REGISTRY_AUTH", "").partition(":")
    return {"registry": SchemaRegistry(url, user, password) if colon else SchemaRegistry(url)}


def _is_table(path: str, storage: Mapping[str, Any] | None) -> bool:
    if not path.startswith(("s3://", "s3a://")):
        return os.path.exists(os.path.join(path, PROPERTIES))
    return open_store(path, storage).exists(PROPERTIES)


def _require_applicable(named: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that each argument applies to the kind of source.

    Args:
        named: The arguments by name.
        known: The names of the arguments that this kind of source accepts.
    """
    kinds = {_OF_FILES: "a folder of files", _OF_TOPICS: "a Kafka topic", _OF_TABLES: "a table"}
    for names, kind in kinds.items():
        for name in names:
            if name in named and name not in known:
                option = {"grace_seconds": "grace-seconds", "settle_seconds": "settle-seconds"}.get(name, name).replace(
                    "_", "-"
                )
                raise CallError(
                    f"--{option} applies only to {kind}, and SOURCE is not one. Leave out --{option}.", option=name
                )


def _get_format(name: str | None, mine: Sequence[str], other: str) -> dict[str, str]:
    """Return the format setting of a source.

    Args:
        name: The format, or None.
        mine: The formats that this kind of source supports.
        other: The kind of source that supports the other formats, for the error message.

    Raises:
        CallError: This kind of source does not support the format.
    """
    if name is None:
        return {}
    if name not in mine:
        here = f" Use {' or '.join(mine)}." if mine else " Leave out --format."
        raise CallError(f"--format {name} applies only to {other}.{here}", option="format")
    return {"format": name}


def _settings_in_file(file: str | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        with open(file, encoding="utf-8") as lines:
            said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    except (OSError, UnicodeDecodeError) as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem}.", file=file) from None
    if wrong := [number for number, line in enumerate(said, 1) if "=" not in line]:
        raise CallError(f"Setting {wrong[0]} in {printable(file)} is not valid: expected NAME=VALUE.", file=file)
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in said)}


def _imported_transform(text: str | None) -> RowTransform | None:
    if text is None:
        return None
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise CallError(
            f"Function {printable(text)} cannot be imported: {problem}. Write MODULE:FUNCTION, such as "
            "jobs.trips:rows.",
            transform=text,
        ) from None
    finally:
        sys.path.pop(0)
    return found
