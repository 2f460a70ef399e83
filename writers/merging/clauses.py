"""Clauses of a merge: which pairs, new rows or stored rows they mean, and what becomes of those. Knows rows, no file.

A clause means rows of one of three kinds: pairs of a source row and the stored row of its key, source rows without a
stored row, and stored rows without a source row. Of the clauses of a kind the first one whose condition is true counts.
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
    """Which rows a clause means."""

    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    NOT_MATCHED_BY_SOURCE = "when_not_matched_by_source"


class Truth(Protocol):
    """A condition: an SQL expression, or what a write knows of its rows."""

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return a boolean for each of `rows`, or nulls."""


@dataclass(frozen=True)
class Clause:
    """A clause whose arguments were checked.

    Attributes:
        kind: Which rows it means.
        condition: What has to be true besides. None: nothing.
        values: What the rows get. None: they are deleted.
        by_order: True if it does not mean pairs in which the source row has the smaller ordering value.
    """

    kind: Kind
    condition: Truth | None
    values: NewValues | None
    by_order: bool = False


def first_that_means(clauses: Sequence[Clause], seen: pa.Table) -> np.ndarray:
    """Return for each row of `seen` the index of the first clause whose condition is true, -1 where none is."""
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
    """Return rows that expressions see: the columns of both, each called by its row and its name."""
    sides = ((SOURCE, source), (TARGET, target))
    columns = {f"{side}.{name}": rows[name] for side, rows in sides if rows is not None for name in rows.schema.names}
    return pa.table(columns)


def seen_schema(source: pa.Schema | None, target: pa.Schema | None) -> pa.Schema:
    """Return the schema of `both`."""
    sides = ((SOURCE, source), (TARGET, target))
    known = [(side, field) for side, schema in sides if schema is not None for field in schema]
    return pa.schema([field.with_name(f"{side}.{field.name}") for side, field in known])
