"""Logs that name the rows of their base, in Avro and in Parquet: Apache Hudi goes by those rows, and must see the rows
that hoodoo sees, whatever a slice is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hudi_session
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.format.log import block
from hoodoo.readers.slices import slices
from hoodoo.writers.files import tasks
from hoodoo.writers.files.log_file import add_row_positions

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
DDL = "id string, city string, ts bigint, fare double"
WITHOUT_METADATA = {"hoodie.metadata.enable": "false"}
Read = Callable[..., list[dict[str, Any]]]
Write = Callable[..., None]
KINDS = [
    ("avro", "ts"),
    ("parquet", None),
    pytest.param("avro", None, marks=pytest.mark.deep),
    pytest.param("parquet", "ts", marks=pytest.mark.deep),
]
kinds = pytest.mark.parametrize(("log_format", "order_by"), KINDS)


@pytest.fixture(autouse=True)
def parquet_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "_PARQUET_FROM", 1)


def batch(numbers: range, ts: int, fare: float) -> pa.Table:
    count = len(numbers)
    ids = [f"k{number:03d}" for number in numbers]
    return pa.table(
        {"id": ids, "city": ["sf"] * count, "ts": [ts] * count, "fare": [fare + n for n in numbers]}, SCHEMA
    )


def make(path: Path, log_format: str, order_by: str | None) -> hoodoo.Table:
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by=order_by, log_format=log_format, compact_after_logs=None
    )
    table.upsert(batch(range(100), 10, 0.0))
    return table


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["city"], row["ts"], row["fare"]) for row in rows)


def ours(table: hoodoo.Table) -> list[tuple[Any, ...]]:
    assert table.verify().problems == []
    return plain(table.scan().to_arrow().to_pylist())


def group(table: hoodoo.Table) -> Any:
    (found,) = table.handle.history.head().groups()
    return found


def over_rows_of_the_base(table: hoodoo.Table) -> None:
    assert slices.has_row_positions(group(table)), "all logs of the slice name rows of its base"


@kinds
def test_updates_deletes_and_late_rows_in_logs_are_read_alike_at_every_instant(
    hudi_rows: Read, tmp_path: Path, log_format: str, order_by: str | None
) -> None:
    table = make(tmp_path / "t", log_format, order_by)
    history = []
    for step in (
        lambda: table.upsert(batch(range(90, 5, -3), 20, 1000.0)),
        lambda: table.delete([{"id": f"k{n:03d}", "city": "sf"} for n in (7, 99, 0)]),
        lambda: table.upsert(batch(range(50, 60), 5, 2000.0)),  # late where the table is ordered
        lambda: table.upsert(batch(range(1, 100, 7), 30, 3000.0)),
    ):
        result = step()
        if group(table).base.seq < result.cursor.seq and not group(table).logs:
            continue  # a row that came back went into the base
        history.append((result.instant, ours(table)))
    assert len(history) >= 3
    for instant, rows in history:
        assert plain(hudi_rows(tmp_path / "t", as_of=instant)) == rows
    assert plain(hudi_rows(tmp_path / "t")) == ours(table)


@kinds
def test_apache_hudi_goes_by_the_rows_that_logs_name_so_that_wrong_ones_would_be_seen(
    hudi_rows: Read, tmp_path: Path, log_format: str, order_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were this to fail, the other tests of this file would prove nothing."""
    table = make(tmp_path / "t", log_format, order_by)
    monkeypatch.setattr(
        tasks,
        "add_row_positions",
        lambda *given: (found := add_row_positions(*given)) and replace(found, at=found.at + 1),
    )
    table.upsert(batch(range(10, 14), 20, 1000.0))
    assert {problem.code for problem in table.verify().problems} == {"POSITIONS"}
    seen = {row["id"]: row["fare"] for row in hudi_rows(tmp_path / "t")}
    expected = {f"k{n:03d}": float(n) for n in range(100)} | {f"k{n:03d}": 1000.0 + n for n in range(10, 14)}
    assert seen != expected


@kinds
def test_logs_over_an_older_base_beside_logs_over_the_newest_are_read_alike(
    hudi_rows: Read, tmp_path: Path, log_format: str, order_by: str | None
) -> None:
    """A log that is written while a compaction runs names rows of the base before; rows have moved since."""
    table = make(tmp_path / "t", log_format, order_by)
    table.delete([{"id": "k000", "city": "sf"}, {"id": "k050", "city": "sf"}])
    context = table.handle.context()
    plan = plans.commit_compaction_plan(context, plans.plan_groups_with_logs)
    assert plan is not None
    table.upsert(batch(range(41, 71, 2), 20, 1000.0))
    plans.run_compaction_plan(context, plan)
    assert not slices.has_row_positions(group(table))
    assert plain(hudi_rows(tmp_path / "t")) == ours(table)
    table.upsert(batch(range(42, 72, 3), 30, 2000.0))
    assert plain(hudi_rows(tmp_path / "t")) == ours(table)


@kinds
def test_compacted_logs_and_logs_that_a_clustering_brought_along_are_read_alike(
    hudi_rows: Read, tmp_path: Path, log_format: str, order_by: str | None
) -> None:
    table = make(tmp_path / "t", log_format, order_by)
    for ts in range(11, 15):
        table.upsert(batch(range(ts, 100, ts), ts, 100.0 * ts))
    compact_logs(table.handle.context(), lambda view: behind(view, 2))
    assert len(group(table).logs) == 1
    over_rows_of_the_base(table)
    assert plain(hudi_rows(tmp_path / "t")) == ours(table)
    table.compact()
    table.upsert(batch(range(3, 90, 5), 40, 5000.0))
    over_rows_of_the_base(table)
    assert plain(hudi_rows(tmp_path / "t")) == ours(table)


@kinds
def test_apache_hudi_writes_on_and_compacts_and_hoodoo_goes_on_from_there(
    hudi_rows: Read, hudi_write: Write, tmp_path: Path, log_format: str, order_by: str | None
) -> None:
    path = tmp_path / "t"
    table = make(path, log_format, order_by)
    table.upsert(batch(range(20, 40), 20, 1000.0))
    expected = {row[0]: row for row in ours(table)}
    theirs = [(f"k{n:03d}", "sf", 30, 7000.0 + n) for n in range(35, 45)]
    hudi_write(path, theirs, DDL, "upsert", {**WITHOUT_METADATA, "hoodie.logfile.data.block.format": log_format})
    expected |= {row[0]: row for row in theirs}
    assert plain(hudi_rows(path)) == sorted(expected.values())
    table = hoodoo.open(path)
    assert plain(table.scan().to_arrow().to_pylist()) == sorted(expected.values())
    table.upsert(batch(range(30, 50, 2), 40, 9000.0))
    expected |= {row[0]: row for row in plain(batch(range(30, 50, 2), 40, 9000.0).to_pylist())}
    assert plain(hudi_rows(path)) == ours(hoodoo.open(path)) == sorted(expected.values())
    late = [("k001", "sf", 50, -1.0)]
    compacting = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    hudi_write(path, late, DDL, "upsert", {**WITHOUT_METADATA, **compacting})
    expected |= {row[0]: row for row in late}
    found = plain(hoodoo.open(path).scan().to_arrow().to_pylist())
    assert plain(hudi_rows(path)) == found == sorted(expected.values())
    hoodoo.open(path).upsert(batch(range(0, 100, 9), 60, 500.0))
    assert plain(hudi_rows(path)) == ours(hoodoo.open(path))


def test_rows_of_many_blocks_keep_their_places(hudi: SparkSession, tmp_path: Path) -> None:
    """Bitmaps of every kind: dense and sparse containers, several blocks in a log, deletes in several."""
    count = 300_000
    table = make(tmp_path / "t", "avro", "ts")
    table.insert(batch(range(1000, 1000 + count), 10, 0.0), bulk=True)
    rng = np.random.default_rng(3)
    some = np.sort(rng.choice(np.arange(1000, 1000 + count), 70_000, replace=False))
    rows = batch(range(1000, 1000 + count), 20, 5.0).take(pa.array(some - 1000))
    table.upsert(rows)
    gone = np.sort(rng.choice(np.arange(1000, 1000 + count), 5_000, replace=False))
    table.delete(batch(range(1000, 1000 + count), 30, 0.0).take(pa.array(gone - 1000)))
    mine = table.scan(columns=["id", "fare"]).to_arrow().sort_by("id")
    frame = hudi_session.hudi_frame(hudi, tmp_path / "t").selectExpr("count(*) n", "sum(fare) total", "max(id) last")
    (theirs,) = frame.collect()
    fares = mine["fare"].to_pylist()
    assert (theirs["n"], theirs["total"], theirs["last"]) == (
        len(mine),
        pytest.approx(sum(fares)),
        mine["id"][-1].as_py(),
    )
