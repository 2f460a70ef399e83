"""Reader of Hudi's change log files, which record the row changes of one rewrite of a base file.

The caller chooses the files to read. The changes are returned as Arrow tables.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable
from hoodoo.format.keys import record_keys
from hoodoo.format.log import change_log_block
from hoodoo.format.log.change_log_block import AFTER, BEFORE, KEY, OP
from hoodoo.format.resolve import AS_IT_STANDS
from hoodoo.readers.slices.slices import read_whole
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile


def read_change_log(store: Store, config: TableConfig, file: DataFile) -> pa.Table | None:
    """Read the change log of a base file: one row per insert, update or delete of the rewrite that created the file.

    Each row has OP ("i", "u" or "d") and KEY. It also has BEFORE and AFTER, as far as the mode of the change log stores
    them. Both are structs with the table's current columns.

    Returns None for a file without a change log. This is so if all its rows are new, if its rows were only moved, or if
    the table kept no change log at that time. Raises CorruptTable, UnsupportedTable.
    """
    if not file.changes:
        return None
    logs = (read_whole(store, path, *file.changes[path]) for path in sorted(file.changes))
    parts = [_columns(block.rows, config, file) for log in logs for block in change_log_block.decode(memoryview(log))]
    if not parts:
        raise CorruptTable(
            f"{next(iter(file.changes))} contains no log block. Restore it from a backup.",
            file=next(iter(file.changes)),
        )
    return pa.concat_tables(parts)


def _columns(rows: pa.Table, config: TableConfig, file: DataFile) -> pa.Table:
    found = {OP: rows[OP], KEY: keys_of(rows, config)}
    image = pa.struct(list(config.schema))
    for name in (BEFORE, AFTER):
        if name in rows.column_names:
            fields = change_log_block.image_rows(rows[name], config.schema, config.resolution(file))
            found[name] = change_log_block.images(fields, rows[name].is_null().to_numpy()).cast(image)
    return pa.table(found)


def keys_of(rows: pa.Table, config: TableConfig) -> pa.ChunkedArray:
    """Return the record keys of the rows of a change log, from their KEY column or computed from their row images."""
    if KEY in rows.column_names:
        return rows[KEY]
    found = {
        name: pc.coalesce(*(pc.struct_field(rows[image], name) for image in (AFTER, BEFORE))) for name in config.key
    }
    fields = [config.schema.field(name) for name in config.key]
    return pa.chunked_array(
        [record_keys(AS_IT_STANDS.conform(pa.table(found), fields), config.key, config.partition_by)], pa.string()
    )


__all__ = ["keys_of", "read_change_log"]
