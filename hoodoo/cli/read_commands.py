"""Commands that read rows or list commits and files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import hoodoo
from hoodoo.cli import files as row_files
from hoodoo.cli.show import ROWS_SHOWN, CommandOutput
from hoodoo.errors import DataError, ExpressionError, OptionError
from hoodoo.redact import printable
from hoodoo.table import Table

if TYPE_CHECKING:
    from hoodoo.readers.output import Rows


def scan(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.scan(
        given.columns,
        where=given.where,
        as_of=given.as_of,
        read_optimized=given.read_optimized,
        meta=given.meta,
        names=given.names,
    )
    _show(given, out, found.schema, found.batches(), found.cursor)


def sql(given: argparse.Namespace, out: CommandOutput, open_table: Callable[[str], Table]) -> None:
    named = [name for name, _ in given.tables]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise OptionError(f"Table {printable(twice)} is given twice. Give it once.", option=twice)
    if "spark" in named:  # the first parameter of hoodoo.sql
        raise OptionError("Table name 'spark' is reserved. Choose another name.", option="spark")
    relation = hoodoo.sql(given.query, **{name: open_table(path) for name, path in given.tables})
    with _query_errors(given.query):
        reader = relation.to_arrow_reader()

    def batches() -> Iterator[pa.RecordBatch]:
        with _query_errors(given.query):
            yield from reader

    _show(given, out, reader.schema, batches())


@contextmanager
def _query_errors(query: str) -> Iterator[None]:
    # Errors of DuckDB come as errors of Arrow while a result is read.
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as problem:
        raise ExpressionError(
            f"DuckDB cannot run the query: {str(problem).strip()[:1000].rstrip('.')}. Correct the query.",
            sql=query[:1000],
        ) from None


def incremental(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.incremental(
        given.since,
        given.until,
        columns=given.columns,
        where=given.where,
        meta=given.meta,
        deletes=given.deletes,
        names=given.names,
    )
    _show_with_next_position(given, out, found)


def changes(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.changes(
        given.since, given.until, columns=given.columns, where=given.where, versions=given.versions, names=given.names
    )
    _show_with_next_position(given, out, found)


def diff(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.changes(
        given.a, given.b, columns=given.columns, where=given.where, names=given.names, versions="diff"
    )
    _show(given, out, found.schema, found.batches(), found.cursor)


def get(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.get(
        _keys(given.keys, table), columns=given.columns, as_of=given.as_of, meta=given.meta, names=given.names
    )
    _show(given, out, found.schema, found.to_batches(), table.cursor)


def _keys(given: list[str], table: Table) -> Any:
    if not any(text.startswith("{") for text in given):
        if len(table.key) > 1:
            raise DataError(
                f"The key has several columns: {', '.join(table.key)}. Pass each key as a JSON object with these "
                "columns."
            )
        kind = table.schema.field(table.key[0]).type
        try:
            return pa.table({table.key[0]: pa.array(given, pa.string()).cast(kind)})
        except pa.ArrowInvalid as problem:
            raise DataError(f"A key cannot be converted to {kind}: {problem}.") from None
    try:
        rows = [json.loads(text) for text in given]
    except ValueError as problem:
        raise DataError(f"A key is not valid JSON: {problem}.") from None
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(
            "Some keys are JSON objects, but others are plain values. Pass only plain values, or only JSON objects."
        )
    return rows


def duplicates(given: argparse.Namespace, out: CommandOutput, table: Table) -> int:
    """Run `hoodoo duplicates`, and return exit code 1 if keys repeat."""
    with out.working("reading the keys of the whole table"):
        found = table.inspect.duplicates(given.as_of)
    _show(given, out, found.schema, found.to_batches(), table.cursor)
    return int(bool(len(found)))


_HISTORY = ("slot", "time", "operation", "rows", "seconds", "readable")
_HISTORY_WIDE = (
    *("cursor", "instant", "completed", "operation", "inserted", "updated", "deleted", "files", "bytes"),
    *("savepoints", "readable", "exact"),
)
_TIMELINE = ("slot", "instant", "operation", "state", "rows", "seconds")
_TIMELINE_WIDE = (
    *("slot", "instant", "action", "state", "operation", "completed", "files", "bytes", "inserted", "updated"),
    *("deleted", "writer"),
)


def history(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    commits = table.history(given.newest)
    if out.machine or given.wide:
        found = [{**asdict(one), "completed": one.completed.isoformat(timespec="milliseconds")} for one in commits]
        out.listing(found, _HISTORY_WIDE, wide=given.wide)
        return
    short = [
        {
            "slot": one.slot,
            "time": f"{one.completed:%Y-%m-%d %H:%M:%SZ}",
            **_named(one, _HISTORY[2:]),
            "rows": one.rows if one.exact else f"<= {one.rows:,}",
        }
        for one in commits
    ]
    out.listing(short, _HISTORY, one_line="operation")


def _named(one: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _show_with_next_position(given: argparse.Namespace, out: CommandOutput, found: Rows) -> None:
    """Show changed rows, and the position for the next read."""
    whole = _show(given, out, found.schema, found.batches(), found.cursor)
    if not given.output and whole:
        out.note(f"next --since {found.cursor}")
    elif given.limit is not None:
        out.note("There are more rows, so the position for the next read is not shown. Leave out --limit.")


def _show(
    given: argparse.Namespace,
    out: CommandOutput,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    cursor: hoodoo.Cursor | None = None,
) -> bool:
    """Show rows, or write them to a file."""
    limit = given.limit
    if limit is None and not (given.output or out.machine or out.piped):
        limit = ROWS_SHOWN
    first = _First(batches, limit)
    if given.output:
        with out.working(f"writing {given.output}"):
            rows = row_files.write_rows(given.output, schema, first)
        told = {"cursor": str(cursor)} if first.whole and cursor else {}
        out.document({"file": given.output, "rows": rows, **told}, "written")
        return first.whole
    shown = out.rows(schema, first)
    if given.limit is None and not first.whole:
        out.note(f"the first {shown} rows; --limit N shows more, --output FILE or --json returns all")
    return first.whole


class _First:
    """Iterator over batches that stops after a number of rows."""

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._batches, self._limit, self.whole = batches, limit, True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        for batch in self._batches:
            if left is not None and len(batch) > left:
                self.whole = False
                yield batch.slice(0, left)
                return
            left = None if left is None else left - len(batch)
            yield batch


def timeline(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    entries = table.inspect.timeline(given.newest)
    if out.machine or given.wide:
        out.listing([asdict(entry) for entry in entries], _TIMELINE_WIDE, wide=given.wide)
        return
    short = [{**_named(one, _TIMELINE), "operation": one.operation or one.action} for one in entries]
    out.listing(short, _TIMELINE, one_line="operation")


def files(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    found = table.inspect.files(given.as_of).to_pylist()
    names = list(found[0]) if found else []
    if out.machine or given.wide:
        out.listing(found, names, wide=given.wide)
        return
    out.listing(found, names[:6], one_line="partition")
