"""What a table, a write, a scan and a history show of themselves: two lines, or a table in a notebook, with what one
would look at.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")
    made.insert([{"id": number, "city": "rome", "ts": 1} for number in range(1_000)])
    return made


def wide(path: Path) -> hoodoo.Table:
    columns = {f"a_long_name_of_a_column_{number}": "string" for number in range(200)}
    return hoodoo.create(path, {"id": "bigint", **columns}, key="id")


def test_a_table_says_its_key_partitions_ordering_slot_and_columns(table: hoodoo.Table) -> None:
    first, second = repr(table).splitlines()
    assert f"at {table.path}, key id, partitioned by city, ordered by ts, slot 2" in first
    assert second == "3 columns: id int64, city string, ts int64"


def test_no_repr_has_more_than_two_lines(table: hoodoo.Table, tmp_path: Path) -> None:
    many = wide(tmp_path / "wide")
    where = " OR ".join(f"id = {number}" for number in range(100))
    for shown in (table, many, table.scan(where=where), many.scan(), table.incremental("1d"), table.upsert([])):
        lines = repr(shown).splitlines()
        assert len(lines) <= 2 and all(len(line) < 250 for line in lines)
    assert repr(many).endswith("…") and "201 columns" in repr(many)


def test_a_scan_says_its_condition_and_what_it_reads_and_reads_nothing(table: hoodoo.Table) -> None:
    scan = table.scan(columns=["id"], where="ts > 0", as_of=2, read_optimized=True)
    first, second = repr(scan).splitlines()
    assert first == "<hoodoo scan of 't' at slot 2, where 'ts > 0', base files only>"
    assert second == "1 columns: id int64"
    for file in Path(table.path).rglob("*.parquet"):
        file.unlink()
    assert repr(scan) and scan._repr_html_()
    assert "after slot 1" in repr(table.incremental(1))


def test_a_write_says_its_counts_slot_files_and_what_is_unusual(table: hoodoo.Table) -> None:
    done = table.insert([{"id": 2_000, "city": "oslo", "ts": 1}])
    assert re.fullmatch(
        rf"<slot 3: 1 inserted, 0 updated, 0 deleted; 1 file, [\d,]+ bytes, instant {done.instant}>", repr(done)
    )
    assert repr(table.upsert([])) == "<nothing was written; newest slot 3>"
    table.delete([{"id": 2_000, "city": "oslo"}], transaction=("job", 1))
    assert "the transaction was committed before; newest slot 4" in repr(
        table.delete([{"id": 3, "city": "rome"}], transaction=("job", 1))
    )
    odd = replace(done, stale=1_234, quarantined=3, retries=2, waited_seconds=1.5)
    assert "1,234 stale, 3 quarantined, 2 retries, waited 1.5 s for workers" in repr(odd)


def test_a_count_that_is_a_bound_reads_as_one(table: hoodoo.Table) -> None:
    done = table.upsert([{"id": 1, "city": "rome", "ts": 0}])  # it may lose to the stored row, which nobody reads
    assert not done.exact
    assert "0 inserted, <= 1 updated, 0 deleted" in repr(done)


def test_a_history_is_a_line_for_each_commit(table: hoodoo.Table) -> None:
    table.savepoints.create("start")
    newest, oldest = repr(table.history()).splitlines()
    assert re.search(r"^ +2  .*Z  INSERT +1,000 rows  \d+\.\d s  'start'$", newest)
    assert re.search(r"^ +1  .* 0 rows", oldest)
    [commit] = table.history(newest=1)
    assert (commit.slot, commit.rows) == (2, 1_000) and 0 <= commit.seconds < 600
    entries = table.inspect.timeline()
    assert (entries[1].rows, entries[1].seconds) == (1_000, commit.seconds)


class Cells(HTMLParser):
    """The cells of each row, and the tags that were opened and not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_a_notebook_shows_tables(table: hoodoo.Table) -> None:
    rows = Cells(table._repr_html_()).rows
    assert rows[0] == ["column", "type", "null", "role"]
    assert rows[1] == ["id", "int64", "yes", "key"] and rows[2][-1] == "partition" and rows[3][-1] == "ordering"
    assert Cells(table.scan(columns=["ts"])._repr_html_()).rows == [["column", "type"], ["ts", "int64"]]
    assert [row[0] for row in Cells(table.history()._repr_html_()).rows] == ["slot", "2", "1"]
    table.handle.context().timeline.begin("deltacommit")
    assert [row[0] for row in Cells(table.inspect.timeline()._repr_html_()).rows] == ["slot", "-", "2", "1"]


def test_a_notebook_gets_text_escaped_and_long_lists_cut(table: hoodoo.Table) -> None:
    text = table.scan(where="city = '<script>alert(1)</script>'")._repr_html_()
    assert "<script>" not in text and "&lt;script&gt;" in text
    for number in range(70):
        table.set_options(retain_hours=number + 1)
    shown = table.inspect.timeline()._repr_html_()
    assert len(Cells(shown).rows) == 61 and "and 12 more" in shown


def test_the_files_of_a_snapshot_are_listed_without_opening_one(table: hoodoo.Table) -> None:
    table.insert([{"id": 1, "city": "oslo", "ts": 1}])
    done = table.upsert([{"id": 1, "city": "rome", "ts": 2}])
    files = table.inspect.files().to_pylist()
    assert [(one["partition"], one["rows"], one["logs"], one["slot"]) for one in files] == [
        ("city=oslo", 1, 0, 3),
        ("city=rome", 1_000, 1, 4),
    ]
    for one in files:
        assert (Path(table.path) / one["base_file"]).stat().st_size == one["bytes"]
    assert files[1]["log_bytes"] == done.bytes_written
    assert len(table.inspect.files(as_of=2)) == 1
    empty = table.inspect.files(as_of=1)
    assert len(empty) == 0 and empty.schema == table.inspect.files().schema
