"""Location of keys in file groups.

The index is searched first. It only contains hashes, and two keys may have the same hash. A hash match is uncertain if
the hash is in several file groups, or if two keys of the batch have it. Keys are then read and compared. For inserts,
keys are always compared, because the result must be certain.

In all other cases, a single match counts as the key. A change that finds no row of its key is correct in any file
group, as long as it is always the same one. A new key may therefore be written to the log of a file group that contains
its hash, with a probability of one in 2^64 for each stored key. The next time that keys are compared for it, a rewrite
moves it into the base file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from hoodoo.engine.local import LocalEngine
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import NOWHERE, KeyIndex, LookupResult
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch

_KeySearch = Callable[[Store, TableConfig, FileGroup, pa.Array], np.ndarray]


def find_files_by_key(
    store: Store, config: TableConfig, index: KeyIndex, view: View, batch: Batch, compare_all: bool = False
) -> LookupResult:
    """Find the files that contain the keys of a batch.

    If `compare_all` is True, keys are compared for every hash match, not only for uncertain ones. Raises CorruptTable
    if a file is unreadable.
    """
    located = index.locate(view.partitions, batch.keys)
    rows = np.flatnonzero(located.group != NOWHERE if compare_all else located.doubtful)
    return _compare_keys(store, config, index, batch, located, rows) if len(rows) else located


def _compare_keys(
    store: Store, config: TableConfig, index: KeyIndex, batch: Batch, located: LookupResult, rows: np.ndarray
) -> LookupResult:
    # Base files are searched first, and then logs, which may contain a key that was mistaken for another one.
    group, unsure = located.group.copy(), located.unsure.copy()
    group[rows], unsure[rows] = NOWHERE, False
    to_compare = np.zeros(len(batch), bool)
    to_compare[rows] = True

    for look in (_keys_in_base, _keys_in_logs):
        unresolved = to_compare & (group == NOWHERE)
        candidates = [
            (number, candidate_rows)
            for number, matching_rows in located.matches
            if len(candidate_rows := matching_rows[unresolved[matching_rows]])
        ]
        lookups = [
            (located.groups[number], batch.rows[RECORD_KEY].take(pa.array(candidate_rows)))
            for number, candidate_rows in candidates
        ]
        masks = LocalEngine().map(partial(_match_keys, store, config, look), lookups)
        for (number, candidate_rows), is_match in zip(candidates, masks, strict=True):
            located_rows = candidate_rows[is_match]
            group[located_rows] = number
            # the next version of a key that is only in logs goes into the base file, where Hudi also finds it
            deleted = index.deleted_by_logs(located.groups[number], batch.hashes[located_rows])
            unsure[located_rows] = deleted if look is _keys_in_base else True
    absent = to_compare & (group == NOWHERE)
    searched_groups = frozenset(
        located.groups[number].file_id for number, matching_rows in located.matches if absent[matching_rows].any()
    )
    return replace(located, group=group, unsure=unsure, searched=searched_groups)


def _match_keys(
    store: Store, config: TableConfig, look: _KeySearch, lookup: tuple[FileGroup, pa.ChunkedArray]
) -> np.ndarray:
    return look(store, config, lookup[0], lookup[1].combine_chunks())


def _keys_in_base(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    assert group.base is not None  # the hash was found in the base file's index entry
    rows = slices.read_rows_of_keys(store, config, group.base.file, slices.schema_of(config, [RECORD_KEY]), keys)
    return slices.among(pa.chunked_array([keys]), rows[RECORD_KEY].combine_chunks())


def _keys_in_logs(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    mask = np.zeros(len(keys), bool)
    for logged_keys in _logged_keys(store, config, group):
        mask |= slices.among(pa.chunked_array([keys]), logged_keys)
    return mask


def _logged_keys(store: Store, config: TableConfig, group: FileGroup) -> Iterator[pa.Array]:
    schema = slices.schema_of(config, slices.columns_to_decode(config, [], merging=True))
    for file in slices.sort_logs_by_instant(group):
        for part in slices.read_log(store, config, file, schema):
            yield part.rows[RECORD_KEY].combine_chunks()


__all__ = ["find_files_by_key"]
