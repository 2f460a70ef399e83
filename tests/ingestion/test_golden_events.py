"""Events of a real database make the rows that it ended with, however they are cut, and whatever comes again."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import Changes, change, golden_events, golden_rows
from connect_avro import as_avro
from tiers import sized

import hoodoo

LSN = ("_event_lsn", pa.int64())
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("client", pa.string()),
        ("status", pa.string()),
        ("weight", pa.float32()),
        ("score", pa.float64()),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("atz", pa.timestamp("us", "UTC")),
        ("t", pa.time64("us")),
        ("doc", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("uid", pa.string()),
        ("raw", pa.binary()),
        ("note", pa.string()),
        ("country", pa.string()),
        LSN,
    ]
)
LINES = pa.schema(
    [
        ("order_id", pa.int64()),
        ("line", pa.int32()),
        ("sku", pa.string()),
        ("qty", pa.int32()),
        ("price", pa.decimal128(38, 6)),
        LSN,
    ]
)
TOAST = pa.schema(
    [
        ("id", pa.int32()),
        ("j", pa.string()),
        ("ta", pa.list_(pa.string())),
        ("ia", pa.list_(pa.int32())),
        ("h", pa.string()),
        ("x", pa.int32()),
        LSN,
    ]
)
KEYS = {"orders": ["id"], "lines": ["order_id", "line"], "toast": ["id"]}
NOT_TRUNCATED = [{"order_id": "1", "line": "1"}, {"order_id": "4", "line": "1"}, {"order_id": "6", "line": "1"}]


def schema_of(run: str, table: str) -> pa.Schema:
    schema = {"orders": ORDERS, "lines": LINES, "toast": TOAST}[table]
    if (run, table) == ("plain", "toast"):  # with binary.handling.mode=base64 nothing tells such a value from a null
        schema = schema.append(pa.field("b", pa.binary()))
    if (run, table) == ("rich", "toast"):  # with decimal.handling.mode=precise nothing does of a decimal
        schema = schema.append(pa.field("n", pa.string()))
    if (run, table) == ("rich", "orders"):  # in the plain run they are bytes whose scale nobody says
        schema = schema.append(pa.field("amount", pa.decimal128(14, 4)))
    return schema


def made(path: Path, run: str, table: str, **options: Any) -> hoodoo.Table:
    options = {"order_by": "_event_lsn", **options}
    return hoodoo.create(path, schema_of(run, table), key=KEYS[table], clean_every=None, **options)


def require_rows_of_the_database(
    table: hoodoo.Table, run: str, name: str, not_truncated: Sequence[dict[str, str]] = NOT_TRUNCATED
) -> None:
    found = {tuple(str(row[one]) for one in KEYS[name]): row for row in table.scan().to_arrow().to_pylist()}
    wanted = {tuple(row[one] for one in KEYS[name]): row for row in golden_rows(run, name)}
    for key in not_truncated if name == "lines" else ():
        assert found.pop(tuple(key.values()))["order_id"]
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for column, value in row.items():
            if column in table.schema.names:
                assert as_database(column, found[key], run) == expected(column, value, run, key), (key, column)


def as_database(column: str, row: dict[str, Any], run: str) -> Any:
    """What hoodoo has, as the database shows it."""
    value = row[column]
    if column == "client" and value is None:  # nobody has touched the row since the column was renamed
        value = row["customer"]
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, list):
        return [str(one) for one in value]
    if isinstance(value, decimal.Decimal):
        return value
    if column in ("doc", "j"):
        return None if value is None else json.loads(value, parse_int=str)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def expected(column: str, value: Any, run: str, key: tuple[str, ...]) -> Any:
    """What the database has, as far as its events say it."""
    if column == "country" and key in (("4",), ("30",), ("2",)):
        return None  # a default that it got with the column; nobody has touched the row since
    if value is None:
        return None
    if column in ("amount", "price"):
        return decimal.Decimal(value)
    if column == "weight":
        return float(value)
    if column in ("at", "t") and run == "rich":  # time.precision.mode=connect
        whole, _, rest = value.partition(".")
        return f"{whole}.{rest[:3]}000" if rest else value
    return value


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("name", ["orders", "lines", "toast"])
@pytest.mark.parametrize("run", ["plain", "rich"])
def test_a_table_ends_with_the_rows_of_the_database(tmp_path: Path, run: str, name: str, at_once: int) -> None:
    table, events = made(tmp_path / "t", run, name), golden_events(run, name)
    report = hoodoo.ingest(Changes(events, at_once, "ignore"), table).run()
    assert report.bad == (name == "orders")  # a snapshot has a moment of the year 1 in the year 0, which tables refuse
    tombstones = sum(value is None for _, value in events)
    assert report.skipped == tombstones + (name == "lines") and report.rows == len(events) - report.skipped
    require_rows_of_the_database(table, run, name)
    assert table.verify().problems == []


@pytest.mark.parametrize("at_once", [3, 100])
@pytest.mark.parametrize("name", ["orders", "lines", "toast"])
def test_the_same_events_as_avro_end_with_the_same_rows(tmp_path: Path, name: str, at_once: int) -> None:
    table, sent = made(tmp_path / "t", "rich", name), golden_events("rich", name)
    registry, events = as_avro(sent)
    report = hoodoo.ingest(Changes(events, at_once, "ignore", registry), table).run()
    assert report.bad == (name == "orders")
    tombstones = sum(value is None for _, value in events)
    assert report.skipped == tombstones + (name == "lines") and report.rows == len(events) - report.skipped
    require_rows_of_the_database(table, "rich", name)
    other = made(tmp_path / "json", "rich", name)
    hoodoo.ingest(Changes(sent, at_once, "ignore"), other).run()
    mine, same = (sorted(map(str, one.scan().to_arrow().to_pylist())) for one in (table, other))
    assert mine == same


@pytest.mark.parametrize("name", ["orders", "lines", "toast"])
@pytest.mark.parametrize("run", ["plain", "rich"])
def test_events_that_come_again_after_a_crash_change_nothing(tmp_path: Path, run: str, name: str) -> None:
    """A connector that dies sends again what it has sent since it last noted how far it was."""
    events = golden_events(run, name)
    for prefix in sorted({*range(1, len(events), sized(7, 1)), len(events)}):
        table = made(tmp_path / str(prefix), run, name)
        for name_of_job, sent in (("first", events[:prefix]), ("again", events)):
            hoodoo.ingest(Changes(sent, truncate="ignore"), table, name=name_of_job).run()
        require_rows_of_the_database(table, run, name)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_table_with_partitions_outside_the_key_ends_with_the_rows_of_the_database(
    tmp_path: Path, at_once: int
) -> None:
    table = made(tmp_path / "t", "plain", "orders", partition_by="country")
    report = hoodoo.ingest(Changes(golden_events("plain", "orders"), at_once, before="lookup"), table).run()
    assert report.bad == 1 and table.scan().count() == len(golden_rows("plain", "orders"))
    require_rows_of_the_database(table, "plain", "orders")


@pytest.mark.parametrize("name", ["orders", "lines", "toast"])
def test_without_an_order_later_events_win(tmp_path: Path, name: str) -> None:
    table = made(tmp_path / "t", "plain", name, order_by=None)
    hoodoo.ingest(Changes(golden_events("plain", name), 3, "ignore"), table).run()
    require_rows_of_the_database(table, "plain", name)


def test_a_table_without_a_key_cannot_be_followed(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", {"a": "bigint", "b": "string"}, key="a")
    with pytest.raises(hoodoo.errors.DataError, match="Add a primary key to the source table"):
        hoodoo.ingest(Changes(golden_events("plain", "nokey")), table).run()
    assert table.scan().count() == 0


def test_decimals_in_bytes_are_refused_unless_a_schema_says_their_scale(tmp_path: Path) -> None:
    schema = ORDERS.append(pa.field("amount", pa.decimal128(14, 4)))
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="_event_lsn")
    with pytest.raises(hoodoo.errors.ColumnError, match=r"'amount'.*Set decimal\.handling\.mode=string"):
        hoodoo.ingest(Changes(golden_events("plain", "orders")), table).run()
    assert table.scan().count() == 0


def test_a_truncated_table_stops_the_job_before_that_batch(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "plain", "lines")
    with pytest.raises(hoodoo.errors.DataError, match="was truncated"):
        hoodoo.ingest(Changes(golden_events("plain", "lines"), 3), table).run()
    assert table.scan().count() > 0


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
def test_a_truncated_table_empties_the_other_one_where_that_is_wanted(tmp_path: Path, avro: bool, at_once: int) -> None:
    table, events = made(tmp_path / "t", "rich", "lines"), golden_events("rich", "lines")
    registry = None
    if avro:
        registry, events = as_avro(events)
    table.upsert([{"order_id": 99_999, "line": 1, "_event_lsn": 1}], missing="null")
    hoodoo.ingest(Changes(events, at_once, "delete", registry), table).run()
    require_rows_of_the_database(table, "rich", "lines", not_truncated=())
    assert table.verify().problems == []


def test_rows_after_a_truncate_are_there_and_those_before_it_are_gone(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "string"}, key="id")
    events = [
        change("c", {"id": 1}, {"id": 1, "v": "old"}),
        change("c", {"id": 2}, {"id": 2, "v": "old"}),
        change("t", None),
        change("c", {"id": 3}, {"id": 3, "v": "between"}),
        change("t", None),
        change("c", {"id": 2}, {"id": 2, "v": "new"}),
    ]
    report = hoodoo.ingest(Changes(events, 2, "delete"), table).run()
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": "new"}]
    again = hoodoo.ingest(Changes(events, 100, "delete"), table, name="again").run()
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": "new"}]
    assert (report.batches, again.batches) == (4, 2) and (again.rows, again.skipped) == (1, 5)


def test_a_truncate_is_no_insert_and_says_so(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    with pytest.raises(hoodoo.errors.OptionError, match="The source returns changes of rows"):
        hoodoo.ingest(Changes([change("t", None)], 1, "delete"), table, operation="insert").run()


def test_columns_that_the_database_adds_are_added(tmp_path: Path) -> None:
    few = pa.schema([field for field in ORDERS if field.name not in ("country", "client")])
    table = hoodoo.create(tmp_path / "t", few, key="id", order_by="_event_lsn")
    events = golden_events("plain", "orders")
    report = hoodoo.ingest(Changes(events, 3), table).run()
    assert report.unknown == ("amount", "client", "country")
    wide = hoodoo.create(tmp_path / "wide", few, key="id", order_by="_event_lsn")
    hoodoo.ingest(Changes(events, 3), wide, new_columns="add").run()
    assert {row["id"]: row["country"] for row in wide.scan().to_arrow().to_pylist()}[8] == "no"
