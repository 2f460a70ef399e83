"""Rows of which only some values change: written by hoodoo and read by Apache Hudi, written by Hudi's SQL and read by
hoodoo, in turns, with both kinds of log blocks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi_session
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows as by_hudi_rs
from pyspark.sql import SparkSession
from tiers import sized

import hoodoo
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.format.log import block
from hoodoo.timeline.slots.slot import DataFile

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("note", pa.string()), ("city", pa.string())]
)
MARKER = "__debezium_unavailable_value"


def row(key: str, ts: int, fare: float | None, note: str | None) -> dict[str, Any]:
    return {"id": key, "ts": ts, "fare": fare, "note": note, "city": "rome"}


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def merged_by_hudi(spark: SparkSession, path: Path, blocks: str, ts: int, fares: dict[str, float]) -> None:
    """MERGE INTO of Hudi's, which sets two columns of known keys; on merge-on-read it logs nothing but them."""
    rows = " UNION ALL ".join(f"SELECT '{key}' id, {ts}L ts, {fare}D fare, 'rome' city" for key, fare in fares.items())
    settings = hudi_session.NO_METADATA_TABLE | {
        "hoodie.logfile.data.block.format": blocks,
        "hoodie.spark.sql.merge.into.partial.updates": "true",
    }
    spark.sql(f"CREATE TABLE partial_rows USING hudi LOCATION '{path}'")
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        spark.sql(
            f"MERGE INTO partial_rows t USING ({rows}) s ON t.id = s.id AND t.city = s.city "
            "WHEN MATCHED THEN UPDATE SET fare = s.fare, ts = s.ts"
        )
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.sql("DROP TABLE partial_rows")


@pytest.mark.both
@pytest.mark.parametrize(
    ("kind", "order_by", "blocks"),
    [("merge_on_read", "ts", "avro"), ("merge_on_read", None, "parquet"), ("copy_on_write", "ts", "avro")],
)
def test_both_take_turns_with_rows_of_which_some_values_change(
    hudi: SparkSession,
    hudi_rows: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    kind: str,
    order_by: str | None,
    blocks: str,
) -> None:
    path, wanted = tmp_path / "t", {key: row(key, 1, 1.0, "x") for key in "abcd"}
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by=order_by, type=kind, log_format=blocks, clean_every=None
    )

    def same() -> None:
        ours = {one["id"]: one for one in hoodoo.open(path).scan().to_arrow().to_pylist()}
        assert ours == wanted
        assert {one["id"]: one for one in hudi_rows(path)} == wanted

    def total(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
        return {"fare": pa.compute.add(stored["fare"], newer["fare"]), "ts": newer["ts"]}

    table.insert(arrow(*wanted.values()))
    for turn in range(sized(1, 2)):
        ts = 10 * (turn + 1)
        table.upsert([{"id": "a", "ts": ts, "note": f"ours {turn}", "city": "rome"}], columns="given")
        wanted["a"] |= {"ts": ts, "note": f"ours {turn}"}
        same()
        merged_by_hudi(hudi, path, blocks, ts + 1, {"a": ts + 0.5, "b": ts + 0.25})
        wanted["a"] |= {"ts": ts + 1, "fare": ts + 0.5}
        wanted["b"] |= {"ts": ts + 1, "fare": ts + 0.25}
        same()
        table.upsert(arrow(row("a", ts + 2, None, "kept"), row("c", ts + 2, 9.0, None)), merge="keep_non_null")
        wanted["a"] |= {"ts": ts + 2, "note": "kept"}
        wanted["c"] |= {"ts": ts + 2, "fare": 9.0}
        same()
        table.upsert(arrow(row("b", ts + 3, 2.0, MARKER)), unavailable=MARKER)
        wanted["b"] |= {"ts": ts + 3, "fare": 2.0}
        table.upsert(arrow(row("d", ts + 3, 0.5, None), row("d", ts + 4, 0.25, None)), merge=hoodoo.CustomMerge(total))
        wanted["d"] |= {"ts": ts + 4, "fare": wanted["d"]["fare"] + 0.75}
        same()
        merged_by_hudi(hudi, path, blocks, ts + 5, {"d": 4.0, "c": 5.0})
        wanted["d"] |= {"ts": ts + 5, "fare": 4.0}
        wanted["c"] |= {"ts": ts + 5, "fare": 5.0}
        same()
        if kind == "merge_on_read":
            table.compact()
            same()
    table.upsert(arrow(row("a", 99, 0.0, "last")))
    wanted["a"] = row("a", 99, 0.0, "last")
    same()
    assert table.verify().ok


def logs(table: hoodoo.Table) -> list[DataFile]:
    return [log.file for group in table.handle.history.head().groups() for log in group.logs]


@pytest.mark.parametrize(
    ("log_format", "by_row"),
    [
        ("avro", True),
        ("parquet", False),
        pytest.param("avro", False, marks=pytest.mark.deep),
        pytest.param("parquet", True, marks=pytest.mark.deep),
    ],
)
def test_partial_blocks_of_ours_are_read_written_over_and_compacted_by_hudi(
    hudi: SparkSession,
    hudi_rows: Callable[..., list[dict[str, Any]]],
    hudi_write: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log_format: str,
    by_row: bool,
) -> None:
    monkeypatch.setattr(block, "_PARQUET_FROM", 1)
    path, wanted = tmp_path / "t", {f"k{n:02d}": row(f"k{n:02d}", 1, float(n), f"n{n}") for n in range(40)}
    table = hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        log_format=log_format,
        compact_after_logs=None,
        slow_after_logs=None,
        clean_every=None,
    )
    table.insert(arrow(*wanted.values()))
    if not by_row:
        monkeypatch.setattr(
            "hoodoo.writers.files.tasks.add_row_positions", lambda index, base, changes: changes
        )  # Hudi goes by keys then

    def same(rs: bool = True) -> None:
        ours = {one["id"]: one for one in hoodoo.open(path).scan().to_arrow().to_pylist()}
        assert ours == wanted
        assert {one["id"]: one for one in hudi_rows(path)} == wanted
        assert {one["id"]: one["fare"] for one in hudi_rows(path, "id", "fare")} == {
            key: one["fare"] for key, one in wanted.items()
        }
        if rs:
            assert {one["id"]: {name: one[name] for name in SCHEMA.names} for one in by_hudi_rs(path)} == wanted

    def aged(rows: pa.Table) -> dict[str, Any]:
        return {"ts": pa.compute.add(rows["ts"], 10), "fare": pa.nulls(len(rows), pa.float64())}

    def ours_write(turn: int) -> None:
        table.upsert([{"id": key, "note": f"p{turn}", "city": "rome"} for key in sorted(wanted)[::3]], columns="given")
        for key in sorted(wanted)[::3]:
            wanted[key] |= {"note": f"p{turn}"}
        same()
        least = 20.0 + turn
        assert table.update(aged, where=f"fare >= {least}").updated
        for one in wanted.values():
            if one["fare"] is not None and one["fare"] >= least:
                one |= {"ts": one["ts"] + 10, "fare": None}
        same()
        some = sorted(wanted)[1:30:4]
        table.upsert([{"id": key, "fare": 50.0 + turn, "city": "rome"} for key in some], columns="given")
        for key in some:
            wanted[key] |= {"fare": 50.0 + turn}
        same()
        whole = row(sorted(wanted)[3], 99, 1.5, f"whole {turn}")
        table.upsert(arrow(whole))
        wanted[whole["id"]] = whole
        gone = sorted(wanted)[6]
        table.delete([{"id": gone, "city": "rome"}])
        del wanted[gone]
        same()

    for turn in range(2):
        ours_write(turn)
        assert len([log for log in logs(table) if log.partial]) >= 3
        assert all(bool(log.order) == by_row for log in logs(table) if log.partial)
        if turn:
            compact_logs(table.handle.context(), lambda view: behind(view, 2))
            assert len(logs(table)) == 1 and logs(table)[0].partial
            same()
        few = sorted(wanted)[:4]
        theirs = [row(key, 200 + turn, 0.25, f"hudi {turn}") for key in few]
        options = hudi_session.NO_METADATA_TABLE | {"hoodie.logfile.data.block.format": log_format}
        hudi_write(
            path,
            [tuple(one[name] for name in SCHEMA.names) for one in theirs],
            "id string, ts bigint, fare double, note string, city string",
            options=options,
        )
        wanted.update({one["id"]: one for one in theirs})
        same()
        table = hoodoo.open(path)
        table.upsert([{"id": few[0], "note": "over Hudi's", "city": "rome"}], columns="given")
        wanted[few[0]] |= {"note": "over Hudi's"}
        same()
        merged_by_hudi(hudi, path, log_format, 300 + turn, {few[1]: 7.0, few[2]: 8.0})
        for key, fare in ((few[1], 7.0), (few[2], 8.0)):
            wanted[key] |= {"ts": 300 + turn, "fare": fare}
        same()
        late = row(few[3], 400 + turn, 3.0, "compacted")
        hudi_write(
            path,
            [tuple(late[name] for name in SCHEMA.names)],
            "id string, ts bigint, fare double, note string, city string",
            options=options | {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"},
        )
        wanted[few[3]] = late
        table = hoodoo.open(path)
        same()
        table.upsert([{"id": few[3], "note": "after it", "city": "rome"}], columns="given")
        wanted[few[3]] |= {"note": "after it"}
        same()
        table.compact()
        same()
    assert table.verify().problems == []


def test_hudi_reads_partial_blocks_through_changes_of_columns_but_pulls_whole_rows_only(
    hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    path, wanted = tmp_path / "t", {key: row(key, 1, 1.0, "x") for key in "abcd"}
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", compact_after_logs=None, slow_after_logs=None, clean_every=None
    )
    start = table.insert(arrow(*wanted.values())).cursor

    def completed(table: hoodoo.Table) -> str:
        at = table.handle.history.slot(table.cursor.seq).completed_at
        return f"{dt.datetime.fromtimestamp(at / 1000, dt.UTC):%Y%m%d%H%M%S%f}"[:17]

    def same(columns: list[str]) -> None:
        ours = {one["id"]: one for one in table.scan().to_arrow().to_pylist()}
        assert ours == {key: {name: one.get(name) for name in columns} for key, one in wanted.items()}
        assert {one["id"]: one for one in hudi_rows(path, *columns)} == ours

    began = completed(table)
    table.upsert([{"id": "a", "note": "p", "city": "rome"}, {"id": "b", "note": "p", "city": "rome"}], columns="given")
    wanted["a"]["note"] = wanted["b"]["note"] = "p"
    same(SCHEMA.names)
    pulled = {one["id"]: one for one in table.incremental(start).to_arrow().to_pylist()}
    assert pulled == {key: wanted[key] for key in "ab"}
    assert {one["id"] for one in hudi_rows(path, begin=began)} != set("ab"), "Hudi is mended: say so in format.md"
    whole = hoodoo.create(tmp_path / "whole", SCHEMA, key="id", partition_by="city", partial_logs=False)
    whole.insert(arrow(row("a", 1, 1.0, "x"), row("b", 1, 1.0, "x")))
    began = completed(whole)
    whole.upsert([{"id": "a", "note": "p", "city": "rome"}], columns="given")
    assert hudi_rows(tmp_path / "whole", begin=began) == [row("a", 1, 1.0, "p")]
    table.alter.add_column("more", pa.int64())
    table.upsert([{"id": "b", "more": 7, "city": "rome"}, {"id": "c", "more": 8, "city": "rome"}], columns="given")
    wanted["b"]["more"], wanted["c"]["more"] = 7, 8
    same([*SCHEMA.names, "more"])
    table.alter.drop_column("fare")
    table.upsert([{"id": "c", "ts": 5, "note": "q", "city": "rome"}], columns="given")
    wanted["c"] |= {"ts": 5, "note": "q"}
    same([name for name in (*SCHEMA.names, "more") if name != "fare"])
    assert len([log for log in logs(table) if log.partial]) == 3
    table.compact()
    same([name for name in (*SCHEMA.names, "more") if name != "fare"])
