"""The columns that a look at a source finds are those of a table that takes all of its rows."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from change_events import Changes, change, golden_events
from whole_numbers import SCHEMA, Numbers

import hoodoo
from hoodoo.errors import ColumnError, DataError
from hoodoo.format.column_text import column_text
from hoodoo.sources import Files, columns_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def put(folder: Path, name: str, *lines: Any) -> Files:
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return Files(folder, settle_seconds=0)


def test_a_table_with_the_columns_that_were_found_takes_each_row(folder: Path, tmp_path: Path) -> None:
    rows = [
        {
            "id": 1,
            "fare": 2,
            "tags": ["a"],
            "rider": {"name": "ann", "since": "2024-05-06"},
            "at": "2024-01-01T00:00:00Z",
        },
        {"id": 2, "fare": 2.5, "tags": [], "rider": {"name": None, "since": None}, "at": "2024-01-01T02:00:00.5+02:00"},
        {"id": 3, "fare": None, "tags": None, "rider": None, "at": None},
    ]
    source = put(folder, "a.jsonl", *rows)
    table = hoodoo.create(tmp_path / "t", columns_of(source).schema, key="id")
    report = hoodoo.ingest(source, table).run()
    assert (report.rows, report.bad, report.unknown) == (3, 0, ())
    found = {one["id"]: one for one in table.scan().to_arrow().to_pylist()}
    assert found[2]["at"] == dt.datetime(2024, 1, 1, 0, 0, 0, 500_000, dt.timezone.utc)
    assert (found[1]["fare"], found[2]["fare"], found[1]["tags"]) == (2.0, 2.5, ["a"])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-01-01", "2024-12-31"], "date"),
        (["2024-01-01T00:00:00Z", None], "timestamp"),
        (["2024-01-01T00:00:00.123Z"], "timestamp"),
        (["2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00Z"], "timestamp"),
        (["2024-01-01 00:00:00", "2024-01-01 00:00:00.5"], "timestamp_ntz"),
        (["2024-01-01", "yesterday"], "string"),
        (["2024-99-99"], "string"),
        (["2024-01-01T00:00:00.123456789Z"], "string"),
        ([1, 2.5], "double"),
        ([1, 9223372036854775807], "long"),
        ([True, None], "boolean"),
        ([{}], "string"),
        ([[], [[1]]], "list<list<long>>"),
        ([{"a": [None], "b": 1}], "struct<a list<string>, b long>"),
    ],
)
def test_values_of_json_say_the_type(folder: Path, values: list[Any], kind: str) -> None:
    source = put(folder, "a.jsonl", *({"id": 1, "v": one} for one in values))
    assert column_text(columns_of(source).schema) == f"id long, v {kind}"


def test_a_column_without_a_value_is_a_guess_that_is_named(folder: Path) -> None:
    found = columns_of(put(folder, "a.jsonl", {"id": 1, "v": None}, "broken", {"id": 2}))
    assert column_text(found.schema) == "id long, v string"
    assert (found.rows, found.guessed, found.bad) == (2, ("v",), {"decode": 1})


def test_csv_is_told_as_json_is(folder: Path) -> None:
    source = put(folder, "a.csv", "id,city,day,at,n", "1,bonn,2024-01-01,2024-01-01 10:00:00,2.5", "2,,,,")
    assert column_text(columns_of(source).schema) == "id long, city string, day date, at timestamp_ntz, n double"


def test_text_in_parquet_stays_text(folder: Path) -> None:
    table = pa.table({"day": ["2024-01-01"], "at": [dt.datetime(2024, 1, 1)], "n": pa.array([1], pa.uint32())})
    pa.parquet.write_table(table, folder / "a.parquet")
    assert column_text(columns_of(Files(folder, settle_seconds=0)).schema) == "day string, at timestamp_ntz, n long"


def test_schemas_of_change_events_say_the_types() -> None:
    found = columns_of(Changes(golden_events("rich", "orders"), truncate="ignore")).schema
    told = {field.name: str(field.type) for field in found}
    assert (told["day"], told["at"], told["atz"], told["weight"]) == (
        "date32[day]",
        "timestamp[us]",
        "timestamp[us, tz=UTC]",
        "float",
    )
    assert "_hoodie_is_deleted" not in told


def test_a_source_of_users_has_columns_too() -> None:
    source = Numbers(95)
    found = columns_of(source)
    assert found.schema == SCHEMA and found.rows == 10


def test_at_most_about_so_many_rows_are_read(folder: Path) -> None:
    for name in "abcd":
        source = put(folder, f"{name}.jsonl", *({"id": one} for one in range(10)))
    assert columns_of(source, rows=5).rows < 40


def test_what_no_column_can_be_is_said(folder: Path) -> None:
    with pytest.raises(DataError, match=r"does not have rows yet.*--settle-seconds"):
        columns_of(Files(folder, settle_seconds=0))
    with pytest.raises(DataError, match="the first records are not valid rows"):
        columns_of(put(folder, "a.jsonl", "broken"))


def test_one_odd_value_is_named_with_its_place_and_what_to_do(folder: Path) -> None:
    """The words were about a table, and there is none."""
    source = put(folder, "a.jsonl", *({"id": one} for one in range(20)), {"id": "x"})
    with pytest.raises(ColumnError) as refused:
        columns_of(source)
    said = refused.value.message
    assert "column 'id' has values of several types: long (at line 1 of 'a.jsonl')" in said
    assert "and string (at line 21 of 'a.jsonl')" in said
    assert "create --schema" in said and "transform" in said and "the table" not in said
    assert refused.value.details["types"] == ["long", "string"]


def test_files_of_types_that_are_not_one_are_named(folder: Path) -> None:
    put(folder, "a.jsonl", {"id": 1})
    with pytest.raises(ColumnError, match=r"'id' .*: long \(at 'a\.jsonl'\) and string \(at 'b\.jsonl'\)\. Set the"):
        columns_of(put(folder, "b.jsonl", {"id": "x"}))


def test_a_number_in_a_text_column_of_change_events_is_named() -> None:
    events = [change("c", {"id": one}, {"id": one, "v": "a"}, lsn=one) for one in range(3)]
    events.append(change("c", {"id": 3}, {"id": 3, "v": 7}, lsn=3))
    with pytest.raises(
        ColumnError, match=r"'v' has values of several types: string \(at message .*\) and long \(at mess"
    ):
        columns_of(Changes(events))


def test_a_moment_is_one_in_files_of_every_format(folder: Path, tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 1, 10, tzinfo=dt.timezone.utc)
    put(folder, "b.csv", "id,at", "2,2026-01-01T10:00:00Z")
    pa.parquet.write_table(pa.table({"id": [3], "at": pa.array([at], pa.timestamp("ms", "UTC"))}), folder / "c.parquet")
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": moment}]
    with (folder / "d.avro").open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, [{"id": 4, "at": at}])
    source = put(folder, "a.jsonl", {"id": 1, "at": "2026-01-01T10:00:00Z"})
    found = columns_of(source).schema
    assert column_text(found) == "id long, at timestamp"
    table = hoodoo.create(tmp_path / "t", found, key="id")
    assert hoodoo.ingest(source, table).run().bad == 0
    assert table.scan().to_arrow()["at"].to_pylist() == [at] * 4


def test_moments_with_and_without_a_zone_are_no_one_type_since_no_job_takes_both(folder: Path) -> None:
    for name, zone in (("a", "UTC"), ("b", None)):
        pa.parquet.write_table(pa.table({"at": pa.array([0], pa.timestamp("us", zone))}), folder / f"{name}.parquet")
    with pytest.raises(ColumnError, match=r"timestamp \(at 'a\.parquet'\) and timestamp_ntz \(at 'b\.parquet'\)"):
        columns_of(Files(folder, settle_seconds=0))


def test_text_in_one_file_makes_text_of_a_column_that_a_job_takes_as_such(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.csv", "id,zip", "1,53111")
    source = put(folder, "b.csv", "id,zip", "2,01234")
    found = columns_of(source).schema
    assert column_text(found) == "id long, zip string"
    table = hoodoo.create(tmp_path / "t", found, key="id")
    assert hoodoo.ingest(source, table).run().bad == 0
    assert sorted(table.scan().to_arrow()["zip"].to_pylist()) == ["01234", "53111"]


def test_days_that_are_text_in_parquet_are_text_in_json_too(folder: Path) -> None:
    pa.parquet.write_table(pa.table({"day": ["2024-01-01"]}), folder / "a.parquet")
    assert column_text(columns_of(put(folder, "b.jsonl", {"day": "2024-01-02"})).schema) == "day string"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["01234", "5"], "string"),
        (["5", "007.50"], "string"),
        (["-01", ""], "string"),
        (["0", "0.5"], "double"),
        (["0", "10"], "long"),
    ],
)
def test_numbers_of_csv_that_begin_with_0_are_text(folder: Path, values: list[str], kind: str) -> None:
    """A zip code lost its zero."""
    source = put(folder, "a.csv", "id,v", *(f"{number},{one}" for number, one in enumerate(values)))
    assert column_text(columns_of(source).schema) == f"id long, v {kind}"
