"""JSON that Arrow's reader stumbles over is rows or bad rows, and never ends a job by an error of a library."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from change_events import ID, Changes, change, decoded

import hoodoo
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.json_messages import JsonDecoder


def rows_of(*messages: bytes) -> tuple[list[object], list[str]]:
    bad = BadMessages("topic", 100, lambda number, _: str(number))
    parts = JsonDecoder(pa.schema([ID, ("s", pa.struct([("x", pa.float64())]))]), True).rows(
        list(enumerate(messages)), bad
    )
    return [row for rows, _ in parts for row in rows.to_pylist()], bad.table()["place"].to_pylist()


@pytest.mark.parametrize(
    "text", [b"[null,null]", b"[[null],[null,null]]", b'{"a":[null],"b":[{"c":[null,null]}]}', b"[]", b"[null]"]
)
def test_lists_of_nulls_are_lists(text: bytes) -> None:
    found, bad = rows_of(b'{"id":1,"v":' + text + b"}", b'{"id":2}', b'{"id":3,"v":' + text + b"}")
    first, _, last = (row["v"] for row in found)  # type: ignore[index]
    assert first == last and not bad


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_change_event_with_a_list_of_nulls_is_a_row(tmp_path: Path, at_once: int) -> None:
    events = [change("c", {"id": 1}, {"id": 1, "v": [None, None]}), change("c", {"id": 2}, {"id": 2, "v": [1, None]})]
    table = hoodoo.create(tmp_path / "t", pa.schema([ID]), key="id")
    hoodoo.ingest(Changes(events, at_once), table, name="job", new_columns="add").run()
    assert table.count() == 2


def test_a_name_in_a_struct_that_is_not_utf8_is_a_bad_row() -> None:
    found, bad = rows_of(b'{"id":1,"s":{"x":1}}', b'{"id":2,"s":{"\xc3":1}}')
    assert [row["id"] for row in found] == [1] and bad == ["1"]  # type: ignore[index]


def test_a_line_of_a_file_with_such_a_name_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.jsonl").write_bytes(b'{"id":1,"s":{"x":1}}\n{"id":2,"s":{"\xc3":1}}\n')
    table = hoodoo.create(tmp_path / "t", pa.schema([ID, ("s", pa.struct([("x", pa.float64())]))]), key="id")
    report = hoodoo.ingest(hoodoo.sources.Files(tmp_path / "landing", settle_seconds=0), table, name="job").run()
    assert table.count() == 1 and report.bad == 1


def test_an_event_with_such_a_name_is_bad() -> None:
    key, value = change("c", {"id": 1}, {"id": 1, "s": {"Q": 1}})
    assert value is not None
    kind = pa.struct([("x", pa.float64())])
    found, bad = decoded([(key, value.replace(b'"Q"', b'"\xc3"'))], ID, ("s", kind), unknown=True)
    assert not len(found) and len(bad) == 1


def test_a_brace_and_null_in_a_text_are_text() -> None:
    found, bad = rows_of(b'{"id":1,"v":"a } null {"}', b'{"id":2,"v":"} null"}', b'{"id":3} null {"id":4}')
    assert [row["v"] for row in found] == ["a } null {", "} null"] and bad == ["2"]  # type: ignore[index]
