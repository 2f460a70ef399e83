"""Commits an upsert of some columns: a merge in which the columns of the batch replace stored values, and all other
columns keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import IS_DELETED, RECORD_KEY
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.batches.computed import CopiedColumn, NewValues
from hoodoo.writers.batches.partial_columns import fitted
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import SOURCE, Clause, Kind
from hoodoo.writers.merging.merge import MergeSource, NewKeys, proposed
from hoodoo.writers.operations import Committed, commit
from hoodoo.writers.routing.write_plan import WritePlan

_FLAG = f"{SOURCE}.{IS_DELETED}"


def partial_upsert(
    context: Context, batch: Batch, new_keys: NewKeys, transaction: tuple[str, int] | None = None
) -> Committed:
    """Give stored rows the values of a batch that brings some of the columns.

    Args:
        context: What the write works with.
        batch: Rows with the key, partition and ordering columns and those that change.
        new_keys: What becomes of rows whose key the table does not have.
        transaction: Application name and version.
    """

    def propose(view: View, config: TableConfig) -> WritePlan:
        rows = fitted(batch, config)
        plan = proposed(context, _source(rows), view, config, _clauses(rows, config, new_keys), new_keys)
        return replace(plan, stale=plan.stale + rows.stale)

    return commit(context, "UPSERT", propose, transaction)


def _source(batch: Batch) -> MergeSource:
    """The batch as a merge takes it: the flag that deletes rows is a column."""
    return MergeSource(batch.rows.drop_columns([RECORD_KEY]).append_column(IS_DELETED, pa.array(batch.delete)), batch)


def _clauses(batch: Batch, config: TableConfig, new_keys: NewKeys) -> list[Clause]:
    fixed = {RECORD_KEY, *config.key, *config.partition_by}
    values: Mapping[str, CopiedColumn] = {
        name: CopiedColumn(f"{SOURCE}.{name}") for name in batch.rows.schema.names if name not in fixed
    }
    stays = _Stays() if batch.delete.any() else None
    clauses = [Clause(Kind.MATCHED, stays, NewValues(config, values))]
    if stays:
        clauses.append(Clause(Kind.MATCHED, None, None, by_order=True))
    if new_keys is NewKeys.INSERT:
        clauses.append(Clause(Kind.NOT_MATCHED, stays, NewValues(config, values)))
    return clauses


@dataclass(frozen=True)
class _Stays:
    """True of the rows that are not flagged as deleted."""

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the truth for each of `rows`."""
        return pc.invert(rows[_FLAG])


__all__ = ["partial_upsert"]
