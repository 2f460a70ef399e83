"""Let Apache Hudi write the small tables of tests/data/golden, with the rows that Hudi itself reads from them at every
instant.

    make golden        (in .venv-interop: needs Apache Hudi on Spark, see tests/support/hudi_session.py)

Each table becomes `<name>.tar.gz`, without Hadoop's .crc sidecars, and `<name>.json`:

    {"format": "hudi 1.2.0", "history": [what was done], "snapshot": [rows], "read_optimized": [rows],
     "instants": [{"instant", "completed", "action", "rows": the table as of the instant, "changed": the incremental
     read of it alone or null}]}

A row holds all columns, meta columns too; decimals, dates, times and binary as text (without trailing zeros, ISO, ISO
in UTC, hex). Rows are sorted by their text.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import hudi_session as hudi  # noqa: E402  the path above comes first
from golden_tables import sorted_rows  # noqa: E402
from hudi_jars import RELEASE  # noqa: E402
from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

SCHEMA = (
    "id string, city string, ts bigint, fare double, amount decimal(15,2), picked timestamp, day date, ok "
    "boolean, n int"
)
SMALL = {
    "hoodie.index.bloom.num_entries": "100",  # or each file of ten rows would carry a filter of 400 KB
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
}
_WRITES = ("commit", "deltacommit", "replacecommit")
_COMPLETED = re.compile(r"(?P<instant>\d{17})_(?P<completed>\d{17})\.(?P<action>\w+)")


class Golden:
    """A table in the making: every step is one write by Hudi and one line of its history."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        table_type: str,
        partition: str = "city",
        ordered: bool = True,
        **options: str,
    ) -> None:
        self.spark, self.path, self.history = (
            spark,
            path,
            [f"{table_type}, partitioned by {partition or 'nothing'}, {'ordered by ts' if ordered else 'not ordered'}"],
        )
        self._options = SMALL | {
            "hoodie.table.name": path.name,
            "hoodie.datasource.write.table.type": table_type,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": partition,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
        }
        if ordered:
            self._options["hoodie.table.ordering.fields"] = "ts"
        self._options |= options

    def write(
        self,
        said: str,
        rows: list[Any],
        operation: str = "upsert",
        schema: str = SCHEMA,
        options: dict[str, str] | None = None,
    ) -> Golden:
        hudi.hudi_write(self.spark, self.path, rows, schema, operation, self._options | (options or {}))
        self.history.append(said)
        return self

    def sql(self, said: str, *statements: str) -> Golden:
        """Statements about the table `t`; the session must be told of it first."""
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{self.path}'")
        for name, value in self._options.items():
            if name in SMALL:
                self.spark.sql(f"SET {name}={value}")
        for statement in statements:
            self.spark.sql(statement)
        self.spark.sql("DROP TABLE t")
        self.history.append(said)
        return self


def row(number: int, city: str | None, ts: int, fare: float | None) -> tuple[Any, ...]:
    picked = dt.datetime(2024, 1, 1 + number % 28, 1, 2, 3, 456789)
    return (f"k{number}", city, ts, fare, Decimal(f"{number}.25"), picked, picked.date(), number % 2 == 0, number)


FIRST = [row(n, "sf" if n <= 4 else "la", 10, float(n)) for n in range(1, 9)]


def cow_ordered(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "COPY_ON_WRITE").write("insert k1..k8", FIRST)
    table.write(
        "update k1, stale k2, insert k9 in a new partition",
        [row(1, "sf", 20, 11.0), row(2, "sf", 5, 22.0), row(9, "ny", 10, 9.0)],
    )
    table.write("delete k3", [row(3, "sf", 30, None)], "delete")
    table.write("insert_overwrite la with k10", [row(10, "la", 10, 10.0)], "insert_overwrite")
    return table.write("delete k9, the last row of ny", [row(9, "ny", 30, None)], "delete")


def cow_unordered(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "COPY_ON_WRITE", partition="", ordered=False).write("insert k1..k8", FIRST)
    table.write("update k1 and k2 with older ts", [row(1, "sf", 1, 11.0), row(2, "la", 1, 22.0)])
    table.write("bulk_insert k11", [row(11, "sf", 10, 1.0)], "bulk_insert")
    return table.write(
        "insert_overwrite_table with k12, k13",
        [row(12, "sf", 1, 12.0), row(13, "la", 1, 13.0)],
        "insert_overwrite_table",
    )


def mor_ordered(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "MERGE_ON_READ").write("insert k1..k8", FIRST)
    table.write("update k1 and k5, stale k2", [row(1, "sf", 20, 11.0), row(5, "la", 20, 55.0), row(2, "sf", 5, 22.0)])
    table.write("delete k3", [row(3, "sf", 30, None)], "delete")
    compact = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    table.write("update k4, then compact", [row(4, "sf", 20, 44.0)], options=compact)
    table.write("update k1 again", [row(1, "sf", 30, 111.0)])
    table.write("insert_overwrite la with k10", [row(10, "la", 10, 10.0)], "insert_overwrite")
    return table.write("delete k10 and update k4", [row(4, "sf", 40, 4.5)]).write(
        "delete k10", [row(10, "la", 50, None)], "delete"
    )


def mor_unordered(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "MERGE_ON_READ", partition="", ordered=False).write("insert k1..k8", FIRST)
    table.write("update k1 with an older ts", [row(1, "sf", 1, 11.0)])
    table.write("delete k2", [row(2, "sf", 1, None)], "delete")
    table.write("insert k2 again", [row(2, "sf", 1, 2.5)])
    return table.write("update k1 again", [row(1, "sf", 1, 111.0)])


def mor_pending_compaction(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "MERGE_ON_READ").write("insert k1..k8", FIRST)
    plan = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    table.write("update k1, then schedule a compaction", [row(1, "sf", 20, 11.0)], options=plan)
    return table.write("update k1 and k2 after the plan", [row(1, "sf", 30, 111.0), row(2, "sf", 30, 22.0)])


def mor_clustered(spark: SparkSession, path: Path) -> Golden:
    several = {"hoodie.parquet.small.file.limit": "0"}
    table = Golden(spark, path, "MERGE_ON_READ", **several).write("insert k1..k8", FIRST)
    cluster = {
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "1",
        "hoodie.clustering.plan.strategy.sort.columns": "fare",
    }
    table.write(
        "insert k21..k24 into new files, then cluster",
        [row(n, "sf", 10, float(n)) for n in range(21, 25)],
        "insert",
        options=cluster,
    )
    return table.write("update k1 and k21", [row(1, "sf", 20, 11.0), row(21, "sf", 20, 210.0)])


def mor_metadata(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "MERGE_ON_READ", **{"hoodie.metadata.enable": "true"}).write(
        "insert k1..k8, with a metadata table", FIRST
    )
    table.write("update k1", [row(1, "sf", 20, 11.0)])
    return table.write("insert k9 in a new partition", [row(9, "ny", 10, 9.0)])


def mor_sql(spark: SparkSession, path: Path) -> Golden:
    table = Golden(spark, path, "MERGE_ON_READ").write("insert k1..k8", FIRST)
    table.sql("UPDATE k1", "UPDATE t SET fare = 11.0, ts = 20 WHERE id = 'k1'")
    table.sql("DELETE k5", "DELETE FROM t WHERE id = 'k5'")
    source = "SELECT 'k2' AS id, 'sf' AS city, CAST(30 AS BIGINT) AS ts, CAST(222.0 AS DOUBLE) AS fare"
    merge = (
        f"MERGE INTO t USING ({source}) s ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN UPDATE SET "
        "fare = s.fare, ts = s.ts"
    )
    return table.sql("MERGE INTO k2, which writes only the columns it sets", merge)


def cow_types(spark: SparkSession, path: Path) -> Golden:
    schema = "id int, seq bigint, place string, day date, ts double, "
    schema += (
        "tags array<string>, props map<string,double>, at struct<x:bigint,y:string>, raw binary, wide "
        "decimal(38,10), f float"
    )
    # Hudi reads partition columns back from the path: an empty text there is null, and a timestamp, too.
    day = dt.date(2024, 1, 15)
    rows = [
        (
            1,
            10,
            "a/b c=d",
            day,
            1.5,
            ["x", "w"],
            {"a": 1.0, "b": None},
            (9, "q"),
            bytearray(b"\x00\xff"),
            Decimal("1234567890123456.0123456789"),
            1.5,
        ),
        (2, 20, "é%:'", day, 1.5, [], {}, (None, None), bytearray(b""), Decimal("-0.0000000001"), -0.5),
        (3, 30, None, day, 1.5, None, None, None, None, None, None),
        (4, 40, "b", day, 1.5, ["y"], {"c": 2.0}, (1, ""), bytearray(b"ab"), Decimal("1"), 0.0),
    ]
    keys = {"hoodie.datasource.write.recordkey.field": "id,seq"}
    table = Golden(spark, path, "COPY_ON_WRITE", partition="place,day", **keys).write(
        "insert, with two key and two partition columns", rows, schema=schema
    )
    return table.write("update the first", [rows[0][:4] + (2.5, ["z"], None, None, None, None, None)], schema=schema)


def older(version: str) -> Callable[[SparkSession, Path], Golden]:
    def build(spark: SparkSession, path: Path) -> Golden:
        options = {
            "hoodie.write.table.version": version,
            "hoodie.write.auto.upgrade": "false",
            "hoodie.datasource.write.precombine.field": "ts",
        }
        table = Golden(spark, path, "MERGE_ON_READ", **options).write(
            f"insert k1..k8 into a table of version {version}", FIRST
        )
        return table.write("update k1", [row(1, "sf", 20, 11.0)])

    return build


TABLES: dict[str, Callable[[SparkSession, Path], Golden]] = {
    "cow_ordered": cow_ordered,
    "cow_unordered": cow_unordered,
    "cow_types": cow_types,
    "mor_ordered": mor_ordered,
    "mor_unordered": mor_unordered,
    "mor_pending_compaction": mor_pending_compaction,
    "mor_clustered": mor_clustered,
    "mor_metadata": mor_metadata,
    "mor_sql": mor_sql,
    "mor_version_8": older("8"),
    "mor_version_6": older("6"),
}


def read(spark: SparkSession, path: Path, **how: Any) -> list[dict[str, Any]]:
    rows = hudi.hudi_frame(spark, path, **how).collect()
    return sorted_rows([row.asDict(recursive=True) for row in rows])


def completed(path: Path) -> list[dict[str, str]]:
    """The completed writes in the order in which they completed; none for version 6, which keeps no
    completion times.
    """
    names = sorted((path / ".hoodie" / "timeline").glob("*_*"))
    found = [
        match.groupdict() for name in names if (match := _COMPLETED.fullmatch(name.name)) and match["action"] in _WRITES
    ]
    return sorted(found, key=lambda instant: instant["completed"])


def changed(spark: SparkSession, path: Path, begin: str, end: str) -> list[dict[str, Any]] | None:
    """The incremental read of `(begin, end]`; None where Hudi 1.2.0 itself fails, as it does on the logs that MERGE
    INTO writes.
    """
    try:
        return read(spark, path, begin=begin, end=end)
    except Py4JJavaError:
        return None


def expected(spark: SparkSession, table: Golden) -> dict[str, Any]:
    path, instants, before = table.path, [], "0"
    for instant in completed(path):
        rows = read(spark, path, as_of=instant["instant"])
        instants.append({**instant, "rows": rows, "changed": changed(spark, path, before, instant["completed"])})
        before = instant["completed"]
    return {
        "format": f"hudi {RELEASE}",
        "history": table.history,
        "snapshot": read(spark, path),
        "read_optimized": read(spark, path, read_optimized=True),
        "instants": instants,
    }


def pack(path: Path, target: Path) -> None:
    """The table as a compressed archive with neither sidecars, owners nor times."""

    def cleaned(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if member.name.endswith(".crc") else member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(path, path.name, filter=cleaned)
    target.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


def main(target: Path, names: list[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="golden"))
    with hudi.hudi_session(scratch) as spark:
        for name in names or TABLES:
            table = TABLES[name](spark, scratch / name)
            facts = expected(spark, table)
            (target / f"{name}.json").write_text(json.dumps(facts, ensure_ascii=False, separators=(",", ":")) + "\n")
            pack(table.path, target / f"{name}.tar.gz")
            print(
                name,
                len(facts["snapshot"]),
                "rows,",
                len(facts["instants"]),
                "instants,",
                (target / f"{name}.tar.gz").stat().st_size,
                "bytes",
                flush=True,
            )
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
