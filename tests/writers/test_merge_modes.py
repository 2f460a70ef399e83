"""`upsert(merge=..., unavailable=...)`: which values of a row of the batch replace stored ones."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi_rows import hudi_rows
from tiers import sized

import hoodoo
from hoodoo.timeline.timeline import TableTimeline

KINDS = ("merge_on_read", "copy_on_write")
MARKER = "__debezium_unavailable_value"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)


def row(key: int, ts: int = 5, **more: Any) -> dict[str, Any]:
    return {"id": key, "day": "d", "ts": ts, "a": None, "s": None, "raw": None, "tags": None} | more


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(path: Path, kind: str, *rows: dict[str, Any], order_by: str | None = "ts", **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="day", order_by=order_by, type=kind, **options)
    table.insert(pa.Table.from_pylist(list(rows), schema=SCHEMA))
    return table


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def found(table: hoodoo.Table) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in table.scan().to_arrow().to_pylist()}


def read_by_hudi(table: hoodoo.Table) -> dict[int, dict[str, Any]]:
    """As `found`, by another implementation."""
    return {one["id"]: {name: one[name] for name in SCHEMA.names} for one in hudi_rows(table.path)}


STORED = row(1, a=1, s="x", raw=b"r", tags=["t"])


# ---- null keeps
def test_a_null_keeps_the_stored_value(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED, row(2))
    result = table.upsert(arrow(row(1, 6, a=2), row(2, 6, tags=[]), row(3, 1, s="new")), merge="keep_non_null")
    assert (result.inserted, result.updated, result.stale) == (1, 2, 0)
    assert found(table) == {1: STORED | {"ts": 6, "a": 2}, 2: row(2, 6, tags=[]), 3: row(3, 1, s="new")}
    assert read_by_hudi(table) == found(table)


def test_a_row_with_a_smaller_ordering_value_is_stale_as_a_whole(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row(1, a=1))
    result = table.upsert(arrow(row(1, 4, a=9, s="late")), merge="keep_non_null")
    assert (result.updated, result.stale) == (0, 1)
    assert found(table) == {1: row(1, a=1)}


def test_a_row_that_changes_nothing_is_not_written(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    assert table.upsert(arrow(row(1, 5, s="x")), merge="keep_non_null").instant == ""


def test_rows_of_one_key_are_merged_one_after_the_other(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    batch = arrow(
        row(1, 6, a=2), row(2, 3, s="b"), row(1, 8, s="y"), row(1, 7, a=9), row(2, 3, a=4), row(1, 8, tags=[])
    )
    result = table.upsert(batch, merge="keep_non_null")
    assert (result.inserted, result.updated, result.stale) == (1, 1, 1)
    assert found(table) == {1: STORED | {"ts": 8, "a": 2, "s": "y", "tags": []}, 2: row(2, 3, a=4, s="b")}


def test_a_row_after_a_delete_of_its_key_begins_anew(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED, STORED | {"id": 2}, STORED | {"id": 3})
    flag = {"_hoodie_is_deleted": True}
    rows = [row(1, 6) | flag, row(1, 7, a=2), row(2, 6, a=2), row(2, 7) | flag, row(4, 1, a=1), row(4, 2) | flag]
    rows = [{"_hoodie_is_deleted": False} | one for one in rows]
    batch = pa.Table.from_pylist(rows, SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())))
    result = table.upsert(batch, merge="keep_non_null")
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 1)
    assert found(table) == {1: row(1, 7, a=2), 3: STORED | {"id": 3}}


def test_columns_that_are_not_given_begin_anew_after_a_delete_too(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    table.alter.add_column("n", pa.int64(), default=7)
    table.update({"n": 8})
    rows = [
        {"id": 1, "day": "d", "ts": 6, "a": 3, "_hoodie_is_deleted": True},
        {"id": 1, "day": "d", "ts": 6, "a": 4, "_hoodie_is_deleted": False},
    ]
    table.upsert(rows, columns="given")
    assert found(table) == {1: row(1, 6, a=4, n=7)}


def test_columns_that_take_no_null_are_asked_of_the_row_that_comes_of_it(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("a", pa.int64(), nullable=False), ("s", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind, checks={"short": "s LIKE '_'"})
    table.insert([{"id": 1, "a": 1, "s": "x"}])
    table.upsert([{"id": 1, "a": None, "s": "y"}], merge="keep_non_null")
    assert found(table) == {1: {"id": 1, "a": 1, "s": "y"}}
    for wrong in ({"id": 2, "a": None, "s": "z"}, {"id": 1, "a": 3, "s": "long"}):
        with pytest.raises((hoodoo.ColumnError, hoodoo.CheckFailed)):
            table.upsert([wrong], merge="keep_non_null")
    assert found(table) == {1: {"id": 1, "a": 1, "s": "y"}}


# ---- a value that was not sent
@pytest.mark.parametrize("merge", ["replace", "keep_non_null"])
def test_a_value_that_was_not_sent_keeps_the_stored_value(tmp_path: Path, kind: str, merge: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    table.upsert(arrow(row(1, 6, s=MARKER, raw=MARKER.encode(), a=None)), merge=merge, unavailable=MARKER)
    kept = {"a": 1, "tags": ["t"]} if merge == "keep_non_null" else {"a": None, "tags": None}
    assert found(table) == {1: STORED | {"ts": 6} | kept}
    table.upsert(arrow(row(1, 7, s=MARKER)), merge="replace")
    assert found(table)[1]["s"] == MARKER  # nobody said that the text stands for anything


def test_a_new_key_needs_the_values_that_were_not_sent(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    batch = arrow(row(1, 6, s=MARKER), row(2, 6, s=MARKER))
    with pytest.raises(hoodoo.ColumnError, match=r"'s' was not sent for the key .*2") as refused:
        table.upsert(batch, unavailable=MARKER)
    assert refused.value.details["column"] == "s"
    assert found(table) == {1: STORED}
    assert table.upsert(batch, unavailable=MARKER, new_keys="ignore").updated == 1
    assert found(table)[1]["s"] == "x"


def test_a_row_of_the_batch_may_bring_what_a_later_one_did_not_send(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    table.upsert(arrow(row(2, 6, s="sent"), row(2, 7, s=MARKER, a=3)), unavailable=MARKER)
    assert found(table)[2] == row(2, 7, s="sent", a=3)


# ---- a function
def added(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
    """Sums up `a`, and takes the newer ordering value."""
    total = pc.add(pc.fill_null(stored["a"], 0), pc.fill_null(newer["a"], 0))
    return {"a": total, "ts": newer["ts"]}


def test_a_function_merges_rows_of_one_key(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED, row(2, 9, a=9))
    batch = arrow(row(1, 6, a=2), row(1, 7, a=3), row(2, 8, a=1), row(3, 1, a=5), row(3, 2, a=6), row(3, 2, a=7))
    result = table.upsert(batch, merge=hoodoo.CustomMerge(added))
    assert (result.inserted, result.updated, result.stale) == (1, 1, 1)
    assert found(table) == {1: STORED | {"ts": 7, "a": 6}, 2: row(2, 9, a=9), 3: row(3, 2, a=18)}


def test_a_function_sees_whole_rows_of_the_same_keys_and_no_stale_ones(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, *(row(key, ts=key, a=key) for key in range(20)))
    seen: list[tuple[pa.Table, pa.Table]] = []

    def merge(stored: pa.Table, newer: pa.Table) -> pa.Table:
        seen.append((stored, newer))
        return newer

    table.upsert(arrow(*(row(key, ts=10, s="n") for key in range(5, 30))), merge=hoodoo.CustomMerge(merge))
    for stored, newer in seen:
        assert stored.schema.names == newer.schema.names == SCHEMA.names
        assert stored["id"].to_pylist() == newer["id"].to_pylist()
    assert sorted(key for stored, _ in seen for key in stored["id"].to_pylist()) == list(range(5, 11))
    assert {key for key, one in found(table).items() if one["s"] == "n"} == {*range(5, 11), *range(20, 30)}


def test_what_a_function_may_not_return_is_refused_before_anything_is_written(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)
    wrong: list[tuple[Any, str]] = [
        (lambda stored, newer: None, "function for merge returned None"),
        (lambda stored, newer: {"a": [1]}, "expected an Arrow array"),
        (lambda stored, newer: {"a": pa.array([1, 2])}, "2 values"),
        (lambda stored, newer: {"none": pa.array([1])}, "'none' is not in the table"),
        (lambda stored, newer: {"id": pa.array([9])}, "key column"),
        (lambda stored, newer: {"a": pa.array(["x"])}, "'a'"),
    ]
    for function, match in wrong:
        with pytest.raises(hoodoo.ColumnError, match=match):
            table.upsert(arrow(row(1, 6)), merge=hoodoo.CustomMerge(function))
    with pytest.raises(ZeroDivisionError):
        table.upsert(arrow(row(1, 6)), merge=hoodoo.CustomMerge(lambda stored, newer: 1 / 0))  # type: ignore[arg-type,return-value]
    assert found(table) == {1: STORED}


# ---- everything else holds
@pytest.mark.parametrize(
    "given",
    [
        {"merge": "other"},
        {"merge": None},
        {"merge": added},
        {"unavailable": 7},
        {"unavailable": "\ud800"},
        {"merge": hoodoo.CustomMerge(added), "unavailable": "x"},
        {"merge": hoodoo.CustomMerge(added), "columns": "given"},
        {"merge": "keep_non_null", "on_bad_rows": "quarantine"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    table = made(tmp_path / "t", "merge_on_read", STORED)
    with pytest.raises(hoodoo.OptionError):
        table.upsert(arrow(row(1, 6)), **given)


def test_a_custom_merge_takes_a_function() -> None:
    with pytest.raises(hoodoo.OptionError, match="a function with two parameters"):
        hoodoo.CustomMerge("added")  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(hoodoo.CustomMerge(added))) == hoodoo.CustomMerge(added)


@pytest.mark.parametrize("merge", ["keep_non_null", hoodoo.CustomMerge(added)], ids=["keep", "custom"])
def test_what_others_write_meanwhile_is_kept(
    tmp_path: Path, kind: str, merge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = made(tmp_path / "t", kind, row(1, a=1)), hoodoo.open(tmp_path / "t")
    attempt, left = TableTimeline.attempt, [arrow(row(1, 6, a=10, s="other"))]

    def overtaken(self: TableTimeline, *given: Any, **named: Any) -> Any:
        if self is table.handle.timeline and left:
            other.upsert(left.pop())
        return attempt(self, *given, **named)

    monkeypatch.setattr(TableTimeline, "attempt", overtaken)
    result = table.upsert(arrow(row(1, 7, a=5)), merge=merge)
    assert result.retries >= 1
    assert found(table) == {1: row(1, 7, a=5 if merge == "keep_non_null" else 15, s="other")}


def model(stored: dict[int, dict[str, Any]], batch: list[dict[str, Any]], ordered: bool, custom: bool) -> None:
    """What one batch does to `stored`: rows of a key that are not stale become one row first."""

    def one(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        if custom:
            return old | {"a": (old["a"] or 0) + (new["a"] or 0), "ts": new["ts"]}
        return {name: old[name] if new[name] is None or new[name] == MARKER else new[name] for name in old}

    chains: dict[int, tuple[bool, dict[str, Any] | None, int]] = {}
    for new in batch:
        key, gone = new["id"], new["_hoodie_is_deleted"]
        new = {name: value for name, value in new.items() if name != "_hoodie_is_deleted"}
        anew, row, ts = chains.get(key, (False, None, -1))
        newest = max(ts, stored[key]["ts"]) if key in stored else ts
        if ordered and new["ts"] < newest:
            continue
        if gone:
            chains[key] = (True, None, new["ts"])
        else:
            chains[key] = (anew, new if row is None else one(row, new), new["ts"])
    for key, (anew, row, _) in chains.items():
        old = stored.get(key)
        if row is None:
            stored.pop(key, None)
        else:
            stored[key] = row if old is None or anew else one(old, row)


@pytest.mark.both
@pytest.mark.parametrize("order_by", ["ts", None])
@pytest.mark.parametrize("custom", [False, True], ids=["keep", "custom"])
@pytest.mark.parametrize("seed", range(sized(1, 3)))
def test_random_batches_do_what_their_rows_say(
    tmp_path: Path, kind: str, order_by: str | None, custom: bool, seed: int
) -> None:
    rng = random.Random(seed)
    table = made(tmp_path / "t", kind, order_by=order_by)
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    stored: dict[int, dict[str, Any]] = {}
    for step in range(12):
        batch = []
        for _ in range(rng.randrange(1, 25)):
            values = {
                "a": rng.choice([None, rng.randrange(9)]),
                "s": rng.choice([None, "u", "v"]),
                "raw": rng.choice([None, b"", b"z"]),
                "tags": rng.choice([None, [], ["q", None]]),
            }
            one = row(rng.randrange(12), rng.randrange(step, step + 9), **values)
            batch.append(one | {"_hoodie_is_deleted": rng.random() < 0.15})
        merge: Any = hoodoo.CustomMerge(added) if custom else "keep_non_null"
        table.upsert(pa.Table.from_pylist(batch, schema), merge=merge, unavailable=None if custom else MARKER)
        model(stored, batch, order_by is not None, custom)
        assert found(table) == stored, step
        if rng.random() < 0.3:
            table.compact() if kind == "merge_on_read" and rng.random() < 0.5 else table.maintenance.cluster()
            assert found(table) == stored, step
    assert read_by_hudi(table) == stored


def test_a_row_stays_in_the_partition_that_is_made_of_it(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.date32()), ("a", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by=[hoodoo.month("at")], type=kind)
    table.insert([{"id": 1, "at": dt.date(2026, 3, 1), "a": 1}])
    late = [{"id": 1, "at": dt.date(2026, 3, 2), "a": None}]
    table.upsert(late, merge="keep_non_null")
    assert table.get(1).to_pylist() == [{"id": 1, "at": dt.date(2026, 3, 2), "a": 1, "at_month": "2026-03"}]
    table.upsert(late, merge=hoodoo.CustomMerge(lambda stored, newer: newer))
    assert table.get(1)["a"].to_pylist() == [None]

    def moved(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
        return {"at": pa.array([dt.date(2026, 4, 1)] * len(stored))}

    with pytest.raises(hoodoo.ColumnError, match="at_month"):
        table.upsert(late, merge=hoodoo.CustomMerge(moved))


@pytest.mark.parametrize("missing", ["fail", "null"])
def test_a_column_that_the_batch_lacks_keeps_its_stored_values(tmp_path: Path, kind: str, missing: str) -> None:
    """With missing="null" a column with a default got the default, over what was stored."""
    table = made(tmp_path / "t", kind, STORED)
    table.alter.add_column("n", pa.int64(), default=7)
    table.update({"n": 8})
    rows = [{"id": key, "day": "d", "ts": 6, "a": 2} for key in (1, 2)]
    table.upsert(rows, merge="keep_non_null", missing=missing)
    assert found(table) == {1: STORED | {"ts": 6, "a": 2, "n": 8}, 2: row(2, 6, a=2) | {"n": 7}}


# ---- told by strangers
def test_rows_of_a_batch_that_are_older_than_the_stored_row_give_it_no_value(tmp_path: Path, kind: str) -> None:
    """Rows of one key were merged first, the older ones too, and what came of them was newer than the stored row."""
    for merge, wanted in (("keep_non_null", 7), (hoodoo.CustomMerge(added), 8)):
        table = made(tmp_path / str(wanted), kind, row(1, 3, a=7, s="x"), row(2, 9, a=1))
        batch = arrow(row(1, 2, a=5, s="late"), row(1, 4, a=None if wanted == 7 else 1), row(2, 1, a=2), row(2, 2, a=3))
        result = table.upsert(batch, merge=merge)
        assert (result.updated, result.stale) == (1, 2)
        assert found(table) == {1: row(1, 4, a=wanted, s="x"), 2: row(2, 9, a=1)}


def test_a_delete_that_is_older_than_the_stored_row_deletes_nothing_of_it(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row(1, 3, a=7, s="x"))
    rows = [row(1, 1) | {"_hoodie_is_deleted": True}, row(1, 5, s="y") | {"_hoodie_is_deleted": False}]
    table.upsert(
        pa.Table.from_pylist(rows, SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))), merge="keep_non_null"
    )
    assert found(table) == {1: row(1, 5, a=7, s="y")}


def test_the_same_key_in_another_partition_makes_no_row_stale(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, row(1, 9, a=1) | {"day": "e"})
    table.upsert(arrow(row(1, 2, a=5), row(1, 4, s="n")), merge="keep_non_null")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda one: str(one["day"]))
    assert rows == [row(1, 4, a=5, s="n"), row(1, 9, a=1) | {"day": "e"}]


@pytest.mark.parametrize(
    ("texts", "stored"), [(["sent", MARKER], "sent"), ([None, MARKER], None), ([MARKER, "sent"], "sent")]
)
def test_a_value_that_was_not_sent_keeps_that_of_the_row_before(
    tmp_path: Path, kind: str, texts: list[str | None], stored: str | None
) -> None:
    table = made(tmp_path / "t", kind)
    batch = arrow(*(row(1, ts, a=ts, s=text) for ts, text in enumerate(texts)))
    table.upsert(batch, merge="keep_non_null", unavailable=MARKER)
    assert found(table) == {1: row(1, 1, a=1, s=stored)}


def test_a_null_does_not_make_up_for_a_value_that_was_not_sent(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind)
    with pytest.raises(hoodoo.ColumnError, match="was not sent"):
        table.upsert(arrow(row(1, 1, s=MARKER), row(1, 2)), merge="keep_non_null", unavailable=MARKER)
    assert found(table) == {}


@pytest.mark.parametrize("wrong", [None, float("nan")])
def test_a_function_gives_every_row_something_to_be_ordered_by(tmp_path: Path, kind: str, wrong: float | None) -> None:
    """NaN was stored, and no later row of the key ever won."""
    schema = pa.schema([("id", pa.int64()), ("o", pa.float64()), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="o", type=kind)
    table.insert([{"id": 1, "o": 1.0, "v": 1}])

    def merge(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
        return {"o": pa.array([wrong] * len(stored), pa.float64()), "v": newer["v"]}

    with pytest.raises(hoodoo.OrderingError, match="'o' is null or NaN"):
        table.upsert([{"id": 1, "o": 2.0, "v": 2}], merge=hoodoo.CustomMerge(merge))
    assert found(table) == {1: {"id": 1, "o": 1.0, "v": 1}}


def test_a_function_that_returns_a_column_twice_is_refused(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, STORED)

    def merge(stored: pa.Table, newer: pa.Table) -> pa.Table:
        return pa.table([newer["a"], newer["a"]], names=["a", "a"])

    with pytest.raises(hoodoo.ColumnError, match="'a' more than once"):
        table.upsert(arrow(row(1, 6)), merge=hoodoo.CustomMerge(merge))


def test_a_marker_is_no_ordering_value(tmp_path: Path) -> None:
    """Rows were ordered by the marker's own text: it lost to 'b', and won over 'A'."""
    schema = pa.schema([("id", pa.int64()), ("o", pa.string()), ("n", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", order_by="o")
    table.upsert([{"id": 1, "o": "b", "n": 1}, {"id": 2, "o": "A", "n": 1}])
    before = table.cursor
    with pytest.raises(hoodoo.OrderingError, match="'o' was not sent for the key .*2"):
        table.upsert([{"id": 1, "o": "c", "n": 2}, {"id": 2, "o": "?", "n": 2}], unavailable="?")
    assert table.cursor == before
