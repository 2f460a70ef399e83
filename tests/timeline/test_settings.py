"""Options change by a slot. Two handles that changed options at the same time lost each other's."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from slots import make_slot
from tables import ids, make, rows

import hoodoo
from hoodoo.format import properties as java
from hoodoo.timeline.layout import PROPERTIES
from hoodoo.timeline.slots import slot
from hoodoo.timeline.slots.slot import Slot
from hoodoo.timeline.views import checkpoint


def properties(path: Path) -> dict[str, str]:
    return dict(java.parse_properties((path / PROPERTIES).read_bytes()))


def test_two_who_change_options_at_once_lose_nothing(tmp_path: Path) -> None:
    make(tmp_path / "t")
    options = ["clean_every", "checkpoint_every", "retain_commits", "max_retries"]

    def change(name: str) -> None:
        table = hoodoo.open(tmp_path / "t")
        for number in range(21, 31):
            table.set_options(**{name: number})

    threads = [threading.Thread(target=change, args=(name,)) for name in options]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = hoodoo.open(tmp_path / "t")
    assert [getattr(found.options, name) for name in options] == [30] * 4
    assert [properties(tmp_path / "t")[f"hoodoo.{name}"] for name in options] == ["30"] * 4


def test_a_slow_publisher_does_not_put_older_options_back_into_the_properties(tmp_path: Path) -> None:
    """It read the slots, another changed options and wrote them to the file, and it overwrote that file: Hudi saw the
    older options until the next change."""
    slow, quick = make(tmp_path / "t"), hoodoo.open(tmp_path / "t")
    store = slow.handle.store
    put, overtaken = store.put, []

    def late(key: str, *rest: object, **named: object) -> object:
        if key == PROPERTIES and not overtaken:
            overtaken.append(key)
            quick.set_options(retain_commits=4)
        return put(key, *rest, **named)

    store.put = late
    slow.set_options(retain_commits=3, clean_every=7)
    assert overtaken
    found = properties(tmp_path / "t")
    assert (found["hoodoo.retain_commits"], found["hoodoo.clean_every"]) == ("4", "7")


def test_a_handle_that_was_open_before_follows_the_change(tmp_path: Path) -> None:
    old = make(tmp_path / "t")
    hoodoo.open(tmp_path / "t").set_options(retain_commits=3)
    old.upsert(rows(1))
    assert old.options.retain_commits == 3


def test_what_stands_in_the_properties_beside_our_options_stays(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    before = properties(tmp_path / "t")
    path = tmp_path / "t" / PROPERTIES
    path.write_bytes(path.read_bytes() + b"hoodie.of.another.engine=1\nhoodoo.of_a_newer_release=2\n")
    table.set_options(retain_commits=3)
    after = properties(tmp_path / "t")
    wanted = {"hoodoo.retain_commits": "3", "hoodie.of.another.engine": "1", "hoodoo.of_a_newer_release": "2"}
    assert after == before | wanted


def test_an_option_goes_back_to_its_default(tmp_path: Path) -> None:
    table = make(tmp_path / "t", retain_commits=3)
    table.set_options(retain_commits=hoodoo.Options().retain_commits)
    assert "hoodoo.retain_commits" not in properties(tmp_path / "t")
    assert hoodoo.open(tmp_path / "t").options.retain_commits == hoodoo.Options().retain_commits


def test_options_outlive_checkpoints_and_properties_that_were_lost(tmp_path: Path) -> None:
    table = make(tmp_path / "t", checkpoint_every=2)
    original = (tmp_path / "t" / PROPERTIES).read_bytes()
    table.set_options(retain_commits=3)
    for number in range(5):
        table.upsert(rows(number))
    (tmp_path / "t" / PROPERTIES).write_bytes(original)  # as another engine that read them before writes them again
    found = hoodoo.open(tmp_path / "t")
    assert found.options.retain_commits == 3
    assert ids(found) == [0, 1, 2, 3, 4]


def test_what_does_not_go_together_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    head = table.cursor
    with pytest.raises(hoodoo.OptionError):
        table.set_options(partition_ttl_hours=0)
    assert table.cursor == head


# ---- features
def made(**more: object) -> Slot:
    return make_slot(2, **more)


def test_a_slot_that_needs_a_feature_of_a_newer_release_is_refused_by_name() -> None:
    with pytest.raises(hoodoo.UnsupportedTable, match="Upgrade") as problem:
        slot.decode_commit_file(slot.encode_commit_file(made(needs=("settings", "teleport"))), "s")
    assert problem.value.details["features"] == ["teleport"]


def test_a_slot_says_the_newest_version_only_where_it_needs_something() -> None:
    assert slot.strict_json(slot.encode_commit_file(made()), "s")["v"] == 1
    assert slot.strict_json(slot.encode_commit_file(made(needs=("settings",), settings={"a": "b"})), "s")["v"] == 3


def test_a_checkpoint_keeps_what_slots_needed_and_passes_over_names_it_does_not_know(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.set_options(retain_commits=3)
    view = table.handle.timeline.history.head()
    data = checkpoint.encode(view)
    assert checkpoint.decode(data, "c") == view
    assert dict(view.settings) == {"hoodoo.retain_commits": "3"}
    assert checkpoint.decode(rewritten(data, {"color": "red"}), "c") == view
    with pytest.raises(hoodoo.UnsupportedTable, match="teleport"):
        checkpoint.decode(rewritten(data, {"needs": ["settings", "teleport"]}), "c")


def rewritten(data: bytes, more: dict[str, object]) -> bytes:
    """A checkpoint with other names in its state, as a newer release may write it."""
    import json

    import pyarrow.parquet as pq

    from hoodoo.storage.store import digest

    table = pq.read_table(pa.BufferReader(data[:-32]))
    state = json.loads(table.schema.metadata[b"hoodoo.state"]) | more
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({b"hoodoo.state": json.dumps(state).encode()}), sink)
    body = sink.getvalue().to_pybytes()
    return body + digest(body).encode()
