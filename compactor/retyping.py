"""Whether the stored values of columns that get another type are exactly values of that type.

Reads the columns file group by file group, before anything is written; what a value of another type is, says
format/retype.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.retype import retyped
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.slices import slices
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.batches.value_validation import every_bad
from hoodoo.writers.context import Context

_COUNTED = 1_000  # values of a file group that do not fit, and are counted one by one


@dataclass(frozen=True)
class Unfit:
    """Values of a column that are none of its new type. more: there are further ones."""

    column: str
    value: Any
    key: str
    count: int
    more: bool


@dataclass(frozen=True)
class FitTask:
    """Looks for values of one file group that do not fit; it pickles.

    Attributes:
        store: The table's store.
        config: The table as it is.
        group: The file group.
        kinds: The new type of each column that gets one.
    """

    store: Store
    config: TableConfig
    group: FileGroup
    kinds: Mapping[str, pa.DataType]

    def __call__(self) -> list[Unfit]:
        """Read the columns, and look."""
        wanted = slices.schema_of(self.config, [RECORD_KEY, *self.kinds])
        rows = slices.read_slice(self.store, self.config, self.group, wanted)
        return [found for name, kind in self.kinds.items() if (found := self._unfit(rows, name, kind)) is not None]

    def _unfit(self, rows: pa.Table, name: str, kind: pa.DataType) -> Unfit | None:
        values = rows[name]

        def fits(low: int, high: int) -> bool:
            try:
                retyped(values.slice(low, high - low), kind)
            except pa.ArrowInvalid:
                return False
            return True

        bad = every_bad(len(values), fits, _COUNTED)
        if not bad:
            return None
        key = str(rows[RECORD_KEY][bad[0]].as_py())
        return Unfit(name, values[bad[0]].as_py(), key, min(len(bad), _COUNTED), len(bad) > _COUNTED)


def run_fit(task: FitTask) -> list[Unfit]:
    """Run a task, for an engine."""
    return task()


def retyped_columns(before: TableSchema, after: TableSchema) -> dict[str, pa.DataType]:
    """Return the columns, by their names before, that get a type which has not all values of the present one."""
    found: dict[str, pa.DataType] = {}
    for column in before.columns:
        now = after.by_id.get(column.id)
        if now is not None and now.kind != column.kind and str(column.kind) in now.retyped:
            found[column.name] = now.arrow
    return found


def require_fit(
    context: Context, state: TableState, groups: Sequence[FileGroup], kinds: Mapping[str, pa.DataType]
) -> None:
    """Raise SchemaError, naming the first value, its key and how many there are, unless all values fit."""
    tasks = [FitTask(context.store, state.config, group, kinds) for group in groups]
    found = [one for some in context.engine.map(run_fit, tasks) for one in some]
    if not found:
        return
    first = found[0]
    alike = [one for one in found if one.column == first.column]
    count, more = sum(one.count for one in alike), any(one.more for one in alike)
    was = state.config.schema.field(first.column).type
    raise SchemaError(
        f"Column {first.column!r} is {was} and cannot become {kinds[first.column]}: "
        f"{'more than ' if more else ''}{count:,} stored {'value is' if count == 1 else 'values are'} none of that "
        f"type; the first is {printable(first.value)}, of key {printable(first.key)}. Nothing was changed. Correct "
        "them by update() first, or add another column.",
        column=first.column,
        key=first.key,
        count=count,
    )


__all__ = ["FitTask", "Unfit", "require_fit", "retyped_columns", "run_fit"]
