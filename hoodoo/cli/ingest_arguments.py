"""Arguments of `hoodoo ingest`."""

from __future__ import annotations

import argparse

from hoodoo.cli.argument_types import (
    amount,
    parse_fraction,
    parse_names,
    parse_pair,
    parse_polling_interval,
    parse_rate,
    parse_seconds,
    parse_size,
    parse_time_unit,
)
from hoodoo.cli.service_arguments import Command, add_monitoring_arguments


def ingest(command: Command) -> None:
    """Define the commands `hoodoo ingest` and `hoodoo applications`.

    Args:
        command: Function that adds a command to the parser.
    """
    taking = command(
        "ingest",
        "load files, messages or changes of a table; each row exactly once",
        "The read position is stored in the table, in the same commit as the rows. Bad rows go to the table's "
        "quarantine. Exit codes: 3 too many bad rows, 4 unread data was deleted from the source, 5 another "
        "process runs the same job, 6 the current batch did not finish in time.",
    )
    taking.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder of files or a table, also as s3://bucket/prefix; or kafka://broker:9092[,broker:9092]/topic; "
        "or, without PATH, a jobs file that ends in .toml",
    )
    taking.add_argument("path", metavar="PATH", nargs="?", help="path of the table")
    add_process_arguments(taking)
    add_job_arguments(taking)
    shown = command("applications", "list the applications that store their position in the table; also the positions")
    shown.add_argument("path", metavar="PATH")


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the whole process."""
    parser.add_argument(
        "--once", action="store_true", help="exit when there is no new data (default: run until SIGTERM or SIGINT)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read about 100 of the next rows without writing; exit code 1 if some are bad",
    )
    parser.add_argument(
        "--infer",
        action="store_true",
        help="read about 10,000 rows of SOURCE, print their columns in the format of `hoodoo create --schema`, and "
        "exit; without PATH",
    )
    parser.add_argument(
        "--reset",
        metavar="POSITION",
        help="set the position of the job to earliest, latest, a time or a position, and exit",
    )
    parser.add_argument(
        "--expect-number",
        type=int,
        metavar="N",
        help="with --reset: the number that `hoodoo applications` shows; -1 for a new job",
    )
    parser.add_argument(
        "--continue",
        metavar="NAME",
        dest="other",
        help="start at the position of another application: a Spark sink with positions, or hudi-streamer for "
        "Apache Hudi's streamer",
    )
    parser.add_argument(
        "--stop-seconds",
        type=parse_seconds,
        default=30.0,
        metavar="S",
        help="time for the current batch to finish after SIGTERM or SIGINT (default: 30)",
    )
    add_monitoring_arguments(parser, None, "info; with --once warning")


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a single job."""
    parser.add_argument(
        "--name", help="name of the job in the table, which stores the position (default: derived from SOURCE)"
    )
    parser.add_argument(
        "--operation",
        choices=("upsert", "insert", "bulk_insert"),
        default="upsert",
        help="insert and bulk_insert do not overwrite existing rows",
    )
    parser.add_argument(
        "--transform", metavar="MODULE:FUNCTION", help="function that converts each batch, a pyarrow Table"
    )
    parser.add_argument("--new-columns", choices=("ignore", "add", "fail"), default="ignore")
    parser.add_argument(
        "--missing",
        choices=("null", "fail", "keep"),
        default="null",
        help="value of a column that is not in a batch and has no default",
    )
    parser.add_argument(
        "--max-rows",
        type=amount,
        default=500_000,
        metavar="N",
        help="maximum rows or messages per commit (default: 500000)",
    )
    parser.add_argument(
        "--max-bytes",
        type=parse_size,
        default=512 << 20,
        metavar="SIZE",
        help="memory for decoded file bytes or message bytes; a batch uses a third of it (default: 512MiB)",
    )
    parser.add_argument(
        "--max-bad-rows",
        type=amount,
        default=1_000,
        metavar="N",
        help="maximum number of bad rows in a batch (default: 1000)",
    )
    parser.add_argument(
        "--max-bad-share",
        type=parse_fraction,
        default=0.01,
        metavar="X",
        help="maximum share of bad rows in a batch of 100 rows or more (default: 0.01)",
    )
    parser.add_argument(
        "--format",
        choices=("json", "csv", "parquet", "avro", "debezium-json", "debezium-avro"),
        help="format of all files (default: by the extension of each file), or of a topic: json (default), avro, "
        "debezium-json or debezium-avro",
    )
    parser.add_argument(
        "--min-seconds",
        type=parse_seconds,
        default=5.0,
        metavar="S",
        help="minimum time between two commits, ignored with --once (default: 5)",
    )
    parser.add_argument(
        "--max-rows-per-second", type=parse_rate, metavar="N", help="limit for the average rate (default: no limit)"
    )
    parser.add_argument(
        "--poll-seconds",
        type=parse_polling_interval,
        default=5.0,
        metavar="S",
        help="interval between checks for new data (default: 5)",
    )
    files = parser.add_argument_group("folders")
    files.add_argument(
        "--pattern", metavar="GLOB", help="pattern of the files to read, such as '2026/*.jsonl' (default: all files)"
    )
    files.add_argument(
        "--grace-seconds",
        type=parse_seconds,
        metavar="S",
        help="how long to remember a file that was removed from the folder (default: 86400, one day)",
    )
    files.add_argument(
        "--settle-seconds",
        type=parse_seconds,
        metavar="S",
        help="how long a file must be unchanged before it is read (default: 2 in a folder, 0 on S3)",
    )
    files.add_argument(
        "--on-change",
        choices=("fail", "again"),
        help="what to do if a file changes after it was read (default: fail)",
    )
    files.add_argument(
        "--on-bad-file",
        choices=("fail", "quarantine"),
        help="what to do if a file is damaged or unreadable (default: fail)",
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument(
        "--moves",
        type=parse_names,
        metavar="A,B",
        help="partition columns of PATH, if SOURCE has different partition columns",
    )
    tables.add_argument(
        "--hold", metavar="NAME", help="protect unread changes of SOURCE from cleaning, with a consumer of this name"
    )
    topics = parser.add_argument_group(
        "Kafka topics",
        "They need confluent-kafka: pip install 'hoodoo[kafka]'.",
    )
    topics.add_argument("--start", choices=("earliest", "latest"), help="where a new job starts (default: earliest)")
    topics.add_argument(
        "--on-loss",
        choices=("fail", "skip"),
        help="what to do if unread messages were deleted (default: fail)",
    )
    topics.add_argument(
        "--tombstones",
        choices=("quarantine", "skip"),
        help="what to do with messages without a value (default: quarantine)",
    )
    topics.add_argument(
        "--truncate",
        choices=("fail", "ignore", "delete"),
        help="Debezium: what to do if the source table was truncated (default: fail); ignore: keep all rows; "
        "delete: delete all rows of PATH",
    )
    topics.add_argument(
        "--before",
        choices=("event", "lookup"),
        help="Debezium: how to find the partition of a row before its change (default: event); event: from the "
        "message; lookup: by its key in PATH",
    )
    topics.add_argument(
        "--time-unit",
        type=parse_time_unit,
        action="append",
        metavar="[COLUMN=]UNIT",
        help="Debezium: unit (ms, us or ns) of times in messages without a schema; may be repeated",
    )
    topics.add_argument(
        "--as-spark-offsets",
        action="store_true",
        help="print the position of the job as startingOffsets for Spark's Kafka source, and exit",
    )
    topics.add_argument(
        "--registry",
        metavar="URL",
        help="avro, debezium-avro: schema registry; set HOODOO_REGISTRY_AUTH=user:password in the environment for a "
        "login",
    )
    topics.add_argument(
        "--setting",
        type=parse_pair,
        action="append",
        metavar="NAME=VALUE",
        dest="settings",
        help="setting of the Kafka client, such as security.protocol=SSL; may be repeated",
    )
    topics.add_argument(
        "--settings-from",
        metavar="FILE",
        help="file with lines NAME=VALUE, for secrets that must not appear on the command line",
    )
