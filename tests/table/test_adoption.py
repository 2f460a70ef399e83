"""Tables that Apache Hudi wrote become ours at the first write, and what it commits to ours in between is taken up by
the next.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from faulty_store import Died, FaultyStore
from hudi_rows import hudi_rows
from slots import make_slot

import hoodoo
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.properties import hoodie_properties

REFUSED = {"mor_version_6": "version 6"}
ADOPTED = [name for name in golden.NAMES if name not in REFUSED]
META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def rows_of(scan: hoodoo.Scan) -> list[dict[str, Any]]:
    rows = scan.to_arrow()
    maps = [field.name for field in rows.schema if pa.types.is_map(field.type)]
    return golden.sorted_rows(
        [row | {name: dict(row[name]) for name in maps if row[name] is not None} for row in rows.to_pylist()]
    )


def without_meta(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return golden.sorted_rows([{name: value for name, value in row.items() if name not in META} for row in rows])


def newer(table: Table, rows: pa.Table) -> pa.Table:
    """`rows` with an ordering value that wins."""
    if not table.order_by or not len(rows):
        return rows
    (name,) = table.order_by
    field = table.schema.field(name)
    raised = pa.array(
        [value + type(value)(1) if isinstance(value, (int, float)) else value for value in rows[name].to_pylist()],
        field.type,
    )
    return rows.set_column(rows.schema.get_field_index(name), field, raised)


@pytest.mark.parametrize("name", ADOPTED)
def test_the_first_write_adopts_a_table_that_hudi_wrote(tmp_path: Path, name: str) -> None:
    path, facts = golden.unpack(name, tmp_path), golden.facts(name)
    table = hoodoo.open(path)
    cursor, before = table.cursor, table.scan().to_arrow()
    assert table.delete(before.slice(0, 1)).deleted == 1
    assert len(hudi_rows(path)) == table.scan().count() == len(before) - 1
    again = newer(table, before)
    table.upsert(again)
    assert rows_of(table.scan()) == golden.sorted_rows(rows_of_table(again))
    assert sorted(row["_hoodie_record_key"] for row in hudi_rows(path)) == sorted(
        table.scan(meta=True).to_arrow()["_hoodie_record_key"].to_pylist()
    )
    assert hoodoo.open(path).verify().problems == []
    assert str(cursor) == str(hoodoo.Cursor(table.cursor.table, cursor.seq)) or name == "mor_pending_compaction"
    for instant in facts["instants"]:
        assert rows_of(table.scan(meta=True, as_of=instant["instant"])) == instant["rows"]
    table.compact()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert rows_of(hoodoo.open(path).scan()) == golden.sorted_rows(rows_of_table(again))
    assert len(hudi_rows(path)) == len(before)
    assert hoodoo.open(path).verify().problems == []


def rows_of_table(rows: pa.Table) -> list[dict[str, Any]]:
    maps = [field.name for field in rows.schema if pa.types.is_map(field.type)]
    return [row | {name: dict(row[name]) for name in maps if row[name] is not None} for row in rows.to_pylist()]


@pytest.mark.parametrize("name", ADOPTED)
def test_an_insert_finds_the_keys_that_hudi_wrote(tmp_path: Path, name: str) -> None:
    table = hoodoo.open(golden.unpack(name, tmp_path))
    there = table.scan().to_arrow()
    with pytest.raises(hoodoo.KeyExists):
        table.insert(there.slice(0, 1))
    assert table.insert(there, existing="keep").inserted == 0


def test_a_table_with_hudis_metadata_table_is_adopted_and_the_list_of_files_appended_to(tmp_path: Path) -> None:
    table = hoodoo.open(golden.unpack("mor_metadata", tmp_path))
    rows = table.scan().to_arrow()
    instant = table.upsert(newer(table, rows)).instant
    assert len(hudi_rows(tmp_path / "mor_metadata")) == len(rows)
    assert hoodie_properties.read_properties(table.handle.store)["hoodie.table.metadata.partitions"] == "files"
    assert [key for key, _ in table.handle.store.list(layout.METADATA_TABLE) if f"_{instant}.log" in key]


def test_what_cannot_be_adopted_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = hoodoo.open(golden.unpack("mor_ordered", tmp_path))
    pending = Path(table.path) / ".hoodie/timeline/20990101000000000.clustering.requested"
    pending.write_bytes(b"")
    before = dict(table.handle.store.list(""))
    rows = table.scan().to_arrow()
    for call in (
        lambda: table.upsert(rows),
        lambda: table.delete(rows),
        table.compact,
        table.maintenance.clean,
        table.verify,
    ):
        with pytest.raises(hoodoo.UnsupportedTable):
            call()
    assert dict(table.handle.store.list("")) == before


@pytest.mark.parametrize(
    ("property_", "value", "why"),
    [
        ("hoodie.table.keygenerator.type", "TIMESTAMP", "come from TIMESTAMP, which hoodoo does not support"),
        ("hoodie.table.recordkey.fields", "", "hoodoo can read this table, but not write"),
        ("hoodie.table.recordkey.fields", "id,ts", "encodes record keys differently"),
    ],
)
def test_a_table_whose_keys_hoodoo_would_spell_otherwise_is_read_but_not_written(
    tmp_path: Path, property_: str, value: str, why: str
) -> None:
    path = golden.unpack("cow_ordered", tmp_path)
    rows = hoodoo.open(path).scan().to_arrow()
    file = path / layout.PROPERTIES
    kept = [line for line in file.read_text().splitlines() if not line.startswith(property_)]
    file.write_text("\n".join([*kept, f"{property_}={value}"]) + "\n")
    table = hoodoo.open(path)
    assert table.scan().count() == len(rows)
    with pytest.raises(hoodoo.UnsupportedTable, match=why):
        table.delete_partitions(["x"])
    assert not [key for key, _ in table.handle.store.list(layout.SLOTS)]


def test_a_crash_at_any_step_of_adopting_is_finished_by_the_next_write(tmp_path: Path) -> None:
    start = golden.unpack("mor_pending_compaction", tmp_path)
    before = rows_of(hoodoo.open(start).scan())
    at, done = 0, False
    while not done:
        at += 1
        path = tmp_path / str(at)
        shutil.copytree(start, path)
        store = FaultyStore(str(path))
        dying = Table(store)
        store.count, store.fault = 0, lambda n, *_, at=at: "die after" if n == at else None
        try:
            dying.handle.context()
            done = True
        except Died:
            pass
        assert rows_of(hoodoo.open(path).scan()) == before
        table = hoodoo.open(path)
        table.delete(table.scan().to_arrow().slice(0, 1))
        assert len(hudi_rows(path)) == table.scan().count() == len(before) - 1
        table.compact()
        assert hoodoo.open(path).verify().problems == []
        assert len(hudi_rows(path)) == len(before) - 1
        shutil.rmtree(path)
    assert at > 5


def test_a_commit_of_another_engine_in_between_is_taken_up_by_the_next_write(tmp_path: Path) -> None:
    """Played back: the commits that Apache Hudi made to a copy of the table, one after the other, each followed by one
    of ours.
    """
    whole = golden.unpack("mor_ordered", tmp_path)
    facts = golden.facts("mor_ordered")
    path = tmp_path / "played"
    shutil.copytree(whole, path)
    later = sorted((path / layout.TIMELINE).glob("*"))
    first = min(file.name[:17] for file in later if file.is_file())
    held = tmp_path / "held"
    held.mkdir()
    for file in later:
        if file.is_file() and file.name[:17] > first:
            file.rename(held / file.name)
    table = hoodoo.open(path)
    assert len(rows_of(table.scan())) == len(facts["instants"][0]["rows"])
    table.handle.context()  # adopts the first commit
    writer, steps = hoodoo.open(path), 0
    for instant in facts["instants"][1:]:
        for file in held.glob(f"{instant['instant']}*"):
            file.rename(path / layout.TIMELINE / file.name)
        for compaction in held.glob("*.compaction.*"):
            done = list(held.glob(f"{compaction.name[:17]}_*"))
            if not done or done[0].name[:17] < instant["instant"]:
                for file in held.glob(f"{compaction.name[:17]}*"):
                    file.rename(path / layout.TIMELINE / file.name)
        writer.handle.timeline.begin("clean")  # whatever begins takes up what is new
        assert rows_of(writer.scan(meta=True)) == instant["rows"]
        assert rows_of(hoodoo.open(path).scan(meta=True)) == instant["rows"]
        steps += 1
    assert steps > 5 and not list(held.glob("*_*"))
    for instant in facts["instants"]:
        assert rows_of(hoodoo.open(path).scan(meta=True, as_of=instant["instant"])) == instant["rows"]
    rows = writer.scan().to_arrow()
    writer.upsert(newer(writer, rows))
    assert len(hudi_rows(path)) == len(rows)
    assert writer.verify().problems == []


def test_a_reader_follows_slots_and_foreign_commits_with_the_cursors_it_has(tmp_path: Path) -> None:
    path = golden.unpack("cow_ordered", tmp_path)
    reader = hoodoo.open(path)
    cursor, count = str(reader.cursor), reader.scan().count()
    writer = hoodoo.open(path)
    writer.delete(writer.scan().to_arrow().slice(0, 1))
    fresh = hoodoo.open(path)
    assert fresh.scan(as_of=cursor).count() == count
    assert fresh.incremental(since=cursor).count() == 0
    assert fresh.scan().count() == count - 1


def test_an_archived_foreign_timeline_is_adopted_too(tmp_path: Path) -> None:
    path = golden.unpack("mor_unordered", tmp_path)
    before = rows_of(hoodoo.open(path).scan())
    store = hoodoo.open(path).handle.store
    from hoodoo.timeline.hudi.external_history import list_completed_commits
    from hoodoo.timeline.layout import TIMELINE

    old = [one for one in list_completed_commits(store.names(TIMELINE))][:2]
    archived_timeline.append_to_archive(
        store, [archived_timeline.ArchivedEntry(one.time, one.completed, one.action, store.get(one.key)) for one in old]
    )
    for one in old:
        for key, _ in list(store.list(layout.TIMELINE + one.time)):
            store.delete(key)
    table = hoodoo.open(path)
    assert rows_of(table.scan()) == before
    assert table.delete(table.scan().to_arrow().slice(0, 1)).deleted == 1
    assert table.scan().count() == len(before) - 1
    assert table.verify().problems == []


def rolled_back_by_hudi(path: Path, instant: str, action: str, at: str) -> None:
    """What Apache Hudi leaves when it rolls back an instant that it takes for pending (docs/format.md 12)."""
    from hoodoo.timeline.hudi.commit_metadata import rollback_metadata
    from hoodoo.timeline.hudi.publish import list_data_files
    from hoodoo.timeline.instant import ROLLBACK, Instant, State
    from hoodoo.timeline.slots.slot import ROLLED_BACK

    store = FaultyStore(str(path))
    for _, key in list(list_data_files(store, instant)):
        store.delete(key)
    for state in (State.INFLIGHT, State.REQUESTED):
        store.delete(Instant(instant, action, state).key)
    slot = make_slot(
        table="",
        instant=at,
        action=ROLLBACK,
        outcome=ROLLED_BACK,
        operation="ROLLBACK",
        target=instant,
        target_action=action,
    )
    store.put_if_absent(Instant(at, ROLLBACK, State.COMPLETED, at[:-1] + "9").key, rollback_metadata(slot, {}))


def test_a_commit_that_hudi_rolled_back_before_it_was_published_is_undone(tmp_path: Path) -> None:
    """Its writer died between slot and publication; a Hudi writer that started then took the instant for pending."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    path = tmp_path / "t"
    table = hoodoo.create(path, schema, key="id", order_by="ts", compact_after_logs=None)
    table.upsert(pa.table({"id": [1, 2], "ts": [1, 1]}, schema))
    table.upsert(pa.table({"id": [1], "ts": [2]}, schema), transaction=("app", 1))
    before = table.scan().to_arrow().sort_by("id").to_pylist()
    store = FaultyStore(str(path))
    dying = Table(store)
    store.fault = lambda number, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        dying.upsert(pa.table({"id": [1, 3], "ts": [9, 9]}, schema), transaction=("app", 2))
    instant = table.handle.history.slot(table.handle.history.head().seq).instant
    rolled_back_by_hudi(path, instant, "deltacommit", "20991231235959000")
    for reader in (hoodoo.open(path), table):
        assert reader.scan().to_arrow().sort_by("id").to_pylist() == before
    result = table.upsert(pa.table({"id": [3], "ts": [1]}, schema), transaction=("app", 2))
    assert not result.skipped and result.inserted == 1
    assert sorted(row["id"] for row in hudi_rows(path)) == [1, 2, 3]
    assert table.verify().problems == []
    assert instant not in [one.instant for one in table.inspect.timeline() if one.state in ("requested", "inflight")]


def test_a_writer_whose_commit_hudi_rolled_back_before_publication_is_told_so(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    path = tmp_path / "t"
    table = hoodoo.create(path, schema, key="id", order_by="ts", compact_after_logs=None)
    table.upsert(pa.table({"id": [1], "ts": [1]}, schema))
    store = FaultyStore(str(path))
    slow = Table(store)
    put = store.put_if_absent

    def racing(key: str, data: Any, durable: bool = True) -> None:
        put(key, data, durable)
        if key.startswith(layout.SLOTS):
            store.put_if_absent = put  # type: ignore[method-assign]
            rolled_back_by_hudi(path, slow.handle.history.head().instant, "deltacommit", "20991231235959000")

    store.put_if_absent = racing  # type: ignore[method-assign]
    with pytest.raises(hoodoo.Fenced, match="before it was published"):
        slow.upsert(pa.table({"id": [1, 2], "ts": [5, 5]}, schema))
    assert hoodoo.open(path).scan().to_arrow().to_pylist() == [{"id": 1, "ts": 1}]
    assert slow.upsert(pa.table({"id": [2], "ts": [5]}, schema)).inserted == 1
    assert table.verify().problems == []
