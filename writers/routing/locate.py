"""Search for the file groups that contain the record keys of a batch.

The index is searched first. It only knows hashes, and two keys may have the same hash. If a hash does not decide, keys
are read and compared. A hash does not decide if it is in several file groups, or if two keys of the batch have it. For
inserts, keys are always compared, because the result must be certain.

Otherwise a single match counts as the key. A change that finds no row of its key is correct in any file group, as long
as it is always the same one. A new key may therefore be written to the log of a file group that contains its hash, with
a probability of one in 2^64 for each stored key. The next time that keys are compared for it, a rewrite moves it into
the base file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from hoodoo.engine.local import LocalEngine
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import NOWHERE, KeyIndex, Located
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.batches.batch import Batch

_Look = Callable[[Store, TableConfig, FileGroup, pa.Array], np.ndarray]


def locate_by_key(
    store: Store, config: TableConfig, index: KeyIndex, view: View, batch: Batch, compare_all: bool = False
) -> Located:
    """Find the file group that contains each key of a batch. New keys have none.

    `compare_all` compares keys for every hash match, not only for doubtful ones. Raises CorruptTable if a file is
    unreadable.
    """
    located = index.locate(view.partitions, batch.keys)
    rows = np.flatnonzero(located.group != NOWHERE if compare_all else located.doubtful)
    return _compared(store, config, index, batch, located, rows) if len(rows) else located


def _compared(
    store: Store, config: TableConfig, index: KeyIndex, batch: Batch, located: Located, rows: np.ndarray
) -> Located:
    """Resolve uncertain hash matches by comparing the keys of `rows` with the stored keys of the matching file groups.

    Base files are searched first, and then logs, which may contain a key that was mistaken for another one.
    """
    group, unsure = located.group.copy(), located.unsure.copy()
    group[rows], unsure[rows] = NOWHERE, False
    asked = np.zeros(len(batch), bool)
    asked[rows] = True

    for look in (_in_base, _in_logs):
        open_ = asked & (group == NOWHERE)
        candidates = [(number, mine) for number, found in located.matches if len(mine := found[open_[found]])]
        asks = [(located.groups[number], batch.rows[RECORD_KEY].take(pa.array(mine))) for number, mine in candidates]
        masks = LocalEngine().map(partial(_looked, store, config, look), asks)
        for (number, mine), there in zip(candidates, masks, strict=True):
            at_home = mine[there]
            group[at_home] = number
            # the next version of a key that is only in logs goes into the base file, where Hudi also finds it
            deleted = index.deleted_by_logs(located.groups[number], batch.hashes[at_home])
            unsure[at_home] = deleted if look is _in_base else True
    absent = asked & (group == NOWHERE)
    strangers = frozenset(located.groups[number].file_id for number, found in located.matches if absent[found].any())
    return replace(located, group=group, unsure=unsure, searched=strangers)


def _looked(store: Store, config: TableConfig, look: _Look, ask: tuple[FileGroup, pa.ChunkedArray]) -> np.ndarray:
    return look(store, config, ask[0], ask[1].combine_chunks())


def _in_base(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    """Return a boolean mask of the keys that have a row in the base file of the file group."""
    assert group.base is not None  # the hash was found in the base file's index entry
    rows = slices.read_keys(store, config, group.base.file, slices.schema_of(config, [RECORD_KEY]), keys)
    return slices.among(pa.chunked_array([keys]), rows[RECORD_KEY].combine_chunks())


def _in_logs(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    """Return a boolean mask of the keys that occur in the file group's logs, in a row or a delete."""
    mask = np.zeros(len(keys), bool)
    for named in _logged_keys(store, config, group):
        mask |= slices.among(pa.chunked_array([keys]), named)
    return mask


def _logged_keys(store: Store, config: TableConfig, group: FileGroup) -> Iterator[pa.Array]:
    schema = slices.schema_of(config, slices.columns_for(config, [], merging=True))
    for file in slices.logs_in_order(group):
        for part in slices.read_log(store, config, file, schema):
            yield part.rows[RECORD_KEY].combine_chunks()


__all__ = ["locate_by_key"]
