"""Storage of partition transforms in table properties.

Each transform is one property, `hoodoo.transform.<partition column>`. Its value refers to the source column by id, such
as `day(6)` or `bucket(16, 5)`, so that renaming the column does not affect it. `create` sets it, and it never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hoodoo.errors import CorruptTable, OptionError, SchemaError
from hoodoo.format.table_schema import TableSchema
from hoodoo.format.transforms import Transform, generated_column_type, transform_of
from hoodoo.timeline.properties.table_options import PREFIX as OURS

PREFIX = OURS + "transform."


def to_properties(transforms: Iterable[Transform], columns: TableSchema) -> dict[str, str]:
    return {PREFIX + one.made: str(replace(one, column=str(columns.by_name[one.column].id))) for one in transforms}


def read_transforms(properties: Mapping[str, str], created: TableSchema, columns: TableSchema) -> dict[str, Transform]:
    """Read the partition transforms from table properties.

    The keys are generated partition columns. Transforms contain the current names of their source columns. A transform
    is left out if its source column was dropped or has a different type than at the creation of the table, because
    stored partition values may then differ from newly computed values.

    Raises:
        CorruptTable: A property has an invalid value.
    """
    transforms = {}
    for name in sorted(properties):
        if not name.startswith(PREFIX):
            continue
        try:
            transform = transform_of(properties[name])
            number = int(transform.column)
            source, first = columns.by_id.get(number), created.by_id.get(number)
            if source is not None and first is not None and source.arrow == first.arrow:
                transforms[name[len(PREFIX) :]] = named = replace(transform, column=source.name)
                generated_column_type(named, source.arrow)
        except (OptionError, SchemaError, ValueError) as problem:
            reason = getattr(problem, "message", "the id of its column is missing.")
            raise CorruptTable(
                f"Property {name}={properties[name][:100]} in hoodie.properties is invalid: {reason} Restore the file "
                "from a backup.",
                property=name,
            ) from None
    return transforms
