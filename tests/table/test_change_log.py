"""A table with Hudi's change log: every rewrite of a base file says what it did to each row, and its log lives and dies with that file."""

from __future__ import annotations

import dataclasses
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simulation
from faulty_store import Died, FaultyStore
from hudi_blocks import change_records
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format import change_log, properties, timeline_avro
from hoodoo.format.names import is_change_log
from hoodoo.readers import slices
from hoodoo.readers.change_log import read_change_log
from hoodoo.table import Table
from hoodoo.timeline import checkpoint, config, slot
from hoodoo.timeline.layout import PROPERTIES, slot_key
from hoodoo.timeline.publish import final_key
from hoodoo.timeline.slot import DataFile
from hoodoo.timeline.view import FileGroup
from hoodoo.writers import staged, tasks

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
KINDS = pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
MODES = {"before_after": "DATA_BEFORE_AFTER", "before": "DATA_BEFORE", "keys": "OP_KEY_ONLY"}
Row = dict[str, Any]


def batch(*rows: tuple[int, str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "p": p, "ts": ts, "v": v} for n, p, ts, v in rows], SCHEMA)


def make(path: Path, kind: str = "copy_on_write", mode: str | None = "before_after", **options: Any) -> Table:
    options = {"partition_by": "p", "order_by": "ts", "compact_after_logs": None, "clean_every": None} | options
    return hoodoo.create(path, SCHEMA, key="id", type=kind, change_log=mode, **options)


def history(table: Table) -> list[slot.Slot]:
    view = table._timeline.history.head()
    return table._timeline.history.slots(0, view.seq)


def logged(table: Table) -> list[DataFile]:
    return [file for one in history(table) for file in one.files if file.changes]


def files_of(path: Path) -> set[str]:
    """Change logs that lie in the table's folders."""
    return {str(found.relative_to(path)) for found in path.rglob("*") if is_change_log(found.name) and ".hoodie" not in found.parts}


def live_logs(table: Table) -> set[str]:
    view = table._timeline.history.head()
    return {path for group in view.groups() for entry in group.files() for path in entry.file.changes}


def rows_of(table: Table, seq: int) -> dict[str, Row]:
    return {row["id"]: row for row in table.scan(as_of=hoodoo.Cursor(table.cursor.table, seq), meta=True).to_arrow().to_pylist()}


def own(row: Row | None) -> Row | None:
    return None if row is None else {name: row[name] for name in SCHEMA.names}


def differences(old: dict[str, Row], new: dict[str, Row]) -> dict[str, tuple[str, Row | None, Row | None]]:
    """What became of each key that was written: (op, before, after)."""
    stamp = "_hoodie_commit_time"
    found: dict[str, tuple[str, Row | None, Row | None]] = {}
    for key in old.keys() | new.keys():
        if key not in new:
            found[key] = "d", own(old[key]), None
        elif key not in old:
            found[key] = "i", None, own(new[key])
        elif old[key][stamp] != new[key][stamp]:
            found[key] = "u", own(old[key]), own(new[key])
    return found


def keys_in(table: Table, group: FileGroup | None) -> set[str]:
    if group is None:
        return set()
    return set(slices.read_slice(table._store, table._config, group, slices.schema_of(table._config, ["id"]))["id"].to_pylist())


def random_step(table: Table, rng: random.Random, ts: int) -> None:
    keys = rng.sample(range(30), 6)
    rows = batch(*((n, "ab"[n % 2], ts + rng.randrange(-2, 3), f"v{ts}") for n in keys))
    match rng.randrange(8):
        case 0 | 1 | 2:
            table.upsert(rows)
        case 3:
            table.delete(rows)
        case 4:
            table.upsert(rows.append_column("_hoodie_is_deleted", pa.array([rng.random() < 0.5 for _ in keys])))
        case 5:
            table.insert(rows, existing="keep")
        case 6:
            table.compact() if table.type == "merge_on_read" else table.cluster(by=["v"])
        case 7:
            table.insert_overwrite(rows.slice(0, 2)) if rng.random() < 0.5 else table.delete_partitions(["a"])


@KINDS
@pytest.mark.parametrize("mode", MODES)
def test_the_logs_of_a_random_history_say_what_its_snapshots_differ_in(tmp_path: Path, kind: str, mode: str) -> None:
    """Of every rewritten file group, for every operation and service, as fastavro reads the files and as read_change_log does."""
    seen: set[str] = set()
    for seed in range(2):
        rng, table = random.Random(seed), make(tmp_path / f"{seed}", kind, mode)
        for number in range(20):
            random_step(table, rng, number)
        known = table._timeline.history
        for one in history(table)[1:]:
            wanted = differences(rows_of(table, one.seq - 1), rows_of(table, one.seq))
            for file in one.files:
                before, after = (known.state(seq).group(file.partition, file.file_id) for seq in (one.seq - 1, one.seq))
                rewrites = file.kind == "base" and before is not None and one.writes_rows
                assert bool(file.changes) == rewrites
                if not rewrites:
                    continue
                mine = {key: wanted[key] for key in keys_in(table, before) | keys_in(table, after) if key in wanted}
                (path,) = file.changes
                require_records(mode, change_records((tmp_path / f"{seed}" / path).read_bytes()), mine, one.instant)
                require_table(mode, read_change_log(table._store, table._config, file), mine)
                seen |= {op for op, _, _ in mine.values()}
        assert table.verify().problems == []
        assert files_of(tmp_path / f"{seed}") == {path for file in logged(table) for path in file.changes}
    assert seen == ({"i", "u", "d"} if kind == "copy_on_write" else {"i", "u"} | (seen & {"d"}))


def require_records(mode: str, records: list[Row], wanted: dict[str, tuple[str, Row | None, Row | None]], instant: str) -> None:
    assert len(records) == len(wanted)
    for record in records:
        key = record["record_key"] if mode != "before_after" else (record["after"] or record["before"])["id"]
        op, before, after = wanted[key]
        known = {"op": op, "ts_ms": instant, "record_key": key, "before": before, "after": after}
        fields = {"before_after": ("op", "ts_ms", "before", "after"), "before": ("op", "record_key", "before"), "keys": ("op", "record_key")}[mode]
        assert record == {name: known[name] for name in fields}


def require_table(mode: str, table: pa.Table | None, wanted: dict[str, tuple[str, Row | None, Row | None]]) -> None:
    assert table is not None
    assert table.column_names == {"before_after": ["op", "record_key", "before", "after"], "before": ["op", "record_key", "before"], "keys": ["op", "record_key"]}[mode]
    assert len(table) == len(wanted)
    for row in table.to_pylist():
        known = dict(zip(("op", "before", "after"), wanted[row["record_key"]], strict=True))
        assert row == {name: known.get(name, row["record_key"]) for name in table.column_names}


def test_many_changes_of_one_file_are_logged_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.writers.change_log._ROWS", 7)
    table = make(tmp_path / "t")
    table.upsert(batch(*((n, "a", 1, "old") for n in range(50))))
    table.upsert(batch(*((n, "a", 2 if n % 3 else 0, "new") for n in range(20, 70))))
    (file,) = logged(table)
    changes = read_change_log(table._store, table._config, file)
    assert changes is not None
    assert changes["op"].to_pylist().count("u") == sum(1 for n in range(20, 50) if n % 3)
    assert changes["op"].to_pylist().count("i") == 20
    assert all(row["before"]["v"] == "old" for row in changes.to_pylist() if row["op"] == "u")


# ---------------------------------------------------------------- the switch


@KINDS
def test_a_table_without_the_switch_writes_no_change_log_and_says_nothing_of_one(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "put_change_log", None)  # not even called
    table = make(tmp_path / "t", kind, None)
    table.upsert(batch(*((n, "a", 1, "x") for n in range(9))))
    table.upsert(batch((1, "a", 2, "y"), (20, "a", 1, "x")))
    table.delete(batch((2, "a", 0, "")))
    assert files_of(tmp_path / "t") == set()
    assert b"cdc" not in (tmp_path / "t" / PROPERTIES).read_bytes()
    assert all(b'"changes"' not in (tmp_path / "t" / slot_key(one.seq)).read_bytes() for one in history(table))
    assert "changes" not in checkpoint_columns(table)
    for stat in stats_of(table):
        assert stat["cdcStats"] is None
        assert stat["baseFile"] in ("", None)
        assert stat["logFiles"] in (None, [stat["path"].rpartition("/")[2]])


def checkpoint_columns(table: Table) -> list[str]:
    return pq.read_schema(pa.BufferReader(checkpoint.encode(table._timeline.history.head())[:-32])).names


def stats_of(table: Table) -> list[dict[str, Any]]:
    records = [timeline_avro.decode(table._store.get(final_key(one))) for one in history(table) if one.commits]
    return [stat for record in records for stats in (record["partitionToWriteStats"] or {}).values() for stat in stats]


@pytest.mark.parametrize("mode", MODES)
def test_create_says_the_mode_in_hudis_properties(tmp_path: Path, mode: str) -> None:
    table = make(tmp_path / "t", mode=mode)
    values = properties.parse((tmp_path / "t" / PROPERTIES).read_bytes())
    assert (values["hoodie.table.cdc.enabled"], values["hoodie.table.cdc.supplemental.logging.mode"]) == ("true", MODES[mode])
    table.set_options(clean_every=7)
    assert hoodoo.open(tmp_path / "t")._config.change_log == MODES[mode]


def test_a_mode_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match="change_log"):
        make(tmp_path / "t", mode="after")
    assert not (tmp_path / "t").exists()
    make(tmp_path / "t")
    said = (tmp_path / "t" / PROPERTIES).read_text().replace("DATA_BEFORE_AFTER", "DATA_AFTER")
    (tmp_path / "t" / PROPERTIES).write_text(said)
    with pytest.raises(UnsupportedTable, match="DATA_AFTER"):
        hoodoo.open(tmp_path / "t")


# ---------------------------------------------------------------- what Hudi is told


@KINDS
def test_commit_metadata_names_the_change_log_and_every_log_below_a_new_one(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch(*((n, "a", 1, "x") for n in range(9))))
    for ts in (2, 3, 4):
        table.upsert(batch((1, "a", ts, "y")))
    found = stats_of(table)[1:]
    if kind == "copy_on_write":
        for stat, file in zip(found, logged(table), strict=True):
            assert stat["cdcStats"] == {path: (tmp_path / "t" / path).stat().st_size for path in file.changes}
        return
    names = [stat["path"].rpartition("/")[2] for stat in found]
    base = history(table)[1].files[0].name
    assert [(stat["baseFile"], stat["logFiles"], stat["cdcStats"]) for stat in found] == [(base, names[: n + 1], None) for n in range(3)]
    table.compact()
    last = table.upsert(batch((1, "a", 9, "z")))
    stat = stats_of(table)[-1]
    assert stat["baseFile"] == next(file.name for one in history(table) if one.compacts for file in one.files)
    assert stat["logFiles"] == [next(file.name for file in table._timeline.history.slot(last.cursor.seq).files)]


@KINDS
def test_a_reader_that_knows_no_change_logs_reads_the_rows(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch(*((n, "a", 1, "x") for n in range(9))))
    table.upsert(batch((1, "a", 2, "y"), (20, "a", 1, "x")))
    table.upsert(batch((2, "a", 2, "y")))
    table.delete(batch((3, "a", 0, "")))
    rows = [{name: row[name] for name in SCHEMA.names} for row in hudi_rows(tmp_path / "t")]
    assert sorted(rows, key=repr) == sorted(table.scan().to_arrow().to_pylist(), key=repr)


# ---------------------------------------------------------------- life and death


@KINDS
def test_a_change_log_is_cleaned_with_its_base_file(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch((1, "a", 1, "x")))
    for n in range(2, 5):
        table.upsert(batch((n, "a", 1, "x")))  # fills the small file up
    assert len(files_of(tmp_path / "t")) == 3
    table.clean(retain_hours=0, retain_commits=1)
    assert files_of(tmp_path / "t") == live_logs(table)
    assert len(live_logs(table)) == 1
    if kind == "merge_on_read":
        table.upsert(batch((1, "a", 2, "y")))
        table.compact()
        table.upsert(batch((1, "a", 3, "z")))
        table.clean(retain_hours=0, retain_commits=1)
        assert files_of(tmp_path / "t") == set()
    assert table.verify().problems == []


def test_a_savepoint_keeps_the_change_log_of_what_it_keeps(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    table.savepoint("kept")
    kept = files_of(tmp_path / "t")
    table.upsert(batch((1, "a", 3, "z")))
    table.clean(retain_hours=0, retain_commits=1)
    assert kept < files_of(tmp_path / "t")
    table.restore("kept")
    assert table.scan().to_arrow()["v"].to_pylist() == ["y"]
    table.delete_savepoint("kept")
    table.clean(retain_hours=0, retain_commits=1)
    assert files_of(tmp_path / "t") == set()  # a restored file group is new
    assert table.verify().problems == []


@KINDS
@pytest.mark.parametrize("what", ["die", "die after"])
def test_a_writer_that_dies_at_any_write_leaves_a_change_log_only_where_it_committed_or_a_sweep_takes_it(tmp_path: Path, kind: str, what: str) -> None:
    table = make(tmp_path / "0", kind)
    table.upsert(batch((1, "a", 1, "x")))
    number, died = 0, True
    while died:
        number, died = number + 1, False
        store = FaultyStore(str(tmp_path / "0"))
        store.fault = lambda count, operation, key, at=number: what if count == at else None
        try:
            Table(store).upsert(batch((number + 1, "a", number + 1, "y")))
        except Died:
            died = True
        healed = hoodoo.open(tmp_path / "0")
        healed.sweep(older_than_hours=0)
        assert files_of(tmp_path / "0") == {path for file in logged(healed) for path in file.changes}
        assert healed.verify().problems == []
    assert number > 8


def test_a_task_that_runs_twice_writes_one_change_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    ran: list[tuple[Any, Any]] = []

    def twice(task: tasks.WriteTask) -> tasks.Written:
        ran.append((tasks.run(pickle.loads(pickle.dumps(task))), tasks.run(task)))
        return ran[-1][1]

    monkeypatch.setattr("hoodoo.writers.operations.run", twice)
    table.upsert(batch((1, "a", 2, "y")))
    assert ran[0][0].file == ran[0][1].file
    assert len(files_of(tmp_path / "t")) == 1
    assert table.verify().problems == []


def test_a_write_that_is_given_up_takes_its_change_log_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))

    def fails(task: tasks.WriteTask) -> tasks.Written:
        tasks.run(task)
        raise OSError("after the files")

    monkeypatch.setattr("hoodoo.writers.operations.run", fails)
    with pytest.raises(OSError, match="after the files"):
        table.upsert(batch((1, "a", 2, "y")))
    assert files_of(tmp_path / "t") == set()


def test_verify_and_readers_find_a_change_log_that_is_missing_or_damaged(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    (file,), (path,) = logged(table), files_of(tmp_path / "t")
    data = (tmp_path / "t" / path).read_bytes()
    (tmp_path / "t" / path).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    assert [(one.code, one.file) for one in table.verify().problems] == [("DAMAGED_FILE", path)]
    with pytest.raises(CorruptTable, match="does not fit|do not fit"):
        read_change_log(table._store, table._config, file)
    (tmp_path / "t" / path).unlink()
    assert [(one.code, one.file) for one in table.verify().problems] == [("MISSING_FILE", path)]
    with pytest.raises(CorruptTable, match="missing"):
        read_change_log(table._store, table._config, file)
    assert table.scan().to_arrow()["v"].to_pylist() == ["y"]


def test_simulated_worlds_with_change_logs_break_nothing_and_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers, services, purges, crashes and lost replies in any order, as tests/simulator makes them; here each table keeps a change log."""
    properties_of, logged_in = config.new_properties, []
    left_over = simulation.left_over

    def looked(oracle: Any, key: str) -> str:
        logged_in.append(key) if is_change_log(key) else None
        return left_over(oracle, key)

    monkeypatch.setattr(simulation, "left_over", looked)
    for seed in range(60):
        monkeypatch.setattr(config, "new_properties", lambda *given, mode=[*MODES][seed % 3]: properties_of(*given, mode))
        outcome = simulation.simulate(seed)
        assert not outcome.violation, f"seed {seed}: {outcome.violation}"
    assert len(logged_in) > 20


# ---------------------------------------------------------------- what slots and checkpoints say


def test_slots_and_checkpoints_remember_change_logs_and_an_older_hoodoo_is_told(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    table.upsert(batch((1, "a", 2, "y")))
    one = history(table)[-1]
    data = slot.encode(one)
    assert slot.decode(data, "s") == one
    assert slot.strict_json(data, "s")["v"] == slot.VERSION
    view = table._timeline.history.head()
    assert checkpoint.decode(checkpoint.encode(view), "c") == view
    assert checkpoint_columns(table)[-1] == "changes"


@pytest.mark.parametrize(
    "changes",
    [
        {"../out.cdc": [1, ""]}, {"p=a/x.parquet": [1, ""]}, {"p=b/.f_20260307162604102.log.1_0-0-0.cdc": [1, ""]},
        {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": [-1, ""]}, {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": ["1", ""]}, {"p=a/.f_20260307162604102.log.1_0-0-0.cdc": 1},
    ],
)  # fmt: skip
def test_a_slot_or_checkpoint_that_names_another_file_as_a_change_log_is_damaged(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Who could plant one would have a clean delete, or a reader open, what it names."""
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x")))
    one = history(table)[-1]
    planted = dataclasses.replace(one, files=(dataclasses.replace(one.files[0], changes=changes),))
    with pytest.raises(CorruptTable):
        slot.decode(slot.encode(planted), "s")
    view = table._timeline.history.head()
    group = next(view.groups())
    assert group.base is not None
    group = dataclasses.replace(group, base=group.base._replace(file=planted.files[0]))
    with pytest.raises(CorruptTable):
        checkpoint.decode(checkpoint.encode(dataclasses.replace(view, partitions={"p=a": {group.file_id: group}})), "c")


# ---------------------------------------------------------------- purging


def holding(path: Path, *texts: str) -> set[str]:
    """Files outside of slots and timeline that hold one of `texts`, by their bytes or, for Parquet, their rows."""
    found = set()
    for file in path.rglob("*"):
        if file.is_file() and ".hoodie" not in file.parts and file.name != ".hoodie_partition_metadata":
            data = str(pq.read_table(file, partitioning=None).to_pylist()).encode() if file.suffix == ".parquet" else file.read_bytes()
            found |= {file.name for text in texts if text.encode() in data}
    return found


@KINDS
@pytest.mark.parametrize("mode", MODES)
def test_a_purge_leaves_no_change_log_that_holds_a_row(tmp_path: Path, kind: str, mode: str) -> None:
    """Neither of rows that are there, nor of one that was deleted before, whose image only a live file's change log still has."""
    table = make(tmp_path / "t", kind, mode)
    table.upsert(batch(*((n, "a", 1, f"secret{n}") for n in range(70, 80))))
    table.upsert(batch((71, "a", 2, "secret71"), (5, "a", 1, "new")))
    table.upsert(batch((72, "a", 2, "secret72"), (7, "a", 1, "also new")))
    if kind == "merge_on_read":
        table.compact()
    table.delete(batch((71, "a", 0, "")))
    table.upsert(batch((6, "a", 1, "newer")))  # merge-on-read too rewrites its small file here
    assert holding(tmp_path / "t", "secret71", "k71")
    report = table.purge(batch((71, "a", 0, ""), (72, "a", 0, "")))
    assert report.proved
    assert holding(tmp_path / "t", "secret71", "secret72", "k71", "k72") == set()
    left = {"k5", "k6", "k7", *(f"k{n}" for n in range(70, 80) if n not in (71, 72))}
    assert set(table.scan().to_arrow()["id"].to_pylist()) == left
    assert table.verify().problems == []


def test_a_key_that_begins_like_a_purged_one_is_not_taken_for_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((7, "a", 1, "x"), (70, "a", 1, "x")))
    table.upsert(batch((70, "a", 2, "y")))
    assert table.purge(batch((7, "a", 0, ""))).proved
    assert table.scan().to_arrow()["id"].to_pylist() == ["k70"]


def test_a_consumer_that_reads_past_the_delete_and_the_rewrite_after_it_is_not_in_the_way(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x"), (2, "a", 1, "x")))
    table.delete(batch((1, "a", 0, "")))
    reader = table.consumer("billing", start=table.cursor)
    with pytest.raises(hoodoo.PurgeBlocked, match="billing"):
        table.purge(batch((1, "a", 0, "")))
    reader.commit(table.cursor)
    assert table.purge(batch((1, "a", 0, ""))).proved


def test_a_purge_that_a_savepoint_blocks_names_the_change_log(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(batch((1, "a", 1, "x"), (2, "a", 1, "x")))
    table.delete(batch((1, "a", 0, "")))
    table.clean(retain_hours=0, retain_commits=1)  # only the change log holds the row now
    table.savepoint("eod")
    with pytest.raises(hoodoo.PurgeBlocked, match="eod") as blocked:
        table.purge(batch((1, "a", 0, "")))
    assert any(is_change_log(path) for path in blocked.value.details["files"])


def test_the_columns_of_a_change_log_are_those_of_its_mode() -> None:
    assert [change_log.columns_of(mode) for mode in MODES.values()] == [("op", "before", "after"), ("op", "record_key", "before"), ("op", "record_key")]


def test_sparks_tasks_write_the_same_change_log(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    found = []
    for number, send in enumerate((lambda rows: rows, lambda rows: spark.createDataFrame(rows.to_pandas()))):
        table = make(tmp_path / f"{number}")
        table.upsert(send(batch(*((n, "a", 1, "x") for n in range(9)))))
        table.upsert(send(batch((1, "a", 2, "y"), (2, "a", 0, "stale"), (20, "a", 1, "x"))))
        table.delete(send(batch((3, "a", 0, ""))))
        changes = [read_change_log(table._store, table._config, file) for file in logged(table)]
        found.append([sorted(one.to_pylist(), key=repr) for one in changes if one is not None])
        assert table.verify().problems == []
    assert found[0] == found[1]
    assert [row["op"] for one in found[0] for row in one].count("d") == 1
