"""Point look-ups: keys through the index to the file groups that hold them, and there to the row groups. No other file
is opened.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.local import LocalEngine
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take
from hoodoo.index.key_index import KeyIndex, Keys
from hoodoo.readers import slices
from hoodoo.readers.by_row import live_rows
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.view import FileGroup, View


def look_up(
    store: Store, config: TableConfig, index: KeyIndex, view: View, wanted: Keys, columns: list[str]
) -> pa.Table:
    """Live rows of the snapshot `view` with the wanted keys and these columns, in no order; keys that are not there are
    left out.
    """
    schema = slices.schema_of(config, dict.fromkeys([*columns, RECORD_KEY]))

    def read(one: tuple[FileGroup, np.ndarray]) -> pa.Table:
        group, places = one
        texts, hashes = (wanted.texts.take(pa.array(wanted.rows[places])), wanted.hashes[wanted.rows[places]])
        if group.base and slices.lies_over_rows(group):
            rows = index.rows(group.base.file, texts, hashes)
            if rows is not None:
                return live_rows(store, config, group, schema, np.unique(rows[rows >= 0]))
        return slices.read_slice(store, config, group, schema, keys=texts)

    parts = LocalEngine().map(read, _places(index, view, wanted))
    return pa.concat_tables([schema.empty_table(), *parts])


def _places(index: KeyIndex, view: View, wanted: Keys) -> list[tuple[FileGroup, np.ndarray]]:
    """Which keys, by their places in `wanted`, to look for in which file groups. Those that another engine wrote have
    no index entry: they may hold any.
    """
    indexed, others = {}, []
    for code in np.unique(wanted.codes).tolist():
        groups = view.partitions.get(wanted.partitions[code], {})
        indexed[wanted.partitions[code]] = {name: group for name, group in groups.items() if _is_indexed(group)}
        others += [(group, np.flatnonzero(wanted.codes == code)) for group in groups.values() if not _is_indexed(group)]
    located = index.locate(indexed, wanted)
    found = [
        (located.groups[place], rows) for place, rows in located.matches
    ]  # several may have a hash; one has the key
    return [(group, places) for group, places in [*found, *others] if len(places)]


def _is_indexed(group: FileGroup) -> bool:
    return group.base is not None and bool(group.base.file.index) and not any(log.file.foreign for log in group.logs)


def in_order(rows: pa.Table, keys: pa.Array) -> pa.Table:
    """`rows` in the order of their keys among `keys`."""
    return take(rows, pc.sort_indices(pc.index_in(rows[RECORD_KEY], value_set=keys)).to_numpy())
