"""Bugs that were found in our own code, each told before it is shown not to happen again."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import Died, FaultyStore
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.compactor.cleaning.sweep import remove_orphan_files
from hoodoo.compactor.compaction import plans
from hoodoo.format.names import parse_data_file
from hoodoo.index.bloom.entry import IndexEntryReader
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.writers.batches import batch

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])


def rows(*triples: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def make(path: Path, **arguments: Any) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", **{"partition_by": "p", "compact_after_logs": None, "clean_every": None, **arguments}
    )


def before_slot(table: hoodoo.Table, other: Callable[[], Any]) -> None:
    """Let `other` happen just before the next slot of `table` is taken."""
    put = table.handle.store.put_if_absent

    def wrapped(key: str, data: object, durable: bool = True) -> None:
        if "/commits/" in key:
            table.handle.store.put_if_absent = put  # type: ignore[method-assign]
            other()
        put(key, data, durable)

    table.handle.store.put_if_absent = wrapped  # type: ignore[method-assign]


def contents(table: hoodoo.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def test_a_stalled_job_and_its_successor_commit_a_transaction_version_once(tmp_path: Path) -> None:
    """The version was looked at before an attempt began and never again: both committed it, and an older one could come
    after a newer.
    """
    stalled, successor = make(tmp_path / "t"), hoodoo.open(tmp_path / "t")
    before_slot(stalled, lambda: successor.upsert(rows((1, "a", 6)), transaction=("job", 6)))
    assert stalled.upsert(rows((2, "b", 5)), transaction=("job", 5)).skipped
    assert contents(stalled) == [(1, "a", 6)]
    before_slot(stalled, lambda: successor.upsert(rows((1, "a", 7)), transaction=("job", 7)))
    assert stalled.upsert(rows((9, "z", 7)), transaction=("job", 7)).skipped
    assert contents(stalled) == [(1, "a", 7)]


@pytest.mark.parametrize(
    "transaction", [("job", 1.5), ("job", "3"), ("job", -1), ("", 1), "job", ("job", True), (5, 1)]
)
def test_a_transaction_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, transaction: Any) -> None:
    """A version of 1.5 was stored as 1, and text failed with a TypeError after the files were written."""
    table = make(tmp_path / "t")
    with pytest.raises(hoodoo.OptionError, match="transaction"):
        table.upsert(rows((1, "a", 1)), transaction=transaction)
    assert table.cursor.seq == 1


@pytest.mark.parametrize("partition_by", ["p", None])
def test_overwriting_the_whole_table_sees_what_was_inserted_meanwhile(tmp_path: Path, partition_by: str | None) -> None:
    """The conflict check looked only at partitions that were there when the overwrite began: a row inserted into a new
    one outlived it.
    """
    table = make(tmp_path / "t", partition_by=partition_by)
    other = hoodoo.open(tmp_path / "t")
    before_slot(table, lambda: other.upsert(rows((1, "new", 1))))
    assert table.insert_overwrite(rows((9, "a", 9)), whole_table=True).retries == 1
    assert contents(table) == [(9, "a", 9)] == sorted((row["id"], row["p"], row["v"]) for row in hudi_rows(table.path))


def test_a_delete_of_a_key_that_is_inserted_meanwhile_deletes_it(tmp_path: Path) -> None:
    """The delete had found nothing to delete and said nothing of it to the conflict check, so the row outlived a delete
    in a later slot.
    """
    table = make(tmp_path / "t")
    table.upsert(rows((1, "a", 1)))
    other = hoodoo.open(tmp_path / "t")
    before_slot(table, lambda: other.insert(rows((2, "a", 1))))
    table.delete(rows((1, "a", 0), (2, "a", 0)))
    assert contents(table) == []


def test_writers_that_make_and_remove_the_same_folders_do_not_fail(tmp_path: Path) -> None:
    """One writer removed the empty marker folder between another's look and its mkdir, which failed with
    FileNotFoundError.
    """
    store, problems = LocalStore(tmp_path / "t"), []

    def mark(name: int) -> None:
        try:
            for number in range(300):
                key = f".hoodie/.temp/{name}-{number}/f.marker"
                store.write_once(key, b"", durable=False)
                store.delete(key)
                store.prune_folders(key)
        except OSError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=mark, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.parametrize("operation", ["put_if_absent", "delete"])
def test_a_store_that_fails_after_the_slot_does_not_make_a_commit_look_failed(tmp_path: Path, operation: str) -> None:
    """Publication ran into a full disk, and the writer was told that nothing had been committed."""
    make(tmp_path / "t")
    store = FaultyStore(str(tmp_path / "t"))
    table, sealed = Table(store), []

    def fault(number: int, what: str, key: str) -> str | None:
        if sealed and what == operation and "/commits/" not in key:
            return "lost"
        if what == "put_if_absent" and "/commits/" in key:
            sealed.append(key)
        return None

    store.fault = fault
    assert table.upsert(rows((1, "a", 1))).inserted == 1
    assert contents(hoodoo.open(tmp_path / "t")) == [(1, "a", 1)]
    assert len(hudi_rows(tmp_path / "t")) == 1  # opening published it


def test_a_folder_that_cannot_be_synced_after_the_link_is_unknown_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """link() had worked, fsync of the folder gave EDQUOT, and the error said that nothing was committed."""
    store, sync = LocalStore(tmp_path / "t"), os.fsync
    store.put_if_absent("a/first", b"1")
    calls: list[int] = []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(122, "quota exceeded")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(hoodoo.StoreUnavailable):
        store.put_if_absent("a/second", b"2")
    assert store.get("a/second") == b"2"


@pytest.mark.parametrize(
    "options",
    [
        {"retain_hours": float("inf")},
        {"retain_hours": float("nan")},
        {"commit_timeout_seconds": float("inf")},
        {"clean_every": 10**15},
    ],
)
def test_an_option_that_is_not_finite_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """retain_hours=inf was taken, and every write committed and then raised OverflowError."""
    with pytest.raises(hoodoo.OptionError, match=next(iter(options))):
        make(tmp_path / "t", **options)


def test_a_service_that_fails_in_whatever_way_leaves_the_commit_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only two kinds of errors of an inline service were caught; an Arrow error came out of upsert after the commit."""
    table = make(tmp_path / "t", compact_after_logs=1)
    table.upsert(rows((1, "a", 1)))
    monkeypatch.setattr(
        plans, "commit_compaction_plan", lambda *_: (_ for _ in ()).throw(pa.ArrowInvalid("offset overflow"))
    )
    assert table.upsert(rows((1, "a", 2))).updated == 1


def test_dicts_with_other_keys_than_the_first_are_refused(tmp_path: Path) -> None:
    """Columns were taken from the first dict: a later row's value was dropped, or filled with null."""
    table = make(tmp_path / "t")
    for data in (
        [{"id": 1, "p": "a", "v": 1}, {"id": 2, "p": "a"}],
        [{"id": 1, "p": "a"}, {"id": 2, "p": "a", "v": 1}],
    ):
        with pytest.raises(hoodoo.ColumnError, match="'v'"):
            table.upsert(data)


CASTS: list[tuple[pa.DataType, pa.DataType, Any]] = [
    (pa.decimal128(10, 2), pa.float64(), 1.239),
    (pa.float64(), pa.decimal128(29, 9), "12345678901234567890.123456789"),
    (pa.list_(pa.float32()), pa.list_(pa.float64()), [0.1, 1e300]),
    (pa.struct([("a", pa.int32()), ("b", pa.int32())]), pa.struct([("a", pa.int32())]), {"a": 1}),
    (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": 1, "b": 2}),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), [2**40]),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.float32()), [("k", 1.5)]),
]


@pytest.mark.parametrize(("column", "given", "value"), CASTS, ids=str)
def test_values_that_arrow_would_round_or_drop_are_refused(
    tmp_path: Path, column: pa.DataType, given: pa.DataType, value: Any
) -> None:
    """Arrow rounds between floats and decimals, and fills or drops fields of structs, without a word."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("x", column)]), key="id")
    cell = pa.array([value]).cast(given) if isinstance(value, str) else pa.array([value], given)
    with pytest.raises(hoodoo.ColumnError, match=r"'x(\.item|\.value|\.b)?'"):
        table.upsert(pa.table({"id": [1], "x": cell}))


def test_values_that_survive_are_taken_whatever_their_form(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.decimal128(10, 2)),
            ("f", pa.float64()),
            ("s", pa.struct([("a", pa.int64()), ("b", pa.float64())])),
        ]
    )
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    nested = pa.array([{"b": 1.5, "a": 3}], pa.struct([("b", pa.float32()), ("a", pa.int32())]))
    table.upsert(pa.table({"id": [1], "d": pa.array([1.25]), "f": pa.array([7], pa.int32()), "s": nested}))
    found = table.scan().to_arrow().to_pylist()[0]
    assert (str(found["d"]), found["f"], found["s"]) == ("1.25", 7.0, {"a": 3, "b": 1.5})


def test_a_filtered_scan_whose_files_a_clean_took_says_expired(tmp_path: Path) -> None:
    """With a where the file was opened past the check, and the scan raised a bare FileNotFoundError."""
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows((1, "a", 1)))
    scan = table.scan(where="v >= 0")
    for value in (2, 3):
        table.upsert(rows((1, "a", value)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    with pytest.raises(hoodoo.SnapshotExpired):
        scan.to_arrow()


def test_a_write_that_a_clean_overtakes_rebases_instead_of_calling_the_table_corrupt(tmp_path: Path) -> None:
    """The file to rewrite was gone, and the writer was told to restore a backup."""
    table = make(tmp_path / "t", type="copy_on_write")
    table.upsert(rows((1, "a", 1), (2, "a", 1)))
    other, engine, done = hoodoo.open(tmp_path / "t"), table.handle.context().engine, []

    def overtaken(task: Any, items: Any, waiting: bool = False) -> list[Any]:
        if not done:
            done.append(True)
            other.upsert(rows((1, "a", 5)))
            other.upsert(rows((1, "a", 6)))
            other.maintenance.clean(retain_hours=0, retain_commits=1)
        return [task(item) for item in items]

    class Engine:
        remote = False
        map = staticmethod(overtaken)

    context = table.handle.context
    table.handle.context = lambda _=None: context(Engine())  # type: ignore[method-assign,assignment]
    assert engine and table.upsert(rows((2, "a", 9))).retries == 1
    assert contents(table) == [(1, "a", 6), (2, "a", 9)]


def test_what_a_dead_writer_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    """A clean took only what slots named: files, markers and the pending instant of a killed writer stayed for ever."""
    table = make(tmp_path / "t")
    table.upsert(rows((1, "a", 1), (2, "b", 1)))
    store = FaultyStore(str(tmp_path / "t"))
    dying = Table(store)
    store.fault = lambda number, what, key: "die" if "/commits/" in key and what == "put_if_absent" else None
    with pytest.raises(Died):
        dying.upsert(rows((1, "a", 2), (3, "c", 1)))
    (tmp_path / "t/.hoodie/.hoodoo/staging/dead").mkdir(parents=True)
    (tmp_path / "t/.hoodie/.hoodoo/staging/dead/x").write_bytes(b"staged")
    assert table.maintenance.sweep().files == 0  # all of it is too young
    swept = remove_orphan_files(hoodoo.open(tmp_path / "t").handle.context().timeline, -1)  # as if an hour had passed
    assert (swept.rolled_back, swept.files >= 1) == (1, True)
    named = {entry.file.path for group in table.handle.history.head().groups() for entry in group.files()}
    assert {key for key, _ in table.handle.store.list("") if parse_data_file(key.rpartition("/")[2])} == named
    assert not [
        key for key, _ in table.handle.store.list("") if "/.temp/" in key or "/staging/" in key or "/.heartbeat/" in key
    ]
    assert contents(table) == [(1, "a", 1), (2, "b", 1)] and table.verify().ok
    assert [entry.state for entry in table.inspect.timeline()].count("rolled back") == 1


def test_a_create_that_loses_a_race_does_not_change_the_winners_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser replaced the winner's properties, so the winner got a table with the other's key."""
    real = create_table.encode_commit_file

    def slower(slot: Any) -> bytes:
        monkeypatch.setattr(create_table, "encode_commit_file", real)
        with pytest.raises(hoodoo.TableExists):
            hoodoo.create(tmp_path / "t", pa.schema([("k", pa.string())]), key="k")
        return real(slot)

    monkeypatch.setattr(create_table, "encode_commit_file", slower)
    assert make(tmp_path / "t").key == ("id",)
    assert hoodoo.open(tmp_path / "t").key == ("id",)


def test_times_beyond_pythons_years_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of a timestamp after the year 9999 raised OverflowError and no write of it could ever commit.

    Ours refuse such rows since; tables that others, or earlier releases, wrote have them.
    """
    monkeypatch.setattr(batch, "validate_columns", lambda data, names, key: data.select(names))
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    far = pa.table(
        {"id": [1], "at": pa.array([2**62], pa.timestamp("us", "UTC")), "day": pa.array([2**30], pa.date32())}
    )
    table.upsert(far)
    table.upsert(far)
    back = table.scan().to_arrow()
    assert (back["at"].cast(pa.int64()).to_pylist(), back["day"].cast(pa.int32()).to_pylist()) == ([2**62], [2**30])
    near = pa.table(
        {"id": [2], "at": [dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)], "day": [dt.date(2026, 1, 1)]},
        schema=schema,
    )
    table.upsert(near)
    assert table.scan(where="day = '2026-01-01'").to_arrow()["id"].to_pylist() == [2]


def test_a_scan_of_no_columns_is_refused(tmp_path: Path) -> None:
    """It gave no rows in process and all rows on Spark."""
    with pytest.raises(hoodoo.ColumnError, match="empty"):
        make(tmp_path / "t").scan(columns=[])


def test_the_hashes_of_an_index_entry_are_mapped_not_copied(tmp_path: Path) -> None:
    """read_at copied them to the heap: a large table's index would have filled the memory."""
    table = make(tmp_path / "t")
    table.upsert(rows((1, "a", 1)))
    entry = next(table.handle.history.head().groups()).base
    assert entry is not None
    hashes = IndexEntryReader(table.handle.store).hashes(entry.file.index)
    assert isinstance(hashes.base, pa.Buffer) and len(hashes) == 1
