"""Tables with several ordering columns: what holds for one column holds for each, and they are compared in order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tiers import sized

import hoodoo
from hoodoo.format.log.block import DeleteBlock, decode_log
from hoodoo.format.names import IS_DELETED
from hoodoo.format.properties import format_properties, parse_properties
from hoodoo.readers.slices import slices

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("seq", pa.int64()), ("v", pa.string())]
)
Row = tuple[str, int, int, str]
QUIET: dict[str, Any] = {"compact_after_logs": None, "clean_every": None}
kinds = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])


def rows(*given: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": one[0], "city": "sf", "ts": one[1], "seq": one[2], "v": one[3]} for one in given], schema=schema
    )


def flagged(*given: Row) -> pa.Table:
    return rows(*given).append_column(IS_DELETED, pa.array([True] * len(given)))


def make(path: Path, kind: str = "merge_on_read", order_by: Any = ("ts", "seq"), **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", partition_by="city", order_by=order_by, type=kind, **{**QUIET, **options}
    )


def seen(table: hoodoo.Table) -> dict[str, str]:
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def properties(table: hoodoo.Table) -> Path:
    return Path(table.path) / ".hoodie/hoodie.properties"


# ---- what order_by takes
@pytest.mark.parametrize(
    ("given", "names"),
    [("ts", ("ts",)), (["ts", "seq"], ("ts", "seq")), (("seq", "v"), ("seq", "v")), (None, ()), ([], ())],
)
def test_order_by_takes_a_name_several_or_none_and_keeps_their_order(
    tmp_path: Path, given: Any, names: tuple[str, ...]
) -> None:
    table = make(tmp_path / "t", order_by=given)
    assert table.order_by == hoodoo.open(table.path).order_by == names
    stored = parse_properties(properties(table).read_bytes())
    assert stored.get("hoodie.table.ordering.fields", "") == ",".join(names)
    assert stored["hoodie.record.merge.mode"] == ("EVENT_TIME_ORDERING" if names else "COMMIT_TIME_ORDERING")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (("ts", "ts"), hoodoo.SchemaError, "Column 'ts' is listed twice as ordering column"),
        (("ts", "nope"), hoodoo.SchemaError, "ordering column 'nope' is not in the schema"),
        (("ts", "tags"), hoodoo.SchemaError, "'tags' .* cannot be an ordering column"),
        (5, hoodoo.OptionError, "order_by must be a name or a list of names"),
        (["ts", 5], hoodoo.OptionError, "order_by must be a name or a list of names"),
    ],
)
def test_each_ordering_column_must_be_one(tmp_path: Path, given: Any, error: type[Exception], said: str) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(error, match=said):
        hoodoo.create(tmp_path / "t", schema, key="id", order_by=given)
    assert not (tmp_path / "t/.hoodie").exists()


@pytest.mark.parametrize("column", ["ts", "seq"])
def test_a_transform_of_any_ordering_column_is_refused(tmp_path: Path, column: str) -> None:
    by: dict[str, Any] = {"partition_by": hoodoo.truncate(10, column), "order_by": ("ts", "seq")}
    with pytest.raises(hoodoo.OptionError, match="transform of an ordering column"):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id", **by)
    assert hoodoo.create(tmp_path / "t", SCHEMA, key="id", **by, allow_moving_keys=True).order_by == ("ts", "seq")


@pytest.mark.parametrize("column", ["ts", "seq"])
def test_no_ordering_column_is_dropped_renamed_widened_or_set(tmp_path: Path, column: str) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 1, 1, "x")))
    attempts = [
        lambda: table.alter.drop_column(column),
        lambda: table.alter.rename_column(column, "other"),
        lambda: table.alter.widen_column(column, pa.float64()),
        lambda: table.alter.make_nullable(column),
    ]
    for attempt in attempts:
        with pytest.raises(hoodoo.SchemaError, match=f"'{column}'"):
            attempt()
    with pytest.raises(hoodoo.ColumnError, match=f"'{column}' is an ordering column, which an update cannot change"):
        table.update({column: "7"}, where="id = 'a'")


# ---- which version wins
@kinds
def test_a_later_column_decides_where_those_before_it_are_equal(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(rows(*((key, 10, 5, "old") for key in "abcde")))
    table.upsert(
        rows(("a", 10, 4, "late"), ("b", 10, 5, "tie"), ("c", 10, 6, "new"), ("d", 9, 99, "late"), ("e", 11, 0, "new"))
    )
    want = {"a": "old", "b": "tie", "c": "new", "d": "old", "e": "new"}
    assert seen(table) == want
    table.compact()
    assert seen(table) == want and table.verify().ok


def test_the_newest_of_a_key_in_a_batch_is_found_by_all_columns(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    result = table.upsert(rows(("a", 1, 2, "older"), ("a", 1, 3, "newest"), ("a", 0, 9, "oldest"), ("a", 1, 3, "last")))
    assert seen(table) == {"a": "last"} and result.stale == 3


@kinds
def test_deletes_by_marker_lose_and_win_by_all_columns(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(rows(*((key, 10, 5, "old") for key in "abcde")))
    table.upsert(flagged(("a", 10, 4, ""), ("b", 10, 5, ""), ("c", 10, 6, ""), ("d", 9, 99, ""), ("e", 11, 0, "")))
    assert seen(table) == {"a": "old", "d": "old"}
    logged = [
        [values.to_pylist() for values in block.ordering]
        for path in Path(table.path).rglob(".*.log.*")
        for block in decode_log(path.read_bytes())
        if isinstance(block, DeleteBlock)
    ]
    assert logged == ([[[10, 10, 10, 9, 11], [4, 5, 6, 99, 0]]] if kind == "merge_on_read" else [])
    table.upsert(rows(("b", 1, 1, "back")))
    table.compact()
    assert seen(table) == {"a": "old", "b": "back", "d": "old"} and table.verify().ok


def test_a_delete_that_no_log_can_carry_goes_into_the_base_whichever_column_it_is(tmp_path: Path) -> None:
    kinds_ = {"seq": pa.float64(), "ts": pa.date32()}
    for name, kind in kinds_.items():
        schema = pa.schema([field.with_type(kind) if field.name == name else field for field in SCHEMA])
        table = hoodoo.create(tmp_path / name, schema, key="id", order_by=("ts", "seq"), **QUIET)
        table.upsert(rows(("a", 1, 1, "x"), ("b", 1, 1, "y"), schema=schema))
        table.upsert(rows(("a", 1, 0, ""), ("b", 1, 2, ""), schema=schema).append_column(IS_DELETED, [[True, True]]))
        assert seen(table) == {"a": "x"} and not list(Path(table.path).rglob(".*.log.*"))


def test_equal_bounds_of_the_first_column_do_not_make_a_log_win_unseen(tmp_path: Path) -> None:
    """By one column such logs win without a comparison; here the second one decides."""
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 10, 5, "old"), ("b", 10, 5, "old")))
    result = table.upsert(rows(("a", 10, 4, "late"), ("b", 10, 6, "new")))
    (group,) = table.handle.history.head().groups()
    assert not slices.last_logged_change_wins(table.handle.config, group) and not result.exact
    assert seen(table) == {"a": "old", "b": "new"}
    assert table.scan(where="v = 'old'").to_arrow()["id"].to_pylist() == ["a"]
    result = table.upsert(rows(("a", 11, 0, "newer"), ("b", 11, 0, "newer")))
    assert result.exact and seen(table) == {"a": "newer", "b": "newer"}
    since = table.cursor
    table.upsert(rows(("a", 11, -1, "late"), ("b", 11, 1, "newest")))
    assert table.incremental(since).to_arrow()["v"].to_pylist() == ["newest"]


# ---- batches
@kinds
@pytest.mark.parametrize("column", ["ts", "seq"])
def test_a_null_in_any_ordering_column_is_refused_and_set_aside(tmp_path: Path, kind: str, column: str) -> None:
    table = make(tmp_path / "t", kind)
    batch = rows(("a", 1, 1, "x"), ("b", 1, 1, "y"))
    at = SCHEMA.get_field_index(column)
    batch = batch.set_column(at, SCHEMA.field(at), pa.array([1, None], pa.int64()))
    with pytest.raises(hoodoo.OrderingError, match=f"Ordering column '{column}' is null or NaN in row 1") as caught:
        table.upsert(batch)
    assert caught.value.details["column"] == column
    table.upsert(batch, on_bad_rows="quarantine")
    assert seen(table) == {"a": "x"}
    assert table.quarantine().scan().to_arrow()["reason"].to_pylist() == ["null_order"]


@pytest.mark.parametrize("column", ["ts", "seq"])
def test_an_upsert_of_some_columns_needs_every_ordering_column(tmp_path: Path, column: str) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 1, 1, "x")))
    with pytest.raises(hoodoo.ColumnError, match=f"'{column}' .*is not in the batch"):
        table.upsert(rows(("a", 2, 2, "y")).drop_columns([column]), columns="given")
    with pytest.raises(hoodoo.ColumnError, match=f"'{column}' .*is not in the batch"):
        table.upsert(rows(("a", 2, 2, "y")).drop_columns([column]), missing="null")


@kinds
def test_an_upsert_of_some_columns_wins_or_loses_as_a_whole_by_all_ordering_columns(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(rows(("a", 10, 5, "a"), ("b", 10, 5, "b"), ("c", 10, 5, "c")))
    orders = rows(("a", 10, 4, ""), ("b", 10, 6, ""), ("c", 10, 6, ""), ("c", 10, 5, "")).drop_columns(["v"])
    result = table.upsert(orders, columns="given")
    assert (result.updated, result.stale) == (2, 2)
    found = {row["id"]: (row["ts"], row["seq"], row["v"]) for row in table.scan().to_arrow().to_pylist()}
    assert found == {"a": (10, 5, "a"), "b": (10, 6, "b"), "c": (10, 6, "c")}


def both(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
    return {"v": pc.binary_join_element_wise(stored["v"], newer["v"], "+"), "ts": newer["ts"], "seq": newer["seq"]}


@kinds
def test_a_merge_function_sees_no_row_that_is_late_by_a_later_column(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(rows(("a", 10, 5, "a")))
    batch = rows(("a", 10, 4, "late"), ("a", 10, 5, "tie"), ("a", 10, 7, "new"), ("a", 10, 6, "late"))
    assert table.upsert(batch, merge=hoodoo.CustomMerge(both)).stale == 2
    assert seen(table) == {"a": "a+tie+new"}


@kinds
def test_a_merge_that_sets_one_ordering_column_wins_or_loses_by_all(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(rows(("a", 10, 5, "a"), ("b", 10, 5, "b"), ("c", 10, 5, "c")))
    source = rows(("a", 10, 4, "late"), ("b", 10, 6, "new"), ("c", 9, 9, "late"))
    result = table.merge(source).when_matched_update_all().execute()
    assert (result.updated, result.stale) == (1, 2) and seen(table) == {"a": "a", "b": "new", "c": "c"}


def test_a_pull_with_deletes_has_every_ordering_column_of_a_key_that_went(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 10, 5, "a")))
    since = table.cursor
    table.delete([{"id": "a", "city": "sf"}])
    (gone,) = table.incremental(since, deletes=True).to_arrow().to_pylist()
    assert gone == {"id": "a", "city": "sf", "ts": 10, "seq": 5, "v": None, IS_DELETED: True}


# ---- tables of others, and shapes of slices
def test_a_table_of_hudis_that_goes_by_commit_time_does_so_although_it_has_ordering_fields(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    file = properties(table)
    stored = parse_properties(file.read_bytes()) | {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
    file.write_bytes(format_properties(stored, "Thu Jan 01 00:00:00 UTC 1970"))
    table = hoodoo.open(table.path)
    table.upsert(rows(("a", 10, 5, "a")))
    table.upsert(rows(("a", 1, 1, "later")))
    assert table.order_by == ("ts", "seq") and seen(table) == {"a": "later"}


def test_a_delete_with_another_number_of_ordering_values_than_the_table_has_columns_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(("a", 10, 5, "a")))
    table.upsert(flagged(("a", 10, 6, "")))
    file = properties(table)
    stored = parse_properties(file.read_bytes()) | {"hoodie.table.ordering.fields": "ts"}
    file.write_bytes(format_properties(stored, "Thu Jan 01 00:00:00 UTC 1970"))
    with pytest.raises(
        hoodoo.UnsupportedTable, match=r"has 2 ordering values: expected 1, one for each ordering column \(ts\)"
    ):
        hoodoo.open(table.path).scan().to_arrow()


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("seed", range(sized(3, 40)))
def test_slices_of_every_shape_hold_the_newest_rows(tmp_path: Path, log_format: str, seed: int) -> None:
    """Logs over rows, logs that were merged with each other, large logs, clustered groups with changes beside."""
    rng, want = random.Random(seed), dict[str, tuple[int, int, str]]()
    table = make(tmp_path / "t", log_format=log_format)
    for step in range(14):
        keys = rng.sample([f"k{n}" for n in range(12)], rng.randrange(1, 8))
        gone = step > 0 and rng.random() < 0.4
        given = [(key, rng.randrange(3), rng.randrange(4), f"{step}") for key in keys]
        table.upsert(flagged(*given) if gone else rows(*given))
        for key, ts, seq, v in given:
            if key not in want or (ts, seq) >= want[key][:2]:
                want.pop(key, None)
                if not gone:
                    want[key] = (ts, seq, v)
        assert seen(table) == {key: v for key, (*_, v) in want.items()}, step
        if rng.random() < 0.15:
            table.compact()
        if rng.random() < 0.1:
            table.maintenance.cluster(sort_by=["v"])
        assert table.verify().ok
