"""Reader for Hudi's change log files.

The caller chooses the change log files to read. The row changes are returned as Arrow tables.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable
from hoodoo.format.keys import compute_record_keys
from hoodoo.format.log import change_log_block
from hoodoo.format.log.change_log_block import AFTER, BEFORE, KEY, OP
from hoodoo.format.resolve import NO_CHANGES
from hoodoo.readers.slices.slices import read_whole_file
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile


def read_change_log(store: Store, config: TableConfig, file: DataFile) -> pa.Table | None:
    """Read the change log of a base file.

    It has one row for each changed row. The result has the columns OP ("i", "u" or "d") and KEY. If the change log
    stores row images, it also has BEFORE and AFTER, which are structs with the table's current columns.

    Returns None for a file without a change log: all its rows are new, its rows were only moved, or the table kept no
    change log at that time. Raises CorruptTable, UnsupportedTable.
    """
    if not file.changes:
        return None
    logs = (read_whole_file(store, path, *file.changes[path]) for path in sorted(file.changes))
    parts = [
        _decode_columns(block.rows, config, file)
        for log in logs
        for block in change_log_block.decode_changes(memoryview(log))
    ]
    if not parts:
        raise CorruptTable(
            f"Change log {next(iter(file.changes))} contains no log block. Restore it from a backup.",
            file=next(iter(file.changes)),
        )
    return pa.concat_tables(parts)


def _decode_columns(rows: pa.Table, config: TableConfig, file: DataFile) -> pa.Table:
    columns = {OP: rows[OP], KEY: keys_of(rows, config)}
    image = pa.struct(list(config.schema))
    for name in (BEFORE, AFTER):
        if name in rows.column_names:
            fields = change_log_block.convert_images_to_columns(rows[name], config.schema, config.resolution(file))
            columns[name] = change_log_block.images(fields, rows[name].is_null().to_numpy()).cast(image)
    return pa.table(columns)


def keys_of(rows: pa.Table, config: TableConfig) -> pa.ChunkedArray:
    if KEY in rows.column_names:
        return rows[KEY]
    key_columns = {
        name: pc.coalesce(*(pc.struct_field(rows[image], name) for image in (AFTER, BEFORE))) for name in config.key
    }
    fields = [config.schema.field(name) for name in config.key]
    return pa.chunked_array(
        [
            compute_record_keys(
                NO_CHANGES.to_requested_columns(pa.table(key_columns), fields), config.key, config.partition_by
            )
        ],
        pa.string(),
    )


__all__ = ["keys_of", "read_change_log"]
