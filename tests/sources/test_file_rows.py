"""What in a file is a row becomes one, what is none is named with its place and its bytes, and nothing is in both."""

from __future__ import annotations

import datetime as dt
import json
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from hoodoo.errors import ColumnError, DataError, TooManyBadRows
from hoodoo.sources.files import Files
from hoodoo.sources.source import Limits

COLUMNS = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
)


def read(kind: str, text: str | bytes, columns: pa.Schema = COLUMNS, unknown: bool = False, bad_max: int = 1000):  # type: ignore[no-untyped-def]
    data = text.encode() if isinstance(text, str) else text
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f").write_bytes(data)
        source = Files(folder, format=kind, settle_seconds=0)
        planned = source.plan("", Limits(bad_rows=bad_max))
        assert planned
        return next(source.read(planned, columns, unknown))


BAD_LINES = [
    '{"id": 1',
    "no json",
    '{"id": "x"}',
    '{"id": 1.5}',
    '{"id": 1} {"id": 2}',
    "[1, 2]",
    "17",
    '{"id": 1, "fare": "high"}',
    '{"id": 1, "at": "yesterday"}',
    '"text"',
    '{"id": 1}}',
    "null",
]


@pytest.mark.parametrize("bad", BAD_LINES)
def test_one_bad_line_is_named_and_all_others_are_rows(bad: str) -> None:
    lines = [json.dumps({"id": number, "city": "x"}) for number in range(50)]
    lines.insert(17, bad)
    found = read("json", "\n".join(lines))
    assert found.rows["id"].to_pylist() == list(range(50))
    [place], payloads = found.bad["place"].to_pylist(), found.bad["payload"].to_pylist()
    assert place.startswith("f:line:18:") and payloads == [bad.encode()]
    assert found.bad["reason"].to_pylist() == ["decode"] and found.bad["detail"][0].as_py()


@pytest.mark.parametrize("seed", range(10))
def test_any_mix_of_lines_falls_into_rows_and_bad_ones(seed: int) -> None:
    rng = random.Random(seed)
    lines, good, bad = list[str](), list[int](), list[str]()
    for number in range(rng.choice([1, 3, 200])):
        if rng.random() < rng.choice([0.02, 0.5]):
            bad.append(rng.choice(BAD_LINES))
            lines.append(bad[-1])
        elif rng.random() < 0.1:
            lines.append(rng.choice(["", "   ", "\t"]))
        else:
            good.append(number)
            lines.append(json.dumps({"id": number}))
    found = read("json", "\n".join(lines) + rng.choice(["", "\n"]))
    assert (found.rows["id"].to_pylist() if good else []) == good
    assert [payload.decode() for payload in found.bad["payload"].to_pylist()] == bad


@pytest.mark.parametrize("more", ["", "x\n"])
def test_each_line_is_one_object_whatever_else_is_in_the_file(more: str) -> None:
    """Two halves of an object are no row, and two objects of a line are none of its rows."""
    found = read("json", '{"id": 1}\n{"id":\n2}\n\n{"id": 3} {"id": 4}\n' + more)
    assert found.rows["id"].to_pylist() == [1]
    assert [place.rpartition(":")[0] for place in found.bad["place"].to_pylist()][:3] == [
        "f:line:2",
        "f:line:3",
        "f:line:5",
    ]


def test_other_bytes_at_the_same_line_are_another_place() -> None:
    """A file that is written anew may have another bad line where one was."""
    places = {read("json", text).bad["place"][0].as_py() for text in ("x\n", "y\n", "x\n", '{"id": 1}\nx\n')}
    assert len(places) == 3


def test_columns_that_nobody_asked_for_are_left_out_and_named() -> None:
    for text in ('{"id": 1, "more": 2}\n', '{"id": 1, "more": 2}\nx\n'):
        found = read("json", text)
        assert found.unknown == ("more",) and "more" not in found.rows.column_names
        assert read("json", text, unknown=True).rows["more"].to_pylist() == [2]


def test_fields_of_structs_that_nobody_asked_for_are_left_out_and_named() -> None:
    columns = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    text = '{"id": 1, "s": {"x": 1, "y": 2}}\n{"id": 2, "s": null}\n{"id": 3}\n'
    found = read("json", text, columns)
    assert found.rows["s"].to_pylist() == [{"x": 1}, None, None] and found.unknown == ("s.y",)
    assert read("json", text, columns, unknown=True).rows["s"].to_pylist()[0] == {"x": 1, "y": 2}


def test_the_mark_that_some_editors_put_first_is_no_sign_of_the_first_line() -> None:
    assert read("json", b"\xef\xbb\xbf" + b'{"id": 1}\n').rows["id"].to_pylist() == [1]
    assert read("csv", b"\xef\xbb\xbf" + b"id\n1\nx\n").rows["id"].to_pylist() == [1]


def test_a_bad_object_that_is_nested_too_deeply_to_be_looked_into_is_bad_alone() -> None:
    deep = '{"s": ' * 5_000 + "1" + "}" * 5_000
    found = read("json", f'{{"id": "x", "s": {deep}}}\n{{"id": 2}}\n')
    assert found.rows["id"].to_pylist() == [2] and "nested" in found.bad["detail"][0].as_py()


def test_a_new_column_with_values_of_several_types_is_named() -> None:
    with pytest.raises(ColumnError, match="values have several types"):
        read("json", '{"id": 1, "new": 1}\n{"id": 2, "new": "x"}\n', unknown=True)


def test_a_row_of_csv_with_a_bad_cell_or_another_number_of_fields_is_bad_alone() -> None:
    text = 'id,city,fare\n1,x,1.5\ntwo,x,1\n3,"a, b\nc",\n4,x\n5,"",7\n6,x,1,1\n7,x,high\n'
    found = read("csv", text)
    assert found.rows.to_pylist() == [
        {"id": 1, "city": "x", "fare": 1.5},
        {"id": 3, "city": "a, b\nc", "fare": None},
        {"id": 5, "city": "", "fare": 7.0},
    ]
    assert sorted(found.bad["detail"].to_pylist()) == [
        "2 fields instead of 3",
        "4 fields instead of 3",
        "Column 'fare': 'high' is not a valid double.",
        "Column 'id': 'two' is not a valid int64.",
    ]


def test_a_csv_reads_the_same_with_a_bad_row_in_it_and_without_it() -> None:
    """With a bad row every value takes another way; none may mean something else there."""
    kinds = {
        "id": pa.int64(),
        "flag": pa.bool_(),
        "small": pa.float32(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "price": pa.decimal128(10, 2),
        "text": pa.string(),
    }
    rows = [
        '1,true,0.5,2026-01-01,2026-01-01T00:00:00Z,2026-01-01 00:00:00,1.50,"say ""no"""',
        '2,0,1e3,,,,,""',
        "3,False,NaN,1969-12-31,2026-01-01T02:00:00.123456+02:00,2026-01-01T00:00:00.5,-0.01, blank ",
        "4,1,-inf,2026-01-01,2026-01-01 00:00:00Z,2026-01-01,7,NULL",
        "5,,,,,,,",
    ]
    sound = read("csv", "\n".join([",".join(kinds), *rows]), pa.schema(kinds))
    mixed = read("csv", "\n".join([",".join(kinds), *rows[:2], "x,,,,,,,", *rows[2:]]), pa.schema(kinds))
    assert sound.bad.num_rows == 0 and [one.split(b"\n")[1] for one in mixed.bad["payload"].to_pylist()] == [
        b'"x",,,,,,,'
    ]
    assert str(mixed.rows.to_pylist()) == str(sound.rows.to_pylist()) and mixed.rows.schema == sound.rows.schema


def test_the_search_ends_with_more_bad_rows_than_there_may_be() -> None:
    with pytest.raises(
        TooManyBadRows, match="too many bad rows: expected at most 3. The first is at f:line:1"
    ) as refused:
        read("json", "x\n" * 100_000, bad_max=3)
    assert refused.value.details["found"].num_rows == 4


@pytest.mark.parametrize(
    ("kind", "content"), [("parquet", b"PAR1 and so on"), ("avro", b"Obj\x01..."), ("csv", b"id,id\xff\n1,\xfe\n")]
)
def test_a_damaged_file_is_an_error_that_names_it(kind: str, content: bytes) -> None:
    with pytest.raises(DataError, match="'f' cannot be read as"):
        read(kind, content)


def test_an_empty_file_has_no_row() -> None:
    assert [read(kind, b"\n").rows.num_rows for kind in ("json", "csv")] == [0, 0]
    assert read("json", b"\n \n").rows.num_rows == 0


@pytest.mark.parametrize("place", [0, 3, 49])
def test_a_row_of_csv_that_is_no_text_is_bad_alone(place: int) -> None:
    """One such byte took the whole file, and so the job."""
    rows = [f"{number},x,1.5".encode() for number in range(50)]
    rows.insert(place, b"99,\xff\xfe,2")
    found = read("csv", b"\n".join([b"id,city,fare", *rows]))
    assert found.rows["id"].to_pylist() == list(range(50))
    assert found.bad["payload"].to_pylist() == [b"99,\xff\xfe,2"]
    [where], [why] = found.bad["place"].to_pylist(), found.bad["detail"].to_pylist()
    assert where.startswith(f"f:row:{place + 1}:") and why == "column 'city' has bytes that are not UTF-8"


def test_rows_of_csv_that_are_no_text_count_against_the_limit() -> None:
    rows = [b"1,x", *[b"2,\xff"] * 20]
    with pytest.raises(TooManyBadRows, match="too many bad rows: expected at most 10"):
        read("csv", b"\n".join([b"id,city", *rows]), bad_max=10)


def test_a_header_that_is_no_text_is_damage() -> None:
    with pytest.raises(DataError, match="cannot be read as csv"):
        read("csv", b"id,\xffcity\n1,x\n")


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("value", ["2026-01-31T12:00:00+02:00", "2026-01-31 12:00:00-0500", "2026-01-31T12:00+02"])
def test_a_time_with_an_offset_is_bad_in_a_column_without_a_zone(kind: str, value: str) -> None:
    """JSON shifted such times, and CSV refused them."""
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    good = "2026-01-31T12:00:00"
    found = read(kind, _text(kind, [{"id": 1, "at": good}, {"id": 2, "at": value}, {"id": 3, "at": None}]), columns)
    assert found.rows["id"].to_pylist() == [1, 3]
    [why] = found.bad["detail"].to_pylist()
    assert value in why and "offset from UTC" in why


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_times_in_utc_are_the_same_in_csv_and_json_and_with_and_without_a_zone(kind: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("local", pa.timestamp("us")), ("utc", pa.timestamp("us", "UTC"))])
    spellings = ["2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00-00"]
    rows = [{"id": at, "local": one, "utc": one} for at, one in enumerate(spellings)]
    found = read(kind, _text(kind, rows), columns)
    noon = dt.datetime(2026, 1, 31, 12)
    assert not found.bad.num_rows
    assert found.rows["local"].to_pylist() == [noon] * 4
    assert [one.replace(tzinfo=None) for one in found.rows["utc"].to_pylist()] == [noon] * 4


def test_a_time_with_an_offset_in_a_nested_field_without_a_zone_is_bad() -> None:
    columns = pa.schema([("id", pa.int64()), ("s", pa.list_(pa.struct([("at", pa.timestamp("us"))])))])
    text = "".join(
        json.dumps({"id": at, "s": [{"at": "2026-01-31T12:00:00" + offset}]}) + "\n"
        for at, offset in enumerate(["", "Z", "+01:00", "-03:30"])
    )
    found = read("json", text, columns)
    assert found.rows["id"].to_pylist() == [0, 1] and found.bad.num_rows == 2


@pytest.mark.parametrize("value", ["0x10", "0X1f", " 0xff"])
def test_hexadecimal_digits_are_no_integer(value: str) -> None:
    """CSV read 0x10 as 16, and 0xffffffff as -1 in an int."""
    columns = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    found = read("csv", f"id,n\n1,7\n2,{value}\n3,\n", columns)
    assert found.rows["id"].to_pylist() == [1, 3] and "'n'" in found.bad["detail"][0].as_py()
    found = read("csv", f"id,new\n1,7\n2,{value}\n", pa.schema([("id", pa.int64())]), unknown=True)
    assert found.rows["new"].to_pylist() == ["7", value]


@pytest.mark.parametrize("cells", [b"9,\xff", b"9,\xff,1,2", b'"\xff\n"'])
def test_a_row_of_csv_with_two_flaws_is_bad_alone(cells: bytes) -> None:
    """A row that had too few fields and was not UTF-8 stopped the file."""
    rows = [f"{number},x,1.5".encode() for number in range(20)]
    rows[7:7] = [cells, b"y,x,1"]
    found = read("csv", b"\n".join([b"id,city,fare", *rows]) + b"\n")
    assert found.rows["id"].to_pylist() == list(range(20))
    first, second = found.bad.to_pylist()
    assert first["payload"] == cells and "UTF-8" in first["detail"] and "fields instead of 3" in first["detail"]
    assert first["place"].startswith("f:row:8:") and second["place"].startswith("f:row:9:")


@pytest.mark.parametrize("integer", ["9007199254740993", "18446744073709551615", "-9223372036854775809"])
def test_an_integer_that_no_double_shows_is_never_rounded_in_a_new_column(integer: str) -> None:
    columns = pa.schema([("id", pa.int64())])
    found = read("csv", f"id,new\n1,{integer}\n2,1.5\n", columns, unknown=True)
    assert found.rows["new"].to_pylist() == [integer, "1.5"]
    nested = f'{{"id": 1, "new": [{integer}, 0.5]}}\n{{"id": 2, "new": [12345678901234567000, 1.5]}}\n'
    found = read("json", nested, columns, unknown=True)
    assert found.rows["id"].to_pylist() == [2]
    assert integer in found.bad["detail"][0].as_py() and "'new'" in found.bad["detail"][0].as_py()


def test_integers_and_fractions_in_a_new_column_of_json_name_the_column_if_an_integer_would_be_rounded() -> None:
    text = '{"id": 1, "new": 9007199254740993}\n{"id": 2, "new": 1.5}\n'
    with pytest.raises(ColumnError, match="9007199254740993") as refused:
        read("json", text, pa.schema([("id", pa.int64())]), unknown=True)
    assert refused.value.details["column"] == "new"


def _text(kind: str, rows: list[dict[str, object]]) -> str:
    if kind == "json":
        return "".join(json.dumps(row) + "\n" for row in rows)
    lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *lines]) + "\n"
