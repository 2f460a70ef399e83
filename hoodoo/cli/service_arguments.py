"""Arguments of the maintenance commands: services, checks, exports, and protection of snapshots.

The implementation is in hoodoo.cli.service_commands and hoodoo.cli.commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib import import_module

from hoodoo.cli.argument_types import POSITION, amount, names, pair

Command = Callable[..., argparse.ArgumentParser]


class _AllServices:
    """Lazily loaded names of all table services, from service_list.py."""

    def __iter__(self) -> Iterator[str]:
        return iter(import_module("hoodoo.compactor.service_list").SERVICES)

    def __str__(self) -> str:
        return ",".join(self)


def _limits(service: argparse.ArgumentParser) -> None:
    service.add_argument("--memory", type=amount, metavar="BYTES", help="memory for rows in work (default: 1 GiB)")
    service.add_argument("--max-bytes-per-second", type=float, metavar="N", help="read and write no faster")
    service.add_argument(
        "--groups-at-once", type=amount, metavar="N", help="file groups in work at a time (default: one per core)"
    )


def _catalog(entry: argparse.ArgumentParser) -> None:
    entry.add_argument("--catalog", metavar="NAME", help="the catalog, as pyiceberg's configuration names it")
    entry.add_argument(
        "--catalog-property",
        type=pair,
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a property of the catalog, such as type=glue or uri=...; may be given again",
    )


def services(command: Command) -> None:
    """Add the services, checks and exports. `command` adds a single command, as in `hoodoo.cli.main.parser`."""
    compact = command("compact", "finish open compaction plans, then merge logs into base files")
    compact.add_argument("path", metavar="PATH")
    compact.add_argument(
        "--logs-min", type=amount, default=1, metavar="N", help="only file groups with at least N logs"
    )
    compact.add_argument(
        "--strategy",
        choices=("log_size", "newest_partitions", "whole_partition"),
        default="log_size",
        help="which file groups come first",
    )
    _limits(compact)
    cluster = command("cluster", "pack small files, or sort rows, so that reads skip more; no row changes")
    cluster.add_argument("path", metavar="PATH")
    cluster.add_argument(
        "--by", type=names, metavar="A,B", help="columns to sort by; without them small files are only packed"
    )
    cluster.add_argument("--order", choices=("linear", "zorder", "hilbert"), default="linear")
    _limits(cluster)
    worker = command(
        "worker",
        "compact, cluster, clean and archive tables beside their writers, until SIGTERM",
        "One log record a line: on stderr, or with --json on stdout.",
    )
    worker.add_argument("paths", metavar="PATH", nargs="+")
    chosen = worker.add_argument("--services", type=names, default=_AllServices(), metavar="A,B")
    chosen.help = "default: %(default)s"  # set afterwards, because add_argument of Python 3.14 would load the services
    worker.add_argument(
        "--engine",
        choices=("local", "spark"),
        default="local",
        help="where file groups are rewritten; spark: a local session, or $SPARK_REMOTE",
    )
    _limits(worker)
    worker.add_argument(
        "--metrics-port",
        type=amount,
        metavar="PORT",
        help="serve Prometheus metrics on 127.0.0.1; 0: any free port, which the first record names",
    )
    worker.add_argument("--once", action="store_true", help="end when nothing is left to do")
    worker.add_argument(
        "--poll", type=float, default=1.0, metavar="SECONDS", help="between looks at an idle table (default: 1)"
    )
    worker.add_argument(
        "--logs-min",
        type=amount,
        metavar="N",
        help="logs of a file group that make it due (default: half of compact_after_logs)",
    )
    worker.add_argument(
        "--register",
        action="append",
        metavar="NAMESPACE.TABLE",
        help="create or move the entry of the Iceberg table in a catalog after each export; once for each PATH",
    )
    worker.add_argument(
        "--register-hudi",
        action="append",
        metavar="NAMESPACE.TABLE",
        help="keep the entry that `hoodoo register` makes up to date; once for each PATH",
    )
    _catalog(worker)
    services = command("services", "show what table services owe, who works, and what to do where something is behind")
    services.add_argument("path", metavar="PATH")
    clean = command("clean", "delete files that no snapshot within retention needs")
    clean.add_argument("path", metavar="PATH")
    clean.add_argument("--retain-hours", type=float, metavar="H", help="for this call instead of the table's option")
    clean.add_argument("--retain-commits", type=amount, metavar="N", help="for this call instead of the table's option")
    clean.add_argument(
        "--retain-versions", type=amount, metavar="N", help="for this call instead of the table's option"
    )
    expire = command("expire", "drop partitions in which no row was written for a long time")
    expire.add_argument("path", metavar="PATH")
    expire.add_argument(
        "--older-than-hours", type=float, metavar="H", help="for this call instead of the option partition_ttl_hours"
    )
    sweep = command(
        "sweep", "roll back writes that never ended and delete what dead writers left", "Lists the whole table."
    )
    sweep.add_argument("path", metavar="PATH")
    sweep.add_argument(
        "--older-than-hours", type=float, default=24.0, metavar="H", help="what is younger is left alone (default: 24)"
    )
    archive = command(
        "archive", "delete slots that nothing needs any more, and move old instants of Hudi's timeline into its history"
    )
    archive.add_argument("path", metavar="PATH")
    archive.add_argument(
        "--older-than-hours",
        type=float,
        metavar="H",
        help="for this call instead of the table's option; never less than what stays readable",
    )
    archive.add_argument(
        "--keep-instants", type=amount, metavar="N", help="for this call instead of the table's option"
    )
    verify = command(
        "verify", "check slots, files, keys and index against each other; exit code 1 if something is wrong"
    )
    verify.add_argument("path", metavar="PATH")
    verify.add_argument(
        "--duplicates", action="store_true", help="also whether a key has more than one row, as in two partitions"
    )
    adopt = command(
        "adopt",
        "make a table that Apache Hudi wrote one that hoodoo writes to; version 6 becomes version 9",
        "The first write does that, too, but for version 6. While such a table is upgraded, no other process may write "
        "to it. After a crash, run it again.",
    )
    adopt.add_argument("path", metavar="PATH")
    export = command(
        "export",
        "write Delta or Iceberg metadata beside the table, so that their readers see it as of the newest commit",
        "No row is copied. Of a merge-on-read table they see base files, so that updates show after a compaction; with "
        "--mode merged they see the rows of the table.",
    )
    export.add_argument("path", metavar="PATH")
    export.add_argument("--delta", action="store_true", help="write a Delta log, in _delta_log")
    export.add_argument("--iceberg", action="store_true", help="write Iceberg metadata, in metadata")
    export.add_argument(
        "--mode",
        metavar="MODE",
        help="read_optimized, base files as they are, or merged, with what logs changed (default: option export_mode)",
    )
    export.add_argument(
        "--history",
        metavar="SLOTS",
        default="newest",
        help="newest, an Iceberg snapshot for each export (default), or all, one for each slot that changed base files",
    )
    export.add_argument(
        "--rebuild", action="store_true", help="make the metadata right whatever another writer made of them"
    )
    export.add_argument(
        "--register", metavar="NAMESPACE.TABLE", help="create or move the entry of the Iceberg table in a catalog"
    )
    _catalog(export)
    register = command(
        "register",
        "create or refresh the table's entry in a Hive metastore or in Glue, where readers of Apache Hudi look",
        "A merge-on-read table gets three: NAME and NAME_rt show its rows, NAME_ro its base files. Rows of later "
        "commits show without another run; columns and partitions after it.",
    )
    register.add_argument("path", metavar="PATH")
    register.add_argument("name", metavar="NAMESPACE.TABLE", help="the table in the catalog")
    _catalog(register)
    salvage = command(
        "salvage",
        "make file groups with damaged files readable again; every sound row stays",
        "Damaged files are copied to .hoodie/.hoodoo/salvaged/ below PATH. Exit code 1 if rows would be lost and that "
        "is not accepted, or if a dry run finds damage.",
    )
    salvage.add_argument("path", metavar="PATH")
    salvage.add_argument("--dry-run", action="store_true", help="only say what is damaged and which keys would be lost")
    salvage.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on although the newest version of some keys is lost; an earlier one stays where there is one",
    )
    rollback = command("rollback", "end a pending instant for good and delete its files")
    rollback.add_argument("path", metavar="PATH")
    rollback.add_argument("instant", metavar="INSTANT")
    resolve = command(
        "resolve", "say whether an instant whose commit was left unknown is committed; if not, it never will be"
    )
    resolve.add_argument("path", metavar="PATH")
    resolve.add_argument("instant", metavar="INSTANT")
    check = command("check-store", "try whether a store keeps the promises that commits rest on; exit code 1 if not")
    check.add_argument("path", metavar="URL")


def keeping(command: Command) -> None:
    """Add the commands that protect or restore a snapshot. `command` as in `services`."""
    save = command("savepoint", "keep a snapshot readable under a name, or list the names there are")
    save.add_argument("path", metavar="PATH")
    save.add_argument("name", metavar="NAME", nargs="?", help="without one the savepoints are listed")
    how = save.add_mutually_exclusive_group()
    how.add_argument("--as-of", metavar="POSITION", help=f"the snapshot to keep (default: the newest): {POSITION}")
    how.add_argument(
        "--delete", action="store_true", help="give the savepoint up: the next clean may take what only it holds"
    )
    restore = command("restore", "bring back the rows of an earlier snapshot as a new commit; history stays readable")
    restore.add_argument("path", metavar="PATH")
    restore.add_argument("to", metavar="TO", help=f"a savepoint, or {POSITION}")
