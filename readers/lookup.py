"""Lookup of rows by key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.local import LocalEngine
from hoodoo.format.names import PARTITION_PATH, RECORD_KEY
from hoodoo.format.rows import take_rows
from hoodoo.index.key_index import KeyIndex, LookupKeys
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.by_row import read_current_rows
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View


def look_up(
    store: Store, config: TableConfig, index: KeyIndex, view: View, wanted: LookupKeys, columns: list[str]
) -> pa.Table:
    """Look up the rows with some keys in a snapshot.

    Keys without a row are left out.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        index: The index of the table.
        view: The snapshot.
        wanted: The keys to look up.
        columns: The columns to return. The record key is added.
    """
    schema = slices.schema_of(config, dict.fromkeys([*columns, RECORD_KEY]))

    def read(search: tuple[FileGroup, np.ndarray]) -> pa.Table:
        group, positions = search
        texts, hashes = (wanted.texts.take(pa.array(wanted.rows[positions])), wanted.hashes[wanted.rows[positions]])
        return look_up_in(store, config, index, group, schema, texts, hashes)

    parts = LocalEngine().map(read, _groups_to_search(index, view, wanted))
    return pa.concat_tables([schema.empty_table(), *parts])


def look_up_in(
    store: Store,
    config: TableConfig,
    index: KeyIndex,
    group: FileGroup,
    schema: pa.Schema,
    texts: pa.Array,
    hashes: np.ndarray,
) -> pa.Table:
    if group.base and slices.has_row_positions(group):
        rows = index.rows(group.base.file, texts, hashes)
        if rows is not None:
            return read_current_rows(store, config, group, schema, np.unique(rows[rows >= 0]))
    return slices.read_file_slice(store, config, group, schema, keys=texts)


def _groups_to_search(index: KeyIndex, view: View, wanted: LookupKeys) -> list[tuple[FileGroup, np.ndarray]]:
    # A file group that another engine wrote has no index entry, so it is searched for all keys of its partition.
    indexed, unindexed = {}, []
    for code in np.unique(wanted.codes).tolist():
        groups = view.partitions.get(wanted.partitions[code], {})
        indexed[wanted.partitions[code]] = {name: group for name, group in groups.items() if _is_indexed(group)}
        unindexed += [
            (group, np.flatnonzero(wanted.codes == code)) for group in groups.values() if not _is_indexed(group)
        ]
    located = index.locate(indexed, wanted)
    searches = [
        (located.groups[number], indices) for number, indices in located.matches
    ]  # a hash may be in several file groups, and one of them has the key
    return [(group, positions) for group, positions in [*searches, *unindexed] if len(positions)]


def _is_indexed(group: FileGroup) -> bool:
    return group.base is not None and bool(group.base.file.index) and not any(log.file.external for log in group.logs)


def sort_by_requested_keys(rows: pa.Table, wanted: LookupKeys, keys: pa.Array, in_partitions: bool) -> pa.Table:
    """Sort rows in the order of the requested keys.

    Args:
        rows: The rows, with their record keys and, if `in_partitions`, their partition paths.
        wanted: The keys that were looked up.
        keys: The record keys, in the given order.
        in_partitions: True if each key was given with its partition.
    """
    found = rows[RECORD_KEY]
    if in_partitions and len(wanted.partitions) > 1:
        paths = pa.array(wanted.partitions, pa.string()).take(pa.array(wanted.codes))
        keys = pc.binary_join_element_wise(paths, keys, "\0")
        found = pc.binary_join_element_wise(rows[PARTITION_PATH], found, "\0")
    return take_rows(rows, pc.sort_indices(pc.index_in(found, value_set=keys)).to_numpy())
