"""Every kind of frame, stream and list that people hold comes in as rows, and what cannot come in is refused in plain
words that name the column.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.errors import ColumnError
from hoodoo.writers.batches.input import to_arrow

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
WANTED = [{"id": "a", "v": 1}, {"id": "b", "v": 2}]
BATCH = pa.RecordBatch.from_pylist(WANTED, SCHEMA)


def generated() -> Iterator[pa.RecordBatch]:
    yield BATCH.slice(0, 1)
    yield BATCH.slice(1)


class Stream:
    """Some library's own rows, of which only the protocol is known."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table(BATCH).__arrow_c_stream__(requested_schema)


class OneArray:
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return BATCH.__arrow_c_array__(requested_schema)


KINDS: dict[str, Callable[[], Any]] = {
    "record batch": lambda: BATCH,
    "reader": lambda: pa.RecordBatchReader.from_batches(SCHEMA, [BATCH]),
    "generator of batches": generated,
    "list of batches": lambda: list(generated()),
    "Arrow C stream": Stream,
    "Arrow C array": OneArray,
    "list of dicts": lambda: WANTED,
    "generator of dicts": lambda: iter(WANTED),
    "dict of lists": lambda: {"id": ["a", "b"], "v": [1, 2]},
    "dict of numpy arrays": lambda: {"id": np.array(["a", "b"]), "v": np.array([1, 2], np.int8)},
    "pandas": lambda: pd.DataFrame(WANTED),
    "pandas with the key as its index": lambda: pd.DataFrame({"v": [1, 2]}, index=pd.Index(["a", "b"], name="id")),
    "polars": lambda: pl.DataFrame(WANTED),
    "polars, lazy": lambda: pl.DataFrame(WANTED).lazy(),
    "duckdb": lambda: duckdb.sql("select * from (values ('a', 1::bigint), ('b', 2::bigint)) rows(id, v)"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_in_as_whatever_people_hold_them(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    assert table.upsert(KINDS[kind]()).inserted == 2
    assert table.scan().to_arrow().sort_by("id").to_pylist() == WANTED


def test_the_rows_of_a_scan_are_rows_to_write(tmp_path: Path) -> None:
    first, second = (hoodoo.create(tmp_path / name, SCHEMA, key="id") for name in ("one", "two"))
    first.upsert(WANTED)
    second.upsert(first.scan())
    assert second.scan().count() == 2


def test_an_index_that_is_called_like_no_column_of_the_table_stays_outside(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    frame = pd.DataFrame(WANTED)
    frame.index.name = "row number"
    assert table.upsert(frame).inserted == 2
    assert table.delete(frame.set_index("id")).deleted == 2


def two_names(first: str, second: str) -> pd.DataFrame:
    return pd.DataFrame([["a", 1, 2]], columns=["id", first, second])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mixed pandas column": (
        lambda: pd.DataFrame({"id": ["a", "b"], "v": pd.Series([1, "x"], dtype=object)}),
        r"'v', row 1: 'x' .* one type",
    ),
    "mixed list of dicts": (lambda: [{"id": "a", "v": 1}, {"id": "b", "v": "x"}], r"'v', row 1: 'x' .* one type"),
    "number beyond 64 bits": (lambda: [{"id": "a", "v": 2**70}], r"'v', row 0: 1180591620717411303424"),
    "pandas columns of one name": (lambda: two_names("v", "v"), "'v' more than once"),
    "lists of two lengths": (lambda: {"id": ["a", "b"], "v": [1]}, "'v' has 1 values: expected 2, as in column 'id'"),
    "a text where a list belongs": (lambda: {"id": "ab", "v": [1]}, "'id' is invalid: expected a list of values"),
    "a name that is no text": (lambda: {"id": ["a"], 7: [1]}, "name 7 is invalid: expected a string"),
    "a row without a column": (lambda: [{"id": "a", "v": 1}, {"id": "b"}], "Row 1 has no 'v'"),
    "batches of two schemas": (lambda: [BATCH, BATCH.select(["id"])], "Batch 1 has different columns"),
    "numbers in a row": (lambda: [1, 2], "Item 0 of the rows is a int"),
    "polars objects": (lambda: pl.DataFrame({"id": ["a"], "v": [object()]}), "'v' contains Python objects"),
    "polars Int128": (
        lambda: pl.DataFrame({"id": ["a"], "v": pl.Series([[1]], dtype=pl.List(pl.Int128))}),
        r"'v' is List\(Int128\), which Arrow does not support",
    ),
    "a number": (lambda: 7, "Cannot read rows from int"),
    "nothing": (lambda: None, "Cannot read rows from NoneType"),
    "a struct array": (lambda: pa.array([1]), "Cannot read rows from"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_rows_is_refused_in_words_of_its_own(tmp_path: Path, kind: str) -> None:
    """Arrow's own errors came through: `ArrowInvalid: tried to convert to int64`, with no column and no remedy."""
    make, words = REFUSED[kind]
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(hoodoo.ColumnError, match=words):
        table.upsert(make())
    assert table.scan().count() == 0


def test_a_path_that_is_no_text_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="fsdecode"):
        hoodoo.create(bytes(tmp_path / "t"), SCHEMA, key="id")  # type: ignore[arg-type]
    with pytest.raises(hoodoo.OptionError, match="path must be"):
        hoodoo.open(None)  # type: ignore[arg-type]


# ---------------------------------------------------------------- values in whatever Arrow holds them

PAIR = pa.struct([("x", pa.string()), ("y", pa.binary())])


def category(kind: Any) -> pa.ChunkedArray:
    return pa.table(pl.DataFrame({"c": pl.Series("c", ["x", None, "y"], dtype=kind)})).column(0)


def coded(values: pa.Array, *places: int | None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), values)


TEXTS = pa.array(["x", "long text beyond a view's twelve bytes", None])
HELD: dict[str, tuple[pa.DataType, Callable[[], Any], list[Any]]] = {
    "polars Enum": (pa.string(), lambda: category(pl.Enum(["x", "y"])), ["x", None, "y"]),
    "polars Categorical": (pa.string(), lambda: category(pl.Categorical), ["x", None, "y"]),
    "polars Categorical in lists": (
        pa.list_(pa.string()),
        lambda: pa.table(pl.DataFrame({"c": pl.Series([["q"], None, []], dtype=pl.List(pl.Categorical))})).column(0),
        [["q"], None, []],
    ),
    "polars Enum in structs": (
        pa.struct([("x", pa.string())]),
        lambda: pa.table(pl.DataFrame({"c": [{"x": "u"}]}, schema={"c": pl.Struct({"x": pl.Enum(["u"])})})).column(0),
        [{"x": "u"}],
    ),
    "dictionary of views": (
        pa.string(),
        lambda: coded(TEXTS.cast(pa.string_view()), 1, None, 0),
        [TEXTS[1].as_py(), None, "x"],
    ),
    "dictionary of bytes in views": (
        pa.binary(),
        lambda: coded(pa.array([b"x"], pa.binary_view()), 0, None),
        [b"x", None],
    ),
    "dictionary of large text": (pa.string(), lambda: coded(pa.array(["x"], pa.large_string()), 0, 0), ["x", "x"]),
    "dictionary of lists": (pa.list_(pa.int64()), lambda: coded(pa.array([[1], None]), 0, 1, 0), [[1], None, [1]]),
    "dictionary of structs": (
        pa.struct([("a", pa.int64())]),
        lambda: coded(pa.array([{"a": 1}], pa.struct([("a", pa.int32())])), 0, 0),
        [{"a": 1}, {"a": 1}],
    ),
    "dictionary of a dictionary in lists": (
        pa.list_(pa.string()),
        lambda: coded(pa.ListArray.from_arrays([0, 1, 2], coded(pa.array(["p", "q"]), 1, 0)), 1, 0),
        [["p"], ["q"]],
    ),
    "list view": (
        pa.list_(pa.int64()),
        lambda: pa.array([[1, 2], None, []], pa.list_view(pa.int64())),
        [[1, 2], None, []],
    ),
    "slice of a list view": (
        pa.list_(pa.int64()),
        lambda: pa.array([[9], [1, 2], None], pa.large_list_view(pa.int32())).slice(1),
        [[1, 2], None],
    ),
    "large list": (
        pa.list_(pa.string()),
        lambda: pa.array([["a"], None], pa.large_list(pa.string_view())),
        [["a"], None],
    ),
    "list of fixed size": (
        pa.list_(pa.int64()),
        lambda: pa.array([[1, 2], None], pa.list_(pa.int16(), 2)),
        [[1, 2], None],
    ),
    "views in structs": (
        PAIR,
        lambda: pa.array([{"x": "u", "y": b"v"}, None], pa.struct([("x", pa.string_view()), ("y", pa.binary_view())])),
        [{"x": "u", "y": b"v"}, None],
    ),
    "run-end encoding": (
        pa.int64(),
        lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, None])).slice(1),
        [7, None],
    ),
    "run-end encoding of text in lists": (
        pa.list_(pa.string()),
        lambda: pa.ListArray.from_arrays(
            [0, 2, 3], pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), pa.array(["a", "b"]))
        ),
        [["a", "b"], ["b"]],
    ),
    "uuid": (pa.binary(), lambda: pa.array([b"0123456789abcdef"], pa.uuid()), [b"0123456789abcdef"]),
    "map of views": (
        pa.map_(pa.string(), pa.string()),
        lambda: pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.large_string())),
        [[("k", "v")], None],
    ),
    "half a float": (pa.float32(), lambda: pa.array([1.5, None], pa.float16()), [1.5, None]),
}


@pytest.mark.parametrize("kind", HELD)
def test_values_arrive_in_whatever_arrow_holds_them(tmp_path: Path, kind: str) -> None:
    """Dictionaries of views, list views and polars categories ended in bare Arrow errors; their first rows go to a base
    file, their second into a log.
    """
    target, make, wanted = HELD[kind]
    values = make()
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("c", target)]), key="id")
    for _ in range(2):
        table.upsert(pa.table({"id": range(len(values)), "c": values}))
        assert table.scan().to_arrow().sort_by("id")["c"].to_pylist() == wanted


# ---------------------------------------------------------------- one rule of casts, however deep

NARROW = pa.struct([("n", pa.int32()), ("d", pa.decimal128(5, 2))])
WIDE = pa.struct([("d", pa.float64()), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("target", "given", "kind", "wanted"),
    [
        (pa.list_(pa.int32()), [[1, None], None], pa.list_(pa.int64()), [[1, None], None]),
        (
            pa.list_(pa.timestamp("us")),
            [[dt.datetime(2026, 1, 1)]],
            pa.list_(pa.timestamp("ns")),
            [[dt.datetime(2026, 1, 1)]],
        ),
        (NARROW, [{"n": 1, "d": 0.5}, None], WIDE, [{"n": 1, "d": Decimal("0.50")}, None]),
        (
            pa.map_(pa.string(), pa.list_(NARROW)),
            [[("k", [{"n": 1, "d": 2.0}])]],
            pa.map_(pa.string(), pa.large_list(WIDE)),
            [[("k", [{"n": 1, "d": Decimal("2.00")}])]],
        ),
        (pa.list_(pa.string()), [[None], []], pa.list_(pa.null()), [[None], []]),
    ],
)
def test_values_in_lists_and_structs_are_cast_by_the_rule_of_those_at_the_top(
    tmp_path: Path, target: pa.DataType, given: list[Any], kind: pa.DataType, wanted: list[Any]
) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("c", target)]), key="id")
    table.upsert(pa.table({"id": range(len(given)), "c": pa.array(given, kind)}))
    assert table.scan().to_arrow().sort_by("id")["c"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("target", "given", "kind", "path", "row"),
    [
        (pa.list_(pa.int32()), [[1], [2, 2**40]], pa.list_(pa.int64()), "c.item", 1),
        (NARROW, [None, {"n": 1, "d": 0.125}], WIDE, "c.d", 1),
        (pa.map_(pa.string(), pa.int32()), [[("k", 2**40)]], pa.map_(pa.string(), pa.int64()), "c.value", 0),
        (pa.list_(pa.int32()), [["x"]], pa.list_(pa.string()), "c.item", None),
        (NARROW, [{"n": 1}], pa.struct([("n", pa.int32())]), "c.d", None),
        (NARROW, [{"n": 1, "d": 1.0, "e": 1}], pa.struct([*WIDE, pa.field("e", pa.int8())]), "c", None),
    ],
)
def test_what_does_not_survive_deep_inside_is_named_by_its_path_and_row(
    tmp_path: Path, target: pa.DataType, given: list[Any], kind: pa.DataType, path: str, row: int | None
) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("c", target)]), key="id")
    with pytest.raises(hoodoo.ColumnError) as caught:
        table.upsert(pa.table({"id": range(len(given)), "c": pa.array(given, kind)}))
    assert caught.value.details["column"] == path
    assert caught.value.details.get("row") == row
    if row is not None:
        assert str(2**40) in caught.value.message or "0.125" in caught.value.message


def test_fields_of_one_name_are_refused_and_not_shown(tmp_path: Path) -> None:
    """Showing such a value raised a ValueError of Arrow's in the middle of an error message."""
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2.5])], ["n", "n"])
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("c", NARROW)]), key="id")
    with pytest.raises(hoodoo.ColumnError, match="'c' has"):
        table.upsert(pa.table({"id": [1], "c": twice}))


def test_a_date_of_milliseconds_in_the_middle_of_a_day_is_called_that(tmp_path: Path) -> None:
    """It was said to be outside of the years 1 to 9999."""
    noon = pa.array([86_400_000 + 43_200_000], pa.int64()).view(pa.date64())
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("c", pa.date32())]), key="id")
    with pytest.raises(hoodoo.ColumnError, match="whole number of days"):
        table.upsert(pa.table({"id": [1], "c": noon}))


@pytest.mark.parametrize(
    "nothing",
    [[], (), {}, pd.DataFrame({"id": [], "v": []}), pl.DataFrame(), iter([])],
    ids=lambda given: type(given).__name__,
)
def test_nothing_at_all_is_an_empty_batch_of_any_columns(tmp_path: Path, nothing: Any) -> None:
    """A job that polls and finds no rows gave `[]`, and was told that the batch has no key column."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(WANTED)
    for write in (table.upsert, table.insert, table.delete):
        assert write(nothing).instant == ""
    assert table.scan().count() == 2


def test_whole_floats_are_integers_as_far_as_those_reach(tmp_path: Path) -> None:
    """2^53 + 2 was said not to survive the cast to int64, which it does: Arrow takes no float beyond 2^53."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    whole = [2.0**53 + 2, -(2.0**63), 2.0**62, 0.0]
    table.upsert({"id": list("abcd"), "v": whole})
    assert table.get(list("abcd"))["v"].to_pylist() == [int(value) for value in whole]
    for refused in (2.0**63, 0.5, float("nan"), 1e300):
        with pytest.raises(hoodoo.ColumnError, match="cannot be converted exactly"):
            table.upsert({"id": ["e"], "v": [refused]})


def test_a_look_up_gives_a_key_once_in_the_place_where_it_was_first_asked_for(tmp_path: Path) -> None:
    """It stood where it was asked for last."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(WANTED)
    assert table.get(["b", "a", "b"])["id"].to_pylist() == ["b", "a"]


MAPS = pa.schema(
    [
        ("id", pa.int64()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("l", pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.float64())), ("y", pa.string())]))),
    ]
)
PAIRS = [
    {"id": 1, "m": [("k", 1), ("j", None)], "l": [{"x": [("a", 0.5)], "y": "t"}, None]},
    {"id": 2, "m": None, "l": [{"x": None, "y": None}]},
    {"id": 3, "m": [], "l": []},
    {"id": 4, "m": [("k", 4)], "l": None},
]
DICTS = [
    {"id": 1, "m": {"k": 1, "j": None}, "l": [{"x": {"a": 0.5}, "y": "t"}, None]},
    {"id": 2, "m": None, "l": [{"x": None, "y": None}]},
    {"id": 3, "m": {}, "l": []},
    {"id": 4, "m": {"k": 4}, "l": None},
]


@pytest.mark.parametrize(
    "given",
    [
        PAIRS,
        DICTS,
        {name: [row[name] for row in DICTS] for name in MAPS.names},
        pd.DataFrame({name: pd.Series([row[name] for row in PAIRS], dtype=object) for name in MAPS.names}),
        pa.Table.from_pylist(PAIRS, MAPS).to_pandas(),
    ],
    ids=["rows of pairs", "rows of dicts", "columns", "pandas", "pandas from arrow"],
)
def test_maps_of_python_are_maps_where_the_table_has_them(tmp_path: Path, given: Any) -> None:
    """What `to_pylist` and `to_pandas` gave could not be written back: pairs looked like lists, dicts like structs."""
    table = hoodoo.create(tmp_path / "t", MAPS, key="id")
    table.upsert(given)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == PAIRS


@pytest.mark.parametrize("value", [{"k": 1.5}, {"k": "x"}, {"k": 2**40}, {1: 1}, "text", 7, [1], {"k": {"n": 1}}])
def test_a_map_whose_values_do_not_fit_is_refused_by_its_column(tmp_path: Path, value: Any) -> None:
    table = hoodoo.create(tmp_path / "t", MAPS, key="id")
    with pytest.raises(hoodoo.ColumnError, match="'m"):
        table.upsert([{"id": 1, "m": value, "l": None}])
    assert table.scan().count() == 0


def test_rows_that_lack_a_column_are_null_there_where_the_caller_says_so(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    rows = [{"id": "a", "v": 1}, {"id": "b"}, {"id": "c", "v": 3, "late": "x"}]
    for how in ({}, {"evolve": True}):
        with pytest.raises(hoodoo.ColumnError, match="has no '(v|late)'.*missing="):
            table.upsert(rows, **how)
    table.upsert(rows, missing="null", evolve=True)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": "a", "v": 1, "late": None},
        {"id": "b", "v": None, "late": None},
        {"id": "c", "v": 3, "late": "x"},
    ]
    table.alter.add_column("d", pa.int64(), default=7)
    with pytest.raises(hoodoo.ColumnError, match="'d'"):
        table.upsert([{"id": "d", "v": 1, "late": "", "d": 1}, {"id": "e", "v": 1, "late": ""}], missing="null")


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (pa.field("n", pa.null()), "its type is unknown"),
        (pa.field("n", pa.list_(pa.null())), "its type is unknown"),
        (pa.field("_hoodie_commit_time", pa.string()), "reserved"),
    ],
)
@pytest.mark.parametrize("evolve", [True, False])
def test_a_new_column_that_no_table_can_have_is_refused_with_the_reason(
    tmp_path: Path, extra: pa.Field, told: str, evolve: bool
) -> None:
    """The error told callers who had passed evolve=True to pass it."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    batch = pa.Table.from_batches([BATCH]).append_column(extra, pa.nulls(2, extra.type))
    with pytest.raises(hoodoo.ColumnError, match=told):
        table.upsert(batch, evolve=evolve)


def test_a_new_column_that_comes_twice_is_named_so(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    batch = pa.Table.from_arrays([*BATCH.columns, BATCH["v"], BATCH["v"]], ["id", "v", "n", "n"])
    with pytest.raises(hoodoo.ColumnError, match="'n' more than once"):
        table.upsert(batch, evolve=True)


def test_a_column_by_a_name_that_another_one_had_says_how_to_bring_it(tmp_path: Path) -> None:
    """The error named an option that no write has."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(WANTED)
    table.alter.drop_column("v")
    with pytest.raises(hoodoo.RewriteNeeded, match=r"alter\.add_column\(\.\.\., rewrite=True\)"):
        table.upsert(WANTED, evolve=True)
    table.alter.add_column("v", pa.int64(), rewrite=True)
    table.upsert(WANTED)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == WANTED


# ---- dates and times of Python
DAY, NOON = dt.date(2026, 1, 31), dt.datetime(2026, 1, 31, 12)
WRONG_TIMES: dict[str, tuple[list[Any], str]] = {
    "a date and a datetime": ([DAY, NOON], "only dates, or only datetimes"),
    "a datetime and a date": ([NOON, DAY], "only dates, or only datetimes"),
    "with and without a zone": ([NOON, NOON.replace(tzinfo=dt.timezone.utc)], "a time zone in all datetimes"),
    "nanoseconds": ([NOON, pd.Timestamp("2026-01-31 12:00:00.000000001")], "at most microseconds"),
    "a time with an offset": ([dt.time(12), dt.time(12, tzinfo=dt.timezone.utc)], "without an offset"),
    "in lists": ([[DAY], [NOON]], "only dates, or only datetimes"),
    "NaT in a list": ([[DAY], [pd.NaT]], "NaT in a list"),
    "in structs": ([{"d": DAY}, {"d": NOON}], "'v.d' contains .* only dates"),
}


@pytest.mark.parametrize("case", WRONG_TIMES)
@pytest.mark.parametrize("form", [list, lambda values: pd.Series(values, dtype=object)], ids=["list", "series"])
def test_python_times_that_arrow_would_cut_are_an_error(case: str, form: Any) -> None:
    values, match = WRONG_TIMES[case]
    with pytest.raises(ColumnError, match=match):
        to_arrow({"id": [1, 2], "v": form(values)})


@pytest.mark.parametrize("first", [DAY, NOON, pd.Timestamp("2026-01-31 12:00")])
def test_nat_among_python_times_is_null(first: Any) -> None:
    rows = to_arrow([{"id": 1, "v": first}, {"id": 2, "v": pd.NaT}, {"id": 3, "v": None}])
    assert rows["v"].is_null().to_pylist() == [False, True, True]
    assert rows["v"].equals(to_arrow({"v": [first, None, None]})["v"])
