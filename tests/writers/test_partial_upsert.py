"""`upsert` of some columns: what stays, what new keys get, what is refused, and what others write meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.timeline.timeline import TableTimeline

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64()), ("state", pa.string()), ("fare", pa.float64())]
)


def row(number: int, ts: int = 5, **more: object) -> dict[str, Any]:
    return {"id": number, "day": "a", "ts": ts, "state": f"s{number}", "fare": number / 2} | more


def part(number: int, ts: int = 6, **more: object) -> dict[str, Any]:
    """A row that brings nothing but `more`."""
    return {"id": number, "day": "a", "ts": ts} | more


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def orders(path: Path, kind: str, order_by: str | None = "ts", **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="day", order_by=order_by, type=kind, **options)
    table.insert(pa.Table.from_pylist([row(number) for number in range(6)], schema=SCHEMA))
    return table


def rows(table: hoodoo.Table) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in table.scan().to_arrow().to_pylist()}


# ---- what is written
@pytest.mark.parametrize("how", [{"columns": "given"}, {"columns": ["state"]}])
def test_columns_that_the_batch_lacks_keep_their_stored_values(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    table = orders(tmp_path / "t", kind)
    result = table.upsert([part(1, state="paid"), part(4, state=None)], **how)
    assert (result.updated, result.inserted, result.stale, result.exact) == (2, 0, 0, True)
    stored = {number: row(number) for number in range(6)}
    assert rows(table) == stored | {1: row(1, 6, state="paid"), 4: row(4, 6, state=None)}


def test_a_named_column_changes_and_others_of_the_batch_are_ignored(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    table.upsert([row(1, 9, state="no", fare=77.0), row(8, 9, state="no", fare=8.0)], columns=["fare"])
    assert rows(table)[1] == row(1, 9, fare=77.0)
    assert rows(table)[8] == row(8, 9, state=None, fare=8.0)


def test_a_row_with_a_smaller_ordering_value_is_stale_as_a_whole(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    result = table.upsert([part(1, 4, state="late"), part(2, 5, state="on a tie")], columns="given")
    assert (result.updated, result.stale) == (1, 1)
    assert (rows(table)[1]["state"], rows(table)[2]["state"]) == ("s1", "on a tie")


def test_a_row_that_is_equal_to_the_stored_one_is_not_written(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    result = table.upsert([part(1, 5, state="s1")], columns="given")
    assert (result.updated, result.files, result.instant) == (0, 0, "")


def test_rows_flagged_as_deleted_go_by_the_ordering_rule(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    flag = {"_hoodie_is_deleted": True}
    batch = [part(0, 4) | flag, part(1) | flag, part(2) | {"_hoodie_is_deleted": False}, part(99) | flag]
    result = table.upsert(batch, columns="given", new_keys="fail")
    assert (result.deleted, result.updated, result.stale) == (1, 1, 1)
    assert set(rows(table)) == {0, 2, 3, 4, 5}


def test_of_two_rows_of_a_key_the_newer_one_counts(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    result = table.upsert([part(1, 8, state="new"), part(1, 7, state="old")], columns="given")
    assert (result.updated, result.stale, rows(table)[1]["state"]) == (1, 1, "new")
    with pytest.raises(hoodoo.DuplicateKeys):
        table.upsert([part(1, 8, state="new"), part(1, 7, state="old")], columns="given", duplicates="fail")


def test_the_change_feed_shows_the_whole_row_before_and_after(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    since = table.cursor
    table.upsert([part(1, state="paid"), part(2, 5, state="s2")], columns="given")
    found = [(one["op"], one["before"], one["after"]) for one in table.changes(since).to_arrow().to_pylist()]
    assert found == [("u", row(1), row(1, 6, state="paid"))]


# ---- new keys
def test_new_keys_get_defaults_or_nulls(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    table.alter.add_column("tip", pa.int64(), default=3)
    assert table.upsert([part(9, state="new")], columns="given").inserted == 1
    assert rows(table)[9] == part(9, state="new", fare=None, tip=3)


def test_new_keys_are_left_out_where_the_caller_says_so(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    result = table.upsert([part(1, state="paid"), part(9, state="x")], columns="given", new_keys="ignore")
    assert (result.inserted, result.updated, set(rows(table))) == (0, 1, set(range(6)))
    assert table.upsert([row(2, 8), row(9)], new_keys="ignore").updated == 1  # whole rows, too
    assert rows(table)[2] == row(2, 8)


def test_new_keys_are_named_and_nothing_is_written_where_they_fail(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    before = table.cursor
    with pytest.raises(hoodoo.KeyNotFound, match="2 keys of the update are not in the table: '8', '9'") as refused:
        table.upsert([part(9, state="x"), part(1, state="x"), part(8, state="x")], columns="given", new_keys="fail")
    assert refused.value.details["keys"] == ["8", "9"] and table.cursor == before


def test_a_new_key_needs_the_columns_that_take_no_null(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="day", type=kind)
    table.insert([row(1, must=1)])
    assert table.upsert([part(1, state="paid")], columns="given").updated == 1
    with pytest.raises(hoodoo.ColumnError, match="must"):
        table.upsert([part(2, state="new")], columns="given")
    with pytest.raises(hoodoo.ColumnError, match="must"):
        table.upsert([part(1, must=None)], columns="given")
    assert rows(table) == {1: row(1, 6, state="paid", must=1)}


# ---- rules for a batch hold
def test_checks_hold_for_the_row_as_it_will_be(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind, checks={"cheap": "fare < 100", "both": "fare < 2 OR state <> 'gift'"})
    with pytest.raises(hoodoo.CheckFailed, match="cheap"):
        table.upsert([part(1, fare=100.0)], columns="given")
    with pytest.raises(hoodoo.CheckFailed, match="both"):
        table.upsert([part(5, state="gift")], columns="given")
    assert table.upsert([part(1, state="gift")], columns="given").updated == 1


@pytest.mark.parametrize("how", [{"columns": "given"}, {"columns": ["fare"]}])
def test_rows_of_some_columns_are_not_set_aside(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    """They were, and a replay took them for whole rows: columns with a default lost what was stored."""
    table = orders(tmp_path / "t", kind, checks={"cheap": "fare < 100"})
    with pytest.raises(hoodoo.OptionError, match="replaces whole rows") as refused:
        table.upsert([part(1, fare=100.0), part(2, fare=7.0)], on_bad_rows="quarantine", **how)
    assert refused.value.details["option"] == "on_bad_rows"
    assert rows(table)[2]["fare"] == 1.0


def test_a_flag_that_is_null_in_every_row_deletes_none(tmp_path: Path, kind: str) -> None:
    """Python has no type for a list of None, and the batch was refused because of it."""
    table = orders(tmp_path / "t", kind)
    assert table.upsert([part(1, fare=9.0, _hoodie_is_deleted=None)], columns="given").updated == 1
    assert table.upsert([row(2, 6, fare=9.0, _hoodie_is_deleted=None)]).updated == 1
    assert (rows(table)[1]["fare"], rows(table)[2]["fare"]) == (9.0, 9.0)


def test_a_batch_of_some_columns_may_bring_a_new_one(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    table.upsert([part(1, note="n")], columns="given", evolve=True)
    table.upsert([part(2, note="m", more=1)], columns=["note", "more"], evolve=True)
    assert rows(table)[1] == row(1, 6, note="n", more=None)
    assert rows(table)[2] == row(2, 6, note="m", more=1)


@pytest.mark.parametrize(
    ("batch", "how", "says"),
    [
        ([part(1, zz=1)], {"columns": "given"}, "evolve=True"),
        ([part(1, state="x")], {"columns": ["fare"]}, "Column 'fare' of option columns is not in the batch"),
        ([{"id": 1, "day": "a", "state": "x"}], {"columns": "given"}, "'ts' .*is not in the batch"),
        ([{"id": 1, "ts": 9, "state": "x"}], {"columns": "given"}, "'day' .a partition column. is not in the batch"),
        ([part(1, state=1.5)], {"columns": "given"}, "'state' has the wrong type: expected string, got double"),
        ([part(1, state="x"), part(2)], {"columns": "given"}, "state"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(
    tmp_path: Path, kind: str, batch: list[dict[str, Any]], how: dict[str, Any], says: str
) -> None:
    table = orders(tmp_path / "t", kind)
    before = table.cursor
    with pytest.raises(hoodoo.ColumnError, match=says):
        table.upsert(batch, **how)
    assert table.cursor == before


@pytest.mark.parametrize("columns", ["state", "", [], [1], {"state"}, 5, b"state"])
def test_columns_that_are_no_list_of_names_are_refused(tmp_path: Path, columns: Any) -> None:
    table = orders(tmp_path / "t", "merge_on_read")
    with pytest.raises(hoodoo.OptionError, match="Option columns is invalid"):
        table.upsert([part(1, state="x")], columns=columns)
    with pytest.raises(hoodoo.OptionError, match="new_keys"):
        table.upsert([part(1, state="x")], columns="given", new_keys="maybe")


def test_the_advice_for_a_batch_that_lacks_columns_loses_no_stored_value(tmp_path: Path, kind: str) -> None:
    """`missing="null"` was the advice; who obeyed it overwrote stored values with nulls."""
    table = orders(tmp_path / "t", kind)
    with pytest.raises(hoodoo.ColumnError, match='pass columns="given"') as refused:
        table.upsert([part(1, state="paid")])
    assert 'missing="null" overwrites stored values with null' in refused.value.message
    table.upsert([part(1, state="paid")], columns="given")
    assert rows(table)[1] == row(1, 6, state="paid")


# ---- beside other writers
def overtaken_by(
    write: Callable[[hoodoo.Table], object], table: hoodoo.Table, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let `write` commit after the next write of `table` has read, and before it commits."""
    other, attempt, left = hoodoo.open(path), TableTimeline.attempt, [write]

    def overtaken(self: TableTimeline, *given: Any, **named: Any) -> Any:
        if self is table.handle.timeline and left:
            left.pop()(other)
        return attempt(self, *given, **named)

    monkeypatch.setattr(TableTimeline, "attempt", overtaken)


def test_what_others_write_meanwhile_is_kept(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored row that the attempt completes is another one by then."""
    table = orders(tmp_path / "t", kind, order_by=None)
    overtaken_by(lambda other: other.upsert([row(1, 6, fare=100.0)]), table, tmp_path / "t", monkeypatch)
    result = table.upsert([part(1, state="paid")], columns="given")
    assert result.retries == 1 and rows(table)[1] == row(1, 6, state="paid", fare=100.0)


def test_columns_follow_a_rename_that_comes_in_between(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders(tmp_path / "t", kind)
    overtaken_by(
        lambda other: other.alter(
            [hoodoo.RenameColumn("state", "status"), hoodoo.AddColumn("tip", pa.int64(), default=3)], rewrite=True
        ),
        table,
        tmp_path / "t",
        monkeypatch,
    )
    table.upsert([part(1, state="paid"), part(9, state="new")], columns="given")
    assert [rows(table)[key]["status"] for key in (1, 2, 9)] == ["paid", "s2", "new"]
    assert [rows(table)[key]["tip"] for key in (1, 2, 9)] == [None, None, 3]


def test_a_transaction_is_carried_out_once_and_if_head_is_kept(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    head = table.cursor
    assert table.upsert([part(1, state="x")], columns="given", transaction=("job", 1)).updated == 1
    assert table.upsert([part(1, state="y")], columns="given", transaction=("job", 1)).skipped
    with pytest.raises(hoodoo.CommitConflict, match="if_head"):
        table.upsert([part(1, state="y")], columns="given", if_head=head)
    assert rows(table)[1]["state"] == "x"


def test_another_implementation_reads_the_same_rows(tmp_path: Path, kind: str) -> None:
    table = orders(tmp_path / "t", kind)
    table.upsert([part(1, state="paid"), part(9, fare=None, state="new")], columns=["state"])
    expected = [rows(table)[key] for key in sorted(rows(table))]
    found = [{name: one[name] for name in SCHEMA.names} for one in hudi_rows(tmp_path / "t")]
    assert sorted(found, key=lambda one: int(one["id"])) == expected
