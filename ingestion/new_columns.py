"""Check of the new columns in a batch.

Columns that no table can store are dropped. An invalid column name therefore does not stop a job.
"""

from __future__ import annotations

import pyarrow as pa

from hoodoo.errors import CallError, ColumnError
from hoodoo.format.known_types import remove_unknown_parts
from hoodoo.format.names import IS_DELETED
from hoodoo.sources.debezium import NOT_SENT
from hoodoo.sources.wanted_rows import RowFilter
from hoodoo.timeline.columns.alterations import altered
from hoodoo.timeline.columns.batch_columns import find_column_changes
from hoodoo.timeline.properties.config import TableConfig


def drop_unstorable_columns(rows: pa.Table, config: TableConfig) -> tuple[pa.Table, tuple[str, ...], TableConfig]:
    """Drop the columns that a table cannot store.

    Args:
        rows: The batch.
        config: The configuration of the table.

    Returns:
        The batch without such columns; the names of these columns, as paths for fields of structs; and the
        configuration with the added columns. A column that contains only nulls is left out too, because its type is
        unknown.
    """
    original = set(config.name_mapping.original_names(config.schema.names))
    left_out = list[str]()
    for field in rows.schema:
        if field.name == IS_DELETED or field.name in original or field.name.startswith(NOT_SENT):
            continue
        known = field.name in config.schema.names
        if known and not pa.types.is_nested(field.type):
            continue
        if remove_unknown_parts(field.type) is None:
            if not known:
                left_out.append(field.name)
            continue
        try:
            added = find_column_changes(config, pa.schema([field]), lambda name: True)
            config = config.with_columns(altered(config, added)) if added else config
        except (CallError, ColumnError):
            if not known:
                left_out.append(field.name)
                continue
            filter_ = RowFilter(config.schema, unknown=False)
            filtered = filter_.drop_unknown_columns(rows.select([field.name]))
            rows = rows.set_column(rows.column_names.index(field.name), filtered.field(0), filtered[field.name])
            left_out += sorted(filter_.left_out)
    rows = rows.drop_columns([name for name in left_out if name in rows.column_names])
    return rows, tuple(left_out), config


__all__ = ["drop_unstorable_columns"]
