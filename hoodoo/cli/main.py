"""Entry point of the command line `hoodoo`.

Their implementation is in hoodoo.cli.commands, which is loaded when a command runs, so that --help is fast. Exit codes:
0 success; 1 an error, or a check that found a problem; 2 an invalid command line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hoodoo.cli import ingest_arguments, service_arguments
from hoodoo.cli.argument_types import (
    POSITION,
    amount,
    count,
    parse_names,
    parse_pair,
    parse_partitioning,
    parse_setting,
    parse_time_unit,
)
from hoodoo.cli.examples import EXAMPLES
from hoodoo.cli.overview import format_overview
from hoodoo.cli.service_arguments import Command
from hoodoo.cli.words import WordsParser

_EXAMPLE = "example: "
_ROWS_FILE = (
    "FILE ends in .parquet, .csv, .json, .jsonl or .avro, optionally followed by .gz or .zst; '-' reads JSON lines "
    "from stdin"
)


class _Help(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLE) else super()._fill_text(text, width, indent)


def _example(command: str) -> str:
    return f"{_EXAMPLE}{EXAMPLES[command]}".replace("%", "%%")


def _create_common_parser(stored: bool) -> WordsParser:
    """Create a parser with the common arguments, such as --json.

    Args:
        stored: True includes the arguments for S3 storage.
    """
    common = WordsParser(add_help=False)
    common.add_argument(
        "--json", action="store_true", help="print results as JSON to stdout, and errors as JSON to stderr"
    )
    if stored:
        secrets = "Credentials come from the environment (AWS_ACCESS_KEY_ID, ... or a profile), never from arguments."
        store = common.add_argument_group("S3 storage", secrets)
        store.add_argument("--endpoint", metavar="URL", help="endpoint of an S3-compatible store")
        store.add_argument("--region")
    return common


class _TopParser(WordsParser):
    """Parser of the command line.

    Attributes:
        summaries: The summary of each command.
    """

    summaries: dict[str, str] = {}

    def format_help(self) -> str:
        return (
            f"usage: {self.prog} COMMAND ...\n\n{self.description}\n\n{format_overview(self.summaries)}\n\n"
            f"{self.prog} COMMAND --help shows the arguments of a command.\n{self.prog} --version prints the version.\n"
        )


def parser() -> argparse.ArgumentParser:
    top = _TopParser(
        prog="hoodoo",
        description="Keyed-upsert tables on Apache Hudi's open format. PATH is a folder or\ns3://bucket/prefix.",
    )
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=WordsParser)
    top.summaries = {}

    def command(name: str, what: str, more: str = "", stored: bool = True) -> argparse.ArgumentParser:
        top.summaries[name] = what
        return commands.add_parser(
            name,
            parents=[_create_common_parser(stored)],
            help=what,
            description=f"{what[0].upper()}{what[1:]}. {more}".strip(),
            epilog=_example(name),
            formatter_class=_Help,
        )

    _demo(
        command(
            "demo",
            "run an example job on a year of real flights; the table is kept and its result checked",
            stored=False,
        )
    )
    _create(command("create", "create a table"))
    _about(command)
    writing = command("upsert", "insert new keys and replace the rows of existing keys", _ROWS_FILE + ".")
    _rows_in(writing)
    _add_row_arguments(writing)
    writing.add_argument(
        "--missing",
        choices=("fail", "null"),
        default="fail",
        help="what to do about a column that FILE lacks and that has no default; null: stored values become null. "
        "--columns given keeps stored values",
    )
    writing.add_argument(
        "--columns",
        type=parse_names,
        metavar="NAME[,...]",
        help="columns to change; stored rows keep the values of all other columns. 'given': the columns in FILE",
    )
    writing.add_argument(
        "--new-keys",
        choices=("insert", "ignore", "fail"),
        default="insert",
        help="what to do with keys that are not in the table",
    )
    writing.add_argument(
        "--merge",
        choices=("replace", "keep_non_null"),
        default="replace",
        help="keep_non_null: a null in FILE does not overwrite the stored value",
    )
    writing.add_argument(
        "--unavailable",
        metavar="TEXT",
        help="string in FILE that marks a value as not sent; the stored value stays",
    )
    inserting = command(
        "insert",
        "insert rows with new keys; an existing key is an error, or its row is skipped",
        _ROWS_FILE + ". All files are written in one commit.",
    )
    inserting.add_argument("path", metavar="PATH")
    inserting.add_argument("files", metavar="FILE", nargs="+")
    _nulls(inserting)
    inserting.add_argument(
        "--existing",
        choices=("fail", "keep"),
        default="fail",
        help="what to do with keys that are in the table; fail: write nothing, keep: skip the row in FILE",
    )
    _add_row_arguments(inserting)
    inserting.add_argument(
        "--missing",
        choices=("fail", "null"),
        default="fail",
        help="what to do about a column that FILE lacks and that has no default; null: insert NULL",
    )
    inserting.add_argument(
        "--bulk", action="store_true", help="write the rows into new files, for an initial load or for many rows"
    )
    inserting.add_argument(
        "--sort-by",
        type=parse_names,
        metavar="A,B",
        help="with --bulk: columns to sort by, so that reads skip more data",
    )
    updating = command(
        "update",
        "set columns of the rows that match a condition",
        "Expressions are SQL over the columns of a row. They need DuckDB: pip install 'hoodoo[sql]'.",
    )
    updating.add_argument("path", metavar="PATH")
    updating.add_argument(
        "--set",
        action="append",
        required=True,
        type=parse_setting,
        metavar="COLUMN=EXPRESSION",
        help='assignment such as "fare=round(fare * 1.1, 2)" or "status=\'late\'"; may be repeated',
    )
    updating.add_argument(
        "--where", metavar="TEXT", help='condition for the rows to update, such as "fare > 10" (default: all rows)'
    )
    deleting = command(
        "delete",
        "delete the rows with the keys in a file, or with a condition",
        _ROWS_FILE + "; only the key and partition columns are used.",
    )
    _rows_in(deleting, optional=True)
    deleting.add_argument(
        "--where", metavar="TEXT", help='condition for the rows to delete, such as "fare > 10"; instead of FILE'
    )
    purging = command(
        "purge",
        "delete rows from all files, including old snapshots; exit code 1 if a file may still contain a value",
        _ROWS_FILE + "; only the key and partition columns are used.",
    )
    _rows_in(purging)
    purging.add_argument(
        "--older-than-hours",
        type=float,
        default=24.0,
        metavar="H",
        help="also delete files of writers that died more than H hours ago (default: 24)",
    )
    _schemas(command)
    ingest_arguments.ingest(command)
    _quarantine(command)
    _reading(command)
    service_arguments.define_service_commands(command)
    service_arguments.define_savepoint_commands(command)
    return top


def _about(command: Command) -> None:
    shown = command(
        "info",
        "show the key, columns and size of a table; also ordering, newest slot and due table services",
    )
    shown.add_argument("path", metavar="PATH")
    options = command("options", "show or set the options of a table; new values apply to all future writes")
    options.add_argument("path", metavar="PATH")
    options.add_argument(
        "settings",
        type=parse_pair,
        nargs="*",
        metavar="NAME=VALUE",
        help="options to set; without NAME=VALUE all options are shown",
    )
    dropping = command(
        "drop",
        "delete a table with its history and exports; files of other programs stay",
        "A deleted table cannot be restored. Stop its writers and workers first.",
    )
    dropping.add_argument("path", metavar="PATH")
    dropping.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _quarantine(command: Command) -> None:
    aside = command(
        "quarantine",
        "list, show, replay or drop quarantined rows",
        "list: the rows in --state. show: the rows at POSITION with their original values. replay: write all "
        "new rows to the table; exit code 1 if some are still bad. drop: discard the rows at POSITION.",
    )
    aside.add_argument("action", choices=("list", "show", "replay", "drop"))
    aside.add_argument("path", metavar="PATH", help="path of the table, not of its quarantine table")
    aside.add_argument("positions", metavar="POSITION", nargs="*", help="position of a row, as shown by list")
    aside.add_argument(
        "--state", choices=("new", "replayed", "dropped", "all"), help="list: state of the rows; default new"
    )
    aside.add_argument(
        "--overwrite",
        action="store_true",
        help="replay: without order_by, rows from the quarantine replace stored rows with their keys",
    )
    aside.add_argument(
        "--missing",
        choices=("fail", "null"),
        help="replay: value of a column that is not in a row and has no default; default fail",
    )
    aside.add_argument(
        "--time-unit",
        type=parse_time_unit,
        action="append",
        metavar="[COLUMN=]UNIT",
        help="replay: time unit (ms, us or ns) of change events without a schema; may be repeated",
    )


def _rows_in(writing: argparse.ArgumentParser, optional: bool = False) -> None:
    writing.add_argument("path", metavar="PATH")
    writing.add_argument("file", metavar="FILE", nargs="?" if optional else None)
    _nulls(writing)


def _add_row_arguments(writing: argparse.ArgumentParser) -> None:
    """Add the arguments for input rows."""
    writing.add_argument(
        "--duplicates",
        choices=("newest", "fail"),
        default="newest",
        help="what to do if a key occurs twice in FILE",
    )
    writing.add_argument(
        "--evolve",
        action="store_true",
        help="add columns that are not in the table, and widen column types without loss",
    )
    writing.add_argument(
        "--on-bad-rows",
        choices=("fail", "quarantine"),
        default="fail",
        help="quarantine: put invalid rows into the table PATH__quarantine, and write all valid rows",
    )
    writing.add_argument(
        "--max-bad-rows",
        type=amount,
        default=1_000,
        metavar="N",
        help="maximum number of bad rows; if FILE has more, no row is written (default: 1000)",
    )
    writing.add_argument(
        "--max-bad-share",
        type=float,
        default=0.01,
        metavar="X",
        help="maximum share of bad rows in a file of 100 rows or more (default: 0.01)",
    )


def _nulls(reading: argparse.ArgumentParser) -> None:
    reading.add_argument(
        "--null",
        action="append",
        default=[],
        metavar="TEXT",
        dest="nulls",
        help="string that represents null in a CSV, such as NA, in addition to an empty field; may be repeated",
    )


def _demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "--path",
        default="demo-table",
        metavar="DIR",
        help="path of the new table; an earlier demo table at DIR is replaced (default: demo-table)",
    )
    demo.add_argument(
        "--engine",
        choices=("auto", "spark", "local"),
        default="auto",
        help="auto: Spark if a Java runtime is installed, otherwise this process",
    )
    demo.add_argument(
        "--rows", type=amount, metavar="N", help="use about N of the 336,776 flights, from the whole year"
    )
    demo.add_argument(
        "--keep", action="store_true", help="keep an earlier demo table, and create a new table next to it"
    )


def _create(create: argparse.ArgumentParser) -> None:
    create.add_argument("path", metavar="PATH")
    columns = create.add_mutually_exclusive_group(required=True)
    columns.add_argument(
        "--schema",
        metavar="TEXT",
        help="columns and types, such as 'id string, at timestamp, price decimal(10,2), tags list<string>'",
    )
    columns.add_argument("--schema-from", metavar="FILE", help="use the columns of a .parquet, .csv or .json file")
    _nulls(create)
    create.add_argument("--key", type=parse_names, required=True, metavar="A,B", help="columns that identify a row")
    create.add_argument(
        "--partition-by",
        type=parse_partitioning,
        default=[],
        metavar="A,B",
        help="columns, or transforms of columns: year(ts), month(ts), day(ts), hour(ts), bucket(16, id), "
        "truncate(2, zip)",
    )
    create.add_argument(
        "--allow-moving-keys",
        action="store_true",
        help="allow a transform of an --order-by column in --partition-by; a key then has one row in each partition "
        "that its versions belong to",
    )
    create.add_argument(
        "--order-by",
        type=parse_names,
        metavar="A,B",
        help="columns that determine which version of a key is newer, compared in this order; without them the last "
        "write wins",
    )
    create.add_argument("--type", choices=("merge_on_read", "copy_on_write"), default="merge_on_read")
    create.add_argument(
        "--check",
        type=parse_pair,
        action="append",
        default=[],
        metavar="NAME=TEXT",
        dest="checks",
        help='condition that every row must meet, such as "not_negative=fare >= 0"; may be repeated',
    )
    create.add_argument(
        "--rename",
        choices=("snake",),
        help="rename columns whose names are invalid in Avro: 'Order ID' becomes order_id; all commands accept both "
        "names",
    )
    create.add_argument("--name", help="name of the table (default: the last part of PATH)")
    create.add_argument(
        "--option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="options",
        help="option of the table; may be repeated",
    )


def _schemas(command: Command) -> None:
    shown = command("schema", "show the current or past columns of a table")
    shown.add_argument("path", metavar="PATH")
    which = shown.add_mutually_exclusive_group()
    which.add_argument("--at", metavar="POSITION", help=f"show the columns at a position: a savepoint, or {POSITION}")
    which.add_argument("--history", action="store_true", help="show all past schemas, and the changes between them")
    alter = command("alter", "change the columns of a table in one commit; no row changes")
    alter.add_argument("path", metavar="PATH")
    changes = alter.add_subparsers(dest="change", metavar="CHANGE", required=True)

    def change(name: str, what: str, rewrites: bool = True) -> argparse.ArgumentParser:
        one = changes.add_parser(
            name,
            help=what,
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=_example(f"alter {name}"),
            formatter_class=_Help,
        )
        one.add_argument(
            "name",
            metavar="COLUMN",
            help="column or nested field: s.f is a struct field, l[] a list item, m{} a map value",
        )
        if rewrites:
            one.add_argument("--rewrite", action="store_true", help="allow changes that rewrite files")
        else:
            one.set_defaults(rewrite=False)
        return one

    added = change("add", "add a column, which is null in existing rows")
    added.add_argument("type", metavar="TYPE", help="type such as string, bigint, decimal(10,2) or list<string>")
    added.add_argument(
        "--default", metavar="TEXT", help="value for later batches without the column; 'null' means null"
    )
    change("drop", "drop a column")
    change("rename", "rename a column").add_argument("to", metavar="NAME")
    change("widen", "change the type of a column to a wider type").add_argument("type", metavar="TYPE")
    change("retype", "change the type of a column to a type that represents every stored value exactly").add_argument(
        "type", metavar="TYPE", help="type such as bigint for integral doubles, or date for strings"
    )
    for one in (added, change("move", "move a column to another position", rewrites=False)):
        where = one.add_mutually_exclusive_group()
        where.add_argument("--after", metavar="COLUMN")
        where.add_argument("--first", action="store_true")
    change("nullable", "allow nulls in a column", rewrites=False)
    what = "rewrite files that other engines read incorrectly because one of them changed the columns"
    mend = changes.add_parser(
        "rewrite",
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=_example("alter rewrite"),
        formatter_class=_Help,
    )
    mend.set_defaults(rewrite=True, name="")


def _reading(command: Command) -> None:
    scan = command(
        "scan",
        "read the rows of a table",
        "--json prints one row per line, and all rows unless --limit is given. NaN and infinity are written as null.",
    )
    _rows_out(scan)
    scan.add_argument("--as-of", metavar="POSITION", help=f"read an earlier snapshot: {POSITION}")
    scan.add_argument("--read-optimized", action="store_true", help="read only base files, without the changes in logs")
    query = command(
        "sql",
        "run a DuckDB query over tables",
        "The query refers to each table by NAME. It needs DuckDB: pip install 'hoodoo[sql]'.",
    )
    query.add_argument("query", metavar="QUERY", help='such as "SELECT count(*) FROM t"')
    query.add_argument("tables", metavar="NAME=PATH", type=parse_pair, nargs="*", help="tables that the query reads")
    _limit_and_output(query)
    changed = command(
        "incremental",
        "read the newest version of the rows changed since a position",
        "With --output and --json the result contains the position for the next --since.",
    )
    _rows_out(changed)
    changed.add_argument(
        "--since", required=True, metavar="POSITION", help=f"read changes after this position: {POSITION}"
    )
    changed.add_argument(
        "--until", metavar="POSITION", help="read changes up to and including this position (default: now)"
    )
    changed.add_argument(
        "--deletes", action="store_true", help="also return the deleted keys, with _hoodie_is_deleted = true"
    )
    change = command(
        "changes",
        "read every insert, update and delete since a position",
        "Columns of the result: op (i, u or d), instant, before, after.",
    )
    _rows_out(change, meta=False)
    change.add_argument(
        "--since", required=True, metavar="POSITION", help=f"read changes after this position: {POSITION}"
    )
    change.add_argument(
        "--until", metavar="POSITION", help="read changes up to and including this position (default: now)"
    )
    change.add_argument(
        "--versions",
        choices=("net", "all"),
        default="net",
        help="net: one change per key (default); all: the changes of each commit",
    )
    difference = command(
        "diff", "read the changes between two snapshots", "Columns of the result: op (i, u or d), before, after."
    )
    _rows_out(difference, meta=False)
    difference.add_argument("a", metavar="A", help=POSITION)
    difference.add_argument("b", metavar="B", nargs="?", help="second snapshot (default: now)")
    found = command(
        "get",
        "read rows by their keys",
        "Write keys as in the table's key column. Without partition values, all partitions are searched.",
    )
    _rows_out(found, where=False)
    found.add_argument(
        "keys",
        metavar="KEY",
        nargs="+",
        help='value of the key column, or JSON with the key and partition columns: {"id": 7, "day": "2026-01-01"}',
    )
    found.add_argument("--as-of", metavar="POSITION", help=f"read an earlier snapshot: {POSITION}")
    twice = command(
        "duplicates",
        "list keys with more than one row; exit code 1 if there are any",
        "A key identifies a row within its partition. A key that was written with two partition values has two rows.",
    )
    _rows_out(twice, where=False, meta=False, columns=False)
    twice.add_argument("--as-of", metavar="POSITION", help=f"read an earlier snapshot: {POSITION}")
    history = command("history", "list the commits that changed rows, newest first")
    history.add_argument("path", metavar="PATH")
    history.add_argument("--newest", type=count, metavar="N", help="show only the newest N")
    history.add_argument(
        "--wide", action="store_true", help="show all columns without truncation; --json includes them, too"
    )
    timeline = command("timeline", "list all instants")
    timeline.add_argument("path", metavar="PATH")
    timeline.add_argument("--newest", type=count, metavar="N", help="show only the newest N")
    timeline.add_argument(
        "--wide", action="store_true", help="show all columns without truncation; --json includes them, too"
    )
    files = command("files", "list the file groups of a snapshot; rows and bytes of their base files, and their logs")
    files.add_argument("path", metavar="PATH")
    files.add_argument("--as-of", metavar="POSITION", help=f"list an earlier snapshot: {POSITION}")
    files.add_argument(
        "--wide", action="store_true", help="show all columns without truncation; --json includes them, too"
    )


def _rows_out(reading: argparse.ArgumentParser, where: bool = True, meta: bool = True, columns: bool = True) -> None:
    reading.add_argument("path", metavar="PATH")
    if where:
        reading.add_argument("--where", metavar="TEXT", help="condition, such as \"fare > 10 AND city IN ('x', 'y')\"")
    if columns:
        reading.add_argument("--columns", type=parse_names, metavar="A,B")
        reading.add_argument(
            "--names",
            choices=("current", "original"),
            default="current",
            help="original: names from before create --rename",
        )
    if meta:
        reading.add_argument("--meta", action="store_true", help="include Hudi's five meta columns")
    _limit_and_output(reading)


def _limit_and_output(reading: argparse.ArgumentParser) -> None:
    reading.add_argument(
        "--limit", type=amount, metavar="N", help="show at most N rows (default: 20 at a terminal, otherwise all)"
    )
    reading.add_argument(
        "--output",
        metavar="FILE",
        help="write the rows to a .parquet, .csv or .jsonl file; CSV has one column per struct field, such as "
        "before.fare",
    )


def _prepare_streams() -> None:
    """Let stdout and stderr tolerate closed streams.

    Such characters are escaped. Output to a closed stream is discarded.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # it stays open until the process ends
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code.

    Args:
        arguments: The command and its arguments. None (default): `sys.argv[1:]`.
    """
    _prepare_streams()
    top = parser()
    WordsParser.as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)[1:]  # after the command
    try:
        given = top.parse_args(arguments)
    except SystemExit as end:  # argparse has already printed its message
        return int(end.code or 0)
    if given.version:
        print(import_module("hoodoo").__version__)
        return 0
    if not given.command:
        top.print_help(sys.stderr)
        return 2
    try:
        code = int(import_module("hoodoo.cli.commands").run(given))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
