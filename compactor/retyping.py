"""Retyping of columns: check of stored values before a type change.

The check reads the columns of each file group before anything is written. format/retype.py defines the conversions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.retype import retype_values
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.slices import slices
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.batches.value_validation import find_bad_positions
from hoodoo.writers.context import Context

_COUNTED = 1_000  # maximum number of inconvertible values that are counted in a file group


@dataclass(frozen=True)
class UnconvertibleValues:
    """Values that cannot be converted to a new column type.

    They are in one column of one file group. `value` and `key` describe the first such value. `more` is True if there
    are more than `count` such values.
    """

    column: str
    value: Any
    key: str
    count: int
    more: bool


@dataclass(frozen=True)
class ConversionCheckTask:
    """Picklable task that checks values before a type change.

    Attributes:
        store: The table's store.
        config: The table's configuration before the change.
        group: The file group.
        kinds: The new type of each column whose type changes.
    """

    store: Store
    config: TableConfig
    group: FileGroup
    kinds: Mapping[str, pa.DataType]

    def __call__(self) -> list[UnconvertibleValues]:
        schema = slices.schema_of(self.config, [RECORD_KEY, *self.kinds])
        rows = slices.read_file_slice(self.store, self.config, self.group, schema)
        return [unfit for name, kind in self.kinds.items() if (unfit := self._unfit(rows, name, kind)) is not None]

    def _unfit(self, rows: pa.Table, name: str, kind: pa.DataType) -> UnconvertibleValues | None:
        values = rows[name]

        def fits(low: int, high: int) -> bool:
            try:
                retype_values(values.slice(low, high - low), kind)
            except pa.ArrowInvalid:
                return False
            return True

        bad = find_bad_positions(len(values), fits, _COUNTED)
        if not bad:
            return None
        key = str(rows[RECORD_KEY][bad[0]].as_py())
        return UnconvertibleValues(name, values[bad[0]].as_py(), key, min(len(bad), _COUNTED), len(bad) > _COUNTED)


def find_unconvertible_values(task: ConversionCheckTask) -> list[UnconvertibleValues]:
    return task()


def find_lossy_type_changes(before: TableSchema, after: TableSchema) -> dict[str, pa.DataType]:
    """Find columns with a lossy type change.

    Their new type cannot represent every value of the old type. The columns have their old names.
    """
    types: dict[str, pa.DataType] = {}
    for column in before.columns:
        new_column = after.by_id.get(column.id)
        if new_column is not None and new_column.kind != column.kind and str(column.kind) in new_column.retyped:
            types[column.name] = new_column.arrow
    return types


def require_convertible_values(
    context: Context, state: TableState, groups: Sequence[FileGroup], kinds: Mapping[str, pa.DataType]
) -> None:
    """Require that stored values can be converted to new column types.

    Raises SchemaError if a value cannot be converted. The error contains the first such value, its key and the number
    of such values.
    """
    tasks = [ConversionCheckTask(context.store, state.config, group, kinds) for group in groups]
    all_unfit = [unfit for task_unfit in context.engine.map(find_unconvertible_values, tasks) for unfit in task_unfit]
    if not all_unfit:
        return
    first = all_unfit[0]
    same_column = [unfit for unfit in all_unfit if unfit.column == first.column]
    count, has_more = sum(unfit.count for unfit in same_column), any(unfit.more for unfit in same_column)
    old_type = state.config.schema.field(first.column).type
    raise SchemaError(
        f"Column {first.column!r} of type {old_type} cannot be converted to {kinds[first.column]}: "
        f"{'more than ' if has_more else ''}{count:,} stored {'value does' if count == 1 else 'values do'} not "
        f"match that type. The first is {printable(first.value)}, of key {printable(first.key)}. Nothing was "
        "changed. Correct these values with update() first, or add another column.",
        column=first.column,
        key=first.key,
        count=count,
    )


__all__ = [
    "ConversionCheckTask",
    "UnconvertibleValues",
    "require_convertible_values",
    "find_lossy_type_changes",
    "find_unconvertible_values",
]
