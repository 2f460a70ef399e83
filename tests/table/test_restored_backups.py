"""Positions that were stored before a table was restored from a backup name slots that the table no longer has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hoodoo
from hoodoo.readers.progress import StreamPosition

READS: dict[str, Callable[[hoodoo.Table, Any], Any]] = {
    "changes": lambda table, cursor: table.changes(since=cursor),
    "incremental": lambda table, cursor: table.incremental(since=cursor),
    "scan": lambda table, cursor: table.scan(as_of=cursor),
    "follow": lambda table, cursor: next(iter(table.follow(since=cursor, timeout_seconds=0))),
    "consumer": lambda table, cursor: table.consumer("new", cursor),
    "commit of a consumer": lambda table, cursor: table.consumer("job").commit(cursor),
    "restore": lambda table, cursor: table.restore(cursor),
}


def restored(path: Path, commits: int) -> tuple[hoodoo.Table, list[hoodoo.Cursor], list[str]]:
    """A table that got `commits` commits after it was restored, and positions of commits that the restore removed."""
    table = hoodoo.create(path, "id bigint, v int", key="id", clean_every=None)
    table.upsert([{"id": 1, "v": 1}])
    table.consumer("job")
    shutil.copytree(path, f"{path}-copy")
    lost = [table.upsert([{"id": number, "v": 2}]).cursor for number in (2, 3)]
    table.savepoints.create("end")
    commits_lost = [*(one.cursor for one in table.history()[:2]), table.savepoints.list()["end"]]
    shutil.rmtree(path)
    shutil.copytree(f"{path}-copy", path)
    table = hoodoo.open(path)
    for number in range(commits):
        table.upsert([{"id": 10 + number, "v": 9}])
    return table, lost, commits_lost


@pytest.mark.parametrize("commits", [1, 3])
def test_a_cursor_from_before_a_restore_is_refused_by_every_read(tmp_path: Path, commits: int) -> None:
    table, lost, listed = restored(tmp_path / "t", commits)
    for cursor in (*lost, str(lost[0]), *listed):
        for name, read in READS.items():
            with pytest.raises(hoodoo.PositionError, match="restored from a backup"):
                read(table, cursor)
                pytest.fail(name)
    assert table.scan(as_of=table.history()[0].cursor).count() == 1 + commits


def test_a_cursor_of_a_former_release_has_no_digest_and_is_read(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, v int", key="id")
    first = table.upsert([{"id": 1, "v": 1}]).cursor
    table.upsert([{"id": 2, "v": 1}])
    old = f"hoodoo:{first.table}:{first.seq}"
    assert first.digest and str(first) == f"{old}:{first.digest}" and first == hoodoo.Cursor(first.table, first.seq)
    assert table.changes(since=old).to_arrow().num_rows == table.changes(since=str(first)).to_arrow().num_rows == 1


def test_a_consumer_stores_which_slot_it_has_read(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, v int", key="id")
    table.upsert([{"id": 1, "v": 1}])
    reader = table.consumer("job", table.cursor)
    assert reader.position.digest == table.cursor.digest
    reader.commit(table.upsert([{"id": 2, "v": 1}]).cursor)
    assert str(reader.position) == str(table.cursor)


def test_a_stream_offset_stores_which_slot_it_has_read_and_reads_offsets_of_former_releases() -> None:
    at = hoodoo.Cursor("0" * 32, 7, "a" * 16)
    stored = StreamPosition(7).to_json(at.table, at.digest)
    assert stored == {"table": at.table, "slot": 7, "digest": at.digest}
    assert StreamPosition.from_json(stored, at.table).digest == at.digest
    assert StreamPosition.from_json({"table": at.table, "slot": 7}, at.table) == StreamPosition(7)
    with pytest.raises(hoodoo.PositionError, match="hoodoo did not write"):
        StreamPosition.from_json({**stored, "digest": 5}, at.table)


def test_every_cursor_that_a_table_gives_has_the_digest_of_its_slot(tmp_path: Path) -> None:
    """A savepoint's cursor had none, so that it read other rows after a restore."""
    table = hoodoo.create(tmp_path / "t", "id bigint, v int", key="id")
    table.upsert([{"id": 1, "v": 1}])
    table.consumer("job").commit(table.cursor)
    table.alter.add_column("w", "int")
    table.savepoints.create("end")
    given = {
        "newest": table.cursor,
        "savepoints": table.savepoints.list()["end"],
        "consumer": table.consumer("job").position,
        "consumers": table.consumers()[0].position,
        "schemas": table.inspect.schemas()[-1].cursor,
    }
    assert {name: bool(cursor.digest) for name, cursor in given.items()} == dict.fromkeys(given, True)


@pytest.mark.parametrize("name", ["30d", "30 days ago", "2026-01-31", "2026-01-31 12:00:00", "1.5 h"])
def test_a_savepoint_is_never_named_like_a_time_or_an_age(tmp_path: Path, name: str) -> None:
    """From then on the documented position meant the savepoint, for every reader."""
    table = hoodoo.create(tmp_path / "t", "id bigint, v int", key="id")
    table.upsert([{"id": 1, "v": 1}])
    with pytest.raises(hoodoo.OptionError, match="Choose another name"):
        table.savepoints.create(name)
    assert table.savepoints.list() == {}
    for fine in ("30d-old", "2026-01-31 nightly", "2026-13-45", "month end"):
        table.upsert([{"id": 1, "v": 2}])
        table.savepoints.create(fine)
        assert table.scan(as_of=fine).count() == 1
