"""What a table's checks let in, whoever writes and whenever they were set."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.readers.predicate import checks
from hoodoo.timeline.slots.slot import SETTINGS
from hoodoo.writers import sources

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
FARE = {"fare_not_negative": "fare >= 0"}


def row(key: int, fare: float | None = 1.0, city: str = "x", ts: int = 1) -> dict[str, Any]:
    return {"id": key, "city": city, "ts": ts, "fare": fare}


def batch(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    how: dict[str, Any] = {"key": "id", "partition_by": "city", "order_by": "ts", "type": request.param}
    return hoodoo.create(tmp_path / "t", SCHEMA, checks=FARE, **how)


WRITES: dict[str, Callable[[hoodoo.Table, pa.Table], Any]] = {
    "upsert": lambda t, rows: t.upsert(rows),
    "insert": lambda t, rows: t.insert(rows, existing="keep"),
    "bulk_insert": lambda t, rows: t.insert(rows, existing="keep", bulk=True),
    "insert_overwrite": lambda t, rows: t.insert_overwrite(rows),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_every_write_refuses_a_row_that_fails_and_names_check_text_row_and_key(
    table: hoodoo.Table, write: Callable[[hoodoo.Table, pa.Table], Any]
) -> None:
    before = table.cursor
    with pytest.raises(hoodoo.CheckFailed) as refused:
        write(table, batch(row(1), row(2, -0.5), row(3, -1.0)))
    assert refused.value.code == "CHECK_FAILED"
    assert refused.value.details == {
        "check": "fare_not_negative",
        "text": "fare >= 0",
        "row": 1,
        "key": "{'id': 2}",
    }
    assert all(part in refused.value.message for part in ("Row 1", "{'id': 2}", "fare_not_negative", "fare >= 0"))
    again = pickle.loads(pickle.dumps(refused.value))
    assert (type(again), again.details) == (hoodoo.CheckFailed, refused.value.details)
    assert table.cursor == before and not list(table.handle.store.list("city="))
    write(table, batch(row(1)))
    assert table.scan().count() == 1


def test_null_passes_nan_does_not_and_deletes_are_not_looked_at(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, None), row(2, 0.0)))
    with pytest.raises(hoodoo.CheckFailed):
        table.upsert(batch(row(3, float("nan"))))
    flags = pa.array([True, None])
    table.upsert(batch(row(1, -1.0, ts=2), row(2, 5.0, ts=2)).append_column("_hoodie_is_deleted", flags))
    assert [one["id"] for one in table.scan().to_arrow().to_pylist()] == [2]
    table.delete(batch(row(2, -9.0)))
    assert not table.scan().count()


def test_checks_are_properties_that_a_slot_sets_and_replaces(table: hoodoo.Table) -> None:
    assert table.checks == FARE == hoodoo.open(table.path).checks
    other = hoodoo.open(table.path)
    table.set_checks({"b": "fare < 10 OR city != 'ü'", "a": "ts > 0"})
    slot = table.handle.history.slot(table.handle.history.head().seq)
    assert SETTINGS in slot.needs and slot.settings["hoodoo.check.fare_not_negative"] == ""
    assert hoodoo.open(table.path).checks == {"a": "ts > 0", "b": "fare < 10 OR city != 'ü'"}
    other.upsert(batch(row(1, -5.0)))  # opened before, and the check of then is gone
    with pytest.raises(hoodoo.CheckFailed):
        other.upsert(batch(row(1, 5.0, ts=0)))
    table.set_checks({})
    assert table.checks == {} == hoodoo.open(table.path).checks


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"a": "no_such_column > 0"}, hoodoo.PredicateError, "'a'"),
        ({"a": "fare >"}, hoodoo.PredicateError, "'a'"),
        ({"a b": "fare > 0"}, hoodoo.OptionError, "a b"),
        ({"a" * 65: "fare > 0"}, hoodoo.OptionError, "64|63"),
        ({"a": ""}, hoodoo.OptionError, "'a'"),
        ({"a": 1}, hoodoo.OptionError, "'a'"),
        (["fare > 0"], hoodoo.OptionError, "dict"),
        ("fare > 0", hoodoo.OptionError, "dict"),
    ],
)
def test_a_check_that_cannot_be_is_refused_by_name_and_nothing_changes(
    table: hoodoo.Table, tmp_path: Path, given: Any, error: type[hoodoo.HoodooError], said: str
) -> None:
    before = table.cursor
    for call in (table.set_checks, lambda wrong: hoodoo.create(tmp_path / "n", SCHEMA, key="id", checks=wrong)):
        with pytest.raises(error, match=said):
            call(given)
    assert table.cursor == before and table.checks == FARE and not (tmp_path / "n" / ".hoodie").exists()


def test_a_write_that_began_before_the_check_was_set_is_held_against_it(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row was prepared, located and written to a file while there was no such check; the slot is not taken."""
    table.set_checks({})
    other, locate = hoodoo.open(table.path), sources.find_files_by_key

    def located(*arguments: Any, **named: Any) -> Any:
        if not other.checks:
            other.set_checks({"small": "fare < 100"})
        return locate(*arguments, **named)

    monkeypatch.setattr(sources, "find_files_by_key", located)
    with pytest.raises(hoodoo.CheckFailed, match="small") as refused:
        table.upsert(batch(row(1), row(1, ts=0), row(2, 500.0)))
    assert refused.value.details["row"] == 2, "as the batch was given, with its duplicates"
    assert not table.scan().count()
    assert table.upsert(batch(row(1))).retries == 0


def test_a_write_that_began_before_a_check_goes_on_where_its_rows_pass(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, locate = hoodoo.open(table.path), sources.find_files_by_key

    def located(*arguments: Any, **named: Any) -> Any:
        if other.checks == FARE:
            other.set_checks({"small": "fare < 100"})
        return locate(*arguments, **named)

    monkeypatch.setattr(sources, "find_files_by_key", located)
    assert table.upsert(batch(row(1))).retries == 1
    assert table.scan().count() == 1


def test_verify_names_stored_rows_that_break_a_check_set_later(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1, 5.0), row(2, 50.0), row(3, 50.0, city="y")))
    table.set_checks({"small": "fare < 10"})
    problems = table.verify().problems
    assert [problem.code for problem in problems] == ["CHECK", "CHECK"]
    assert "'small'" in problems[0].text and "'2'" in problems[0].text
    table.upsert(batch(row(2, 5.0, ts=2)))
    table.delete(batch(row(3, city="y")))
    assert table.verify().ok


def test_the_checks_of_a_column_are_named_and_renamed(table: hoodoo.Table) -> None:
    """What a change of columns asks before it drops or renames one."""
    table.set_checks({"a": "fare >= 0 AND ts > 1", "b": "city IN ('fare')", "c": '"fare" IS NULL OR `fare` < 5'})
    config = table.handle.config
    stored = checks.load_checks(config)
    assert checks.names(stored, "fare") == ["a", "c"]
    assert checks.names(stored, "city") == ["b"] and checks.names(stored, "id") == []
    assert checks.rename_check_columns("fare >= 0  AND (ts > 1 OR fare = 7)", {"fare": "price"}) == (
        "price >= 0  AND (ts > 1 OR price = 7)"
    )
    assert (
        checks.rename_check_columns("city IN ('fare') AND fares > 0", {"fare": "price"})
        == "city IN ('fare') AND fares > 0"
    )
    for name in ("order", "a b", 'quo"te', "select", "ünder", "null", "case"):
        text = checks.rename_check_columns("\"fare\" IS NULL OR `fare` < 5 OR fare LIKE '%x'", {"fare": name})
        text = text.replace("LIKE '%x'", "= 1")
        [check] = checks.parse_checks({"c": text}, pa.schema([(name, pa.float64())]))
        assert check.columns == {name}
    with pytest.raises(hoodoo.PredicateError):
        checks.rename_check_columns("fare >", {"fare": "price"})


def test_a_restore_takes_checks_back_to_the_names_that_their_columns_had(table: hoodoo.Table) -> None:
    """The rename had rewritten the check, and a restore to the time before it was refused, with no way but to give the
    check up for a while.
    """
    table.alter([hoodoo.AddColumn("tip", pa.float64(), 0.0)])
    table.upsert(pa.Table.from_pylist([{**row(1), "tip": 2.0}], schema=table.schema))
    table.savepoints.create("eod")
    swap = [hoodoo.RenameColumn(*names) for names in (("fare", "x"), ("tip", "fare"), ("x", "tip"))]
    table.alter(swap, rewrite=True)
    table.set_checks({"fare_not_negative": "tip >= 0", "both": "fare < 100 OR tip > 7 AND ts > 0"})
    table.restore("eod")
    assert table.checks == {"fare_not_negative": "fare >= 0", "both": "tip < 100 OR fare > 7 AND ts > 0"}
    assert hoodoo.open(table.path).checks == table.checks and table.schema.names[-2:] == ["fare", "tip"]
    assert table.get([{"id": 1, "city": "x"}]).to_pylist() == [{**row(1), "tip": 2.0}]
    with pytest.raises(hoodoo.CheckFailed, match="fare >= 0"):
        table.upsert(pa.Table.from_pylist([{**row(2, -1.0), "tip": 0.0}], schema=table.schema))


def test_a_restore_that_would_take_a_check_s_column_away_says_which_check_to_leave_out(table: hoodoo.Table) -> None:
    table.upsert(batch(row(1)))
    then = table.cursor
    table.alter.add_column("tip", pa.float64(), default=0.0)
    table.set_checks({**FARE, "tip": "tip >= 0"})
    before = table.cursor
    with pytest.raises(hoodoo.SchemaError, match=r"'tip'.*set_checks"):
        table.restore(then)
    assert table.cursor == before and "tip" in table.schema.names
    table.set_checks(FARE)
    table.restore(then)
    assert table.schema == SCHEMA and table.checks == FARE


def test_a_check_may_name_a_column_that_is_called_as_ours_was(tmp_path: Path) -> None:
    """The column that numbers rows was called `_hoodoo_row`: a batch for such a check ended in a bare KeyError."""
    schema = pa.schema([("id", pa.int64()), ("_hoodoo_row", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", checks={"c": "_hoodoo_row > 0"})
    table.upsert(pa.table({"id": [1], "_hoodoo_row": [7]}))
    with pytest.raises(hoodoo.CheckFailed, match="Row 1 "):
        table.upsert(pa.table({"id": [2, 3], "_hoodoo_row": [1, 0]}))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "_hoodoo_row": 7}] and table.verify().ok


def test_a_check_of_a_column_that_is_named_like_a_keyword_follows_its_rename(tmp_path: Path) -> None:
    """A condition that `where` takes was refused as a check."""
    table = hoodoo.create(tmp_path / "t", "id bigint, desc bigint", key="id", checks={"p": "desc >= 0"})
    assert table.checks == {"p": '"desc" >= 0'}
    table.alter.rename_column("desc", "n")
    assert table.checks == {"p": "n >= 0"}
    with pytest.raises(hoodoo.CheckFailed):
        table.upsert([{"id": 1, "n": -1}])
