"""The bloom index: an entry beside each base file, with a bloom filter and the sorted hashes of its keys.

The filters say which hash arrays to open, the arrays decide; no data file is opened. Answers are exact up to a
collision of 64-bit hashes, and say where one may be: who must know compares keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

import numpy as np

from hoodoo.index.bloom import filter as bloom
from hoodoo.index.bloom.entry import EntryReader, encode
from hoodoo.index.buckets import require_no_buckets
from hoodoo.index.key_index import (
    NOWHERE,
    Keys,
    Located,
    Partitions,
    WrittenBase,
    deleted_entry_name,
    entry_name,
)
from hoodoo.storage.store import Store
from hoodoo.timeline.view import FileGroup


class BloomIndex:
    """See KeyIndex."""

    def __init__(self, store: Store) -> None:
        self._store, self._entries = store, EntryReader(store)

    def __reduce__(self) -> tuple[type[BloomIndex], tuple[Store]]:
        return BloomIndex, (self._store,)

    def require_valid_for(self, file_ids: Iterable[str]) -> None:
        """Its file groups take any key, those of Hudi's buckets do not."""
        require_no_buckets(self._store, file_ids)

    # ---- where keys are
    def locate(self, partitions: Partitions, keys: Keys) -> Located:
        found = Located.nowhere(len(keys))
        if not any(map(partitions.get, keys.partitions)):
            return found
        hashes = keys.hashes[keys.rows]
        order = np.argsort(keys.codes, kind="stable")
        ends = np.searchsorted(keys.codes[order], np.arange(len(keys.partitions)), side="right")
        start = 0
        for partition, end in zip(keys.partitions, ends.tolist(), strict=True):
            rows, start = order[start:end], end
            if len(rows) and (groups := partitions.get(partition)):
                self._in_partition(list(groups.values()), rows[np.argsort(hashes[rows])], hashes, found)
        return found

    def _in_partition(self, groups: list[FileGroup], rows: np.ndarray, hashes: np.ndarray, found: Located) -> None:
        """`rows` are in ascending order of hash: sorted look-ups touch each page of an array once."""
        for group in groups:
            place = len(found.groups)
            found.groups.append(group)
            candidates = self._candidates(group, hashes[rows], filtered=len(groups) > 1)
            if group.base is None or not len(candidates):
                continue
            there = _among(self.key_hashes(group.base.file.index), hashes[rows[candidates]])
            present = rows[candidates[there]]
            if not len(present):
                continue
            found.matches.append((place, present))
            found.doubtful[present] |= found.group[present] != NOWHERE
            found.group[present] = place
            found.unsure[present] = self.deleted_by_logs(group, hashes[present])
        equal = np.flatnonzero(hashes[rows[1:]] == hashes[rows[:-1]])
        shared = np.concatenate([rows[equal], rows[equal + 1]])
        found.doubtful[shared] |= found.group[shared] != NOWHERE

    def _candidates(self, group: FileGroup, wanted: np.ndarray, filtered: bool) -> np.ndarray:
        if group.base is None:
            return np.empty(0, np.int64)
        filter_ = self._entries.front(group.base.file.index).filter if filtered else None
        return np.arange(len(wanted)) if filter_ is None else np.flatnonzero(bloom.may_contain(filter_, wanted))

    def home_for_new(self, keys: Keys) -> None:
        """Any file group of the partition: its entry is going to name the key."""

    # ---- entries
    def entry_for(self, base: WrittenBase) -> str:
        """A base that has the keys of the one before and no others shares its entry."""
        hashes = base.hashes()
        if base.before and not len(hashes) and not len(base.gone):
            return base.before
        if base.before:
            hashes = np.concatenate([_without(self.key_hashes(base.before), base.gone), hashes])
        return self._stored(entry_name(base.file_id, base.instant), encode(hashes, base.least, base.greatest))

    def entry_for_deletes(self, file_id: str, instant: str, hashes: np.ndarray, version: int = 1) -> str:
        name = deleted_entry_name(file_id, instant, version)
        return self._stored(name, encode(hashes, "", "", with_filter=False))

    def _stored(self, name: str, data: bytes) -> str:
        with suppress(FileExistsError):  # another attempt of the same task was first
            self._store.create(name, data)
        return name

    def key_hashes(self, entry: str) -> np.ndarray:
        return self._entries.hashes(entry)

    def holds(self, entry: str, hashes: np.ndarray) -> np.ndarray:
        return np.isin(hashes, self.key_hashes(entry))

    def deleted_by_logs(self, group: FileGroup, hashes: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(hashes), bool)
        for log in group.logs:
            if log.file.index:
                mask |= self.holds(log.file.index, hashes)
        return mask

    def spells(self, entry: str, texts: Collection[str]) -> bool:
        """An entry spells the two ends of its key range."""
        front = self._entries.front(entry)
        return front.min_key in texts or front.max_key in texts


def _without(sorted_hashes: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """`sorted_hashes` without `gone`, all of which are there: one for one, as other keys may share a hash."""
    if not len(gone):
        return sorted_hashes
    leaving = np.sort(gone)
    nth = np.arange(len(leaving)) - np.searchsorted(leaving, leaving)  # of those with the same hash
    return np.delete(sorted_hashes, np.searchsorted(sorted_hashes, leaving) + nth)


def _among(sorted_hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Is each of `wanted` (ascending) in `sorted_hashes`? Mask."""
    if not len(sorted_hashes):
        return np.zeros(len(wanted), bool)
    places = np.minimum(np.searchsorted(sorted_hashes, wanted), len(sorted_hashes) - 1)
    return sorted_hashes[places] == wanted
