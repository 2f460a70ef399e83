"""A PySpark driver that upserts batches until it is killed. Run as `driver.py TABLE NOTES NAME SCRATCH`.

Its tasks route and write in Python workers (nothing is handled in this process). Each batch carries a version of the
driver's own application and is noted before it begins and after it is acknowledged; a driver that takes over goes on
after the last acknowledged one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from spark_settings import local_settings

import hoodoo
from hoodoo.writers.staging import staged

KEYS = 60
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("who", pa.string())])


def batch(name: str, number: int) -> list[dict[str, object]]:
    """Two thirds of the keys; a larger number wins, so that the order in which drivers take turns shows."""
    return [{"id": key, "part": "pq"[key % 2], "ts": number, "who": name} for key in range(KEYS) if (key + number) % 3]


def main(path: str, notes: Path, name: str, scratch: Path) -> None:
    staged.IN_PROCESS_BYTES = 0
    builder = SparkSession.builder.master("local[2,20]").appName(name)
    for key, value in (
        local_settings(scratch) | {"spark.driver.memory": "700m", "spark.python.worker.reuse": "true"}
    ).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    table, number = hoodoo.open(path), last(notes)
    with notes.open("a") as out:

        def note(**fields: object) -> None:
            out.write(json.dumps(fields) + "\n")
            out.flush()
            os.fsync(out.fileno())

        while True:
            number += 1
            rows = batch(name, number)
            note(begin=number)
            result = table.upsert(
                spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).repartition(3), transaction=(name, number)
            )
            note(ok=number, instant=result.instant, skipped=result.skipped)


def last(notes: Path) -> int:
    """The last acknowledged number; what came after is written again."""
    if not notes.exists():
        return 0
    text = notes.read_text()
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return max((line["ok"] for line in lines if "ok" in line), default=0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
