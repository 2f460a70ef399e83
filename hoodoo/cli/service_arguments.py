"""Arguments of the commands for table services.

The implementation is in hoodoo.cli.service_commands and hoodoo.cli.commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib import import_module

from hoodoo.cli.argument_types import POSITION, amount, parse_names, parse_pair, parse_port, parse_size

Command = Callable[..., argparse.ArgumentParser]


class _AllServices:
    """Names of all table services."""

    def __iter__(self) -> Iterator[str]:
        return iter(import_module("hoodoo.compactor.service_list").SERVICES)

    def __str__(self) -> str:
        return ",".join(self)


def _limits(service: argparse.ArgumentParser) -> None:
    service.add_argument(
        "--memory",
        type=parse_size,
        metavar="SIZE",
        help="memory for the rows being rewritten, such as 2GB (default: 1GiB)",
    )
    service.add_argument(
        "--max-bytes-per-second",
        type=parse_size,
        metavar="SIZE",
        help="maximum rate for reading and writing, such as 50MB",
    )
    service.add_argument(
        "--groups-at-once",
        type=amount,
        metavar="N",
        help="number of file groups to rewrite in parallel (default: one per core)",
    )


def add_monitoring_arguments(process: argparse.ArgumentParser, level: str | None, default: str) -> None:
    """Add the arguments for logs and metrics.

    Args:
        process: The parser of the command.
        level: The default log level. None: the command chooses the level.
        default: Description of the default log level for the help.
    """
    process.add_argument(
        "--metrics-port",
        type=parse_port,
        metavar="PORT",
        help="serve Prometheus metrics; 0: any free port, shown in the first log record",
    )
    process.add_argument(
        "--metrics-address",
        default="127.0.0.1",
        metavar="HOST",
        help="address that serves the metrics, such as 0.0.0.0 for other machines (default: 127.0.0.1)",
    )
    process.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=level,
        help=f"minimum level of log records (default: {default})",
    )


def _tables(command: argparse.ArgumentParser) -> None:
    text = "tables; a quoted pattern such as 's3://bucket/lake/*' matches all tables below a prefix"
    command.add_argument("paths", metavar="PATH", nargs="+", help=text)


def _catalog(entry: argparse.ArgumentParser) -> None:
    entry.add_argument("--catalog", metavar="NAME", help="name of the catalog in pyiceberg's configuration")
    entry.add_argument(
        "--catalog-property",
        type=parse_pair,
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="property of the catalog, such as type=glue or uri=...; may be repeated",
    )


def define_service_commands(command: Command) -> None:
    """Define the commands for table services, repair and exports.

    Args:
        command: Function that adds a command to the parser, see `hoodoo.cli.main.parser`.
    """
    compact = command("compact", "finish open compaction plans, then merge logs into base files")
    compact.add_argument("path", metavar="PATH")
    compact.add_argument(
        "--logs-min", type=amount, default=1, metavar="N", help="compact only file groups with at least N logs"
    )
    compact.add_argument(
        "--strategy",
        choices=("log_size", "newest_partitions", "whole_partition"),
        default="log_size",
        help="file groups to compact first",
    )
    _limits(compact)
    cluster = command("cluster", "merge small files, or sort rows so that reads skip more files; no row changes")
    cluster.add_argument("path", metavar="PATH")
    cluster.add_argument(
        "--sort-by",
        type=parse_names,
        metavar="A,B",
        help="columns to sort by; without them, small files are only merged",
    )
    cluster.add_argument("--order", choices=("linear", "zorder", "hilbert"), default="linear")
    _limits(cluster)
    worker = command(
        "worker",
        "compact, cluster, clean and archive tables until SIGTERM; writers continue",
        "Log records are written one per line: to stderr, or with --json to stdout.",
    )
    _tables(worker)
    chosen = worker.add_argument("--services", type=parse_names, default=_AllServices(), metavar="A,B")
    chosen.help = "default: %(default)s"  # set afterwards, because add_argument of Python 3.14 would load the services
    worker.add_argument(
        "--engine",
        choices=("local", "spark"),
        default="local",
        help="where file groups are rewritten; spark: a local session, or the server in $SPARK_REMOTE",
    )
    _limits(worker)
    add_monitoring_arguments(worker, "info", "info")
    worker.add_argument("--once", action="store_true", help="exit when no work is left")
    worker.add_argument(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="interval between checks of an idle table (default: 1)",
    )
    worker.add_argument(
        "--logs-min",
        type=amount,
        metavar="N",
        help="compact file groups with at least N logs (default: half of compact_after_logs)",
    )
    worker.add_argument(
        "--register",
        action="append",
        metavar="NAMESPACE.TABLE",
        help="create or update the Iceberg table's entry in a catalog after each export; once per PATH",
    )
    worker.add_argument(
        "--register-hudi",
        action="append",
        metavar="NAMESPACE.TABLE",
        help="update the entry that `hoodoo register` creates; once per PATH",
    )
    _catalog(worker)
    services = command("services", "show due table services and workers; also what to do about services that lag")
    _tables(services)
    services.add_argument("--check", action="store_true", help="exit with 3 if a service of a table lags")
    clean = command("clean", "delete files that no snapshot within retention needs")
    clean.add_argument("path", metavar="PATH")
    clean.add_argument("--retain-hours", type=float, metavar="H", help="override the table option for this call")
    clean.add_argument("--retain-commits", type=amount, metavar="N", help="override the table option for this call")
    clean.add_argument("--retain-versions", type=amount, metavar="N", help="override the table option for this call")
    expire = command("expire", "drop partitions without recent writes")
    expire.add_argument("path", metavar="PATH")
    expire.add_argument(
        "--older-than-hours",
        type=float,
        metavar="H",
        help="override the table option partition_ttl_hours for this call",
    )
    sweep = command(
        "sweep",
        "roll back unfinished writes, delete files of dead writers",
        "Lists all files of the table.",
    )
    sweep.add_argument("path", metavar="PATH")
    sweep.add_argument(
        "--older-than-hours",
        type=float,
        default=24.0,
        metavar="H",
        help="keep files that are younger than H hours (default: 24)",
    )
    archive = command("archive", "delete old slots; also move old instants of Hudi's timeline into its history folder")
    archive.add_argument("path", metavar="PATH")
    archive.add_argument(
        "--older-than-hours",
        type=float,
        metavar="H",
        help="override the table option for this call; readable snapshots always stay",
    )
    archive.add_argument("--keep-instants", type=amount, metavar="N", help="override the table option for this call")
    verify = command(
        "verify", "check that slots, files, keys and index are consistent; exit code 1 if there is a problem"
    )
    _tables(verify)
    verify.add_argument(
        "--duplicates", action="store_true", help="also find keys with more than one row, such as in two partitions"
    )
    adopt = command(
        "adopt",
        "prepare a table of Apache Hudi for writes by hoodoo; version 6 becomes version 9",
        "The first write does this automatically, except for version 6. While a version 6 table is upgraded, "
        "no other process may write to it. Run the command again after a crash.",
    )
    adopt.add_argument("path", metavar="PATH")
    export = command(
        "export",
        "write Delta or Iceberg metadata of the newest commit; it is stored next to the table",
        "No row is copied. Readers see the base files of a merge-on-read table, so updates become visible "
        "after compaction. With --mode merged they see all current rows.",
    )
    export.add_argument("path", metavar="PATH")
    export.add_argument("--delta", action="store_true", help="write a Delta log to the folder _delta_log")
    export.add_argument("--iceberg", action="store_true", help="write Iceberg metadata to the folder metadata")
    export.add_argument(
        "--mode",
        metavar="MODE",
        help="read_optimized: base files only; merged: base files with the changes in logs (default: table option "
        "export_mode)",
    )
    export.add_argument(
        "--history",
        metavar="SLOTS",
        default="newest",
        help="newest: one Iceberg snapshot per export (default); all: one snapshot per slot that changed base files",
    )
    export.add_argument(
        "--iceberg-version",
        type=int,
        metavar="N",
        help="version of the Iceberg format: 2, or 3 with deletion vectors and row ids (default: the version of the "
        "existing export, or 2)",
    )
    export.add_argument(
        "--rebuild", action="store_true", help="recreate the metadata, even if another writer changed them"
    )
    export.add_argument(
        "--change-feed", action="store_true", help="enable the change data feed of the Delta log; later exports keep it"
    )
    export.add_argument(
        "--register", metavar="NAMESPACE.TABLE", help="create or update the Iceberg table's entry in a catalog"
    )
    _catalog(export)
    register = command(
        "register",
        "create or update the entry in a Hive metastore or Glue; readers of Apache Hudi use it",
        "A merge-on-read table gets three entries: NAME and NAME_rt show all rows, NAME_ro only the base "
        "files. New rows are visible at once. Run the command again after changes of columns or partitions.",
    )
    register.add_argument("path", metavar="PATH")
    register.add_argument("name", metavar="NAMESPACE.TABLE", help="name of the table in the catalog")
    _catalog(register)
    salvage = command(
        "salvage",
        "make file groups with damaged files readable again; all undamaged rows stay",
        "Damaged files are copied to .hoodie/.hoodoo/salvaged/ below PATH. Exit code 1 if rows would be lost "
        "without --accept-loss, or if a dry run finds damage.",
    )
    salvage.add_argument("path", metavar="PATH")
    salvage.add_argument(
        "--dry-run", action="store_true", help="only show which files are damaged and which keys would be lost"
    )
    salvage.add_argument(
        "--accept-loss",
        action="store_true",
        help="continue although the newest version of some keys is lost; an earlier version stays if there is one",
    )
    rollback = command("rollback", "roll back a pending instant and delete its files")
    rollback.add_argument("path", metavar="PATH")
    rollback.add_argument("instant", metavar="INSTANT")
    resolve = command(
        "resolve",
        "find out whether an instant is committed; if it is not, it can no longer be committed",
    )
    resolve.add_argument("path", metavar="PATH")
    resolve.add_argument("instant", metavar="INSTANT")
    check = command("check-store", "check that a store supports the operations of commits; exit code 1 if not")
    check.add_argument("path", metavar="URL")


def define_savepoint_commands(command: Command) -> None:
    """Define the commands `savepoint` and `restore`.

    Args:
        command: Function that adds a command to the parser, as in `services`.
    """
    save = command("savepoint", "keep a snapshot readable under a name, or list savepoints")
    save.add_argument("path", metavar="PATH")
    save.add_argument(
        "name", metavar="NAME", nargs="?", help="name of the savepoint; without NAME, savepoints are listed"
    )
    how = save.add_mutually_exclusive_group()
    how.add_argument("--as-of", metavar="POSITION", help=f"snapshot to keep (default: the newest): {POSITION}")
    how.add_argument(
        "--delete",
        action="store_true",
        help="delete the savepoint; the next cleaning may delete files that only this savepoint needs",
    )
    restore = command("restore", "restore the rows of an earlier snapshot in a new commit; history stays readable")
    restore.add_argument("path", metavar="PATH")
    restore.add_argument("to", metavar="TO", help=f"a savepoint, or {POSITION}")
