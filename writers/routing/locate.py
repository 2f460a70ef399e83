"""Finds the file groups in which the keys of a batch live. It asks the index first, which knows hashes only, and two
keys may share a hash. Where a hash does not decide, it reads keys and compares them.

A hash does not decide if it is in several file groups, if two keys of the batch have it, or if the caller must know for
sure because it inserts. Otherwise one match counts as the key, because a change that meets no row of its key is right
in any file group, as long as it is always the same one. So a new key may go into the log of a file group that has its
hash (one in 2^64 for each stored key). When keys are compared for it next, a rewrite puts it into the base.
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
    """The file group of each key of `batch`. compare_all: keys are compared wherever a hash matches, not only in doubt.

    Raises CorruptTable where a file that must be read cannot be.
    """
    located = index.locate(view.partitions, batch.keys)
    rows = np.flatnonzero(located.group != NOWHERE if compare_all else located.doubtful)
    return _compared(store, config, index, batch, located, rows) if len(rows) else located


def _compared(
    store: Store, config: TableConfig, index: KeyIndex, batch: Batch, located: Located, rows: np.ndarray
) -> Located:
    """`located` with the keys of `rows` looked for in the file groups that have their hashes: in the bases, then in
    logs, where one may stand that was taken for another.
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
            # a key that only logs have goes into the base with its next version, where Hudi finds it too
            deleted = index.deleted_by_logs(located.groups[number], batch.hashes[at_home])
            unsure[at_home] = deleted if look is _in_base else True
    absent = asked & (group == NOWHERE)
    strangers = frozenset(located.groups[number].file_id for number, found in located.matches if absent[found].any())
    return replace(located, group=group, unsure=unsure, searched=strangers)


def _looked(store: Store, config: TableConfig, look: _Look, ask: tuple[FileGroup, pa.ChunkedArray]) -> np.ndarray:
    return look(store, config, ask[0], ask[1].combine_chunks())


def _in_base(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    """Mask: does the base file have a row of the key?"""
    assert group.base is not None  # its index entry had the hash
    rows = slices.read_keys(store, config, group.base.file, slices.schema_of(config, [RECORD_KEY]), keys)
    return slices.among(pa.chunked_array([keys]), rows[RECORD_KEY].combine_chunks())


def _in_logs(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    """Mask: does a log of the slice name the key, in a row or in a delete?"""
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
