"""Our own tables whose columns change: after each change Apache Hudi on Spark, with its default settings and with
schema on read, and the `hudi` package read what hoodoo reads; Spark goes back to the columns of then, and writes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import hudi_rows as package
import hudi_session
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.format.names import instant_of_ms

FLAGGED = {"hoodie.schema.on.read.enable": "true"}
KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("g", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
Rows = list[dict[str, Any]]


def value(kind: pa.DataType, number: int) -> Any:
    """A value of `kind` that tells rows apart."""
    if pa.types.is_struct(kind):
        return {one.name: value(one.type, number) for one in kind}
    if pa.types.is_string(kind):
        return f"t{number}"
    if pa.types.is_decimal(kind):
        return Decimal(number) + Decimal("0.25")
    return number + 0.1 if pa.types.is_floating(kind) else number


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["id"])


@dataclass
class Told:
    """A table under test, and what was seen of it before each change."""

    spark: SparkSession
    path: Path
    table: hoodoo.Table
    turn: int = 1
    before: list[tuple[str, list[str], Rows]] = field(default_factory=list)

    def write(self, *keys: tuple[str, str]) -> None:
        self.turn += 1
        made = {"ts": self.turn}
        rows = [
            {one.name: value(one.type, 10 * self.turn + n) for one in self.table.schema}
            | {"id": key, "city": city}
            | made
            for n, (key, city) in enumerate(keys)
        ]
        self.table.upsert(pa.Table.from_pylist(rows, self.table.schema))

    def ours(self) -> Rows:
        return in_order(hoodoo.open(self.path).scan().to_arrow().to_pylist())

    def theirs(self, **how: Any) -> Rows:
        return in_order(hudi_session.hudi_rows(self.spark, self.path, **how))

    def package(self, **how: Any) -> Rows:
        names = hoodoo.open(self.path).schema.names
        return in_order([{name: row[name] for name in names} for row in package.hudi_rows(self.path, **how)])

    def same(self) -> None:
        """Everybody reads the snapshot as we do."""
        rows = self.ours()
        assert self.theirs() == rows
        assert self.theirs(options=FLAGGED) == rows
        assert self.package() == rows

    def changed(self, change: Callable[[hoodoo.Table], Any]) -> None:
        """Make `change`, write a row, and look at all of it."""
        table = self.table
        last = [slot for slot in table.handle.history.slots(0, table.cursor.seq) if slot.writes_rows][-1]
        self.before.append((last.instant, table.schema.names, self.ours()))
        change(table)
        at = hoodoo.open(self.path).cursor
        since = instant_of_ms(table.handle.history.head().completed_at)
        self.same()
        self.write(("k1", "sf"), (f"n{self.turn}", "la"))
        news = in_order(table.incremental(since=at).to_arrow().to_pylist())
        assert len(news) == 2
        assert self.theirs(begin=since) == news
        assert self.package(since=since) == news

    def goes_back(self) -> None:
        """Spark's time travel to before each change shows the columns and rows of then; its incremental query the news,
        with schema on read, too.
        """
        self.same()
        for instant, names, rows in self.before:
            assert self.theirs(as_of=instant) == rows
            assert set(rows[0]) == set(names)
        table = self.table
        at = hoodoo.Cursor(table.cursor.table, table.cursor.seq - 1)
        since = instant_of_ms(table.handle.history.slot(at.seq).completed_at)
        news = in_order(table.incremental(since=at).to_arrow().to_pylist())
        assert self.theirs(begin=since, options=FLAGGED) == news

    def spark_writes(self, *rows: dict[str, Any]) -> None:
        """Spark upserts whole rows; nothing else changes, and we read it, before and after adoption."""
        before = {row["id"]: row for row in self.ours()}
        kind = hudi_session.hudi_frame(self.spark, self.path).select(*self.table.schema.names).schema
        frame = self.spark.createDataFrame([tuple(row[name] for name in kind.names) for row in rows], kind)
        hudi_session.hudi_write(self.spark, self.path, frame, options=hudi_session.NO_METADATA_TABLE)
        expected = in_order(list((before | {row["id"]: row for row in rows}).values()))
        assert self.theirs() == expected
        assert self.ours() == expected
        self.table = hoodoo.open(self.path)
        self.write(("adopts", "ny"))
        self.same()
        assert [row for row in self.ours() if row["id"] != "adopts"] == expected


@pytest.fixture(params=KINDS)
def told(request: pytest.FixtureRequest, hudi: SparkSession, tmp_path: Path) -> Iterator[Told]:
    table = hoodoo.create(
        tmp_path / "t",
        SCHEMA,
        key="id",
        partition_by="city",
        order_by="ts",
        type=request.param,
        compact_after_logs=None,
        clean_every=None,
    )
    made = Told(hudi, tmp_path / "t", table)
    made.write(*((f"k{n}", "sf" if n < 4 else "la") for n in range(1, 6)))
    made.write(("k1", "sf"), ("k4", "la"))
    yield made


def test_everybody_reads_the_same_after_each_change_that_only_touches_slots_and_logs(told: Told) -> None:
    told.changed(lambda table: table.alter.add_column("n", pa.int32()))
    told.changed(lambda table: table.alter.widen_column("a", pa.int64()))
    told.changed(lambda table: table.alter.drop_column("b"))
    told.changed(lambda table: table.alter.move_column("n", first=True))
    told.changed(lambda table: table.alter.widen_column("amount", pa.decimal128(14, 3)))
    told.changed(lambda table: table.alter.add_column("s.z", pa.int32()))
    told.goes_back()
    told.spark_writes(told.ours()[0] | {"ts": 99, "n": 7, "a": 2**40, "s": {"x": 1, "y": None, "z": 5}})


def test_everybody_reads_the_same_after_each_change_that_rewrites_files(told: Told) -> None:
    told.changed(lambda table: table.alter.rename_column("g", "gg", rewrite=True))
    told.changed(lambda table: table.alter.rename_column("s.y", "yy", rewrite=True))
    told.changed(lambda table: table.alter.widen_column("f", pa.float64(), rewrite=True))
    told.changed(lambda table: table.alter([hoodoo.DropColumn("b"), hoodoo.AddColumn("b", pa.int64())], rewrite=True))
    told.goes_back()
    told.spark_writes(told.ours()[0] | {"ts": 99, "gg": 7, "b": 2**40, "s": {"x": 1, "yy": "by spark"}})


def test_everybody_reads_the_same_after_columns_got_types_that_their_values_fit(told: Told) -> None:
    told.table.update({"b": "CAST(a AS VARCHAR)"})
    told.changed(lambda table: table.alter.retype_column("b", pa.int64(), rewrite=True))
    told.changed(lambda table: table.alter.retype_column("amount", pa.decimal128(6, 2), rewrite=True))
    told.changed(lambda table: table.alter.retype_column("f", pa.decimal128(10, 2), rewrite=True))
    told.goes_back()
    told.spark_writes(told.ours()[0] | {"ts": 99, "b": 2**40, "f": Decimal("0.5")})


def test_everybody_reads_the_same_after_a_restore_over_a_change(told: Told) -> None:
    position, names = told.table.cursor, told.table.schema.names
    told.changed(lambda table: table.alter.rename_column("b", "bb", rewrite=True))
    told.changed(lambda table: table.alter.add_column("n", pa.int32()))
    told.table.restore(position)
    told.table = hoodoo.open(told.path)
    assert told.table.schema.names == names
    told.same()
    told.spark_writes(told.ours()[0] | {"ts": 99, "b": "by spark"})


@pytest.mark.parametrize("told", ["merge_on_read"], indirect=True)
def test_everybody_reads_the_same_after_a_compaction_whose_plan_is_older_than_a_change(told: Told) -> None:
    plan = plans.commit_compaction_plan(told.table.handle.context(), plans.plan_groups_with_logs)
    assert plan is not None
    told.table.alter([hoodoo.AddColumn("n", pa.int32()), hoodoo.DropColumn("b")])
    told.write(("k1", "sf"))
    told.same()
    assert plans.run_compaction_plan(told.table.handle.context(), plan).groups == 2
    told.same()
    told.spark_writes(told.ours()[0] | {"ts": 99, "n": 9})


def test_everybody_reads_what_salvage_kept_of_a_table_with_changed_columns(told: Told) -> None:
    told.table.alter([hoodoo.AddColumn("n", pa.int32()), hoodoo.DropColumn("b")])
    told.write(("k2", "sf"))
    [group] = [group for group in told.table.handle.history.head().groups() if group.partition == "city=la"]
    assert group.base
    base = told.path / group.base.file.path
    base.write_bytes(base.read_bytes()[:-200])
    report = told.table.maintenance.salvage(accept_loss=True)
    assert report.lost
    told.table = hoodoo.open(told.path)
    told.same()
    told.spark_writes(told.ours()[0] | {"ts": 99, "n": 9})


def sql(spark: SparkSession, path: Path, settings: dict[str, str], *statements: str) -> None:
    """Statements about the table `t` that lies at `path`."""
    settings = hudi_session.NO_METADATA_TABLE | settings
    spark.sql(f"CREATE TABLE t USING hudi LOCATION '{path}'")
    try:
        for name, value_ in settings.items():
            spark.conf.set(name, value_)
        for statement in statements:
            spark.sql(statement)
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.sql("DROP TABLE t")


def test_columns_that_spark_changes_by_names_on_our_table_are_read_before_and_after_adoption(told: Told) -> None:
    """A column that Spark adds, widens, drops and brings back, over slots of ours and our own changes."""
    told.table.alter([hoodoo.RenameColumn("g", "gg"), hoodoo.DropColumn("amount")], rewrite=True)

    def writes(ddl: str, row: tuple[Any, ...], **more: str) -> None:
        hudi_session.hudi_write(told.spark, told.path, [row], ddl, options=hudi_session.NO_METADATA_TABLE | more)
        assert told.ours() == told.theirs()

    struct = "s struct<x:int,y:string>"
    writes(
        f"id string, city string, ts bigint, a bigint, b string, f float, gg int, {struct}, new string",
        ("k1", "sf", 20, 2**40, "B", 1.5, 4, (1, "y"), "N"),
    )
    drop = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
    writes(
        f"id string, city string, ts bigint, b string, f float, gg int, {struct}, new string",
        ("k2", "sf", 20, "B2", 1.5, 4, (2, "y"), "N2"),
        **drop,
    )
    assert "a" not in told.ours()[0]
    position = hoodoo.open(told.path).cursor
    then = told.ours()
    writes(
        f"id string, city string, ts bigint, b string, f float, gg int, {struct}, new string, a bigint, g int",
        ("k4", "la", 20, "B4", 1.5, 4, (3, "y"), "N4", 44, 5),
    )
    sql(told.spark, told.path, {}, "ALTER TABLE t ADD COLUMNS (later int)")
    assert told.ours() == told.theirs()
    values = {row["id"]: row["a"] for row in told.ours()}
    assert (values["k4"], values["k5"]) == (44, 24)  # the old value is back
    unadopted = [(one.changes, one.ids) for one in hoodoo.open(told.path).inspect.schemas()]
    told.table = hoodoo.open(told.path)
    told.write(("adopts", "ny"))
    assert [(one.changes, one.ids) for one in hoodoo.open(told.path).inspect.schemas()] == unadopted
    assert in_order(told.table.scan(as_of=position).to_arrow().to_pylist()) == then
    assert told.ours() == told.theirs()
    assert told.table.verify().problems == []


def test_columns_that_spark_changes_by_ids_on_our_table_are_read_by_them_and_written_after_a_rewrite(
    told: Told,
) -> None:
    """Our ids are others than Spark's: it numbers the columns as they stand when it first alters them."""
    told.table.alter([hoodoo.DropColumn("a"), hoodoo.AddColumn("s.z", pa.int32()), hoodoo.DropColumn("f")])
    told.write(("k1", "sf"))
    drop = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
    sql(
        told.spark,
        told.path,
        FLAGGED | drop,
        "ALTER TABLE t RENAME COLUMN b TO bb",
        "ALTER TABLE t DROP COLUMN amount",
        "ALTER TABLE t ADD COLUMNS (amount string)",
        "UPDATE t SET bb = 'by spark', ts = 50 WHERE id = 'k2'",
    )
    expected = told.theirs(options=FLAGGED)
    assert told.ours() == expected
    assert all(row["amount"] is None for row in expected) and expected[-1]["bb"].startswith("t")
    told.table = hoodoo.open(told.path)
    with pytest.raises(hoodoo.RewriteNeeded):
        told.write(("k1", "sf"))
    assert told.ours() == expected == told.theirs(options=FLAGGED)
    assert told.table.alter([], rewrite=True).groups > 0
    assert told.ours() == expected
    told.same()
    told.spark_writes(expected[0] | {"ts": 99, "bb": "by spark", "amount": "text"})


@pytest.mark.parametrize(
    "first", ["ADD COLUMNS (z int AFTER id)", "ADD COLUMNS (s.z int)", "ALTER COLUMN a AFTER g", "DROP COLUMN a"]
)
def test_after_a_commit_of_ours_spark_numbers_the_columns_anew_and_we_read_by_that(told: Told, first: str) -> None:
    """Our commit carries no ids, so that Spark's next ALTER begins from the columns as they stand. hoodoo took the new
    ids for the old ones: values came out under other names, and a rewrite would have kept them there.
    """
    drop = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
    sql(told.spark, told.path, FLAGGED | drop, f"ALTER TABLE t {first}")
    told.table = hoodoo.open(told.path)
    told.write(("ours", "ny"))
    before = told.ours()
    assert told.theirs() == before == told.theirs(options=FLAGGED)
    sql(told.spark, told.path, FLAGGED | drop, "ALTER TABLE t ADD COLUMNS (later int)")
    expected = [row | {"later": None} for row in before]
    assert told.theirs() == expected and told.ours() == expected
    told.table = hoodoo.open(told.path)
    told.write(("adopts", "ny"))
    assert told.theirs() == told.ours() == told.theirs(options=FLAGGED)
    assert [row for row in told.ours() if row["id"] != "adopts"] == expected


BESIDE = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "2",
}


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ([hoodoo.RenameColumn("b", "bb")], {"bb": "spark", "f": 1.5}),
        ([hoodoo.DropColumn("b"), hoodoo.AddColumn("b", pa.int64())], {"f": 1.5, "b": None}),
        ([hoodoo.DropColumn("f"), hoodoo.RenameColumn("b", "f")], {"f": "spark"}),
    ],
    ids=["rename", "another type", "another column's name"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_spark_writes_beside_a_change_of_columns_is_read_by_its_own_and_heals(
    hudi: SparkSession, tmp_path: Path, kind: str, changes: list[Any], values: dict[str, Any]
) -> None:
    """Spark's commit carries the columns that it finds when it ends, its file those that it began with: the value was
    null for us, or another column's, and nobody was told.
    """
    from pyspark.sql.functions import udf

    path, go = tmp_path / "t", tmp_path / "go"
    columns = pa.schema([SCHEMA.field(name) for name in ("id", "city", "ts", "b", "f")])
    table = hoodoo.create(
        path, columns, key="id", partition_by="city", order_by="ts", type=kind, hudi_writers=True, clean_every=None
    )
    table.upsert(pa.table([["k1"], ["sf"], [1], ["t1"], [0.5]], schema=columns))

    def waits(text: str, begun: str = str(tmp_path / "begun"), until: str = str(go)) -> str:
        import os
        import time

        open(begun, "w").close()
        for _ in range(600):
            if os.path.exists(until):
                return text
            time.sleep(0.1)
        raise AssertionError("nobody said go")

    frame = hudi.createDataFrame(
        [("h1", "ny", 2, "spark", 1.5)], "id string, city string, ts bigint, b string, f float"
    )
    frame = frame.withColumn("b", udf(waits, "string").asNondeterministic()("b"))
    options = hudi_session.NO_METADATA_TABLE | BESIDE
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(hudi_session.hudi_write, hudi, path, frame, options=options)
        while not (tmp_path / "begun").exists():
            assert not writing.done() or writing.result()
            time.sleep(0.1)
        hoodoo.open(path).alter(changes, rewrite=True)
        go.touch()
        writing.result()

    def ours() -> Rows:
        return in_order(hoodoo.open(path).scan().to_arrow().to_pylist())

    expected = {"id": "h1", "city": "ny", "ts": 2} | values
    assert ours()[0] == expected
    with pytest.raises(hoodoo.RewriteNeeded, match="wrote during a column change"):
        hoodoo.open(path).delete([{"id": "k1", "city": "sf"}])
    assert ours()[0] == expected
    assert hoodoo.open(path).alter([], rewrite=True).groups == 1
    assert ours()[0] == expected
    assert in_order(hudi_session.hudi_rows(hudi, path)) == ours()
    assert hoodoo.open(path).verify().ok
