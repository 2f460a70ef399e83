"""Rows come from files as from anything else: every format, compressed or not, one file or all that a pattern names."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import hoodoo
from hoodoo.errors import ColumnError
from hoodoo.writers.batches.row_files import read_local_files

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("v", pa.float64()),
    ]
)
START = dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.timezone.utc)
ROWS: list[dict[str, Any]] = [
    {"id": "007", "n": 1, "at": START, "note": "a,b", "v": 0.5},
    {"id": "8", "n": -2, "at": START + dt.timedelta(days=1), "note": None, "v": 3.0},
    {"id": "é", "n": 3, "at": START, "note": "", "v": None},
]
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "v", "type": ["null", "double"]},
    ],
}


def parquet(path: Path) -> None:
    pa.parquet.write_table(pa.Table.from_pylist(ROWS, SCHEMA), path)


def csv(path: Path) -> None:
    lines = [
        "id,n,at,note,v",
        '007,1,2026-03-01T12:30:00Z,"a,b",0.5',
        "8,-2,2026-03-02T12:30:00Z,,3",
        'é,3,2026-03-01T12:30:00Z,"",',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def json_lines(path: Path) -> None:
    lines = [json.dumps(row | {"at": row["at"].isoformat().replace("+00:00", "Z")}) for row in ROWS]
    path.write_text("\n".join(lines), encoding="utf-8")


def avro(path: Path) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, ROWS)


FORMATS: dict[str, Callable[[Path], None]] = {"parquet": parquet, "csv": csv, "jsonl": json_lines, "avro": avro}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id")


def rows(table: hoodoo.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def file_of(folder: Path, kind: str, compression: str = "", name: str = "rows") -> Path:
    plain = folder / f"{name}.{kind}"
    FORMATS[kind](plain)
    if not compression:
        return plain
    packed = folder / f"{name}.{kind}{compression}"
    packed.write_bytes(COMPRESSIONS[compression](plain.read_bytes()))
    plain.unlink()
    return packed


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_every_format_is_a_batch(tmp_path: Path, table: hoodoo.Table, kind: str, compression: str) -> None:
    path = file_of(tmp_path, kind, compression)
    assert table.upsert(path).inserted == 3
    assert rows(table) == ROWS
    assert table.upsert(str(path)).updated == 3


def test_zstandard_and_lz4_are_read_too(tmp_path: Path, table: hoodoo.Table) -> None:
    csv(tmp_path / "rows.csv")
    for suffix, codec in ((".zst", "zstd"), (".lz4", "lz4")):
        with pa.output_stream(tmp_path / f"rows.csv{suffix}", compression=codec) as file:
            file.write((tmp_path / "rows.csv").read_bytes())
        assert table.upsert(tmp_path / f"rows.csv{suffix}").files == 1
    assert rows(table) == ROWS


def test_a_pattern_names_files_that_are_read_in_the_order_of_their_names(tmp_path: Path, table: hoodoo.Table) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name, v in (("b", 2.0), ("a", 1.0), ("c.d", 3.0)):
        (tmp_path / "in" / f"{name}.jsonl").write_text(json.dumps(ROWS[0] | {"at": "2026-03-01T12:30:00Z", "v": v}))
    (tmp_path / "in" / "deep" / "z.jsonl").write_text(
        json.dumps({"v": 9.0, **{k: v for k, v in ROWS[0].items() if k != "v"}, "at": "2026-03-01T12:30:00Z"})
    )
    (tmp_path / "in" / "x.txt").write_text("no rows")
    table.upsert(str(tmp_path / "in" / "*.jsonl"))
    assert rows(table) == [ROWS[0] | {"v": 3.0}]
    table.upsert(str(tmp_path / "in" / "**" / "*.jsonl"))
    assert rows(table) == [ROWS[0] | {"v": 9.0}]
    table.upsert(tmp_path / "in" / "b.jsonl")
    table.upsert(tmp_path / "in" / "deep" / "[xyz].jsonl")
    assert rows(table) == [ROWS[0] | {"v": 9.0}]


def test_a_name_with_the_signs_of_a_pattern_is_a_file_where_there_is_one(tmp_path: Path, table: hoodoo.Table) -> None:
    file_of(tmp_path, "parquet", name="rows [1]")
    assert table.upsert(tmp_path / "rows [1].parquet").inserted == 3


def test_files_hold_keys_sources_and_deletes_too(tmp_path: Path, table: hoodoo.Table) -> None:
    table.upsert(file_of(tmp_path, "jsonl"))
    (tmp_path / "keys.csv").write_text("id\n007\n")
    assert table.get(tmp_path / "keys.csv")["n"].to_pylist() == [1]
    assert table.delete(tmp_path / "keys.csv").deleted == 1
    (tmp_path / "more.csv").write_text("id,n\n8,5\n")
    assert table.merge(tmp_path / "more.csv").when_matched_update({"n": "source.n"}).execute().updated == 1
    (tmp_path / "some.jsonl").write_text('{"id": "8", "_hoodie_is_deleted": true}')
    assert table.upsert(tmp_path / "some.jsonl", columns="given").deleted == 1


def test_new_columns_of_a_file_may_be_added(tmp_path: Path, table: hoodoo.Table) -> None:
    (tmp_path / "more.csv").write_text("id,n,at,note,v,extra\n1,2,2026-03-01T00:00:00Z,x,1,7\n")
    table.upsert(tmp_path / "more.csv", evolve=True)
    assert (rows(table)[0]["extra"], table.schema.field("extra").type) == (7, pa.int64())


@pytest.mark.parametrize(
    ("name", "content", "error", "match"),
    [
        ("none.csv", None, hoodoo.CallError, "does not exist"),
        ("none*.csv", None, hoodoo.CallError, "No file matches"),
        ("rows.txt", "x", hoodoo.CallError, r"expected a name that ends in \.parquet"),
        ("rows.gz", "x", hoodoo.CallError, r"expected a name that ends in \.parquet"),
        ("", None, hoodoo.CallError, "is a folder"),
        ("s3://bucket/rows.csv", None, hoodoo.CallError, "local files"),
        ("rows.parquet", "no parquet", hoodoo.DataError, "as parquet"),
        ("rows.avro", "no avro", hoodoo.DataError, "as avro"),
        ("rows.jsonl", '{"id": 1', hoodoo.DataError, "as json"),
        ("rows.csv.gz", "id,n", hoodoo.DataError, "as csv"),
        ("rows.csv", "id,n,at,note,v\na,x,,,\n", hoodoo.ColumnError, "Column 'n'.*'x' is not a valid int32"),
        ("rows.csv", "id,n\na,1\n", hoodoo.ColumnError, "is not in the batch|no column"),
        ("rows.jsonl", '{"id": "a", "n": 1}\n{"id": "b"}', hoodoo.ColumnError, "Row 2 of the file has no 'n'"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_name(
    tmp_path: Path, table: hoodoo.Table, name: str, content: str | None, error: type[Exception], match: str
) -> None:
    path = name if "://" in name else str(tmp_path / name)
    if content is not None:
        Path(path).write_text(content)
    head = table.cursor
    with pytest.raises(error, match=match):
        table.upsert(path)
    assert table.cursor == head


def test_files_with_different_columns_are_refused_together(tmp_path: Path, table: hoodoo.Table) -> None:
    (tmp_path / "a.csv").write_text("id,n\na,1\n")
    (tmp_path / "b.csv").write_text("id,v\nb,1\n")
    with pytest.raises(hoodoo.ColumnError, match="'n' is in only one of") as refused:
        table.upsert(tmp_path / "*.csv", columns="given")
    assert refused.value.details["file"].endswith("b.csv")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("rows.jsonl", b"null\n", "Line 1 contains 'null'"),
        ("rows.jsonl", b'null\n{"id": "a", "n": 1}', "Line 1 contains 'null'"),
        ("rows.jsonl", b'{"id": "a"}\n\nnull', "Line 3 contains 'null'"),
        ("rows.csv", b"\xe9d,n\na,1\n", "as csv"),
        (
            "rows.csv",
            gzip.compress(b"id,n\na,1\n", mtime=0),
            "as csv",
        ),  # without the time: it stands in the test's name
        ("rows.avro", b"Obj\x01", "as avro"),
        ("rows.avro", b"Obj\x01\x00" + b"\x00" * 16, "as avro"),
    ],
)
def test_a_damaged_file_is_an_error_and_no_end_of_the_process(
    tmp_path: Path, table: hoodoo.Table, name: str, content: bytes, match: str
) -> None:
    """Arrow ends the process for a line with null, and fastavro raises what it likes."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(hoodoo.DataError, match=match):
        table.upsert(tmp_path / name, columns="given")


def test_a_null_within_an_object_is_a_value(tmp_path: Path, table: hoodoo.Table) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "n":\nnull, "at": null, "note": "null", "v": 1}')
    table.upsert(tmp_path / "rows.jsonl")
    assert rows(table) == [{"id": "a", "n": None, "at": None, "note": "null", "v": 1.0}]


def test_fields_of_structs_in_json_are_not_left_out(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("st", pa.struct([("x", pa.int64())]))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "st": {"x": 1, "z": 5}}')
    with pytest.raises(hoodoo.ColumnError, match="z"):
        table.upsert(tmp_path / "rows.jsonl")
    table.upsert(tmp_path / "rows.jsonl", evolve=True)
    assert rows(table) == [{"id": "a", "st": {"x": 1, "z": 5}}]


@pytest.mark.parametrize("text", ["16777217", "1e39"])
@pytest.mark.parametrize("line", ["id,f\na,{}\n", '{{"id": "a", "f": {}}}'], ids=["csv", "json"])
def test_numbers_that_a_column_cannot_hold_are_refused_in_text_too(tmp_path: Path, line: str, text: str) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "string", "f": "float32"}, key="id")
    path = tmp_path / ("rows.csv" if line.startswith("id") else "rows.jsonl")
    path.write_text(line.format(text))
    with pytest.raises(hoodoo.ColumnError, match="'f'"):
        table.upsert(path)
    path.write_text(line.format("0.1"))
    assert table.upsert(path).inserted == 1


def test_a_cell_may_be_large_and_a_file_empty(tmp_path: Path, table: hoodoo.Table) -> None:
    note = "x" * (3 << 20)
    (tmp_path / "1.csv").write_text(f"id,n,at,note,v\na,1,,{note},\n")
    (tmp_path / "2.csv").write_text("")
    assert table.upsert(tmp_path / "*.csv").inserted == 1
    assert rows(table)[0]["note"] == note


@pytest.mark.parametrize(
    ("lines", "there"),
    [
        (['{"id": 1}'], False),
        (['{"id": 1, "v": null}'], True),
        (['{"id": 1}', '{"id": 2, "v" : null}', '{"id": 3}'], True),
        (['{"id": 1, "w": {"v": 2}}'], False),
        (['{"id": 1, "w": "\\"v\\": 3"}'], False),
        (['{"id": 1, "w": {"v": 2}}', '{"id": 1, "w": {"v": 2}, "v": null}'], True),
        (['{"id": 1, "w": {"v": 2}}'] * 50 + ['{"id": 2, "v": null}'], True),
        (['{"id": 1, "w": {"v": 2}}'] * 50, False),
        (['{"id": 1, "\\u0076": null}'], True),
        (['{"id": 1, "w": "' + "x" * 100_000 + '", "v": null}'], True),
        (['{"id": 1, "w": "' + "x" * 100_000 + '"}', '{"id": 1}'], False),
    ],
)
def test_a_column_of_nulls_is_there_if_a_line_has_it_and_away_if_none_has(
    tmp_path: Path, lines: list[str], there: bool
) -> None:
    """One that is away keeps its default; one of nulls is null."""
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    columns = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    assert ("v" in read_local_files(tmp_path / "a.jsonl", columns).column_names) == there


def test_files_whose_new_column_has_several_types_are_told_so(tmp_path: Path) -> None:
    """Arrow's own error came through: ArrowTypeError, which names no file."""
    (tmp_path / "a.csv").write_text("id,zip\n1,53111\n")
    (tmp_path / "b.csv").write_text("id,zip\n2,none\n")
    with pytest.raises(ColumnError, match=r"\*\.csv.* have incompatible columns: .*zip.*int64 vs string"):
        read_local_files(tmp_path / "*.csv")
    assert read_local_files(tmp_path / "*.csv", pa.schema([("zip", pa.string())]))["zip"].to_pylist() == [
        "53111",
        "none",
    ]


def test_codes_that_begin_with_0_are_text_where_columns_come_from_a_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("id,zip,area,share,none\n1,06105,+01,0.5,0\n2,10115,2,1.25,-7\n")
    table = hoodoo.create(tmp_path / "t", str(file), key="id")
    kinds = [pa.int64(), pa.string(), pa.string(), pa.float64(), pa.int64()]
    assert table.schema.types == kinds
    table.upsert(str(file))
    assert table.scan().to_arrow().sort_by("id")["zip"].to_pylist() == ["06105", "10115"]
    typed = hoodoo.create(tmp_path / "u", "id bigint, zip int, area string, share double, none int", key="id")
    typed.upsert(str(file))
    assert typed.scan().to_arrow().sort_by("id")["zip"].to_pylist() == [6105, 10115]
