"""A table with Hudi's change log: every rewrite of a base file says what it did to each row, and its log lives and dies
with that file.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_logs import KINDS, MODES, SCHEMA, batch, checkpoint_columns, files_of, history, logged, make
from hudi_blocks import change_records
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.errors import UnsupportedTable
from hoodoo.format import properties
from hoodoo.format.log import change_log_block
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.readers.changes.change_log_reader import read_change_log
from hoodoo.readers.slices import slices
from hoodoo.table import Table
from hoodoo.timeline.hudi.publish import find_publication_file
from hoodoo.timeline.layout import PROPERTIES, slot_key
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files import tasks
from hoodoo.writers.staging import staged

Row = dict[str, Any]


def rows_of(table: Table, seq: int) -> dict[str, Row]:
    return {
        row["id"]: row
        for row in table.scan(as_of=hoodoo.Cursor(table.cursor.table, seq), meta=True).to_arrow().to_pylist()
    }


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
    return set(
        slices.read_file_slice(
            table.handle.store, table.handle.config, group, slices.schema_of(table.handle.config, ["id"])
        )["id"].to_pylist()
    )


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
            table.compact() if table.type == "merge_on_read" else table.maintenance.cluster(sort_by=["v"])
        case 7:
            table.insert_overwrite(rows.slice(0, 2)) if rng.random() < 0.5 else table.delete_partitions(["a"])


@KINDS
@pytest.mark.parametrize("mode", MODES)
def test_the_logs_of_a_random_history_say_what_its_snapshots_differ_in(tmp_path: Path, kind: str, mode: str) -> None:
    """Of every rewritten file group, for every operation and service, as fastavro reads the files and as
    read_change_log does.
    """
    seen: set[str] = set()
    for seed in range(2):
        rng, table = random.Random(seed), make(tmp_path / f"{seed}", kind, mode)
        for number in range(20):
            random_step(table, rng, number)
        known = table.handle.timeline.history
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
                require_table(mode, read_change_log(table.handle.store, table.handle.config, file), mine)
                seen |= {op for op, _, _ in mine.values()}
        assert table.verify().problems == []
        assert files_of(tmp_path / f"{seed}") == {path for file in logged(table) for path in file.changes}
    assert seen == ({"i", "u", "d"} if kind == "copy_on_write" else {"i", "u"} | (seen & {"d"}))


def require_records(
    mode: str, records: list[Row], wanted: dict[str, tuple[str, Row | None, Row | None]], instant: str
) -> None:
    assert len(records) == len(wanted)
    for record in records:
        key = record["record_key"] if mode != "before_after" else (record["after"] or record["before"])["id"]
        op, before, after = wanted[key]
        known = {"op": op, "ts_ms": instant, "record_key": key, "before": before, "after": after}
        fields = {
            "before_after": ("op", "ts_ms", "before", "after"),
            "before": ("op", "record_key", "before"),
            "keys": ("op", "record_key"),
        }[mode]
        assert record == {name: known[name] for name in fields}


def require_table(mode: str, table: pa.Table | None, wanted: dict[str, tuple[str, Row | None, Row | None]]) -> None:
    assert table is not None
    assert (
        table.column_names
        == {
            "before_after": ["op", "record_key", "before", "after"],
            "before": ["op", "record_key", "before"],
            "keys": ["op", "record_key"],
        }[mode]
    )
    assert len(table) == len(wanted)
    for row in table.to_pylist():
        known = dict(zip(("op", "before", "after"), wanted[row["record_key"]], strict=True))
        assert row == {name: known.get(name, row["record_key"]) for name in table.column_names}


def test_many_changes_of_one_file_are_logged_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.writers.files.change_log._ROWS", 7)
    table = make(tmp_path / "t")
    table.upsert(batch(*((n, "a", 1, "old") for n in range(50))))
    table.upsert(batch(*((n, "a", 2 if n % 3 else 0, "new") for n in range(20, 70))))
    (file,) = logged(table)
    changes = read_change_log(table.handle.store, table.handle.config, file)
    assert changes is not None
    assert changes["op"].to_pylist().count("u") == sum(1 for n in range(20, 50) if n % 3)
    assert changes["op"].to_pylist().count("i") == 20
    assert all(row["before"]["v"] == "old" for row in changes.to_pylist() if row["op"] == "u")


# ---------------------------------------------------------------- the switch


@KINDS
def test_a_table_without_the_switch_writes_no_change_log_and_says_nothing_of_one(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "write_change_log", None)  # not even called
    table = make(tmp_path / "t", kind, None)
    table.upsert(batch(*((n, "a", 1, "x") for n in range(9))))
    table.upsert(batch((1, "a", 2, "y"), (20, "a", 1, "x")))
    table.delete(batch((2, "a", 0, "")))
    assert files_of(tmp_path / "t") == set()
    assert b".cdc" not in (tmp_path / "t" / PROPERTIES).read_bytes()
    assert all(b'"changes"' not in (tmp_path / "t" / slot_key(one.seq)).read_bytes() for one in history(table))
    assert "changes" not in checkpoint_columns(table)
    for stat in stats_of(table):
        assert stat["cdcStats"] is None
        assert stat["baseFile"] in ("", None)
        assert stat["logFiles"] in (None, [stat["path"].rpartition("/")[2]])


def stats_of(table: Table) -> list[dict[str, Any]]:
    records = [
        timeline_avro.decode_timeline_file(table.handle.store.get(find_publication_file(one)))
        for one in history(table)
        if one.commits
    ]
    return [stat for record in records for stats in (record["partitionToWriteStats"] or {}).values() for stat in stats]


@pytest.mark.parametrize("mode", MODES)
def test_create_says_the_mode_in_hudis_properties(tmp_path: Path, mode: str) -> None:
    table = make(tmp_path / "t", mode=mode)
    values = properties.parse_properties((tmp_path / "t" / PROPERTIES).read_bytes())
    assert (values["hoodie.table.cdc.enabled"], values["hoodie.table.cdc.supplemental.logging.mode"]) == (
        "true",
        MODES[mode],
    )
    table.set_options(clean_every=7)
    assert hoodoo.open(tmp_path / "t").handle.config.change_log == MODES[mode]


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
    assert [(stat["baseFile"], stat["logFiles"], stat["cdcStats"]) for stat in found] == [
        (base, names[: n + 1], None) for n in range(3)
    ]
    table.compact()
    last = table.upsert(batch((1, "a", 9, "z")))
    stat = stats_of(table)[-1]
    assert stat["baseFile"] == next(file.name for one in history(table) if one.compacts for file in one.files)
    assert stat["logFiles"] == [next(file.name for file in table.handle.timeline.history.slot(last.cursor.seq).files)]


@KINDS
def test_a_reader_that_knows_no_change_logs_reads_the_rows(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(batch(*((n, "a", 1, "x") for n in range(9))))
    table.upsert(batch((1, "a", 2, "y"), (20, "a", 1, "x")))
    table.upsert(batch((2, "a", 2, "y")))
    table.delete(batch((3, "a", 0, "")))
    rows = [{name: row[name] for name in SCHEMA.names} for row in hudi_rows(tmp_path / "t")]
    assert sorted(rows, key=repr) == sorted(table.scan().to_arrow().to_pylist(), key=repr)


def test_the_columns_of_a_change_log_are_those_of_its_mode() -> None:
    assert [change_log_block.columns_of(mode) for mode in MODES.values()] == [
        ("op", "before", "after"),
        ("op", "record_key", "before"),
        ("op", "record_key"),
    ]


def test_sparks_tasks_write_the_same_change_log(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    found = []
    for number, send in enumerate((lambda rows: rows, lambda rows: spark.createDataFrame(rows.to_pandas()))):
        table = make(tmp_path / f"{number}")
        table.upsert(send(batch(*((n, "a", 1, "x") for n in range(9)))))
        table.upsert(send(batch((1, "a", 2, "y"), (2, "a", 0, "stale"), (20, "a", 1, "x"))))
        table.delete(send(batch((3, "a", 0, ""))))
        changes = [read_change_log(table.handle.store, table.handle.config, file) for file in logged(table)]
        found.append([sorted(one.to_pylist(), key=repr) for one in changes if one is not None])
        assert table.verify().problems == []
    assert found[0] == found[1]
    assert [row["op"] for one in found[0] for row in one].count("d") == 1
