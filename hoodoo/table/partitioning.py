"""Partitioning of a new table by columns.

This module only works on schemas. Checks on key and partition columns are in format/keys.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import OptionError, SchemaError
from hoodoo.format.transforms import Transform, generated_column_type
from hoodoo.redact import printable

PartitionBy: TypeAlias = "str | Transform | Sequence[str | Transform]"
"""A column name or a transform of a column, or a list of them, such as `[hoodoo.day("ts"), "city"]`."""


@dataclass(frozen=True)
class Partitioning:
    """Partitioning of a new table by columns.

    Attributes:
        columns: The partition columns.
        transforms: The transforms of the partition columns that are derived from other columns.
    """

    columns: tuple[str, ...]
    transforms: tuple[Transform, ...]

    @staticmethod
    def parse(given: PartitionBy | None) -> Partitioning:
        """Parse the partition columns of a new table.

        Raises:
            OptionError: The argument is neither a column name, nor a transform, nor a list of these.
        """
        if given is None or isinstance(given, (str, Transform)):
            parts: tuple[object, ...] = () if given is None else (given,)
        else:
            parts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, (bytes, dict)) else (given,)
        for part in parts:
            if not isinstance(part, (str, Transform)):
                raise OptionError(
                    "Option partition_by must be a column or a list of columns, each as a name or as a transform "
                    f'such as hoodoo.day("ts"), got {printable(given)}.',
                    option="partition_by",
                )
        named = tuple(part.made if isinstance(part, Transform) else str(part) for part in parts)
        return Partitioning(named, tuple(part for part in parts if isinstance(part, Transform)))

    def with_names(self, names: Callable[[list[str]], list[str]]) -> Partitioning:
        """Return a copy with new column names.

        Args:
            names: Function that maps a list of column names to the new names.
        """
        transforms = tuple(replace(one, column=names([one.column])[0]) for one in self.transforms)
        made = {one.made: other.made for one, other in zip(self.transforms, transforms, strict=True)}
        return Partitioning(tuple(made.get(name) or names([name])[0] for name in self.columns), transforms)

    def with_columns(self, schema: pa.Schema) -> pa.Schema:
        """Add generated partition columns to a schema.

        Raises:
            SchemaError: A transform uses a column that is missing or has an unsupported type, or the column that it
                adds already exists.
        """
        for one in self.transforms:
            if one.column not in schema.names:
                raise SchemaError(
                    f"partition_by contains {one}, but column {printable(one.column)} is not in the schema. "
                    f"Its columns are: {', '.join(schema.names)}.",
                    column=printable(one.column),
                )
            if self.columns.count(one.made) > 1:
                raise SchemaError(
                    f"partition_by contains column {one.made!r} more than once. Name the column, or a "
                    "transform that creates it, only once.",
                    column=one.made,
                )
        for one in self.transforms:
            if one.made in schema.names:
                raise SchemaError(
                    f"Transform {one} creates column {one.made!r}, which is already in the schema. Remove that column "
                    "from the schema, or rename it.",
                    column=one.made,
                )
            schema = schema.append(pa.field(one.made, generated_column_type(one, schema.field(one.column).type)))
        return schema

    def folder_count_warnings(
        self, schema: pa.Schema, values: Callable[[str], pa.ChunkedArray | None]
    ) -> Iterator[str]:
        """Warn about partition columns with full timestamps.

        Args:
            schema: The columns of the table.
            values: Function that returns the values of a column in the available rows, or None without rows.
        """
        for name in self.columns:
            if not pa.types.is_timestamp(schema.field(name).type):
                continue
            found = values(name)
            count = "" if found is None else f", {pc.count_distinct(found, mode='all').as_py():,} for these rows"
            yield (
                f"partition_by contains column {name!r}, a timestamp, which creates one folder per distinct "
                f'time{count}. Use hoodoo.day("{name}") (on the command line day({name})) for one folder per '
                f"day. Conditions on {name!r} then still skip partitions."
            )

    def require_partition_not_ordered(self, order_by: tuple[str, ...], allow_moving_keys: bool) -> None:
        """Check that no ordering column is a partition column.

        A newer version of a row would then be in a different partition than the older version, which stays.
        """
        for one in () if allow_moving_keys else self.transforms:
            if one.column in order_by or one.made in order_by:
                raise OptionError(
                    f"partition_by contains {one}, a transform of an ordering column. A newer version of a row "
                    f"may belong to another partition, so a key would get one row per {one.made!r}. Partition "
                    "by a column that is constant for a key. Or pass allow_moving_keys=True "
                    f"(--allow-moving-keys) if the {one.made!r} of a key never changes, or if you want one row "
                    "for each.",
                    option="allow_moving_keys",
                    column=one.column,
                )


__all__ = ["PartitionBy", "Partitioning"]
