"""Units of time columns in Debezium events."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from hoodoo.arguments import EVERY_COLUMN
from hoodoo.errors import ColumnError
from hoodoo.redact import printable
from hoodoo.sources.debezium_schemas import UNITS, ConnectColumn

TIME_UNITS = {
    "ms": "io.debezium.time.Timestamp",
    "us": "io.debezium.time.MicroTimestamp",
    "ns": "io.debezium.time.NanoTimestamp",
}


def create_time_descriptions(units: Mapping[str, str], columns: pa.Schema, unknown: bool) -> dict[str, ConnectColumn]:
    """Create descriptions of time columns from their configured units.

    `units` has the form that `hoodoo.arguments.time_units` returns. `unknown` is True if events may have columns that
    the table does not have. Raises ColumnError for a column that is not in the table, or is neither a time nor a
    timestamp without a zone.
    """
    descriptions = dict[str, ConnectColumn]()
    for field in columns:
        unit = units.get(field.name, units.get(EVERY_COLUMN))
        if unit is not None and (description := _describe_time_column(field.type, TIME_UNITS[unit])) is not None:
            descriptions[field.name] = description
    invalid_names = [name for name in units if name != EVERY_COLUMN and name not in descriptions]
    invalid_names = [name for name in invalid_names if name in columns.names or not unknown]
    if invalid_names:
        name = invalid_names[0]
        raise ColumnError(
            f"Column {printable(name)} cannot have a time_unit: expected a time, or a timestamp without a zone, got "
            f"{columns.field(name).type if name in columns.names else 'no column of the table'}. Leave the column "
            "out of time_unit.",
            column=name,
        )
    return descriptions


def add_time_units(
    known: Mapping[str, ConnectColumn], units: Mapping[str, ConnectColumn]
) -> Mapping[str, ConnectColumn]:
    return (
        {**known, **{name: description for name, description in units.items() if not _has_unit(known.get(name))}}
        if units
        else known
    )


def _describe_time_column(kind: pa.DataType, meaning: str) -> ConnectColumn | None:
    if pa.types.is_list(kind):
        items = _describe_time_column(kind.value_type, meaning)
        return None if items is None else ConnectColumn("array", items=items)
    is_time = pa.types.is_time(kind) or pa.types.is_timestamp(kind) and kind.tz is None
    return ConnectColumn("int64", meaning) if is_time else None


def _has_unit(said: ConnectColumn | None) -> bool:
    return said is not None and (said.meaning in UNITS or _has_unit(said.items))


__all__ = ["TIME_UNITS", "create_time_descriptions", "add_time_units"]
