"""`update` and `delete(where=...)`: what they write, what they refuse, and what others write meanwhile."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hoodoo
from hoodoo.readers.predicate import duckdb_engine, sql
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.writers.files import in_place

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("n", pa.int64()),
        ("fare", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("seen", pa.timestamp("us", "UTC")),
        ("spot", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def row(number: int, **more: object) -> dict[str, Any]:
    return {
        "id": number,
        "city": "rome" if number % 2 else "oslo",
        "n": number,
        "fare": number * 1.5,
        "price": decimal.Decimal(number),
        "seen": START + dt.timedelta(days=number),
        "spot": {"x": number, "y": "k"},
        "tags": ["a", None],
    } | more


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def trips(path: Path, kind: str, count: int = 10, **options: object) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", **{"partition_by": "city", "type": kind, **options})
    table.insert(pa.Table.from_pylist([row(number) for number in range(count)], schema=SCHEMA))
    return table


def rows(table: hoodoo.Table, *columns: str) -> dict[int, Any]:
    found = table.scan().to_arrow().to_pylist()
    return {one["id"]: one[columns[0]] if len(columns) == 1 else tuple(one[name] for name in columns) for one in found}


# ---- what is written
@pytest.mark.parametrize("order_by", [None, "seen"])
@pytest.mark.parametrize("small", [0, 1 << 20], ids=["in place", "whole"])
def test_an_update_that_rewrites_files_reads_the_columns_that_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order_by: str | None, small: int
) -> None:
    """All columns of the rows were read, and those that stay were copied from the file nevertheless."""
    count, asked, call = 100, set[str](), SliceTask.located
    table = trips(tmp_path / "t", "copy_on_write", count, order_by=order_by, partition_by=None)
    monkeypatch.setattr(in_place, "_SMALL", small)

    def noted(task: SliceTask) -> tuple[pa.Table, np.ndarray | None]:
        asked.update(task.columns)
        return call(task)

    monkeypatch.setattr(SliceTask, "located", noted)
    result = table.update({"n": "n + 1", "tags": "NULL"}, where="fare >= 6")
    monkeypatch.undo()
    assert asked == {"_hoodie_record_key", "id", "n", "tags", *([order_by] if order_by else [])}
    assert (result.updated, result.exact) == (count - 4, True)
    changed = [row(number) | ({"n": number + 1, "tags": None} if number >= 4 else {}) for number in range(count)]
    want = pa.Table.from_pylist(changed, SCHEMA)
    assert table.scan().to_arrow().sort_by("id").equals(want)
    assert table.verify().problems == []


def test_rows_that_match_get_the_values_of_their_expressions(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    result = table.update({"n": "n + 1", "fare": "round(fare * 1.1, 2)"}, where="city = 'rome' AND n > 4")
    assert (result.updated, result.inserted, result.deleted, result.exact) == (3, 0, 0, True)
    assert {key: value for key, value in rows(table, "n", "fare").items() if value != (key, key * 1.5)} == {
        5: (6, 8.25),
        7: (8, 11.55),
        9: (10, 14.85),
    }


@pytest.mark.parametrize(
    ("set_", "column", "value"),
    [
        ({"tags": "list_transform(tags, lambda t: t || '!')"}, "tags", ["a!", None]),
        ({"spot": {"x": 7, "y": "z"}}, "spot", {"x": 7, "y": "z"}),
        ({"spot": None}, "spot", None),
        ({"spot": "struct_pack(x := spot.x + 1, y := upper(spot.y))"}, "spot", {"x": 4, "y": "K"}),
        ({"price": "price / 4"}, "price", decimal.Decimal("0.75")),
        ({"price": decimal.Decimal("9.5")}, "price", decimal.Decimal("9.50")),
        ({"fare": 2}, "fare", 2.0),
        ({"seen": "seen + INTERVAL 1 DAY"}, "seen", START + dt.timedelta(days=4)),
        ({"seen": START}, "seen", START),
        ({"n": "CASE WHEN city = 'rome' THEN 1 ELSE 2 END"}, "n", 1),
        ({"tags": "NULL"}, "tags", None),
        (lambda found: {"n": pc.negate(found["n"])}, "n", -3),
        (lambda found: found.set_column(2, "n", pc.negate(found["n"])), "n", -3),
    ],
)
def test_values_of_every_kind_can_be_set(tmp_path: Path, set_: Any, column: str, value: object) -> None:
    table = trips(tmp_path / "t", "merge_on_read")
    assert table.update(set_, where="id = 3").updated == 1
    assert rows(table, column)[3] == value


def test_an_update_that_changes_nothing_writes_nothing_and_is_no_change(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    before = table.scan().cursor
    result = table.update({"n": "n", "fare": "fare + 0"}, where="id < 5")
    assert (result.updated, result.instant, result.files) == (0, "", 0)
    table.update({"n": "greatest(n, 8)"})
    assert sorted(change["after"]["id"] for change in table.changes(before).to_arrow().to_pylist()) == list(range(8))


def test_rows_that_match_a_condition_are_deleted(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    result = table.delete(where="n % 3 = 0 AND city = 'oslo'")
    assert (result.deleted, result.exact) == (2, True)
    assert sorted(rows(table, "n")) == [1, 2, 3, 4, 5, 7, 8, 9]
    assert table.insert(pa.Table.from_pylist([row(6, n=60)], schema=SCHEMA)).inserted == 1


def test_file_groups_that_match_as_a_whole_are_dropped_unread(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    before = table.scan().cursor
    result = table.delete(where="city = 'rome' AND n >= 1")
    assert (result.deleted, result.files) == (5, 0)
    assert sorted(rows(table, "n")) == [0, 2, 4, 6, 8]
    assert sorted(change["before"]["id"] for change in table.changes(before).to_arrow().to_pylist()) == [1, 3, 5, 7, 9]
    assert table.verify().problems == []


def test_one_delete_drops_a_file_group_and_takes_rows_from_another(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    assert table.delete(where="city = 'rome' OR n = 2").deleted == 6
    assert sorted(rows(table, "n")) == [0, 4, 6, 8]
    assert table.verify().problems == []


def test_the_default_partition_is_never_dropped_unread(tmp_path: Path, kind: str) -> None:
    """Null and an empty text lie in one folder, and its name says neither."""
    table = trips(tmp_path / "t", kind, count=0)
    both = [row(1, city=None), row(2, city="")]
    table.insert(pa.Table.from_pylist(both, schema=SCHEMA))
    assert table.delete(where="city = ''").deleted == 1
    assert rows(table, "city") == {1: None}


def test_nan_is_no_number_above_all_others(tmp_path: Path, kind: str) -> None:
    """DuckDB takes NaN for greater than all; a condition means what it means in a scan."""
    table = trips(tmp_path / "t", kind, count=0)
    given = [row(1, fare=float("nan")), row(2, fare=9.0), row(3, fare=1.0)]
    table.insert(pa.Table.from_pylist(given, schema=SCHEMA))
    assert table.update({"n": 100}, where="fare > 5 AND abs(n) > 0").updated == 1
    assert rows(table, "n") == {1: 1, 2: 100, 3: 3}


def test_a_condition_that_is_null_matches_no_row(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    assert table.update({"n": -1}, where="NULL").updated == 0
    assert table.delete(where="id > 2 AND NULL").deleted == 0


def test_now_is_one_moment_for_all_rows(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    before = dt.datetime.now(dt.timezone.utc)
    table.update({"seen": "now()"})
    after = dt.datetime.now(dt.timezone.utc)
    (moment,) = set(rows(table, "seen").values())
    assert before <= moment <= after


def test_an_update_reaches_rows_in_logs_and_in_bases(tmp_path: Path) -> None:
    table = trips(tmp_path / "t", "merge_on_read", order_by="n")
    table.upsert(pa.Table.from_pylist([row(1, n=50, fare=5.0)], schema=SCHEMA))
    assert table.update({"fare": "fare + 1"}, where="city = 'rome'").updated == 5
    assert table.update({"fare": "fare + 1"}, where="n = 50").updated == 1
    table.compact()
    assert rows(table, "n", "fare")[1] == (50, 7.0)
    assert rows(table, "fare")[3] == 5.5


def test_a_change_log_tells_what_an_update_and_a_delete_did(tmp_path: Path) -> None:
    table = trips(tmp_path / "t", "copy_on_write", change_log="before_after")
    table.update({"n": "n + 1"}, where="id = 4")
    table.delete(where="id = 5")
    assert rows(table, "n")[4] == 5
    assert 5 not in rows(table, "n")
    assert table.verify().problems == []


# ---- beside other writers
def once(act: Callable[[], object]) -> Callable[[pa.Table], dict[str, pa.Array]]:
    """A function for `set` that adds one to `n`, while `act` happens the first time."""
    left = [act]

    def add(found: pa.Table) -> dict[str, pa.Array]:
        while left:
            left.pop()()
        return {"n": pc.add(found["n"], 1)}

    return add


def test_two_increments_that_overlap_both_count(tmp_path: Path, kind: str) -> None:
    """Each merge-on-read writer of n = n + 1 logged its row, and the later log hid the earlier one: 1 was lost."""
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    result = table.update(once(lambda: other.update({"n": "n + 1"}, where="id = 3")), where="id = 3")
    assert (result.retries, rows(table, "n")[3]) == (1, 5)


def test_a_row_that_comes_to_match_meanwhile_is_updated(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    late = pa.Table.from_pylist([row(20, city="bonn", n=7)], schema=SCHEMA)
    assert table.update(once(lambda: other.insert(late)), where="n = 7").retries == 1
    assert (rows(table, "n")[7], rows(table, "n")[20]) == (8, 8)


def test_a_row_that_cannot_match_disturbs_nobody(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    late = pa.Table.from_pylist([row(20, city="bonn", n=900)], schema=SCHEMA)
    assert table.update(once(lambda: other.insert(late)), where="n = 7").retries == 0
    assert table.update(once(lambda: other.compact()), where="n = 8").retries == 0


def test_a_row_that_was_deleted_meanwhile_stays_deleted(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    table.update(once(lambda: other.delete(where="id = 3")), where="city = 'rome'")
    assert 3 not in rows(table, "n")


def test_a_column_that_was_renamed_meanwhile_is_asked_for_by_its_new_name(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    with pytest.raises(hoodoo.PredicateError, match="There is no column 'fare'"):
        table.update(once(lambda: other.alter.rename_column("fare", "toll", rewrite=True)), where="fare > 3 AND id = 3")
    assert rows(table, "n")[3] == 3


def test_a_write_on_a_head_is_refused_once_a_row_was_written(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    head = table.scan().cursor
    table.compact()
    table.maintenance.clean()  # slots that change no row do not count
    assert table.update({"n": 1}, where="id = 3", if_head=head).updated == 1
    batch = pa.Table.from_pylist([row(30)], schema=SCHEMA)
    for write in (
        lambda: table.upsert(batch, if_head=head),
        lambda: table.insert(batch, if_head=str(head)),
        lambda: table.delete(batch.select(["id", "city"]), if_head=head),
        lambda: table.delete(where="id = 1", if_head=head),
        lambda: table.update({"n": "n + 1"}, if_head=head),
    ):
        with pytest.raises(hoodoo.CommitConflict, match="expected no new rows after slot"):
            write()
    assert 30 not in rows(table, "n")
    assert table.upsert(batch, if_head=table.scan().cursor).inserted == 1


def test_a_write_on_a_head_is_refused_where_a_row_is_written_while_it_runs(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    other = hoodoo.open(tmp_path / "t")
    late = pa.Table.from_pylist([row(20, city="bonn", n=900)], schema=SCHEMA)
    with pytest.raises(hoodoo.CommitConflict, match="INSERT"):
        table.update(once(lambda: other.insert(late)), where="n = 7", if_head=table.scan().cursor)
    assert rows(table, "n")[7] == 7


def test_an_update_under_a_transaction_happens_once(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    assert table.update({"n": "n + 1"}, transaction=("job", 1)).updated == 10
    assert table.update({"n": "n + 1"}, transaction=("job", 1)).skipped
    assert table.delete(where="n = 1", transaction=("job", 2)).deleted == 1
    assert table.delete(where="n > 1", transaction=("job", 2)).skipped
    assert table.update({"n": "n"}, transaction=("job", 3)).updated == 0
    assert table.update({"n": "n + 1"}, transaction=("job", 3)).skipped
    assert len(rows(table, "n")) == 9


# ---- what is refused
@pytest.mark.parametrize(
    ("set_", "error", "match"),
    [
        ({"id": "1"}, hoodoo.ColumnError, "a key column"),
        ({"city": "'x'"}, hoodoo.ColumnError, "a partition column"),
        ({"seen": "now()"}, hoodoo.ColumnError, "the ordering column"),
        ({"N": "1"}, hoodoo.ColumnError, "'N' is not in the table"),
        ({"n": "n * 1.5"}, hoodoo.ColumnError, "cannot be converted exactly.*key {'id': 1}.*round"),
        ({"n": "'a'"}, hoodoo.ColumnError, "has the wrong type: expected int64, got string"),
        ({"n": 1.5}, hoodoo.ColumnError, "cannot be converted exactly"),
        ({"n": object()}, hoodoo.ColumnError, "'n'"),
        ({"n": "+".join(["1"] * 900)}, hoodoo.ExpressionError, "nested levels"),
        ({"n": "n // 0"}, hoodoo.ExpressionError, "expression .n // 0"),
        ({"n": "m + 1"}, hoodoo.ExpressionError, "no column 'm'"),
        ({"n": "n +"}, hoodoo.ExpressionError, "syntax error"),
        ({"n": "n, 2"}, hoodoo.ExpressionError, "single SQL expression"),
        ({"n": "n AS m"}, hoodoo.ExpressionError, "single SQL expression"),
        ({"n": "n FROM (SELECT 1)"}, hoodoo.ExpressionError, "single SQL expression"),
        ({"n": "n; DROP TABLE x"}, hoodoo.ExpressionError, "SELECT"),
        ({"n": "sum(n)"}, hoodoo.ExpressionError, "one value per row"),
        ({"n": "count(*)"}, hoodoo.ExpressionError, "one value per row"),
        ({"n": "unnest([1, 2])"}, hoodoo.ExpressionError, "one value per row"),
        ({"n": "(SELECT 1)"}, hoodoo.ExpressionError, "subquery"),
        ({"n": "row_number() OVER ()"}, hoodoo.ExpressionError, "window"),
        ({"n": "random()"}, hoodoo.ExpressionError, "returns a different value in each call"),
        ({"tags": "[uuid()::VARCHAR]"}, hoodoo.ExpressionError, "returns a different value in each call"),
        ({"tags": "read_text('/etc/hostname')"}, hoodoo.ExpressionError, "one value per row"),
        ({"n": "$1"}, hoodoo.ExpressionError, "parameter"),
        ({"n": "#1"}, hoodoo.ExpressionError, "by number"),
        ({"n": "CAST('x' || city AS INT)"}, hoodoo.ExpressionError, "Could not convert"),
        ({"n": "no_such_function(n)"}, hoodoo.ExpressionError, "does not exist"),
        ({}, hoodoo.OptionError, "Option set is invalid"),
        ("n = 1", hoodoo.OptionError, "Option set is invalid"),
        (lambda found: None, hoodoo.ColumnError, "returned None"),
        (lambda found: {"n": pa.array([1])}, hoodoo.ColumnError, "1 values of column 'n' for 5 rows"),
        (lambda found: {"n": [1] * len(found)}, hoodoo.ColumnError, "expected an Arrow array"),
        (lambda found: {"id": pc.add(found["id"], 1)}, hoodoo.ColumnError, "a key column"),
    ],
)
def test_what_cannot_be_set_is_refused_before_anything_is_written(
    tmp_path: Path, kind: str, set_: Any, error: type[Exception], match: str
) -> None:
    table = trips(tmp_path / "t", kind, order_by="seen")
    head, inflight = table.cursor, list((tmp_path / "t/.hoodie/timeline").glob("*.inflight"))
    with pytest.raises(error, match=match):
        table.update(set_)
    assert table.cursor == head
    assert list((tmp_path / "t/.hoodie/timeline").glob("*.inflight")) == inflight


@pytest.mark.parametrize(
    ("where", "error", "match"),
    [
        ("n +", hoodoo.PredicateError, "is missing here"),
        ("n + 1", hoodoo.PredicateError, "must be a condition"),
        ("m + 1 > 2", hoodoo.PredicateError, "no column 'm'"),
        ("N = 1", hoodoo.PredicateError, "did you mean n"),
        ("random() < 0.5", hoodoo.PredicateError, "different value"),
        ("n IN (SELECT 1)", hoodoo.PredicateError, "subquery"),
        (3, hoodoo.OptionError, "Option where is invalid"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused(
    tmp_path: Path, where: Any, error: type[Exception], match: str
) -> None:
    table = trips(tmp_path / "t", "merge_on_read")
    with pytest.raises(error, match=match):
        table.delete(where=where)
    with pytest.raises(error, match=match):
        table.update({"n": 1}, where=where)


@pytest.mark.parametrize("given", [{}, {"data": [{"id": 1, "city": "rome"}], "where": "id = 1"}, {"data": "id = 1"}])
def test_a_delete_takes_rows_or_a_condition(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(hoodoo.OptionError, match="where=..."):
        trips(tmp_path / "t", "merge_on_read").delete(**given)


def test_an_update_obeys_checks_and_columns_without_nulls(tmp_path: Path, kind: str) -> None:
    schema = SCHEMA.set(2, SCHEMA.field("n").with_nullable(False))
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind, checks={"paid": "fare >= 0"})
    table.insert(pa.Table.from_pylist([row(1)], schema=schema))
    with pytest.raises(hoodoo.CheckFailed, match="'paid'"):
        table.update({"fare": "-fare"})
    with pytest.raises(hoodoo.ColumnError, match="'n' is null"):
        table.update({"n": None})
    assert rows(table, "n", "fare") == {1: (1, 1.5)}


def test_without_duckdb_simple_conditions_and_values_work_and_expressions_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips(tmp_path / "t", "merge_on_read")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert table.update({"n": 5}, where="id = 3").updated == 1
    assert table.delete(where="n = 5").deleted == 2
    with pytest.raises(hoodoo.EngineError, match=r"hoodoo\[sql\]"):
        table.update({"n": "n + 1"})
    with pytest.raises(hoodoo.PredicateError, match=r"hoodoo\[sql\]"):
        table.delete(where="n + 1 = 2")


def test_an_expression_cannot_change_its_surroundings_or_see_them(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    with pytest.raises(hoodoo.HoodooError):
        sql.read_expression(f"read_text('{secret}')", SCHEMA, START, "where")
    with duckdb_engine.cursor() as cursor, pytest.raises(Exception, match="locked"):
        cursor.execute("SET enable_external_access=true")
    outer = pa.table({"x": [1]})  # no name of the program is a table
    with duckdb_engine.cursor() as cursor, pytest.raises(Exception, match="outer"):
        cursor.execute("SELECT * FROM outer")
    assert len(outer) == 1


# ---- deletes by key, wherever the row is
def test_keys_without_a_partition_are_deleted_wherever_they_are(tmp_path: Path, kind: str) -> None:
    table = trips(tmp_path / "t", kind)
    again = [row(1, city="oslo"), row(12, city="bonn")]
    table.insert(pa.Table.from_pylist(again, schema=SCHEMA))
    result = table.delete([1, 2, 99])
    assert (result.deleted, sorted(rows(table, "n"))) == (3, [0, 3, 4, 5, 6, 7, 8, 9, 12])
    assert table.delete(pa.table({"id": [12, 3], "n": [0, 0]})).deleted == 2
    assert table.delete([{"id": 4}]).deleted == 1
    assert table.delete([]).instant == ""
    table.delete([1, 2])
    assert sorted(rows(table, "n")) == [0, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("keys", [2, {2}, iter([2]), {2: "x"}.keys(), (2,), pa.scalar(2), np.int64(2), np.array([2])])
def test_bare_keys_are_given_in_any_collection_or_alone(tmp_path: Path, keys: Any) -> None:
    table = trips(tmp_path / "t", "merge_on_read", 4)
    again = [2] if isinstance(keys, Iterator) else keys
    assert table.get(keys)["id"].to_pylist() == [2]
    assert table.delete(again).deleted == 1
    assert sorted(rows(table, "n")) == [0, 1, 3]


def test_a_condition_reads_no_further_than_its_text_goes(tmp_path: Path, kind: str) -> None:
    """DuckDB's parser took "'a" for all of "'a\\0b'", and another row was deleted."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind)
    table.upsert([{"id": "a", "n": 1}, {"id": "a\0b", "n": 2}, {"id": "c", "n": 3}])
    with pytest.raises(hoodoo.PredicateError, match=r"chr\(0\)"):
        table.delete(where="id || '' = 'a\0b'")
    with pytest.raises(hoodoo.ExpressionError, match=r"chr\(0\)"):
        table.update({"n": "CASE WHEN id = 'a\0b' THEN 9 ELSE n END"})
    assert table.delete(where="id || '' = 'a' || chr(0) || 'b'").deleted == 1
    assert table.delete(where="id = 'a\0b'").deleted == 0
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "c"]


def test_text_that_is_no_utf_8_is_refused_in_words_that_can_be_written(tmp_path: Path) -> None:
    table = trips(tmp_path / "t", "merge_on_read", 1)
    calls: list[Callable[[], object]] = [
        lambda: table.upsert([row(1) | {"\ud800": 1}]),
        lambda: table.scan(where="city = '\ud800'"),
        lambda: table.delete(where="upper(city) = '\ud800'"),
        lambda: table.merge([{"id": 1, "\ud800": 1}]).when_matched_delete().execute(),
    ]
    for call in calls:
        with pytest.raises(hoodoo.HoodooError, match="UTF-8") as refused:
            call()
        str(refused.value).encode()


def test_a_key_of_several_columns_is_given_as_rows(tmp_path: Path, kind: str) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key=["id", "n"], partition_by=["city", "price"], type=kind)
    table.insert(pa.Table.from_pylist([row(1), row(2)], schema=SCHEMA))
    with pytest.raises(hoodoo.ColumnError, match="2 columns"):
        table.delete([1])
    with pytest.raises(hoodoo.ColumnError, match="not all partition columns: city, price"):
        table.delete([{"id": 1, "n": 1, "city": "rome"}])
    with pytest.raises(hoodoo.ColumnError, match="'n'"):
        table.delete([{"id": 1}])
    assert table.delete([{"id": 1, "n": 1}]).deleted == 1
    assert list(rows(table, "n")) == [2]


def test_a_key_that_comes_into_another_partition_meanwhile_is_deleted_too(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips(tmp_path / "t", kind)
    other, attempt = hoodoo.open(tmp_path / "t"), TableTimeline.attempt
    late = [pa.Table.from_pylist([row(3, city="bonn")], schema=SCHEMA)]

    def overtaken(self: TableTimeline, *given: Any) -> Any:
        if self is table.handle.timeline and late:
            other.insert(late.pop())
        return attempt(self, *given)

    monkeypatch.setattr(TableTimeline, "attempt", overtaken)
    assert table.delete([3]).retries == 1
    assert 3 not in rows(table, "n")
