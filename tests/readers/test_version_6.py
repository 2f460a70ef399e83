"""Tables of version 6, which Hudi 0.14 and 0.15 write, are read to the rows that Hudi itself reads: now, base files
only, at every instant, and as changes; and nothing writes to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.format.names import META_COLUMNS
from hoodoo.timeline import layout

LOST_UPDATE = {("v6_mor_by_commit_by_1_2_0", "deltacommit")}
"""Hudi's incremental query merges the blocks of its range only, and returns a row that lost to its base's."""


def plain(scan: Any) -> list[dict[str, Any]]:
    return golden.by_columns(golden.sorted_rows(scan.to_arrow().to_pylist()))


def opened(tmp_path: Path, name: str) -> tuple[hoodoo.Table, dict[str, Any], bool]:
    """The table, its facts, and whether its files have meta columns."""
    return hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name), "virtual" not in name


@pytest.mark.parametrize("name", golden.VERSION_6)
def test_a_table_of_version_6_reads_as_hudi_reads_it(tmp_path: Path, name: str) -> None:
    table, facts, meta = opened(tmp_path, name)
    assert plain(table.scan(meta=meta)) == golden.by_columns(golden.stored(name, facts["snapshot"]))
    assert table.scan().count() == len(facts["snapshot"])
    assert plain(table.scan(meta=meta, read_optimized=True)) == golden.by_columns(
        golden.stored(name, facts["read_optimized"])
    )
    for instant in facts["instants"]:
        if instant["rows"] is None:
            with pytest.raises(hoodoo.SnapshotExpired, match="was cleaned"):
                table.scan(as_of=instant["instant"])
        else:
            assert plain(table.scan(meta=meta, as_of=instant["instant"])) == golden.by_columns(
                golden.stored(name, instant["rows"])
            )


@pytest.mark.parametrize("name", golden.VERSION_6)
def test_an_incremental_read_of_version_6_has_the_rows_that_hudi_returns(tmp_path: Path, name: str) -> None:
    table, facts, _ = opened(tmp_path, name)
    since = "earliest"
    for instant in facts["instants"]:
        at, expired = instant["instant"], False
        try:
            changed = plain(table.incremental(since=since, until=at, meta=True))
        except hoodoo.SnapshotExpired:
            expired = True
        except hoodoo.UnsupportedTable:
            assert "virtual" in name
            return
        lost = (name, instant["action"]) in LOST_UPDATE
        if not expired and instant["changed"] is not None and not lost:
            assert changed == golden.by_columns(instant["changed"])
        since = at


@pytest.mark.parametrize("name", [name for name in golden.VERSION_6 if "pending" not in name])
def test_the_hudi_package_and_hoodoo_read_version_6_alike(tmp_path: Path, name: str) -> None:
    """But under a pending compaction, where the package does not see the logs that follow the plan, as Hudi does."""
    path = golden.unpack(name, tmp_path)
    theirs = [{column: value for column, value in row.items() if column not in META_COLUMNS} for row in hudi_rows(path)]
    assert golden.sorted_rows(theirs) == golden.sorted_rows(hoodoo.open(path).scan().to_arrow().to_pylist())


WRITES: dict[str, Callable[[hoodoo.Table], Any]] = {
    "upsert": lambda table: table.upsert(table.scan().to_arrow()),
    "delete": lambda table: table.delete(table.scan().to_arrow()),
    "delete where": lambda table: table.delete(where="id = 'k1'"),
    "compact": lambda table: table.compact(),
    "clean": lambda table: table.maintenance.clean(),
    "savepoint": lambda table: table.savepoints.create("here"),
    "verify": lambda table: table.verify(),
}


@pytest.mark.parametrize("write", list(WRITES))
@pytest.mark.parametrize("name", ["v6_cow", "v6_mor", "v6_no_commits"])
def test_a_write_to_version_6_is_refused_before_anything_is_written(tmp_path: Path, name: str, write: str) -> None:
    path = golden.unpack(name, tmp_path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(hoodoo.UnsupportedTable, match="has version 6"):
        WRITES[write](hoodoo.open(path))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_a_table_of_version_6_is_not_created_anew(tmp_path: Path) -> None:
    path = golden.unpack("v6_no_commits", tmp_path)
    with pytest.raises(hoodoo.TableExists):
        hoodoo.create(path, pa.schema([("id", pa.string())]), key="id")


@pytest.mark.parametrize("name", ["v6_cow_virtual", "v6_mor_virtual"])
def test_without_meta_columns_there_are_snapshots_and_no_changes(tmp_path: Path, name: str) -> None:
    table, facts, _ = opened(tmp_path, name)
    first = facts["instants"][0]["instant"]
    for read in (table.changes, partial(table.changes, versions="diff"), table.incremental):
        with pytest.raises(hoodoo.UnsupportedTable, match="Table has no meta columns"):
            read(first)
    assert table.get("k1")["fare"].to_pylist() == [11.0]
    assert table.scan(where="fare > 5").count() == sum(row["fare"] > 5 for row in facts["snapshot"])
    scan = table.scan(columns=["_hoodie_record_key", "id"], meta=True)
    assert (
        scan.to_polars(lazy=True).collect().to_arrow()["_hoodie_record_key"].to_pylist()
        == scan.to_dataset().to_table()["id"].to_pylist()
    )
    keys = scan.to_arrow()
    assert keys["_hoodie_record_key"].to_pylist() == keys["id"].to_pylist()


@pytest.mark.parametrize("mode", ["NONE", "commit_time_only"])
def test_the_mode_that_replaces_the_switch_for_meta_columns_is_understood(tmp_path: Path, mode: str) -> None:
    """Apache Hudi 1.3 writes it, on tables of version 9 too."""
    path = golden.unpack("v6_cow_virtual", tmp_path)
    file = path / layout.PROPERTIES
    switch = "hoodie.populate.meta.fields=false"
    assert switch in file.read_text()
    file.write_text(file.read_text().replace(switch, f"hoodie.meta.fields.mode={mode}"))
    table, rows = hoodoo.open(path), golden.facts("v6_cow_virtual")["snapshot"]
    assert plain(table.scan()) == golden.by_columns(golden.stored("v6_cow_virtual", rows))
    with pytest.raises(hoodoo.UnsupportedTable, match="Table has no meta columns"):
        table.changes("earliest")
    file.write_text(file.read_text().replace(f"mode={mode}", "mode=ALL"))
    assert hoodoo.open(path).changes("earliest") is not None


def test_changes_of_version_6_are_those_of_its_instants(tmp_path: Path) -> None:
    table, facts, _ = opened(tmp_path, "v6_mor_clustered")
    first, *_, last = (instant["instant"] for instant in facts["instants"])
    found = table.changes(first, last).to_arrow().to_pylist()
    assert sorted((row["op"], (row["after"] or row["before"])["id"]) for row in found) == [
        ("i", "k21"),
        ("i", "k22"),
        ("i", "k23"),
        ("i", "k24"),
        ("u", "k1"),
        ("u", "k5"),
    ]


def test_the_timeline_of_version_6_shows_what_is_pending(tmp_path: Path) -> None:
    table, facts, _ = opened(tmp_path, "v6_mor_rolled_back")
    (pending,) = (entry for entry in table.inspect.timeline() if entry.state in ("requested", "inflight"))
    assert pending.action == "deltacommit" and pending.instant > facts["instants"][-1]["instant"]
    plans = hoodoo.open(golden.unpack("v6_mor_pending_compaction", tmp_path)).inspect.timeline()
    assert [entry.action for entry in plans if entry.state == "planned"] == ["compaction"]


def test_savepoints_of_version_6_are_positions(tmp_path: Path) -> None:
    table, facts, _ = opened(tmp_path, "v6_mor_clustered")
    first = facts["instants"][0]
    (name,) = table.history()[-1].savepoints
    assert plain(table.scan(as_of=name, meta=True)) == golden.by_columns(first["rows"])


# ---- logs to which several commits appended, as Hudi does where the file system can


def appended(path: Path) -> Path:
    """Put the logs of the one file group in `path` into one file, as Hudi does on HDFS; its commits say so."""
    logs = sorted(path.glob(".*.log.*"), key=lambda file: int(re.findall(r"\.log\.(\d+)", file.name)[0]))
    offsets, data = {}, b""
    for file in logs:
        offsets[file.name] = len(data)
        data += file.read_bytes()
    for file in logs[1:]:
        file.unlink()
    logs[0].write_bytes(data)
    for commit in (path / ".hoodie").glob("*.deltacommit"):
        said = json.loads(commit.read_text())
        for stats in said["partitionToWriteStats"].values():
            for stat in stats:
                if stat["path"] in offsets:
                    stat |= {"logOffset": offsets[stat["path"]], "path": logs[0].name}
        commit.write_text(json.dumps(said))
    return logs[0]


def test_commits_that_appended_to_one_log_are_told_apart(tmp_path: Path) -> None:
    table, facts, _ = opened(tmp_path, "v6_mor_by_commit")
    appended(Path(table.path))
    table, since = hoodoo.open(table.path), "earliest"
    for instant in facts["instants"]:
        assert plain(table.scan(meta=True, as_of=instant["instant"])) == golden.by_columns(instant["rows"])
        changed = table.incremental(since=since, until=instant["instant"], meta=True)
        assert plain(changed) == golden.by_columns(instant["changed"])
        since = instant["instant"]
    at = [instant["instant"] for instant in facts["instants"]]
    found = table.changes(at[1], at[3]).to_arrow().to_pylist()
    assert sorted((row["op"], (row["after"] or row["before"])["id"]) for row in found) == [("d", "k2"), ("u", "k4")]


def test_rows_of_archived_base_files_are_counted(tmp_path: Path) -> None:
    """No commit tells how many they are any more: those files counted as empty."""
    table, facts, _ = opened(tmp_path, "v6_cow_complex_keys")
    path = Path(table.path)
    archive(path, [instant["instant"] for instant in facts["instants"][:-1]])
    assert hoodoo.open(path).scan().count() == len(facts["snapshot"])
    assert plain(hoodoo.open(path).scan(meta=True)) == golden.by_columns(facts["snapshot"])


def archive(path: Path, instants: list[str]) -> None:
    """What is left in the timeline once Hudi archived `instants`."""
    for file in (path / ".hoodie").iterdir():
        if file.name.partition(".")[0] in instants:
            file.unlink()


@pytest.mark.parametrize("one_log", [False, True])
def test_what_archived_commits_wrote_is_found_by_listing(tmp_path: Path, one_log: bool) -> None:
    table, facts, _ = opened(tmp_path, "v6_mor_by_commit")
    path = Path(table.path)
    if one_log:
        appended(path)
    cursor = hoodoo.open(path).cursor
    archive(path, [instant["instant"] for instant in facts["instants"][:2]])
    table = hoodoo.open(path)
    for instant in facts["instants"][2:]:
        assert plain(table.scan(meta=True, as_of=instant["instant"])) == golden.by_columns(instant["rows"])
    assert plain(table.incremental("earliest", meta=True)) == golden.by_columns(facts["snapshot"])
    with pytest.raises(hoodoo.SnapshotExpired):
        table.scan(as_of=1)
    with pytest.raises(hoodoo.PositionError, match="belongs to another table"):
        table.incremental(since=cursor)  # slots have other numbers now
    assert plain(hoodoo.open(path).scan(meta=True)) == golden.by_columns(facts["snapshot"])


@pytest.mark.parametrize("rolled_back", ["in its file", "in another file"])
def test_blocks_that_an_archived_rollback_took_back_are_ignored(tmp_path: Path, rolled_back: str) -> None:
    """Its instant is in no timeline any more, and older than those that are: only the command tells."""
    table, facts, _ = opened(tmp_path, "v6_mor_by_commit")
    path = Path(table.path)
    log = appended(path)
    third, last = facts["instants"][2]["instant"], facts["instants"][3]["instant"]
    archive(path, [instant["instant"] for instant in facts["instants"][:3]])
    command = _rollback_command("20990101000000000", third)
    if rolled_back == "in its file":
        log.write_bytes(log.read_bytes() + command)
    else:
        log.with_name(log.name.replace(".log.1_", ".log.9_")).write_bytes(command)
    want = [*facts["snapshot"], *(row for row in facts["instants"][1]["rows"] if row["id"] == "k2")]
    assert plain(hoodoo.open(path).scan(meta=True, as_of=last)) == golden.by_columns(want)


def _rollback_command(instant: str, target: str) -> bytes:
    """A command block as Hudi writes it (docs/format.md 10.4)."""
    texts = {0: instant, 3: "0", 1: target}
    header = b"".join(n.to_bytes(4) + len(text).to_bytes(4) + text.encode() for n, text in texts.items())
    body = (1).to_bytes(4) + (0).to_bytes(4) + len(texts).to_bytes(4) + header + bytes(8) + bytes(4)
    return b"#HUDI#" + (len(body) + 8).to_bytes(8) + body + (len(body) + 14).to_bytes(8)


def test_a_savepoint_before_an_archived_gap_keeps_its_rows(tmp_path: Path) -> None:
    """Hudi archives past savepoints where it is told to: commits between a kept one and the others are gone."""
    table, facts, _ = opened(tmp_path, "v6_mor_clustered")
    path = Path(table.path)
    archive(path, [instant["instant"] for instant in facts["instants"][1:2]])
    table = hoodoo.open(path)
    (name,) = table.history()[-1].savepoints
    assert plain(table.scan(as_of=name, meta=True)) == golden.by_columns(facts["instants"][0]["rows"])
    assert plain(table.scan(meta=True)) == golden.by_columns(facts["snapshot"])


# ---- what is refused


@pytest.mark.parametrize(
    ("property_", "value", "why"),
    [
        ("hoodie.timeline.layout.version", "2", "expected 1 in a table of version 6"),
        ("hoodie.table.version", "5", r"expected 6, 8 or 9\.$"),
        ("hoodie.table.version", "10", "hoodie.write.auto.upgrade=false and hoodie.write.table.version=9"),
        ("hoodie.bootstrap.base.path", "/elsewhere", "bootstrapped"),
        ("hoodie.table.base.file.format", "ORC", "expected PARQUET"),
        ("hoodie.compaction.payload.class", "org.example.Mine", "Payload class org.example.Mine is not supported"),
    ],
)
def test_what_cannot_be_read_right_is_refused_by_name(tmp_path: Path, property_: str, value: str, why: str) -> None:
    path = golden.unpack("v6_mor", tmp_path)
    file = path / layout.PROPERTIES
    kept = [line for line in file.read_text().splitlines() if not line.startswith(f"{property_}=")]
    file.write_text("\n".join([*kept, f"{property_}={value}"]) + "\n")
    with pytest.raises(hoodoo.UnsupportedTable, match=why):
        hoodoo.open(path)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "not JSON",
        '{"partitionToWriteStats": "x"}',
        '{"partitionToWriteStats": {"": [{"path": 7}]}}',
        '{"partitionToWriteStats": {"": [{"path": "../../x_0-0-0_20240101000000000.parquet"}]}}',
        '{"partitionToWriteStats": {"": [{"numWrites": "many", "path": "x_0-0-0_20240101000000000.parquet"}]}}',
        '{"partitionToWriteStats": {"": [{"numWrites": 99999999999999999999}]}}',
        '{"extraMetadata": {"schema": {"type": "record"}}}',
    ],
)
def test_damaged_commit_metadata_is_named(tmp_path: Path, said: str) -> None:
    path = golden.unpack("v6_mor_by_commit", tmp_path)
    commit = sorted((path / ".hoodie").glob("*.deltacommit"))[1]
    commit.write_text(said)
    with pytest.raises(hoodoo.CorruptTable):
        hoodoo.open(path)


def test_instants_of_14_digits_are_read(tmp_path: Path) -> None:
    """Releases before 0.10 wrote them, and tables that were upgraded to version 6 keep them."""
    path, facts = golden.unpack("v6_cow_complex_keys", tmp_path), golden.facts("v6_cow_complex_keys")
    digits = re.compile(r"(?<!\d)(20\d{12})\d{3}(?!\d)")
    for file in sorted(path.rglob("*"), reverse=True):
        if file.is_file() and re.fullmatch(r"\d{17}\..*", file.name):
            file.write_text(digits.sub(r"\1", file.read_text()))
        file.rename(file.with_name(digits.sub(r"\1", file.name)))
    table = hoodoo.open(path)
    first, second = (instant["instant"][:14] for instant in facts["instants"])
    assert [commit.instant for commit in table.history()] == [second, first]
    assert table.scan(as_of=first).count() == table.scan(as_of=second).count() == 8
    assert table.scan(as_of=first, where="id = 'k1'").to_arrow()["fare"].to_pylist() == [1.0]
    assert table.scan(where="id = 'k1'").to_arrow()["fare"].to_pylist() == [11.0]
    with pytest.raises(hoodoo.UnsupportedTable, match="expected 17 digits, got 14"):
        table.maintenance.adopt()


def test_deletes_that_java_serialised_are_refused(tmp_path: Path) -> None:
    """Hudi before 0.13 wrote version 2 of delete blocks, which are objects of its JVM."""
    table, facts, _ = opened(tmp_path, "v6_mor_by_commit")
    log = sorted(Path(table.path).glob(".*.log.2_*"))[0]
    data = log.read_bytes()
    at = data.rindex((3).to_bytes(4) + (len(data) - data.rindex(b"\x00\x00\x00\x03") - 8 - 12).to_bytes(4))
    log.write_bytes(data[:at] + (2).to_bytes(4) + data[at + 4 :])
    with pytest.raises(hoodoo.UnsupportedTable, match="version 2"):
        hoodoo.open(table.path).scan().to_arrow()


def test_a_table_that_hudi_upgrades_while_it_is_open_is_read_on(tmp_path: Path) -> None:
    old, new = golden.unpack("v6_cow", tmp_path), golden.unpack("cow_ordered", tmp_path)
    table = hoodoo.open(old)
    table.scan().to_arrow()
    old.rename(tmp_path / "gone")
    new.rename(old)
    assert plain(table.scan(meta=True)) == golden.by_columns(golden.facts("cow_ordered")["snapshot"])
