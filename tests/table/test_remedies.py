"""Whoever does what an error says loses no stored value that the error did not speak of."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hoodoo

ROWS: list[dict[str, Any]] = [
    {"id": "a", "p": "x", "ts": 1, "v": 1.0, "note": "one", "spot": {"x": 1, "y": 2}},
    {"id": "b", "p": "x", "ts": 1, "v": 2.5, "note": "two", "spot": {"x": 3, "y": 4}},
    {"id": "c", "p": "y", "ts": 1, "v": 3.0, "note": "3", "spot": {"x": 5, "y": 6}},
]
COLUMNS = "id string, p string, ts int64, v double, note string, spot struct<x: bigint, y: bigint>"
Act = Callable[[hoodoo.Table], Any]


@dataclass
class Case:
    """What somebody does, what the error says, what they do then.

    said: a part of the error, which names the remedy. lost: a part of the error that announces what goes; '' where
    nothing may. changed: columns that the caller sets by what they do.
    """

    wrong: Act
    said: str
    remedy: Act
    lost: str = ""
    changed: tuple[str, ...] = ()


def whole(**values: Any) -> dict[str, Any]:
    return {**ROWS[0], "ts": 2, **values}


PART = [{"id": "a", "p": "x", "ts": 2, "note": "new"}]
FIELD = [whole(spot={"x": 9})]
CASES: dict[str, Case] = {
    "a column is missing: keep": Case(
        lambda t: t.upsert(PART), 'pass columns="given"', lambda t: t.upsert(PART, columns="given"), changed=("note",)
    ),
    "a column is missing: null": Case(
        lambda t: t.upsert(PART),
        'missing="null" overwrites stored values with null',
        lambda t: t.upsert(PART, missing="null"),
        lost="overwrites stored values with null",
        changed=("note",),
    ),
    "a row lacks what others have: keep": Case(
        lambda t: t.upsert([whole(), *PART]),
        'with columns="given"',
        lambda t: t.upsert(PART, columns="given"),
        changed=("note",),
    ),
    "a field is missing: null": Case(
        lambda t: t.upsert(FIELD),
        'missing="null" overwrites stored values of this field with null',
        lambda t: t.upsert(FIELD, missing="null"),
        lost="overwrites stored values of this field",
    ),
    "columns and null": Case(
        lambda t: t.upsert(PART, columns="given", missing="null"),
        "Leave out one of the two",
        lambda t: t.upsert(PART, columns="given"),
        changed=("note",),
    ),
    "a new column: evolve": Case(
        lambda t: t.upsert([whole(wifi=True)]),
        "pass evolve=True",
        lambda t: t.upsert([whole(wifi=True)], evolve=True),
    ),
    "keys exist: keep": Case(
        lambda t: t.insert([whole(note="new")]),
        "To keep their rows and skip the new ones, call insert(..., existing='keep')",
        lambda t: t.insert([whole(note="new")], existing="keep"),
    ),
    "keys exist: upsert": Case(
        lambda t: t.insert([whole(note="new")]),
        "To replace their rows, call upsert(...)",
        lambda t: t.upsert([whole(note="new")]),
        lost="To replace their rows",
    ),
    "keys do not exist: ignore": Case(
        lambda t: t.upsert([whole(id="z")], new_keys="fail"),
        "new_keys='ignore' to skip them",
        lambda t: t.upsert([whole(id="z")], new_keys="ignore"),
    ),
    "keys do not exist: insert": Case(
        lambda t: t.upsert([whole(id="z")], new_keys="fail"),
        "new_keys='insert' to insert them",
        lambda t: t.upsert([whole(id="z")], new_keys="insert"),
    ),
    "a key twice": Case(
        lambda t: t.upsert([whole(), whole()], duplicates="fail"),
        "duplicates='newest'",
        lambda t: t.upsert([whole(), whole()], duplicates="newest"),
    ),
    "a batch that was taken for a condition": Case(
        lambda t: t.delete("id = 'a'"),
        "Pass a condition as where: delete(where=\"id = 'a'\")",
        lambda t: t.delete(where="id = 'a'"),
        lost="delete needs keys",
    ),
    "an update of the key": Case(
        lambda t: t.update({"id": "'z'"}, where="id = 'a'"),
        "Insert rows with the new values",
        lambda t: (t.insert([whole(id="z")]), t.delete(["a"])),
        lost="delete the rows with the old values",
    ),
    "an update of the ordering column": Case(
        lambda t: t.update({"ts": "7"}, where="id = 'a'"),
        "Upsert newer versions",
        lambda t: t.upsert([whole(ts=7)]),
    ),
    "text without quotes": Case(
        lambda t: t.update({"note": "new"}, where="id = 'a'"),
        '{"note": "\'new\'"}',
        lambda t: t.update({"note": "'new'"}, where="id = 'a'"),
        changed=("note",),
    ),
    "a rename": Case(
        lambda t: t.alter.rename_column("note", "text"),
        "rewrite=True",
        lambda t: (
            t.alter.rename_column("note", "text", rewrite=True),
            t.alter.rename_column("text", "note", rewrite=True),
        ),
    ),
    "a type that is no wider one": Case(
        lambda t: t.alter.widen_column("v", "float"),
        "alter.retype_column('v', type, rewrite=True)",
        lambda t: t.alter.retype_column("v", "float", rewrite=True),
    ),
    "values that do not fit a type": Case(
        lambda t: t.alter.retype_column("v", "int64", rewrite=True),
        "Correct these values with update() first",
        lambda t: (t.update({"v": "round(v)"}, where="v = 2.5"), t.alter.retype_column("v", "int64", rewrite=True)),
        changed=("v",),
    ),
    "a type without such values": Case(
        lambda t: t.alter.retype_column("note", "binary", rewrite=True),
        "Add another column, and fill it with update()",
        lambda t: (t.alter.add_column("raw", "binary", default=None), t.update({"raw": "encode(note)"})),
    ),
    "a check": Case(
        lambda t: (t.set_checks({"small": "v < 10"}), t.upsert([whole(v=11.0)])),
        "To change the checks of the table, call set_checks({...})",
        lambda t: (t.set_checks({"small": "v < 100"}), t.upsert([whole(v=11.0)])),
        changed=("v",),
    ),
    "a check of a column that goes": Case(
        lambda t: (t.set_checks({"small": "v < 10"}), t.alter.drop_column("v")),
        "Change the check first with set_checks({...}), which replaces all checks",
        lambda t: t.set_checks({}),
    ),
    "a commit to undo": Case(
        lambda t: t.maintenance.rollback(t.history()[0].instant),
        "To read the table before this instant",
        lambda t: t.scan(as_of=t.history()[1]).count(),
    ),
    "a commit to undo: restore": Case(
        lambda t: t.maintenance.rollback(t.history()[0].instant),
        "To undo this and all later commits",
        lambda t: t.restore(t.history()[1]),
        lost="To undo this and all later commits",
    ),
    "a table that is there": Case(
        lambda t: hoodoo.create(t.path, COLUMNS, key="id"),
        "Open it with hoodoo.open(path)",
        lambda t: hoodoo.open(t.path).count(),
    ),
    "an overwrite in words of another library": Case(
        lambda t: t.upsert([whole()], mode="overwrite"),
        "all rows with whole_table=True",
        lambda t: t.insert_overwrite([whole()], whole_table=True),
        lost="insert_overwrite(rows) replaces partitions, or all rows with whole_table=True",
    ),
    "a quarantine beside columns": Case(
        lambda t: t.upsert(PART, columns="given", on_bad_rows="quarantine"),
        "on_bad_rows='fail'",
        lambda t: t.upsert(PART, columns="given", on_bad_rows="fail"),
        changed=("note",),
    ),
    "a function that gets whole rows": Case(
        lambda t: t.upsert([whole()], columns="given", merge=hoodoo.CustomMerge(lambda old, new: {"v": old["v"]})),
        "Leave out columns",
        lambda t: t.upsert([whole()], merge=hoodoo.CustomMerge(lambda old, new: {"v": old["v"]})),
    ),
}


def stored(table: hoodoo.Table) -> dict[str, dict[str, Any]]:
    rows = hoodoo.open(table.path).scan().to_arrow().to_pylist()
    return {row["id"]: {name: value for name, value in row.items() if name in ROWS[0] and name != "ts"} for row in rows}


def lost(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], changed: tuple[str, ...]) -> list[str]:
    """What was stored and is not, but for columns that the caller set in rows that are there still."""
    gone = []
    for key, row in before.items():
        for name, value in row.items():
            if value is not None and (key not in after or after[key][name] != value):
                if key in after and name in changed and after[key][name] is not None:
                    continue
                gone.append(f"{name} of {key}")
    return gone


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", COLUMNS, key="id", order_by="ts", type=request.param)
    made.insert(ROWS[:2])
    made.insert(ROWS[2:])
    return made


@pytest.mark.parametrize("name", CASES)
def test_whoever_obeys_an_error_loses_what_it_speaks_of_and_nothing_else(table: hoodoo.Table, name: str) -> None:
    case, before = CASES[name], stored(table)
    with pytest.raises(hoodoo.HoodooError) as told:
        case.wrong(table)
    assert case.said in told.value.message
    assert stored(table) == before, "a refused call changes no row"
    case.remedy(table)
    gone = lost(before, stored(table), case.changed)
    assert bool(gone) == bool(case.lost), gone
    assert case.lost in told.value.message


def texts() -> list[tuple[str, str]]:
    """The texts of all messages: place, text."""
    found, here = [], Path(hoodoo.__file__).parent
    for path in _files(here):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
                found.append((f"{path.name}:{node.lineno}", "".join(map(str, parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((f"{path.name}:{node.lineno}", node.value))
    return found


def _files(here: Path) -> list[Path]:
    folders = [here, *(one for one in here.iterdir() if one.is_dir())]
    return sorted({path.resolve() for folder in folders for path in folder.rglob("*.py")})


def test_wherever_nulls_for_what_is_missing_are_advised_it_says_that_they_overwrite() -> None:
    advised = ('missing="null"', "missing='null'", "--missing null")
    for place, text in texts():
        if any(one in text for one in advised):
            assert "overwrite" in text, f"{place}: {text}"
    for page in (Path(hoodoo.__file__).parents[1] / "docs").glob("*.md"):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if any(one in line for one in advised) and not line.startswith(("|", " ", "`")):
                assert "overwrite" in line or "null" in line.replace("missing", ""), f"{page.name}:{number}: {line}"
