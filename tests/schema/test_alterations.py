"""Changes of columns, one by one: what each makes of a table, what it costs, what is refused; and no row changes."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo import AddColumn, DropColumn, MakeNullable, MoveColumn, RenameColumn, WidenColumn
from hoodoo.timeline.slots.slot import ALTER

KINDS = ("merge_on_read", "copy_on_write")
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
ONE = pa.struct([("only", pa.int32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.int32()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.decimal128(6, 2)),
        pa.field("must", pa.int32(), nullable=False),
        pa.field("s", STRUCT),
        pa.field("one", ONE),
        pa.field("l", pa.list_(STRUCT)),
        pa.field("n", pa.list_(pa.int32())),
        pa.field("m", pa.map_(pa.string(), STRUCT)),
    ]
)


def row(key: int, **values: Any) -> dict[str, Any]:
    struct = {"x": key, "y": f"y{key}"}
    plain = {"id": key, "part": "p", "ts": 1, "a": key, "f": 0.1, "d": Decimal("1.25"), "must": 1}
    nested = {"s": struct, "one": {"only": 1}, "l": [struct, None], "n": [key], "m": [("k", struct)]}
    return plain | nested | values


def make(path: Path, kind: str) -> hoodoo.Table:
    table = hoodoo.create(
        path, SCHEMA, key="id", partition_by="part", order_by="ts", type=kind, compact_after_logs=None, clean_every=None
    )
    table.upsert(batch(row(1), row(2, part="q")))
    table.upsert(batch(row(1, a=5)))  # a log over one of two groups, where the table has logs
    return table


def batch(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


@pytest.fixture(scope="module", params=KINDS)
def still(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hoodoo.Table]:
    """A table on which nothing that is tried leaves a trace."""
    table = make(tmp_path_factory.mktemp("still") / "t", request.param)
    seq = table.cursor.seq
    yield table
    assert hoodoo.open(table.path).cursor.seq == seq
    assert len(table.inspect.schemas()) == 1 and table.verify().problems == []


REFUSED: list[tuple[Any, str]] = [
    (AddColumn("a", pa.int32()), "a"),
    (AddColumn("A", pa.int32()), "A"),
    (AddColumn("_hoodie_x", pa.int32()), "_hoodie_x"),
    (AddColumn("_HOODIE_X", pa.int32()), "_HOODIE_X"),
    (AddColumn("1x", pa.int32()), "1x"),
    (AddColumn("", pa.int32()), ""),
    (AddColumn("x y", pa.int32()), "x y"),
    (AddColumn("s.x", pa.int32()), "s.x"),
    (AddColumn("s.X", pa.int32()), "s.X"),
    (AddColumn("a.x", pa.int32()), "a"),
    (AddColumn("none.x", pa.int32()), "none"),
    (AddColumn("l.x", pa.int32()), "l"),
    (AddColumn("new", pa.uint64()), "new"),
    (AddColumn("new", pa.null()), "new"),
    (AddColumn("new", "strong"), "new"),
    (AddColumn("new", 7), "new"),  # type: ignore[arg-type]
    (AddColumn("new", pa.int32(), after="none"), "none"),
    (AddColumn("new", pa.int32(), after="a", first=True), "new"),
    (AddColumn("new", pa.int32(), default="text"), "new"),
    (AddColumn("new", pa.int32(), default=2**40), "new"),
    (MoveColumn("a", after="a"), "a"),
    (AddColumn("new", pa.int32(), default=1.9), "new"),
    (AddColumn("new", pa.date32(), default=dt.datetime(2024, 1, 1, 5)), "new"),
    (AddColumn("new", pa.timestamp("us"), default=dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)), "new"),
    (AddColumn("new", pa.timestamp("us", "UTC"), default=dt.datetime(2024, 1, 1)), "new"),
    (AddColumn("new", pa.float64(), default=float("nan")), "new"),
    (AddColumn("new", pa.binary(), default=b"x"), "new"),
    (AddColumn("new", STRUCT, default={"x": 1, "y": ""}), "new"),
    (AddColumn("s.z", pa.int32(), default=1), "z"),
    (DropColumn("none"), "none"),
    (DropColumn("id"), "id"),
    (DropColumn("part"), "part"),
    (DropColumn("ts"), "ts"),
    (DropColumn("one.only"), "one.only"),
    (DropColumn("n[]"), "n[]"),
    (DropColumn("m{}"), "m{}"),
    (DropColumn("_hoodie_record_key"), "_hoodie_record_key"),
    (RenameColumn("id", "key"), "id"),
    (RenameColumn("part", "p"), "part"),
    (RenameColumn("ts", "t"), "ts"),
    (RenameColumn("a", "f"), "f"),
    (RenameColumn("a", "F"), "F"),
    (RenameColumn("a", "A"), "A"),
    (RenameColumn("a", "_hoodie_a"), "_hoodie_a"),
    (RenameColumn("a", "s.a"), "s.a"),
    (RenameColumn("s.x", "y"), "s.y"),
    (RenameColumn("n[]", "x"), "n[]"),
    (RenameColumn("m{}", "x"), "m{}"),
    (WidenColumn("id", pa.string()), "id"),
    (WidenColumn("part", pa.string()), "part"),
    (WidenColumn("ts", pa.string()), "ts"),
    (WidenColumn("a", pa.date32()), "a"),
    (WidenColumn("a", pa.float32()), "a"),
    (WidenColumn("a", pa.decimal128(9, 0)), "a"),
    (WidenColumn("f", pa.string()), "f"),
    (WidenColumn("d", pa.decimal128(6, 3)), "d"),
    (WidenColumn("d", pa.decimal128(5, 2)), "d"),
    (WidenColumn("d", pa.string()), "d"),
    (WidenColumn("d", pa.float64()), "d"),
    (WidenColumn("s", pa.struct([])), "s"),
    (WidenColumn("s.y", pa.binary()), "s.y"),
    (WidenColumn("m{}", pa.string()), "m{}"),
    (MoveColumn("s.x", first=True), "s.x"),
    (MoveColumn("a"), "a"),
    (MoveColumn("a", after="f", first=True), "a"),
    (MoveColumn("a", after="none"), "none"),
    (MoveColumn("none", first=True), "none"),
    (MakeNullable("id"), "id"),
    (MakeNullable("ts"), "ts"),
    (MakeNullable("none"), "none"),
]


@pytest.mark.parametrize(("change", "column"), REFUSED, ids=lambda one: str(one)[:60])
def test_what_is_refused_names_the_column_and_changes_nothing(still: hoodoo.Table, change: Any, column: str) -> None:
    with pytest.raises(hoodoo.SchemaError) as refused:
        still.alter([change], rewrite=True)
    assert column.strip("'") in str(refused.value.details["column"]), refused.value.details
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.message, again.details) == (refused.value.message, refused.value.details)


@pytest.mark.parametrize("given", ["drop a", [DropColumn("a"), "drop b"], ["a"]])
def test_a_list_of_anything_but_changes_is_refused(still: hoodoo.Table, given: Any) -> None:
    with pytest.raises(hoodoo.OptionError):
        still.alter(given)


@pytest.mark.parametrize(
    "change",
    [
        [],
        [MoveColumn("id", first=True)],
        [WidenColumn("a", pa.int32())],
        [RenameColumn("a", "a")],
        [MakeNullable("a")],
        [RenameColumn("a", "aa"), RenameColumn("aa", "a")],
        [MoveColumn("a", first=True), MoveColumn("a", after="ts")],
    ],
    ids=str,
)
def test_a_change_that_changes_nothing_makes_no_commit(still: hoodoo.Table, change: Any) -> None:
    done = still.alter(change)
    assert (done.cursor.seq, done.instant, done.groups) == (still.cursor.seq, "", 0)


@pytest.mark.parametrize(
    "changes",
    [
        [DropColumn("a"), AddColumn("A", pa.int32())],
        [RenameColumn("a", "aa"), AddColumn("A", pa.int32())],
        [RenameColumn("s.x", "xx"), AddColumn("s.X", pa.int32())],
    ],
    ids=str,
)
def test_a_name_that_went_comes_back_in_the_same_letters_only(still: hoodoo.Table, changes: Any) -> None:
    """In a table's first change the names until then were not known as former ones."""
    with pytest.raises(hoodoo.SchemaError, match="only in case"):
        still.alter(changes, rewrite=True)


# ---------------------------------------------------------------- what each costs

FREE: list[tuple[Any, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    (AddColumn("new", pa.int32()), lambda r: r | {"new": None}),
    (AddColumn("new", STRUCT, first=True), lambda r: r | {"new": None}),
    (DropColumn("a"), lambda r: {k: v for k, v in r.items() if k != "a"}),
    (DropColumn("s"), lambda r: {k: v for k, v in r.items() if k != "s"}),
    (MoveColumn("part", first=True), lambda r: r),
    (MakeNullable("must"), lambda r: r),
]
STRUCTS = lambda r, f: r | {"s": f(r["s"])}  # noqa: E731
LOGS: list[tuple[Any, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    (WidenColumn("a", pa.int64()), lambda r: r),
    (WidenColumn("a", pa.float64()), lambda r: r | {"a": float(r["a"])}),
    (WidenColumn("a", pa.string()), lambda r: r | {"a": str(r["a"])}),
    (WidenColumn("a", pa.decimal128(12, 2)), lambda r: r | {"a": Decimal(r["a"])}),
    (WidenColumn("d", pa.decimal128(9, 4)), lambda r: r),
    (AddColumn("s.z", pa.int32(), after="x"), lambda r: STRUCTS(r, lambda s: s | {"z": None})),
    (AddColumn("l[].z", pa.int32()), lambda r: r | {"l": [x and x | {"z": None} for x in r["l"]]}),
    (AddColumn("m{}.z", pa.int32()), lambda r: r | {"m": [(k, x | {"z": None}) for k, x in r["m"]]}),
    (DropColumn("s.x"), lambda r: STRUCTS(r, lambda s: {"y": s["y"]})),
]
ALL: list[tuple[Any, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    (RenameColumn("a", "aa"), lambda r: {k.replace("a", "aa") if k == "a" else k: v for k, v in r.items()}),
    (RenameColumn("s.x", "xx"), lambda r: STRUCTS(r, lambda s: {"xx": s["x"], "y": s["y"]})),
    (RenameColumn("m{}.y", "yy"), lambda r: r | {"m": [(k, {"x": x["x"], "yy": x["y"]}) for k, x in r["m"]]}),
    (WidenColumn("f", pa.float64()), lambda r: r),
    (WidenColumn("s.x", pa.int64()), lambda r: r),
    (WidenColumn("n[]", pa.string()), lambda r: r | {"n": [str(x) for x in r["n"]]}),
]
COSTS = [("free", *one) for one in FREE] + [("logs", *one) for one in LOGS] + [("all", *one) for one in ALL]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cost", "change", "meant"), COSTS, ids=lambda one: "meant" if callable(one) else str(one)[:40]
)
def test_a_change_costs_what_its_class_says_and_shows_no_change_of_rows(
    tmp_path: Path, kind: str, cost: str, change: Any, meant: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    table = make(tmp_path / "t", kind)
    since, before = table.cursor, meta(table)
    files = {path for path in Path(table.path).rglob("*") if path.suffix == ".parquet" or ".log." in path.name}
    if cost == "all":
        with pytest.raises(hoodoo.RewriteNeeded) as needed:
            table.alter([change])
        assert (needed.value.details["groups"], needed.value.details["rows"]) == (2, 2)
        assert needed.value.details["bytes"] > 1000 and table.cursor == since
    done = table.alter([change], rewrite=cost == "all")
    groups = {"free": 0, "logs": int(kind == "merge_on_read"), "all": 2}[cost]
    new = {path for path in Path(table.path).rglob("*.parquet")} - files
    assert (done.groups, done.rows, len([p for p in new if ".hoodie" not in str(p)])) == (groups, groups, groups)
    assert (done.bytes_written > 0) == (groups > 0)
    slot = table.handle.history.slot(done.cursor.seq)
    assert (slot.operation, slot.instant, done.cursor.seq) == (ALTER, done.instant, since.seq + 1)
    want = [meant(row(1, a=5)), meant(row(2, part="q"))]
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda one: one["id"])
    for one in (*found, *want):
        one["f"] = round(one["f"], 6)
    assert found == want
    assert meta(table) == before  # commit times and sequence numbers
    assert table.incremental(since).to_arrow().num_rows == 0
    assert table.incremental(since, deletes=True).to_arrow().num_rows == 0
    assert table.changes(since).to_arrow().num_rows == 0
    assert table.changes(since, versions="all").to_arrow().num_rows == 0
    assert table.changes(since, versions="diff").to_arrow().num_rows == 0
    old = table.scan(as_of=since).to_arrow()
    assert old.schema.remove_metadata() == pa.schema([(f.name, f.type) for f in SCHEMA])
    assert table.inspect.schema_at(since).names == SCHEMA.names
    assert [version.id for version in table.inspect.schemas()] == [1, 2]
    assert (
        table.inspect.schemas()[1].cursor == done.cursor
        and table.inspect.schemas()[1].schema.names == table.schema.names
    )


def meta(table: hoodoo.Table) -> list[dict[str, Any]]:
    names = ["_hoodie_record_key", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    return sorted(table.scan(columns=names, meta=True).to_arrow().to_pylist(), key=str)


def test_schemas_say_in_words_what_each_change_was_and_ids_stay(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.alter([AddColumn("new", pa.int32()), DropColumn("d"), MakeNullable("must")])
    table.alter([RenameColumn("a", "aa"), WidenColumn("f", pa.float64()), RenameColumn("s.x", "xx")], rewrite=True)
    table.alter([RenameColumn("aa", "a"), MoveColumn("a", first=True), AddColumn("d", pa.string())], rewrite=True)
    first, second, third, fourth = table.inspect.schemas()
    assert first.changes[0].startswith("create id, part") and first.cursor.seq == 0
    assert sorted(second.changes) == ["add new int32", "drop d", "make must nullable"]
    assert sorted(third.changes) == ["rename a to aa", "rename s.x to xx", "widen f from float to double"]
    assert fourth.changes[:2] == ("rename aa to a", "add d string") and fourth.changes[2].startswith("order a, id")
    assert first.ids["a"] == third.ids["aa"] == fourth.ids["a"] and first.ids["s.x"] == third.ids["s.xx"]
    assert fourth.ids["d"] > max(first.ids.values())
    assert [first.ids[name] for name in SCHEMA.names] == list(range(5, 5 + len(SCHEMA)))


def test_a_column_that_was_made_nullable_takes_nulls_from_then_on(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    with pytest.raises(hoodoo.ColumnError):
        table.upsert(batch(row(3, must=None)))
    table.alter.make_nullable("must")
    table.upsert(batch(row(3, must=None)))
    assert table.schema.field("must").nullable
    assert table.get([3])["must"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("kind", "default", "wider", "then"),
    [
        (pa.int32(), 7, pa.int64(), 7),
        (pa.int32(), 7, pa.float64(), 7.0),
        (pa.int32(), 7, pa.string(), "7"),
        (pa.int32(), 7, pa.decimal128(12, 2), Decimal(7)),
        (pa.float32(), 0.1, pa.float64(), 0.1),
        (pa.decimal128(6, 2), Decimal("1.25"), pa.decimal128(9, 4), Decimal("1.25")),
        (pa.string(), "ü" * 100, None, None),
        (pa.bool_(), False, None, None),
        (pa.date32(), dt.date(1969, 7, 20), None, None),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC), None, None),
        (pa.timestamp("ms"), dt.datetime(2026, 1, 1), None, None),
        (pa.int64(), None, None, None),
    ],
    ids=str,
)
def test_a_default_is_what_later_batches_without_the_column_mean_also_once_it_is_wider(
    tmp_path: Path, kind: pa.DataType, default: Any, wider: pa.DataType | None, then: Any
) -> None:
    """A float's default became another number where the column was widened to double, as its values do not."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id", type="copy_on_write")
    table.upsert([{"id": 1}])
    table.alter.add_column("n", kind, default=default)
    table.upsert([{"id": 2}])
    if wider:
        table.alter.widen_column("n", wider, rewrite=True)
        table.upsert([{"id": 3}])
    found = {one["id"]: one["n"] for one in table.scan().to_arrow().to_pylist()}
    if pa.types.is_float32(kind):
        default = then
    want = {1: None, 2: then if wider else default} | ({3: then} if wider else {})
    assert found == want


def test_a_column_added_without_a_default_is_asked_for_in_every_batch(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "copy_on_write")
    table.alter.add_column("new", pa.int32())
    with pytest.raises(hoodoo.ColumnError, match="'new'"):
        table.upsert(batch(row(3)))
    table.upsert(batch(row(3)), missing="null")
    assert table.get([3])["new"].to_pylist() == [None]


def test_a_restore_brings_the_columns_of_its_position_back_and_ids_are_not_given_twice(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "merge_on_read")
    then = table.cursor
    table.savepoints.create("before")
    table.alter([DropColumn("a"), AddColumn("new", pa.int32())])
    used = table.inspect.schemas()[-1].ids["new"]
    table.restore("before")
    assert table.schema.names == SCHEMA.names and table.get([1])["a"].to_pylist() == [5]
    assert table.changes(then, versions="diff").to_arrow().num_rows == 0
    table.alter.add_column("other", pa.int32())
    assert table.inspect.schemas()[-1].ids["other"] > used
    assert [version.id for version in table.inspect.schemas()] == [1, 2, 3, 4]


def test_a_diff_to_an_earlier_snapshot_has_the_columns_of_that_one(tmp_path: Path) -> None:
    """The earlier snapshot does not know the schemas of the later one's files, which were called damaged."""
    table = make(tmp_path / "t", "merge_on_read")
    then = table.cursor
    table.alter([RenameColumn("a", "aa"), AddColumn("new", pa.int32())], rewrite=True)
    one = {**row(1), "aa": 9, "new": 1}
    del one["a"]
    table.upsert(pa.Table.from_pylist([one], schema=table.schema))
    [change] = table.changes(table.cursor, then, versions="diff").to_arrow().to_pylist()
    assert (change["op"], change["before"]["a"], change["after"]["a"]) == ("u", 9, 5)
    assert list(change["before"]) == SCHEMA.names
    [change] = table.changes(then, table.cursor, versions="diff").to_arrow().to_pylist()
    assert (change["op"], change["before"]["aa"], change["after"]["aa"], change["after"]["new"]) == ("u", 5, 9, 1)


def test_changes_since_a_snapshot_whose_schemas_the_newest_has_forgotten(tmp_path: Path) -> None:
    """Once no live file and no readable slot had a schema, the newest view forgot it, while files of readable snapshots
    still had it: changes since then called them damaged.
    """
    table = make(tmp_path / "t", "copy_on_write")
    table.alter.add_column("n1", pa.int32(), default=1)
    table.upsert(batch(row(1, a=6), row(2, part="q")))  # files of schema 2
    table.alter.add_column("n2", pa.int32(), default=2)
    since = table.upsert(batch(row(3))).cursor
    table.upsert(batch(row(1, a=7), row(2, part="q", a=7), row(3, a=7)))
    table.maintenance.clean(retain_hours=0, retain_commits=2)
    assert [version.id for version in table.inspect.schemas()] == [3]
    found = table.changes(since).to_arrow().to_pylist()
    assert sorted((one["op"], one["before"]["a"], one["after"]["a"]) for one in found) == [
        ("u", 2, 7),
        ("u", 3, 7),
        ("u", 6, 7),
    ]
