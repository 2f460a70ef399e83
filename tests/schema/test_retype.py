"""A column gets a type that has not all values of its own, where every stored value is exactly one of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor import alter as altering
from hoodoo.table import write_steps

KINDS = ["merge_on_read", "copy_on_write"]


def made(path: Path, column: str, values: list[Any], kind: str = "merge_on_read", **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path / "t", f"id string, p string, v {column}, w int64", key="id", type=kind, **options)
    table.insert([{"id": f"k{n}", "p": "x", "v": value, "w": n} for n, value in enumerate(values)])
    return table


def values(table: hoodoo.Table, **how: Any) -> list[Any]:
    rows = sorted(table.scan(**how).to_arrow().to_pylist(), key=lambda row: str(row["id"]))
    return [row["v"] for row in rows]


UTC = dt.timezone.utc
FITS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("double", "int64", [1.0, -2.0, 2.0**60, None], [1, -2, 2**60, None]),
    ("double", "int32", [1.0, None], [1, None]),
    ("double", "decimal(10, 2)", [0.1, 1.25], [Decimal("0.10"), Decimal("1.25")]),
    ("double", "float", [0.1, 2.5], [0.1, 2.5]),
    ("int64", "int32", [1, -(2**31), None], [1, -(2**31), None]),
    ("int64", "double", [1, 2**53], [1.0, 2.0**53]),
    ("decimal(10, 2)", "int64", [Decimal("3.00")], [3]),
    ("decimal(10, 2)", "decimal(5, 1)", [Decimal("3.50")], [Decimal("3.5")]),
    ("string", "int64", ["0", "-17", None], [0, -17, None]),
    ("string", "double", ["0.1", "-3", "1.50"], [0.1, -3.0, 1.5]),
    ("string", "decimal(10, 2)", ["0.1", "-3"], [Decimal("0.10"), Decimal("-3.00")]),
    ("string", "date", ["2026-01-31", "0001-01-01"], [dt.date(2026, 1, 31), dt.date(1, 1, 1)]),
    ("string", "boolean", ["true", "false", None], [True, False, None]),
    ("string", "timestamp", ["2026-01-31T10:00:00Z"], [dt.datetime(2026, 1, 31, 10, tzinfo=UTC)]),
    ("string", "timestamp_ntz", ["2026-01-31 10:00:00.5"], [dt.datetime(2026, 1, 31, 10, 0, 0, 500_000)]),
    ("date", "timestamp_ntz", [dt.date(2026, 1, 31)], [dt.datetime(2026, 1, 31)]),
    ("timestamp_ntz", "date", [dt.datetime(2026, 1, 31)], [dt.date(2026, 1, 31)]),
    ("int32", "int64", [1, None], [1, None]),
]
"""Type before and after, values before and after."""


@pytest.mark.parametrize(("old", "new", "before", "after"), FITS, ids=[f"{old} to {new}" for old, new, *_ in FITS])
def test_values_that_fit_are_the_same_under_the_new_type(
    tmp_path: Path, old: str, new: str, before: list[Any], after: list[Any]
) -> None:
    table = made(tmp_path, old, before)
    start = table.cursor
    done = table.alter.retype_column("v", new, rewrite=True)
    assert done.cursor.seq == start.seq + 1
    found = values(table)
    assert found == (pytest.approx(after) if new == "float" else after)
    assert values(table, as_of=start) == before
    assert table.changes(start).to_arrow().num_rows == table.incremental(start).to_arrow().num_rows == 0
    assert table.verify().ok
    table.upsert([{"id": "k0", "p": "x", "v": None, "w": 9}])
    assert [row["op"] for row in table.changes(start).to_arrow().to_pylist()] == ["u"]


UNFIT: list[tuple[str, str, Any]] = [
    ("double", "int64", 1.5),
    ("double", "int64", float("nan")),
    ("double", "int64", 2.0**63),
    ("double", "decimal(10, 2)", 1.005),
    ("int64", "int32", 2**31),
    ("int64", "double", 2**53 + 1),
    ("decimal(10, 2)", "int64", Decimal("3.10")),
    ("string", "int64", "007"),
    ("string", "int64", " 7"),
    ("string", "int64", "7.0"),
    ("string", "int64", "0x1F"),
    ("string", "int64", "9223372036854775808"),
    ("string", "int64", ""),
    ("string", "double", "1e5"),
    ("string", "double", "nan"),
    ("string", "double", "0.12345678901234567890"),
    ("string", "decimal(10, 2)", "1.005"),
    ("string", "date", "2026-1-31"),
    ("string", "date", "2026-02-30"),
    ("string", "date", "0000-01-01"),
    ("string", "boolean", "True"),
    ("string", "timestamp", "2026-01-31 10:00:00"),
    ("string", "timestamp_ntz", "2026-01-31 10:00:00Z"),
    ("string", "timestamp_ntz", "2026-01-31 24:00:00"),
    ("timestamp_ntz", "date", dt.datetime(2026, 1, 31, 1)),
]


@pytest.mark.parametrize(("old", "new", "bad"), UNFIT, ids=[f"{old} {bad!r} to {new}" for old, new, bad in UNFIT])
def test_one_value_that_does_not_fit_leaves_the_column_as_it_is(tmp_path: Path, old: str, new: str, bad: Any) -> None:
    table = made(tmp_path, old, [None, bad, None])
    files, head = sorted(one.name for one in Path(table.path).rglob("*.parquet")), table.cursor
    with pytest.raises(
        hoodoo.SchemaError, match="1 stored value does not match that type. The first is .* of key 'k1'"
    ):
        table.alter.retype_column("v", new, rewrite=True)
    assert table.cursor == head and str(table.schema.field("v").type) != new
    assert sorted(one.name for one in Path(table.path).rglob("*.parquet")) == files


def test_values_that_do_not_fit_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    table = made(tmp_path, "double", [1.0, 0.5, 2.0, 0.25])
    with pytest.raises(
        hoodoo.SchemaError, match="2 stored values do not match that type. The first is 0.5, of key 'k1'"
    ):
        table.alter.retype_column("v", "int64", rewrite=True)
    many = made(tmp_path / "many", "double", [0.5] * 1_500)
    with pytest.raises(hoodoo.SchemaError, match="more than 1,000 stored values"):
        many.alter.retype_column("v", "int64", rewrite=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_update_corrected_stands_in_no_ones_way(tmp_path: Path, kind: str) -> None:
    """The row that does not fit is below one that does: in a base under a log, and in files of earlier snapshots."""
    table = made(tmp_path, "double", [1.0, 1.5, 2.0], kind)
    start = table.cursor
    table.update({"v": "2"}, where="v = 1.5")
    table.alter.retype_column("v", "int64", rewrite=True)
    assert values(table) == [1, 2, 2] and values(table, as_of=start) == [1.0, 1.5, 2.0]
    assert table.verify().ok
    with pytest.raises(hoodoo.UnsupportedTable, match="double"):  # it cannot be shown as a whole number
        table.changes(start).to_arrow()
    assert table.changes(start, columns=["id", "w"]).to_arrow().num_rows == 0


def test_without_rewrite_it_says_what_it_costs(tmp_path: Path) -> None:
    table = made(tmp_path, "double", [1.0])
    with pytest.raises(hoodoo.RewriteNeeded, match="rewrite=True") as told:
        table.alter.retype_column("v", "int64")
    assert (told.value.details["groups"], told.value.details["rows"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "new", "words"),
    [
        ("id", "int64", "is a key column"),
        ("p", "int64", "is a partition column"),
        ("w", "double", "is a ordering column|is an ordering column"),
        ("v", "binary", "cannot be converted to"),
        ("v", "list<string>", "struct, list or map"),
        ("s.x", "int32", "struct, list or map"),
        ("vv", "int64", "did you mean v"),
        ("checked", "int32", "Check 'few' uses column"),
        ("filled", "int32", "has a default"),
    ],
)
def test_columns_and_types_that_cannot_be_are_refused(tmp_path: Path, name: str, new: str, words: str) -> None:
    columns = "id string, p string, v string, w int64, s struct<x: bigint>, checked int64"
    table = hoodoo.create(
        tmp_path / "t", columns, key="id", partition_by="p", order_by="w", checks={"few": "checked < 9"}
    )
    table.alter.add_column("filled", "int64", default=1)
    with pytest.raises(hoodoo.SchemaError, match=words):
        table.alter.retype_column(name, new, rewrite=True)


# ---- beside writers
def once(work: Callable[[], Any]) -> Callable[[], None]:
    left = [work]

    def run() -> None:
        if left:
            left.pop()()

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "fits"), [(7.0, True), (7.5, False)])
def test_a_write_between_the_look_and_the_commit_is_looked_at_too(
    tmp_path: Path, kind: str, value: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, "double", [1.0, 2.0], kind)
    other = hoodoo.open(table.path)
    meanwhile = once(lambda: other.upsert([{"id": "k1", "p": "x", "v": value, "w": 1}]))
    look = altering.require_convertible_values

    def looked(*arguments: Any) -> None:
        look(*arguments)
        meanwhile()

    monkeypatch.setattr(altering, "require_convertible_values", looked)
    if fits:
        table.alter.retype_column("v", "int64", rewrite=True)
        assert values(table) == [1, 7] and str(table.schema.field("v").type) == "int64"
    else:
        with pytest.raises(hoodoo.SchemaError, match=r"7\.5, of key 'k1'"):
            table.alter.retype_column("v", "int64", rewrite=True)
        assert values(table) == [1.0, 7.5]
    assert table.verify().ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "fits"), [(7.0, True), (7.5, False)])
def test_a_batch_that_was_prepared_before_the_change_fits_or_is_refused(
    tmp_path: Path, kind: str, value: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, "double", [1.0, 2.0], kind)
    other = hoodoo.open(table.path)
    meanwhile = once(lambda: other.alter.retype_column("v", "int64", rewrite=True))
    prepare = write_steps.separate_rows

    def prepared(*arguments: Any) -> Any:
        made = prepare(*arguments)
        meanwhile()
        return made

    monkeypatch.setattr(write_steps, "separate_rows", prepared)
    batch = [{"id": "k1", "p": "x", "v": value, "w": 1}]
    if fits:
        table.upsert(batch)
        assert values(table) == [1, 7]
    else:
        with pytest.raises(hoodoo.ColumnError, match="The type of a column changed while the batch was written"):
            table.upsert(batch)
        assert values(table) == [1, 2]
    assert table.verify().ok


def test_a_restore_brings_the_former_type_back(tmp_path: Path) -> None:
    table = made(tmp_path, "double", [1.0, 2.0])
    start = table.cursor
    table.alter.retype_column("v", "int64", rewrite=True)
    table.upsert([{"id": "k1", "p": "x", "v": 9, "w": 1}])
    back = table.restore(start)
    assert (back.updated, values(table), table.schema.field("v").type) == (1, [1.0, 2.0], pa.float64())
    table.upsert([{"id": "k1", "p": "x", "v": 0.5, "w": 1}])
    assert values(table) == [1.0, 0.5]
    table.update({"v": "3"}, where="v = 0.5")
    table.alter.retype_column("v", "int64", rewrite=True)
    assert values(table) == [1, 3] and table.verify().ok


def test_schemas_say_what_happened_and_a_type_may_go_back_and_forth(tmp_path: Path) -> None:
    table = made(tmp_path, "string", ["1", "2"])
    start = table.cursor
    table.alter.retype_column("v", "int64", rewrite=True)
    table.alter.retype_column("v", "int32", rewrite=True)
    table.alter.widen_column("v", "string")
    table.upsert([{"id": "k0", "p": "x", "v": "5", "w": 0}])
    told = [", ".join(one.changes) for one in table.inspect.schemas()]
    assert told[1:] == ["retype v from string to int64", "retype v from int64 to int32", "widen v from int32 to string"]
    assert values(table) == ["5", "2"] and values(table, as_of=start) == ["1", "2"]
    changed = table.changes(start).to_arrow().to_pylist()
    assert [(one["before"]["v"], one["after"]["v"]) for one in changed] == [("1", "5")]
