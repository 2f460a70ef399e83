"""A table follows a table of PostgreSQL, with real servers: PostgreSQL, Debezium in Kafka Connect, a broker of Kafka,
and a job of hoodoo. All of them run for as long as the program does. recorded.py does the same without servers.

    python pipeline.py [FOLDER] --fetch

It needs a checkout (make venv, make kafka), Java and PostgreSQL; --fetch gets the jars of Debezium, once. What is not
here is said, with exit code 2.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import needs
import pyarrow as pa
import recorded
import shop
from patience import NotInTime, wait_for

import hoodoo
from hoodoo.types import Job

_ROWS = "COPY (SELECT * FROM shop.orders ORDER BY id) TO STDOUT (FORMAT csv, HEADER)"


def run(scratch: Path, programs: Path, table: hoodoo.Table, record: bool) -> None:
    """Tell the story. The servers' files lie in `scratch`."""
    from kafka_broker import broker  # what they need is here only after needs.py has said so
    from servers import debezium, postgres

    print("Starting PostgreSQL, Kafka and Debezium", flush=True)
    seen, messages = list[hoodoo.Cursor](), list[dict[str, Any]]()
    with postgres(scratch / "postgres", programs) as database, broker(scratch / "kafka") as kafka:
        steps = list(shop.STEPS.items())
        database.run(steps[0][1])
        kafka.topic(name=shop.TOPIC)
        topic = hoodoo.sources.Kafka(kafka.address, shop.TOPIC, format="debezium-json")
        # hoodoo ingest kafka://ADDRESS/pg.shop.orders TABLE --format debezium-json --name orders
        job = hoodoo.ingest(topic, hoodoo.open(table.path), name="orders", min_seconds=0)
        with debezium(scratch / "connect", kafka.address, database, "shop.orders") as connect, going_on(job) as goes_on:
            for number, (title, sql) in enumerate(steps):
                if number:
                    database.run(sql)
                began, csv = time.monotonic(), database.run(_ROWS)
                seen.append(wait_for_rows(table, shop.rows_of_csv(csv), lambda: goes_on() and connect.require()))
                shop.show(f"{title}, here after {time.monotonic() - began:.1f} s", shop.rows(table, seen[-1]))
                if record:
                    messages += [
                        {"step": number, "key": key, "value": value}
                        for key, value in sent(kafka.address, len(messages))
                    ]
    shop.look_back(table, seen)
    shop.require_same(table, shop.rows_of_csv(csv))
    if record:
        recorded.write(messages, csv)


@contextmanager
def going_on(job: Job) -> Iterator[Callable[[], bool]]:
    """Let a job follow its source in a thread. Yields what raises its error once it has one."""
    with ThreadPoolExecutor(1) as pool:
        running: Future[Any] = pool.submit(job.run, once=False, poll_seconds=0.2)
        try:
            yield lambda: not running.done() or bool(running.result())
        finally:
            job.stop()


def wait_for_rows(table: hoodoo.Table, wanted: pa.Table, healthy: Callable[[], object]) -> hoodoo.Cursor:
    """Wait until a table has the rows; where it stands then. healthy: raises once nothing more can come."""
    looked: hoodoo.Cursor | None = None

    def there() -> hoodoo.Cursor | None:
        nonlocal looked
        healthy()
        if table.cursor == looked:
            return None
        looked = table.cursor
        return looked if shop.rows(table, looked).equals(wanted) else None

    return wait_for(there, "the rows of the database in the table")


def sent(servers: str, first: int) -> Iterator[tuple[Any, Any]]:
    """The keys and values of the topic's messages from one on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "recorder"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(shop.TOPIC, 0), timeout=10)
        consumer.assign([TopicPartition(shop.TOPIC, 0, first)])
        for message in consumer.consume(end - first, timeout=10):
            yield json.loads(message.key()), json.loads(message.value() or b"null")
    finally:
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="A table follows a table of PostgreSQL, with real servers.")
    parser.add_argument("folder", nargs="?", help="where the table is made, to stay; else it is thrown away at the end")
    parser.add_argument("--postgres", metavar="FOLDER", help="where initdb, postgres and psql are")
    parser.add_argument("--fetch", action="store_true", help="fetch the jars of Debezium, 36 MB, if they are not here")
    parser.add_argument("--record", action="store_true", help="write recorded.jsonl and recorded.csv anew")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all servers end too
    try:
        needs.find_java()
        programs = needs.find_postgres(given.postgres)
        needs.require_jars(given.fetch)
    except needs.Missing as missing:
        print(f"{missing} recorded.py shows the same and needs nothing of this.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="postgres-to-lake-") as scratch, shop.made(given.folder) as table:
        Path(scratch).chmod(0o711)  # the user postgres has a folder of its own in it
        try:
            run(Path(scratch), programs, table, given.record)
        except NotInTime as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
