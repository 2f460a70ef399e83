"""Keeps in a table's properties of which column a partition column is made, and how. Each is one property,
`hoodoo.transform.<partition column>`, whose text names the column by its id: `day(6)`, `bucket(16, 5)`. So it holds
whatever the column is called. `create` sets it, and nothing changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hoodoo.errors import CorruptTable, OptionError, SchemaError
from hoodoo.format.table_schema import TableSchema
from hoodoo.format.transforms import Transform, transform_of, type_of
from hoodoo.timeline.properties.table_options import PREFIX as OURS

PREFIX = OURS + "transform."


def to_properties(transforms: Iterable[Transform], columns: TableSchema) -> dict[str, str]:
    """Properties that say how partition columns are made of `columns`."""
    return {PREFIX + one.made: str(replace(one, column=str(columns.by_name[one.column].id))) for one in transforms}


def stored(properties: Mapping[str, str], created: TableSchema, columns: TableSchema) -> dict[str, Transform]:
    """Partition column -> how it is made of one of `columns`, under the name that this column has there. Left out is
    what is made of a column that is not among them, or that another engine gave another type than it had when the
    table was `created`: what was made of the old values may not be what would be made of the new ones.

    Raises:
        CorruptTable: A property says nothing that `to_properties` writes.
    """
    found = {}
    for name in sorted(properties):
        if not name.startswith(PREFIX):
            continue
        try:
            said = transform_of(properties[name])
            number = int(said.column)
            source, first = columns.by_id.get(number), created.by_id.get(number)
            if source is not None and first is not None and source.arrow == first.arrow:
                found[name[len(PREFIX) :]] = one = replace(said, column=source.name)
                type_of(one, source.arrow)
        except (OptionError, SchemaError, ValueError) as problem:
            why = getattr(problem, "message", "it names no column by its id.")
            raise CorruptTable(
                f"hoodie.properties has {name}={properties[name][:100]}: {why} Restore the file from a backup.",
                property=name,
            ) from None
    return found
