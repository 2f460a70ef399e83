"""Let Apache Hudi write the tables of table version 6 in tests/data/golden_version_6, with the rows that it reads from
them at every instant.

    make golden        (in .venv-interop: needs Apache Hudi on Spark, see tests/support/hudi_session.py)

Called once for each release of Hudi: 0.15.0, the last one that wrote version 6 by itself, and 1.2.0, which still can.
Files and facts are those of tools/golden.py; version 6 keeps no completion times, so `completed` is the instant, and
`changed` is read between instants; `rows` is null where a clean took the snapshot away. A table is written, and its
facts are read, by one and the same release.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golden import FIRST, Golden, changed, pack, read, row
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import hudi_session as hudi  # noqa: E402  the path above comes first
from hudi_jars import HUDI, OLD_HUDI  # noqa: E402

OLD, NEW = "0.15.0", "1.2.0"
_COMPLETED = re.compile(r"(?P<instant>\d{17})\.(?P<action>commit|deltacommit|replacecommit)")
_EVENT_TIME = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload"}
_COMPACT = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
_CLEAN = {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1", "hoodie.clean.async": "false"}


class Version6(Golden):
    """A table of version 6 in the making."""

    def __init__(self, spark: SparkSession, path: Path, table_type: str, partition: str = "city", **options: str):
        version = {
            "hoodie.write.table.version": "6",  # 0.15 knows neither
            "hoodie.write.auto.upgrade": "false",
            "hoodie.datasource.write.precombine.field": "ts",
        }
        super().__init__(spark, path, table_type, partition, False, **(version | options))
        self.history = [f"{table_type}, partitioned by {partition or 'nothing'}, {options}"]

    def sql(self, said: str, *statements: str) -> Version6:
        for name in ("hoodie.write.table.version", "hoodie.write.auto.upgrade"):
            self.spark.sql(f"SET {name}={self._options[name]}")
        super().sql(said, *statements)
        return self

    def forget(self, said: str) -> Version6:
        """Take away the completed file of the newest write, as if its writer had died at its last step."""
        newest = completed(self.path)[-1]
        name = f"{newest['instant']}.{newest['action']}"
        for file in (name, f".{name}.crc"):
            (self.path / ".hoodie" / file).unlink(missing_ok=True)
        self.history.append(said)
        return self


def cow(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "COPY_ON_WRITE", **_EVENT_TIME)
    table.write("insert k1..k8", FIRST)
    table.write(
        "update k1, stale k2, insert k9 in a new partition",
        [row(1, "sf", 20, 11.0), row(2, "sf", 5, 22.0), row(9, "ny", 10, 9.0)],
    )
    table.write("delete k3, then clean", [row(3, "sf", 30, None)], "delete", options=_CLEAN)
    table.write("insert_overwrite la with k10", [row(10, "la", 10, 10.0)], "insert_overwrite")
    return table.write("bulk_insert k11", [row(11, "sf", 10, 1.0)], "bulk_insert")


def mor(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME)
    table.write("insert k1..k8", FIRST)
    table.write("update k1 and k5, stale k2", [row(1, "sf", 20, 11.0), row(5, "la", 20, 55.0), row(2, "sf", 5, 22.0)])
    table.write("delete k3", [row(3, "sf", 30, None)], "delete")
    table.write("update k4, then compact", [row(4, "sf", 20, 44.0)], options=_COMPACT)
    table.write("update k1, insert k9", [row(1, "sf", 30, 111.0), row(9, "sf", 10, 9.0)])
    table.write("insert_overwrite la with k10", [row(10, "la", 10, 10.0)], "insert_overwrite")
    table.write("update k4 and k10, then clean", [row(4, "sf", 40, 4.5), row(10, "la", 20, 100.0)], options=_CLEAN)
    return table.write("delete k10", [row(10, "la", 50, None)], "delete")


def mor_by_commit(spark: SparkSession, path: Path) -> Version6:
    """The payload class that 0.15 takes if none is named: the later commit wins over the base file."""
    table = Version6(spark, path, "MERGE_ON_READ", partition="")
    table.write("insert k1..k8", FIRST).write("update k1 with an older ts", [row(1, "sf", 1, 11.0)])
    return table.write("delete k2", [row(2, "sf", 10, None)], "delete").write("update k4", [row(4, "sf", 20, 4.5)])


def mor_pending_compaction(spark: SparkSession, path: Path) -> Version6:
    plan = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME)
    table.write("insert k1..k8", FIRST)
    table.write("update k1, then schedule a compaction", [row(1, "sf", 20, 11.0)], options=plan)
    table.write("update k1 and k2 after the plan", [row(1, "sf", 30, 111.0), row(2, "sf", 30, 22.0)])
    return table.write("update k2 again", [row(2, "sf", 40, 23.0)])


def mor_rolled_back(spark: SparkSession, path: Path) -> Version6:
    """The write that rolls back touches other files: its instant is older than that of the rollback, and at a block
    of an instant that is younger than the newest commit 0.15 stops reading a log.
    """
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME, **{"hoodie.rollback.using.markers": "false"})
    table.write("insert k1..k8", FIRST)
    table.write("update k1", [row(1, "sf", 20, 11.0)]).forget("its writer dies before it is completed")
    table.write("roll that back, update k5", [row(5, "la", 20, 55.0)])
    table.write("update k2", [row(2, "sf", 20, 22.0)])
    table.write("update k1 and insert k9", [row(1, "sf", 90, 99.0), row(9, "ny", 10, 9.0)])
    return table.forget("its writer dies before it is completed; nobody rolls it back")


def mor_clustered(spark: SparkSession, path: Path) -> Version6:
    several = {"hoodie.parquet.small.file.limit": "0"}
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME, **several).write("insert k1..k8", FIRST)
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
    table.write("update k1 and k21", [row(1, "sf", 20, 11.0), row(21, "sf", 20, 210.0)])
    first = completed(path)[0]["instant"]
    table.sql("savepoint of the first commit", f"CALL create_savepoint(table => 't', commit_time => '{first}')")
    return table.write("update k5", [row(5, "la", 20, 55.0)])


def cow_archived(spark: SparkSession, path: Path) -> Version6:
    archive = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    plain = {"hoodie.datasource.write.hive_style_partitioning": "false"}
    table = Version6(spark, path, "COPY_ON_WRITE", **_EVENT_TIME, **plain).write("insert k1..k8", FIRST)
    for n in range(7):
        table.write(f"update k{n + 1}", [row(n + 1, FIRST[n][1], 20, 10.0 * n)], options=_CLEAN | archive)
    return table


def mor_archived(spark: SparkSession, path: Path) -> Version6:
    archive = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4"}
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME).write("insert k1..k8", FIRST)
    for n in range(7):
        compact = _COMPACT if n == 4 else {}
        table.write(f"update k{n + 1}", [row(n + 1, FIRST[n][1], 20, 10.0 * n)], options=_CLEAN | archive | compact)
    return table


def _complex(table_type: str) -> Callable[[SparkSession, Path], Version6]:
    def build(spark: SparkSession, path: Path) -> Version6:
        keys = {
            "hoodie.datasource.write.recordkey.field": "id,n",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        }
        table = Version6(spark, path, table_type, partition="city,day", **_EVENT_TIME, **keys)
        table.write("insert k1..k8, with two key and two partition columns", FIRST)
        return table.write("update k1", [row(1, "sf", 20, 11.0)])

    return build


def cow_one_complex_key(spark: SparkSession, path: Path) -> Version6:
    """One key column under the generator for several: each release spelled its keys in its own way."""
    named = {"hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator"}
    table = Version6(spark, path, "COPY_ON_WRITE", partition="city,day", **_EVENT_TIME, **named)
    table.write("insert k1..k8, with one key and two partition columns", FIRST)
    return table.write("update k1", [row(1, "sf", 20, 11.0)])


def cow_timestamp_keys(spark: SparkSession, path: Path) -> Version6:
    """Hudi reads a partition column of these keys from the folder's name: as it is formatted there."""
    made = {
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
        "hoodie.datasource.write.hive_style_partitioning": "false",
    }
    table = Version6(spark, path, "COPY_ON_WRITE", partition="made", **_EVENT_TIME, **made)
    schema = "id string, made string, ts bigint"
    table.write(
        "insert k1..k3, in folders of months", [(f"k{n}", f"2024-0{n}-05", 1) for n in (1, 2, 3)], schema=schema
    )
    return table.write("update k1", [("k1", "2024-01-05", 2)], schema=schema)


def _virtual(table_type: str) -> Callable[[SparkSession, Path], Version6]:
    def build(spark: SparkSession, path: Path) -> Version6:
        virtual = {"hoodie.populate.meta.fields": "false", "hoodie.index.type": "SIMPLE"}
        table = Version6(spark, path, table_type, **_EVENT_TIME, **virtual)
        table.write("insert k1..k8, without meta columns", FIRST)
        table.write("update k1, stale k2", [row(1, "sf", 20, 11.0), row(2, "sf", 5, 22.0)])
        return table.write("delete k3", [row(3, "sf", 30, None)], "delete")

    return build


def mor_sql(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME).write("insert k1..k8", FIRST)
    table.sql("UPDATE k1", "UPDATE t SET fare = 11.0, ts = 20 WHERE id = 'k1'")
    return table.sql("DELETE k5", "DELETE FROM t WHERE id = 'k5'")


def mor_metadata(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "MERGE_ON_READ", **_EVENT_TIME, **{"hoodie.metadata.enable": "true"})
    table.write("insert k1..k8, with a metadata table", FIRST)
    return table.write("update k1", [row(1, "sf", 20, 11.0)])


def emptied(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "COPY_ON_WRITE", **_EVENT_TIME).write("insert k1", FIRST[:1])
    return table.write("delete k1", [row(1, "sf", 30, None)], "delete")


def no_commits(spark: SparkSession, path: Path) -> Version6:
    table = Version6(spark, path, "COPY_ON_WRITE")
    spark.sql(
        f"CREATE TABLE t (id STRING, city STRING, ts BIGINT) USING hudi PARTITIONED BY (city) LOCATION '{path}' "
        "TBLPROPERTIES (type = 'cow', primaryKey = 'id', preCombineField = 'ts')"
    )
    spark.sql("DROP TABLE t")
    table.history.append("CREATE TABLE, and nothing else")
    return table


OF_OLD: dict[str, Callable[[SparkSession, Path], Version6]] = {
    "cow": cow,
    "mor": mor,
    "mor_by_commit": mor_by_commit,
    "mor_pending_compaction": mor_pending_compaction,
    "mor_rolled_back": mor_rolled_back,
    "mor_clustered": mor_clustered,
    "cow_archived": cow_archived,
    "mor_archived": mor_archived,
    "cow_complex_keys": _complex("COPY_ON_WRITE"),
    "mor_complex_keys": _complex("MERGE_ON_READ"),
    "cow_one_complex_key": cow_one_complex_key,
    "cow_timestamp_keys": cow_timestamp_keys,
    "cow_virtual": _virtual("COPY_ON_WRITE"),
    "mor_virtual": _virtual("MERGE_ON_READ"),
    "mor_sql": mor_sql,
    "mor_metadata": mor_metadata,
    "emptied": emptied,
    "no_commits": no_commits,
}
OF_NEW = {name: OF_OLD[name] for name in ("cow", "mor", "mor_by_commit", "mor_pending_compaction", "mor_clustered")}
OF_NEW |= {name: OF_OLD[name] for name in ("mor_rolled_back", "mor_archived", "mor_virtual", "mor_sql")}


def completed(path: Path) -> list[dict[str, str]]:
    """The completed writes that are not archived, in the order of their instants."""
    names = sorted(file.name for file in (path / ".hoodie").glob("*"))
    return [match.groupdict() for name in names if (match := _COMPLETED.fullmatch(name))]


def as_of(spark: SparkSession, path: Path, instant: str) -> list[dict[str, Any]] | None:
    """The table as of `instant`; None where it was cleaned since, as Hudi says."""
    try:
        return read(spark, path, as_of=instant)
    except IllegalArgumentException:
        return None


def expected(spark: SparkSession, table: Golden, release: str) -> dict[str, Any]:
    path, instants = table.path, []
    before = "0"
    for instant in completed(path):
        at = instant["instant"]
        rows = as_of(spark, path, at)
        instants.append({**instant, "completed": at, "rows": rows, "changed": changed(spark, path, before, at)})
        before = at
    facts: dict[str, Any] = {"format": f"hudi {release}", "history": table.history, "instants": instants}
    if not instants:
        return facts | {"snapshot": [], "read_optimized": []}
    optimized = read(spark, path, read_optimized=True)
    return facts | {"snapshot": read(spark, path), "read_optimized": optimized}


def main(target: Path, release: str, names: list[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="golden"))
    jars = OLD_HUDI if release == OLD else HUDI
    jars.fetch()
    tables = OF_OLD if release == OLD else OF_NEW
    with hudi.hudi_session(scratch, jars=jars) as spark:
        for name in names or tables:
            full = f"v6_{name}" if release == OLD else f"v6_{name}_by_{release.replace('.', '_')}"
            table = tables[name](spark, scratch / full)
            facts = expected(spark, table, release)
            (target / f"{full}.json").write_text(json.dumps(facts, ensure_ascii=False, separators=(",", ":")) + "\n")
            pack(table.path, target / f"{full}.tar.gz")
            size = (target / f"{full}.tar.gz").stat().st_size
            print(full, len(facts["snapshot"]), "rows,", len(facts["instants"]), "instants,", size, "bytes", flush=True)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
