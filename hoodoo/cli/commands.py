"""Commands of the command line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pyarrow as pa
from rich.console import Console

import hoodoo
from hoodoo.cli import files
from hoodoo.cli.show import CommandOutput, send_logs_to
from hoodoo.cli.table_paths import expand_path_patterns
from hoodoo.errors import DataError, HoodooError, OptionError
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.storage.local import LocalStore
from hoodoo.storage.store import SCRATCH, Store
from hoodoo.storage.store_of_path import open_store
from hoodoo.table import Table
from hoodoo.terminal import create_console, format_value
from hoodoo.timeline.layout import OURS, PROPERTIES

_log = logging.getLogger("hoodoo.cli")


def run(given: argparse.Namespace) -> int:
    out = CommandOutput(given.json)
    send_logs_to(sys.stderr, logging.WARNING, given.json)
    try:
        return _COMMANDS[given.command](given, out) or 0
    except HoodooError as problem:
        out.failure(problem.code, problem.message + _shell_quoting_hint(problem))
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        out.failure("OS", str(problem))
    except Exception as problem:
        if not out.machine:
            sys.stderr.writelines(f"{format_value(line)}\n" for line in traceback.format_exc().splitlines())
        out.failure("UNEXPECTED", f"{type(problem).__name__}: {problem}")
    return 1


def _shell_quoting_hint(problem: HoodooError) -> str:
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
def _create(given: argparse.Namespace, out: CommandOutput) -> None:
    from hoodoo.cli.about import describe_table
    from hoodoo.format.column_text import parse_schema_text
    from hoodoo.format.transforms import transform_of

    schema = (
        parse_schema_text(given.schema)
        if given.schema is not None
        else files.read_schema(given.schema_from, given.nulls)
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
    out.document(describe_table(table), "created")


def _drop(given: argparse.Namespace, out: CommandOutput) -> int:
    if not given.yes:
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
            raise OptionError("drop cannot ask for confirmation without a terminal. Pass --yes.", option="yes")
        sys.stderr.write(f"Delete the table {format_value(given.path)}? It cannot be restored. [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out.note("Nothing was deleted.")
            return 1
    with out.working("deleting files"):
        result = asdict(hoodoo.drop(given.path, storage=_storage(given)))
    if out.machine:
        out.document(result)
        return 0
    kept = result.pop("kept")
    out.document({**result, "kept": len(kept)}, "dropped")
    if kept:
        out.listing([{"kept": key} for key in kept])
    return 0


@contextlib.contextmanager
def _warnings_logged() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        _log.warning("%s", one.message)


def _read_input(given: argparse.Namespace, table: Table, whole: Collection[str] = (), file: str = "") -> pa.Table:
    """Read the rows of a file with the column types of a table.

    Args:
        given: The parsed command line.
        table: The table.
        whole: Columns that must be present in either all rows or no row.
        file: The file. '' (default): the argument FILE.
    """
    name_mapping = table.handle.config.name_mapping
    columns = name_mapping.hints(table.schema).append(pa.field(IS_DELETED, pa.bool_()))
    named = {*whole, *name_mapping.original_names(whole)}
    return files.read_rows(file or given.file, columns, given.nulls, named)


def _bad_rows(given: argparse.Namespace) -> str | hoodoo.BadRowLimits:
    limits = hoodoo.BadRowLimits(given.max_bad_rows, given.max_bad_share)
    return limits if given.on_bad_rows == "quarantine" else "fail"


def _insert(given: argparse.Namespace, out: CommandOutput) -> None:
    table = _open(given)
    whole = [one.name for one in table.handle.config.columns.columns if given.missing != "null" or one.has_default]
    parts = [_read_input(given, table, whole, file) for file in given.files]
    names = parts[0].column_names
    for file, part in zip(given.files, parts, strict=True):
        if set(part.column_names) != set(names):
            raise DataError(
                f"File {printable(file)} has the columns {', '.join(part.column_names)}: expected {', '.join(names)}, "
                f"as in {printable(given.files[0])}. Insert files with different columns one by one."
            )
    try:
        rows = pa.concat_tables([part.select(names) for part in parts], promote_options="permissive")
    except pa.ArrowException as problem:
        raise DataError(
            f"The files have columns of different types: {problem}. Insert files with different types one by one."
        ) from None
    with out.working(f"inserting {len(rows):,} rows"):
        result = table.insert(
            rows,
            existing=given.existing,
            bulk=given.bulk,
            sort_by=given.sort_by,
            duplicates=given.duplicates,
            evolve=given.evolve,
            missing=given.missing,
            on_bad_rows=_bad_rows(given),
        )
    _show_result(out, result, "inserted")


def _upsert(given: argparse.Namespace, out: CommandOutput) -> None:
    from hoodoo.writers.batches.partial_columns import is_taken

    table = _open(given)
    config, columns = table.handle.config, "given" if given.columns == ["given"] else given.columns
    chosen = config.name_mapping.names(columns)
    taken = [one for one in config.columns.columns if chosen is None or is_taken(one.name, config, chosen)]
    rows = _read_input(given, table, [one.name for one in taken if given.missing != "null" or one.has_default])
    with out.working(f"upserting {len(rows):,} rows"):
        result = table.upsert(
            rows,
            duplicates=given.duplicates,
            evolve=given.evolve,
            missing=given.missing,
            on_bad_rows=_bad_rows(given),
            columns=columns,
            new_keys=given.new_keys,
            merge=given.merge,
            unavailable=given.unavailable,
        )
    _show_result(out, result, "upserted")


def _update(given: argparse.Namespace, out: CommandOutput) -> None:
    table = _open(given)
    names = [name for name, _ in given.set]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise OptionError(f"--set names column {printable(twice)} twice. Name it once.", option="set")
    with out.working("updating rows"):
        result = table.update(dict(given.set), where=given.where)
    _show_result(out, result, "updated")


def _delete(given: argparse.Namespace, out: CommandOutput) -> None:
    table = _open(given)
    if (given.file is None) == (given.where is None):
        raise OptionError("delete needs either a FILE with the keys, or --where with a condition.", option="where")
    if given.where is not None:
        with out.working("deleting rows"):
            result = table.delete(where=given.where)
        _show_result(out, result, "deleted")
        return
    rows = _read_input(given, table)
    with out.working(f"deleting {len(rows):,} keys"):
        result = table.delete(rows)
    _show_result(out, result, "deleted")


def _purge(given: argparse.Namespace, out: CommandOutput) -> int:
    table = _open(given)
    rows = _read_input(given, table)
    with out.working(f"purging {len(rows):,} keys"):
        report = table.maintenance.purge(rows, older_than_hours=given.older_than_hours)
    out.document({"proved": report.proved, "files_proved": report.files_proved, **asdict(report)}, "purged")
    return int(not report.proved)


def _show_result(out: CommandOutput, result: hoodoo.WriteResult, title: str) -> None:
    """Show the result of a committed write.

    Errors in the output do not fail the command, because a script would then repeat the write.
    """
    try:
        written = _written(result)
        out.document(written if out.machine else _main_or_nonzero_fields(written), title)
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


def _main_or_nonzero_fields(written: dict[str, Any]) -> dict[str, Any]:
    always = ("inserted", "updated", "deleted")
    told = {
        name: value for name, value in written.items() if name in always or (value and name not in ("exact", "lag"))
    }
    return told if written["exact"] else {**told, "exact": False}


# ---- snapshot protection, restore and verification
def _savepoint(given: argparse.Namespace, out: CommandOutput) -> None:
    table = _open(given)
    if given.name is None:
        out.listing(
            [
                {"name": name, "slot": cursor.seq, "cursor": str(cursor)}
                for name, cursor in sorted(table.savepoints.list().items())
            ],
            ["name", "slot", "cursor"],
        )
    elif given.delete:
        table.savepoints.delete(given.name)
        out.document({"deleted": given.name})
    else:
        cursor = table.savepoints.create(given.name, given.as_of)
        out.document({"savepoint": given.name, "slot": cursor.seq, "cursor": str(cursor)})


def _restore(given: argparse.Namespace, out: CommandOutput) -> None:
    table = _open(given)
    with out.working("restoring"):
        result = table.restore(given.to)
    _show_result(out, result, "restored")


def _resolve(given: argparse.Namespace, out: CommandOutput) -> None:
    out.document({"instant": given.instant, "committed": _open(given).maintenance.resolve(given.instant)})


def _salvage(given: argparse.Namespace, out: CommandOutput) -> int:
    table = _open(given)
    with out.working("reading the whole table"):
        report = table.maintenance.salvage(dry_run=given.dry_run, accept_loss=given.accept_loss)
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


def _rollback(given: argparse.Namespace, out: CommandOutput) -> None:
    _open(given).maintenance.rollback(given.instant)
    out.document({"rolled_back": given.instant})


def _list_missing_folders(store: Store) -> list[str]:
    """List the missing folders of a local path, deepest first.

    A write creates these folders, so `check-store` removes them again.
    """
    folder, found = store.root if isinstance(store, LocalStore) else "", list[str]()
    while folder and not os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def _check_store(given: argparse.Namespace, out: CommandOutput) -> int:
    from hoodoo.storage.probe import probe_store

    store = open_store(given.path, _storage(given))
    is_table, made = store.exists(PROPERTIES), _list_missing_folders(store)
    checks = probe_store(store)
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


def _demo(given: argparse.Namespace, out: CommandOutput) -> int:
    from hoodoo.demo.flights_demo import run_demo  # needs additional packages

    with open(os.devnull, "w") as nowhere:
        to = Console(file=nowhere) if out.machine else create_console()
        story = run_demo(given.path, given.engine, given.rows, given.keep, to)
    if out.machine:
        out.document(vars(story))
    return int(not all(story.checks.values()))


def _ingest(given: argparse.Namespace, out: CommandOutput) -> int:
    from hoodoo.cli import ingest

    return ingest.run(given, out, lambda path: _open(given, path), _storage(given))


def _sql(given: argparse.Namespace, out: CommandOutput) -> None:
    from hoodoo.cli import read_commands

    if given.output:
        files.require_writable(given.output)
    read_commands.sql(given, out, lambda path: _open(given, path))


def _command_for_tables(module: str, function: str) -> Callable[[argparse.Namespace, CommandOutput], int]:
    """Wrap a command that takes several tables."""

    def run(given: argparse.Namespace, out: CommandOutput) -> int:
        paths = expand_path_patterns(given.paths, _storage(given))
        command = getattr(import_module(f"hoodoo.cli.{module}"), function)
        return int(command(given, out, paths, lambda path: _open(given, path)))

    return run


def _wrap_command(module: str, function: str) -> Callable[[argparse.Namespace, CommandOutput], int | None]:
    """Wrap a command that takes one table.

    The command opens the table for the function. It first raises CallError if the name of the output file is invalid.
    """

    def run(given: argparse.Namespace, out: CommandOutput) -> int | None:
        if getattr(given, "output", None):
            files.require_writable(given.output)
        found: int | None = getattr(import_module(f"hoodoo.cli.{module}"), function)(given, out, _open(given))
        return found

    return run


_COMMANDS: dict[str, Callable[[argparse.Namespace, CommandOutput], int | None]] = {
    "demo": _demo,
    "info": _wrap_command("about", "info"),
    "options": _wrap_command("about", "options"),
    "schema": _wrap_command("schema_commands", "schema"),
    "alter": _wrap_command("schema_commands", "alter"),
    "create": _create,
    "drop": _drop,
    "upsert": _upsert,
    "insert": _insert,
    "update": _update,
    "delete": _delete,
    "purge": _purge,
    "ingest": _ingest,
    "applications": lambda given, out: out.listing([asdict(one) for one in _open(given).inspect.applications()]),
    "quarantine": _wrap_command("quarantine", "run"),
    "sql": _sql,
    "scan": _wrap_command("read_commands", "scan"),
    "incremental": _wrap_command("read_commands", "incremental"),
    "changes": _wrap_command("read_commands", "changes"),
    "diff": _wrap_command("read_commands", "diff"),
    "get": _wrap_command("read_commands", "get"),
    "duplicates": _wrap_command("read_commands", "duplicates"),
    "history": _wrap_command("read_commands", "history"),
    "timeline": _wrap_command("read_commands", "timeline"),
    "files": _wrap_command("read_commands", "files"),
    "compact": _wrap_command("service_commands", "compact"),
    "cluster": _wrap_command("service_commands", "cluster"),
    "worker": _command_for_tables("service_commands", "worker"),
    "services": _command_for_tables("table_reports", "services"),
    "clean": _wrap_command("service_commands", "clean"),
    "expire": _wrap_command("service_commands", "expire"),
    "sweep": _wrap_command("service_commands", "sweep"),
    "adopt": _wrap_command("service_commands", "adopt"),
    "export": _wrap_command("service_commands", "export"),
    "register": _wrap_command("service_commands", "register"),
    "archive": _wrap_command("service_commands", "archive"),
    "savepoint": _savepoint,
    "restore": _restore,
    "verify": _command_for_tables("table_reports", "verify"),
    "salvage": _salvage,
    "rollback": _rollback,
    "resolve": _resolve,
    "check-store": _check_store,
}
