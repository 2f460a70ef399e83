"""A process that goes on for long keeps the index entries that are used, and not all that there ever were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.hashing import hash64
from hoodoo.index.bloom import entry
from hoodoo.index.bloom.entry import IndexEntryReader, encode, index_cache_of_store
from hoodoo.storage.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path))
    for name in ("old", "used"):
        store.create(name, encode(hash64(pa.array([f"{name} {number}" for number in range(9)]))))
    return store


def test_a_job_that_rewrites_a_file_with_each_commit_forgets_its_old_entries(tmp_path: Path) -> None:
    """They were mapped for ever: a job of a day had thousands of them in memory."""
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id", clean_every=None)
    for number in range(60):
        table.upsert([{"id": number}])
    kept = index_cache_of_store(table.handle.store)
    assert 0 < len(kept.fronts) < 20 and 0 < len(kept.arrays) < 40
    assert table.get(list(range(60))).num_rows == 60


def test_an_entry_that_is_used_is_kept_and_one_that_is_not_is_read_again(store: LocalStore) -> None:
    cache = index_cache_of_store(store)
    reader = IndexEntryReader(store, cache)
    old, used = reader.hashes("old"), reader.hashes("used")
    for _ in range(100):
        reader.begin_lookup()
        assert reader.hashes("used") is used
    assert len(cache.fronts) == 1
    again = reader.hashes("old")
    assert again is not old and again.tolist() == old.tolist()


def test_entries_that_take_too_much_memory_are_forgotten_those_not_used_first(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_BYTES_KEPT", 2 * 9 * 8)
    store.create("third", encode(hash64(pa.array([f"third {number}" for number in range(9)]))))
    cache = index_cache_of_store(store)
    reader = IndexEntryReader(store, cache)
    old, used = reader.hashes("old"), reader.hashes("used")
    assert cache.arrays.held == old.nbytes + used.nbytes
    third = reader.hashes("third")
    assert reader.hashes("third") is third and cache.arrays.held <= old.nbytes + used.nbytes
    assert reader.hashes("old") is not old
    for _ in range(100):
        reader.begin_lookup()
    assert (len(cache.arrays), cache.arrays.held) == (0, 0)
