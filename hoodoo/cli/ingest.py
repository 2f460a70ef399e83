"""The command that takes what a source has into a table."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import hoodoo
from hoodoo.cli.show import Out
from hoodoo.errors import CallError, CommitConflict, HoodooError, SourceLost, TooManyBadRows
from hoodoo.ingestion.job import RowTransform, ingest
from hoodoo.redact import printable
from hoodoo.sources import Files, Kafka, SchemaRegistry, Source, TableChanges
from hoodoo.sources.kafka import FORMATS, OF_REGISTRIES
from hoodoo.storage.store_of_path import open_store
from hoodoo.table import Table
from hoodoo.timeline.layout import PROPERTIES

_EXIT_CODES: tuple[tuple[type[HoodooError], int], ...] = ((TooManyBadRows, 3), (SourceLost, 4), (CommitConflict, 5))


_OF_FILES = ("pattern", "grace_s", "settle_s", "on_change")
_OF_TOPICS = ("start", "on_loss", "tombstones", "truncate", "registry")
_OF_TABLES = ("moves", "hold")
_FORMATS_OF_FILES, _FORMATS_OF_TOPICS = ("json", "csv", "parquet", "avro"), FORMATS
_NO_REGISTRY = f"--registry is about --format {' or '.join(OF_REGISTRIES)}. Leave it out."
_KAFKA = re.compile(r"kafka://(?P<servers>[^/]+)/(?P<topic>[^/]+)")


def run(given: argparse.Namespace, out: Out, table: Table, storage: Mapping[str, Any] | None) -> int:
    """Run `hoodoo ingest SOURCE PATH`, and return the exit code."""
    source = _source(given, storage)
    job = ingest(
        source,
        table,
        given.name,
        given.operation,
        _transform(given.transform),
        given.new_columns,
        given.missing,
        given.max_rows,
        given.max_bytes,
        given.max_bad_rows,
        given.max_bad_share,
    )
    try:
        report = job.run(given.once, given.poll_seconds)
    except tuple(kind for kind, _ in _EXIT_CODES) as problem:
        out.failure(problem.code, problem.message)
        return next(code for kind, code in _EXIT_CODES if isinstance(problem, kind))
    lag = source.lag(job.position())
    said = asdict(report) | {"application": job.name, "waiting": lag.waiting}
    out.document(said, "taken in")
    return 0


def _source(given: argparse.Namespace, storage: Mapping[str, Any] | None) -> Source:
    """What SOURCE names. Raises CallError for an argument that is about another kind of source."""
    every = (*_OF_FILES, *_OF_TOPICS, *_OF_TABLES)
    named = {name: getattr(given, name) for name in every if getattr(given, name) is not None}
    settings = {**_settings(given.settings_from), **dict(given.settings or [])}
    if given.source.startswith("kafka:"):
        _require_of(named, _OF_TOPICS)
        named |= _format(given.format, _FORMATS_OF_TOPICS, "a folder of files")
        return _topic(given.source, settings, named)
    if settings:
        raise CallError("--setting is about a topic of Kafka, and SOURCE is none. Leave it out.", option="settings")
    on_s3 = storage if given.source.startswith(("s3://", "s3a://")) else None
    if _is_table(given.source, on_s3):
        _require_of(named, _OF_TABLES)
        _format(given.format, (), "a folder of files, or a topic of Kafka")
        return TableChanges(hoodoo.open(given.source, storage=on_s3), **named)
    _require_of(named, _OF_FILES)
    named |= _format(given.format, _FORMATS_OF_FILES, "a topic of Kafka")
    return Files(given.source, storage=on_s3, **named)


def _topic(source: str, settings: Mapping[str, str], named: Mapping[str, Any]) -> Kafka:
    if (found := _KAFKA.fullmatch(source)) is None:
        raise CallError(
            f"{printable(source)} is no topic: write kafka://broker:9092/topic, with commas between brokers.",
            source=source,
        )
    return Kafka(found["servers"], found["topic"], settings=settings, **{**named, **_registry(named)})


def _registry(named: Mapping[str, Any]) -> dict[str, SchemaRegistry]:
    """The schema registry, as an argument. HOODOO_REGISTRY_AUTH says who asks, where the address does not."""
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


def _require_of(named: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise CallError for an argument that is about another kind of source."""
    kinds = {_OF_FILES: "a folder of files", _OF_TOPICS: "a topic of Kafka", _OF_TABLES: "a table"}
    for names, kind in kinds.items():
        for name in names:
            if name in named and name not in known:
                option = {"grace_s": "grace-seconds", "settle_s": "settle-seconds"}.get(name, name).replace("_", "-")
                raise CallError(f"--{option} is about {kind}, and SOURCE is none. Leave it out.", option=name)


def _format(name: str | None, mine: Sequence[str], other: str) -> dict[str, str]:
    """What is said of the format, as an argument. Raises CallError for one of another kind of source."""
    if name is None:
        return {}
    if name not in mine:
        here = f" Here it takes {' or '.join(mine)}." if mine else " Leave it out."
        raise CallError(f"--format {name} is for {other}, and SOURCE is none.{here}", option="format")
    return {"format": name}


def _settings(file: str | None) -> dict[str, str]:
    """Settings of the client from a file of lines NAME=VALUE; empty lines, and those after #, say nothing."""
    if file is None:
        return {}
    try:
        with open(file, encoding="utf-8") as lines:
            said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    except (OSError, UnicodeDecodeError) as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem}.", file=file) from None
    if wrong := [number for number, line in enumerate(said, 1) if "=" not in line]:
        raise CallError(f"Setting {wrong[0]} of {printable(file)} is not NAME=VALUE.", file=file)
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in said)}


def _transform(text: str | None) -> RowTransform | None:
    """The function that MODULE:FUNCTION names; modules of the working folder are found."""
    if text is None:
        return None
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise CallError(
            f"There is no function {printable(text)}: {problem}. Write MODULE:FUNCTION, such as jobs.trips:rows.",
            transform=text,
        ) from None
    finally:
        sys.path.pop(0)
    return found
