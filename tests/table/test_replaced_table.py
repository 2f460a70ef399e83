"""A table that was deleted and created anew at the same place, while an older process still has the first one open.

It happened that the older process remembered as many slots as the new table had, wrote the next one, and so broke the
new table's chain: nobody could open it any more. Now whoever remembers another table is told so before anything is
written.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S, wait_for

import hoodoo
from hoodoo.compactor import heartbeats
from hoodoo.table.consumer import Consumer
from hoodoo.table.quarantine import Quarantine
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.layout import HEARTBEATS, PROPERTIES, slot_key
from hoodoo.timeline.properties import config, hoodie_properties
from hoodoo.timeline.properties.table_options import Options

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])


def rows(*numbers: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "ts": 1, "v": v} for number in numbers]


def make(path: Path, commits: int = 1) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", order_by="ts", compact_after_logs=None)
    for number in range(commits):
        table.upsert(rows(number, number + 1))
    return table


def files_in(path: Path) -> dict[Path, bytes]:
    """Every file but what workers say of themselves."""
    return {found: found.read_bytes() for found in path.rglob("*") if found.is_file() and HEARTBEATS not in str(found)}


CALLS: dict[str, Callable[[hoodoo.Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(7)),
    "insert": lambda t: t.insert(rows(7)),
    "bulk_insert": lambda t: t.insert(rows(7), bulk=True),
    "delete": lambda t: t.delete([{"id": 1}]),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(7)),
    "compact": lambda t: t.compact(),
    "cluster": lambda t: t.maintenance.cluster(sort_by=["v"]),
    "clean": lambda t: t.maintenance.clean(retain_hours=0, retain_commits=1),
    "archive": lambda t: t.maintenance.archive(),
    "sweep": lambda t: t.maintenance.sweep(older_than_hours=0),
    "purge": lambda t: t.maintenance.purge([{"id": 1}]),
    "savepoint": lambda t: t.savepoints.create("s"),
    "restore": lambda t: t.restore(hoodoo.Cursor(t.handle.history.known_head().table, 2)),
    "set_options": lambda t: t.set_options(clean_every=3),
}


@pytest.mark.parametrize("commits", [1, 3, 5], ids=["fewer slots", "as many slots", "more slots"])
@pytest.mark.parametrize("call", CALLS)
def test_who_remembers_the_table_that_was_there_changes_nothing_of_the_new_one(
    tmp_path: Path, call: str, commits: int
) -> None:
    old = make(tmp_path / "t", 3)
    shutil.rmtree(tmp_path / "t")
    new = make(tmp_path / "t", commits)
    before = files_in(tmp_path / "t")
    with pytest.raises(hoodoo.errors.TableReplaced, match="Open it again") as problem:
        CALLS[call](old)
    assert problem.value.code == "TABLE_REPLACED"
    assert files_in(tmp_path / "t") == before
    assert new.upsert(rows(9)).inserted == 1
    assert hoodoo.open(tmp_path / "t").verify().problems == []


def made_with_consumer_and_quarantine(path: Path) -> tuple[hoodoo.Table, Consumer, Quarantine[hoodoo.Table]]:
    table = make(path)
    table.upsert([*rows(1), {"id": None, "ts": 1, "v": "bad"}], on_bad_rows=hoodoo.BadRowLimits(share=1))
    return table, table.consumer("reader", table.cursor), table.quarantine()


OF_CONSUMER: dict[str, Callable[[Consumer, hoodoo.Cursor], Any]] = {
    "position": lambda consumer, cursor: consumer.position,
    "commit": lambda consumer, cursor: consumer.commit(cursor),
    "drop": lambda consumer, cursor: consumer.drop(),
}
OF_QUARANTINE: dict[str, Callable[[Quarantine[hoodoo.Table], str], Any]] = {
    "table": lambda quarantine, position: quarantine.table,
    "scan": lambda quarantine, position: quarantine.scan(),
    "rows": lambda quarantine, position: quarantine.rows(),
    "count": lambda quarantine, position: quarantine.count(),
    "original": lambda quarantine, position: quarantine.original(position),
    "drop": lambda quarantine, position: quarantine.drop([position]),
    "replay": lambda quarantine, position: quarantine.replay(),
}


def test_each_call_of_a_consumer_and_of_a_quarantine_is_tried() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(Consumer) == set(OF_CONSUMER)
    assert public(Quarantine) - {"path"} == set(OF_QUARANTINE)


@pytest.mark.parametrize("there", ["another table", "nothing"])
def test_consumers_and_quarantines_of_the_table_that_was_there_touch_nothing_of_the_new_one(
    tmp_path: Path, there: str
) -> None:
    """`drop` of a consumer and of rows set aside did what was asked to the new table's, without a word."""
    old, consumer, quarantine = made_with_consumer_and_quarantine(tmp_path / "t")
    cursor, [position] = old.cursor, quarantine.rows()["position"].to_pylist()
    shutil.rmtree(tmp_path / "t")
    shutil.rmtree(quarantine.path)
    expected: type[hoodoo.HoodooError] = hoodoo.TableNotFound
    if there == "another table":
        expected = hoodoo.errors.TableReplaced
        made_with_consumer_and_quarantine(tmp_path / "t")
    before = files_in(tmp_path)
    for of_consumer in OF_CONSUMER.values():
        with pytest.raises(expected):
            of_consumer(consumer, cursor)
    for of_quarantine in OF_QUARANTINE.values():
        with pytest.raises(expected):
            of_quarantine(quarantine, position)
    assert files_in(tmp_path) == before


def test_a_worker_takes_up_the_table_that_is_there_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It logged TableReplaced for ever, and the new table was served by nobody."""
    old = make(tmp_path / "t", 3)
    worker = hoodoo.Worker([old], once=True)
    shutil.rmtree(tmp_path / "t")
    new = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
    for turn in range(6):
        new.upsert(rows(0, 1, v=f"y{turn}"))
    assert new.maintenance.lag().log_files_max == 5
    assert worker.run().failed == ()
    assert new.maintenance.lag().log_files_max == 0
    assert hoodoo.open(tmp_path / "t").verify().problems == []
    assert [record for record in caplog.records if "table_replaced" in record.getMessage()]


def test_a_worker_of_a_table_that_is_replaced_while_it_runs_goes_on_with_the_new_one(tmp_path: Path) -> None:
    worker = hoodoo.Worker([make(tmp_path / "t", 2)], poll_seconds=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_for(lambda: worker.loops[0].seen, "first round")
        os.rename(tmp_path / "t", tmp_path / "old")
        wait_for(lambda: worker.loops[0].has_failing_work, "a round without a table")
        assert not (tmp_path / "t").exists()
        new = hoodoo.create(tmp_path / "t", SCHEMA, key="id", order_by="ts")
        for turn in range(6):
            new.upsert(rows(0, 1, v=f"y{turn}"))
        wait_for(lambda: new.maintenance.lag().log_files_max == 0, "compaction of the new table")
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
    assert not worker.loops[0].has_failing_work


@pytest.mark.parametrize("how", ["dropped", "renamed"])
def test_a_worker_makes_no_folder_where_a_table_was(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeat made `.hoodie/.hoodoo/heartbeats` again, on which a later create() or a tool fell."""
    monkeypatch.setattr("hoodoo.compactor.service_loop.BEAT_S", 0.02)
    tried: list[bool] = []
    beat = heartbeats.beat

    def beat_and_tell(*arguments: Any) -> None:
        gone = not (tmp_path / "t").exists()
        try:
            beat(*arguments)
        finally:
            tried.append(gone)

    monkeypatch.setattr(heartbeats, "beat", beat_and_tell)
    worker = hoodoo.Worker([make(tmp_path / "t", 2)], poll_seconds=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_for(lambda: worker.loops[0].seen, "first round")
        wait_for(lambda: list((tmp_path / "t" / HEARTBEATS).glob("worker-*")), "heartbeat")
        os.rename(tmp_path / "t", tmp_path / "elsewhere")
        if how == "dropped":
            shutil.rmtree(tmp_path / "elsewhere")
        wait_for(lambda: worker.loops[0].has_failing_work, "a round without a table")
        wait_for(lambda: sum(tried) >= 3, "three beats without a table")
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
    assert not (tmp_path / "t").exists()


def test_a_table_that_another_engine_put_in_its_place_is_another_one(tmp_path: Path) -> None:
    """Spark's overwrite makes properties without an id of ours."""
    old = make(tmp_path / "t")
    text = (tmp_path / "t" / PROPERTIES).read_text()
    (tmp_path / "t" / PROPERTIES).write_text(
        "".join(line for line in text.splitlines(True) if config.TABLE_ID not in line)
    )
    with pytest.raises(hoodoo.errors.TableReplaced):
        old.upsert(rows(7))


def test_a_change_of_options_keeps_the_id_and_what_a_newer_release_wrote(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    with (tmp_path / "t" / PROPERTIES).open("a") as file:
        file.write("hoodoo.of_a_newer_release=5\n")
    table.set_options(clean_every=3, retain_commits=4)
    table.set_options(clean_every=20)  # its default, which is not kept
    values = hoodie_properties.read_properties(table.handle.store)
    ours = {name: value for name, value in values.items() if name.startswith("hoodoo.")}
    assert ours == {
        config.TABLE_ID: table.cursor.table,
        "hoodoo.of_a_newer_release": "5",
        "hoodoo.retain_commits": "4",
        "hoodoo.compact_after_logs": "none",
    }
    assert table.upsert(rows(5)).inserted == 1


def test_a_creation_that_was_interrupted_goes_on_under_its_id(tmp_path: Path) -> None:
    table = make(tmp_path / "t", 0)
    found = hoodie_properties.load(table.handle.store).table_id
    (tmp_path / "t" / slot_key(1)).unlink()
    shutil.rmtree(tmp_path / "t" / ".hoodie" / "timeline")
    create_table.create_table(
        table.handle.store,
        hoodie_properties.create_properties(
            "t", SCHEMA, ("id",), (), ("ts",), "merge_on_read", Options(compact_after_logs=None)
        ),
        SYSTEM,
    )
    assert hoodoo.open(tmp_path / "t").cursor.table == found
    assert table.upsert(rows(5)).inserted == 1
