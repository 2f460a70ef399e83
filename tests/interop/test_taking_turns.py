"""Apache Hudi at its defaults and hoodoo take turns on one table, Hudi with its metadata table in use: after each turn
Spark, the `hudi` package and hoodoo read the rows of a dict.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hudi_rows as package
import pyarrow as pa
import pytest
from faulty_store import Died, FaultyStore
from hudi_session import creating, hudi_frame, hudi_rows, hudi_write
from pyspark.sql import SparkSession
from tiers import is_deep, sized

import hoodoo
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.properties import hoodie_properties

pytestmark = pytest.mark.usefixtures("in_place_always")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
DDL = "id string, city string, ts bigint, fare double"
KINDS = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
CITIES = ("sf", "la", "ny")
ROUNDS = sized(6, 50)
RECORD_INDEX = {"hoodie.metadata.global.record.level.index.enable": "true"}
METADATA_SERVICES = {"hoodie.metadata.compact.max.delta.commits": "3"}
CLEANING = {"hoodie.clean.commits.retained": "2", "hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5"}
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
CLUSTERING = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
Row = tuple[str, str, int, float]
Rows = list[Row]


@dataclass
class Turns:
    """One table, what it has to hold, and everybody who reads and writes it."""

    path: Path
    spark: SparkSession
    draw: random.Random
    rows: dict[str, Row] = field(default_factory=dict)
    made: int = 0
    clock: int = 100

    def check(self, told: str, of_hudi: bool = False) -> None:
        """Every reader returns the rows. After a write `of_hudi`, the quick tier reads once by Spark."""
        expected, briefly = sorted(self.rows.values()), of_hudi and not is_deep()
        listing = {} if briefly else {"Spark, listing": {"hoodie.metadata.enable": "false"}}
        for reader, found in (
            ("hoodoo", hoodoo.open(self.path).scan().to_arrow().to_pylist()),
            *(
                (name, hudi_rows(self.spark, self.path, options=given))
                for name, given in {"Spark": {}, **listing}.items()
            ),
            ("the hudi package", package.hudi_rows(self.path)),
        ):
            assert sorted(tuple(row[name] for name in SCHEMA.names) for row in found) == expected, (told, reader)
        if expected and not briefly:
            one = self.draw.choice(expected)
            found = hudi_frame(self.spark, self.path).where(f"fare = {one[3]} and city = '{one[1]}'").collect()
            assert one in [tuple(row[name] for name in SCHEMA.names) for row in found], (told, "Spark, with a filter")

    # ---- what is written
    def fresh(self, count: int) -> Rows:
        self.made += count
        return [
            (f"k{number:04}", CITIES[number % 3], self._ts(), float(number))
            for number in range(self.made - count, self.made)
        ]

    def changed(self, count: int) -> Rows:
        some = self.draw.sample(sorted(self.rows.values()), min(count, len(self.rows)))
        return [(key, city, self._ts(), fare + 0.5) for key, city, _, fare in some]

    def _ts(self) -> int:
        self.clock += 1
        return self.clock

    def took(self, rows: Rows) -> None:
        self.rows.update({row[0]: row for row in rows})


def batch(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


# ---- our turns
def our_upsert(turns: Turns, table: Table) -> None:
    rows = [*turns.fresh(4), *turns.changed(5)]
    table.upsert(batch(rows))
    turns.took(rows)


def our_delete(turns: Turns, table: Table) -> None:
    gone = turns.changed(2)
    table.delete(batch(gone))
    for row in gone:
        del turns.rows[row[0]]


def our_services(turns: Turns, table: Table) -> None:
    our_upsert(turns, table)
    table.compact()
    table.maintenance.cluster(sort_by="fare")
    table.maintenance.clean(retain_hours=0, retain_commits=0)


def our_overwrite(turns: Turns, table: Table) -> None:
    rows = [row for row in turns.fresh(6) if row[1] == "la"]
    table.insert_overwrite(batch(rows))
    turns.rows = {key: row for key, row in turns.rows.items() if row[1] != "la"}
    turns.took(rows)


def our_restore(turns: Turns, table: Table) -> None:
    before = dict(turns.rows)
    our_upsert(turns, table)
    then = table.cursor
    kept = dict(turns.rows)
    our_delete(turns, table)
    table.delete_partitions(["ny"])
    table.restore(then)
    turns.rows = kept
    assert kept != before


OURS = (our_upsert, our_services, our_delete, our_overwrite, our_restore)


# ---- Hudi's turns
def hudi_upsert(turns: Turns, **options: str) -> None:
    rows = [*turns.fresh(4), *turns.changed(5)]
    hudi_write(turns.spark, turns.path, rows, DDL, "upsert", METADATA_SERVICES | options)
    turns.took(rows)


def hudi_delete(turns: Turns, **options: str) -> None:
    gone = turns.changed(2)
    hudi_write(turns.spark, turns.path, gone, DDL, "delete", METADATA_SERVICES | options)
    for row in gone:
        del turns.rows[row[0]]


THEIRS: tuple[tuple[Callable[..., None], dict[str, str]], ...] = (
    (hudi_upsert, {}),
    (hudi_upsert, COMPACTION),
    (hudi_delete, RECORD_INDEX),
    (hudi_upsert, CLUSTERING),
    (hudi_upsert, CLEANING | RECORD_INDEX),
    (hudi_delete, CLEANING),
)


@pytest.mark.both
@pytest.mark.parametrize("kind", sized(["merge_on_read"], ["copy_on_write", "merge_on_read"]))
def test_hudi_at_its_defaults_and_hoodoo_take_turns_and_everybody_reads_the_same(
    hudi: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, compact_after_logs=None, clean_every=None
    )
    turns = Turns(path, hudi, random.Random(kind))
    our_upsert(turns, table)
    theirs = [turn for turn in THEIRS if turn[1] is not COMPACTION or kind == "merge_on_read"]
    appended = 0
    for number in range(ROUNDS):
        write, options = theirs[number % len(theirs)]
        write(turns, **options)
        store = table.handle.store
        in_use = hoodie_properties.read_properties(store)["hoodie.table.metadata.partitions"].split(",")
        assert {"files", "column_stats"}.issubset(in_use)
        assert ("record_index" in in_use) == (RECORD_INDEX.keys() <= options.keys())
        turns.check(f"round {number}: Hudi's {write.__name__} with {options}", of_hudi=True)
        ours = OURS[number % len(OURS)]
        ours(turns, table)
        turns.check(f"round {number}: {ours.__name__}")
        appended += hoodie_properties.read_properties(store).get("hoodie.table.metadata.partitions") == "files"
    assert appended > ROUNDS * 3 / 4 - 1
    assert table.verify().problems == []


@KINDS
def test_a_table_that_hudi_created_with_its_metadata_table_is_written_by_both(
    hudi: SparkSession, tmp_path: Path, kind: str
) -> None:
    turns = Turns(tmp_path / "t", hudi, random.Random(kind))
    rows = turns.fresh(9)
    hudi_write(
        hudi, turns.path, rows, DDL, "upsert", creating(kind) | {"hoodie.metadata.enable": "true"} | RECORD_INDEX
    )
    turns.took(rows)
    turns.check("made by Hudi", of_hudi=True)
    table = hoodoo.open(turns.path)
    our_upsert(turns, table)
    assert hoodie_properties.read_properties(table.handle.store)["hoodie.table.metadata.partitions"] == "files"
    turns.check("adopted")
    hudi_upsert(turns, **RECORD_INDEX)
    turns.check("Hudi again", of_hudi=True)
    our_services(turns, table)
    turns.check("our services")


@pytest.mark.parametrize(
    ("next_one", "kind"),
    [
        ("Hudi", "merge_on_read"),
        ("hoodoo", "copy_on_write"),
        pytest.param("Hudi", "copy_on_write", marks=pytest.mark.deep),
        pytest.param("hoodoo", "merge_on_read", marks=pytest.mark.deep),
    ],
)
def test_a_writer_that_dies_before_its_instant_leaves_a_list_that_is_right_for_whoever_comes_next(
    hudi: SparkSession, tmp_path: Path, kind: str, next_one: str
) -> None:
    """Its files are in the metadata table already. Hudi rolls the instant back in both; hoodoo publishes it."""
    turns = Turns(tmp_path / "t", hudi, random.Random(kind))
    rows = turns.fresh(9)
    hudi_write(hudi, turns.path, rows, DDL, "upsert", creating(kind) | {"hoodie.metadata.enable": "true"})
    turns.took(rows)
    our_upsert(turns, hoodoo.open(turns.path))
    store = FaultyStore(str(turns.path))
    store.fault = lambda number, operation, key: "die" if key.startswith(layout.TIMELINE) and "_" in key else None
    lost = [*turns.changed(3), *turns.fresh(2)]
    with pytest.raises(Died):
        Table(store).upsert(batch(lost))
    instant = max(path.name[:17] for path in (turns.path / ".hoodie/metadata/.hoodie/timeline").glob("2*.deltacommit"))
    assert (turns.path / f".hoodie/metadata/files/.files-0000-0_{instant}.log.1_0-0-0").exists()
    for _ in range(2):
        if next_one == "Hudi":
            hudi_upsert(turns)
            turns.check("Hudi, after a dead writer")
            our_upsert(turns, hoodoo.open(turns.path))
        else:
            hoodoo.open(turns.path)
            turns.took(lost)
            lost = []
            turns.check("healed")
            our_delete(turns, hoodoo.open(turns.path))
            turns.check("hoodoo, after a dead writer")
            hudi_upsert(turns)
        turns.check("both, after a dead writer")
