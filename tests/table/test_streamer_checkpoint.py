"""The place of Apache Hudi's streamer: it finds ours in each of our commits, and we find and respect its own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from slots import make_slot
from streamer_commits import instants, places, said_beside, streamer_commits
from undone_commits import undone

import hoodoo
from hoodoo.errors import Overtaken
from hoodoo.timeline.hudi.commit_metadata import PLACE, REACHED
from hoodoo.timeline.slots import slot as slots
from hoodoo.timeline.slots.slot import decode_commit_file, encode_commit_file
from hoodoo.timeline.views import checkpoint_rows
from hoodoo.timeline.views.view import View

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None, compact_after_logs=None)


def row(number: int) -> list[dict[str, int]]:
    return [{"id": number, "v": number}]


def take(table: hoodoo.Table, position: str, place: str = "", name: str = "orders", **how: Any) -> None:
    """A commit of an application, of one row."""
    table.upsert(row(len(position)), transaction=table.inspect.application(name).next(position, place, **how))


def found(table: hoodoo.Table, name: str = "hudi-streamer") -> tuple[int, str]:
    at = hoodoo.open(table.path).inspect.application(name)
    return at.version, at.position


def test_each_commit_repeats_the_newest_place_until_its_application_moves_it(table: hoodoo.Table) -> None:
    path = Path(table.path)
    table.upsert(row(1))
    take(table, "a:1", "orders,0:1")
    table.upsert(row(2))
    table.upsert(row(3), transaction=("plain", 5))
    table.delete([1])
    take(table, "a:2", "orders,0:2")
    take(table, "a:3")  # it does not say
    table.upsert(row(4))
    one, two = "orders,0:1", "orders,0:2"
    assert places(path)[1:] == ["", one, one, one, one, two, two, two]


def test_the_first_application_owns_the_place_and_others_do_not_publish_theirs(table: hoodoo.Table) -> None:
    take(table, "x:1", name="silent")
    take(table, "a:1", "orders,0:1")
    take(table, "b:1", "clicks,0:1", name="clicks")
    take(table, "x:2", "late,0:2", name="silent")
    take(table, "a:2", "orders,0:2")
    one, two = "orders,0:1", "orders,0:2"
    assert places(Path(table.path))[1:] == ["", one, one, one, two]
    assert found(table, "clicks") == (0, "b:1")


def test_a_table_service_says_no_place(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None, compact_after_logs=None)
    take(table, "a:1", "orders,0:1")
    take(table, "a:2", "orders,0:2")
    table.compact()
    [compaction] = instants(tmp_path / "t", "commit")
    assert PLACE not in said_beside(compaction)


def test_a_table_without_a_place_has_the_slots_that_it_had(table: hoodoo.Table) -> None:
    take(table, "a:1")
    table.upsert(row(2))
    view, history = table.handle.look().view, table.handle.history
    assert "streamed" not in checkpoint_rows.state_of(view)
    for seq in range(1, view.seq + 1):
        said = json.loads(encode_commit_file(history.slot(seq)))
        assert "streamed" not in said and "streamed" not in said.get("needs", [])


def test_an_older_release_refuses_a_slot_with_a_place_by_name(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(table, "a:1", "orders,0:1")
    monkeypatch.setattr(slots, "KNOWN", slots.KNOWN - {"streamed"})
    with pytest.raises(hoodoo.UnsupportedTable, match="newer version of hoodoo and requires the features streamed"):
        hoodoo.open(table.path)


@pytest.mark.parametrize(
    "said", [["t", "o"], ["t", "o", "b", "x"], ["t", "", "b"], ["", "o", "b"], ["t", "o", 7], "tob", {"t": "o"}, 7]
)
def test_a_slot_whose_place_is_none_is_damaged(said: Any) -> None:
    damaged = make_slot(streamed=said)
    with pytest.raises(hoodoo.CorruptTable, match="streamed has the invalid value"):
        decode_commit_file(encode_commit_file(damaged), "slot")


@pytest.mark.parametrize("said", [["t", "o"], ["t", "o", 7], "tob"])
def test_a_checkpoint_whose_place_is_none_is_damaged(said: Any) -> None:
    with pytest.raises(ValueError, match="state is invalid"):
        checkpoint_rows.view_of(checkpoint_rows.state_of(View()) | {"streamed": said}, {}, ())


def test_a_place_outlives_checkpoints_of_the_view_cleans_and_archives(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", checkpoint_every=2)
    take(table, "a:1", "orders,0:1")
    for number in range(9):
        table.upsert(row(number))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.archive(older_than_hours=0, keep_instants=1)
    again = hoodoo.open(table.path)
    take(again, "b:1", "clicks,0:1", name="clicks")
    assert places(tmp_path / "t")[-1] == "orders,0:1"
    take(again, "a:2", "orders,0:2")
    assert places(tmp_path / "t")[-1] == "orders,0:2"


def test_a_restore_leaves_the_place_where_it_is(table: hoodoo.Table) -> None:
    take(table, "a:1", "orders,0:1")
    before = table.cursor
    take(table, "a:22", "orders,0:2")
    table.restore(before)
    assert said_beside(instants(Path(table.path), "replacecommit")[-1])[PLACE] == "orders,0:2"
    table.upsert(row(3))
    assert places(Path(table.path))[-1] == "orders,0:2"


@pytest.mark.parametrize("before", ["orders,0:1", ""])
def test_an_undo_by_another_engine_takes_the_place_back(tmp_path: Path, before: str) -> None:
    path = tmp_path / "t"
    table = hoodoo.create(path, SCHEMA, key="id", type="copy_on_write", clean_every=None)
    take(table, "a:1", before)
    undone(path, lambda table: take(table, "a:22", "orders,0:2"))
    table = hoodoo.open(path)
    table.upsert(row(5))
    assert said_beside(instants(path, "commit")[-1]).get(PLACE, "") == before
    assert found(table, "orders") == (0, "a:1")


# ---- what Hudi's streamer commits


@pytest.mark.parametrize("key", [PLACE, "deltastreamer.checkpoint.key"])
def test_what_hudis_streamer_committed_is_the_position_of_an_application_of_its_own(
    table: hoodoo.Table, key: str
) -> None:
    path = Path(table.path)
    table.upsert(row(1))
    streamer_commits(path, "shop,0:5", key)
    assert found(table) == (0, "shop,0:5")  # nobody has adopted it
    table.upsert(row(2))
    assert found(table) == (0, "shop,0:5") and places(path)[-1] == "shop,0:5"
    streamer_commits(path, "shop,0:9", key)
    table.upsert(row(3))
    assert found(table) == (1, "shop,0:9") and places(path)[-1] == "shop,0:9"
    take(table, "a:1", "orders,0:1")
    assert places(path)[-1] == "shop,0:9"  # it owns the place


def test_a_commit_that_repeats_our_place_is_none_of_hudis_streamer(table: hoodoo.Table) -> None:
    """As other writers of Hudi do that `hoodie.write.meta.key.prefixes` tells to."""
    take(table, "a:1", "orders,0:1")
    streamer_commits(Path(table.path), "orders,0:1")
    take(table, "a:2", "orders,0:2")
    assert found(table) == (-1, "") and places(Path(table.path))[-1] == "orders,0:2"


def test_a_commit_with_an_empty_place_says_nothing(table: hoodoo.Table) -> None:
    take(table, "a:1", "orders,0:1")
    streamer_commits(Path(table.path), "")
    table.upsert(row(2))
    assert found(table) == (-1, "") and places(Path(table.path))[-1] == "orders,0:1"


def test_an_owner_that_hudis_streamer_overtook_stops_until_it_says_that_it_goes_on(table: hoodoo.Table) -> None:
    path = Path(table.path)
    take(table, "a:1", "orders,0:1")
    streamer_commits(path, "orders,0:7")
    for given in (table.inspect.application("orders").next("a:2", "orders,0:2"), ("orders", 1, "a:2")):
        with pytest.raises(
            Overtaken, match=r"already read the source of application 'orders'.*overtake=True"
        ) as caught:
            table.upsert(row(2), transaction=given)
        assert caught.value.details == {"application": "orders", "position": "orders,0:7"}
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    take(table, "b:1", "clicks,0:1", name="clicks")
    table.upsert(row(3))
    assert places(path)[-2:] == ["orders,0:7", "orders,0:7"]  # ours repeat where the streamer is, not where we were
    assert found(table, "orders") == (0, "a:1")
    take(table, "a:7", "orders,0:7", overtake=True)
    take(table, "a:8", "orders,0:8")
    assert places(path)[-1] == "orders,0:8"


def test_an_owner_that_goes_on_without_a_place_is_not_overtaken_any_more(table: hoodoo.Table) -> None:
    take(table, "a:1", "orders,0:1")
    streamer_commits(Path(table.path), "orders,0:7")
    take(table, "a:2", overtake=True)
    take(table, "a:3")
    assert found(table, "orders") == (2, "a:3") and places(Path(table.path))[-1] == "orders,0:7"


def test_what_was_committed_before_the_streamer_came_is_skipped_still(table: hoodoo.Table) -> None:
    given = table.inspect.application("orders").next("a:1", "orders,0:1")
    table.upsert(row(1), transaction=given)
    streamer_commits(Path(table.path), "orders,0:7")
    assert table.upsert(row(1), transaction=given).skipped


def test_being_overtaken_outlives_checkpoints_of_the_view(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", checkpoint_every=1)
    take(table, "a:1", "orders,0:1")
    streamer_commits(tmp_path / "t", "orders,0:7")
    table.upsert(row(3))
    with pytest.raises(Overtaken):
        take(hoodoo.open(table.path), "a:2", "orders,0:2")


def test_a_damaged_word_on_positions_is_an_error_that_names_the_file(table: hoodoo.Table) -> None:
    take(table, "a:1")
    for text in ("{", '{"app":"a","n":-1,"position":"x"}', "[]", '{"app":"","n":1,"position":"x"}'):
        path = Path(table.path)
        streamer_commits(path, text, REACHED)
        with pytest.raises(hoodoo.CorruptTable, match=r"deltacommit has an invalid source position.*hoodoo\.ingest"):
            hoodoo.open(path).scan().to_arrow()
        instants(path)[-1].unlink()


@pytest.mark.parametrize("place", [7, None, b"x", "\ud800", "x" * (64 * 1024 + 1)])
def test_a_place_is_a_text_of_at_most_64_kib(table: hoodoo.Table, place: Any) -> None:
    with pytest.raises(hoodoo.OptionError):
        table.inspect.application("orders").next("a:1", place)
    with pytest.raises(hoodoo.OptionError, match="overtake must be True or False"):
        table.inspect.application("orders").next("a:1", overtake="yes")  # type: ignore[arg-type]
