"""Tables that hoodoo wrote are Hudi tables to Apache Hudi: it reads them at every instant, and writes on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster_files
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.engine.local import LocalEngine

pytestmark = pytest.mark.usefixtures("in_place_always")

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
DDL = "id string, city string, ts bigint, fare double, at timestamp"
MIDNIGHT = dt.datetime(2024, 1, 1)
Rows = list[tuple[str, str, int, float]]
History = list[tuple[str, Rows]]
"""Instant, and the rows of the table as of it."""

TABLES = [
    ("merge_on_read", "city", "ts"),
    ("merge_on_read", None, None),
    ("copy_on_write", "city", None),
    ("copy_on_write", None, "ts"),
    pytest.param("merge_on_read", "city", None, marks=pytest.mark.deep),
    pytest.param("merge_on_read", None, "ts", marks=pytest.mark.deep),
    pytest.param("copy_on_write", "city", "ts", marks=pytest.mark.deep),
    pytest.param("copy_on_write", None, None, marks=pytest.mark.deep),
]
"""Each pair of two settings is in a table of the quick tier."""


def batch(*rows: tuple[str, str, int, float]) -> pa.Table:
    at = MIDNIGHT.replace(tzinfo=dt.timezone.utc)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, (*row, at), strict=True)) for row in rows], SCHEMA)


def plain(rows: list[dict[str, Any]]) -> Rows:
    return sorted((row["id"], row["city"], row["ts"], row["fare"]) for row in rows)


def build(path: Path, type_: str, partition_by: str | None, order_by: str | None) -> tuple[hoodoo.Table, History]:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by=partition_by, order_by=order_by, type=type_)
    history: History = []

    def done(result: Any) -> None:
        history.append((result.instant, plain(table.scan().to_arrow().to_pylist())))

    done(table.upsert(batch(*((f"k{n}", "sf" if n < 5 else "la", 10, float(n)) for n in range(1, 9)))))
    done(table.upsert(batch(("k1", "sf", 20, 11.0), ("k9", "ny", 10, 9.0), ("k2", "sf", 5, 22.0))))
    done(table.delete(batch(("k3", "sf", 1, 0.0), ("k5", "la", 1, 0.0))))
    if type_ == "merge_on_read":
        table.compact()
    done(table.upsert(batch(("k1", "sf", 30, 111.0), ("k3", "sf", 1, 3.5))))
    done(
        table.insert_overwrite(batch(("k6", "la", 10, 66.0), ("k7", "sf" if partition_by is None else "la", 10, 77.0)))
    )
    done(table.upsert(batch(("k6", "la", 11, 67.0))))
    return table, history


@pytest.mark.parametrize(("type_", "partition_by", "order_by"), TABLES)
def test_apache_hudi_reads_what_hoodoo_reads_at_every_instant(
    hudi_rows: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    type_: str,
    partition_by: str | None,
    order_by: str | None,
) -> None:
    table, history = build(tmp_path / "t", type_, partition_by, order_by)
    assert plain(hudi_rows(tmp_path / "t")) == history[-1][1]
    for instant, rows in history:
        assert plain(hudi_rows(tmp_path / "t", as_of=instant)) == rows
    base_only = plain(table.scan(read_optimized=True).to_arrow().to_pylist())
    assert plain(hudi_rows(tmp_path / "t", read_optimized=True)) == base_only


@pytest.mark.parametrize(("type_", "partition_by", "order_by"), TABLES)
def test_apache_hudi_upserts_and_deletes_by_key_in_a_table_of_hoodoo(
    hudi_rows: Callable[..., list[dict[str, Any]]],
    hudi_write: Callable[..., None],
    tmp_path: Path,
    type_: str,
    partition_by: str | None,
    order_by: str | None,
) -> None:
    path = tmp_path / "t"
    _, history = build(path, type_, partition_by, order_by)
    rows = {(row[0], row[1]): row for row in history[-1][1]}
    upserted = [("k6", "la", 50, 600.0), ("k30", "la", 1, 30.0)]
    hudi_write(path, [(*row, MIDNIGHT) for row in upserted], DDL, "upsert", {"hoodie.metadata.enable": "false"})
    hudi_write(path, [("k7", "la", 90, 0.0, MIDNIGHT)], DDL, "delete", {"hoodie.metadata.enable": "false"})
    expected = rows | {(row[0], row[1]): row for row in upserted}
    expected = {key: row for key, row in expected.items() if key[0] != "k7"}
    assert plain(hudi_rows(path)) == sorted(expected.values())
    assert plain(hoodoo.open(path).scan().to_arrow().to_pylist()) == sorted(expected.values())


class Between(LocalEngine):
    """Runs tasks, then lets something happen before what they made is completed."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__(1)
        self.happens = happens

    def map(self, task: Any, items: Any, at_once: int | None = None, waiting: bool = False) -> list[Any]:
        made = super().map(task, items)
        self.happens()
        self.happens = lambda: None
        return made


@pytest.mark.parametrize(
    ("type_", "by"),
    [
        ("merge_on_read", ("fare", "id")),
        ("copy_on_write", ()),
        pytest.param("merge_on_read", (), marks=pytest.mark.deep),
        pytest.param("copy_on_write", ("fare", "id"), marks=pytest.mark.deep),
    ],
)
def test_apache_hudi_reads_a_clustered_table_and_what_was_logged_meanwhile_and_writes_on(
    hudi_rows: Callable[..., list[dict[str, Any]]],
    hudi_write: Callable[..., None],
    tmp_path: Path,
    type_: str,
    by: tuple[str, ...],
) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=type_)
    for start in (0, 10, 20, 30):
        table.insert(batch(*((f"k{n}", "sf", 10, float(n)) for n in range(start, start + 10))), bulk=True)
    table.upsert(batch(("k1", "sf", 20, 1.5), ("k11", "sf", 5, 0.0)))
    before = table.upsert(batch(("k2", "sf", 20, 2.5))).instant
    then = plain(table.scan().to_arrow().to_pylist())

    def write() -> None:
        if type_ == "merge_on_read":
            table.upsert(batch(("k3", "sf", 30, 3.5), ("k23", "sf", 30, 23.5), ("k24", "sf", 5, 0.0)))
            table.delete(batch(("k4", "sf", 0, 0.0), ("k34", "sf", 0, 0.0)))
            flagged = batch(("k5", "sf", 30, 0.0), ("k6", "sf", 5, 0.0))
            table.upsert(flagged.append_column("_hoodie_is_deleted", pa.array([True, True])))

    result = cluster_files(replace(table.handle.context(), engine=Between(write)), by=by, order="zorder")
    assert (result.units, result.yielded) == (1, 0)
    rows = plain(table.scan().to_arrow().to_pylist())
    assert len(rows) == (37 if type_ == "merge_on_read" else 40)
    assert plain(hudi_rows(path)) == rows
    assert plain(hudi_rows(path, as_of=before)) == then
    hudi_write(
        path,
        [("k3", "sf", 40, 33.0, MIDNIGHT), ("k99", "sf", 1, 99.0, MIDNIGHT)],
        DDL,
        "upsert",
        {"hoodie.metadata.enable": "false"},
    )
    expected = sorted([*(row for row in rows if row[0] != "k3"), ("k3", "sf", 40, 33.0), ("k99", "sf", 1, 99.0)])
    assert plain(hudi_rows(path)) == expected
    table = hoodoo.open(path)
    assert plain(table.scan().to_arrow().to_pylist()) == expected
    table.upsert(batch(("k7", "sf", 50, 7.5), ("k100", "sf", 1, 100.0)))
    assert plain(hudi_rows(path)) == plain(table.scan().to_arrow().to_pylist())


def test_apache_hudi_reads_the_same_rows_after_each_service_and_writes_on(
    hudi_rows: Callable[..., list[dict[str, Any]]], hudi_write: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by="ts", compact_after_logs=None, clean_every=None
    )
    table.upsert(batch(*((f"k{n}", city, 10, float(n)) for n in range(20) for city in ("sf", "la"))))
    for ts in (20, 5, 30):
        table.upsert(batch(*((f"k{n}", "sf", ts, n + ts / 100) for n in range(ts % 7, 12))))
    table.delete(batch(("k1", "sf", 0, 0.0), ("k2", "la", 0, 0.0)))
    table.upsert(batch(("k13", "sf", 40, 0.0)).append_column("_hoodie_is_deleted", pa.array([True])))

    def same() -> list[Any]:
        rows = plain(hoodoo.open(path).scan().to_arrow().to_pylist())
        assert plain(hudi_rows(path)) == rows
        return rows

    before = same()
    assert compact_logs(table.handle.context(), lambda view: behind(view, 2)).logs == 5
    assert same() == before
    table.upsert(batch(("k19", "sf", 50, 19.5)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)  # the five logs go, the one that stands for them stays
    logged = same()
    hudi_write(
        path,
        [("k3", "sf", 60, 3.6, MIDNIGHT), ("k50", "la", 1, 50.0, MIDNIGHT)],
        DDL,
        "upsert",
        {"hoodie.metadata.enable": "false"},
    )
    table = hoodoo.open(path)
    expected = sorted(
        [*(row for row in logged if row[0] != "k3" or row[1] != "sf"), ("k3", "sf", 60, 3.6), ("k50", "la", 1, 50.0)]
    )
    assert same() == expected
    table.compact()
    assert same() == expected
    report = table.maintenance.purge(batch(("k3", "sf", 0, 0.0), ("k5", "la", 0, 0.0)))
    assert report.files_proved
    assert same() == [row for row in expected if row[:2] not in (("k3", "sf"), ("k5", "la"))]
    table.set_options(partition_ttl_hours=1e-6)
    assert table.maintenance.expire().partitions
    assert same() == []


@pytest.mark.parametrize(
    ("type_", "vectorised"),
    [
        ("merge_on_read", True),
        ("copy_on_write", True),
        ("copy_on_write", False),
        pytest.param("merge_on_read", False, marks=pytest.mark.deep),
    ],
)
def test_apache_hudi_reads_row_groups_put_together_from_old_and_new_columns(
    hudi_rows: Callable[..., list[dict[str, Any]]], hudi: SparkSession, tmp_path: Path, type_: str, vectorised: bool
) -> None:
    schema = pa.schema(
        [("id", pa.string()), ("ts", pa.int64()), ("word", pa.string()), ("tags", pa.list_(pa.string()))]
    )
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="ts", type=type_, row_group_rows=64)

    def some(numbers: range, ts: int) -> pa.Table:
        rows = [(f"k{n:04}", ts, None if n % 7 == 3 else f"w{n % (5 * ts)}", ["a", None][: n % 3]) for n in numbers]
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    table.upsert(some(range(300), 1))
    table.upsert(some(range(10, 14), 2))
    table.upsert(some(range(295, 420, 5), 3))
    table.delete(some(range(130, 140), 3))
    table.upsert(some(range(190, 194), 4))
    if type_ == "merge_on_read":
        table.compact()
    hudi.conf.set("spark.sql.parquet.enableVectorizedReader", str(vectorised).lower())
    try:
        found = hudi_rows(table.path)
    finally:
        hudi.conf.unset("spark.sql.parquet.enableVectorizedReader")

    def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["ts"], str(row["word"]), list(row["tags"])) for row in rows)

    assert told(found) == told(table.scan().to_arrow().to_pylist())
