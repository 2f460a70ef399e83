"""Commits that say how far an application has read its source: each position follows the one before, exactly once."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from undone_commits import undone

import hoodoo
from hoodoo.format.timeline import avro
from hoodoo.timeline.slots.slot import decode_commit_file, encode_commit_file
from hoodoo.timeline.views import checkpoint_rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None, compact_after_logs=None)


def row(number: int, v: int = 0) -> list[dict[str, int]]:
    return [{"id": number, "v": v}]


def ids(table: hoodoo.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_an_application_that_committed_nothing_has_no_number_and_no_position(table: hoodoo.Table) -> None:
    found = table.inspect.application("orders")
    assert (found.name, found.version, found.position) == ("orders", -1, "")


def test_a_position_is_stored_with_the_rows_and_told(table: hoodoo.Table) -> None:
    for number, position in enumerate(["a:1", "a:2"]):
        result = table.upsert(row(number), transaction=table.inspect.application("orders").next(position))
        assert not result.skipped
        found = hoodoo.open(table.path).inspect.application("orders")
        assert (found.version, found.position) == (number, position)
    assert [(one.application, one.version, one.position) for one in table.history(2)] == [
        ("orders", 1, "a:2"),
        ("orders", 0, "a:1"),
    ]


def test_a_position_may_be_given_as_the_third_value(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    table.insert(row(2), transaction=("orders", 1, "a:2"))
    table.delete([1], transaction=("orders", 2, "a:3"))
    found = table.inspect.application("orders")
    assert (found.version, found.position) == (2, "a:3")
    assert ids(table) == [2]


def test_who_commits_the_same_position_again_is_skipped(table: hoodoo.Table) -> None:
    given = table.inspect.application("orders").next("a:1")
    table.upsert(row(1), transaction=given)
    assert table.upsert(row(2), transaction=given).skipped
    assert table.upsert(row(2), transaction=("orders", 0, "a:1")).skipped
    assert ids(table) == [1]


def test_of_two_that_read_other_ranges_the_second_is_told(table: hoodoo.Table) -> None:
    """Each has read from the same position on, and another number of rows: the second's rows would come twice."""
    mine, other = table.inspect.application("orders").next("a:5"), table.inspect.application("orders").next("a:7")
    table.upsert(row(1), transaction=mine)
    with pytest.raises(
        hoodoo.CommitConflict, match="Another process of application 'orders' committed first"
    ) as caught:
        table.upsert(row(2), transaction=other)
    assert caught.value.details["newest"] == 0 and caught.value.details["position"] == "a:5"
    assert ids(table) == [1]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_number_may_not_be_left_out(table: hoodoo.Table) -> None:
    for number in (1, 7):
        with pytest.raises(hoodoo.CommitConflict, match="expected version 0"):
            table.upsert(row(1), transaction=("orders", number, "a:1"))
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    with pytest.raises(hoodoo.CommitConflict, match="expected version 1"):
        table.upsert(row(2), transaction=("orders", 2, "a:3"))
    assert ids(table) == [1]


def test_a_position_that_went_elsewhere_under_the_same_number_is_not_gone_on_from(table: hoodoo.Table) -> None:
    """As where somebody took commits back and committed others."""
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    stale = table.inspect.application("orders")
    moved = type(stale)(stale.name, stale.version, "a:0").next("a:2")
    with pytest.raises(hoodoo.CommitConflict, match="the stored position is 'a:1'"):
        table.upsert(row(2), transaction=moved)


def test_a_commit_without_rows_moves_the_position(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    table.upsert(pa.Table.from_pylist([], SCHEMA), transaction=table.inspect.application("orders").next("a:9"))
    assert table.inspect.application("orders").position == "a:9"
    assert ids(table) == [1]


def test_applications_have_positions_of_their_own_and_numbers_without_one_stay_as_they_are(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    table.upsert(row(2), transaction=("plain", 41))
    table.upsert(row(3), transaction=("plain", 99))
    assert table.upsert(row(4), transaction=("plain", 50)).skipped
    assert table.inspect.application("plain").position == "" and table.inspect.application("plain").version == 99
    assert table.inspect.application("orders").position == "a:1"


def test_positions_outlive_checkpoints_of_the_view_cleans_and_archives(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", checkpoint_every=2)
    for number in range(9):
        table.upsert(row(number % 3, number), transaction=table.inspect.application("orders").next(f"a:{number}"))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.archive(older_than_hours=0, keep_instants=1)
    again = hoodoo.open(table.path)
    assert (again.inspect.application("orders").version, again.inspect.application("orders").position) == (8, "a:8")
    again.upsert(row(9), transaction=again.inspect.application("orders").next("a:9"))
    assert again.inspect.application("orders").position == "a:9"


def test_a_restore_leaves_positions_where_they_are(table: hoodoo.Table) -> None:
    """What was taken back is not read again by itself."""
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    before = table.cursor
    table.upsert(row(2), transaction=("orders", 1, "a:2"))
    table.restore(before)
    assert ids(table) == [1]
    assert table.inspect.application("orders").position == "a:2"


def test_a_slot_with_a_position_is_refused_by_who_does_not_know_positions(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    table.upsert(row(2))
    history = table.handle.history
    versions = [json.loads(encode_commit_file(history.slot(seq)))["v"] for seq in (2, 3)]
    assert versions[0] == 4 and versions[1] < 4
    assert decode_commit_file(encode_commit_file(history.slot(2)), "slot").reached == "a:1"


def test_a_view_without_positions_is_written_as_before(table: hoodoo.Table) -> None:
    """So an earlier release reads its checkpoints."""
    table.upsert(row(1), transaction=("plain", 3))
    assert "reached" not in checkpoint_rows.state_of(table.handle.look().view)
    table.upsert(row(2), transaction=("orders", 0, "a:1"))
    assert checkpoint_rows.state_of(table.handle.look().view)["reached"] == {"orders": "a:1"}


def test_the_instant_says_what_the_position_is(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    files = (Path(table.path) / ".hoodie/timeline").glob("*_*.deltacommit")
    record = avro.decode_timeline_file(max(files, key=lambda file: file.name).read_bytes())
    assert json.loads(record["extraMetadata"]["hoodoo.ingest"]) == {"app": "orders", "n": 0, "position": "a:1"}


@pytest.mark.parametrize(
    "position", ["", 7, None, {"offset": 1}, b"a:1", "\ud800", "x" * (64 * 1024 + 1), "ü" * (32 * 1024 + 1)]
)
def test_a_position_is_a_text_of_at_most_64_kib(table: hoodoo.Table, position: Any) -> None:
    for given in (lambda: ("orders", 0, position), lambda: table.inspect.application("orders").next(position)):
        with pytest.raises(hoodoo.OptionError, match="Position in a transaction"):
            table.upsert(row(1), transaction=given())
    assert ids(table) == []


def test_a_name_of_an_application_is_a_text(table: hoodoo.Table) -> None:
    for name in ("", None, 7, "x" * 1001):
        with pytest.raises(hoodoo.OptionError, match="1 to 1,000 characters"):
            table.inspect.application(name)  # type: ignore[arg-type]


def test_an_undo_by_another_engine_takes_the_position_back(tmp_path: Path) -> None:
    """Its rows are gone, so they have to be read again."""
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key="id", type="copy_on_write", clean_every=None)
    table.upsert(row(1), transaction=("orders", 0, "a:1"))
    undone(path, lambda table: table.upsert(row(2), transaction=("orders", 1, "a:2")))
    table = hoodoo.open(path)
    table.upsert(row(5))
    found = table.inspect.application("orders")
    assert (found.version, found.position) == (0, "a:1")
    table.upsert(row(6), transaction=found.next("a:3"))
    assert table.inspect.application("orders").position == "a:3"
    assert ids(table) == [1, 5, 6]


def lost(table: hoodoo.Table) -> hoodoo.Table:
    """The table, whose newest slot is gone."""
    max((Path(table.path) / ".hoodie/.hoodoo/commits").iterdir()).unlink()
    return hoodoo.open(table.path)


def test_a_lost_newest_slot_that_is_made_again_has_its_application_number_and_position(table: hoodoo.Table) -> None:
    """Without them the same rows came twice."""
    table.upsert(row(1), transaction=table.inspect.application("orders").next("a:1", "orders,0:1"))
    given = table.inspect.application("orders").next("a:2", "orders,0:2")
    table.upsert(row(2), transaction=given)
    table = lost(table)
    assert table.inspect.application("orders").position == "a:2"  # before anybody made it again
    assert table.upsert(row(3), transaction=given).skipped
    table.upsert(row(4))
    found = hoodoo.open(table.path).inspect.application("orders")
    assert (found.version, found.position) == (1, "a:2")
    assert table.handle.look().view.streamed == ("orders,0:2", "orders", "orders")
    assert ids(table) == [1, 2, 4]


def test_a_lost_newest_slot_without_an_application_is_nobodys_commit_again(table: hoodoo.Table) -> None:
    """It repeated a place, as a commit of Apache Hudi's streamer says one."""
    table.upsert(row(1), transaction=table.inspect.application("orders").next("a:1", "orders,0:1"))
    table.upsert(row(2))
    table = lost(table)
    table.upsert(row(3), transaction=table.inspect.application("orders").next("a:2", "orders,0:2"))
    assert table.inspect.application("hudi-streamer").version == -1


def test_a_table_that_lost_all_slots_knows_its_positions_once_it_is_adopted(table: hoodoo.Table) -> None:
    table.upsert(row(1), transaction=table.inspect.application("orders").next("a:1", "orders,0:1"))
    table.upsert(row(2), transaction=table.inspect.application("clicks").next("b:1", "clicks,0:1"))
    shutil.rmtree(Path(table.path) / ".hoodie/.hoodoo")
    table = hoodoo.open(table.path)
    assert (table.inspect.application("orders").position, table.inspect.application("clicks").position) == (
        "a:1",
        "b:1",
    )
    table.delete([7])
    assert table.handle.look().view.streamed == ("orders,0:1", "orders", "orders")
