"""A table that follows another one has its rows, whatever is done to that one."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tiers import sized

import hoodoo
from hoodoo.errors import ColumnError, OptionError, SourceLost
from hoodoo.format.names import ms_of_instant
from hoodoo.sources import Limits, TableChanges

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("driver", pa.string()), ("ts", pa.int64())])
KINDS = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])


def make(path: Path, kind: str = "merge_on_read", **how: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        type=kind,
        **{"key": "id", "order_by": "ts", "compact_after_logs": None, "clean_every": None, **how},
    )


def row(number: int, ts: int, city: str = "x", driver: str = "d") -> dict[str, Any]:
    return {"id": number, "city": city, "driver": driver, "ts": ts}


def content(table: hoodoo.Table) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().select(SCHEMA.names).to_pylist()))


@pytest.mark.both
@KINDS
@pytest.mark.parametrize("seed", range(sized(2, 4)))
def test_a_table_that_follows_has_the_rows_of_the_other_one_after_each_run(
    tmp_path: Path, kind: str, seed: int
) -> None:
    """Partitioned otherwise, and read in batches of any size, while services work on both."""
    rng = random.Random(seed)
    origin = make(tmp_path / "origin", kind, partition_by="city")
    copy = make(tmp_path / "copy", rng.choice(["merge_on_read", "copy_on_write"]), partition_by="driver")
    for step in range(25):
        for _ in range(rng.choice([0, 1, 3])):
            what = rng.choices(["upsert", "delete", "compact", "overwrite", "clean", "restore"], [9, 3, 2, 1, 1, 1])[0]
            ids = [rng.randrange(10) for _ in range(4)]
            if what == "upsert":
                origin.upsert([row(number, 10 * step, "xy"[number % 2], rng.choice("def")) for number in ids])
            elif what == "delete":
                origin.delete([{"id": number, "city": "xy"[number % 2]} for number in ids])
            elif what == "compact":
                origin.compact()
            elif what == "overwrite":
                origin.insert_overwrite([row(2, 10 * step, "x", "o")])
            elif what == "clean":
                origin.maintenance.clean(retain_hours=0, retain_commits=30)
            else:
                origin.savepoints.create(f"s{step}")
                origin.upsert([row(1, 10 * step, "y", "s")])
                origin.restore(f"s{step}")
        source = TableChanges(origin, moves=["driver"])
        hoodoo.ingest(source, copy, name="copy", max_rows=rng.choice([1, 5, 1000])).run()
        assert content(copy) == content(origin)
        if rng.random() < 0.2:
            copy.compact()
    assert TableChanges(origin).lag(copy.inspect.application("copy").position).waiting == 0


def test_without_moves_a_row_that_changed_its_partition_is_in_both(tmp_path: Path) -> None:
    """A key identifies a row within its partition; a source cannot know by what others partition."""
    origin, copy = make(tmp_path / "o"), make(tmp_path / "c", partition_by="driver")
    origin.upsert([row(1, 1, driver="d")])
    hoodoo.ingest(TableChanges(origin), copy).run()
    origin.upsert([row(1, 2, driver="e")])
    hoodoo.ingest(TableChanges(origin), copy).run()
    assert copy.scan().count() == 2


def test_batches_are_whole_commits_and_services_make_none(tmp_path: Path) -> None:
    origin, copy = make(tmp_path / "o"), make(tmp_path / "c")
    for ts in range(6):
        origin.upsert([row(number, ts) for number in range(3)])
    report = hoodoo.ingest(TableChanges(origin), copy, max_rows=6).run()
    assert report.batches == 3
    origin.compact()
    origin.maintenance.clean(retain_hours=0, retain_commits=1)
    source = TableChanges(origin)
    assert source.plan(report.position, Limits()) is None and hoodoo.ingest(source, copy).run().batches == 0
    origin.upsert([row(7, 9)])
    assert source.lag(report.position).waiting == 1 and hoodoo.ingest(source, copy).run().rows == 1


def test_columns_that_the_follower_does_not_have_are_left_out_or_added(tmp_path: Path) -> None:
    origin = make(tmp_path / "o")
    origin.upsert([row(1, 1)])
    copy = hoodoo.create(tmp_path / "c", pa.schema([("id", pa.int64()), ("ts", pa.int64())]), key="id", order_by="ts")
    assert hoodoo.ingest(TableChanges(origin), copy).run().unknown == ("city", "driver")
    hoodoo.ingest(TableChanges(origin), copy, name="again", new_columns="add").run()
    assert copy.scan(["city"]).to_arrow()["city"].to_pylist() == ["x"]


def test_a_transform_sees_deletes_as_the_rows_that_they_were(tmp_path: Path) -> None:
    origin = make(tmp_path / "o")
    copy = hoodoo.create(tmp_path / "c", pa.schema([("who", pa.string()), ("ts", pa.int64())]), key="who")

    def renamed(rows: pa.Table) -> pa.Table:
        return rows.select(["driver", "ts", "_hoodie_is_deleted"]).rename_columns(["who", "ts", "_hoodie_is_deleted"])

    origin.upsert([row(1, 1, driver="a"), row(2, 1, driver="b")])
    hoodoo.ingest(TableChanges(origin), copy, transform=renamed).run()
    origin.delete([{"id": 1}])
    hoodoo.ingest(TableChanges(origin), copy, transform=renamed).run()
    assert copy.scan().to_arrow()["who"].to_pylist() == ["b"]


def test_what_was_cleaned_away_before_it_was_read_is_lost_unless_it_is_held(tmp_path: Path) -> None:
    origin = make(tmp_path / "o")
    plain, held = make(tmp_path / "plain"), make(tmp_path / "held")
    origin.upsert([row(1, 1)])
    hoodoo.ingest(TableChanges(origin), plain).run()
    hoodoo.ingest(TableChanges(origin, hold="held"), held).run()
    hoodoo.ingest(TableChanges(origin, hold="held"), held).run()  # it tells what was committed by the run before
    for ts in range(2, 6):
        origin.upsert([row(1, ts)])
        origin.compact()
    origin.maintenance.clean(retain_hours=0, retain_commits=1)
    hoodoo.ingest(TableChanges(origin, hold="held"), held).run()
    assert content(held) == content(origin)
    origin.consumer("held").drop()
    origin.maintenance.clean(retain_hours=0, retain_commits=1)
    with pytest.raises(SourceLost, match="no longer has all unread changes"):
        hoodoo.ingest(TableChanges(origin), plain).run()
    hoodoo.ingest(TableChanges(origin), plain, name="anew").run()
    assert content(plain) == content(origin)


def test_a_source_table_that_was_renamed_is_noticed(tmp_path: Path) -> None:
    """A new job began under the new path, and rows that were deleted in the meantime stayed for ever."""
    origin, copy = make(tmp_path / "o"), make(tmp_path / "c")
    origin.upsert([row(1, 1), row(2, 1)])
    first = hoodoo.ingest(TableChanges(origin), copy)
    first.run()
    (tmp_path / "o").rename(tmp_path / "moved")
    moved = hoodoo.open(tmp_path / "moved")
    moved.delete([row(2, 2)])
    with pytest.raises(OptionError, match=re.escape(f"pass name='{first.name}'")):
        hoodoo.ingest(TableChanges(moved), copy)
    hoodoo.ingest(TableChanges(moved), copy, name=first.name).run()
    assert content(copy) == content(moved)
    hoodoo.ingest(TableChanges(moved), copy, name="again").run()
    assert content(copy) == content(moved)


def test_another_table_at_the_path_is_lost(tmp_path: Path) -> None:
    origin, copy = make(tmp_path / "o"), make(tmp_path / "c")
    origin.upsert([row(1, 1)])
    hoodoo.ingest(TableChanges(origin), copy, name="job").run()
    other = make(tmp_path / "other")
    other.upsert([row(2, 1)])
    with pytest.raises(SourceLost, match="Another table"):
        hoodoo.ingest(TableChanges(other), copy, name="job").run()


@pytest.mark.parametrize(
    "position",
    ["{}", "[]", "x", '{"source":"files","upto":1,"seen":{}}', '{"source":"table","table":"t","slot":-1}']
    + ['{"source":"table","table":"t","slot":"1"}', '{"source":"table","table":"t"}'],
)
def test_a_position_of_another_source_is_refused(tmp_path: Path, position: str) -> None:
    with pytest.raises(SourceLost, match="another source"):
        TableChanges(make(tmp_path / "o")).plan(position, Limits())


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Option table is invalid"):
        TableChanges("lake/trips")  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="does not have column 'dirver'"):
        TableChanges(make(tmp_path / "o"), moves=["dirver"])


def test_hudis_streamer_is_told_when_the_newest_commit_that_was_read_completed(tmp_path: Path) -> None:
    origin, copy = make(tmp_path / "origin"), make(tmp_path / "copy")
    origin.upsert([row(1, 1)])
    source = TableChanges(origin)
    report = hoodoo.ingest(source, copy).run()
    [newest] = origin.history(1)
    said = copy.handle.look().view.streamed.text
    assert said == source.to_hudi(report.position) and ms_of_instant(said) / 1000 == newest.completed.timestamp()
    assert source.to_hudi("") == ""


def test_a_table_does_not_follow_itself_by_any_spelling_of_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with `once` never ended: each commit was new to the next look."""
    (tmp_path / "lake").mkdir()
    origin = make(tmp_path / "lake" / "origin")
    origin.upsert([row(1, 1)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pond").symlink_to(tmp_path / "lake")
    for path in (origin.path, "lake/../lake/origin/", "pond/origin"):
        with pytest.raises(OptionError, match="cannot ingest its own changes") as refused:
            hoodoo.ingest(TableChanges(hoodoo.open(path)), origin)
        assert refused.value.details["option"] == "source"
    shutil.copytree(tmp_path / "lake" / "origin", tmp_path / "copy")
    assert hoodoo.ingest(TableChanges(origin), hoodoo.open("copy")).run().rows == 1
