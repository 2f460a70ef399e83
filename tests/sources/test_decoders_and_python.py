"""Generated files become the rows that Python's readers of JSON, CSV, Avro and Parquet find, wherever batches end."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiers import sized

from hoodoo.sources import Files, Limits
from hoodoo.writers.batches.value_validation import unsound_rows

pytestmark = pytest.mark.both
FILES = sized(25, 10_000)
LIMITS = (Limits(), Limits(rows=1), Limits(rows=7), Limits(rows=1000, bytes=1), Limits(bytes=60), Limits(bytes=300))
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.int64())),
        ("o", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("b", pa.bool_()),
    ]
)
PIECES = ["a", '"', "\\", "\n", "\r", "\t", "/", "{", "}", "[", "]", ":", ",", "ü", "€", "\U0001f600", "\u2028", "\x00"]
PIECES += [
    "\x1f",
    "\x7f",
    "null",
    "true",
    " ",
    "\ufeff",
    "0",
    "\\u0041",
    "\x85",
    "\x0b",
    "\x1c",
    "NaN",
    "-1",
    "1e5",
    "'",
]
INTEGERS = (0, 1, -1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 1.5, 1e300, 5e-324, 1e-7, 123456789.125, 0.1, 1 / 3, -2.5e-10, 1.7976931348623157e308)


def read(
    folder: Path, kind: str, data: bytes, limits: Limits, columns: pa.Schema
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Read one file in batches. Returns its rows, and the bytes of its bad rows, b'' where text is not UTF-8."""
    path = folder / f"a.{kind}"
    path.write_bytes(data)
    source, position = Files(folder, settle_seconds=0), ""
    rows, bad = list[dict[str, Any]](), list[bytes]()
    while planned := source.plan(position, limits):
        position = planned.position
        for part in source.read(planned, columns, False):
            found = part.rows
            unsound = {row for name in found.column_names for row in unsound_rows(found[name], 1000)}
            for row, values in enumerate(found.to_pylist() if not unsound else _bytes_of(found)):
                if row in unsound:
                    bad.append(b"")
                else:
                    rows.append({name: values.get(name) for name in columns.names})
            bad += part.bad["payload"].to_pylist()
            position = part.position or position
    return rows, bad


def _bytes_of(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows one by one, {} where a text cannot be decoded."""
    found = list[dict[str, Any]]()
    for at in range(len(rows)):
        try:
            found += rows.slice(at, 1).to_pylist()
        except UnicodeDecodeError:
            found.append({})
    return found


def text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([0, 1, 2, 5, 12])))


# ---- JSON
WRONG: list[tuple[str, Any]] = [
    *(("s", value) for value in (1, True, ["a"], {"a": 1})),
    *(("f", value) for value in ("x", True, [1.5])),
    *(("l", value) for value in (1, ["a"], [1.5], {"a": 1}, [[1]])),
    *(("o", value) for value in (1, [1], {"x": "a"}, {"x": 1.5}, {"y": 1})),
    *(("b", value) for value in (1, "true", [True])),
    *(("id", value) for value in ("1", 1.5, 2**63, True, 10**30)),
]


def an_object(rng: random.Random, number: int) -> dict[str, Any]:
    some: dict[str, list[Any]] = {
        "s": [None, text(rng), text(rng)],
        "f": [None, rng.choice(DOUBLES), rng.random(), rng.randrange(-(2**53), 2**53)],
        "l": [None, [], [None], [rng.choice(INTEGERS) for _ in range(rng.randint(1, 4))]],
        "o": [None, {}, {"x": rng.choice(INTEGERS)}, {"y": text(rng), "x": None}],
        "b": [None, True, False],
    }
    found = {"id": number} | {name: rng.choice(values) for name, values in some.items() if rng.random() < 0.6}
    return dict(rng.sample(list(found.items()), len(found)))


def spoiled(rng: random.Random, line: bytes) -> bytes:
    """The line with a value of another type, or with other bytes."""
    if rng.random() < 0.4:
        name, value = rng.choice(WRONG)
        return json.dumps(json.loads(line) | {name: value}, ensure_ascii=rng.random() < 0.5).encode()
    found = bytearray(line)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(found) + 1)
        signs = b'{}[]",:\\0 aAntf\xff\x80.-+eE\x00\t'
        found[at : at + rng.randint(0, 2)] = bytes([rng.choice(signs)]) if rng.random() < 0.7 else b""
        if rng.random() < 0.2:
            del found[at:]
    return bytes(found)


def converted(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as the column has it. Raises ValueError if it is of another type."""
    if value is None:
        return None
    if pa.types.is_list(kind) and type(value) is list:
        return [converted(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind) and type(value) is dict:
        return {kind.field(at).name: converted(value.get(kind.field(at).name), kind.field(at).type) for at in (0, 1)}
    if pa.types.is_int64(kind) and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if pa.types.is_floating(kind) and type(value) in (int, float) and math.isfinite(float(value)):
        return float(value)
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    if pa.types.is_string(kind) and type(value) is str:
        return value.encode().decode()
    raise ValueError(value)


def of_python(line: bytes) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(word)

    found = json.loads(line.decode(), parse_constant=refuse)
    if not isinstance(found, dict):
        raise ValueError(found)
    return {field.name: converted(found.get(field.name), field.type) for field in COLUMNS}


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_lines_of_json_are_rows_if_python_reads_them_and_bad_if_it_does_not(tmp_path: Path) -> None:
    for seed in range(FILES):
        rng = random.Random(seed)
        share, lines = rng.choice([0, 0, 0.05, 0.5]), list[bytes]()
        for number in range(rng.choice([0, 1, 2, 5, 40])):
            marks = rng.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
            line = json.dumps(an_object(rng, number), ensure_ascii=rng.random() < 0.5, separators=marks).encode()
            lines.append(spoiled(rng, line) if rng.random() < share else line)
            if rng.random() < 0.05:
                lines.append(rng.choice([b"", b"  ", b"\t"]))
        expected, bad = list[dict[str, Any]](), list[bytes]()
        for line in lines:
            try:
                expected += [of_python(line)] if line.strip() else []
            except (ValueError, OverflowError):
                bad.append(line)
        end = rng.choice([b"\n", b"\r\n"])
        found, refused = read(tmp_path, "jsonl", end.join(lines) + rng.choice([b"", end]), rng.choice(LIMITS), COLUMNS)
        invalid = [line for line in lines if not is_text(line)]
        if invalid:  # bytes that are not UTF-8 in a field that the table does not have harm no row
            ids = {row["id"] for row in expected}
            found = [row for row in found if row["id"] in ids]
        assert repr(found) == repr(expected), seed
        left = [line.strip() for line in refused if line and is_text(line)]
        assert left == [line.strip() for line in bad if is_text(line)], seed


# ---- CSV
def test_records_of_csv_are_rows_if_python_reads_as_many_fields_and_bad_if_not(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    words = ["", "", "NULL", "NaN", "N/A", "-", "None", "\\N", " "]
    for seed in range(FILES):
        rng = random.Random(seed)
        names, buffer = rng.sample(columns.names, 3), io.StringIO(newline="")
        end = rng.choice(["\n", "\r\n", "\r"])
        quoting = rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
        writer = csv.writer(buffer, lineterminator=end, quoting=quoting)
        writer.writerow(names)
        for number in range(rng.choice([0, 1, 2, 5, 30])):
            row = {name: rng.choice([text(rng).replace("\x00", "0"), rng.choice(words)]) for name in "ab"}
            writer.writerow([{"id": str(number), **row}[name] for name in names])
            buffer.write(end if rng.random() < 0.05 else "")
        data = buffer.getvalue()
        records = [record for record in csv.reader(io.StringIO(data, newline="")) if record][1:]
        expected, bad = list[dict[str, Any]](), 0
        for record in records:
            row = dict(zip(names, record, strict=False))
            if len(record) == 3 and row["id"].isascii() and row["id"].strip(" \t").lstrip("-").isdigit():
                expected.append({"id": int(row["id"]), "a": row["a"] or None, "b": row["b"] or None})
            else:
                bad += 1
        if rng.random() < 0.3:
            data = data.removesuffix(end)
        mark = rng.choice(["", "", "\ufeff"])
        found, refused = read(tmp_path, "csv", (mark + data).encode(), rng.choice(LIMITS), columns)
        rows = [{"id": row["id"], "a": row["a"] or None, "b": row["b"] or None} for row in found]
        assert (rows, len(refused)) == (expected, bad), seed


# ---- Avro and Parquet
UTC = dt.timezone.utc
TYPED: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "i": ("int", pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "n": ("long", pa.int64(), list(INTEGERS)),
    "f": ("double", pa.float64(), [*DOUBLES, math.inf, -math.inf]),
    "g": ("float", pa.float32(), [0.0, -0.0, 1.5, 0.10000000149011612]),
    "b": ("boolean", pa.bool_(), [True, False]),
    "s": ("string", pa.string(), PIECES),
    "y": ("bytes", pa.binary(), [b"", b"\x00\xff", b"abc"]),
    "d": (
        {"type": "int", "logicalType": "date"},
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    ),
    "t": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=UTC),
            dt.datetime(2026, 2, 28, 1, 2, 3, 456789, UTC),
            dt.datetime.max.replace(tzinfo=UTC),
        ],
    ),
    "m": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        pa.decimal128(20, 3),
        [Decimal("0.000"), Decimal("-12345678901234567.891"), Decimal("1.500")],
    ),
    "l": ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64()), [[], [None], [1, None, -1]]),
}


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_records_of_typed_files_are_the_rows_that_another_reader_finds(tmp_path: Path, kind: str) -> None:
    for seed in range(FILES):
        rng = random.Random(seed)
        names = rng.sample(list(TYPED), rng.randint(1, len(TYPED)))
        columns = pa.schema([("id", pa.int64()), *((name, TYPED[name][1]) for name in sorted(names))])
        fields = [{"name": name, "type": ["null", TYPED[name][0]]} for name in names]
        schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, *fields]}
        rows = [
            {"id": number} | {name: rng.choice([None, *TYPED[name][2]]) for name in names}
            for number in range(rng.choice([0, 1, 2, 5, 60]))
        ]
        buffer = io.BytesIO()
        if kind == "avro":
            codec = rng.choice(["null", "deflate"])
            fastavro.writer(buffer, fastavro.parse_schema(schema), rows, codec, rng.choice([1, 100, 16_000]))
            other = pa.Table.from_pylist(list(fastavro.reader(io.BytesIO(buffer.getvalue()))), columns).to_pylist()
        else:
            written = pa.schema([columns.field(name) for name in ("id", *names)])
            pq.write_table(pa.Table.from_pylist(rows, written), buffer, row_group_size=rng.choice([1, 7, 1000]))
            other = pq.read_table(io.BytesIO(buffer.getvalue())).to_pylist()
        found, bad = read(tmp_path, kind, buffer.getvalue(), rng.choice(LIMITS), columns)
        expected = [{name: row.get(name) for name in columns.names} for row in other]
        assert (repr(found), bad) == (repr(expected), []), seed
