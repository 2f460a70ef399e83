"""Ten bugs that other engines had with columns that change, each for both types of table.

Each runs twice: as it is, and with columns looked up by their names instead of their ids, where it must fail: so that
none of them passes for want of what it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo import AddColumn, DropColumn, RenameColumn, WidenColumn
from hoodoo.compactor.compaction import plans
from hoodoo.format.resolve import ColumnMapping, map_columns
from hoodoo.format.table_schema import Column, TableSchema
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.properties import config

KINDS = ("merge_on_read", "copy_on_write")
INNER = pa.struct([("x", pa.int32()), ("y", pa.int32())])
FLOATS = pa.struct([("f", pa.float32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.int32()),
        ("c", pa.int32()),
        ("f", pa.float32()),
        ("s", INNER),
        ("l", pa.list_(FLOATS)),
        ("m", pa.map_(pa.string(), FLOATS)),
    ]
)


def row(key: int, **values: Any) -> dict[str, Any]:
    inner = {"s": {"x": key, "y": -key}, "l": [{"f": 0.1}], "m": [("k", {"f": 0.1})]}
    return {"id": key, "a": key, "b": 10 * key, "c": 100 * key, "f": 0.1} | inner | values


def make(path: Path, kind: str) -> hoodoo.Table:
    """Keys 1 to 4, where the table has logs the last two with a newer version in one."""
    table = hoodoo.create(path, SCHEMA, key="id", type=kind, compact_after_logs=None, clean_every=None)
    table.upsert(batch(*(row(key) for key in (1, 2, 3, 4))))
    table.upsert(batch(*(row(key, a=key + 50) for key in (3, 4))))
    return table


def batch(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def now(table: hoodoo.Table, *more: dict[str, Any]) -> pa.Table:
    """Rows with the columns that the table has now."""
    return pa.Table.from_pylist(list(more), schema=hoodoo.open(table.path).schema)


def column(table: hoodoo.Table, name: str, **how: Any) -> dict[int, Any]:
    rows = table.scan(columns=["id", name], **how).to_arrow().to_pylist()
    return {one["id"]: one[name] for one in rows}


def by_hudi(table: hoodoo.Table, name: str) -> dict[int, Any]:
    return {one["id"]: one[name] for one in hudi_rows(table.path)}


OLD = {1: 1, 2: 2, 3: 53, 4: 54}
NULL = dict.fromkeys(OLD)


def a_name_that_comes_back_is_another_column(table: hoodoo.Table) -> None:
    """prestodb#20621, auron#2321, paimon#8126, ClickHouse#113324"""
    since = table.cursor
    table.alter.drop_column("a")
    table.alter.add_column("a", pa.int32(), rewrite=True)
    assert column(table, "a") == by_hudi(table, "a") == NULL
    table.alter.drop_column("a")
    table.alter.add_column("a", pa.string(), rewrite=True)
    assert column(table, "a") == by_hudi(table, "a") == NULL
    table.alter.rename_column("b", "bb", rewrite=True)
    table.alter.add_column("b", pa.int32(), default=None)
    assert column(table, "b") == by_hudi(table, "b") == NULL
    assert column(table, "bb") == by_hudi(table, "bb") == {1: 10, 2: 20, 3: 30, 4: 40}
    table.compact()
    assert column(table, "a") == NULL and column(table, "a", as_of=since) == OLD


def two_columns_swap_their_names(table: hoodoo.Table) -> None:
    """HUDI-5083, apache/hudi#7045"""
    since = table.cursor
    table.alter([DropColumn("c"), RenameColumn("b", "c")], rewrite=True)
    assert column(table, "c") == by_hudi(table, "c") == {1: 10, 2: 20, 3: 30, 4: 40}
    table.alter.rename_column("a", "spare", rewrite=True)
    table.alter([RenameColumn("c", "a"), RenameColumn("spare", "c")], rewrite=True)
    assert column(table, "c") == by_hudi(table, "c") == OLD
    assert column(table, "a") == by_hudi(table, "a") == {1: 10, 2: 20, 3: 30, 4: 40}
    assert len(table.changes(since).to_arrow()) == 0


def a_field_gets_the_name_that_another_had(table: hoodoo.Table) -> None:
    """HUDI-9676 #13663, HUDI-9683 #13672"""
    table.alter([DropColumn("s.x"), RenameColumn("s.y", "x")], rewrite=True)
    want = {key: {"x": -key} for key in OLD}
    assert column(table, "s") == by_hudi(table, "s") == want
    table.upsert(now(table, {**row(4), "s": {"x": 7}}))
    table.alter.add_column("s.y", pa.int32(), rewrite=True)
    want = {key: {"x": -key if key < 4 else 7, "y": None} for key in OLD}
    assert column(table, "s") == by_hudi(table, "s") == want


def a_float_is_one_double_wherever_it_stands(table: hoodoo.Table) -> None:
    """HUDI-8902 #13188 #13289, HUDI-9668 #13652"""
    since = table.cursor
    names = ("f", "l[].f", "m{}.f")
    table.alter([WidenColumn(name, pa.float64()) for name in names] + [RenameColumn("f", "g")], rewrite=True)
    assert column(table, "g") == by_hudi(table, "g") == dict.fromkeys(OLD, 0.1)
    assert column(table, "l") == by_hudi(table, "l") == dict.fromkeys(OLD, [{"f": 0.1}])
    assert column(table, "m") == dict.fromkeys(OLD, [("k", {"f": 0.1})])
    table.upsert(now(table, {**row(4), "g": 0.1}))
    for change in table.changes(since).to_arrow().to_pylist():
        assert change["before"]["g"] == change["after"]["g"] == 0.1


def filters_on_a_widened_column_lose_no_row_to_old_bounds(table: hoodoo.Table) -> None:
    """trino#30544, hudi#19467, iceberg#2232, iceberg-rust#3122, SPARK-46092, velox#16895"""
    table.alter.widen_column("a", pa.int64())
    table.upsert(now(table, row(5, a=2**40)))
    table.alter([WidenColumn("f", pa.float64()), WidenColumn("b", pa.decimal128(14, 2))], rewrite=True)
    table.alter([RenameColumn("c", "z"), RenameColumn("a", "c"), RenameColumn("z", "a")], rewrite=True)

    def keys(where: str) -> list[int]:
        return sorted(table.scan(where=where, columns=["id"]).to_arrow()["id"].to_pylist())

    assert keys("c = 53") == [3] and keys("c = 1099511627776") == [5] and keys("c > 2147483647") == [5]
    assert keys("c < 3000000000") == [1, 2, 3, 4] and keys("c IN (2, 1099511627776)") == [2, 5]
    assert keys("a = 100") == [1] and keys("a > 300") == [4, 5] and keys("a = 53") == []
    assert keys("b = 10.00") == [1] and keys("b > 10.5 AND b < 30.01") == [2, 3]
    assert keys("f = 0.1") == [1, 2, 3, 4, 5] and keys("f > 0.1") == [] and keys("f < 0.10000000149") == [1, 2, 3, 4, 5]
    table.alter.widen_column("c", pa.string())
    assert keys("c = '53'") == [3] and keys("c >= '2'") == [2, 3, 4] and keys("c < '2'") == [1, 5]


def logs_and_bases_with_and_without_a_column_are_merged(table: hoodoo.Table) -> None:
    """hudi#2675, #11833, #10138"""
    table.alter.drop_column("a")
    table.alter([AddColumn("a", pa.int32(), default=9)], rewrite=True)
    one = {key: value for key, value in row(2).items() if key != "a"}
    table.upsert(batch(one, schema=SCHEMA.remove(1)))  # its writer knows of no column
    assert column(table, "a") == {1: None, 2: 9, 3: None, 4: None}
    table.alter.add_column("n", pa.int32(), default=None)
    table.upsert(now(table, {**row(3), "a": 3, "n": 3}))
    table.compact()
    table.upsert(now(table, {**row(4), "a": 4, "n": 4}))
    assert column(table, "a") == by_hudi(table, "a") == {1: None, 2: 9, 3: 3, 4: 4}
    assert column(table, "n") == by_hudi(table, "n") == {1: None, 2: None, 3: 3, 4: 4}


def clustering_copies_no_row_groups_of_other_columns(table: hoodoo.Table) -> None:
    """HUDI-9685 #13674"""
    table.alter.drop_column("a")
    table.insert(now(table, row(5), row(6)), bulk=True)
    table.alter.add_column("n", pa.int32(), first=True)
    table.insert(now(table, row(7, n=7), row(8, n=8)), bulk=True)
    table.maintenance.cluster()
    assert column(table, "n") == by_hudi(table, "n") == {**NULL, 5: None, 6: None, 7: 7, 8: 8}
    table.alter.add_column("a", pa.int32(), rewrite=True)
    table.maintenance.cluster(sort_by="id")
    assert column(table, "a") == by_hudi(table, "a") == dict.fromkeys(range(1, 9))
    assert column(table, "b") == {key: 10 * key for key in range(1, 9)}
    assert table.verify().problems == []


def a_write_with_the_old_columns_does_not_bring_them_back(table: hoodoo.Table) -> None:
    """RFC-82 HUDI-8221 #12005, HUDI-8219 #12781, HUDI-8628 #12646"""
    complete = Transaction.complete

    def late(self: Transaction, draft: Any) -> Any:
        Transaction.complete = complete  # type: ignore[method-assign]
        other = hoodoo.open(table.path)
        other.alter([RenameColumn("a", "z"), RenameColumn("b", "a"), RenameColumn("z", "b")], rewrite=True)
        return complete(self, draft)

    if table.type == "merge_on_read":
        plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    Transaction.complete = late  # type: ignore[method-assign]
    try:
        table.upsert(batch(row(4, a=1, b=2)))
    finally:
        Transaction.complete = complete  # type: ignore[method-assign]
    assert column(table, "b") == by_hudi(table, "b") == {**OLD, 4: 1}
    assert column(table, "a") == by_hudi(table, "a") == {1: 10, 2: 20, 3: 30, 4: 2}
    table.compact()
    assert hoodoo.open(table.path).schema.names == table.schema.names == ["id", "b", "a", *SCHEMA.names[3:]]
    assert column(table, "b") == {**OLD, 4: 1}


def every_read_goes_by_the_same_ids(table: hoodoo.Table) -> None:
    """auron#2375, delta#1630, delta#6149"""
    since = table.cursor
    table.alter([RenameColumn("a", "z"), RenameColumn("b", "a"), RenameColumn("z", "b")], rewrite=True)
    table.upsert(now(table, {**row(2), "a": 7, "b": 8}))
    want = {"id": 2, "a": 20, "b": 2}, {"id": 2, "a": 7, "b": 8}
    names = ["id", "a", "b"]
    for changes in (table.changes(since, columns=names), table.changes(since, columns=names, versions="diff")):
        [change] = changes.to_arrow().to_pylist()
        assert (change["before"], change["after"]) == want
    [change] = table.changes(since, columns=names, versions="all").to_arrow().to_pylist()
    assert (change["before"], change["after"]) == want
    steps = list(table.follow(since, columns=names, most_commits=1, timeout_seconds=0))
    found = [one for step in steps for one in step.to_arrow().to_pylist()]
    assert [(one["before"], one["after"]) for one in found] == [want]
    assert table.incremental(since, columns=names).to_arrow().to_pylist() == [want[1]]
    assert table.get([2, 3], columns=["a", "b"]).to_pylist() == [{"a": 7, "b": 8}, {"a": 30, "b": 53}]
    assert column(table, "a", as_of=since) == OLD
    [change] = table.changes(table.cursor, since, columns=names, versions="diff").to_arrow().to_pylist()
    assert (change["before"], change["after"]) == ({"id": 2, "a": 8, "b": 7}, {"id": 2, "a": 2, "b": 20})


def a_write_that_evolves_makes_no_value_null(table: hoodoo.Table) -> None:
    """delta#1551, doris#68267, delta#4389, trino#19605"""
    table.alter([RenameColumn("a", "z"), RenameColumn("b", "a")], rewrite=True)
    with pytest.raises(hoodoo.ColumnError):
        table.upsert([{**row(9), "z": 1, "c": "text"}], evolve=True, missing="null")
    wide = pa.schema([field if field.name != "c" else pa.field("c", pa.int64()) for field in table.schema])
    more = [{**row(1), "z": 1, "a": 10, "c": 2**40}, {**row(9), "z": 9, "a": 90, "c": 2}]
    table.upsert(batch(*more, schema=wide), evolve=True)
    table.delete([{"id": 3}])
    assert column(table, "c") == by_hudi(table, "c") == {1: 2**40, 2: 200, 4: 400, 9: 2}
    assert column(table, "z") == by_hudi(table, "z") == {1: 1, 2: 2, 4: 54, 9: 9}
    assert column(table, "a") == by_hudi(table, "a") == {1: 10, 2: 20, 4: 40, 9: 90}


BUGS: list[Callable[[hoodoo.Table], None]] = [
    a_name_that_comes_back_is_another_column,
    two_columns_swap_their_names,
    a_field_gets_the_name_that_another_had,
    a_float_is_one_double_wherever_it_stands,
    filters_on_a_widened_column_lose_no_row_to_old_bounds,
    logs_and_bases_with_and_without_a_column_are_merged,
    clustering_copies_no_row_groups_of_other_columns,
    a_write_with_the_old_columns_does_not_bring_them_back,
    every_read_goes_by_the_same_ids,
    a_write_that_evolves_makes_no_value_null,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_what_went_wrong_elsewhere_goes_right(tmp_path: Path, kind: str, bug: Callable[[hoodoo.Table], None]) -> None:
    table = make(tmp_path / "t", kind)
    bug(table)
    assert table.verify().problems == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_by_names_it_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, bug: Callable[[hoodoo.Table], None]
) -> None:
    table = make(tmp_path / "t", kind)
    monkeypatch.setattr(config, "map_columns", by_name)
    with pytest.raises((AssertionError, hoodoo.UnsupportedTable, hoodoo.CorruptTable)):
        bug(table)


def by_name(file: TableSchema, asked: TableSchema) -> ColumnMapping:
    """As `map_columns`, as engines without ids would: a column is whatever has its name."""
    unused = count(max(file.last, asked.last) + 1)

    def named(column: Column, beside: Iterable[Column]) -> Column:
        there = next((one for one in beside if one.name == column.name), None)
        inner = there.children if there else ()
        number = there.id if there else next(unused)
        return replace(column, id=number, children=tuple(named(child, inner) for child in column.children))

    return map_columns(replace(file, columns=tuple(named(one, asked.columns) for one in file.columns)), asked)
