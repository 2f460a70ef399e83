"""Let Apache Hudi write the small tables of tests/data/golden_columns: each changes its columns, by names or with
Hudi's internal schema, as tools/golden.py's tables change their rows.

    make golden

Of their form, with `schemas` in place of `read_optimized` and `changed`: the names of the columns as of each instant.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "support")]

import hudi_session as hudi  # noqa: E402  the path above comes first
from golden import Golden, completed, pack, sorted_rows  # noqa: E402
from hudi_jars import RELEASE  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

FIRST = "id string, city string, ts bigint, a int, b string"
DROPS = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
BY_ID = {
    "hoodie.schema.on.read.enable": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",  # or Spark reads no old file after a nested rename
    "hoodie.parquet.small.file.limit": "0",
}


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    for name, value in values.items():
        spark.sql(f"SET {name}={value}")
    yield
    for name in values:
        spark.conf.unset(name)


def by_names(kind: str) -> Callable[[SparkSession, Path], Golden]:
    def build(spark: SparkSession, path: Path) -> Golden:
        table = Golden(spark, path, kind).write(
            "insert k1..k3",
            [("k1", "sf", 1, 1, "b1"), ("k2", "sf", 1, 2, "b2"), ("k3", "la", 1, 3, "b3")],
            schema=FIRST,
        )
        table.write("k1 with a new column n", [("k1", "sf", 2, 11, "b11", "n1")], schema=f"{FIRST}, n string")
        wide = f"{FIRST}, n string".replace("a int", "a bigint")
        table.write("k2, a is a long", [("k2", "sf", 2, 2**40, "b2", "n2")], schema=wide)
        less = f"{FIRST}, n string".replace(", a int", "")
        table.write("k4 without a, which drops it", [("k4", "ny", 2, "b4", "n4")], schema=less, options=DROPS)
        table.write("k5 with a, which comes back", [("k5", "ny", 2, "b5", "n5", 5)], schema=f"{less}, a bigint")
        table.write("k4, a is text", [("k4", "ny", 3, "b4", "n4", "four")], schema=f"{less}, a string")
        return table.sql("ADD COLUMNS", "ALTER TABLE t ADD COLUMNS (later int)")

    return build


def by_ids(kind: str) -> Callable[[SparkSession, Path], Golden]:
    def build(spark: SparkSession, path: Path) -> Golden:
        schema = f"{FIRST}, s struct<x:int,y:string,l:array<struct<u:int,t:string>>>"
        schema += ", m map<string,struct<v:int>>, d decimal(10,2)"
        rows = [
            (f"k{n}", city, 1, n, f"b{n}", (n, f"y{n}", [(n, "t")]), {"q": (n,)}, Decimal(f"{n}.25"))
            for n, city in ((1, "sf"), (2, "sf"), (3, "la"))
        ]
        table = Golden(spark, path, kind).write("insert k1..k3", rows, schema=schema)
        with settings(spark, BY_ID | DROPS):
            for change in (
                "UPDATE t SET a = 11, ts = 2 WHERE id = 'k1'",
                "ALTER TABLE t RENAME COLUMN b TO bb",
                "ALTER TABLE t RENAME COLUMN s.y TO yy",
                "ALTER TABLE t ADD COLUMNS (s.l.element.w int)",
                "ALTER TABLE t RENAME COLUMN m.value.v TO vv",
                "UPDATE t SET bb = 'B2', ts = 3 WHERE id = 'k2'",
                "ALTER TABLE t DROP COLUMN a",
                "ALTER TABLE t ADD COLUMNS (a string AFTER ts)",
                "ALTER TABLE t ALTER COLUMN d TYPE decimal(12,2)",
                "INSERT INTO t (id, ts, a, bb, s, m, d, city) VALUES ('k4', 1, 'A4', 'b4', named_struct('x', 4, 'yy', "
                "'y4', 'l', array(named_struct('u', 4, 't', 'tt', 'w', 44))), map('q', named_struct('vv', 4)), 4.5, "
                "'sf')",
                "ALTER TABLE t ALTER COLUMN bb AFTER id",
            ):
                table.sql(change, change)
        return table

    return build


TABLES: dict[str, tuple[Callable[[SparkSession, Path], Golden], dict[str, str]]] = {
    "cow_by_names": (by_names("COPY_ON_WRITE"), {}),
    "mor_by_names": (by_names("MERGE_ON_READ"), {}),
    "cow_by_ids": (by_ids("COPY_ON_WRITE"), BY_ID),
    "mor_by_ids": (by_ids("MERGE_ON_READ"), BY_ID),
}


def read(spark: SparkSession, path: Path, how: dict[str, str], as_of: str | None = None) -> tuple[list[str], Any]:
    frame = hudi.hudi_frame(spark, path, as_of=as_of, options=how, vectorized=not how)
    names = [name for name in frame.columns if not name.startswith("_hoodie_")]
    return names, sorted_rows([row.asDict(recursive=True) for row in frame.collect()])


def expected(spark: SparkSession, table: Golden, how: dict[str, str]) -> dict[str, Any]:
    instants = []
    for instant in completed(table.path):
        names, rows = read(spark, table.path, how, instant["instant"])
        instants.append({**instant, "columns": names, "rows": rows})
    return {
        "format": f"hudi {RELEASE}",
        "history": table.history,
        "snapshot": read(spark, table.path, how)[1],
        "instants": instants,
    }


def main(target: Path, names: list[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="golden"))
    with hudi.hudi_session(scratch) as spark:
        for name in names or TABLES:
            build, how = TABLES[name]
            table = build(spark, scratch / name)
            facts = expected(spark, table, how)
            (target / f"{name}.json").write_text(json.dumps(facts, ensure_ascii=False, separators=(",", ":")) + "\n")
            pack(table.path, target / f"{name}.tar.gz")
            size = (target / f"{name}.tar.gz").stat().st_size
            print(name, len(facts["instants"]), "instants,", size, "bytes", flush=True)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
