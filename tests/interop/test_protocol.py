"""Apache Hudi and hoodoo take turns on one table: what either committed, restored, saved or archived, the other sees as
it is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_session import NO_METADATA_TABLE, creating
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import archived_timeline

pytestmark = pytest.mark.usefixtures("in_place_always")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
DDL = "id string, city string, ts bigint, fare double"
KINDS = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
DAY_MS = 86_400_000
Rows = list[tuple[Any, ...]]


def batch(*rows: tuple[str, str, int, float]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def plain(rows: list[dict[str, Any]]) -> Rows:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in rows)


def ours(table: Table, **how: Any) -> Rows:
    return plain(table.scan(**how).to_arrow().to_pylist())


def make(path: Path, kind: str) -> Table:
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, compact_after_logs=None, clean_every=None
    )
    table.upsert(batch(*((f"k{n}", "sf" if n < 5 else "la", 10, float(n)) for n in range(1, 9))))
    return table


@KINDS
def test_hudi_and_hoodoo_write_in_turns_and_always_read_the_same(
    hudi_rows: Callable[..., list[dict[str, Any]]], hudi_write: Callable[..., None], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind)
    expected = {row[0]: row for row in ours(table)}
    for turn in range(3):
        theirs = [("k1", "sf", 100 * turn + 100, 1.5 + turn), (f"h{turn}", "ny", 1, float(turn))]
        hudi_write(path, theirs, DDL, "upsert", NO_METADATA_TABLE)
        gone = f"k{turn + 2}"
        hudi_write(path, [(gone, "sf", 1000, 0.0)], DDL, "delete", NO_METADATA_TABLE)
        expected = {key: row for key, row in {**expected, **{row[0]: row for row in theirs}}.items() if key != gone}
        assert ours(hoodoo.open(path)) == sorted(expected.values())
        mine = [("k1", "sf", 100 * turn + 150, 9.5), (f"h{turn}", "ny", 5, -1.0), (f"o{turn}", "la", 1, 3.0)]
        table.upsert(batch(*mine))
        table.delete(batch(("k8", "la", 0, 0.0)))
        expected = {key: row for key, row in {**expected, **{row[0]: row for row in mine}}.items() if key != "k8"}
        if turn == 1:
            table.compact()
        assert ours(table) == sorted(expected.values())
        assert plain(hudi_rows(path)) == sorted(expected.values())
    assert table.verify().problems == []


@KINDS
def test_a_table_that_hudi_created_is_adopted_and_written_by_both(
    hudi: SparkSession,
    hudi_rows: Callable[..., list[dict[str, Any]]],
    hudi_write: Callable[..., None],
    tmp_path: Path,
    kind: str,
) -> None:
    path = tmp_path / "t"
    hudi_write(path, [("a", "p", 1, 1.0), ("b", "p", 1, 2.0), ("c", "q", 1, 3.0)], DDL, "upsert", creating(kind))
    hudi_write(path, [("a", "p", 2, 1.5)], DDL, "upsert", NO_METADATA_TABLE)
    table = hoodoo.open(path)
    table.upsert(batch(("a", "p", 3, 7.0), ("d", "q", 1, 4.0)))
    expected = [("a", "p", 3, 7.0), ("b", "p", 1, 2.0), ("c", "q", 1, 3.0), ("d", "q", 1, 4.0)]
    assert ours(table) == plain(hudi_rows(path)) == expected
    hudi_write(path, [("d", "q", 2, 40.0), ("c", "q", 0, 0.0)], DDL, "upsert", NO_METADATA_TABLE)
    expected[3] = ("d", "q", 2, 40.0)
    assert ours(hoodoo.open(path)) == plain(hudi_rows(path)) == expected
    table.delete(batch(("b", "p", 0, 0.0)))
    del expected[1]
    assert ours(table) == plain(hudi_rows(path)) == expected
    assert table.verify().problems == []


@KINDS
def test_hudi_reads_a_restored_table_at_every_instant(
    hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = make(path, kind)
    first = table.upsert(batch(("k1", "sf", 11, 1.0)))
    before = ours(table)
    table.savepoints.create("kept")
    changed = table.insert_overwrite(batch(("z", "la", 1, 0.0)))
    table.delete(batch(("k2", "sf", 0, 0.0)))
    other = ours(table)
    restored = table.restore("kept")
    assert ours(table) == plain(hudi_rows(path)) == before
    assert plain(hudi_rows(path, as_of=first.instant)) == before
    assert plain(hudi_rows(path, as_of=restored.instant)) == before
    assert plain(hudi_rows(path, as_of=changed.instant)) == ours(table, as_of=changed.instant)
    table.restore(str(hoodoo.Cursor(table.cursor.table, restored.cursor.seq - 1)))
    assert ours(table) == plain(hudi_rows(path)) == other


def test_hudis_cleaner_leaves_what_our_savepoint_keeps(
    hudi_rows: Callable[..., list[dict[str, Any]]], hudi_write: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = make(path, "copy_on_write")
    before = ours(table)
    table.savepoints.create("kept")
    hard = NO_METADATA_TABLE | {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
        "hoodie.clean.automatic": "true",
    }
    for turn in range(4):
        hudi_write(
            path,
            [(f"k{n}", "sf" if n < 5 else "la", 100 + turn, float(turn)) for n in range(1, 9)],
            DDL,
            "upsert",
            hard,
        )
    table.upsert(batch(("k1", "sf", 1000, 0.0)))
    assert ours(hoodoo.open(path), as_of="kept") == before
    table.restore("kept")
    assert ours(table) == plain(hudi_rows(path)) == before
    assert table.verify().problems == []


def test_a_restore_by_hudi_is_taken_up(
    hudi: SparkSession, hudi_rows: Callable[..., list[dict[str, Any]]], hudi_write: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = make(path, "merge_on_read")
    kept = table.upsert(batch(("k1", "sf", 11, 1.0)))
    before = ours(table)
    hudi.sql(f"CALL create_savepoint(path => '{path}', commit_time => '{kept.instant}')").collect()
    table.upsert(batch(("k1", "sf", 12, 2.0), ("n", "ny", 1, 1.0)))
    hudi_write(path, [("k2", "sf", 50, 5.0)], DDL, "upsert", NO_METADATA_TABLE)
    hudi.sql(f"CALL rollback_to_savepoint(path => '{path}', instant_time => '{kept.instant}')").collect()
    assert plain(hudi_rows(path)) == before
    assert ours(hoodoo.open(path)) == before
    table = hoodoo.open(path)  # with the metadata table that Hudi's procedures make
    table.upsert(batch(("k1", "sf", 60, 6.0), ("n", "ny", 2, 2.0)))
    expected = sorted([row for row in before if row[0] != "k1"] + [("k1", "sf", 60, 6.0), ("n", "ny", 2, 2.0)])
    assert ours(table) == plain(hudi_rows(path)) == expected
    with pytest.raises(hoodoo.RangeUndone):
        table.scan(as_of=hoodoo.Cursor(table.cursor.table, kept.cursor.seq + 2))
    assert ours(table, as_of=kept.instant) == before


@KINDS
def test_hudi_reads_on_over_the_timeline_that_we_archived(
    hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, kind: str
) -> None:
    """Commits of two months ago are archived; then Hudi reads now and back to what is kept."""
    path, moment = tmp_path / "t", [int(dt.datetime.now(dt.timezone.utc).timestamp() * 1000) + 30_000]

    def clock() -> int:
        moment[0] += 1_000
        return moment[0]

    make(path, kind)
    table = Table(LocalStore(str(path)), Environment(now_ms=clock))
    table.set_options(retain_commits=1)
    for number in range(6):
        table.upsert(batch((f"k{number + 1}", "sf" if number < 4 else "la", 20 + number, 0.5)))
    table.compact()
    table.insert_overwrite(batch(("k6", "la", 30, 6.0)))
    table.upsert(batch(("k1", "sf", 90, 1.0)))
    moment[0] += 60 * DAY_MS
    table.upsert(batch(("k2", "sf", 95, 2.0)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.maintenance.archive(keep_instants=2).instants >= 8
    assert archived_timeline.newest(table.handle.store)
    now = ours(table)
    assert plain(hudi_rows(path)) == now
    oldest = table.handle.history.slot(table.handle.history.head().min_readable).instant
    assert plain(hudi_rows(path, as_of=oldest)) == ours(table, as_of=oldest)
    newest = [one.time for one in archived_timeline.read(table.handle.store)]
    table.upsert(batch(("k3", "sf", 97, 3.0)))
    assert plain(hudi_rows(path)) == ours(table)
    assert newest == [one.time for one in archived_timeline.read(table.handle.store)]
