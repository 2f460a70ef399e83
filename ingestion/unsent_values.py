"""Completion of values that change events did not send.

The database does not send large, unchanged values. An upsert copies such a value from an earlier row of the batch, or
from the stored row, with the same key and partition. If a row may have left its partition, the value is copied before
the upsert, by key only. Batches without such values have no extra cost.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import assign_key_codes
from hoodoo.ingestion.row_versions import RowVersions
from hoodoo.merge.modes import MergeMode
from hoodoo.sources.debezium import NOT_SENT
from hoodoo.table import Table
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.column_alignment import FAIL, KEEP, default_value_of, require_optional_column


def has_unsent_placeholder(rows: pa.Table, mode: MergeMode) -> bool:
    return mode.unavailable is not None and any(mode.find_unsent_values(column).any() for column in rows.columns)


def deletes(rows: pa.Table) -> np.ndarray:
    if IS_DELETED not in rows.column_names:
        return np.zeros(len(rows), bool)
    return pc.fill_null(rows[IS_DELETED], False).to_numpy().astype(bool)


def find_unsent_values(rows: pa.Table, deleted: np.ndarray, mode: MergeMode) -> dict[str, np.ndarray]:
    """Find the values missing in change events.

    Args:
        rows: The rows of a batch.
        deleted: bool[n], True for deletes, which lack no values.
        mode: The merge mode, which contains the placeholder.

    Returns:
        For each column with unsent values a mask (bool[n]) of the rows without a value.
    """
    masks = {name: mode.find_unsent_values(rows[name]) & ~deleted for name in rows.column_names}
    return {name: mask for name, mask in masks.items() if mask.any()}


def fill_unsent_values(rows: pa.Table, table: Table, config: TableConfig, mode: MergeMode) -> pa.Table:
    """Fill in missing values from earlier row versions.

    Args:
        rows: Changes with the column names of the table, in order. Deletes are marked by `_hoodie_is_deleted`.
        table: The table.
        config: Its configuration.
        mode: The merge mode, which contains the placeholder for unsent values.

    Returns:
        The changes. A placeholder stays if all earlier versions since the last delete of the row lack the value.
    """
    deleted = deletes(rows)
    masks = find_unsent_values(rows, deleted, mode)
    return _copy_stored_values(rows, masks, deleted, table, config) if masks else rows


def fill_from_stored_rows(rows: pa.Table, transformed: pa.Table, table: Table, missing: str) -> pa.Table:
    """Fill in values that change events do not contain.

    Args:
        rows: Changes from the source. Marker columns, whose names begin with `NOT_SENT`, show which rows lack a column,
            and which rows are new.
        transformed: The changes after the transform, with the marker columns.
        table: The table.
        missing: Handling of a column that the batch lacks: 'null', 'fail' or 'keep'.

    Returns:
        The changes, without the marker columns. An update of a missing row gets the default.

    Raises:
        DataError: The transform removed a marker column.
        ColumnError: New rows lack a column without a default, and `missing` is 'fail'.
    """
    markers = [name for name in rows.column_names if name.startswith(NOT_SENT)]
    if not markers:
        return transformed
    common = {*rows.column_names} & {*transformed.column_names}
    required = [name for name in markers if name[len(NOT_SENT) :] in common]
    required += [NOT_SENT] if required and NOT_SENT in markers else []
    missing_markers = [name for name in required if name not in transformed.column_names]
    if missing_markers:
        raise DataError(
            f"Column {missing_markers[0]!r} is missing in the result of the transform: expected it unchanged, because "
            f"it shows which rows lack a column. Return all columns whose names begin with {NOT_SENT!r} too."
        )
    markers = [name for name in markers if name in transformed.column_names]
    computed = {*transformed.column_names} - {*rows.column_names}
    flags = {name[len(NOT_SENT) :]: pc.fill_null(transformed[name], False).to_numpy().astype(bool) for name in markers}
    transformed = transformed.drop_columns(markers)
    new = flags.pop("", np.zeros(len(transformed), bool))
    config = table.handle.newest_config()
    masks = dict[str, np.ndarray]()
    named = config.name_mapping.rows(transformed)
    deleted = deletes(named)
    for name in dict.fromkeys((*config.schema.names, *named.column_names)):
        if name in config.key or name in config.transforms or name in config.order_by:
            continue
        names = (name, *config.name_mapping.original_names([name]))
        if not computed.isdisjoint(names):  # the transform computed its values
            continue
        mask = np.logical_and.reduce([flags.get(former_name, deleted) & ~deleted for former_name in names])
        if mask.any() and (name in named.column_names or missing == "null"):
            masks[name] = mask
    if not masks or not set(config.key) <= set(named.column_names):
        return transformed
    for name, mask in masks.items():
        if name in config.schema.names:
            if missing == FAIL and (mask & new).any():
                require_optional_column(config.columns.by_name[name], name, config, missing)
            named = _set_default(_cast_or_add_column(named, name, config), name, mask, config)
    if missing != KEEP:
        masks = {name: mask & ~new for name, mask in masks.items() if (mask & ~new).any()}
    return _copy_stored_values(named, masks, deleted, table, config) if masks else named


def _set_default(rows: pa.Table, name: str, mask: np.ndarray, config: TableConfig) -> pa.Table:
    # Without a default, the rows are not changed.
    column = config.columns.by_name[name]
    if (value := default_value_of(column)) is None:
        return rows
    values = pc.if_else(pa.array(mask), pa.scalar(value, column.arrow), rows[name].combine_chunks())
    return rows.set_column(rows.column_names.index(name), pa.field(name, column.arrow), values)


def _cast_or_add_column(rows: pa.Table, name: str, config: TableConfig) -> pa.Table:
    # A missing column is added with its default. Raises DataError.
    column = config.columns.by_name[name]
    if name in rows.column_names:
        index = rows.column_names.index(name)
        field = pa.field(name, column.arrow)
        return (
            rows
            if rows.schema.field(index).type == field.type
            else rows.set_column(index, field, cast_column(rows[name], field))
        )
    value = pa.scalar(default_value_of(column), column.arrow)
    return rows.append_column(pa.field(name, column.arrow), pa.repeat(value, len(rows)))


def _copy_stored_values(
    rows: pa.Table, masks: dict[str, np.ndarray], deleted: np.ndarray, table: Table, config: TableConfig
) -> pa.Table:
    # The values come from the newest earlier versions of the rows.
    lacking = np.flatnonzero(np.logical_or.reduce(list(masks.values())))
    names = [*dict.fromkeys((*config.key, *config.order_by, *masks))]
    changes = rows.select(names)
    keys = rows.select(config.key).combine_chunks().take(pa.array(lacking)).drop_null()
    stored = table.get(keys, columns=[name for name in names if name in config.schema.names])
    for name in names:
        if name not in config.schema.names:  # it is new
            stored = stored.append_column(changes.schema.field(name), pa.nulls(len(stored), changes[name].type))
    versions_table = pa.concat_tables([stored.select(names).cast(changes.schema), changes])  # stored rows came before
    before, no_mask = len(stored), np.zeros(len(stored), bool)
    codes = assign_key_codes(versions_table.select(config.key))
    versions = RowVersions.of(versions_table, codes, np.append(no_mask, deleted), before + lacking, config.merge_policy)
    for name, mask in masks.items():
        is_missing = np.append(no_mask, mask)[versions.at]
        holders = versions.holders(is_missing)
        is_found = is_missing & (holders >= 0)
        source = np.arange(len(rows))
        source[versions.at[is_found] - before] = len(rows) + versions.at[holders[is_found]]
        values = pa.chunked_array([*rows[name].chunks, *versions_table[name].chunks], rows[name].type)
        rows = rows.set_column(rows.column_names.index(name), rows.field(name), values.take(pa.array(source)))
    return rows


__all__ = ["fill_unsent_values", "deletes", "has_unsent_placeholder", "find_unsent_values", "fill_from_stored_rows"]
