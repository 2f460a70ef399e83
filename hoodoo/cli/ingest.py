"""The command that takes what a source has into a table."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hoodoo.cli.show import Out
from hoodoo.errors import CallError, CommitConflict, HoodooError, SourceLost, TooManyBadRows
from hoodoo.ingestion.job import RowTransform, ingest
from hoodoo.redact import printable
from hoodoo.sources import Files
from hoodoo.table import Table

_EXIT_CODES: tuple[tuple[type[HoodooError], int], ...] = ((TooManyBadRows, 3), (SourceLost, 4), (CommitConflict, 5))


def run(given: argparse.Namespace, out: Out, table: Table, storage: Mapping[str, Any] | None) -> int:
    """Run `hoodoo ingest SOURCE PATH`, and return the exit code."""
    source = Files(
        given.source,
        given.format,
        given.pattern,
        given.grace_seconds,
        given.settle_seconds,
        given.on_change,
        storage if given.source.startswith(("s3://", "s3a://")) else None,
    )
    job = ingest(
        source,
        table,
        given.name,
        given.operation,
        _transform(given.transform),
        given.new_columns,
        given.missing,
        max_bytes=given.max_bytes,
        max_bad_rows=given.max_bad_rows,
        max_bad_share=given.max_bad_share,
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
