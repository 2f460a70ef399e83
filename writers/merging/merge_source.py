"""Source rows of a merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, DuplicateKeys
from hoodoo.format.known_types import remove_unknown_parts
from hoodoo.format.names import RECORD_KEY
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.arrow_layouts import plain_type
from hoodoo.writers.batches.batch import Batch, prepare_batch, smallest_keys
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.generated_columns import with_missing_partitions
from hoodoo.writers.batches.value_validation import validate_columns
from hoodoo.writers.batches.write_options import WriteOptions


@dataclass(frozen=True)
class MergeSource:
    """Source rows of a merge and their keys.

    Attributes:
        rows: The input rows, one per key.
        keys: The keys of the rows, in the order of the rows.
    """

    rows: pa.Table
    keys: Batch

    @staticmethod
    def of(rows: pa.Table, config: TableConfig, zone: str = "") -> MergeSource:
        keys = prepare_batch(rows, config, WriteOptions(delete=True, duplicates="first", zone=zone))
        if len(keys) < len(rows):
            raise duplicate_source_keys_error(_repeated_keys(rows, config))
        return MergeSource(rows, keys)


def convert_source_columns(rows: pa.Table, config: TableConfig) -> pa.Table:
    """Convert the columns of a merge source.

    A column that contains only nulls gets the type of the table's column. If the table has no such column, it becomes a
    string column.

    Args:
        rows: The input rows.
        config: The configuration of the table.

    Raises:
        ColumnError: A column occurs more than once, or has an invalid value.
    """
    names = rows.schema.names
    if duplicate := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ColumnError(
            f"The source has column {duplicate!r} more than once. Rename or drop one of them.", column=duplicate
        )
    sound = validate_columns(rows, names, ())
    plain = [cast_column(sound[field.name], field.with_type(_source_type(field, config))) for field in rows.schema]
    return pa.table(plain, names=names)


def _source_type(field: pa.Field, config: TableConfig) -> pa.DataType:
    if remove_unknown_parts(field.type) is not None:
        return plain_type(field.type)
    column = config.columns.by_name.get(field.name)
    return column.arrow if column else pa.string() if pa.types.is_null(field.type) else plain_type(field.type)


def duplicate_source_keys_error(keys: Sequence[str]) -> DuplicateKeys:
    return DuplicateKeys(
        f"The source contains keys more than once: {', '.join(map(printable, keys))}: expected each key once. Remove "
        "the duplicates.",
        keys=list(keys),
    )


def _repeated_keys(rows: pa.Table, config: TableConfig) -> list[str]:
    columns = list(dict.fromkeys((*config.key, *config.partition_by)))
    counted = with_missing_partitions(rows, config).select(columns).group_by(columns).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted["count_all"], 1))
    duplicates = prepare_batch(repeated.select(columns), config, WriteOptions(delete=True)).rows[RECORD_KEY]
    return smallest_keys(duplicates)


__all__ = ["MergeSource", "duplicate_source_keys_error", "convert_source_columns"]
