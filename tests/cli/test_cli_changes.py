"""What changed, on the command line: changes, diff, get, history, and deletes of an incremental pull."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_files import json_file, row

import hoodoo


@pytest.fixture
def changed(trips: Path, tmp_path: Path, run: Any) -> Path:
    """The table after a third commit, which deletes c and changes b."""
    run("delete", trips, json_file(tmp_path / "gone.jsonl", [{"id": "c", "city": "y"}]))
    run("upsert", trips, json_file(tmp_path / "more.jsonl", [row("b", fare=9.0)]))
    return trips


def test_changes_are_one_line_each_with_both_images(changed: Path, lines: Any) -> None:
    second = hoodoo.open(changed).history()[-2]
    found = {(one["after"] or one["before"])["id"]: one for one in lines("changes", changed, "--since", second.cursor)}
    assert {name: one["op"] for name, one in found.items()} == {"a": "u", "b": "u", "c": "d"}
    assert found["b"]["after"]["fare"] == 9.0 and found["b"]["before"]["fare"] != 9.0 and found["c"]["after"] is None
    every = lines(
        "changes", changed, "--since", "earliest", "--versions", "all", "--columns", "id,fare", "--where", "id = 'b'"
    )
    assert [one["op"] for one in every] == ["i", "u"] and set(every[0]["after"]) == {"id", "fare"}


def test_a_diff_goes_either_way(changed: Path, lines: Any) -> None:
    newest, *_, oldest, _ = hoodoo.open(changed).history()
    assert {one["op"] for one in lines("diff", changed, oldest.cursor, newest.cursor)} == {"u", "d"}
    assert {one["op"] for one in lines("diff", changed, newest.cursor, oldest.instant)} == {"u", "i"}
    assert lines("diff", changed, newest.cursor) == []


def test_single_rows_are_named_by_value_or_as_json(changed: Path, lines: Any, run: Any) -> None:
    assert [one["id"] for one in lines("get", changed, "b", "nobody", "a", "c", "--columns", "id")] == ["b", "a"]
    assert [one["id"] for one in lines("get", changed, json.dumps({"id": "a", "city": "x"}))] == ["a"]
    assert lines("get", changed, json.dumps({"id": "a", "city": "y"})) == []
    for wrong in (["{"], ["a", "{}"], ['{"id": 1}', "a"]):
        code, _, err = run("get", changed, *wrong, "--json")
        assert code == 1 and json.loads(err)["error"]["code"] in ("DATA", "COLUMN")


def test_the_history_names_each_commit_and_says_whether_it_can_be_read(changed: Path, lines: Any, run: Any) -> None:
    found = lines("history", changed)
    assert [one["operation"] for one in found] == ["UPSERT", "DELETE", "UPSERT", "UPSERT", "INSERT"], (
        "the last is the creation"
    )
    assert all(one["readable"] for one in found)
    assert lines("history", changed, "--newest", "1") == found[:1]
    hoodoo.open(changed).compact()
    run("upsert", changed, json_file(changed.parent / "last.jsonl", [row("b", fare=10.0)]))
    hoodoo.open(changed).maintenance.clean(retain_hours=0, retain_commits=0)
    assert [one["readable"] for one in lines("history", changed)] == [True, *[False] * 5]
    assert "UPSERT" in run("history", changed)[1]


def test_an_incremental_pull_tells_deleted_keys_where_it_is_asked_to(
    changed: Path, lines: Any, machine: Any, tmp_path: Path
) -> None:
    first = hoodoo.open(changed).history()[-2].cursor
    found = {
        one["id"]: one["_hoodie_is_deleted"] for one in lines("incremental", changed, "--since", first, "--deletes")
    }
    assert found == {"a": False, "b": False, "c": True}
    said = machine("changes", changed, "--since", first, "--output", tmp_path / "changes.parquet")
    assert said["rows"] == 3 and said["cursor"] == str(hoodoo.open(changed).cursor)
