"""The commands `drop`, `insert` and `sql`: what they do, what they ask for, and what they refuse."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from cli_files import json_file, row

import hoodoo


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_drop_deletes_a_table_and_lists_what_stays(trips: Path, machine: Any, run: Any) -> None:
    (trips / "notes.txt").write_text("x")
    result = machine("drop", trips, "--yes")
    assert (result["path"], result["kept"]) == (str(trips), ["notes.txt"]) and result["files"] > 5
    code, _, err = run("drop", trips, "--yes", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "TABLE_NOT_FOUND")


def test_drop_without_a_terminal_needs_yes(trips: Path, run: Any) -> None:
    code, _, err = run("drop", trips)
    assert code == 1 and "Pass --yes" in err and hoodoo.open(trips).count() == 3


@pytest.mark.parametrize(
    ("answer", "gone"), [("y\n", True), ("yes\n", True), ("\n", False), ("", False), ("no\n", False)]
)
def test_drop_asks_at_a_terminal(
    trips: Path, run: Any, monkeypatch: pytest.MonkeyPatch, answer: str, gone: bool
) -> None:
    (trips / "notes.txt").write_text("x")
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, out, err = run("drop", trips)
    assert f"Delete the table {trips}? It cannot be restored. [y/N]" in err
    assert (code, (trips / ".hoodie").exists()) == (int(not gone), not gone)
    assert ("notes.txt" if gone else "Nothing was deleted.") in out


def test_insert_writes_files_in_one_commit_and_refuses_or_keeps_existing_keys(
    trips: Path, tmp_path: Path, machine: Any, run: Any
) -> None:
    one = json_file(tmp_path / "one.jsonl", [row("d")])
    two = json_file(tmp_path / "two.jsonl", [row("e"), row("a", 99.0, 9)])
    before = hoodoo.open(trips).cursor.seq
    code, _, err = run("insert", trips, one, two, "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "KEY_EXISTS")
    assert machine("insert", trips, one, two, "--existing", "keep")["inserted"] == 2
    table = hoodoo.open(trips)
    assert (table.cursor.seq, table.count()) == (before + 1, 5)
    assert table.get("a")["fare"].to_pylist() == [10.0]
    (tmp_path / "less.jsonl").write_text('{"id": "f", "city": "x"}\n')
    code, _, err = run("insert", trips, one, tmp_path / "less.jsonl")
    assert code == 1 and "one by one" in " ".join(err.split())
    for name, fare in (("number", 1.0), ("text", "much")):
        pyarrow.parquet.write_table(pa.table({"id": [name], "fare": [fare]}), tmp_path / f"{name}.parquet")
    code, _, err = run("insert", trips, tmp_path / "number.parquet", tmp_path / "text.parquet")
    assert code == 1 and "The files have columns of different types" in " ".join(err.split())


def test_sql_joins_tables_and_has_the_outputs_of_scan(trips: Path, tmp_path: Path, lines: Any, run: Any) -> None:
    query = "SELECT city, count(*) AS n FROM t GROUP BY city ORDER BY city"
    assert lines("sql", query, f"t={trips}") == [{"city": "x", "n": 2}, {"city": "y", "n": 1}]
    joined = "SELECT a.id FROM a JOIN b USING (id) ORDER BY 1 LIMIT 1"
    assert lines("sql", joined, f"a={trips}", f"b={trips}") == [{"id": "a"}]
    assert lines("sql", query, f"t={trips}", "--limit", "1") == [{"city": "x", "n": 2}]
    assert "city" in run("sql", query, f"t={trips}")[1]
    assert lines("sql", query, f"t={trips}", "--output", tmp_path / "n.csv")[0]["rows"] == 2
    assert (tmp_path / "n.csv").read_text().splitlines()[1:] == ['"x",2', '"y",1']


@pytest.mark.parametrize(
    ("query", "names", "words"),
    [
        ("SELECT nope FROM t", ["t"], "nope"),
        ("SELECT 1 FROM u", ["t"], "table t"),
        ("SELECT 1 FROM t", ["t", "t"], "given twice"),
        ("SELECT 1 FROM spark", ["spark"], "reserved"),
        ("SELECT CAST(id AS int) FROM t", ["t"], "DuckDB cannot run the query"),
    ],
)
def test_sql_refuses_a_wrong_query(trips: Path, run: Any, query: str, names: list[str], words: str) -> None:
    code, _, err = run("sql", query, *(f"{name}={trips}" for name in names))
    assert code == 1 and words in " ".join(err.split()) and "Traceback" not in err
