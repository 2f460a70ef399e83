"""The interface of the index against a dictionary of key -> file group.

`index_of` gives the index, so a second kind has to become a parameter of these tests.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from hoodoo.errors import CorruptTable
from hoodoo.format.hashing import hash64
from hoodoo.index import KeyIndex, index_of
from hoodoo.index.key_index import (
    NOWHERE,
    LookupKeys,
    LookupResult,
    StoredIndexEntry,
    base_entry_path,
    deletes_entry_path,
)
from hoodoo.storage.local import LocalStore
from hoodoo.timeline.slots.slot import BASE, LOG, DataFile
from hoodoo.timeline.views.view import AddedFile, FileGroup

PARTITIONS = ("x", "y")
INSTANT = "20260101000000000"
Home = dict[tuple[str, str], str]
"""File id by partition and key."""
KEYS = [f"k{n}" for n in range(24)]


def exact(keys: list[str]) -> np.ndarray:
    return hash64(pa.array(keys, pa.string()))


def narrow(keys: list[str]) -> np.ndarray:
    """Hashes that several keys share."""
    return exact(keys) % np.uint64(7)


def base(entry: StoredIndexEntry) -> DataFile:
    """The base file of an entry."""
    return DataFile("x", "", "g", BASE, 1, "", 1, index=entry.name, order=entry.stored)


def stored(
    index: KeyIndex, file_id: str, keys: list[str], hashes: np.ndarray, before: DataFile | None = None
) -> StoredIndexEntry:
    """The entry of a base file with these keys, which follow those of the file `before`."""
    in_rows = index.keys_of_rows(before)
    in_rows.add(pa.array(keys, pa.string()), hashes)
    return index.store_entry(file_id, INSTANT, ("a", "z"), in_rows)


def file(index: str, partition: str, file_id: str, kind: str) -> AddedFile:
    return AddedFile(0, DataFile(f"{partition}/{file_id}", partition, file_id, kind, 1, "", 1, index=index))


class World:
    """File groups that hold `home`, and whose logs delete the keys in `deleted`."""

    def __init__(self, home: Home, deleted: set[tuple[str, str]], hashed: bool) -> None:
        self.hash = exact if hashed else narrow
        self.index: KeyIndex = index_of(MemoryStore())
        self.groups: dict[str, dict[str, FileGroup]] = {}
        for partition, file_id in sorted({(partition, file_id) for (partition, _), file_id in home.items()}):
            mine = [key for (where, key), one in home.items() if (where, one) == (partition, file_id)]
            name = f"{partition}{file_id}"
            logs = []
            if gone := [key for key in mine if (partition, key) in deleted]:
                entry = self.index.entry_for_deletes(name, INSTANT, self.hash(gone))
                logs = [file("", partition, name, LOG), file(entry, partition, name, LOG)]
            entry = stored(self.index, name, mine, self.hash(mine)).name
            group = FileGroup(partition, name, file(entry, partition, name, BASE), tuple(logs))
            self.groups.setdefault(partition, {})[name] = group

    def located(self, asked: list[tuple[str, str]]) -> LookupResult:
        texts = [key for _, key in asked]
        codes = np.array([PARTITIONS.index(partition) for partition, _ in asked], np.int32)
        keys = LookupKeys.one_lookup_per_key(pa.array(texts, pa.string()), self.hash(texts), PARTITIONS, codes)
        return self.index.locate(self.groups, keys)


where = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(KEYS))
homes = st.dictionaries(where, st.sampled_from(["1", "2", "3"]))


@given(homes, st.sets(where), st.lists(where, unique=True))
def test_each_key_is_located_where_the_dictionary_says_and_unsure_where_a_log_deletes_it(
    home: Home, deleted: set[tuple[str, str]], asked: list[tuple[str, str]]
) -> None:
    found = World(home, deleted, hashed=True).located(asked)
    assert not found.doubtful.any()
    for place, (partition, key) in enumerate(asked):
        number, want = found.group[place], home.get((partition, key))
        assert (None if number == NOWHERE else found.groups[number].file_id) == (want and f"{partition}{want}")
        assert found.unsure[place] == (want is not None and (partition, key) in deleted)


@given(homes, st.lists(where, unique=True))
def test_a_key_is_at_its_home_or_in_doubt_where_hashes_are_shared_and_its_home_is_always_among_the_matches(
    home: Home, asked: list[tuple[str, str]]
) -> None:
    found = World(home, set(), hashed=False).located(asked)
    matched = {(found.groups[place].file_id, row) for place, rows in found.matches for row in rows.tolist()}
    for row, (partition, key) in enumerate(asked):
        if want := home.get((partition, key)):
            assert (f"{partition}{want}", row) in matched
            assert found.doubtful[row] or found.groups[found.group[row]].file_id == f"{partition}{want}"


@given(homes, st.lists(st.sampled_from(KEYS), unique=True))
def test_keys_of_no_known_partition_are_looked_for_in_each(home: Home, texts: list[str]) -> None:
    world = World(home, set(), hashed=True)
    keys = LookupKeys.one_lookup_per_partition(pa.array(texts, pa.string()), exact(texts), PARTITIONS)
    found = world.index.locate(world.groups, keys)
    places = {(found.groups[n].file_id, texts[keys.rows[row]]) for n, rows in found.matches for row in rows}
    assert places == {(f"{where}{one}", key) for (where, key), one in home.items() if key in texts}
    assert len(keys) == len(PARTITIONS) * len(texts)


@given(st.sets(st.sampled_from(KEYS), min_size=1), st.sets(st.sampled_from(KEYS)))
def test_an_entry_that_grew_holds_what_one_made_anew_holds_and_one_that_did_not_is_shared(
    first: set[str], then: set[str]
) -> None:
    index = index_of(MemoryStore())
    old = stored(index, "old", sorted(first), exact(sorted(first)))
    added = sorted(then - first)
    entry = stored(index, "new", added, exact(added), before=base(old))
    grown = entry.name
    assert (grown == old.name) == (not added)
    assert index.key_hashes(grown).tolist() == sorted(exact(sorted(first | then)).tolist())
    assert index.holds(grown, exact(KEYS)).tolist() == [key in first | then for key in KEYS]


def test_a_task_that_is_tried_again_meets_its_entries_and_takes_them() -> None:
    index = index_of(MemoryStore())
    for _ in range(2):
        entry = stored(index, "g", ["a"], exact(["a"]))
        assert entry.name == base_entry_path("g", INSTANT) and entry.stored == entry.order
        assert index.entry_for_deletes("g", INSTANT, exact(["a"])) == deletes_entry_path("g", INSTANT)
    assert index.entry_for_deletes("g", INSTANT, exact(["b"]), version=2) == deletes_entry_path("g", INSTANT, 2)


def test_a_purge_is_told_of_entries_that_spell_its_keys() -> None:
    index = index_of(MemoryStore())
    in_rows = index.keys_of_rows()
    in_rows.add(pa.array(["anna", "mia", "zoe"]))
    entry = index.store_entry("g", INSTANT, ("anna", "zoe"), in_rows).name
    assert index.contains_key_text(entry, {"zoe"}) and index.contains_key_text(entry, {"anna", "x"})
    assert not index.contains_key_text(entry, {"mia"})  # its hash alone is there


def test_a_missing_entry_is_named() -> None:
    index = index_of(MemoryStore())
    with pytest.raises(CorruptTable, match=base_entry_path("g", INSTANT)):
        index.key_hashes(base_entry_path("g", INSTANT))


def test_new_keys_may_go_to_any_file_group() -> None:
    keys = LookupKeys.one_lookup_per_key(pa.array(["k2"]), exact(["k2"]), ["x"], np.zeros(1, np.int32))
    assert index_of(MemoryStore()).required_group(keys) is None


def test_an_index_travels_to_another_process_without_what_it_remembers(tmp_path: Path) -> None:
    index = index_of(LocalStore(tmp_path))
    keys = [f"k{n}" for n in range(10_000)]
    entry = stored(index, "g", keys, exact(keys)).name
    index.key_hashes(entry)
    packed = pickle.dumps(index)
    assert len(packed) < 1000
    assert pickle.loads(packed).key_hashes(entry).tolist() == index.key_hashes(entry).tolist()


def test_an_entry_of_another_attempt_with_another_order_of_rows_tells_no_rows() -> None:
    """Two workers ran one plan; entry of one, base file of the other, in different orders: rows would be strangers'."""
    index = index_of(MemoryStore())
    stored(index, "g", ["a", "b"], exact(["a", "b"]))
    second = stored(index, "g", ["b", "a"], exact(["b", "a"]))
    assert second.stored != second.order
    mine = DataFile("x", "", "g", BASE, 1, "", 2, index=second.name, order=second.order)
    assert index.rows(mine, pa.array(["a"]), exact(["a"])) is None
    assert index.keys_of_rows(mine).before == ""
    assert index.rows(base(second), pa.array(["b", "c", "a"]), exact(["b", "c", "a"])).tolist() == [1, -1, 0]


@given(st.lists(st.tuples(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS))), max_size=6), st.booleans())
def test_rows_follow_any_history_of_keys_that_come_and_go(
    history: list[tuple[set[str], set[str]]], hashed: bool
) -> None:
    """Whether or not keys share hashes: a row is told to the key that lies there and to no other."""
    hash_ = exact if hashed else narrow
    index = index_of(MemoryStore())
    rows, file_ = list[str](), base(stored(index, "first", [], hash_([])))
    for number, (come, go) in enumerate(history):
        in_rows = index.keys_of_rows(file_)
        in_rows.dropped = np.array([n for n, key in enumerate(rows) if key in go], np.int64)
        rows = [key for key in rows if key not in go]
        fresh = sorted(come - set(rows))
        in_rows.add(pa.array(fresh, pa.string()), hash_(fresh))
        rows += fresh
        entry = index.store_entry(f"f{number}", INSTANT, ("", ""), in_rows)
        file_ = base(entry)
        assert entry.order == stored(index, f"anew{number}", rows, hash_(rows)).order
        found = index.rows(file_, pa.array(KEYS), hash_(KEYS))
        assert found is not None and found.tolist() == [rows.index(key) if key in rows else -1 for key in KEYS]
        assert index.key_hashes(file_.index).tolist() == sorted(hash_(rows).tolist())
