"""What people try first, from pandas, polars, DuckDB and deltalake, works, or leads to the call that does it."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import uuid
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import hoodoo
from hoodoo.readers.moments import parse_moment
from hoodoo.timeline import create_table

ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
HAVE_COLUMNS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars, lazy": lambda: pl.DataFrame(ROWS).lazy(),
    "duckdb": lambda: duckdb.sql("select * from (values ('a', 1::bigint), ('b', 2::bigint)) rows(id, n)"),
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "large strings": lambda: pa.Table.from_pylist(ROWS, pa.schema([("id", pa.large_string()), ("n", pa.int64())])),
    "dictionary": lambda: pa.table({"id": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]}),
    "list of dicts": lambda: ROWS,
    "dict of lists": lambda: {"id": ["a", "b"], "n": [1, 2]},
}


@pytest.mark.parametrize("kind", HAVE_COLUMNS)
def test_a_table_takes_its_columns_from_rows_and_writes_none(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", HAVE_COLUMNS[kind](), key="id")
    assert (table.schema, table.count()) == (SCHEMA, 0)
    table.insert(HAVE_COLUMNS[kind]())
    assert sorted(table.head().to_pylist(), key=lambda row: str(row["id"])) == ROWS


def test_rows_that_can_be_read_once_are_left_unread(tmp_path: Path) -> None:
    reader = pa.Table.from_pylist(ROWS).to_reader()
    table = hoodoo.create(tmp_path / "t", reader, key="id")
    assert table.insert(reader).inserted == 2
    other = hoodoo.create(tmp_path / "u", table.scan(), key="id")
    assert other.insert(table.scan()).inserted == 2


@pytest.mark.parametrize(
    "columns",
    [{"id": "string", "n": "bigint"}, {"id": "text", "n": pa.int64()}, "id string, n int64", "id: varchar, n: long"],
)
def test_columns_are_said_as_names_and_types(tmp_path: Path, columns: Any) -> None:
    assert hoodoo.create(tmp_path / "t", columns, key="id").schema == SCHEMA


def test_columns_come_from_a_file(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id,n\na,1\n")
    for name in ("rows.parquet", "rows.csv"):
        table = hoodoo.create(tmp_path / name.replace(".", "_"), str(tmp_path / name), key="id")
        assert table.schema == SCHEMA
        assert table.insert(tmp_path / name).inserted >= 1


@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [
        ({}, hoodoo.SchemaError, "key column 'id'"),
        ([], hoodoo.OptionError, "schema must be"),
        ([{"id": "a", "n": None}], hoodoo.SchemaError, "'n' contains only nulls"),
        ({"id": "strong"}, hoodoo.SchemaError, "unknown type 'strong'"),
        ("id", hoodoo.SchemaError, "a name and a type"),
        ("rows.csv", hoodoo.CallError, "does not exist"),
        (7, hoodoo.ColumnError, "Cannot read rows from int"),
    ],
)
def test_what_has_no_columns_is_refused_and_makes_no_table(
    tmp_path: Path, columns: Any, error: type[Exception], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        hoodoo.create(tmp_path / "t", columns, key="id")
    assert not (tmp_path / "t").exists()


UUIDS = [uuid.UUID(int=7), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"), None]
HAVE_UUIDS: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table({"id": [1, 2, 3], "u": pa.array([one and one.bytes for one in UUIDS], pa.uuid())}),
    "python": lambda: [{"id": number, "u": one} for number, one in enumerate(UUIDS, 1)],
    "pandas": lambda: pd.DataFrame({"id": [1, 2, 3], "u": UUIDS}),
    "a slice": lambda: pa.concat_tables([HAVE_UUIDS["arrow"]()] * 2).combine_chunks().slice(3),
    "a dict of lists": lambda: {"id": [1, 2, 3], "u": UUIDS},
}


@pytest.mark.parametrize("kind", HAVE_UUIDS)
def test_uuids_are_text_unless_a_column_is_declared_otherwise(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", HAVE_UUIDS[kind](), key="id")
    assert table.schema.field("u").type == pa.string()
    table.insert(HAVE_UUIDS[kind]())
    texts = [one and str(one) for one in UUIDS]
    assert table.get([1, 2, 3])["u"].to_pylist() == texts
    table.upsert({"id": [1, 2, 3], "u": texts})
    assert table.update({"u": UUIDS[1]}, where="id = 3").updated == 1
    table.merge({"id": [3], "u": [UUIDS[0]]}).when_matched_update_all().execute()
    assert table.scan(where=f"u = '{UUIDS[0]}'").count() == 2
    declared = hoodoo.create(tmp_path / "u", {"id": "long", "u": "binary"}, key="id")
    declared.insert(HAVE_UUIDS[kind]())
    assert declared.get(2)["u"].to_pylist() == [UUIDS[1] and UUIDS[1].bytes]


def test_a_uuid_is_a_key(tmp_path: Path) -> None:
    inner = pa.struct([("u", pa.list_(pa.uuid()))])
    table = hoodoo.create(tmp_path / "t", pa.schema([("u", pa.uuid()), ("s", inner)]), key="u")
    assert table.schema.field("s").type == pa.struct([("u", pa.list_(pa.string()))])
    key = uuid.UUID(int=9)
    listed = pa.ListArray.from_arrays([0, 2], pa.array([key.bytes, None], pa.uuid()))
    table.insert({"u": [key], "s": pa.StructArray.from_arrays([listed], fields=list(inner))})
    [row] = table.get(key).to_pylist()
    assert row == {"u": str(key), "s": {"u": [str(key), None]}} and len(table.get([key, uuid.UUID(int=8)])) == 1
    table.upsert(pa.table({"u": [str(key)], "more": pa.array([key.bytes], pa.uuid())}), evolve=True, missing="null")
    assert table.schema.field("more").type == pa.string()
    assert table.delete([key]).deleted == 1


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.insert([{"id": f"k{number}", "n": number} for number in range(30)])
    made.upsert([{"id": "k1", "n": 100}])
    return made


def test_types_are_said_as_text(table: hoodoo.Table) -> None:
    table.alter.add_column("price", "decimal(10, 2)")
    table.alter.widen_column("n", "decimal(20, 0)")
    table.alter([hoodoo.AddColumn("tags", "list<string>")])
    kinds = [pa.string(), pa.decimal128(20, 0), pa.decimal128(10, 2), pa.list_(pa.string())]
    assert table.schema.types == kinds
    with pytest.raises(hoodoo.SchemaError, match="unknown type 'decimul'"):
        table.alter.add_column("more", "decimul")


def test_a_table_and_its_reads_can_be_counted_and_looked_at(table: hoodoo.Table) -> None:
    assert (table.count(), len(table.scan()), len(table.scan(where="n > 90"))) == (30, 30, 1)
    assert bool(table.scan(where="n > 1000"))  # asked whether there is a scan, nobody counts its rows
    assert (len(table.head()), len(table.head(3)), len(table.head(99)), len(table.head(0))) == (10, 3, 30, 0)
    assert table.scan(columns=["n"]).head(2).schema == pa.schema([("n", pa.int64())])
    assert table.scan(where="n > 90").head().to_pylist() == [{"id": "k1", "n": 100}]
    assert len(table.changes("earliest").head(4)) == 4
    with pytest.raises(hoodoo.OptionError, match="rows"):
        table.head(-1)


GUESSES = {
    "optimize": "compact",
    "vacuum": "maintenance.clean",
    "version": "cursor",
    "to_pandas": "scan",
    "to_pyarrow_table": "scan",
    "load_cdf": "changes",
    "append": "insert",
    "add_columns": "alter.add_column",
    "upserts": "upsert",
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_name_of_another_library_leads_to_the_call_that_does_it(table: hoodoo.Table, name: str) -> None:
    with pytest.raises(AttributeError, match=GUESSES[name]) as told:
        getattr(table, name)
    assert attrgetter(GUESSES[name])(table)
    assert str(told.value).startswith(f"A table has no {name!r}")
    assert not hasattr(table, name)


def test_the_module_leads_to_its_calls_too() -> None:
    for name in ("DeltaTable", "write_deltalake", "load_table"):
        with pytest.raises(AttributeError, match=r"hoodoo\.open"):
            getattr(hoodoo, name)


def test_a_table_still_copies_and_pickles(table: hoodoo.Table) -> None:
    assert pickle.loads(pickle.dumps(table)).count() == copy.copy(table).count() == 30
    with pytest.raises(AttributeError, match="A table has no 'frobnicate'"):
        table.frobnicate  # type: ignore[attr-defined]  # noqa: B018


def test_the_index_of_a_data_frame_that_is_called_as_the_key_is_a_column(tmp_path: Path) -> None:
    """A batch took it, and `create` said that the key is not in the schema."""
    frame = pd.DataFrame(ROWS).set_index("id")
    table = hoodoo.create(tmp_path / "t", frame, key="id")
    assert table.schema.names == ["id", "n"]
    assert table.insert(frame).inserted == 2


def test_a_table_has_a_length_and_speaks_arrows_stream_protocol(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    assert len(table) == 0 and bool(table)
    table.insert(ROWS)
    assert len(table) == pl.DataFrame(table).height == pa.table(table).num_rows == 2


@pytest.mark.parametrize("of", [lambda table: table, lambda table: table.scan()])
def test_what_is_no_iterator_says_how_its_rows_are_gone_through(tmp_path: Path, of: Callable[[Any], Any]) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(TypeError, match=r"batches\(\)"):
        list(of(table))


def test_a_column_whose_name_is_a_word_of_sql_needs_no_quotes_where_it_is_meant(tmp_path: Path) -> None:
    """`at` is a keyword of DuckDB: beside a function it was a syntax error, and the message was about the function."""
    table = hoodoo.create(tmp_path / "t", {"id": "string", "at": "bigint", "end": "bigint"}, key="id")
    table.insert([{"id": "at", "at": n, "end": n + 1} for n in range(1)])
    for where in (
        "at = 0 AND length(id) > 0",
        "abs(end) = 1 -- at",
        "at + end = 1 AND id = 'at'",
        '"at" = 0 AND abs(at) = 0',
    ):
        assert len(table.scan(where=where)) == 1
    assert len(table.scan(where="id = E'at' AND /* end */ abs ( at ) = 0")) == 1
    assert table.update({"at": "at + end"}).updated == 1
    with pytest.raises(hoodoo.ExpressionError, match="Cannot read"):
        table.update({"at": "at +"})


def test_a_merge_takes_rows_of_polars_with_texts_in_lists_and_structs(tmp_path: Path) -> None:
    """polars hands them out as views, of which Arrow takes no rows."""
    rows = [{"id": "a", "l": ["x"], "s": {"t": "y"}}, {"id": "b", "l": None, "s": None}]
    table = hoodoo.create(tmp_path / "t", pl.DataFrame(rows), key="id")
    table.insert(pl.DataFrame(rows))
    changed = [rows[0] | {"l": ["z", None]}, rows[1] | {"s": {"t": "w"}}]
    assert table.merge(pl.DataFrame(changed)).when_matched_update_all().execute().updated == 2
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row["id"])) == changed


def test_a_batch_that_calls_a_column_otherwise_hears_how_it_is_renamed(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(hoodoo.ColumnError, match="rename_column.'n', 'reading'"):
        table.upsert([{"id": "a", "reading": 1}])


def test_periods_of_pandas_are_refused_and_not_taken_for_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["a"], "month": pd.PeriodIndex(["2026-01"], freq="M")})
    with pytest.raises(hoodoo.ColumnError, match=r"'month' contains pandas periods.*to_timestamp"):
        hoodoo.create(tmp_path / "t", frame, key="id")


def test_create_opens_an_existing_table_if_asked(tmp_path: Path) -> None:
    def start(**more: Any) -> hoodoo.Table:
        given = {"key": "id", "partition_by": hoodoo.day("at"), "order_by": "n", "if_exists": "open"} | more
        return hoodoo.create(tmp_path / "t", "id string, n bigint, at timestamp", **given)

    assert start().insert([{"id": "a", "n": 1, "at": dt.datetime(2026, 1, 31, tzinfo=dt.timezone.utc)}]).inserted == 1
    start().alter.add_column("note", "string")
    again = start(clean_every=7)
    assert (again.count(), again.schema.names[-1], again.options.clean_every) == (
        1,
        "note",
        hoodoo.Options().clean_every,
    )
    for name, value, expected in (
        ("key", ["id", "n"], r"has key 'id': expected \['id', 'n'\]"),
        ("partition_by", None, r"has partition_by 'day\(at\)': expected None"),
        ("partition_by", hoodoo.hour("at"), r"has partition_by 'day\(at\)': expected 'hour\(at\)'"),
        ("order_by", None, "has order_by 'n': expected None"),
        ("type", "copy_on_write", "has type 'merge_on_read': expected 'copy_on_write'"),
    ):
        with pytest.raises(hoodoo.TableExists, match=expected):
            start(**{name: value})
    with pytest.raises(hoodoo.TableExists, match="already exists"):
        start(if_exists="error")
    with pytest.raises(hoodoo.OptionError, match="if_exists must be 'error' or 'open'"):
        start(if_exists="replace")


def test_of_two_processes_that_create_a_table_both_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = create_table.create_table

    def late(*given: Any) -> None:
        made(*given)  # the other process
        made(*given)

    monkeypatch.setattr(create_table, "create_table", late)
    assert hoodoo.create(tmp_path / "t", SCHEMA, key="id", if_exists="open").insert(ROWS).inserted == 2
    assert hoodoo.open(tmp_path / "t").count() == 2


def test_count_counts_the_rows_that_match_a_condition(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.insert(ROWS)
    assert [table.count(), table.count(where="n > 1"), table.count("n > 2")] == [2, 1, 0]


def test_one_row_is_taken_where_rows_are(table: hoodoo.Table) -> None:
    row = {"id": "z", "n": 7}
    assert table.upsert(row).inserted == 1
    assert table.get(row, columns=["id"]).to_pylist() == [{"id": "z"}]
    assert table.delete(row).deleted == 1
    assert table.insert(pd.DataFrame([row]).iloc[0]).inserted == 1
    assert table.get("z").to_pylist() == [row]


def test_a_row_may_have_lists_and_structs(tmp_path: Path) -> None:
    row = {"id": 1, "tags": ["a", "b"], "at": {"x": 1, "y": None}}
    table = hoodoo.create(tmp_path / "t", "id bigint, tags list<string>, at struct<x bigint, y bigint>", key="id")
    table.upsert(row)
    assert table.scan().to_arrow().to_pylist() == [row]
    table.upsert({"id": [2, 3], "tags": [["c"], []], "at": [None, None]})  # columns: each of them is a list
    assert table.count() == 3


def test_a_schema_may_have_types_of_python_and_of_sql(tmp_path: Path) -> None:
    kinds = {"id": int, "name": str, "fare": "decimal(9,2)", "code": "varchar(8)", "at": dt.datetime, "on": bool}
    table = hoodoo.create(tmp_path / "t", kinds, key="id")
    assert table.schema.types == [
        pa.int64(),
        pa.string(),
        pa.decimal128(9, 2),
        pa.string(),
        pa.timestamp("us", "UTC"),
        pa.bool_(),
    ]
    with pytest.raises(hoodoo.SchemaError, match="Column 'tags': 'list' is not a supported type: expected bool, bytes"):
        hoodoo.create(tmp_path / "u", {"id": int, "tags": list}, key="id")


def test_latest_is_the_newest_slot(table: hoodoo.Table) -> None:
    assert table.scan(as_of="latest").count() == table.count()
    assert table.changes("latest").count() == 0
    before = table.cursor
    table.upsert({"id": "z", "n": 7})
    assert table.changes(before, "latest", versions="diff").count() == 1
    with pytest.raises(hoodoo.OptionError):
        table.savepoints.create("latest")


def test_yesterday_is_an_age_of_one_day() -> None:
    assert parse_moment("yesterday") == parse_moment("1 day ago") == dt.timedelta(days=1)
