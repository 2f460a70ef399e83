"""What a batch is does not depend on how it came: as Arrow, as a small DataFrame, as a staged one and by `df.write` it
makes the same rows, counts and columns, or the same error with the same words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from three_ways import TasksHere, agreed, all_staged, copies, frame_of, written

import hoodoo
from hoodoo.engine.task_pickling import TaskDeserializer, serialize_tasks
from hoodoo.writers.batches.batch import BatchTerms, prepare_batch
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.staging import staged
from hoodoo.writers.staging.staged_files import to_batch, to_table

OURS = ("_hoodoo_hash", "_hoodoo_delete", "_hoodoo_partition", "_hoodoo_row")
"""Once names of columns of our own beside the table's."""
ITEM = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.int32()),
        pa.field("must", pa.int32(), nullable=False),
        pa.field("s", ITEM),
        pa.field("m", pa.map_(pa.string(), pa.list_(ITEM))),
        *(pa.field(name, pa.string()) for name in OURS),
    ]
)
FULL: dict[str, Any] = {"id": 1, "part": "p", "ts": 5, "a": 1, "must": 1, "s": {"x": 1, "y": "y"}, "m": [("k", [])]}
FULL |= {name: name for name in OURS}
CHECKS = {"small": "a < 1000 OR _hoodoo_row IS NULL"}


def rows(*changes: dict[str, Any], without: tuple[str, ...] = (), **kinds: pa.DataType) -> pa.Table:
    """A full row for each of `changes`; kinds: of columns that the table has not, or otherwise."""
    names = [name for name in dict.fromkeys((*SCHEMA.names, *kinds)) if name not in without]
    known = {field.name: field.type for field in SCHEMA} | kinds
    found = [FULL | change for change in changes]
    return pa.Table.from_pylist(found, pa.schema([(name, known[name]) for name in names]))


def beside(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.append_column(name, column)


def twice(count: int) -> pa.Array:
    """Structs with two fields of one name."""
    item = pa.array([2] * count, pa.int32())
    return pa.StructArray.from_arrays([item, item], ["x", "x"])


KEYS = rows({"id": 1}, {"id": 7, "part": "q"}).select(["id", "part"])
LATER = {"ts": 9}
CASES: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "new, known and stale rows": ("upsert", rows({**LATER, "a": 2}, {"id": 2, "ts": 1}, {"id": 9, "part": "n"}), {}),
    "keys twice": ("upsert", rows(LATER, {"ts": 8}, LATER | {"a": 4}, {"id": 9}), {}),
    "keys twice that may not be": (
        "upsert",
        rows(*({"id": n % 15, "part": "pq"[n % 2]} for n in range(60))),
        {"duplicates": "fail"},
    ),
    "columns in another order": ("upsert", rows(LATER).select(list(reversed(SCHEMA.names))), {}),
    "a column that is not there": ("upsert", rows(LATER, without=("a",)), {}),
    "a column that is filled": ("upsert", rows(LATER, {"id": 9}, without=("a", "s", *OURS)), {"missing": "null"}),
    "no key": ("upsert", rows(LATER, without=("id",)), {"missing": "null"}),
    "no partition": ("upsert", rows(LATER, without=("part",)), {"missing": "null"}),
    "no order": ("upsert", rows(LATER, without=("ts",)), {"missing": "null"}),
    "no value that must be": ("upsert", rows(LATER, without=("must",)), {"missing": "null"}),
    "no field": ("upsert", rows({"s": {"y": "z"}}, s=pa.struct([("y", pa.string())])), {}),
    "a field that is filled": (
        "upsert",
        rows({**LATER, "s": {"y": "z"}}, s=pa.struct([("y", pa.string())])),
        {"missing": "null"},
    ),
    "fields with the same name": ("upsert", rows({}).set_column(5, "s", twice(1)), {"missing": "null"}),
    "one more column": ("upsert", rows({"new": 1}, new=pa.int32()), {}),
    "one more column of nulls": ("upsert", rows({}, new=pa.null()), {}),
    "one more column of the format's": ("upsert", rows({}, _hoodie_new=pa.int32()), {}),
    "one more column, a duration": ("upsert", rows({}, gap=pa.duration("us")), {}),
    "one more column that is added": ("upsert", rows({"new": 1}, new=pa.int32()), {"evolve": True}),
    "a duration to be added": ("upsert", rows({}, gap=pa.duration("us")), {"evolve": True}),
    "a field that is added": (
        "upsert",
        rows({**LATER, "s": {"x": 1, "y": "y", "z": 2}}, s=pa.struct([*ITEM, ("z", pa.int32())])),
        {"evolve": True},
    ),
    "a name with a dot to be added": ("upsert", rows({"s.z": 1}, **{"s.z": pa.int32()}), {"evolve": True}),
    "a name with a blank and a tick": ("upsert", rows({}, **{"a `b`": pa.int32()}), {"evolve": True}),
    "a name in another case to be added": ("upsert", rows({"A": 1}, A=pa.int32()), {"evolve": True}),
    "a name in another case": ("upsert", rows({}, without=("a",), A=pa.int32()), {}),
    "a name in another case besides": ("upsert", rows({}, ID=pa.int64()), {}),
    "our names, in another case": ("upsert", rows({}, _HOODOO_HASH=pa.string()), {}),
    "a column twice": ("upsert", beside(rows({}), "a", pa.array([1], pa.int32())), {}),
    "another type": ("upsert", rows({"ts": "5"}, ts=pa.string()), {}),
    "a struct for a number": ("upsert", rows({"a": {"x": 1}}, a=pa.struct([("x", pa.int32())])), {}),
    "a wider type that fits": ("upsert", rows(LATER | {"a": 5}, a=pa.int64()), {}),
    "a wider type to grow to": (
        "upsert",
        rows(LATER | {"a": 1 << 40, "_hoodoo_row": None}, a=pa.int64()),
        {"evolve": True},
    ),
    "a value that does not fit": ("upsert", rows({}, {"a": 1 << 40}, a=pa.int64()), {}),
    "a fraction": ("upsert", rows({"a": 1.5}, a=pa.float64()), {}),
    "a null key": ("upsert", rows({}, {"id": None}), {}),
    "a null to be ordered by": ("upsert", rows({}, {"ts": None}), {}),
    "a null that must not be": ("upsert", rows({}, {"must": None}), {}),
    "a null partition": ("upsert", rows({"part": None}, {"part": ""}), {}),
    "a partition that is refused": ("upsert", rows({"part": "__HIVE_DEFAULT_PARTITION__"}), {}),
    "a check that fails": ("upsert", rows({}, {"a": 5000}, {"a": 6000}), {}),
    "ordered deletes": (
        "upsert",
        rows(
            *(
                {"_hoodie_is_deleted": said, "id": n, "ts": 9 - n}
                for n, said in enumerate((True, None, True, False, True))
            ),
            _hoodie_is_deleted=pa.bool_(),
        ),
        {},
    ),
    "ordered deletes with a value that fails": (
        "upsert",
        rows({"a": 5000, "must": None, "_hoodie_is_deleted": True, **LATER}, _hoodie_is_deleted=pa.bool_()),
        {},
    ),
    "a flag that is no boolean": ("upsert", rows({}, _hoodie_is_deleted=pa.int32()), {}),
    "a version that was written": ("upsert", rows(LATER), {"transaction": ("job", 3)}),
    "a version that is new": ("upsert", rows(LATER), {"transaction": ("job", 4)}),
    "a duplicates= that is none": ("upsert", rows({}), {"duplicates": "first"}),
    "rows to be inserted": ("insert", rows({"id": 9}, {"id": 10, "part": "n"}), {}),
    "rows that exist": ("insert", rows(*({"id": n, "part": "pq"[n % 2]} for n in range(8))), {}),
    "rows that exist, in bulk": ("insert", rows({}, {"id": 3}, {"id": 9}), {"bulk": True}),
    "rows that exist and are kept": ("insert", rows({"a": 7}, {"id": 9}), {"existing": "keep"}),
    "rows that exist and are kept, in bulk": ("insert", rows({"a": 7}, {"id": 9}), {"existing": "keep", "bulk": True}),
    "rows in order": (
        "insert",
        rows({"id": 19}, {"id": 18, "a": 0}, {"id": 17, "a": 2}),
        {"bulk": True, "sort_by": ["a"]},
    ),
    "a partition anew": ("insert_overwrite", rows({"id": 9}, {"id": 9}), {}),
    "the table anew": ("insert_overwrite", rows({"id": 9, "part": "q"}), {"whole_table": True}),
    "a partition anew, with a bad row": ("insert_overwrite", rows({"id": 9}, {"id": None}), {}),
    "keys to be deleted": ("delete", KEYS, {}),
    "rows to be deleted": ("delete", rows({"a": 5000, "must": None, "ts": None}), {}),
    "keys to be deleted twice": ("delete", pa.concat_tables([KEYS, KEYS]), {}),
    "deletes beside a duration": ("delete", beside(KEYS, "gap", pa.array([1, None], pa.duration("us"))), {}),
    "deletes beside nulls": ("delete", beside(KEYS, "none", pa.nulls(2)), {}),
    "deletes beside the key in capitals": ("delete", beside(KEYS, "ID", pa.array([2, 2])), {}),
    "deletes beside a column twice": ("delete", beside(beside(KEYS, "a", KEYS["id"]), "a", KEYS["id"]), {}),
    "deletes beside odd names": ("delete", beside(beside(KEYS, "a.b", KEYS["id"]), "id`", KEYS["id"]), {}),
    "deletes with the key twice": ("delete", beside(KEYS, "id", KEYS["id"]), {}),
    "deletes with the key in capitals only": ("delete", KEYS.rename_columns(["ID", "part"]), {}),
    "deletes without key": ("delete", KEYS.select(["part"]), {}),
    "deletes without anything of the table": ("delete", KEYS.rename_columns(["x", "y"]), {}),
    "deletes of a null key": ("delete", rows({"id": None}), {}),
    "deletes with a key of another type": ("delete", KEYS.set_column(0, "id", pa.array(["1", "2"])), {}),
    "deletes with a flag": ("delete", rows({"_hoodie_is_deleted": False}, _hoodie_is_deleted=pa.bool_()), {}),
    "bad rows set aside": (
        "upsert",
        rows({"id": 9}, {"id": None}, {"a": 5000}, {"must": None}, {"a": 5000}),
        {"on_bad_rows": "quarantine"},
    ),
    "bad rows set aside from an insert": ("insert", rows({"id": 9}, {"a": 5000}), {"on_bad_rows": "quarantine"}),
    "bad rows of a batch that lacks columns": (
        "upsert",
        rows({"id": 9}, {"id": None}, without=("s", *OURS)),
        {"on_bad_rows": "quarantine", "missing": "null"},
    ),
    "too many bad rows": (
        "upsert",
        rows({"id": 9}, {"id": None}, {"id": None, "a": 2}, {"a": 5000}),
        {"on_bad_rows": hoodoo.BadRowLimits(2)},
    ),
    "no rows": ("upsert", rows(), {}),
    "no rows, and a column that is not there": ("upsert", rows(without=("a",)), {}),
    "no rows, and another type": ("upsert", rows(ts=pa.string()), {}),
    "no rows, and one more column": ("upsert", rows(new=pa.int32()), {}),
    "no rows, and one more column that is added": ("upsert", rows(new=pa.int32()), {"evolve": True}),
    "no rows to be deleted": ("delete", rows(), {}),
    "no rows to be deleted, nor keys": ("delete", rows(without=("id",)), {}),
    "no rows anew": ("insert_overwrite", rows(), {}),
    "no rows and nothing else": ("insert_overwrite", rows(), {"whole_table": True}),
    "no rows of a version": ("upsert", rows(), {"transaction": ("job", 9)}),
    "no columns": ("upsert", pa.table({}), {}),
    "no columns to be deleted": ("delete", pa.table({}), {}),
}


ON_SPARK = ("new, known and stale rows", "rows that exist", "keys to be deleted")
"""Cases in which tasks of staged batches are Spark's; in the others they only travel as if they were."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ways") / "t"
    quiet: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}
    made = hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", checks=CHECKS, **quiet)
    known = rows(*({"id": n, "part": part} for n in range(5) for part in "pq"))
    made.upsert(known, transaction=("job", 3))
    made.upsert(rows({"id": 3, "ts": 6}))
    made.alter.add_column("late", pa.int32(), default=4)
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_batch_means_the_same_however_it_comes(table: Path, spark: Any, name: str) -> None:
    """Columns called as ours are ended in a KeyError on Spark, deletes stopped at columns that they do not need, keys
    that exist were counted by partition, frames without columns were nothing.
    """
    write, given, how = CASES[name]
    engine = None if name in ON_SPARK else TasksHere
    agreed(table, frame_of(spark, given), given, write, how, engine)


BY_TWO: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "late, equal and newer by the second column": ("upsert", rows(*({"id": n, "a": n} for n in range(3))), {}),
    "the newest of a key": ("upsert", rows({"id": 9, "a": 1}, {"id": 9, "a": 3}, {"id": 9, "a": 2}), {}),
    "a null in the second column": ("upsert", rows({}, {"a": None}), {}),
    "no second column": ("upsert", rows({}, without=("a",)), {"missing": "null"}),
    "ordered deletes": (
        "upsert",
        beside(rows(*({"id": n, "a": n} for n in range(3))), "_hoodie_is_deleted", pa.array([True] * 3)),
        {},
    ),
}


@pytest.mark.parametrize("name", BY_TWO)
def test_a_table_that_is_ordered_by_two_columns_takes_a_batch_alike(tmp_path: Path, spark: Any, name: str) -> None:
    quiet: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by=("ts", "a"), **quiet)
    table.upsert(rows(*({"id": n} for n in range(3))))
    write, given, how = BY_TWO[name]
    agreed(tmp_path / "t", frame_of(spark, given), given, write, how, TasksHere)


ODD_ITEM = pa.struct([("Zip Code", pa.string()), ("city", pa.string())])
ODD_SCHEMA = pa.schema(
    [
        ("Order ID", pa.int64()),
        ("a `b`", pa.string()),
        ("größe", pa.float64()),
        ("to", pa.list_(ODD_ITEM)),
        ("s x", ODD_ITEM),
    ]
)
ODD: dict[str, Any] = {"Order ID": 1, "a `b`": "p", "größe": 2.5}
ODD |= {"to": [{"Zip Code": "1", "city": "c"}, None], "s x": {"Zip Code": "2", "city": None}}


def odd(*changes: dict[str, Any], **renames: str) -> pa.Table:
    """Rows with the names that a table was created from, but for those in `renames`, by the new name."""
    found = pa.Table.from_pylist([ODD | change for change in changes], ODD_SCHEMA)
    originals = {original: name for name, original in renames.items()}
    return found.rename_columns([originals.get(name, name) for name in found.column_names])


BY_EITHER_NAME: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "originals": ("upsert", odd({}, {"Order ID": 9, "s x": None}), {}),
    "some originals": ("upsert", odd({}, {"Order ID": 9}, order_id="Order ID", s_x="s x"), {}),
    "both names": ("upsert", beside(odd({}), "order_id", pa.array([1])), {}),
    "rows to be inserted": ("insert", odd({"Order ID": 5}, grosse="größe"), {}),
    "rows that exist": ("insert", odd({}), {}),
    "a null key": ("upsert", odd({"Order ID": None}), {}),
    "a column that is not there": ("upsert", odd({}).drop_columns(["größe"]), {}),
    "new columns": ("upsert", beside(beside(odd({}), "n ö", pa.array([1])), "x.y", pa.array([1])), {"evolve": True}),
    "keys to be deleted": ("delete", odd({}, {"Order ID": 2}).select(["Order ID", "a `b`"]), {}),
    "keys by both names": ("delete", beside(odd({}).select(["Order ID", "a `b`"]), "a_b", pa.array(["p"])), {}),
    "a partition anew": ("insert_overwrite", odd({"Order ID": 7}), {}),
    "bad rows": ("upsert", odd({"Order ID": 6}, {"Order ID": None}), {"on_bad_rows": "quarantine"}),
}


@pytest.mark.parametrize("name", BY_EITHER_NAME)
def test_columns_are_known_by_either_of_two_names_however_a_batch_comes(tmp_path: Path, spark: Any, name: str) -> None:
    quiet: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}
    table = hoodoo.create(tmp_path / "t", ODD_SCHEMA, key="Order ID", partition_by="a `b`", rename="snake", **quiet)
    table.upsert(odd(*({"Order ID": n} for n in range(1, 4))))
    write, given, how = BY_EITHER_NAME[name]
    agreed(tmp_path / "t", frame_of(spark, given), given, write, how, TasksHere)
    back = hoodoo.open(tmp_path / "t").scan(names="original")
    assert sorted(map(repr, back.to_spark(spark).toArrow().to_pylist())) == sorted(
        map(repr, back.to_arrow().to_pylist())
    )


def test_merges_and_writes_of_some_columns_take_frames_by_either_name(tmp_path: Path, spark: Any) -> None:
    found = []
    for number, by_frame in enumerate((False, True)):
        table = hoodoo.create(tmp_path / str(number), ODD_SCHEMA, key="Order ID", rename="snake")
        table.upsert(odd({}, {"Order ID": 2}))
        given = odd({"größe": 7.0}, {"Order ID": 4}, s_x="s x")
        source = frame_of(spark, given) if by_frame else given
        table.merge(source).when_matched_update({"größe": 'source."größe" + target."Order ID"'}).execute()
        table.merge(source).when_matched_update_all(
            where='source."Order ID" > 1'
        ).when_not_matched_insert_all().execute()
        some = given.select(["Order ID", "a `b`", "größe"])
        table.upsert(frame_of(spark, some) if by_frame else some, columns=["größe"])
        found.append(rows_of(table))
        with pytest.raises(hoodoo.ColumnError, match="two names of the same column"):
            both = beside(given, "order_id", given["Order ID"])
            table.merge(frame_of(spark, both) if by_frame else both).when_not_matched_insert_all().execute()
    assert found[0] == found[1] and len(found[0]) == 3


def test_keys_without_partition_are_deleted_wherever_they_are_and_df_write_asks_for_it(table: Path, spark: Any) -> None:
    """Tasks of `df.write` know one partition of a row, and no other."""
    keys = KEYS.select(["id"])
    one, other, third = map(hoodoo.open, copies(table, ("arrow", "frame", "df.write")))
    deleted = one.delete(keys).deleted
    assert deleted > 0 and other.delete(frame_of(spark, keys)).deleted == deleted
    assert rows_of(one) == rows_of(other)
    with pytest.raises(hoodoo.ColumnError, match="'part'"):
        written(third, keys, "delete", {})


def rows_of(table: hoodoo.Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


@pytest.fixture(params=["small", "staged", "df.write"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with all_staged() if request.param == "staged" else pytest.MonkeyPatch.context():
        yield request.param


@pytest.mark.parametrize("how", [{}, {"missing": "null"}], ids=["default", "null"])
def test_a_column_that_a_batch_left_out_may_be_dropped_before_its_commit(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], way: str
) -> None:
    """Its default had been filled in; staged rows forgot that, and the batch was told that it has values for it."""
    made = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    made.alter.add_column("late", pa.int64(), **({} if how else {"default": 5}))
    prepared = staged.prepared_size

    def meanwhile(collected: Any) -> int:
        monkeypatch.setattr(staged, "prepared_size", prepared)
        hoodoo.open(made.path).alter.drop_column("late")
        return prepared(collected)

    monkeypatch.setattr(staged, "prepared_size", meanwhile)
    given = pa.table({"id": [1], "v": ["a"]})
    if way == "df.write":
        written(made, given, "upsert", how)
    else:
        made.upsert(frame_of(spark, given), **how)
    assert hoodoo.open(made.path).scan().to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


def test_a_staged_batch_keeps_all_that_is_known_of_it(table: Path) -> None:
    """What holds for all rows is in its terms, and each of them comes back: one that is added is known here too."""
    config = hoodoo.open(table).handle.config
    batch = prepare_batch(
        rows({}, {"id": 2, "part": "q"}, {}, without=("a",)), config, WriteOptions(missing="null"), settled=99
    )
    back = to_batch(to_table(batch), batch.terms)
    by_row = {"rows", "hashes", "partitions", "codes", "delete", "terms", "stale"}
    assert {field.name for field in fields(batch)} == by_row and batch.stale == 1
    assert (back.rows, back.partitions, back.terms) == (batch.rows, batch.partitions, batch.terms)
    for name in ("hashes", "codes", "delete"):
        assert getattr(back, name).tolist() == getattr(batch, name).tolist()
    absent = frozenset(config.columns.by_name[name].id for name in ("a", "late"))
    assert batch.terms == BatchTerms(False, config.columns, 99, absent)


def test_terms_travel_once_with_all_tasks_of_a_job(table: Path) -> None:
    config = hoodoo.open(table).handle.config
    terms = BatchTerms.of(SCHEMA, config, False)
    common, parts = serialize_tasks(len, [(terms, number) for number in range(3)])
    assert max(map(len, parts)) < 100 < len(common)
    assert TaskDeserializer(common).item(parts[2]) == (terms, 2)


NOT_OURS = {
    "INTERVAL '1' MONTH": "Column 'gap' has the Spark type interval month.*drop it",
    "parse_json('1')": "Column 'gap' has the Spark type variant.*drop it",
    "CAST('1 day' AS INTERVAL)": "Column 'gap' has the Spark type interval.*drop it",
    "named_struct('x', 1, 'x', 2)": "Column 'ts' .* is not in the batch",
}


@pytest.mark.parametrize("text", NOT_OURS)
def test_a_delete_looks_at_no_column_that_it_does_not_need_whatever_its_type(
    table: Path, spark: Any, text: str
) -> None:
    """Arrow has no such types, and Spark hands them to no Python."""
    [copy] = copies(table, ("types",))
    opened = hoodoo.open(copy)
    frame = spark.sql(f"SELECT 1L id, 'p' part, {text} gap, 5 ID, 1L `a.b`")
    assert opened.delete(frame).deleted == 1
    with pytest.raises((hoodoo.SchemaError, hoodoo.ColumnError), match=NOT_OURS[text]):
        opened.upsert(frame)


def test_a_column_that_spark_hands_to_no_python_is_named_before_df_write_sends_it(table: Path) -> None:
    with pytest.raises(hoodoo.ColumnError, match="Column 's' has a field more than once"):
        written(hoodoo.open(table), beside(KEYS, "s", twice(2)), "delete", {})


@pytest.mark.parametrize("name", ["keys twice", "deletes beside the key in capitals", "no columns"])
def test_a_session_of_connect_says_the_same(table: Path, connected: Any, name: str) -> None:
    write, given, how = CASES[name]
    agreed(table, frame_of(connected, given), given, write, how, TasksHere)


def test_a_stream_may_bring_columns_that_its_deletes_do_not_need(table: Path, spark: Any, tmp_path: Path) -> None:
    [copy] = copies(table, ("stream",))
    spark.sql("SELECT * FROM VALUES (1L, 'p'), (7L, 'q') t(id, part)").write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id long, part string").parquet(str(tmp_path / "source"))
    stream = stream.selectExpr("*", "0 ID", "INTERVAL '1' MONTH gap", "id _hoodoo_hash")
    writer = stream.writeStream.foreachBatch(hoodoo.open(copy).sink("job of deletes", operation="delete"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    before = hoodoo.open(copy).scan().count()
    writer.start().awaitTermination()
    assert hoodoo.open(copy).scan().count() == before - 1


OTHERS = ("schema/test_batches.py", "table/test_bad_input.py", "table/test_first_errors.py", "table/test_not_null.py")
OTHERS += ("writers/test_checks.py", "writers/test_quarantine.py", "writers/test_value_validation.py")


@pytest.mark.deep
def test_every_write_of_the_tests_of_batches_means_the_same_however_it_comes(tmp_path: Path) -> None:
    """These tests once more, their writes compared; `tests/support/three_ways.py` is the plugin that does it."""
    files = [str(Path(__file__).parents[1] / name) for name in OTHERS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "three_ways", f"--basetemp={tmp_path / 'others'}", *files]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:]
    compared = re.search(r"(\d+) writes of (\d+) tests were compared", done.stdout)
    assert compared and int(compared[1]) > 200, done.stdout[-1_000:]
