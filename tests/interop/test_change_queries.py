"""Apache Hudi's change query of our tables with a change log returns our changes; and what it wrote to a change log is
read.

Hudi's query: `hoodie.datasource.query.incremental.format=cdc`. Images come as JSON, with Hudi's meta columns where Hudi
made them from data files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_session import NO_METADATA_TABLE, creating
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.format.names import instant_of_ms, is_change_log_path
from hoodoo.readers.changes.change_log_reader import read_change_log
from hoodoo.table import Table

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("in", pa.struct([("a", pa.int32()), ("t", pa.list_(pa.string()))])),
    ]
)
DDL = "id string, city string, ts bigint, fare double, `in` struct<a: int, t: array<string>>"
MODES = {"before_after": "DATA_BEFORE_AFTER", "before": "DATA_BEFORE", "keys": "OP_KEY_ONLY"}
KINDS = pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
KINDS_AND_MODES = pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("copy_on_write", "before_after"),
        ("merge_on_read", "before"),
        ("copy_on_write", "keys"),
        pytest.param("merge_on_read", "before_after", marks=pytest.mark.deep),
        pytest.param("copy_on_write", "before", marks=pytest.mark.deep),
        pytest.param("merge_on_read", "keys", marks=pytest.mark.deep),
    ],
)
Change = tuple[str, str, Any, Any]
"""(operation, record key, before, after)"""


def batch(*rows: tuple[str, str, int, float]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": i, "city": c, "ts": t, "fare": f, "in": {"a": t, "t": ["é", "x"]}} for i, c, t, f in rows], SCHEMA
    )


def flagged(*rows: tuple[str, str, int, float]) -> pa.Table:
    """Deletes by the ordering rule."""
    return batch(*rows).append_column("_hoodie_is_deleted", pa.array([True] * len(rows)))


def make(path: Path, kind: str, mode: str) -> Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        type=kind,
        change_log=mode,
        compact_after_logs=None,
        clean_every=None,
    )


def image(text: str | None) -> Any:
    found = json.loads(text) if text else None
    return found and {name: value for name, value in found.items() if not name.startswith("_hoodie_")}


def hudis(spark: SparkSession, path: Path, begin: str, end: str) -> list[Change]:
    """Hudi's changes of commits completed in (begin, end]; a row that was replaced with its file group, deleted and
    inserted at once, as an update.
    """
    chosen = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
    chosen |= {"hoodie.datasource.read.begin.instanttime": begin, "hoodie.datasource.read.end.instanttime": end}
    found: dict[tuple[str, str], Change] = {}
    for row in spark.read.format("hudi").options(**chosen).load(str(path)).collect():
        before, after = image(row["before"]), image(row["after"])
        where = row["ts_ms"], (before or after)["id"]
        if where in found:
            other = found[where]
            assert {other[0], row["op"]} == {"i", "d"}
            before, after = before or other[2], after or other[3]
        found[where] = "u" if before and after else row["op"], where[1], before, after
    return sorted(found.values(), key=repr)


def ours(table: Table, first: int, last: int) -> list[Change]:
    """What the snapshots say that each commit in (first, last] did."""
    found = []
    for seq in range(first + 1, last + 1):
        old, new = snapshot(table, seq - 1), snapshot(table, seq)
        for key in old.keys() | new.keys():
            before, after = old.get(key, (None, None)), new.get(key, (None, None))
            if before[0] != after[0]:
                found.append(("i" if before[1] is None else "d" if after[1] is None else "u", key, before[1], after[1]))
    return sorted(found, key=repr)


def snapshot(table: Table, seq: int) -> dict[str, tuple[str, Any]]:
    rows = table.scan(as_of=hoodoo.Cursor(table.cursor.table, seq), meta=True).to_arrow().to_pylist()
    return {row["id"]: (row["_hoodie_commit_time"], {name: row[name] for name in SCHEMA.names}) for row in rows}


def completed(table: Table, seq: int) -> str:
    return instant_of_ms(table.handle.timeline.history.slot(seq).completed_at)


def require_same(spark: SparkSession, table: Table, path: Path, first: int) -> None:
    """Hudi's changes of each commit after slot `first`, and of all of them in one query, are ours."""
    last = table.cursor.seq
    for seq in range(first, last):
        if table.handle.timeline.history.slot(seq + 1).outcome == "completed":
            assert hudis(spark, path, completed(table, seq), completed(table, seq + 1)) == ours(table, seq, seq + 1), (
                table.handle.timeline.history.slot(seq + 1)
            )
    assert (
        hudis(spark, path, completed(table, first), completed(table, last))
        == ours(table, first, last)
        == told(table, first, last)
    )


def told(table: Table, first: int, last: int) -> list[Change]:
    """What `changes` says that each commit in (first, last] did."""
    found = (
        hoodoo.open(table.path)
        .changes(hoodoo.Cursor(table.cursor.table, first), hoodoo.Cursor(table.cursor.table, last), versions="all")
        .to_arrow()
        .to_pylist()
    )
    return sorted(
        ((row["op"], (row["before"] or row["after"])["id"], row["before"], row["after"]) for row in found), key=repr
    )


@KINDS_AND_MODES
def test_hudis_change_query_returns_our_changes_of_every_operation_and_none_of_services(
    hudi: SparkSession, tmp_path: Path, kind: str, mode: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind, mode)
    table.upsert(batch(*((f"k{n}", "sf" if n < 6 else "la", 10, float(n)) for n in range(12))))
    table.upsert(batch(("k1", "sf", 20, 1.5), ("k2", "sf", 5, 0.0), ("k7", "la", 20, 7.5), ("n1", "sf", 1, 1.0)))
    table.upsert(batch(("k1", "sf", 21, 1.6), ("k4", "sf", 21, 4.6)))
    table.delete(batch(("k3", "sf", 0, 0.0), ("k4", "sf", 0, 0.0)))
    table.upsert(flagged(("k5", "sf", 30, 0.0), ("k8", "la", 30, 0.0)))
    table.upsert(batch(("k1", "sf", 1, 0.0)))  # changes nothing
    if kind == "merge_on_read":
        assert compact_logs(table.handle.context(), lambda view: behind(view, 2)).logs
        table.upsert(batch(("k1", "sf", 22, 1.7)))
        plan = plans.commit_compaction_plan(
            table.handle.context(), lambda view: plans.BY_LOG_SIZE.plan(view, list(behind(view, 1)))
        )
        assert plan
        table.upsert(batch(("k1", "sf", 23, 1.8), ("k7", "la", 30, 7.8)))  # under an open plan
        require_same(hudi, table, path, 1)
        table.compact()
    else:
        assert table.maintenance.cluster(sort_by=["fare"]).units
    table.upsert(batch(("k2", "sf", 40, 2.9)))
    table.upsert(batch(("k7", "la", 50, 7.9), ("k9", "la", 50, 9.9)))
    table.insert_overwrite(batch(("k7", "la", 60, 7.0), ("z", "la", 60, 7.0)))
    table.delete_partitions(["la"])
    if kind == "merge_on_read":
        table.compact()  # of a rewrite over logs see below
    table.upsert(batch(("k2", "sf", 41, 2.95), ("n2", "sf", 1, 2.0)))
    require_same(hudi, table, path, 1)
    assert table.verify().problems == []


@pytest.mark.parametrize("mode", MODES)
def test_a_merge_on_read_rewrite_over_logs_shows_what_it_changed(hudi: SparkSession, tmp_path: Path, mode: str) -> None:
    """Hudi itself never rewrites a slice that has logs."""
    path = tmp_path / "t"
    table = make(path, "merge_on_read", mode)
    table.upsert(batch(*((f"k{n}", "sf", 10, float(n)) for n in range(6))))
    table.upsert(batch(("k1", "sf", 20, 1.5)))
    table.delete(batch(("k2", "sf", 0, 0.0)))
    table.upsert(
        batch(("k1", "sf", 30, 1.6), ("k2", "sf", 30, 2.6), ("k3", "sf", 30, 3.6))
    )  # k2 comes back, so the base is rewritten
    (file,) = table.handle.timeline.history.slot(table.cursor.seq).files
    assert file.kind == "base" and file.changes
    last = table.cursor.seq
    found = hudis(hudi, path, completed(table, last - 1), completed(table, last))
    wanted = ours(table, last - 1, last)
    if mode == "keys":  # there Hudi takes the base file alone for what was before: k1 as of the first commit
        wanted = [
            (
                op,
                key,
                {**before, "ts": 10, "fare": 1.0, "in": {"a": 10, "t": ["é", "x"]}} if key == "k1" else before,
                after,
            )
            for op, key, before, after in wanted
        ]
    assert found == sorted(wanted, key=repr)


def test_hudi_shows_a_logged_delete_even_where_a_newer_row_outlives_it(hudi: SparkSession, tmp_path: Path) -> None:
    """A limit of Hudi's change query: of a delete in a log it does not compare the ordering value. Snapshots, Hudi's
    too, keep the row.
    """
    path = tmp_path / "t"
    table = make(path, "merge_on_read", "before_after")
    table.upsert(batch(("k0", "sf", 10, 0.0), ("k5", "sf", 10, 5.0)))
    table.upsert(flagged(("k0", "sf", 5, 0.0)))
    last = table.cursor.seq
    assert ours(table, last - 1, last) == []
    assert [(op, key) for op, key, _, _ in hudis(hudi, path, completed(table, last - 1), completed(table, last))] == [
        ("d", "k0")
    ]
    assert {row["id"] for row in hudi.read.format("hudi").load(str(path)).collect()} == {"k0", "k5"}


def test_a_log_of_several_blocks_is_read_by_hudi(
    hudi: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoodoo.format.log.change_log_block.BLOCK_MAX", 4000)
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key=["id", "city"], type="copy_on_write", change_log="before_after")
    table.upsert(batch(*((f"k{n}", "sf", 10, float(n)) for n in range(300))))
    table.upsert(batch(*((f"k{n}", "sf", 20, float(n)) for n in range(100, 400))))
    require_same(hudi, table, path, 2)


@KINDS_AND_MODES
def test_a_table_that_hudi_made_with_a_change_log_is_adopted_with_it_and_both_write_on(
    hudi: SparkSession, hudi_write: Callable[..., None], tmp_path: Path, kind: str, mode: str
) -> None:
    path = tmp_path / "t"
    created = creating(
        kind, **{"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": MODES[mode]}
    )
    inside = (1, ["x"])
    hudi_write(
        path,
        [("a", "p", 1, 1.0, inside), ("b", "p", 1, 2.0, inside), ("c", "q", 1, 3.0, inside)],
        DDL,
        "upsert",
        created,
    )
    hudi_write(path, [("a", "p", 2, 1.5, inside), ("d", "p", 1, 4.0, inside)], DDL, "upsert", NO_METADATA_TABLE)
    table = hoodoo.open(path)
    assert table.handle.config.change_log == MODES[mode]
    table.upsert(batch(("a", "p", 3, 7.0), ("e", "q", 1, 5.0)))
    theirs = [
        file
        for one in table.handle.timeline.history.slots(0, table.cursor.seq - 1)
        for file in one.files
        if file.changes
    ]
    require_reads(table, path, theirs[0], {"a": "u", "d": "i"})
    table.delete(batch(("b", "p", 0, 0.0)))
    hudi_write(path, [("a", "p", 4, 8.0, inside), ("f", "q", 1, 6.0, inside)], DDL, "upsert", NO_METADATA_TABLE)
    table.upsert(batch(("a", "p", 5, 9.0), ("f", "q", 2, 6.5)))
    require_same(hudi, table, path, 1)
    assert table.verify().problems == []
    assert table.maintenance.purge(batch(("b", "p", 0, 0.0))).files_proved
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert logs_in(path) == live_logs(table)
    assert table.verify().problems == []


def logs_in(path: Path) -> set[str]:
    return {
        str(one.relative_to(path))
        for one in path.rglob("*.cdc")
        if is_change_log_path(one.name) and ".hoodie" not in one.parts
    }


def live_logs(table: Table) -> set[str]:
    return {
        name
        for group in table.handle.timeline.history.head().groups()
        for entry in group.files()
        for name in entry.file.changes
    }


def require_reads(table: Table, path: Path, file: Any, ops: dict[str, str]) -> None:
    (name,) = file.changes
    assert (path / name).stat().st_size == file.changes[name][0]
    changes = read_change_log(table.handle.store, table.handle.config, file)
    assert changes is not None
    assert {row["record_key"]: row["op"] for row in changes.to_pylist()} == ops
    for row in changes.to_pylist():
        assert (row.get("before") or row.get("after") or {"id": row["record_key"]})["id"] == row["record_key"]


@KINDS
def test_hudis_cleaner_takes_change_logs_with_their_base_files_and_we_know(
    hudi: SparkSession, hudi_write: Callable[..., None], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind, "before_after")
    table.upsert(batch(*((f"k{n}", "sf", 10, float(n)) for n in range(6))))
    for ts in range(11, 14):
        table.upsert(batch(("k1", "sf", ts, 1.0), (f"n{ts}", "sf", ts, 1.0)))  # a rewrite on either kind
    hard = NO_METADATA_TABLE | {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
        "hoodie.clean.automatic": "true",
    }
    there = logs_in(path)
    for ts in range(20, 23):
        hudi_write(
            path, [("k1", "sf", ts, 1.0, (1, ["x"])), (f"h{ts}", "sf", ts, 1.0, (1, ["x"]))], DDL, "upsert", hard
        )
    assert not there & logs_in(path)
    table.upsert(batch(("k1", "sf", 30, 1.0), ("n30", "sf", 30, 1.0)))
    assert table.verify().problems == []
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert logs_in(path) == live_logs(table)
    assert set(table.maintenance.sweep(older_than_hours=0).kinds) <= {"index_entries"}


@KINDS
def test_hudis_change_query_goes_on_after_our_cleaner(hudi: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = make(path, kind, "before_after")
    table.upsert(batch(*((f"k{n}", "sf", 10, float(n)) for n in range(6))))
    for ts in range(11, 16):
        table.upsert(batch(("k1", "sf", ts, 1.0), (f"n{ts}", "sf", ts, 1.0)))
        if kind == "merge_on_read":
            table.upsert(batch(("k2", "sf", ts, 1.0)))
            table.compact()
    cleaned = table.maintenance.clean(retain_hours=0, retain_commits=3)
    assert cleaned.files
    wanted = ours(table, cleaned.min_readable, table.cursor.seq - 1)
    assert hudis(hudi, path, completed(table, cleaned.min_readable), completed(table, table.cursor.seq)) == wanted
