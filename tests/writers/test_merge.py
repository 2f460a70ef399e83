"""`merge`: each clause does what Delta Lake's does, and what others write meanwhile is not lost."""

from __future__ import annotations

import datetime as dt
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tiers import sized

import hoodoo
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.writers.merging import merge as merge_module

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("s", pa.string())]
)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def row(key: str, n: int, v: int | None = 0, city: str = "rome", s: str | None = "t") -> dict[str, Any]:
    return {"id": key, "city": city, "n": n, "v": v, "s": s}


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def made(path: Path, kind: str, *rows: dict[str, Any], **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="city", type=kind, **options)
    table.insert(arrow(*rows))
    return table


def found(table: hoodoo.Table) -> dict[str, tuple[Any, ...]]:
    return {one["id"]: (one["n"], one["v"], one["s"]) for one in table.scan().to_arrow().to_pylist()}


def test_a_merge_that_is_executed_again_meets_the_same_rows(tmp_path: Path, kind: str) -> None:
    """A reader is empty when it is read again: the second time every row lacked a partner, and was deleted."""
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    source = arrow(row("a", 5))
    merge = table.merge(pa.RecordBatchReader.from_batches(SCHEMA, source.to_batches()))
    merge.when_matched_update_all().when_not_matched_by_source_delete()
    assert (merge.execute().deleted, merge.execute().deleted) == (1, 0)
    assert found(table) == {"a": (5, 0, "t")}


@pytest.mark.parametrize("nothing", [[], {}, (), pa.table({})])
def test_an_empty_source_matches_no_row(tmp_path: Path, kind: str, nothing: Any) -> None:
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    merge = table.merge(nothing).when_matched_update({"n": "source.n"}).when_not_matched_insert_all()
    assert merge.execute().files == 0
    assert merge.when_not_matched_by_source_delete(where="n = 1").execute().deleted == 1
    assert set(found(table)) == {"b"}


def test_clauses_may_name_the_columns_by_which_rows_match(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    merge = table.merge(arrow(row("a", 5), row("c", 6)))
    merge.when_matched_update({"id": "source.id", "city": "target.city", "n": "source.n"})
    merge.when_not_matched_insert({"id": "id", "city": "source.city", "n": "source.n"})
    result = merge.execute()
    assert (result.inserted, result.updated) == (1, 1)
    assert found(table) == {"a": (5, 0, "t"), "b": (2, 0, "t"), "c": (6, None, None)}


@pytest.mark.parametrize("value", ["source.id || 'x'", "source.city", "'c'", 7, None])
def test_clauses_give_no_other_value_to_the_columns_by_which_rows_match(
    tmp_path: Path, kind: str, value: object
) -> None:
    table = made(tmp_path / "t", kind, row("a", 1))
    for merge in (
        table.merge(arrow(row("c", 5))).when_not_matched_insert({"id": value, "n": "source.n"}),
        table.merge(arrow(row("a", 5))).when_matched_update({"id": value, "n": "source.n"}),
    ):
        with pytest.raises(hoodoo.ColumnError, match="only to 'source.id'") as refused:
            merge.execute()
        assert refused.value.details["column"] == "id"
    assert found(table) == {"a": (1, 0, "t")}


# ---- clause by clause, beside deltalake
CLAUSES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "update": (
        lambda m: m.when_matched_update({"n": "target.n + source.n", "s": "'u'"}, where="source.v > 3"),
        lambda m: m.when_matched_update(updates={"n": "target.n + source.n", "s": "'u'"}, predicate="source.v > 3"),
    ),
    "update all": (lambda m: m.when_matched_update_all(), lambda m: m.when_matched_update_all()),
    "update all where": (
        lambda m: m.when_matched_update_all(where="target.v < source.v"),
        lambda m: m.when_matched_update_all(predicate="target.v < source.v"),
    ),
    "delete": (
        lambda m: m.when_matched_delete(where="source.n % 2 = 0"),
        lambda m: m.when_matched_delete(predicate="source.n % 2 = 0"),
    ),
    "delete all": (lambda m: m.when_matched_delete(), lambda m: m.when_matched_delete()),
    "insert": (
        lambda m: m.when_not_matched_insert({"n": "source.n * 10", "s": "upper(source.s)"}, where="source.n < 6"),
        lambda m: m.when_not_matched_insert(
            updates={
                "id": "source.id",
                "city": "source.city",
                "n": "source.n * 10",
                "v": "NULL",
                "s": "upper(source.s)",
            },
            predicate="source.n < 6",
        ),
    ),
    "insert all": (lambda m: m.when_not_matched_insert_all(), lambda m: m.when_not_matched_insert_all()),
    "by source update": (
        lambda m: m.when_not_matched_by_source_update({"v": "target.v - 1"}, where="target.n > 4"),
        lambda m: m.when_not_matched_by_source_update(updates={"v": "target.v - 1"}, predicate="target.n > 4"),
    ),
    "by source delete": (
        lambda m: m.when_not_matched_by_source_delete(where="target.n <= 2"),
        lambda m: m.when_not_matched_by_source_delete(predicate="target.n <= 2"),
    ),
}


def some(rng: random.Random, count: int) -> pa.Table:
    keys = rng.sample([(key, city) for key in "abcdefghij" for city in ("rome", "oslo")], count)
    return arrow(
        *(
            row(key, rng.randint(0, 9), rng.choice([None, 1, 5, 9]), city, rng.choice([None, "t", "x"]))
            for key, city in keys
        )
    )


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(5, 12)))
def test_any_clauses_on_any_rows_do_what_those_of_deltalake_do(tmp_path: Path, kind: str, seed: int) -> None:
    deltalake = pytest.importorskip("deltalake")
    rng = random.Random(f"{kind} {seed}")
    stored = some(rng, 9)
    ours = hoodoo.create(tmp_path / "ours", SCHEMA, key="id", partition_by="city", type=kind)
    ours.insert(stored)
    deltalake.write_deltalake(str(tmp_path / "theirs"), stored)
    for _ in range(3):
        source, names = some(rng, rng.randint(0, 9)), rng.sample(list(CLAUSES), rng.randint(1, 4))
        mine, theirs = (
            ours.merge(source),
            deltalake.DeltaTable(str(tmp_path / "theirs")).merge(
                source, "source.id = target.id AND source.city = target.city", "source", "target"
            ),
        )
        for name in names:
            mine, theirs = CLAUSES[name][0](mine), CLAUSES[name][1](theirs)
        mine.execute()
        theirs.execute()
        want = deltalake.DeltaTable(str(tmp_path / "theirs")).to_pyarrow_table().to_pylist()
        assert sorted(map(repr, ours.scan().to_arrow().to_pylist())) == sorted(map(repr, want)), names
        if rng.random() < 0.3:
            ours.compact()
    assert ours.verify().problems == []


def test_the_first_clause_of_a_kind_that_is_true_counts(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2), row("c", 3))
    source = arrow(row("a", 10), row("b", 20), row("c", 30), row("d", 40), row("e", 50))
    result = (
        table.merge(source)
        .when_matched_delete(where="target.n = 1")
        .when_matched_update({"v": "source.n"}, where="source.n < 25")
        .when_matched_update({"v": -1})
        .when_not_matched_insert({"n": 0}, where="source.n > 45")
        .when_not_matched_insert_all()
        .execute()
    )
    assert found(table) == {"b": (2, 20, "t"), "c": (3, -1, "t"), "d": (40, 0, "t"), "e": (0, None, None)}
    assert (result.inserted, result.updated, result.deleted, result.exact) == (2, 2, 1, True)


def test_a_merge_that_changes_nothing_writes_nothing(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 1))
    assert table.merge(arrow(row("a", 1), row("x", 1))).when_matched_update_all().execute().instant == ""
    assert table.merge(arrow()).when_matched_delete().when_not_matched_insert_all().execute().instant == ""


def test_a_merge_that_updates_all_and_inserts_all_reads_no_stored_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is an upsert: nobody has to know the rows that it replaces."""
    monkeypatch.setattr(merge_module, "plan_in_memory", None)
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    merge = table.merge(arrow(row("a", 5), row("c", 6))).when_not_matched_insert_all().when_matched_update_all()
    done = merge.execute()
    assert (done.inserted, done.updated) == (1, 1)
    assert found(table) == {"a": (5, 0, "t"), "b": (2, 0, "t"), "c": (6, 0, "t")}
    with pytest.raises(hoodoo.DuplicateKeys, match="The source contains keys more than once: 'a'"):
        table.merge(arrow(row("a", 5), row("a", 6))).when_matched_update_all().when_not_matched_insert_all().execute()
    with pytest.raises(hoodoo.ColumnError, match="'s' in the source"):
        table.merge(
            arrow(row("a", 5)).drop_columns(["s"])
        ).when_matched_update_all().when_not_matched_insert_all().execute()
    with pytest.raises(hoodoo.ColumnError, match="'_hoodie_is_deleted' is not in the table"):
        flagged = arrow(row("a", 5)).append_column("_hoodie_is_deleted", pa.array([True]))
        table.merge(flagged).when_matched_update_all().when_not_matched_insert_all().execute()


def test_a_source_column_of_nulls_has_the_type_of_the_column_of_the_table(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, n int, tags array<int>", key="id")
    table.insert([{"id": 1, "n": 5, "tags": [1]}])
    given = [{"id": 1, "n": None, "tags": [], "op": None}]
    assert not table.merge(given).when_matched_update_all(where="source.n = 5 OR source.op = 'u'").execute().updated
    assert table.merge(given).when_matched_update_all(where="target.n = 5").execute().updated == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": None, "tags": []}]


def test_a_source_row_with_a_smaller_ordering_value_is_stale(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 5), row("b", 5), row("c", 5), order_by="n")
    source = arrow(row("a", 4, v=1), row("b", 5, v=2), row("c", 6, v=3))
    result = table.merge(source).when_matched_update_all().execute()
    assert (result.updated, result.stale) == (2, 1)
    assert found(table) == {"a": (5, 0, "t"), "b": (5, 2, "t"), "c": (6, 3, "t")}
    only_stale = table.merge(arrow(row("a", 1))).when_matched_update_all().execute()
    assert (only_stale.instant, only_stale.stale) == ("", 1)


def test_a_deleted_key_is_new(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 5), row("b", 5), order_by="n")
    table.delete(["a"])
    result = (
        table.merge(arrow(row("a", 1), row("b", 7))).when_matched_update_all().when_not_matched_insert_all().execute()
    )
    assert (result.inserted, result.updated) == (1, 1)
    assert found(table) == {"a": (1, 0, "t"), "b": (7, 0, "t")}
    assert table.verify().problems == []


def test_a_source_needs_only_the_columns_that_clauses_name(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 1))
    source = [{"id": "a", "city": "rome", "more": 2}, {"id": "b", "city": "rome", "more": 3}]
    table.merge(source).when_matched_update({"n": "n + more"}).when_not_matched_insert({"n": "more"}).execute()
    assert found(table) == {"a": (3, 0, "t"), "b": (3, None, None)}


def test_a_source_of_any_arrow_layout_is_merged(tmp_path: Path, kind: str) -> None:
    """polars gives texts as views, of which Arrow takes none: the merge ended in an ArrowNotImplementedError."""
    polars = pytest.importorskip("polars")
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    frame = polars.DataFrame({"id": ["b", "c"], "city": ["rome", "rome"], "n": [5, 6]})
    table.merge(frame).when_matched_update({"n": "source.n"}).when_not_matched_insert({"n": "source.n"}).execute()
    assert found(table) == {"a": (1, 0, "t"), "b": (5, 0, "t"), "c": (6, None, None)}


# ---- beside other writers
def overtaken(monkeypatch: pytest.MonkeyPatch, table: hoodoo.Table, act: Callable[[], object]) -> None:
    """Let `act` happen between the plan of the table's next write and its first step."""
    attempt, left = TableTimeline.attempt, [act]

    def late(self: TableTimeline, *given: Any) -> Any:
        if self is table.handle.timeline and left:
            left.pop()()
        return attempt(self, *given)

    monkeypatch.setattr(TableTimeline, "attempt", late)


def test_two_merges_that_add_up_both_count(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t", kind, row("a", 1))
    other = hoodoo.open(tmp_path / "t")

    def add(into: hoodoo.Table) -> hoodoo.WriteResult:
        merging = into.merge(arrow(row("a", 10), row("b", 100)))
        return merging.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all().execute()

    overtaken(monkeypatch, table, lambda: add(other))
    assert add(table).retries == 1
    assert found(table) == {"a": (21, 0, "t"), "b": (200, 0, "t")}


def test_a_row_that_came_meanwhile_is_seen_by_a_clause_for_rows_without_a_source(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 1))
    other = hoodoo.open(tmp_path / "t")
    overtaken(monkeypatch, table, lambda: other.insert(arrow(row("z", 1, city="bonn"))))
    assert table.merge(arrow(row("a", 1))).when_not_matched_by_source_delete().execute().retries == 1
    assert found(table) == {"a": (1, 0, "t")}


def test_a_merge_under_a_transaction_happens_once_and_on_its_head_only(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row("a", 1))
    head = table.scan().cursor

    def add(**options: Any) -> hoodoo.WriteResult:
        return table.merge(arrow(row("a", 10))).when_matched_update({"n": "target.n + source.n"}).execute(**options)

    assert add(transaction=("job", 1)).updated == 1
    assert add(transaction=("job", 1)).skipped
    with pytest.raises(hoodoo.CommitConflict, match="if_head"):
        add(if_head=head)
    assert found(table)["a"][0] == 11


# ---- what is refused
@pytest.mark.parametrize(
    ("source", "say", "error", "match"),
    [
        ([row("a", 1)], lambda m: m, hoodoo.OptionError, "no clause"),
        ([row("a", 1), row("a", 2)], lambda m: m.when_matched_delete(), hoodoo.DuplicateKeys, "more than once: 'a'"),
        ([{"id": "a"}], lambda m: m.when_matched_delete(), hoodoo.ColumnError, "'city'"),
        ([row("a", 1) | {"id": None}], lambda m: m.when_matched_delete(), hoodoo.KeyValueError, "null"),
        ([{"id": "a", "city": "x", "n": 1}], lambda m: m.when_matched_update_all(), hoodoo.ColumnError, "'v'"),
        ([row("a", 1)], lambda m: m.when_matched_update({"id": "'x'"}), hoodoo.ColumnError, "key or partition column"),
        ([row("a", 1)], lambda m: m.when_matched_update({"city": "'x'"}), hoodoo.ColumnError, "partition column"),
        ([row("a", 1)], lambda m: m.when_matched_update({"m": "1"}), hoodoo.ColumnError, "'m' is not in the table"),
        (
            [row("a", 1)],
            lambda m: m.when_matched_update({"n": "n + 1"}),
            hoodoo.ExpressionError,
            "source.n or",
        ),
        ([row("a", 1)], lambda m: m.when_matched_update({"n": "source.m"}), hoodoo.ExpressionError, "no column"),
        ([row("a", 1)], lambda m: m.when_not_matched_insert({"n": "target.n"}), hoodoo.ExpressionError, "no column"),
        (
            [row("a", 1)],
            lambda m: m.when_matched_update({"n": "source.n * 1.5"}),
            hoodoo.ColumnError,
            "cannot be converted exactly",
        ),
        ([row("a", 1)], lambda m: m.when_matched_delete(where="source.n"), hoodoo.ExpressionError, "condition"),
        ([row("a", 1)], lambda m: m.when_matched_delete(where=3), hoodoo.OptionError, "where must be an SQL condition"),
        ([row("a", 1)], lambda m: m.when_matched_update({}), hoodoo.OptionError, "when_matched_update needs"),
        ([row("a", 1)], lambda m: m.when_matched_update(lambda rows: rows), hoodoo.OptionError, "needs a mapping"),
    ],
)
def test_a_merge_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, source: Any, say: Any, error: type[Exception], match: str
) -> None:
    table = made(tmp_path / "t", "merge_on_read", row("a", 1))
    head = table.cursor
    with pytest.raises(error, match=match):
        say(table.merge(source)).execute()
    assert table.cursor == head


def test_without_duckdb_clauses_without_expressions_work(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    table = made(tmp_path / "t", kind, row("a", 1), row("b", 2))
    table.merge(arrow(row("a", 9), row("c", 3))).when_matched_update_all().when_not_matched_insert_all().execute()
    assert found(table) == {"a": (9, 0, "t"), "b": (2, 0, "t"), "c": (3, 0, "t")}
    with pytest.raises(hoodoo.EngineError, match=r"hoodoo\[sql\]"):
        table.merge(arrow(row("a", 9))).when_matched_update({"n": "source.n"}).execute()


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_named_like_a_word_of_sql_needs_no_quotes_in_a_clause(tmp_path: Path, kind: str) -> None:
    """It needed none in scan, update and delete."""
    table = hoodoo.create(tmp_path / "t", "id bigint, at int, v int", key="id", type=kind)
    table.insert([{"id": 1, "at": 5, "v": 1}, {"id": 2, "at": 6, "v": 1}])
    merge = table.merge([{"id": 1, "at": 7}]).when_matched_update({"at": "source.at", "v": "target.at"})
    done = merge.when_not_matched_by_source_update({"v": "at + 1"}, where="at >= 6").execute()
    assert done.updated == 2
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "at": 7, "v": 5}, {"id": 2, "at": 6, "v": 7}]


def test_a_clause_that_sets_no_source_of_the_partition_is_told_so(tmp_path: Path) -> None:
    """The source of the merge has the column, and it was said that the batch lacks it."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by=[hoodoo.day("at")])
    rows = [{"id": 1, "at": dt.datetime(2026, 3, 1), "v": 5}]
    with pytest.raises(hoodoo.ColumnError, match="Add 'at': 'source.at' to the clause"):
        table.merge(rows).when_not_matched_insert({"v": "source.v"}).execute()
    table.merge(rows).when_not_matched_insert({"v": "source.v", "at": "source.at"}).execute()
    assert table.scan().to_arrow().select(["id", "v"]).to_pylist() == [{"id": 1, "v": 5}]


def test_a_clause_is_not_advised_to_use_a_column_that_the_source_lacks(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="at", type=kind)
    with pytest.raises(hoodoo.ColumnError, match="Column 'at'.* is not in the batch") as refused:
        table.merge([{"id": 1, "v": 5}]).when_not_matched_insert({"v": "source.v"}).execute()
    assert "source.at" not in str(refused.value)
    assert not table.count()
