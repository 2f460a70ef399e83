"""Arguments of `hoodoo ingest`: process arguments, and job arguments, which are also valid as keys of a jobs file."""

from __future__ import annotations

import argparse

from hoodoo.cli.argument_types import amount, names, pair, pause, port, rate, seconds, share, time_unit
from hoodoo.cli.service_arguments import Command


def ingest(command: Command) -> None:
    """Define the arguments of `hoodoo ingest` and `hoodoo applications`."""
    taking = command(
        "ingest",
        "take in what others put into a folder, send to a topic, or change in another table, each row once",
        "How far the source was read lies in the table, with the rows. Bad rows go to the table's quarantine. Exit "
        "codes: 3 too many bad rows, 4 what comes next is gone from the source, 5 another process of this job is "
        "always first, 6 the batch in hand did not end in time.",
    )
    taking.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder of files, or a table, also as s3://bucket/prefix; or kafka://broker:9092[,broker:9092]/topic; "
        "or without PATH a file of jobs that ends in .toml",
    )
    taking.add_argument("path", metavar="PATH", nargs="?", help="of the table")
    of_process(taking)
    of_job(taking)
    shown = command("applications", "list who has committed with a number of their own, and how far each has read")
    shown.add_argument("path", metavar="PATH")


def of_process(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that apply to all jobs of a process."""
    parser.add_argument(
        "--once", action="store_true", help="end when there is nothing new (default: go on until SIGTERM or SIGINT)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read about 100 rows of what comes next, and write nothing; 1: some are bad",
    )
    parser.add_argument(
        "--infer",
        action="store_true",
        help="look at about 10,000 rows of SOURCE, print the columns that they have as `hoodoo create --schema` takes "
        "them, and end; without PATH",
    )
    parser.add_argument(
        "--reset",
        metavar="PLACE",
        help="go on from another place: earliest, latest, a time, or a position; then end",
    )
    parser.add_argument(
        "--expect-number", type=int, metavar="N", help="with --reset: what `hoodoo applications` says; -1 for a new job"
    )
    parser.add_argument(
        "--continue",
        metavar="NAME",
        dest="other",
        help="begin where another application has read to: a sink on Spark with positions, or hudi-streamer, Apache "
        "Hudi's",
    )
    parser.add_argument(
        "--stop-seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="for which the batch in hand may go on after SIGTERM or SIGINT (default: 30)",
    )
    parser.add_argument(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help="serve metrics in Prometheus' form on 127.0.0.1; 0: any port",
    )


def of_job(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a single job."""
    parser.add_argument("--name", help="of the job, by which the table knows how far it is; default: from SOURCE")
    parser.add_argument(
        "--operation",
        choices=("upsert", "insert", "bulk_insert"),
        default="upsert",
        help="insert and bulk_insert keep the rows that are there",
    )
    parser.add_argument(
        "--transform", metavar="MODULE:FUNCTION", help="a function that is given each batch as a pyarrow Table"
    )
    parser.add_argument("--new-columns", choices=("ignore", "add", "fail"), default="ignore")
    parser.add_argument(
        "--missing",
        choices=("null", "fail", "keep"),
        default="null",
        help="what to do about a column that a batch lacks and that has no default",
    )
    parser.add_argument(
        "--max-rows", type=amount, default=500_000, metavar="N", help="rows or messages in one commit (default: 500000)"
    )
    parser.add_argument(
        "--max-bytes",
        type=amount,
        default=512 << 20,
        metavar="N",
        help="decoded bytes of files, or bytes of messages, in memory; a batch has a third (default: 536870912)",
    )
    parser.add_argument("--max-bad-rows", type=amount, default=1_000, metavar="N", help="of a batch")
    parser.add_argument(
        "--max-bad-share", type=share, default=0.01, metavar="X", help="of a batch of 100 rows or more (default: 0.01)"
    )
    parser.add_argument(
        "--format",
        choices=("json", "csv", "parquet", "avro", "debezium-json", "debezium-avro"),
        help="what all files hold (default: what the name of each says); of a topic json (default), avro, "
        "debezium-json or debezium-avro",
    )
    parser.add_argument(
        "--min-seconds",
        type=seconds,
        default=5.0,
        metavar="S",
        help="between two commits, unless --once is given (default: 5)",
    )
    parser.add_argument(
        "--max-rows-per-second", type=rate, metavar="N", help="in the mean (default: as many as there are)"
    )
    parser.add_argument("--poll-seconds", type=pause, default=5.0, metavar="S", help="between two looks (default: 5)")
    files = parser.add_argument_group("folders")
    files.add_argument("--pattern", metavar="GLOB", help="which files, such as '2026/*.jsonl' (default: all)")
    files.add_argument(
        "--grace-seconds",
        type=seconds,
        metavar="S",
        dest="grace_s",
        help="for how long a file is remembered after it left the folder (default: 86400, a day)",
    )
    files.add_argument(
        "--settle-seconds",
        type=seconds,
        metavar="S",
        dest="settle_s",
        help="for how long a file must not have changed (default: 2 in a folder, 0 on S3)",
    )
    files.add_argument(
        "--on-change",
        choices=("fail", "again"),
        help="what to do if a file that was read is rewritten (default: fail)",
    )
    files.add_argument(
        "--on-bad-file",
        choices=("fail", "quarantine"),
        help="what to do if a file is damaged or cannot be read (default: fail)",
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument(
        "--moves",
        type=names,
        metavar="A,B",
        help="columns of which the partitions of PATH are made, if those of SOURCE are made of others",
    )
    tables.add_argument(
        "--hold", metavar="NAME", help="have cleaning of SOURCE keep what was not read, by a consumer of this name"
    )
    topics = parser.add_argument_group("topics of Kafka", "They need confluent-kafka: pip install 'hoodoo[kafka]'.")
    topics.add_argument("--start", choices=("earliest", "latest"), help="where a new job begins (default: earliest)")
    topics.add_argument(
        "--on-loss",
        choices=("fail", "skip"),
        help="what to do where messages are gone that were not read (default: fail)",
    )
    topics.add_argument(
        "--tombstones",
        choices=("quarantine", "skip"),
        help="what to do about messages without a value (default: quarantine)",
    )
    topics.add_argument(
        "--truncate",
        choices=("fail", "ignore", "delete"),
        help="of Debezium: what to do where the source table was emptied (default: fail); ignore keeps the rows, "
        "delete deletes all rows of PATH",
    )
    topics.add_argument(
        "--before",
        choices=("event", "lookup"),
        help="of Debezium: what tells in which partition of PATH the row before a change was (default: event); lookup "
        "looks each key up",
    )
    topics.add_argument(
        "--time-unit",
        type=time_unit,
        action="append",
        metavar="[COLUMN=]UNIT",
        help="of Debezium: the unit (ms, us or ns) of times, if no schema in the messages says it; may be repeated",
    )
    topics.add_argument(
        "--as-spark-offsets",
        action="store_true",
        help="print how far the job is, as startingOffsets of Spark's source for Kafka; then end",
    )
    topics.add_argument(
        "--registry",
        metavar="URL",
        help="avro, debezium-avro: the schema registry; the environment's HOODOO_REGISTRY_AUTH=user:password says who "
        "asks",
    )
    topics.add_argument(
        "--setting",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting of the client, such as security.protocol=SSL; may be repeated",
    )
    topics.add_argument(
        "--settings-from", metavar="FILE", help="lines of NAME=VALUE: what is secret does not belong on a command line"
    )
