"""Pruning of files without matching rows.

Scans skip files that cannot match. Deletes drop file groups whose rows all match. The conflict check of a write that
depends on stored rows uses pruning to decide whether a new file may match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.format import transforms
from hoodoo.format.keys import DEFAULT_PARTITION, parse_partition_values
from hoodoo.format.parquet import statistics
from hoodoo.format.transforms import BUCKET, Transform
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.filter import typed_column_ranges
from hoodoo.readers.predicate.tree import And, ColumnRange, Compare, In, Not, Or, Predicate
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.view import FileGroup

_MANY = 1 << 62  # upper limit for the rows of a partition whose files are unknown


class FilePruning:
    """Pruning of files without matching rows.

    Args:
        config: The configuration of the table.
        tree: The condition. None means that everything may match.
        own: True if hoodoo wrote all rows. The values of generated partition columns are then correct, so that a
            partition also restricts the columns from which they are computed. hoodoo does not check the values that
            other engines write.
    """

    def __init__(self, config: TableConfig, tree: Predicate | None, own: bool = False) -> None:
        self._config, self._tree = config, tree
        self._transforms: Mapping[str, Transform] = config.transforms if own else {}
        self._bucket_tree = (
            _add_bucket_conditions(tree, self._transforms, config) if tree and self._transforms else tree
        )

    def may_match_in(self, partition: str) -> bool:
        """Check whether a partition may contain matching rows.

        False if its folder name excludes every matching row. The statistics of the partition's files are then not
        needed.
        """
        return self._bucket_tree is None or predicates.may_match(
            self._bucket_tree, self._ranges_from_folder(partition, _MANY)
        )

    def may_match(self, group: FileGroup) -> bool:
        return self._bucket_tree is None or predicates.may_match(
            self._bucket_tree, self._column_ranges(group.partition, _files_with_rows(group))
        )

    def file_may_match(self, file: DataFile) -> bool:
        """Check whether a file may contain matching rows.

        False if column statistics or partition values exclude every matching row. Also returns False for a log that
        only contains deletes.
        """
        if not _has_live_rows(file):
            return False
        if file.external and self._transforms:
            return FilePruning(self._config, self._tree).file_may_match(file)
        return self._bucket_tree is None or predicates.may_match(
            self._bucket_tree, self._column_ranges(file.partition, [file])
        )

    def all_match(self, group: FileGroup) -> bool:
        """Check whether all rows of a file group match.

        Statistics must prove it. Returns False for file groups written by another engine, because their statistics may
        belong to other rows. Also returns False in the default partition, whose rows have null or an empty string.
        """
        if self._tree is None or any(entry.file.external for entry in group.files()):
            return False
        if DEFAULT_PARTITION in group.partition:
            return False
        return predicates.statistics_prove_match(
            self._tree, self._column_ranges(group.partition, _files_with_rows(group))
        )

    def _column_ranges(self, partition: str, files: Sequence[DataFile]) -> dict[str, ColumnRange]:
        config, rows = self._config, sum(file.rows for file in files)
        stats = [config.resolution(file).convert_statistics(file.stats, file.rows) for file in files]
        full = [file_stats for file_stats, file in zip(stats, files, strict=True) if not file.partial]
        partial = [file_stats for file_stats, file in zip(stats, files, strict=True) if file.partial]
        combined = (
            statistics.combine_statistics(full, config.schema, partial)
            if full
            else statistics.combine_statistics(partial, config.schema)
        )
        ranges = typed_column_ranges(combined, rows, config.schema)
        return ranges | {
            name: _intersect_ranges(ranges[name], combined)
            if name in ranges and name not in config.partition_by
            else combined
            for name, combined in self._ranges_from_folder(partition, rows).items()
        }

    def _ranges_from_folder(self, partition: str, rows: int) -> dict[str, ColumnRange]:
        # The default partition restricts no column, because it contains both nulls and empty strings.
        values = {name: value for name, value in self._partition_values(partition).items() if value is not None}
        ranges: dict[str, ColumnRange] = {}
        for name, transform in self._transforms.items():
            if name in values:
                kind = self._config.schema.field(transform.column).type
                value_range = ColumnRange(*transforms.range_of_partition(transform, values[name], kind), 0, rows)
                ranges[transform.column] = (
                    _intersect_ranges(ranges[transform.column], value_range)
                    if transform.column in ranges
                    else value_range
                )
        return ranges | {name: ColumnRange(value, value, 0, rows) for name, value in values.items()}

    def _partition_values(self, partition: str) -> dict[str, Any]:
        config = self._config
        if not config.folders_contain_partition_values:
            return {}
        try:
            return parse_partition_values(
                partition, config.partition_by, config.schema, config.hive_style, config.url_encode
            )
        except CorruptTable:
            if config.table_id:
                raise
            return {}  # a folder of another engine: a value with slashes, or a different encoding


def _intersect_ranges(first: ColumnRange, second: ColumnRange) -> ColumnRange:
    least = [bound for bound in (first.min, second.min) if bound is not None]
    greatest = [bound for bound in (first.max, second.max) if bound is not None]
    return second._replace(min=max(least, default=None), max=min(greatest, default=None))


def _add_bucket_conditions(
    tree: Predicate, transforms_by_name: Mapping[str, Transform], config: TableConfig
) -> Predicate:
    def with_bucket(leaf: Compare | In, values: Sequence[Any]) -> Predicate:
        parts: list[Predicate] = [leaf]
        for bucket_column, transform in transforms_by_name.items():
            if transform.kind == BUCKET and transform.column == leaf.column:
                buckets = tuple(sorted({transforms.value(transform, value, leaf.type) for value in values}))
                parts.append(In(bucket_column, buckets, config.schema.field(bucket_column).type))
        return And(tuple(parts)) if len(parts) > 1 else leaf

    match tree:
        case Compare(op="=", value=value):
            return with_bucket(tree, [value])
        case In(values=values):
            return with_bucket(tree, values)
        case And(parts) | Or(parts):
            return replace(
                tree, parts=tuple(_add_bucket_conditions(part, transforms_by_name, config) for part in parts)
            )
        case Not(part):
            return Not(_add_bucket_conditions(part, transforms_by_name, config))
    return tree


def _has_live_rows(file: DataFile) -> bool:
    return bool(file.rows and (file.kind == BASE or file.updates))


def _files_with_rows(group: FileGroup) -> list[DataFile]:
    return [entry.file for entry in group.files() if _has_live_rows(entry.file)]
