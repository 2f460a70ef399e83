"""Definition of the command line: commands and arguments.

Their implementation is in hoodoo.cli.commands, which is loaded when a command runs, so that --help is fast. Exit codes:
0 success; 1 an error, or a check that found a problem; 2 an invalid command line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hoodoo.cli import ingest_arguments, service_arguments
from hoodoo.cli.argument_types import POSITION, amount, names, pair, partitioning, setting, time_unit
from hoodoo.cli.examples import EXAMPLES
from hoodoo.cli.service_arguments import Command
from hoodoo.cli.words import WordsParser

_EXAMPLE = "example: "
_ROWS_FILE = "FILE ends in .parquet, .csv, .json, .jsonl or .avro, or that and .gz or .zst; '-' is JSON lines on stdin"


class _Help(argparse.HelpFormatter):
    """Help formatter that does not wrap example lines, so that they can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLE) else super()._fill_text(text, width, indent)


def _example(command: str) -> str:
    return f"{_EXAMPLE}{EXAMPLES[command]}".replace("%", "%%")


def _common(stored: bool) -> WordsParser:
    """Return the arguments of every command. stored: whether to include the arguments for the store."""
    common = WordsParser(add_help=False)
    common.add_argument("--json", action="store_true", help="answer in JSON on stdout, errors in JSON on stderr")
    if stored:
        secrets = "Credentials come from the environment (AWS_ACCESS_KEY_ID, ... or a profile), never from arguments."
        store = common.add_argument_group("S3 storage", secrets)
        store.add_argument("--endpoint", metavar="URL", help="of an S3-compatible store")
        store.add_argument("--region")
    return common


def parser() -> argparse.ArgumentParser:
    top = WordsParser(
        prog="hoodoo",
        description="Keyed-upsert tables on Apache Hudi's open format. PATH is a folder or s3://bucket/prefix.",
    )
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, what: str, more: str = "", stored: bool = True) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            parents=[_common(stored)],
            help=what,
            description=f"{what[0].upper()}{what[1:]}. {more}".strip(),
            epilog=_example(name),
            formatter_class=_Help,
        )

    _demo(
        command(
            "demo",
            "run the main job on a year of real flights, check its result and leave the table to look at",
            stored=False,
        )
    )
    _create(command("create", "create a table"))
    _about(command)
    writing = command("upsert", "insert new keys and replace the rows of known ones", _ROWS_FILE + ".")
    _rows_in(writing)
    writing.add_argument(
        "--duplicates",
        choices=("newest", "fail"),
        default="newest",
        help="what to do with a key that occurs twice in FILE",
    )
    writing.add_argument(
        "--evolve", action="store_true", help="add columns that the table lacks, and widen types where that is exact"
    )
    writing.add_argument(
        "--missing",
        choices=("fail", "keep", "null"),
        default="fail",
        help="handling of a column that FILE lacks and that has no default; keep: stored values stay (as by "
        "--columns given), null: overwrites stored values with null",
    )
    writing.add_argument(
        "--columns",
        type=names,
        metavar="NAME[,...]",
        help="the columns that change; stored rows keep their values of all others. 'given': those that FILE has",
    )
    writing.add_argument(
        "--new-keys",
        choices=("insert", "ignore", "fail"),
        default="insert",
        help="what to do with keys that the table does not have",
    )
    writing.add_argument(
        "--merge",
        choices=("replace", "keep_non_null"),
        default="replace",
        help="keep_non_null: a null in FILE keeps the stored value",
    )
    writing.add_argument(
        "--unavailable",
        metavar="TEXT",
        help="a text in FILE that stands for a value that was not sent, and keeps the stored value",
    )
    writing.add_argument(
        "--on-bad-rows",
        choices=("fail", "quarantine"),
        default="fail",
        help="quarantine: keep rows that do not fit in the table PATH__quarantine, and write the others",
    )
    writing.add_argument(
        "--max-bad-rows", type=amount, default=1_000, metavar="N", help="of the file, else nothing is written"
    )
    writing.add_argument(
        "--max-bad-share", type=float, default=0.01, metavar="X", help="of a file of 100 rows or more (default: 0.01)"
    )
    updating = command(
        "update",
        "give rows that match a condition new values",
        "Expressions are SQL over the columns of the row and need DuckDB: pip install 'hoodoo[sql]'.",
    )
    updating.add_argument("path", metavar="PATH")
    updating.add_argument(
        "--set",
        action="append",
        required=True,
        type=setting,
        metavar="COLUMN=EXPRESSION",
        help='for example "fare=round(fare * 1.1, 2)" or "status=\'late\'"; may be repeated',
    )
    updating.add_argument("--where", metavar="TEXT", help='which rows, for example "fare > 10" (default: all)')
    deleting = command(
        "delete",
        "delete the rows whose keys are in a file, or that match a condition",
        _ROWS_FILE + "; only the key and partition columns are used.",
    )
    _rows_in(deleting, optional=True)
    deleting.add_argument("--where", metavar="TEXT", help='instead of FILE: which rows, for example "fare > 10"')
    purging = command(
        "purge",
        "delete rows from all files, history included; exit code 1 while a file or a bound may still have a value",
        _ROWS_FILE + "; only the key and partition columns are used.",
    )
    _rows_in(purging)
    purging.add_argument(
        "--older-than-hours",
        type=float,
        default=24.0,
        metavar="H",
        help="what writers that died longer ago left goes too (default: 24)",
    )
    _schemas(command)
    ingest_arguments.ingest(command)
    _quarantine(command)
    _reading(command)
    service_arguments.services(command)
    service_arguments.keeping(command)
    return top


def _about(command: Command) -> None:
    shown = command(
        "info", "say what a table is: key, partitions, ordering, columns, rows, size, newest slot, and what is behind"
    )
    shown.add_argument("path", metavar="PATH")
    options = command("options", "show the options of a table, or set some for every writer from now on")
    options.add_argument("path", metavar="PATH")
    options.add_argument(
        "settings", type=pair, nargs="*", metavar="NAME=VALUE", help="what to set; without any all options are shown"
    )


def _quarantine(command: Command) -> None:
    aside = command(
        "quarantine",
        "list, show, try again or give up the rows that writes set aside",
        "list: those in --state. show: the rows at POSITION as they came. replay: try all new ones again; exit code 1 "
        "if some are bad still. drop: give up those at POSITION.",
    )
    aside.add_argument("action", choices=("list", "show", "replay", "drop"))
    aside.add_argument("path", metavar="PATH", help="of the table, not of its quarantine")
    aside.add_argument("positions", metavar="POSITION", nargs="*", help="as list shows them")
    aside.add_argument("--state", choices=("new", "replayed", "dropped", "all"), default="new")
    aside.add_argument(
        "--overwrite",
        action="store_true",
        help="replay: without order_by, rows from the quarantine replace those of their keys",
    )
    aside.add_argument(
        "--missing",
        choices=("fail", "null"),
        default="fail",
        help="replay: what a column means that a row lacks and that has no default",
    )
    aside.add_argument(
        "--time-unit",
        type=time_unit,
        action="append",
        metavar="[COLUMN=]UNIT",
        help="replay: the unit (ms, us or ns) of times in change events, if no schema says it; may be repeated",
    )


def _rows_in(writing: argparse.ArgumentParser, optional: bool = False) -> None:
    writing.add_argument("path", metavar="PATH")
    writing.add_argument("file", metavar="FILE", nargs="?" if optional else None)
    _nulls(writing)


def _nulls(reading: argparse.ArgumentParser) -> None:
    reading.add_argument(
        "--null",
        action="append",
        default=[],
        metavar="TEXT",
        dest="nulls",
        help="what stands for null in a CSV besides an empty field, such as NA; may be repeated",
    )


def _demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "--path",
        default="demo-table",
        metavar="DIR",
        help="where the table goes; an earlier demo table there is replaced (default: demo-table)",
    )
    demo.add_argument(
        "--engine",
        choices=("auto", "spark", "local"),
        default="auto",
        help="auto: Spark if there is a Java runtime, else this process",
    )
    demo.add_argument(
        "--rows", type=amount, metavar="N", help="take about N of the 336,776 flights, from all over the year"
    )
    demo.add_argument("--keep", action="store_true", help="keep an earlier demo table and make a new one beside it")


def _create(create: argparse.ArgumentParser) -> None:
    create.add_argument("path", metavar="PATH")
    columns = create.add_mutually_exclusive_group(required=True)
    columns.add_argument(
        "--schema",
        metavar="TEXT",
        help="columns and types: 'id string, at timestamp, price decimal(10,2), tags list<string>'",
    )
    columns.add_argument("--schema-from", metavar="FILE", help="take the columns of a .parquet, .csv or .json file")
    _nulls(create)
    create.add_argument("--key", type=names, required=True, metavar="A,B", help="the columns that identify a row")
    create.add_argument(
        "--partition-by",
        type=partitioning,
        default=[],
        metavar="A,B",
        help="columns, or transforms of columns: year(ts), month(ts), day(ts), hour(ts), bucket(16, id), "
        "truncate(2, zip)",
    )
    create.add_argument(
        "--allow-moving-keys",
        action="store_true",
        help="partition by a transform of an --order-by column, though a key gets a row for each partition that its "
        "versions belong to",
    )
    create.add_argument(
        "--order-by",
        type=names,
        metavar="A,B",
        help="the columns that say which version of a key is newer, compared in this order; without any the later "
        "write wins",
    )
    create.add_argument("--type", choices=("merge_on_read", "copy_on_write"), default="merge_on_read")
    create.add_argument(
        "--check",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=TEXT",
        dest="checks",
        help='what every row has to pass, such as "not_negative=fare >= 0"; may be repeated',
    )
    create.add_argument(
        "--rename",
        choices=("snake",),
        help="give columns whose names Avro does not allow other ones: 'Order ID' becomes order_id; every command "
        "takes either name from then on",
    )
    create.add_argument("--name", help="of the table; default: the last part of PATH")
    create.add_argument(
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="options",
        help="an option of the table; may be repeated",
    )


def _schemas(command: Command) -> None:
    shown = command("schema", "show a table's columns, as they are or were")
    shown.add_argument("path", metavar="PATH")
    which = shown.add_mutually_exclusive_group()
    which.add_argument("--at", metavar="POSITION", help=f"as of {POSITION}, or a savepoint")
    which.add_argument("--history", action="store_true", help="every schema the table has had, and what changed")
    alter = command("alter", "change a table's columns in one commit; no row changes")
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
        one.add_argument("name", metavar="COLUMN", help="s.f is a field of a struct, l[] a list's item, m{} a value")
        if rewrites:
            one.add_argument("--rewrite", action="store_true", help="also where files have to be written anew")
        else:
            one.set_defaults(rewrite=False)
        return one

    added = change("add", "add a column, null in the rows there are")
    added.add_argument("type", metavar="TYPE", help="such as string, bigint, decimal(10,2), list<string>")
    added.add_argument("--default", metavar="TEXT", help="what later batches without it mean; 'null' is null")
    change("drop", "drop a column")
    change("rename", "call a column otherwise").add_argument("to", metavar="NAME")
    change("widen", "give a column a type that has every value of the present one").add_argument("type", metavar="TYPE")
    change("retype", "give a column a type that every stored value is exactly one of").add_argument(
        "type", metavar="TYPE", help="such as bigint for whole doubles, date for texts"
    )
    for one in (added, change("move", "move a column to another position", rewrites=False)):
        where = one.add_mutually_exclusive_group()
        where.add_argument("--after", metavar="COLUMN")
        where.add_argument("--first", action="store_true")
    change("nullable", "let a column take nulls", rewrites=False)
    what = "change no column; write anew the files that other engines read wrong since one of them changed the columns"
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
        "read live rows",
        "With --json one row a line, all rows unless --limit says otherwise; NaN and infinities are written as null.",
    )
    _rows_out(scan)
    scan.add_argument("--as-of", metavar="POSITION", help=f"read the table as it was: {POSITION}")
    scan.add_argument("--read-optimized", action="store_true", help="base files only, without what logs changed since")
    changed = command(
        "incremental",
        "read the newest version of the rows changed since a position",
        "With --output and --json the answer names the next --since.",
    )
    _rows_out(changed)
    changed.add_argument("--since", required=True, metavar="POSITION", help=f"exclusive: {POSITION}")
    changed.add_argument("--until", metavar="POSITION", help="inclusive; default: now")
    changed.add_argument(
        "--deletes", action="store_true", help="also the keys deleted since, with _hoodie_is_deleted true"
    )
    change = command(
        "changes",
        "read every insert, update and delete since a position",
        "One row each: op (i, u, d), instant, before, after.",
    )
    _rows_out(change, meta=False)
    change.add_argument("--since", required=True, metavar="POSITION", help=f"exclusive: {POSITION}")
    change.add_argument("--until", metavar="POSITION", help="inclusive; default: now")
    change.add_argument(
        "--versions",
        choices=("net", "all"),
        default="net",
        help="one change for a key (default), or what each commit did",
    )
    difference = command(
        "diff", "read what makes one snapshot into another", "One row each: op (i, u, d), before, after."
    )
    _rows_out(difference, meta=False)
    difference.add_argument("a", metavar="A", help=POSITION)
    difference.add_argument("b", metavar="B", nargs="?", help="default: now")
    found = command(
        "get",
        "read single rows by their keys",
        "Keys as the table's key column has them; without partition values every partition is looked in.",
    )
    _rows_out(found, where=False)
    found.add_argument(
        "keys",
        metavar="KEY",
        nargs="+",
        help='a value of the key column, or JSON of the key and partition columns: {"id": 7, "day": "2026-01-01"}',
    )
    found.add_argument("--as-of", metavar="POSITION", help=f"read the table as it was: {POSITION}")
    twice = command(
        "duplicates",
        "list the keys that have more than one row; exit code 1 if there are some",
        "A key identifies a row within its partition: if it comes with another partition value, it is in two of them.",
    )
    _rows_out(twice, where=False, meta=False, columns=False)
    twice.add_argument("--as-of", metavar="POSITION", help=f"of the table as it was: {POSITION}")
    history = command("history", "list the commits that changed rows, the newest first")
    history.add_argument("path", metavar="PATH")
    history.add_argument("--newest", type=amount, metavar="N", help="only the newest N")
    history.add_argument("--wide", action="store_true", help="all columns, however wide; --json has them, too")
    timeline = command("timeline", "list every instant")
    timeline.add_argument("path", metavar="PATH")
    timeline.add_argument("--newest", type=amount, metavar="N", help="only the newest N")
    timeline.add_argument("--wide", action="store_true", help="all columns, however wide; --json has them, too")
    files = command("files", "list the file groups of a snapshot: rows and bytes of their base files, and their logs")
    files.add_argument("path", metavar="PATH")
    files.add_argument("--as-of", metavar="POSITION", help=f"as the table was: {POSITION}")
    files.add_argument("--wide", action="store_true", help="all columns, however wide; --json has them, too")


def _rows_out(reading: argparse.ArgumentParser, where: bool = True, meta: bool = True, columns: bool = True) -> None:
    reading.add_argument("path", metavar="PATH")
    if where:
        reading.add_argument("--where", metavar="TEXT", help="for example \"fare > 10 AND city IN ('x', 'y')\"")
    if columns:
        reading.add_argument("--columns", type=names, metavar="A,B")
        reading.add_argument(
            "--names",
            choices=("current", "original"),
            default="current",
            help="original: those that columns had before create --rename",
        )
    reading.add_argument(
        "--limit", type=amount, metavar="N", help="at most N rows (default: 20 on a terminal table, else all)"
    )
    if meta:
        reading.add_argument("--meta", action="store_true", help="also Hudi's five meta columns")
    reading.add_argument(
        "--output",
        metavar="FILE",
        help="write the rows to a .parquet, .csv or .jsonl file; CSV has a column for each field of a struct, such as "
        "before.fare",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code. arguments: default `sys.argv[1:]`."""
    top = parser()
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
