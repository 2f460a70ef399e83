"""On classic Spark and on Spark Connect the data source gives what plain Python gives, and a stream that fails goes on
where it was.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
EVERY = pa.schema(
    [
        ("id", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("half", pa.float32()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("props", pa.map_(pa.string(), pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
    ]
)


def rows(ids: range, ts: int = 1) -> pa.Table:
    return pa.table(
        {"id": list(ids), "city": [f"c{i % 3}" for i in ids], "ts": [ts] * len(ids), "fare": [i / 2 for i in ids]},
        schema=SCHEMA,
    )


# streams take long: the quick tier runs each of them in one kind of session, the deep tier in both
CLASSIC, CONNECT = (
    pytest.mark.parametrize("session", [first, pytest.param(then, marks=pytest.mark.deep)], indirect=True)
    for first, then in (("classic", "connect"), ("connect", "classic"))
)


def make(path: Path, **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        partition_by="city",
        **{"order_by": "ts", "compact_after_logs": None, "clean_every": None, **options},
    )


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    """Three commits: rows 0 to 9, newer versions of some with new ones, and deletes of two."""
    made = make(tmp_path / "t")
    made.upsert(rows(range(10)))
    made.upsert(rows(range(5, 12), 2))
    made.delete(rows(range(2)))
    return made


def load(session: Any, path: Any, **options: str) -> Any:
    return session.read.format("hoodoo").options(**options).load(str(path))


def plain(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


def cursor(table: hoodoo.Table, slot: int) -> hoodoo.Cursor:
    return hoodoo.Cursor(table.cursor.table, slot)


def test_every_mode_gives_the_rows_of_the_method_of_its_name(session: Any, table: hoodoo.Table) -> None:
    second = cursor(table, 2)
    for options, wanted in (
        ({}, table.scan()),
        (
            {"mode": "read_optimized", "columns": "id,fare", "where": "city = 'c1'"},
            table.scan(["id", "fare"], where="city = 'c1'", read_optimized=True),
        ),
        ({"as_of": str(second), "meta": "true"}, table.scan(as_of=second, meta=True)),
        ({"mode": "incremental", "since": str(second), "deletes": "true"}, table.incremental(second, deletes=True)),
        (
            {"mode": "changes", "since": "earliest", "until": str(cursor(table, 3)), "versions": "all"},
            table.changes("earliest", cursor(table, 3), versions="all"),
        ),
    ):
        found = load(session, table.path, **options).toArrow()
        assert found.schema.names == wanted.schema.names and plain(found) == plain(wanted.to_arrow()), options


def test_every_type_comes_through_the_source_and_the_table_function(session: Any, tmp_path: Path) -> None:
    when = dt.datetime(2026, 1, 31, 12, 0, 0, 123456)
    full = {
        "id": "a",
        "flag": True,
        "small": -1,
        "half": 0.5,
        "raw": b"\x00\xff",
        "day": when.date(),
        "at": when.replace(tzinfo=dt.timezone.utc),
        "local": when,
        "price": "12.30",
        "tags": ["x", None],
        "props": [("k", 1)],
        "place": {"x": 1.5, "names": ["n"]},
    }
    given = pa.Table.from_pylist([full | {"price": None}, dict.fromkeys(EVERY.names) | {"id": "b"}], schema=EVERY)
    given = given.set_column(
        EVERY.get_field_index("price"), EVERY.field("price"), pa.array(["12.30", None]).cast(pa.decimal128(12, 2))
    )
    made = hoodoo.create(tmp_path / "t", EVERY, key="id")
    made.upsert(given)
    found = load(session, made.path).toArrow().select(EVERY.names)
    assert plain(found.cast(EVERY)) == plain(given)
    changed = session.sql(f"SELECT after.* FROM hoodoo_changes('{made.path}', 'earliest')").toArrow()
    assert plain(changed.cast(EVERY)) == plain(given)


def test_what_was_loaded_once_stays_as_it_was_and_its_parts_agree(session: Any, tmp_path: Path) -> None:
    made = make(tmp_path / "t")
    made.upsert(rows(range(6)))
    frame = load(session, made.path)
    assert frame.count() == 6
    made.upsert(rows(range(6, 9)))
    assert frame.alias("a").join(frame.alias("b"), "id").count() == 6
    assert load(session, made.path, meta="false").count() == 9


def test_sql_reads_views_of_the_source_and_table_functions(session: Any, table: hoodoo.Table) -> None:
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW moves USING hoodoo OPTIONS (path '{table.path}', mode 'changes', since "
        f"'{cursor(table, 2)}')"
    )
    counts = {row["op"]: row["n"] for row in session.sql("SELECT op, count(*) n FROM moves GROUP BY op").collect()}
    assert counts == {"i": 2, "u": 5, "d": 2}
    timeline = session.sql(f"SELECT * FROM hoodoo_timeline('{table.path}')").toArrow()
    assert timeline.to_pylist() == table.inspect.timeline().to_arrow().to_pylist()
    asked = (
        f"SELECT op, before.fare b, after.fare a FROM hoodoo_changes('{table.path}', since => "
        f"'{cursor(table, 3)}', columns => 'fare', where => 'id < 1')"
    )
    assert [tuple(row) for row in session.sql(asked).collect()] == [("d", 0.0, None)]


def test_what_does_not_fit_is_an_error_that_says_what_would(session: Any, table: hoodoo.Table) -> None:
    with pytest.raises(Exception, match=r"\[OPTION\] Unknown option 'colums'. Did you mean 'columns'"):
        load(session, table.path, colums="id").count()  # Connect asks only now


def test_a_frame_is_written_by_its_tasks_and_one_commit(session: Any, tmp_path: Path) -> None:
    made = make(tmp_path / "t")
    made.upsert(rows(range(4)))
    frame = session.range(0, 60, 1, 3).selectExpr("id % 30 id", "concat('c', id % 3) city", "id + 1 ts", "id / 2D fare")
    at = made.cursor.seq
    with pytest.raises(Exception, match=r"KEY_EXISTS.*4 keys of the insert exist"):
        frame.where("id < 4").dropDuplicates(["id"]).write.format("hoodoo").mode("append").save(made.path)
    frame.write.format("hoodoo").mode("append").option("operation", "upsert").save(made.path)
    assert made.cursor.seq == at + 1
    assert sorted((row["id"], row["ts"]) for row in made.scan().to_arrow().to_pylist()) == [
        (i, i + 31) for i in range(30)
    ]
    frame.where("id < 10").write.format("hoodoo").mode("append").option("operation", "delete").save(made.path)
    assert sorted(made.scan().to_arrow()["id"].to_pylist()) == list(range(10, 30))
    assert not list(made.handle.store.list(".hoodie/.hoodoo/staging/"))


@pytest.mark.deep
def test_a_frame_of_more_than_a_process_merges_at_once_is_written_in_one_commit(spark: Any, tmp_path: Path) -> None:
    """It was refused past 64 MiB."""
    hoodoo.register(spark)
    made = make(tmp_path / "t")
    at = made.cursor.seq
    frame = spark.range(0, 3_000_000, 1, 3).selectExpr("id", "'c0' city", "id ts", "rand(1) fare")
    frame.write.format("hoodoo").mode("append").save(made.path)
    assert made.scan().count() == 3_000_000 and made.cursor.seq == at + 1
    assert not list(made.handle.store.list(".hoodie/.hoodoo/staging/"))


def write_stream(session: Any, source: hoodoo.Table, target: hoodoo.Table, checkpoint: Path, **options: str) -> None:
    """Streams what there is now of `source` into `target`, and ends. Raises what ended it early."""
    stream = session.readStream.format("hoodoo").options(deletes="true", maxFilesPerTrigger="4").load(source.path)
    writer = stream.writeStream.format("hoodoo").option("path", target.path).option("operation", "upsert")
    writer = writer.options(checkpointLocation=str(checkpoint), **options).trigger(availableNow=True)
    query = writer.start()
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


@CONNECT
def test_a_stream_is_written_by_format_exactly_once(session: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    other = hoodoo.create(tmp_path / "copy", SCHEMA, key="id", partition_by="city")
    checkpoint = tmp_path / "checkpoint"
    write_stream(session, table, other, checkpoint, sink="medallion")
    assert plain(other.scan().to_arrow()) == plain(table.scan().to_arrow())
    at, last = other.cursor, max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    assert last > 0 and other.history()[0].version == last
    for one in (checkpoint / "commits").glob(f"*{last}*"):
        one.unlink()  # the lights went out after the table's commit, before Spark's
    write_stream(session, table, other, checkpoint, sink="medallion")
    assert other.cursor == at
    table.upsert(rows(range(20, 22), 3))
    write_stream(session, table, other, checkpoint, sink="medallion")
    assert plain(other.scan().to_arrow()) == plain(table.scan().to_arrow()) and other.history()[0].version == last + 1
    at = other.cursor
    with pytest.raises(Exception, match="Sink 'medallion' already contains batch"):
        write_stream(session, table, other, tmp_path / "new checkpoint", sink="medallion")
    with pytest.raises(Exception, match="needs the option sink"):
        write_stream(session, table, other, tmp_path / "no sink")
    assert other.cursor == at and not list(other.handle.store.list(".hoodie/.hoodoo/staging/"))


def copy(session: Any, source: hoodoo.Table, handle: Any, checkpoint: Path, **options: str) -> None:
    """Streams what there is now of `source` through `handle`, and ends. Raises what ended it early."""
    stream = (
        session.readStream.format("hoodoo").options(mode="incremental", deletes="true", **options).load(source.path)
    )
    query = (
        stream.writeStream.foreachBatch(handle)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


def failing(sink: Any, number: int) -> Any:
    """The sink, in a process that dies after the commit of a batch, before Spark hears of it."""

    def handle(frame: Any, batch_id: int) -> None:
        sink(frame, batch_id)
        if batch_id == number:
            raise RuntimeError("the lights went out")

    return handle


@pytest.mark.deep
def test_a_stream_from_table_to_table_that_fails_half_way_goes_on_and_makes_them_equal(
    session: Any, table: hoodoo.Table, tmp_path: Path
) -> None:
    other = hoodoo.create(tmp_path / "copy", SCHEMA, key="id", partition_by="city", type="copy_on_write")
    sink = other.sink("medallion")
    with pytest.raises(Exception, match="the lights went out"):
        copy(session, table, failing(sink, 1), tmp_path / "checkpoint", maxFilesPerTrigger="1")
    assert 0 < other.scan().count() < table.scan().count()
    table.delete(rows(range(2, 5)))
    table.compact()
    table.upsert(rows(range(20, 26), 3))
    copy(session, table, sink, tmp_path / "checkpoint", maxFilesPerTrigger="100")
    assert plain(other.scan().to_arrow()) == plain(table.scan().to_arrow())
    versions = [slot.transaction for slot in other.handle.history.slots(0, other.cursor.seq) if slot.transaction]
    assert versions == [("medallion", number) for number in range(len(versions))]  # each batch once, the failed one too


@CLASSIC
def test_a_change_stream_gives_every_change_with_its_images(session: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    stream = (
        session.readStream.format("hoodoo")
        .options(mode="changes", versions="all", maxCommitsPerTrigger="2", consumer="memory")
        .load(table.path)
    )
    name = f"changes_{type(session).__module__.count('connect')}"
    query = (
        stream.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(PATIENCE_S))
    found = session.table(name).toArrow()
    assert plain(found) == plain(table.changes("earliest", versions="all").to_arrow())
    assert [one.name for one in table.consumers()] == ["memory"]


@CLASSIC
def test_a_stream_that_goes_on_takes_up_what_is_written_meanwhile(session: Any, tmp_path: Path) -> None:
    made = make(tmp_path / "t")
    made.upsert(rows(range(3)))
    name = f"follows_{type(session).__module__.count('connect')}"
    stream = (
        session.readStream.format("hoodoo")
        .option("columns", "id,ts")
        .load(made.path)
        .writeStream.format("memory")
        .queryName(name)
    )
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        made.upsert(rows(range(2, 5), 2))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(map(tuple, session.table(name).collect())) == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2)]


@CLASSIC
def test_a_stream_whose_position_was_cleaned_away_ends_with_the_earliest_one_that_is_readable(
    session: Any, tmp_path: Path
) -> None:
    made = make(tmp_path / "t", type="copy_on_write")
    for ts in range(1, 5):
        made.upsert(rows(range(6), ts))
    stream = (
        session.readStream.format("hoodoo")
        .options(mode="changes", startingPosition=str(cursor(made, 2)))
        .load(made.path)
    )
    made.maintenance.clean(retain_hours=0, retain_commits=1)
    earliest = made.handle.history.head().min_readable
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match=f"Use slot {earliest}"):
        query.awaitTermination(int(PATIENCE_S))


def test_create_table_of_plain_spark_says_what_to_type(session: Any, table: hoodoo.Table) -> None:
    for what in ("", f"LOCATION '{table.path}'", f"OPTIONS (path '{table.path}')", "TBLPROPERTIES ('key' = 'id')"):
        with pytest.raises(Exception, match=r"run hoodoo.sql\(spark, \"CREATE TABLE name"):
            session.sql(f"CREATE TABLE plain_spark USING hoodoo {what}")
