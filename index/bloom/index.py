"""Bloom filter index of record keys.

It finds the base files that contain a record key. The filters rule out most hash arrays, and the arrays give the
answer. No data file is opened. Results are exact except for collisions of 64-bit hashes. Possible collisions are marked
in the result, so that callers can compare keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from hoodoo.format.key_check import SECRET_BYTES
from hoodoo.index.bloom import cells
from hoodoo.index.bloom import key_filter as bloom
from hoodoo.index.bloom.entry import (
    IndexEntryCache,
    IndexEntryReader,
    encode,
    encode_base_file_entry,
    index_cache_of_store,
)
from hoodoo.index.buckets import require_no_bucket_index
from hoodoo.index.key_index import (
    NOWHERE,
    KeyCollector,
    LookupKeys,
    LookupResult,
    Partitions,
    StoredIndexEntry,
    base_entry_path,
    deletes_entry_path,
)
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Together, in_order
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

_FETCHED = 1024  # maximum number of entries read concurrently; less than the capacity of the cache


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


class BloomIndex:
    """Index with bloom filters and key hashes."""

    def __init__(self, store: Store, together: Together = in_order, shared: bool = False) -> None:
        self._store, self._together = store, together
        self._entries = IndexEntryReader(store, index_cache_of_store(store) if shared else IndexEntryCache())

    def __reduce__(self) -> tuple[type[BloomIndex], tuple[Store]]:
        return BloomIndex, (self._store,)

    def require_valid_for(self, file_ids: Iterable[str]) -> None:
        require_no_bucket_index(self._store, file_ids)

    # ---- lookup of keys
    def locate(self, partitions: Partitions, keys: LookupKeys) -> LookupResult:
        located = LookupResult.all_keys_new(len(keys))
        if not any(map(partitions.get, keys.partitions)):
            return located
        self._entries.begin_lookup()
        paths = {keys.partitions[code] for code in np.unique(keys.codes).tolist()}
        self._prefetch_filters(
            [group for partition in sorted(paths) for group in partitions.get(partition, {}).values()]
        )
        hashes = keys.hashes[keys.rows]
        order = np.argsort(keys.codes, kind="stable")
        ends = np.searchsorted(keys.codes[order], np.arange(len(keys.partitions)), side="right")
        start = 0
        for partition, end in zip(keys.partitions, ends.tolist(), strict=True):
            rows, start = order[start:end], end
            if len(rows) and (groups := partitions.get(partition)):
                self._locate_in_partition(list(groups.values()), rows[np.argsort(hashes[rows])], hashes, located)
        return located

    def _prefetch_filters(self, groups: Sequence[FileGroup]) -> None:
        entries = [group.base.file.index for group in groups[:_FETCHED] if group.base]
        if self._together is not in_order and len(entries) > 1:
            self._together([partial(self._entries.read_header, entry) for entry in entries])

    def _locate_in_partition(
        self, groups: list[FileGroup], rows: np.ndarray, hashes: np.ndarray, located: LookupResult
    ) -> None:
        # `rows` are the lookups of the partition in ascending order of hash, so that each page of a hash array is read
        # once.
        for group in groups:
            number = len(located.groups)
            located.groups.append(group)
            candidates = self._candidates(group, hashes[rows], filtered=len(groups) > 1)
            if group.base is None or not len(candidates):
                continue
            contained = _contained_hashes(self.key_hashes(group.base.file.index), hashes[rows[candidates]])
            present = rows[candidates[contained]]
            if not len(present):
                continue
            located.matches.append((number, present))
            located.doubtful[present] |= located.group[present] != NOWHERE
            located.group[present] = number
            located.unsure[present] = self.deleted_by_logs(group, hashes[present])
        equal = np.flatnonzero(hashes[rows[1:]] == hashes[rows[:-1]])
        shared = np.concatenate([rows[equal], rows[equal + 1]])
        located.doubtful[shared] |= located.group[shared] != NOWHERE

    def _candidates(self, group: FileGroup, hashes: np.ndarray, filtered: bool) -> np.ndarray:
        if group.base is None:
            return np.empty(0, np.int64)
        filter_ = self._entries.read_header(group.base.file.index).filter if filtered else None
        return (
            np.arange(len(hashes)) if filter_ is None else np.flatnonzero(bloom.find_possible_hashes(filter_, hashes))
        )

    def required_group(self, keys: LookupKeys) -> None:
        """Allow any file for new keys."""

    # ---- entries
    def keys_of_rows(self, before: DataFile | None = None) -> KeyCollector:
        if before is not None and self._has_valid_rows(before):
            return KeyCollector(self._entries.read_header(before.index).secret, before.index)
        return KeyCollector(new_secret())

    def _has_valid_rows(self, base: DataFile) -> bool:
        # Another attempt of the task may have stored the entry with a different row order.
        return bool(base.order) and self._entries.read_header(base.index).order == base.order

    def store_entry(self, file_id: str, instant: str, span: tuple[str, str], keys: KeyCollector) -> StoredIndexEntry:
        """Store the index entry of a new base file.

        If all keys are in the same rows as in an older file, the entry of that file is reused.
        """
        hashes = keys.hashes
        if keys.before and not len(hashes) and not len(keys.dropped):
            order = self._entries.read_header(keys.before).order
            return StoredIndexEntry(keys.before, order, order)
        if keys.before:
            before = self._entries.cells(keys.before)
            assert before is not None  # `before` is only set if the entry has cells
            new_cells = cells.update_positions(before, keys.dropped, hashes, keys.checks)
        else:
            new_cells = cells.map_hashes_to_positions(hashes, keys.checks, keys.secret)
        name = base_entry_path(file_id, instant)
        stored = self._store_entry(name, encode_base_file_entry(new_cells, *span))
        return StoredIndexEntry(
            name, new_cells.order, new_cells.order if stored else self._entries.read_header(name).order
        )

    def entry_for_deletes(self, file_id: str, instant: str, hashes: np.ndarray, version: int = 1) -> str:
        name = deletes_entry_path(file_id, instant, version)
        self._store_entry(name, encode(hashes))
        return name

    def _store_entry(self, name: str, data: bytes) -> bool:
        try:
            self._store.create(name, data)
        except FileExistsError:
            return False
        return True

    def require_sound(self, entry: str) -> None:
        self._entries.hashes(entry)
        self._entries.cells(entry)

    def key_hashes(self, entry: str) -> np.ndarray:
        return self._entries.hashes(entry)

    def rows(self, base: DataFile, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray | None:
        if not self._has_valid_rows(base):
            return None
        row_cells = self._entries.cells(base.index)
        return None if row_cells is None else row_cells.find(keys, hashes)

    def holds(self, entry: str, hashes: np.ndarray) -> np.ndarray:
        return np.isin(hashes, self.key_hashes(entry))

    def deleted_by_logs(self, group: FileGroup, hashes: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(hashes), bool)
        for log in group.logs:
            if log.file.index:
                mask |= self.holds(log.file.index, hashes)
        return mask

    def contains_key_text(self, entry: str, texts: Collection[str]) -> bool:
        front = self._entries.read_header(entry)
        return front.min_key in texts or front.max_key in texts


def _contained_hashes(sorted_hashes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    if not len(sorted_hashes):
        return np.zeros(len(hashes), bool)
    positions = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
    return sorted_hashes[positions] == hashes
