"""Implementation of the commands: they call the public API with the arguments, and pass the results to `Out`."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pyarrow as pa
from rich.console import Console

import hoodoo
from hoodoo.cli import files
from hoodoo.cli.show import Out, log_to
from hoodoo.errors import DataError, HoodooError, OptionError
from hoodoo.format.column_text import parse_columns
from hoodoo.format.names import IS_DELETED
from hoodoo.format.transforms import transform_of
from hoodoo.readers.output import Rows
from hoodoo.redact import printable
from hoodoo.storage.local import LocalStore
from hoodoo.storage.probe import probe
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.table import Table
from hoodoo.terminal import console, safe
from hoodoo.timeline.layout import OURS, PROPERTIES
from hoodoo.writers.batches.column_alignment import NULL
from hoodoo.writers.batches.partial_columns import GIVEN, is_taken

_ROWS_SHOWN = 20
_log = logging.getLogger("hoodoo.cli")


def run(given: argparse.Namespace) -> int:
    """Run the command in `given`, and return the exit code."""
    out = Out(given.json)
    log_to(sys.stderr, logging.WARNING, given.json)
    try:
        return _COMMANDS[given.command](given, out) or 0
    except HoodooError as problem:
        out.failure(problem.code, problem.message + _for_a_shell(problem))
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        out.failure("OS", str(problem))
    except Exception as problem:
        if not out.machine:
            sys.stderr.writelines(f"{safe(line)}\n" for line in traceback.format_exc().splitlines())
        out.failure("UNEXPECTED", f"{type(problem).__name__}: {problem}")
    return 1


def _for_a_shell(problem: HoodooError) -> str:
    """Return a hint with the correct quoting of a condition or expression whose quotes the shell removed, or ''."""
    instead, option = problem.details.get("instead"), str(problem.details.get("option", "where"))
    if not instead:
        return ""
    column = option.removeprefix("set['").removesuffix("']") if option.startswith("set[") else ""
    text = f"{column}={instead}" if column else str(instead)
    escaped = re.sub(r'(["$`\\])', r"\\\1", text)
    return f'\nThe shell removes quotes. Write --{"set" if column else "where"} "{escaped}"'


def _storage(given: argparse.Namespace) -> dict[str, str] | None:
    named = {"endpoint": given.endpoint, "region": given.region}
    return {name: value for name, value in named.items() if value} or None


def _open(given: argparse.Namespace, path: str | None = None) -> Table:
    return hoodoo.open(path or given.path, storage=_storage(given))


# ---- writing
def _create(given: argparse.Namespace, out: Out) -> None:
    schema = (
        parse_columns(given.schema) if given.schema is not None else files.read_schema(given.schema_from, given.nulls)
    )
    with _warnings_logged():
        table = hoodoo.create(
            given.path,
            schema,
            key=given.key,
            partition_by=[transform_of(part) if "(" in part else part for part in given.partition_by] or None,
            order_by=given.order_by,
            type=given.type,
            storage=_storage(given),
            name=given.name,
            checks=dict(given.checks),
            allow_moving_keys=given.allow_moving_keys,
            rename=given.rename,
            **dict(given.options),
        )
    from hoodoo.cli.about import about

    out.document(about(table), "created")


@contextlib.contextmanager
def _warnings_logged() -> Iterator[None]:
    """Show Python warnings on stderr in the format of log messages."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        _log.warning("%s", one.message)


def _input(given: argparse.Namespace, table: Table, whole: Collection[str] = ()) -> pa.Table:
    """Return the rows of FILE. Text values are parsed with the types of the table.

    whole: columns that must be present in either all rows or no row.
    """
    name_mapping = table.handle.config.name_mapping
    columns = name_mapping.hints(table.schema).append(pa.field(IS_DELETED, pa.bool_()))
    named = {*whole, *name_mapping.original_names(whole)}
    return files.read(given.file, columns, given.nulls, named)


def _upsert(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    config, columns = table.handle.config, GIVEN if given.columns == [GIVEN] else given.columns
    chosen = config.name_mapping.names(columns)
    taken = [one for one in config.columns.columns if chosen is None or is_taken(one.name, config, chosen)]
    rows = _input(given, table, [one.name for one in taken if given.missing != NULL or one.has_default])
    with out.working(f"upserting {len(rows):,} rows"):
        result = table.upsert(
            rows,
            duplicates=given.duplicates,
            evolve=given.evolve,
            missing=given.missing,
            on_bad_rows=given.on_bad_rows,
            max_bad_rows=given.max_bad_rows,
            max_bad_share=given.max_bad_share,
            columns=columns,
            new_keys=given.new_keys,
            merge=given.merge,
            unavailable=given.unavailable,
        )
    _committed(out, result, "upserted")


def _update(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    names = [name for name, _ in given.set]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise OptionError(f"--set names column {printable(twice)} twice. Name it once.", option="set")
    with out.working("updating rows"):
        result = table.update(dict(given.set), where=given.where)
    _committed(out, result, "updated")


def _delete(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    if (given.file is None) == (given.where is None):
        raise OptionError("delete needs either a FILE with the keys, or --where with a condition.", option="where")
    if given.where is not None:
        with out.working("deleting rows"):
            result = table.delete(where=given.where)
        _committed(out, result, "deleted")
        return
    rows = _input(given, table)
    with out.working(f"deleting {len(rows):,} keys"):
        result = table.delete(rows)
    _committed(out, result, "deleted")


def _purge(given: argparse.Namespace, out: Out) -> int:
    table = _open(given)
    rows = _input(given, table)
    with out.working(f"purging {len(rows):,} keys"):
        report = table.purge(rows, older_than_hours=given.older_than_hours)
    out.document({"proved": report.proved, "files_proved": report.files_proved, **asdict(report)}, "purged")
    return int(not report.proved)


def _committed(out: Out, result: hoodoo.WriteResult, title: str) -> None:
    """Show the result of a committed write.

    Errors in the output do not fail the command, because a script would then repeat the write.
    """
    try:
        written = _written(result)
        out.document(written if out.machine else _worth_saying(written), title)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # stdout is closed; rich exits in this case
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as problem:
        with contextlib.suppress(Exception):
            out.failure(
                "NOT_SHOWN",
                f"The rows are {title}, but the result cannot be shown: {type(problem).__name__}: {problem}",
            )


def _written(result: hoodoo.WriteResult) -> dict[str, Any]:
    counts = {name: value for name, value in vars(result).items() if name != "cursor" and not name.startswith("_")}
    return {**counts, "cursor": str(result.cursor), "lag": asdict(result.lag) if result.lag else None}


def _worth_saying(written: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a write result to show to people: the main counts, and all other non-zero fields."""
    always = ("inserted", "updated", "deleted")
    told = {
        name: value for name, value in written.items() if name in always or (value and name not in ("exact", "lag"))
    }
    return told if written["exact"] else {**told, "exact": False}


# ---- reading
def _to_read(given: argparse.Namespace) -> Table:
    """Open the table to read. Raise CallError for an invalid output file name before anything is read."""
    if given.output:
        files.require_writable(given.output)
    return _open(given)


def _scan(given: argparse.Namespace, out: Out) -> None:
    table = _to_read(given)
    found = table.scan(
        given.columns,
        where=given.where,
        as_of=given.as_of,
        read_optimized=given.read_optimized,
        meta=given.meta,
        names=given.names,
    )
    _show(given, out, found.schema, found.batches(), found.cursor)


def _incremental(given: argparse.Namespace, out: Out) -> None:
    table = _to_read(given)
    found = table.incremental(
        given.since,
        given.until,
        columns=given.columns,
        where=given.where,
        meta=given.meta,
        deletes=given.deletes,
        names=given.names,
    )
    _show_and_go_on(given, out, found)


def _changes(given: argparse.Namespace, out: Out) -> None:
    table = _to_read(given)
    found = table.changes(
        given.since, given.until, columns=given.columns, where=given.where, versions=given.versions, names=given.names
    )
    _show_and_go_on(given, out, found)


def _diff(given: argparse.Namespace, out: Out) -> None:
    table = _to_read(given)
    found = table.diff(given.a, given.b, columns=given.columns, where=given.where, names=given.names)
    _show(given, out, found.schema, found.batches(), found.cursor)


def _get(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    found = table.get(
        _keys(given.keys, table), columns=given.columns, as_of=given.as_of, meta=given.meta, names=given.names
    )
    _show(given, out, found.schema, found.to_batches(), table.cursor)


def _keys(given: list[str], table: Table) -> Any:
    """Parse keys: bare values of a single key column, or JSON objects with the key columns."""
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
        raise DataError("Keys are mixed. Pass only plain values, or only JSON objects.")
    return rows


def _duplicates(given: argparse.Namespace, out: Out) -> int:
    table = _to_read(given)
    with out.working("reading the keys of the whole table"):
        found = table.duplicates(given.as_of)
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


def _history(given: argparse.Namespace, out: Out) -> None:
    commits = _open(given).history(given.newest)
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


def _show_and_go_on(given: argparse.Namespace, out: Out, found: Rows) -> None:
    """Show rows, and the position for the next read, unless some rows were omitted and would be skipped by it."""
    whole = _show(given, out, found.schema, found.batches(), found.cursor)
    if not given.output and whole:
        out.note(f"next --since {found.cursor}")
    elif given.limit is not None:
        out.note("There are more rows, so the position for the next read is not shown. Leave out --limit.")


def _show(
    given: argparse.Namespace, out: Out, schema: pa.Schema, batches: Iterable[pa.RecordBatch], cursor: hoodoo.Cursor
) -> bool:
    """Show rows, or write them to a file. Return whether all rows were included."""
    limit = given.limit
    if limit is None and not (given.output or out.machine or out.piped):
        limit = _ROWS_SHOWN
    first = _First(batches, limit)
    if given.output:
        with out.working(f"writing {given.output}"):
            rows = files.write(given.output, schema, first)
        told = {"cursor": str(cursor)} if first.whole else {}
        out.document({"file": given.output, "rows": rows, **told}, "written")
        return first.whole
    shown = out.rows(schema, first)
    if given.limit is None and not first.whole:
        out.note(f"the first {shown} rows; --limit N shows more, --output FILE or --json returns all")
    return first.whole


class _First:
    """Iterator over the first rows of batches. After the iteration, `whole` is True if it included all rows."""

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


def _timeline(given: argparse.Namespace, out: Out) -> None:
    entries = _open(given).timeline(given.newest)
    if out.machine or given.wide:
        out.listing([asdict(entry) for entry in entries], _TIMELINE_WIDE, wide=given.wide)
        return
    short = [{**_named(one, _TIMELINE), "operation": one.operation or one.action} for one in entries]
    out.listing(short, _TIMELINE, one_line="operation")


def _files(given: argparse.Namespace, out: Out) -> None:
    found = _open(given).files(given.as_of).to_pylist()
    names = list(found[0]) if found else []
    if out.machine or given.wide:
        out.listing(found, names, wide=given.wide)
        return
    out.listing(found, names[:6], one_line="partition")


# ---- snapshot protection, restore and verification
def _savepoint(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    if given.name is None:
        out.listing(
            [
                {"name": name, "slot": cursor.seq, "cursor": str(cursor)}
                for name, cursor in sorted(table.savepoints().items())
            ],
            ["name", "slot", "cursor"],
        )
    elif given.delete:
        table.delete_savepoint(given.name)
        out.document({"given_up": given.name})
    else:
        cursor = table.savepoint(given.name, given.as_of)
        out.document({"savepoint": given.name, "slot": cursor.seq, "cursor": str(cursor)})


def _restore(given: argparse.Namespace, out: Out) -> None:
    table = _open(given)
    with out.working("restoring"):
        result = table.restore(given.to)
    _committed(out, result, "restored")


def _resolve(given: argparse.Namespace, out: Out) -> None:
    out.document({"instant": given.instant, "committed": _open(given).resolve(given.instant)})


def _verify(given: argparse.Namespace, out: Out) -> int:
    from hoodoo.cli import quarantine

    table = _open(given)
    with out.working("reading the whole table"):
        report = table.verify()
        beside = quarantine.verified(table)
        twice = table.duplicates() if given.duplicates and report.ok else None
    problems = [asdict(problem) for problem in (*report.problems, *beside)]
    counts = {name: value for name, value in asdict(report).items() if name != "problems"}
    if twice is not None:
        counts["duplicates"] = len(twice)
    if out.machine:
        out.document({"ok": not problems, **counts, "problems": problems})
    else:
        out.document({"ok": not problems, **counts}, "verified")
        if problems:
            out.listing(problems)
        if given.duplicates and twice is None:
            out.say("Keys with several rows were not searched, because the table is damaged.")
        if twice:
            out.rows(twice.schema, _First(twice.to_batches(), _ROWS_SHOWN))
            out.say("`hoodoo duplicates PATH` lists all keys with more than one row.")
    return int(bool(problems) or bool(twice))


def _salvage(given: argparse.Namespace, out: Out) -> int:
    table = _open(given)
    with out.working("reading the whole table"):
        report = table.salvage(dry_run=given.dry_run, accept_loss=given.accept_loss)
    found = asdict(report)
    if out.machine:
        out.document({"ok": report.ok, **found})
    else:
        places, lost = found.pop("places"), found.pop("lost")
        out.document({**found, "places": len(places), "lost": len(lost)}, "checked" if given.dry_run else "salvaged")
        for listed in (places, lost):
            if listed:
                out.listing(listed)
    return int(given.dry_run and not report.ok)


def _rollback(given: argparse.Namespace, out: Out) -> None:
    _open(given).rollback(given.instant)
    out.document({"rolled_back": given.instant})


def _missing_folders(store: Store) -> list[str]:
    """Return the folders that do not exist yet, from the root of a local store upwards. A write creates them."""
    folder, found = store.root if isinstance(store, LocalStore) else "", list[str]()
    while folder and not os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def _check_store(given: argparse.Namespace, out: Out) -> int:
    store = open_store(given.path, _storage(given))
    is_table, made = store.exists(PROPERTIES), _missing_folders(store)
    checks = probe(store)
    if not is_table and isinstance(store, LocalStore):  # remove empty folders, but not those of a table
        for folder in (OURS + "probe", SCRATCH):
            store.prune_folders(folder + "/x")
        for folder in made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    passed = all(check.passed for check in checks)
    if out.machine:
        out.document({"store": store.uri, "passed": passed, "checks": [check._asdict() for check in checks]})
    else:
        out.listing([check._asdict() for check in checks])
    return int(not passed)


def _demo(given: argparse.Namespace, out: Out) -> int:
    from hoodoo.demo.flights_demo import run_demo  # needs additional packages

    with open(os.devnull, "w") as nowhere:
        to = Console(file=nowhere) if out.machine else console()
        story = run_demo(given.path, given.engine, given.rows, given.keep, to)
    if out.machine:
        out.document(vars(story))
    return int(not all(story.checks.values()))


def _ingest(given: argparse.Namespace, out: Out) -> int:
    from hoodoo.cli import ingest

    return ingest.run(given, out, lambda path: _open(given, path), _storage(given))


def _worker(given: argparse.Namespace, out: Out) -> int:
    from hoodoo.cli import service_commands

    return service_commands.worker(given, out, lambda path: _open(given, path))


def _of(module: str, function: str) -> Callable[[argparse.Namespace, Out], int | None]:
    """Return a command that opens the table and calls a function of a module, which is loaded when the command runs."""

    def run(given: argparse.Namespace, out: Out) -> int | None:
        found: int | None = getattr(import_module(f"hoodoo.cli.{module}"), function)(given, out, _open(given))
        return found

    return run


_COMMANDS: dict[str, Callable[[argparse.Namespace, Out], int | None]] = {
    "demo": _demo,
    "info": _of("about", "info"),
    "options": _of("about", "options"),
    "schema": _of("schema_commands", "schema"),
    "alter": _of("schema_commands", "alter"),
    "create": _create,
    "upsert": _upsert,
    "update": _update,
    "delete": _delete,
    "purge": _purge,
    "ingest": _ingest,
    "applications": lambda given, out: out.listing([asdict(one) for one in _open(given).applications()]),
    "quarantine": _of("quarantine", "run"),
    "scan": _scan,
    "incremental": _incremental,
    "changes": _changes,
    "diff": _diff,
    "get": _get,
    "duplicates": _duplicates,
    "history": _history,
    "timeline": _timeline,
    "files": _files,
    "compact": _of("service_commands", "compact"),
    "cluster": _of("service_commands", "cluster"),
    "worker": _worker,
    "services": _of("service_commands", "services"),
    "clean": _of("service_commands", "clean"),
    "expire": _of("service_commands", "expire"),
    "sweep": _of("service_commands", "sweep"),
    "adopt": _of("service_commands", "adopt"),
    "export": _of("service_commands", "export"),
    "register": _of("service_commands", "register"),
    "archive": _of("service_commands", "archive"),
    "savepoint": _savepoint,
    "restore": _restore,
    "verify": _verify,
    "salvage": _salvage,
    "rollback": _rollback,
    "resolve": _resolve,
    "check-store": _check_store,
}
