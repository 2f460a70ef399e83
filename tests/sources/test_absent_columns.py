"""A column that an update was sent without keeps its stored value, however events are cut into batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import ID, LSN, Changes, Event, change, sent
from connect_avro import as_avro

import hoodoo
from hoodoo.errors import DataError

COLUMNS = pa.schema([ID, ("body", pa.string()), ("n", pa.int32()), ("x", pa.float64()), LSN])
ROW = {"id": 1, "body": "long", "n": 7, "x": 0.5}
CUTS = [1, 2, 100]


def events_of(*images: dict[str, Any], before: bool = False) -> list[Event]:
    """An insert, and updates to these images."""
    old = ROW if before else None
    return [change("u" if at else "c", {"id": 1}, one, old, lsn=at + 1) for at, one in enumerate((ROW, *images))]


def with_schema(op: str, lsn: int, image: dict[str, Any]) -> Event:
    types = {"id": "int64", "body": "string", "n": "int32", "x": "double"}
    after = [{"field": name, "type": types[name], "optional": name != "id"} for name in image]
    fields = [
        {"field": "before", "type": "struct", "optional": True, "name": "v", "fields": after},
        {"field": "after", "type": "struct", "optional": True, "name": "v", "fields": after},
        {
            "field": "source",
            "type": "struct",
            "optional": False,
            "name": "s",
            "fields": [{"field": "lsn", "type": "int64", "optional": True}],
        },
        {"field": "op", "type": "string", "optional": False},
    ]
    payload = {"before": None, "after": image, "source": {"lsn": lsn}, "op": op}
    key_schema = {"type": "struct", "name": "k", "optional": False, "fields": after[:1]}
    value_schema = {"type": "struct", "name": "e", "optional": False, "fields": fields}
    key = {"schema": key_schema, "payload": {"id": image["id"]}}
    return sent(key), sent({"schema": value_schema, "payload": payload})


def row_after(path: Path, events: list[Event], at_once: int, **how: Any) -> dict[str, Any]:
    table = hoodoo.create(path, COLUMNS, key="id", order_by="_event_lsn", clean_every=None)
    hoodoo.ingest(Changes(events, at_once), table, name="job", **how).run()
    [row] = table.scan().to_arrow().to_pylist()
    return {name: value for name, value in row.items() if name not in ("id", "_event_lsn")}


@pytest.mark.parametrize("at_once", CUTS)
@pytest.mark.parametrize("before", [False, True])
def test_an_absent_column_keeps_its_value_and_a_null_replaces_it(tmp_path: Path, before: bool, at_once: int) -> None:
    events = events_of({"id": 1, "body": None, "x": None}, {"id": 1, "x": 1.5}, before=before)
    assert row_after(tmp_path / "t", events, at_once) == {"body": None, "n": 7, "x": 1.5}


@pytest.mark.parametrize("at_once", CUTS)
def test_a_null_with_spaces_around_it_is_a_null(tmp_path: Path, at_once: int) -> None:
    events = events_of({"id": 1, "body": None, "n": None})
    key, value = events[1]
    events[1] = key, value.replace(b'"body":null', b'"body" :\tnull') if value else None
    assert row_after(tmp_path / "t", events, at_once) == {"body": None, "n": None, "x": 0.5}


@pytest.mark.parametrize("at_once", [1, 100])
def test_an_absent_column_keeps_its_value_where_events_are_read_one_by_one(tmp_path: Path, at_once: int) -> None:
    events = events_of({"id": 1, "x": "NaN"}, {"id": 1, "x": 2.5})  # Arrow's reader refuses the text
    assert row_after(tmp_path / "t", events, at_once) == {"body": "long", "n": 7, "x": 2.5}


@pytest.mark.parametrize("at_once", [1, 100])
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
def test_a_schema_tells_which_columns_are_absent(tmp_path: Path, avro: bool, at_once: int) -> None:
    images = [("c", 1, ROW), ("u", 2, {"id": 1, "n": 8}), ("u", 3, {"id": 1, "n": None, "body": "new"})]
    events = [with_schema(*one) for one in images]
    registry = None
    if avro:
        registry, events = as_avro(events)
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id", order_by="_event_lsn", clean_every=None)
    hoodoo.ingest(Changes(events, at_once, registry=registry), table, name="job").run()
    assert table.scan().to_arrow().to_pylist() == [{**ROW, "body": "new", "n": None, "_event_lsn": 3}]


def test_an_update_of_an_unknown_row_has_null_in_an_absent_column(tmp_path: Path) -> None:
    events = [change("u", {"id": 1}, {"id": 1, "n": 3})]
    assert row_after(tmp_path / "t", events, 1) == {"body": None, "n": 3, "x": None}


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_row_that_was_deleted_gives_no_values_to_the_next_one(tmp_path: Path, at_once: int) -> None:
    events = [
        *events_of(),
        change("d", {"id": 1}, None, {"id": 1}, lsn=2),
        change("c", {"id": 1}, {"id": 1, "body": "again"}, lsn=3),
        change("u", {"id": 1}, {"id": 1, "n": 4}, lsn=4),
    ]
    assert row_after(tmp_path / "t", events, at_once) == {"body": "again", "n": 4, "x": None}


@pytest.mark.parametrize("at_once", [1, 100])
def test_new_columns_that_an_update_lacks_keep_their_values(tmp_path: Path, at_once: int) -> None:
    events = events_of({"id": 1, "extra": "e"}, {"id": 1, "n": 8})
    found = row_after(tmp_path / "t", events, at_once, new_columns="add")
    assert found == {"body": "long", "n": 8, "x": 0.5, "extra": "e"}


def test_a_transform_keeps_the_marks_of_absent_columns_or_is_told(tmp_path: Path) -> None:
    events = events_of({"id": 1, "n": 8})
    assert row_after(tmp_path / "t", events, 1, transform=lambda rows: rows)["body"] == "long"
    with pytest.raises(DataError, match=r"Column '_not_sent\.body' is missing in the result of the transform"):
        row_after(
            tmp_path / "u",
            events_of({"id": 1, "n": 8}),
            100,
            transform=lambda rows: rows.drop_columns([name for name in rows.column_names if name.startswith("_not")]),
        )


@pytest.mark.parametrize("at_once", CUTS)
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
def test_new_rows_get_the_default_of_an_absent_column(tmp_path: Path, avro: bool, at_once: int) -> None:
    """They got null if another event of the batch had the column."""
    images = [("r", 1, {"id": 1}), ("c", 2, {"id": 2, "n": None}), ("c", 3, {"id": 3, "n": 3})]
    images += [("u", 4, {"id": 4}), ("u", 5, {"id": 3})]
    events = [with_schema(*one) if avro else change(one[0], {"id": one[2]["id"]}, one[2], lsn=one[1]) for one in images]
    registry = None
    if avro:
        registry, events = as_avro(events)
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, LSN]), key="id", order_by="_event_lsn", clean_every=None)
    table.alter.add_column("n", "int", default=5)
    hoodoo.ingest(Changes(events, at_once, registry=registry), table, name="job").run()
    assert {one["id"]: one["n"] for one in table.scan().to_arrow().to_pylist()} == {1: 5, 2: None, 3: 3, 4: 5}


def test_a_transform_may_make_a_column_that_events_do_not_have(tmp_path: Path) -> None:
    events = [change("c", {"id": 1}, {"id": 1, "n": 2}), change("u", {"id": 1}, {"id": 1, "n": 3}, lsn=2)]
    found = row_after(
        tmp_path / "t", events, 1, transform=lambda rows: rows.append_column("x", rows["n"].cast(pa.float64()))
    )
    assert found == {"body": None, "n": 3, "x": 3.0}


def test_a_map_as_json_goes_to_the_quarantine(tmp_path: Path) -> None:
    columns = pa.schema([ID, ("h", pa.map_(pa.string(), pa.string()))])
    table = hoodoo.create(tmp_path / "t", columns, key="id")
    events = [change("c", {"id": 1}, {"id": 1, "h": None}), change("c", {"id": 2}, {"id": 2, "h": {"a": "b"}})]
    report = hoodoo.ingest(Changes(events), table, name="job").run()
    assert table.count() == 1 and report.bad == 1
