"""The command line: the same words as the API, tables for people, JSON for machines, nothing harmful in either."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_files import json_file, row

import hoodoo

UTC = dt.timezone.utc


# ---- create
def test_create_makes_the_table_that_was_described(trips: Path) -> None:
    table = hoodoo.open(trips)
    assert (table.key, table.partition_by, table.order_by, table.type) == (("id",), ("city",), ("at",), "merge_on_read")
    assert table.options.compact_after_logs == 7
    assert table.schema == pa.schema(
        [("id", pa.string()), ("city", pa.string()), ("at", pa.timestamp("us", "UTC")), ("fare", pa.float64())]
    )


def test_create_takes_columns_from_a_file(tmp_path: Path, machine: Any) -> None:
    rows = pa.table(
        {"k": pa.array([1], pa.int32()), "price": pa.array([1], pa.decimal128(9, 2)), "tags": pa.array([["a"]])}
    )
    pa.parquet.write_table(rows, tmp_path / "rows.parquet")
    made = machine(
        "create",
        tmp_path / "t",
        "--schema-from",
        tmp_path / "rows.parquet",
        "--key",
        "k",
        "--type",
        "copy_on_write",
        "--name",
        "prices",
    )
    assert made["columns"] == {"k": "int32", "price": "decimal128(9, 2)", "tags": "list<item: string>"}
    assert (made["type"], made["name"], made["key"], made["partition_by"]) == ("copy_on_write", "prices", ["k"], [])
    (tmp_path / "rows.csv").write_text("k,when\n1,2026-01-01\n")
    assert machine("create", tmp_path / "u", "--schema-from", tmp_path / "rows.csv", "--key", "k")["columns"] == {
        "k": "int64",
        "when": "date32[day]",
    }


def test_create_takes_transforms_and_files_need_not_have_their_columns(
    tmp_path: Path, machine: Any, lines: Any, run: Any
) -> None:
    create = ("create", tmp_path / "t", "--schema", "id long, at timestamp, zip text", "--key", "id")
    code, _, err = run(*create, "--partition-by", "day(at), bucket(id)", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "OPTION") and "bucket(n, column)" in err
    code, _, err = run(*create, "--partition-by", "day(at)", "--order-by", "at", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "OPTION") and "--allow-moving-keys" in err
    made = machine(*create, "--partition-by", "day(at), zip ,bucket( 4,id)", "--order-by", "at", "--allow-moving-keys")
    assert made["partition_by"] == ["at_day", "zip", "id_bucket"]
    assert made["transforms"] == {"at_day": "day(at)", "id_bucket": "bucket(4, id)"}
    (tmp_path / "rows.csv").write_text("id,at,zip\n1,2026-03-01T23:00:00Z,x\n2,2026-03-02T00:00:00Z,x\n")
    assert machine("upsert", tmp_path / "t", tmp_path / "rows.csv")["inserted"] == 2
    (tmp_path / "keys.csv").write_text("id,at,zip\n2,2026-03-02T05:00:00Z,x\n1,2026-03-02T05:00:00Z,x\n")
    assert machine("delete", tmp_path / "t", tmp_path / "keys.csv")["deleted"] == 1
    assert [one["at_day"] for one in lines("scan", tmp_path / "t")] == ["2026-03-01"]


def test_order_by_takes_columns_as_the_key_does_and_they_are_listed(tmp_path: Path, machine: Any) -> None:
    create = ("create", "--schema", "id long, at timestamp, seq long", "--key", "id")
    for number, (given, names) in enumerate(((("--order-by", "at, seq"), ["at", "seq"]), ((), []))):
        path = tmp_path / str(number)
        assert machine(*create, path, *given)["order_by"] == names
        assert hoodoo.open(path).order_by == tuple(names)


@pytest.mark.parametrize("columns", ["id", "id strong", "id decimal(99,1)", "id list<string", "id map<string>", ""])
def test_a_schema_that_is_none_is_refused_by_name(tmp_path: Path, run: Any, columns: str) -> None:
    code, out, err = run("create", tmp_path / "t", "--schema", columns, "--key", "id", "--json")
    assert (code, out, json.loads(err)["error"]["code"]) == (1, "", "SCHEMA")


def test_nested_columns_can_be_described(tmp_path: Path, machine: Any) -> None:
    made = machine(
        "create",
        tmp_path / "t",
        "--schema",
        "id: long, a list<decimal(10,2)>, m map<string, array<int>>, s struct<x int, y struct<z date>>",
        "--key",
        "id",
    )
    assert made["columns"]["a"] == "list<item: decimal128(10, 2)>"
    assert made["columns"]["m"] == "map<string, list<item: int32>>"
    assert made["columns"]["s"] == "struct<x: int32, y: struct<z: date32[day]>>"


# ---- writing
def test_upsert_says_what_it_did(tmp_path: Path, trips: Path, machine: Any) -> None:
    done = machine("upsert", trips, json_file(tmp_path / "more.json", [row("d"), row("a", 11.0, 3)]))
    assert (done["inserted"], done["updated"], done["stale"]) == (1, 1, 0)
    assert done["cursor"] == str(hoodoo.open(trips).cursor)
    assert done["lag"]["open_plans"] == 0


def test_the_three_kinds_of_files_bring_the_same_rows(tmp_path: Path, run: Any) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("n", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
            ("d", pa.date32()),
            ("p", pa.decimal128(9, 2)),
            ("t", pa.string()),
        ]
    )
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    rows = [
        {"id": "1", "n": 7, "at": at, "d": at.date(), "p": "1.50", "t": "NA"},
        {"id": "2", "n": None, "at": None, "d": None, "p": None, "t": None},
    ]
    rows.append({"id": "3", "n": -1, "at": at, "d": at.date(), "p": "-0.01", "t": ""})
    text = [{**one, "at": one["at"] and "2026-01-02T03:04:05.678901Z", "d": one["d"] and "2026-01-02"} for one in rows]
    json_file(tmp_path / "rows.jsonl", text)
    csv = [
        "id,n,at,d,p,t",
        '1,7,2026-01-02T03:04:05.678901Z,2026-01-02,1.50,"NA"',
        "2,,,,,",
        '3,-1,2026-01-02T03:04:05.678901Z,2026-01-02,-0.01,""',
    ]
    (tmp_path / "rows.csv").write_text("\n".join(csv) + "\n")
    want = pa.Table.from_pylist(
        rows, pa.schema([field if field.name != "p" else pa.field("p", pa.string()) for field in schema])
    ).cast(schema)
    pa.parquet.write_table(want, tmp_path / "rows.parquet")
    for kind in ("jsonl", "csv", "parquet"):
        hoodoo.create(tmp_path / kind, schema, key="id")
        code, _, err = run("upsert", tmp_path / kind, tmp_path / f"rows.{kind}")
        assert (code, err) == (0, "")
        assert hoodoo.open(tmp_path / kind).scan().to_arrow().sort_by("id") == want


def test_what_stands_for_null_in_a_csv_can_be_said(tmp_path: Path, run: Any, machine: Any, lines: Any) -> None:
    (tmp_path / "rows.csv").write_text("id,n\nNA,1\nb,NA\nc,-\n")
    made = machine(
        "create", tmp_path / "t", "--schema-from", tmp_path / "rows.csv", "--null", "NA", "--null", "-", "--key", "id"
    )
    assert made["columns"] == {"id": "string", "n": "int64"}
    assert run("upsert", tmp_path / "t", tmp_path / "rows.csv")[0] == 1
    (tmp_path / "rows.csv").write_text('id,n\n"NA",1\nb,NA\nc,-\n')
    assert run("upsert", tmp_path / "t", tmp_path / "rows.csv", "--null", "NA", "--null", "-")[0] == 0
    assert sorted(lines("scan", tmp_path / "t"), key=lambda one: one["id"]) == [
        {"id": "NA", "n": 1},
        {"id": "b", "n": None},
        {"id": "c", "n": None},
    ]


def test_rows_come_from_stdin_as_json_lines(trips: Path, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(row("z")).encode() + b"\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert machine("upsert", trips, "-")["inserted"] == 1


def test_a_flag_in_the_file_deletes_by_the_ordering_rule(tmp_path: Path, trips: Path, run: Any, lines: Any) -> None:
    flagged = [{**row("a", at=1), "_hoodie_is_deleted": True}, {**row("b", at=3), "_hoodie_is_deleted": True}]
    assert run("upsert", trips, json_file(tmp_path / "flags.jsonl", flagged))[0] == 0
    assert {one["id"] for one in lines("scan", trips)} == {"a", "c"}


def test_delete_needs_only_the_key_and_partition_columns(tmp_path: Path, trips: Path, run: Any, lines: Any) -> None:
    (tmp_path / "gone.csv").write_text("id,city\na,x\nnobody,x\n")
    assert run("delete", trips, tmp_path / "gone.csv")[0] == 0
    assert {one["id"] for one in lines("scan", trips)} == {"b", "c"}


def test_a_column_that_some_lines_lack_is_an_error_and_not_nulls(tmp_path: Path, trips: Path, run: Any) -> None:
    """Arrow reads nulls there, and the fare of a trip was gone."""
    lines = [row("a"), {key: value for key, value in row("b").items() if key != "fare"}]
    for rows in (lines, lines[::-1], [*lines, row("c", None)]):
        code, _, err = run("upsert", trips, json_file(tmp_path / "rows.jsonl", rows))
        assert (code, "'fare'" in err, "--missing null" in err) == (1, True, True)
    assert hoodoo.open(trips).scan(where="fare IS NULL").count() == 0
    assert run("upsert", trips, tmp_path / "rows.jsonl", "--missing", "null")[0] == 0
    assert hoodoo.open(trips).scan(where="fare IS NULL").count() == 2
    gone = [row("a"), {"id": "b", "city": "x", "at": row("b")["at"], "_hoodie_is_deleted": True}]
    assert run("upsert", trips, json_file(tmp_path / "gone.jsonl", gone))[0] == 0
    assert hoodoo.open(trips).scan(where="id = 'b'").count() == 0


def test_some_columns_of_a_file_change_and_stored_values_of_others_stay(
    tmp_path: Path, trips: Path, run: Any, lines: Any
) -> None:
    before = {one["id"]: one for one in lines("scan", trips)}
    given = [{key: value for key, value in row(name, at=3).items() if key != "fare"} for name in ("a", "new")]
    late = json_file(tmp_path / "late.jsonl", given)
    assert run("upsert", trips, late)[0] == 1
    code, _, err = run("upsert", trips, late, "--columns", "given", "--new-keys", "fail")
    assert code == 1 and "'new'" in err
    assert run("upsert", trips, late, "--columns", "given", "--new-keys", "ignore")[0] == 0
    after = {one["id"]: one for one in lines("scan", trips)}
    assert after == before | {"a": {**before["a"], "at": after["a"]["at"]}} and after["a"]["at"] != before["a"]["at"]
    fares = json_file(tmp_path / "fares.jsonl", [row("a", 77.0, 4), {**row("b"), "fare": 78.0}])
    assert run("upsert", trips, fares, "--columns", "fare")[0] == 0
    assert {one["id"]: one["fare"] for one in lines("scan", trips)}["a"] == 77.0


def test_a_column_that_the_file_lacks_is_an_error_and_not_nulls(tmp_path: Path, trips: Path, run: Any) -> None:
    lacking = json_file(tmp_path / "lacking.jsonl", [{"id": "q", "city": "x", "at": "2026-01-01T00:00:00Z"}])
    code, _, err = run("upsert", trips, lacking, "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "COLUMN")
    nulls = json_file(tmp_path / "nulls.jsonl", [row("q", None)])
    assert run("upsert", trips, nulls)[0] == 0


def test_a_key_that_occurs_twice_is_refused_if_asked(tmp_path: Path, trips: Path, run: Any) -> None:
    twice = json_file(tmp_path / "twice.jsonl", [row("q"), row("q", at=2)])
    code, _, err = run("upsert", trips, twice, "--duplicates", "fail", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "DUPLICATE_KEYS")


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x.csv", b"id,city,at,fare\na,x,noon,1\n", "COLUMN"),
        ("x.jsonl", b"{", "DATA"),
        ("x.parquet", b"PAR", "DATA"),
        ("x.txt", b"", "CALL"),
        ("absent.csv", None, "CALL"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, trips: Path, run: Any, name: str, content: bytes | None, code: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    status, out, err = run("upsert", trips, tmp_path / name, "--json")
    error = json.loads(err)["error"]
    assert (status, out, error["code"]) == (1, "", code)
    assert name in error["message"]


# ---- reading
def test_scan_gives_one_json_object_a_line(trips: Path, lines: Any) -> None:
    found = sorted(lines("scan", trips), key=lambda one: one["id"])
    assert found[0] == {"id": "a", "city": "x", "at": "2026-01-02T00:00:00+00:00", "fare": 10.0}
    assert [one["id"] for one in found] == ["a", "b", "c"]
    assert lines("scan", trips, "--where", "fare > 5 AND city = 'x'", "--columns", "id,fare") == [
        {"id": "a", "fare": 10.0}
    ]
    assert len(lines("scan", trips, "--limit", "2")) == 2
    assert set(lines("scan", trips, "--meta", "--limit", "1")[0]) > {"_hoodie_commit_time", "_hoodie_record_key"}
    assert {one["fare"] for one in lines("scan", trips, "--read-optimized")} == {1.0}


def test_scan_and_incremental_take_positions_of_every_kind(trips: Path, lines: Any, run: Any) -> None:
    _, first, second = hoodoo.open(trips).inspect.timeline()
    cursor = str(hoodoo.Cursor(hoodoo.open(trips).cursor.table, 2))
    for position in (first.instant, cursor, "2"):
        assert {one["fare"] for one in lines("scan", trips, "--as-of", position)} == {1.0}
        assert [one["id"] for one in lines("incremental", trips, "--since", position)] == ["a"]
    assert {one["id"] for one in lines("incremental", trips, "--since", "earliest", "--until", first.instant)} == {
        "a",
        "b",
        "c",
    }
    now = dt.datetime.now(UTC).isoformat()
    assert len(lines("scan", trips, "--as-of", now)) == 3
    assert lines("incremental", trips, "--since", now) == []
    assert len(lines("scan", trips, "--as-of", "9999-12-31")) == 3  # in UTC, as it has no zone
    assert [one["op"] for one in lines("changes", trips, "--since", "2 hours ago")] == ["i", "i", "i"]
    for wrong in ("2026-01-01T99:00:00", "last-week", "hoodoo:00:1", "99"):
        code, _, err = run("scan", trips, "--as-of", wrong, "--json")
        assert (code, json.loads(err)["error"]["code"]) == (1, "POSITION")
    assert second.operation == "UPSERT"


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_what_scan_writes_upsert_reads(tmp_path: Path, trips: Path, machine: Any, lines: Any, kind: str) -> None:
    said = machine("scan", trips, "--output", tmp_path / f"out.{kind}")
    assert (said["rows"], said["cursor"]) == (3, str(hoodoo.open(trips).cursor))
    assert [path.name for path in tmp_path.glob("out.*")] == [f"out.{kind}"]
    table = hoodoo.open(trips)
    hoodoo.create(tmp_path / "copy", table.schema, key="id", partition_by="city", order_by="at")
    assert machine("upsert", tmp_path / "copy", tmp_path / f"out.{kind}")["inserted"] == 3
    assert hoodoo.open(tmp_path / "copy").scan().to_arrow().sort_by("id") == table.scan().to_arrow().sort_by("id")


def test_the_cursor_that_incremental_names_continues_it(tmp_path: Path, trips: Path, machine: Any, run: Any) -> None:
    said = machine("incremental", trips, "--since", "earliest", "--output", tmp_path / "changes.jsonl")
    assert said["rows"] == 3
    run("upsert", trips, json_file(tmp_path / "new.jsonl", [row("new")]))
    again = machine("incremental", trips, "--since", said["cursor"], "--output", tmp_path / "changes.jsonl")
    assert again["rows"] == 1
    assert json.loads((tmp_path / "changes.jsonl").read_text())["id"] == "new"


def test_json_output_is_json_whatever_the_values(tmp_path: Path, lines: Any) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("f", pa.float64()),
            ("b", pa.binary()),
            ("fs", pa.list_(pa.float64())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert(
        pa.Table.from_pylist(
            [{"id": 1, "f": float("nan"), "b": b"\x00\xff", "fs": [1.0, float("inf")], "m": [("k", 1)]}], schema
        )
    )
    assert lines("scan", tmp_path / "t") == [{"id": 1, "f": None, "b": "AP8=", "fs": [1.0, None], "m": {"k": 1}}]


def test_timeline_lists_instants_in_order(trips: Path, lines: Any) -> None:
    entries = lines("timeline", trips)
    assert [(entry["slot"], entry["state"], entry["inserted"], entry["updated"]) for entry in entries] == [
        (1, "completed", 0, 0),
        (2, "completed", 3, 0),
        (3, "completed", 0, 1),
    ]
    assert [entry["slot"] for entry in lines("timeline", trips, "--newest", "1")] == [3]


def test_update_sets_columns_of_the_rows_that_match(trips: Path, run: Any, lines: Any) -> None:
    code, out, _ = run("update", trips, "--set", "fare=round(fare * 2, 1)", "--where", "id = 'a'", "--json")
    assert (code, json.loads(out)["updated"]) == (0, 1)
    assert {one["id"]: one["fare"] for one in lines("scan", trips)}["a"] == 20.0


def test_delete_takes_a_condition_instead_of_a_file(trips: Path, run: Any, lines: Any) -> None:
    code, out, _ = run("delete", trips, "--where", "id = 'a'", "--json")
    assert (code, json.loads(out)["deleted"]) == (0, 1)
    assert "a" not in {one["id"] for one in lines("scan", trips)}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["delete"], "delete needs either a FILE"),
        (["delete", "gone.csv", "--where", "id = 'a'"], "delete needs either a FILE"),
        (["update", "--set", "fare"], "COLUMN=EXPRESSION"),
        (["update", "--set", "fare=1", "--set", "fare=2"], "twice"),
        (["update", "--set", "fare=random()"], "returns a different value in each call"),
    ],
)
def test_update_and_delete_say_what_they_take(trips: Path, run: Any, command: list[str], said: str) -> None:
    code, _, err = run(command[0], trips, *command[1:])
    assert code != 0 and said in err


def test_a_null_in_a_file_may_keep_what_is_stored(tmp_path: Path, trips: Path, run: Any, lines: Any) -> None:
    before = {one["id"]: one for one in lines("scan", trips)}
    late = json_file(tmp_path / "late.jsonl", [{**row("a", at=3), "fare": None}])
    assert run("upsert", trips, late, "--merge", "keep_non_null", "--unavailable", "?")[0] == 0
    after = {one["id"]: one for one in lines("scan", trips)}
    assert after == before | {"a": {**before["a"], "at": after["a"]["at"]}} and after["a"]["at"] != before["a"]["at"]
