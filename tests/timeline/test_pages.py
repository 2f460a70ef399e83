"""A view over the pages of a checkpoint is the view, whatever is asked of it and in which order; and only what is asked
for is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from table_machine import Machine
from tiers import sized

import hoodoo
from hoodoo.timeline.layout import CHECKPOINTS
from hoodoo.timeline.views import checkpoint, checkpoint_pages, pages
from hoodoo.timeline.views.pages import PagedPartitions, find_differing_partitions
from hoodoo.timeline.views.totals import count
from hoodoo.timeline.views.view import View

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
OPTIONS: dict[str, Any] = {"compact_after_logs": None, "clean_every": None, "slow_after_logs": None}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PAGED_FROM", 1)
    monkeypatch.setattr(checkpoint_pages, "_PAGE_FILES", 2)
    monkeypatch.setattr(checkpoint_pages, "_PAGE_SUPERSEDED", 2)
    monkeypatch.setattr(pages, "_KEPT", 1)


def rows(parts: str, ts: int, first: int = 0) -> pa.Table:
    ids = list(range(first, first + len(parts)))
    return pa.table({"id": ids, "part": list(parts), "ts": [ts] * len(ids)}, SCHEMA)


def make(path: Path, **options: Any) -> hoodoo.Table:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="part", order_by="ts", **{**OPTIONS, **options})
    table.upsert(rows("abcdefgh", 1))
    return table


def checkpoints(table: hoodoo.Table) -> list[str]:
    return [key for key, _ in table.handle.store.list(CHECKPOINTS)]


def paged(table: hoodoo.Table) -> View:
    """The view of the head, over the checkpoint that is written of it now."""
    view = table.handle.history.head()
    checkpoint.write(table.handle.store, view)
    found = checkpoint.read_checkpoint(table.handle.store, checkpoints(table)[-1])
    assert isinstance(found.partitions, PagedPartitions) and found.seq == view.seq
    return found


def loaded(view: View, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the pages that are decoded from now on."""
    asked: list[int] = []
    assert isinstance(view.partitions, PagedPartitions)
    one = view.partitions.pages
    load = one._load.__call__
    monkeypatch.setattr(type(one._load), "__call__", lambda self, number: asked.append(number) or load(number))
    return asked


@pytest.mark.both
@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_any_sequence_of_operations_on_a_paged_table_gives_the_rows_of_a_dict(tmp_path: Path, kind: str) -> None:
    for seed in range(sized(1, 10)):
        machine = Machine(tmp_path / str(seed), kind, ("a",), ("city", "b"), "ts", seed)
        for _ in range(sized(15, 60)):
            machine.step()
            machine.check()
        view = machine.table.handle.history.head()
        assert isinstance(hoodoo.open(tmp_path / str(seed)).handle.history.head().partitions, PagedPartitions)
        assert view.totals == count(view.partitions).together
        assert machine.table.verify().problems == []


def test_a_paged_view_is_the_view_and_goes_on_as_it_does(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows("abc", 2))
    table.delete_partitions(["d"])
    before, plain = paged(table), table.handle.history.head()
    assert before == plain and before.totals == plain.totals == count(before.partitions).together
    assert [before.totals_of(name) for name in ["part=a", "part=d", "part=z"]] == [
        plain.totals_of(name) for name in ["part=a", "part=d", "part=z"]
    ]
    reopened = hoodoo.open(tmp_path / "t")
    reopened.upsert(rows("azb", 3, first=100))
    reopened.delete_partitions(["e"])
    now, then = reopened.handle.history.head(), table.handle.history.head()
    assert isinstance(now.partitions, PagedPartitions) and now == then
    assert list(now.partitions) != [] and len(now.partitions) == len(list(now.partitions)) == 7
    assert {name for name in now.partitions} == {f"part={name}" for name in "abcfghz"}
    assert "part=e" not in now.partitions and "part=z" in now.partitions and now.partitions.get("part=d") is None
    assert sorted(find_differing_partitions(before.partitions, now.partitions)) == [f"part={name}" for name in "abez"]
    assert now.totals == count(now.partitions).together


def test_only_the_pages_that_are_asked_for_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path / "t")
    paged(table)
    reopened = hoodoo.open(tmp_path / "t")
    asked = loaded(reopened.handle.history.head(), monkeypatch)
    assert reopened.scan(where="part = 'c'").to_arrow()["id"].to_pylist() == [2]
    assert len(set(asked)) == 1
    reopened.upsert(rows("c", 5, first=2))
    assert len(set(asked)) == 1, "an upsert into one partition asks for its page"
    reopened.scan(where="part = 'c' OR part = 'x'").to_arrow()
    assert len(set(asked)) == 1
    assert reopened.scan().count() == 8 and len(set(asked)) == 4


def test_a_page_whose_partitions_did_not_change_is_copied_as_it_is(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = paged(table)
    table.upsert(rows("a", 2))
    reopened = hoodoo.open(tmp_path / "t")
    second = paged(reopened)
    assert isinstance(first.partitions, PagedPartitions) and isinstance(second.partitions, PagedPartitions)
    kept = set(first.partitions.pages.digests) & set(second.partitions.pages.digests)
    assert len(kept) == len(first.partitions.pages.digests) - 1
    assert list(find_differing_partitions(first.partitions, second.partitions)) == ["part=a", "part=b"], (
        "of the page that was made anew"
    )
    changed = [name for name in "abcdefgh" if first.partitions[f"part={name}"] != second.partitions[f"part={name}"]]
    assert changed == ["a"]


def damage(path: Path) -> Iterator[None]:
    """A checkpoint that is gone, and one of which a byte in each place was changed."""
    data = path.read_bytes()
    path.unlink()
    yield
    for place in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        yield
    for size in (0, 3, 40, len(data) // 2):
        path.write_bytes(data[:size])
        yield
    path.write_bytes(data)


def test_a_checkpoint_that_is_damaged_or_gone_changes_no_answer_before_or_after_opening(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    paged(table)
    table.upsert(rows("ab", 2))
    paged(table)
    wanted = sorted(table.scan().to_arrow()["ts"].to_pylist())
    path = tmp_path / "t" / checkpoints(table)[-1]
    open_before = [hoodoo.open(tmp_path / "t") for _ in range(50)]
    for handle, _ in zip(open_before, damage(path), strict=False):
        assert sorted(handle.scan().to_arrow()["ts"].to_pylist()) == wanted, "a handle that was open"
        assert sorted(hoodoo.open(tmp_path / "t").scan().to_arrow()["ts"].to_pylist()) == wanted


def test_a_handle_whose_checkpoint_and_slots_were_archived_reads_on_from_a_newer_one(tmp_path: Path) -> None:
    table = make(tmp_path / "t", checkpoint_every=1000)
    paged(table)
    reader = hoodoo.open(tmp_path / "t")
    for ts in range(2, 5):
        table.upsert(rows("a", ts))
    paged(table)
    old, *_ = checkpoints(table)
    table.handle.store.delete(old)
    for slot in range(1, 3):
        table.handle.store.delete(f".hoodie/.hoodoo/commits/{slot:020d}")
    assert sorted(reader.scan().to_arrow()["ts"].to_pylist()) == [1] * 7 + [4]


def test_verify_names_a_checkpoint_with_a_damaged_page(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    paged(table)
    (key,) = checkpoints(table)
    path = tmp_path / "t" / key
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(bytes(data))
    assert [(found.code, found.file) for found in hoodoo.open(tmp_path / "t").verify().problems] == [
        ("CHECKPOINT", key)
    ]


def test_checkpoints_of_large_tables_are_further_apart() -> None:
    small, large = View(seq=20), View(seq=20)
    object.__setattr__(large, "_counted", count({}))
    assert checkpoint.is_due(small, 0, 20) and not checkpoint.is_due(small, 1, 20)
    many = count({})
    totals = type(many.together)(groups=1_000_000, by_size={20: 1_000_000})
    object.__setattr__(large, "_counted", type(many)(large.partitions, totals, {}))
    assert not checkpoint.is_due(large, 0, 20)
