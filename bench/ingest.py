"""Messages into a table, batch by batch: hoodoo's job beside deltalake's merge and append.

Ten columns in 20 partitions, every key a new one; the table of hoodoo is merge-on-read with an ordering column, and its
services run as they do by themselves. Messages are JSON or change events of Debezium in a topic of Kafka, or records of
Avro that lie in memory. Each contender is a process of its own, and all take the same batch in turn, so that they share
the machine's mood. They read and decode in the same way, which 'decode' does alone: no table takes rows in faster.
deltalake's tables do not know how far the source was read. Per contender: rows for each CPU second of its process, the
median of all batches but the first two, and CPU seconds of a batch. The broker is that of the tests (`make kafka`).

    python bench/ingest.py [--what json|debezium|avro] [--rows 500000] [--batches 10] [--only hoodoo,deltalake-merge]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
from workload import SCHEMA, rows

import hoodoo
from hoodoo.sources import Kafka, Limits, Part, Planned, SchemaRegistry, Source, SourceLag
from hoodoo.sources.avro_messages import AvroDecoder
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.sources.bad_messages import BadMessages

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 20
_OF_TOPIC = 4
_LEFT_OUT = 2  # of the batches, while caches fill and libraries are loaded
_KINDS = {pa.string(): "string", pa.int64(): "long", pa.float64(): "double"}
RECORD = {
    "type": "record",
    "name": "row",
    "fields": [{"name": field.name, "type": _KINDS[field.type]} for field in SCHEMA],
}
FORMATS = {"json": "json", "debezium": "debezium-json"}


class Stepwise(Kafka):
    """A topic of which a job takes one batch whenever it is told to."""

    batches = 0

    def next(self, batch: int, most: int) -> None:
        self.batches = 1

    def plan(self, position: str, limits: Limits) -> Planned | None:
        self.batches, there = self.batches - 1, self.batches > 0
        return super().plan(position, limits) if there else None


class OneSchema(SchemaRegistry):
    """A registry that has one schema, and that nobody has to ask for it."""

    def __init__(self) -> None:
        super().__init__("http://registry")

    def schema(self, number: int) -> list[str]:
        return [json.dumps(RECORD)]


class Recorded(Source):
    """Messages of Avro that lie in memory."""

    name = "recorded"

    def __init__(self) -> None:
        self.there, self.messages = 0, list[tuple[int, bytes]]()
        self._schemas = AvroSchemas(OneSchema())

    def next(self, batch: int, most: int) -> None:
        schema, self.messages = fastavro.parse_schema(RECORD), []
        for number, row in enumerate(rows(np.arange(batch * most, (batch + 1) * most), 0, PARTITIONS).to_pylist()):
            sink = io.BytesIO(bytes(5))
            sink.seek(5)
            fastavro.schemaless_writer(sink, schema, row)
            self.messages.append((number, sink.getvalue()))
        self.there = batch + 1

    def plan(self, position: str, limits: Limits) -> Planned | None:
        return Planned(None, str(self.there)) if int(position or 0) < self.there else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        decoder = AvroDecoder("recorded", columns, unknown, self._schemas)
        decoded = decoder.rows(self.messages, BadMessages("recorded", 0, lambda number, _: str(number)))
        yield Part(pa.concat_tables(found for found, _ in decoded))

    def lag(self, position: str) -> SourceLag:
        return SourceLag(self.there - int(position or 0), "batches", 0.0)


def ours(source: Source, folder: Path, most: int) -> Callable[[], int]:
    order = "_event_lsn" if getattr(source, "format", "") == FORMATS["debezium"] else "ts"
    schema = SCHEMA if order in SCHEMA.names else SCHEMA.append(pa.field(order, pa.int64()))
    table = hoodoo.create(folder / "t", schema, key="key", partition_by="part", order_by=order, type="merge_on_read")
    job, taken = hoodoo.ingest(source, table, max_rows=most), 0

    def step() -> int:
        nonlocal taken
        before, taken = taken, job.run().rows
        return taken - before

    return step


def theirs(source: Source, folder: Path, most: int, take: Callable[[str, pa.Table], None]) -> Callable[[], int]:
    path, position = str(folder / "t"), ""

    def step() -> int:
        nonlocal position
        planned = source.plan(position, Limits(rows=most))
        assert planned is not None
        batch = pa.concat_tables(part.rows.select(SCHEMA.names) for part in source.read(planned, SCHEMA, False))
        position = planned.position
        take(path, batch)
        return len(batch)

    return step


def append(path: str, batch: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(path, batch, mode="append", partition_by=["part"])


def merge(path: str, batch: pa.Table) -> None:
    from deltalake import DeltaTable

    if not Path(path).exists():
        append(path, SCHEMA.empty_table())
    match = "t.part = s.part AND t.key = s.key"
    merging = DeltaTable(path).merge(batch, predicate=match, source_alias="s", target_alias="t")
    merging.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()


CONTENDERS: dict[str, Callable[[Source, Path, int], Callable[[], int]]] = {
    "hoodoo": ours,
    "decode": lambda source, folder, most: theirs(source, folder, most, lambda path, batch: None),
    "deltalake-merge": lambda source, folder, most: theirs(source, folder, most, merge),
    "deltalake-append": lambda source, folder, most: theirs(source, folder, most, append),
}


def contend(name: str, what: str, address: str, topic: str, most: int) -> None:
    """In a process of its own: a batch for each line that comes in, and a line out that says what it took."""
    source = Recorded() if what == "avro" else Stepwise(address, topic, format=FORMATS[what])
    with tempfile.TemporaryDirectory() as scratch:
        step = CONTENDERS[name](source, Path(scratch), most)
        for batch, _ in enumerate(sys.stdin):
            source.next(batch, most)
            wall_s, cpu_s = time.perf_counter(), sum(os.times()[:4])
            count = step()
            took = {"rows": count, "wall_s": time.perf_counter() - wall_s, "cpu_s": sum(os.times()[:4]) - cpu_s}
            print(json.dumps(took), flush=True)


def messages(what: str, first: int, count: int) -> list[tuple[bytes | None, bytes]]:
    import polars

    text, made = io.BytesIO(), rows(np.arange(first, first + count), 0, PARTITIONS)
    polars.from_arrow(made).write_ndjson(text)
    lines = text.getvalue().splitlines()
    if what == "json":
        return [(None, line) for line in lines]
    return [
        (
            b'{"key":"%s"}' % key.encode(),
            b'{"before":null,"after":%s,"source":{"version":"3.0.8.Final","connector":"postgresql","name":"pg",'
            b'"ts_ms":1764200000000,"snapshot":"false","db":"shop","sequence":"[null,\\"%d\\"]","schema":"shop",'
            b'"table":"rows","txId":%d,"lsn":%d,"xmin":null},"transaction":null,"op":"c","ts_ms":1764200000001}'
            % (line, first + at, first + at, first + at),
        )
        for at, (key, line) in enumerate(zip(made["key"].to_pylist(), lines, strict=True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=("json", "debezium", "avro"), default="json")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--only", default=",".join(CONTENDERS))
    parser.add_argument("--contend", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contend:
        name, address, topic, most = given.contend
        contend(name, given.what, address, topic, int(most))
        return
    took: dict[str, list[dict[str, float]]] = {name: [] for name in given.only.split(",")}
    if given.what == "avro":
        race(given, took, "", "")
    else:
        sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
        from kafka_broker import broker  # the broker of the tests

        with tempfile.TemporaryDirectory() as scratch, broker(Path(scratch)) as kafka:
            topic = kafka.topic(_OF_TOPIC)
            fill(kafka.address, topic, given)
            race(given, took, kafka.address, topic)
    print(f"\nmedian of batches {_LEFT_OUT + 1} to {given.batches} of {given.rows:,} rows, {given.what}")
    for name, batches in took.items():
        rate, cpu_s = (statistics.median(map(of, batches[_LEFT_OUT:])) for of in (_per_cpu_s, lambda one: one["cpu_s"]))
        print(f"{name:17} {rate:10,.0f} rows per CPU second, {cpu_s:6.3f} CPU seconds a batch")
    RESULTS.mkdir(exist_ok=True)
    said = {"what": given.what, "rows": given.rows, "batches": took}
    (RESULTS / f"ingest-{given.what}-{given.rows}.json").write_text(json.dumps(said, indent=1))


def fill(address: str, topic: str, given: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "compression.type": "lz4", "linger.ms": 20})
    share = given.rows // _OF_TOPIC
    for part in range(given.batches * _OF_TOPIC):
        for key, value in messages(given.what, part * share, share):
            while True:
                try:
                    producer.produce(topic, value, key, part % _OF_TOPIC)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()


def race(given: argparse.Namespace, took: dict[str, list[dict[str, float]]], address: str, topic: str) -> None:
    """Have each contender take a batch in turn."""
    command = [sys.executable, __file__, "--what", given.what, "--contend"]
    running = {
        name: subprocess.Popen(
            [*command, name, address, topic, str(given.rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in took
    }
    for batch in range(given.batches):
        for name, process in running.items():
            assert process.stdin and process.stdout
            print("next", file=process.stdin, flush=True)
            took[name].append(json.loads(process.stdout.readline()))
            print(f"batch {batch + 1:2}  {name:17} {_per_cpu_s(took[name][-1]):10,.0f} rows per CPU second")
    for process in running.values():
        process.communicate()


def _per_cpu_s(batch: dict[str, float]) -> float:
    return batch["rows"] / batch["cpu_s"]


if __name__ == "__main__":
    main()
