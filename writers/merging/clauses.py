"""Clauses of SQL MERGE INTO.

A clause applies to one of three kinds of rows: pairs of a source row and the stored row with its key, source rows
without a stored row, and stored rows without a source row. For each row, the first clause of its kind whose condition
is true takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa

from hoodoo.writers.batches.computed import NEWER, NewValues

SOURCE, TARGET = NEWER, "target"


class Kind(StrEnum):
    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    NOT_MATCHED_BY_SOURCE = "when_not_matched_by_source"


class ClauseCondition(Protocol):
    """Condition of a merge clause, which is true or false per row."""

    def values(self, rows: pa.Table) -> pa.ChunkedArray: ...


@dataclass(frozen=True)
class Clause:
    """Clause of a merge.

    Attributes:
        kind: The kind of rows that the clause applies to.
        condition: An additional condition, or None for all rows of the kind.
        values: The new values of the rows, or None to delete the rows.
        by_order: True if the clause skips pairs whose source row has a smaller ordering value than the stored row.
    """

    kind: Kind
    condition: ClauseCondition | None
    values: NewValues | None
    by_order: bool = False


def first_true_clause(clauses: Sequence[Clause], seen: pa.Table) -> np.ndarray:
    chosen = np.full(len(seen), -1, np.int64)
    for index, clause in enumerate(clauses):
        left = np.flatnonzero(chosen < 0)
        if not len(left):
            break
        if clause.condition is None:
            chosen[left] = index
            break
        truth = clause.condition.values(seen.take(pa.array(left))).combine_chunks()
        if not pa.types.is_null(truth.type):
            chosen[left[truth.fill_null(False).to_numpy(zero_copy_only=False)]] = index
    return chosen


def both(source: pa.Table | None, target: pa.Table | None) -> pa.Table:
    sides = ((SOURCE, source), (TARGET, target))
    columns = {f"{side}.{name}": rows[name] for side, rows in sides if rows is not None for name in rows.schema.names}
    return pa.table(columns)


def seen_schema(source: pa.Schema | None, target: pa.Schema | None) -> pa.Schema:
    sides = ((SOURCE, source), (TARGET, target))
    fields = [(side, field) for side, schema in sides if schema is not None for field in schema]
    return pa.schema([field.with_name(f"{side}.{field.name}") for side, field in fields])
