"""Point look-ups: keys through the index to the file groups that hold them, and there to the row groups. No other file is opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.local import LocalEngine
from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.entry import EntryReader
from hoodoo.index.locate import locate
from hoodoo.readers import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.view import FileGroup, View


@dataclass(frozen=True)
class Wanted:
    """Record keys, each in the partition `partitions[codes[i]]`."""

    keys: pa.Array
    partitions: list[str]
    codes: np.ndarray

    @staticmethod
    def in_every_partition(keys: pa.Array, view: View) -> Iterator[Wanted]:
        """The keys in each partition, or in none where the table has none, one after the other."""
        for partition in view.partitions or [""]:
            yield Wanted(keys, [partition], np.zeros(len(keys), np.int32))


def look_up(store: Store, config: TableConfig, entries: EntryReader, view: View, wanted: Wanted, columns: list[str]) -> pa.Table:
    """Live rows of the snapshot `view` with the wanted keys and these columns, in no order; keys that are not there are left out."""
    schema = slices.schema_of(config, dict.fromkeys([*columns, RECORD_KEY]))
    parts = LocalEngine().map(lambda one: slices.read_slice(store, config, one[0], schema, keys=one[1]), _places(entries, view, wanted))
    return pa.concat_tables([schema.empty_table(), *parts])


def _places(entries: EntryReader, view: View, wanted: Wanted) -> list[tuple[FileGroup, pa.Array]]:
    """Which keys to look for in which file groups. Those that another engine wrote have no index entry: they may hold any."""
    indexed, others = {}, []
    for partition in {wanted.partitions[code] for code in np.unique(wanted.codes).tolist()}:
        groups = view.partitions.get(partition, {})
        indexed[partition] = {name: group for name, group in groups.items() if _is_indexed(group)}
        others += [(group, partition) for name, group in groups.items() if name not in indexed[partition]]
    located = locate(View(partitions=indexed), entries, wanted.partitions, wanted.codes, hash64(wanted.keys))
    found = [(group, wanted.keys.take(pa.array(np.flatnonzero(located.group == place)))) for place, group in enumerate(located.groups)]
    codes = {partition: code for code, partition in enumerate(wanted.partitions)}
    found += [(group, wanted.keys.take(pa.array(np.flatnonzero(wanted.codes == codes[partition])))) for group, partition in others]
    return [(group, keys) for group, keys in found if len(keys)]


def _is_indexed(group: FileGroup) -> bool:
    return group.base is not None and bool(group.base.file.index) and not any(log.file.foreign for log in group.logs)


def in_order(rows: pa.Table, keys: pa.Array) -> pa.Table:
    """`rows` in the order of their keys among `keys`."""
    return rows.take(pc.sort_indices(pc.index_in(rows[RECORD_KEY], value_set=keys)))
