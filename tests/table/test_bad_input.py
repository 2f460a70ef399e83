"""Bad input gets a clear error with a stable code before anything is written; the table stays as it was."""

from __future__ import annotations

import datetime as dt
import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from slots import make_slot

import hoodoo

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("n", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ROW = {"id": "a", "city": "p", "ts": 1, "fare": 1.0, "n": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)}


def batch(**changes: Any) -> pa.Table:
    return pa.Table.from_pylist([{**ROW, **changes}], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")
    made.upsert(batch())
    return made


def files(table: hoodoo.Table) -> dict[str, int]:
    return dict(table.handle.store.list(""))


BAD: dict[str, tuple[type[hoodoo.HoodooError], str, str, Callable[[hoodoo.Table], Any]]] = {
    "missing key column": (hoodoo.ColumnError, "COLUMN", "'id'", lambda t: t.upsert(batch().drop_columns(["id"]))),
    "missing partition column": (
        hoodoo.ColumnError,
        "COLUMN",
        "'city'",
        lambda t: t.upsert(batch().drop_columns(["city"])),
    ),
    "missing column": (hoodoo.ColumnError, "COLUMN", "'fare'", lambda t: t.upsert(batch().drop_columns(["fare"]))),
    "extra column": (
        hoodoo.ColumnError,
        "COLUMN",
        "'tip'",
        lambda t: t.upsert(batch().append_column("tip", pa.array([1]))),
    ),
    "column in another case": (
        hoodoo.ColumnError,
        "COLUMN",
        "'fare'",
        lambda t: t.upsert(batch().rename_columns(["id", "city", "ts", "FARE", "n", "at"])),
    ),
    "column twice": (
        hoodoo.ColumnError,
        "COLUMN",
        "more than once",
        lambda t: t.upsert(batch().append_column("n", pa.array([1]))),
    ),
    "wrong type": (
        hoodoo.ColumnError,
        "COLUMN",
        "'ts'",
        lambda t: t.upsert(batch().set_column(2, "ts", pa.array(["1"]))),
    ),
    "value does not fit": (
        hoodoo.ColumnError,
        "COLUMN",
        "row 1",
        lambda t: t.upsert(pa.concat_tables([widened(5), widened(2**40)])),
    ),
    "fraction lost": (
        hoodoo.ColumnError,
        "COLUMN",
        "'n'",
        lambda t: t.upsert(batch().set_column(4, "n", pa.array([1.5]))),
    ),
    "nanoseconds lost": (
        hoodoo.ColumnError,
        "COLUMN",
        "'at'",
        lambda t: t.upsert(batch().set_column(5, "at", pa.array([1], pa.timestamp("ns", "UTC")))),
    ),
    "time without zone": (
        hoodoo.ColumnError,
        "COLUMN",
        "zone",
        lambda t: t.upsert(batch().set_column(5, "at", pa.array([1], pa.timestamp("us")))),
    ),
    "null key": (hoodoo.KeyValueError, "KEY_VALUE", "'id'", lambda t: t.upsert(batch(id=None))),
    "empty key": (hoodoo.KeyValueError, "KEY_VALUE", "'id'", lambda t: t.upsert(batch(id=""))),
    "key too long": (hoodoo.KeyValueError, "KEY_VALUE", "'id'", lambda t: t.upsert(batch(id="x" * (1 << 20)))),
    "hostile partition": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "'city'",
        lambda t: t.upsert(batch(city="__HIVE_DEFAULT_PARTITION__")),
    ),
    "partition with NUL": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "'city'",
        lambda t: t.upsert(batch(city="a\0b")),
    ),
    "partition too long": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "'city'",
        lambda t: t.upsert(batch(city="x" * 300)),
    ),
    "null ordering value": (hoodoo.OrderingError, "ORDERING", "'ts'", lambda t: t.upsert(batch(ts=None))),
    "no rows at all": (hoodoo.ColumnError, "COLUMN", "int", lambda t: t.upsert(5)),
    "text as rows": (hoodoo.CallError, "CALL", ".parquet", lambda t: t.upsert("rows")),
    "duplicate keys refused": (
        hoodoo.DuplicateKeys,
        "DUPLICATE_KEYS",
        "'a'",
        lambda t: t.upsert(pa.concat_tables([batch(), batch()]), duplicates="fail"),
    ),
    "unknown duplicates": (hoodoo.OptionError, "OPTION", "newest", lambda t: t.upsert(batch(), duplicates="first")),
    "existing key": (hoodoo.KeyExists, "KEY_EXISTS", "'a'", lambda t: t.insert(batch())),
    "existing key in bulk": (hoodoo.KeyExists, "KEY_EXISTS", "'a'", lambda t: t.insert(batch(), bulk=True)),
    "unknown existing": (hoodoo.OptionError, "OPTION", "keep", lambda t: t.insert(batch(), existing="skip")),
    "delete without key": (hoodoo.ColumnError, "COLUMN", "'id'", lambda t: t.delete(batch().select(["city"]))),
    "purge without partition": (
        hoodoo.ColumnError,
        "COLUMN",
        "'city'",
        lambda t: t.maintenance.purge(batch().select(["id"])),
    ),
    "flag that is no boolean": (
        hoodoo.ColumnError,
        "COLUMN",
        "boolean",
        lambda t: t.upsert(batch().append_column("_hoodie_is_deleted", pa.array([1]))),
    ),
    "a partition as its folder": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "values instead of folder names: 'p'",
        lambda t: t.delete_partitions(["p", "city=p"]),
    ),
    "partitions as text": (hoodoo.PartitionValueError, "PARTITION_VALUE", "list", lambda t: t.delete_partitions("p")),
    "partition of other columns": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "city",
        lambda t: t.delete_partitions([{"day": 1}]),
    ),
    "partition of another type": (
        hoodoo.PartitionValueError,
        "PARTITION_VALUE",
        "cannot be converted to its column type",
        lambda t: t.delete_partitions([5]),
    ),
    "overwrite with bad rows": (
        hoodoo.KeyValueError,
        "KEY_VALUE",
        "'id'",
        lambda t: t.insert_overwrite(batch(id=None)),
    ),
    "unknown column": (hoodoo.ColumnError, "COLUMN", "'tip'", lambda t: t.scan(columns=["tip"])),
    "columns as text": (hoodoo.ColumnError, "COLUMN", "list", lambda t: t.scan(columns="id")),
    "meta column without meta": (
        hoodoo.ColumnError,
        "COLUMN",
        "meta=True",
        lambda t: t.scan(columns=["_hoodie_record_key"]),
    ),
    "where that does not parse": (hoodoo.PredicateError, "PREDICATE", "", lambda t: t.scan(where="fare >")),
    "where with an unknown column": (hoodoo.PredicateError, "PREDICATE", "tip", lambda t: t.scan(where="tip > 1")),
    "where of another kind": (hoodoo.OptionError, "OPTION", "where", lambda t: t.scan(where=5)),
    "position of nonsense": (hoodoo.PositionError, "POSITION", "someday", lambda t: t.scan(as_of="someday")),
    "position without zone": (
        hoodoo.PositionError,
        "POSITION",
        ".replace(tzinfo=datetime.timezone.utc)",
        lambda t: t.scan(as_of=dt.datetime(2026, 1, 1)),
    ),
    "position that will be": (
        hoodoo.PositionError,
        "POSITION",
        "must not be negative",
        lambda t: t.scan(as_of=-dt.timedelta(days=1)),
    ),
    "position longer ago than there are times": (
        hoodoo.PositionError,
        "POSITION",
        "is too large",
        lambda t: t.scan(as_of="999999999 weeks ago"),
    ),
    "position longer ago than the table": (
        hoodoo.SnapshotExpired,
        "SNAPSHOT_EXPIRED",
        "did not exist",
        lambda t: t.scan(as_of="2 days ago"),
    ),
    "position before the first slot": (
        hoodoo.PositionError,
        "POSITION",
        "history()[1]",
        lambda t: t.restore(-1),
    ),
    "position as a date without lines": (
        hoodoo.PositionError,
        "POSITION",
        "like 2026-01-31",
        lambda t: t.scan(as_of="20260131"),
    ),
    "rollback of what is no instant": (
        hoodoo.PositionError,
        "POSITION",
        "restore(position)",
        lambda t: t.maintenance.rollback("last"),
    ),
    "position as text that is no time": (
        hoodoo.PositionError,
        "POSITION",
        "is not a valid time",
        lambda t: t.incremental("2026-01-31T99:00:00Z"),
    ),
    "position of another table": (
        hoodoo.PositionError,
        "POSITION",
        "another table",
        lambda t: t.incremental(f"hoodoo:{'0' * 32}:1"),
    ),
    "position in the future": (
        hoodoo.PositionError,
        "POSITION",
        "after",
        lambda t: t.scan(as_of=hoodoo.Cursor(t.cursor.table, 99)),
    ),
    "position before the table": (
        hoodoo.SnapshotExpired,
        "SNAPSHOT_EXPIRED",
        "did not exist",
        lambda t: t.scan(as_of="20200101000000"),
    ),
    "unknown option": (
        hoodoo.OptionError,
        "OPTION",
        "Did you mean 'clean_every'",
        lambda t: t.set_options(clean_evry=5),
    ),
    "no time to wait between polls": (
        hoodoo.OptionError,
        "OPTION",
        "poll_seconds",
        lambda t: t.follow("earliest", poll_seconds=None),
    ),
    "option of another type": (
        hoodoo.OptionError,
        "OPTION",
        "clean_every",
        lambda t: t.set_options(clean_every="often"),
    ),
    "option below its least": (hoodoo.OptionError, "OPTION", "clean_every", lambda t: t.set_options(clean_every=0)),
    "rollback of nothing": (
        hoodoo.PositionError,
        "POSITION",
        "does not exist in this table",
        lambda t: t.maintenance.rollback("20200101000000000"),
    ),
}


def widened(value: int) -> pa.Table:
    return batch().set_column(4, "n", pa.array([value], pa.int64()))


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_code_and_changes_nothing(table: hoodoo.Table, name: str) -> None:
    kind, code, words, call = BAD[name]
    before, cursor = files(table), table.cursor
    with pytest.raises(kind) as caught:
        call(table)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert (files(table), table.cursor) == (before, cursor)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.details) == (type(caught.value), str(caught.value), caught.value.details)


CREATE: dict[str, tuple[type[hoodoo.HoodooError], str, dict[str, Any]]] = {
    "no key": (hoodoo.OptionError, "key", {"key": []}),
    "key that is no column": (hoodoo.SchemaError, "nope", {"key": "nope"}),
    "key of a float": (hoodoo.SchemaError, "fare", {"key": "fare"}),
    "partition of a float": (hoodoo.SchemaError, "fare", {"partition_by": "fare"}),
    "ordering of a boolean": (
        hoodoo.SchemaError,
        "ok",
        {"order_by": "ok", "schema": SCHEMA.append(pa.field("ok", pa.bool_()))},
    ),
    "unknown table type": (hoodoo.OptionError, "merge_on_read", {"type": "mor"}),
    "unknown option": (hoodoo.OptionError, "target_file_bytes", {"target_file_size": 5}),
    "schema of another kind": (hoodoo.OptionError, "schema", {"schema": []}),
    "unsigned 64": (hoodoo.SchemaError, "x", {"schema": SCHEMA.append(pa.field("x", pa.uint64()))}),
    "duration": (hoodoo.SchemaError, "x", {"schema": SCHEMA.append(pa.field("x", pa.duration("us")))}),
    "half float": (hoodoo.SchemaError, "x", {"schema": SCHEMA.append(pa.field("x", pa.float16()))}),
    "null column": (hoodoo.SchemaError, "x", {"schema": SCHEMA.append(pa.field("x", pa.null()))}),
    "map with integer keys": (
        hoodoo.SchemaError,
        "x",
        {"schema": SCHEMA.append(pa.field("x", pa.map_(pa.int32(), pa.int32())))},
    ),
    "duration inside a struct": (
        hoodoo.SchemaError,
        "x.y",
        {"schema": SCHEMA.append(pa.field("x", pa.struct([("y", pa.duration("s"))])))},
    ),
    "names that differ by case": (hoodoo.SchemaError, "FARE", {"schema": SCHEMA.append(pa.field("FARE", pa.int32()))}),
    "name Avro does not allow": (hoodoo.SchemaError, "a-b", {"schema": SCHEMA.append(pa.field("a-b", pa.int32()))}),
    "name of a meta column": (
        hoodoo.SchemaError,
        "_hoodie_file_name",
        {"schema": SCHEMA.append(pa.field("_hoodie_file_name", pa.string()))},
    ),
    "table name with a slash": (hoodoo.OptionError, "name", {"name": "a/b"}),
    "storage options for a folder": (hoodoo.OptionError, "storage", {"storage": {"region": "x"}}),
}


@pytest.mark.parametrize("name", CREATE)
def test_create_refuses_what_cannot_become_a_table_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    kind, words, changes = CREATE[name]
    arguments = {"schema": SCHEMA, "key": "id", **changes}
    with pytest.raises(kind) as caught:
        hoodoo.create(tmp_path / "t", **arguments)
    assert words in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_a_table_is_not_created_twice(tmp_path: Path) -> None:
    hoodoo.create(tmp_path / "t", SCHEMA, key="id").upsert(batch())
    with pytest.raises(hoodoo.TableExists):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    assert hoodoo.open(tmp_path / "t").scan().count() == 1


def test_what_is_no_table_is_not_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(hoodoo.TableNotFound):
            hoodoo.open(path)
    with pytest.raises(hoodoo.OptionError):
        hoodoo.open("ftp://host/table")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_slot_or_file_is_named_and_never_read_as_rows(table: hoodoo.Table) -> None:
    root = Path(table.path)
    slot = root / ".hoodie/.hoodoo/commits/00000000000000000002"
    good = slot.read_bytes()
    slot.unlink()
    slot.write_bytes(good.replace(b'"UPSERT"', b'"UPDATE"'))
    with pytest.raises(hoodoo.CorruptTable, match="00000000000000000002"):
        hoodoo.open(root)
    slot.write_bytes(good)
    base = next(root.glob("city=p/*.parquet"))
    data = bytearray(base.read_bytes())
    column = pq.read_metadata(base).row_group(0).column(SCHEMA.get_field_index("ts") + 5)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1  # in its only page
    base.write_bytes(data)
    with pytest.raises(hoodoo.CorruptTable, match=base.name):
        hoodoo.open(root).scan().to_arrow()
    assert [problem.code for problem in hoodoo.open(root).verify().problems] == ["DAMAGED_FILE"]


def test_a_damaged_log_is_never_read_as_rows(table: hoodoo.Table) -> None:
    table.upsert(batch(ts=2))
    log = next(Path(table.path).glob("city=p/.*.log.*"))
    data = bytearray(log.read_bytes())
    data[-20] ^= 1
    log.write_bytes(data)
    with pytest.raises(hoodoo.CorruptTable, match="digest"):
        hoodoo.open(table.path).scan().to_arrow()


def test_a_path_in_a_slot_that_leaves_the_table_is_refused(tmp_path: Path) -> None:
    from hoodoo.timeline.slots.slot import DataFile, decode_commit_file, encode_commit_file

    for path in ("/etc/passwd", "../other/x.parquet", "a/../../x", "s3://bucket/x", "a\\b", "a//b"):
        slot = make_slot(files=(DataFile(path, "", "f", "base", 1, "d", 1),))
        with pytest.raises(hoodoo.CorruptTable, match="path"):
            decode_commit_file(encode_commit_file(slot), "slot")


def test_a_disk_that_fills_up_at_any_call_is_a_clean_error_and_the_next_write_works(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write, link and new folder from the n-th on fails as a full disk makes it fail, for each n until the commit
    is final.
    """
    rows = pa.concat_tables([batch(id=f"k{number}", ts=number, city=f"new{number % 3}") for number in range(60)])
    calls, full_from = 0, 0

    def unless_full(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if full_from and calls >= full_from:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        return call

    for name in ("write", "link", "mkdir"):
        monkeypatch.setattr(os, name, unless_full(getattr(os, name)))
    refused = 0
    while True:
        calls, full_from = 0, refused + 1
        try:
            result = table.upsert(rows)
            break
        except hoodoo.StoreFull as full:
            assert "space" in str(full) and "Nothing was committed" in str(full)
            refused += 1
        full_from = 0
        assert hoodoo.open(table.path).scan().count() == 1
    full_from = 0
    assert (result.inserted, refused > 20) == (60, True)
    assert hoodoo.open(table.path).upsert(rows).inserted == 0
    assert table.scan().count() == 61 and hoodoo.open(table.path).verify().problems == []


def test_an_expression_that_arrow_refuses_is_a_predicate_error(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.PredicateError):
        table.scan(where=pc.field("tip") > 1)
    with pytest.raises(hoodoo.PredicateError):
        table.scan(where=pc.field("city") > 1)
    assert table.scan(where=pc.field("city") == "p").count() == 1


def test_control_characters_of_keys_do_not_reach_an_error_message(table: hoodoo.Table) -> None:
    nasty = "\x1b[31mred\nline"
    table.upsert(batch(id=nasty))
    with pytest.raises(hoodoo.KeyExists) as caught:
        table.insert(batch(id=nasty))
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value)


def test_every_error_has_a_code_of_its_own_and_pickles() -> None:
    kinds = [
        getattr(hoodoo, name)
        for name in hoodoo.__all__
        if isinstance(getattr(hoodoo, name), type) and issubclass(getattr(hoodoo, name), hoodoo.HoodooError)
    ]
    assert len({kind.code for kind in kinds}) == len(kinds) > 20
    for kind in kinds:
        error = pickle.loads(pickle.dumps(kind("words", key="k")))
        assert (type(error), str(error), error.details) == (kind, f"[{kind.code}] words", {"key": "k"})


@pytest.mark.parametrize("checkpoint_every", [20, 4])
def test_a_damaged_newest_slot_heals_as_its_error_says(tmp_path: Path, checkpoint_every: int) -> None:
    """Where a checkpoint had its number the advice led to a table that was called damaged for good."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", checkpoint_every=checkpoint_every)
    for ts in (1, 2, 3):
        table.upsert(batch(ts=ts))
    want = table.scan().to_arrow().to_pylist()
    ours = tmp_path / "t/.hoodie/.hoodoo"
    slot = max((ours / "commits").iterdir())
    os.truncate(slot, slot.stat().st_size // 2)
    with pytest.raises(
        hoodoo.CorruptTable, match="newest slot.*UPSERT.*delete the file and the checkpoint with the same number"
    ):
        hoodoo.open(tmp_path / "t")
    slot.unlink()
    checkpoints = list(ours.glob(f"checkpoints/{slot.name}*"))
    assert len(checkpoints) == (checkpoint_every == 4)
    for one in checkpoints:
        one.unlink()
    assert hoodoo.open(tmp_path / "t").scan().to_arrow().to_pylist() == want
    assert hoodoo.open(tmp_path / "t").delete(batch()).deleted == len(want)
    assert hoodoo.open(tmp_path / "t").verify().ok
