"""Partial upserts, which write only some columns.

It is a merge whose clauses follow from a merge mode. The batch's columns, or the values that the mode accepts, replace
stored values. All other stored values stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import ColumnError, OrderingError
from hoodoo.format.names import IS_DELETED, PARTITION_PATH, RECORD_KEY
from hoodoo.format.rows import take_rows
from hoodoo.index.key_index import KeyIndex
from hoodoo.merge.kernels import dense_codes, repeated
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.readers.lookup import look_up
from hoodoo.readers.predicate import checks
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.batches.column_alignment import default_value_of
from hoodoo.writers.batches.computed import NewValues
from hoodoo.writers.batches.deduplicate import DeduplicatedBatch, MergeRows, merge_duplicate_keys
from hoodoo.writers.batches.partial_columns import fitted
from hoodoo.writers.batches.write_options import NewKeys
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.merging.clauses import SOURCE, TARGET, Clause, Kind, both
from hoodoo.writers.merging.merge import plan_in_memory
from hoodoo.writers.merging.merge_routing import MergeRules, PartialUpdate
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.operations import commit_write
from hoodoo.writers.routing.write_plan import WritePlan

_ANEW = "#anew"
"""Column that marks rows after a delete of their key, with a name that tables cannot have."""


@dataclass(frozen=True)
class PartialUpsert:
    """Partial upsert, which writes only some columns.

    Attributes:
        new_keys: Handling of rows whose key is not in the table.
        mode: The merge mode, which determines the values that replace stored values.
        compares: True if keys are compared before rows are routed; see `MergeRules`.
    """

    new_keys: NewKeys
    mode: MergeMode
    compares: bool


class PartialRows(Protocol):
    """Rows of a partial upsert.

    The rows have the key, partition and ordering columns, and the columns that change.
    """

    def plan(self, context: Context, view: View, config: TableConfig, how: PartialUpsert) -> WritePlan:
        """Plan an upsert of some columns.

        Args:
            context: The context of the write.
            view: The view of the table to plan on.
            config: The table's configuration at `view`.
            how: The rules of the partial upsert.
        """


def partial_upsert(
    context: Context,
    rows: PartialRows,
    new_keys: NewKeys,
    mode: MergeMode = REPLACES,
    transaction: ApplicationVersion | None = None,
) -> Committed:
    def propose(view: View, config: TableConfig, compares: bool = False) -> WritePlan:
        return rows.plan(context, view, config, PartialUpsert(new_keys, mode, compares))

    return commit_write(context, "UPSERT", propose, transaction, comparing=partial(propose, compares=True))


@dataclass(frozen=True)
class PartialRowsInMemory:
    batch: Batch

    def plan(self, context: Context, view: View, config: TableConfig, how: PartialUpsert) -> WritePlan:
        rows = one_per_key(context.store, context.index, self.batch, view, config, how.mode)
        flags = {"deletes": bool(rows.batch.delete.any()), "anew": bool(rows.anew.any())}
        rules = convert_to_merge_rules(rows.batch.rows.schema.names, config, how, **flags)
        plan = plan_in_memory(context, view, rules, as_merge_source(rows))
        return replace(plan, stale=plan.stale + rows.batch.stale)


def one_per_key(
    store: Store, index: KeyIndex, batch: Batch, view: View, config: TableConfig, mode: MergeMode
) -> DeduplicatedBatch:
    current_batch = fitted(batch, config)
    _require_ordering_sent(current_batch, config, mode)
    without_stale = _drop_stale_rows(store, index, current_batch, view, config)
    return merge_duplicate_keys(without_stale, config, mode, _batch_merge_function(config, mode))


def _require_ordering_sent(batch: Batch, config: TableConfig, mode: MergeMode) -> None:
    for name in config.merge_policy.order_by:
        unknown = np.flatnonzero(mode.find_unsent_values(batch.rows[name]) & ~batch.delete)
        if len(unknown):
            key = printable({part: batch.rows[part][int(unknown[0])].as_py() for part in config.key})
            raise OrderingError(
                f"Ordering column {name!r} was not sent for the key {key}: its value is "
                f"{printable(mode.unavailable)}. The ordering value decides which version of the key is newer. "
                "Send the value.",
                column=name,
                key=key,
            )


def _drop_stale_rows(store: Store, index: KeyIndex, batch: Batch, view: View, config: TableConfig) -> Batch:
    # Stale rows must not contribute to the merged row of a key. If all batch rows of a key are stale, the merge drops
    # their result later.
    order_by, suspects = config.merge_policy.order_by, repeated(batch.hashes)
    if not order_by or not len(suspects):
        return batch
    duplicates = batch.take(suspects)
    wanted_keys = replace(duplicates.keys, texts=duplicates.rows[RECORD_KEY].combine_chunks())
    stored = look_up(store, config, index, view, wanted_keys, [*order_by, PARTITION_PATH])
    paths, keys = (stored[name].combine_chunks() for name in (PARTITION_PATH, RECORD_KEY))
    partner = pc.index_in(duplicates.identities, value_set=pc.binary_join_element_wise(paths, keys, "\0"))
    matched = np.flatnonzero(partner.is_valid())
    stale = np.zeros(len(duplicates), bool)
    stale[matched] = ~config.merge_policy.mask_of_winning_rows(
        take_rows(duplicates.rows, matched), take_rows(stored, partner.drop_null().to_numpy())
    )
    key = dense_codes(pa.chunked_array([duplicates.identities]))
    stale &= np.bincount(key, ~stale)[key] > 0
    if not stale.any():
        return batch
    kept = np.setdiff1d(np.arange(len(batch)), suspects[stale], assume_unique=True)
    return replace(batch.take(kept), stale=batch.stale + int(stale.sum()))


def _batch_merge_function(config: TableConfig, mode: MergeMode) -> MergeRows | None:
    if mode.custom is None:
        return None
    values = NewValues(config, {}, merging=mode.custom)

    def merge_rows(older: pa.Table, newer: pa.Table) -> pa.Table:
        new_values = values.values(older, both(newer, older))
        columns = {name: new_values.get(name, older[name]) for name in older.schema.names}
        return pa.table(columns)

    return merge_rows


def as_merge_source(rows: DeduplicatedBatch) -> MergeSource:
    table = rows.batch.rows.select(
        [name for name in rows.batch.rows.schema.names if name not in (RECORD_KEY, IS_DELETED)]
    )
    table = table.append_column(IS_DELETED, pa.array(rows.batch.delete))
    return MergeSource(table.append_column(_ANEW, pa.array(rows.anew)), rows.batch)


def convert_to_merge_rules(
    names: Sequence[str], config: TableConfig, how: PartialUpsert, deletes: bool = True, anew: bool = True
) -> MergeRules:
    """Convert an upsert to the rules of a merge.

    Args:
        names: The columns of the batch.
        config: The table's configuration.
        how: The rules of the partial upsert.
        deletes: True if rows may be deletes.
        anew: True if rows may follow a delete of their key.
    """
    mode = how.mode
    fixed = {RECORD_KEY, *config.key, *config.partition_by}
    changing = [name for name in names if name not in fixed]
    new_columns = {name: _NewRowColumn(name, mode, config.key) for name in changing}
    other_columns = [column for column in config.columns.columns if column.name not in {*fixed, *changing}]
    defaults = {column.name: pa.scalar(default_value_of(column), column.arrow) for column in other_columns}
    is_upsert = _IsUpsert() if deletes else None
    clauses = []
    if anew:
        clauses.append(Clause(Kind.MATCHED, _IsUpsert(anew=True), NewValues(config, new_columns | defaults), True))
    if mode.custom is not None:
        clauses.append(Clause(Kind.MATCHED, is_upsert, NewValues(config, {}, merging=mode.custom), True))
    else:
        clauses.append(
            Clause(
                Kind.MATCHED, is_upsert, NewValues(config, {name: _MergedColumn(name, mode) for name in changing}), True
            )
        )
    if is_upsert:
        clauses.append(Clause(Kind.MATCHED, None, None, by_order=True))
    if how.new_keys is NewKeys.INSERT:
        clauses.append(Clause(Kind.NOT_MATCHED, is_upsert, NewValues(config, new_columns)))
    partial = None if deletes else _partial_log_update(changing, config, mode)
    return MergeRules(config, tuple(clauses), how.new_keys, how.compares, partial)


def _partial_log_update(changing: Sequence[str], config: TableConfig, mode: MergeMode) -> PartialUpdate | None:
    # Whole rows are logged if the mode may keep stored values, or if the batch sets all columns. If the table has
    # checks, stored rows have to be read, because checks need whole rows.
    if not config.logs_partial_rows or not mode.replaces_rows:
        return None
    sets = tuple(name for name in config.schema.names if name in changing)
    if not sets or len(sets) == len(set(config.schema.names) - {*config.key, *config.partition_by}):
        return None
    return PartialUpdate(sets, reads=bool(checks.load_checks(config)))


@dataclass(frozen=True)
class _MergedColumn:
    name: str
    mode: MergeMode

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        newer = rows[f"{SOURCE}.{self.name}"]
        counts = self.mode.counts(newer)
        if counts.all():
            return newer
        both_versions = pa.chunked_array([*rows[f"{TARGET}.{self.name}"].chunks, *newer.chunks], newer.type)
        return both_versions.take(pa.array(np.arange(len(rows)) + len(rows) * counts))


@dataclass(frozen=True)
class _NewRowColumn:
    name: str
    mode: MergeMode
    key: tuple[str, ...]

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        newer = rows[f"{SOURCE}.{self.name}"]
        unknown = np.flatnonzero(self.mode.find_unsent_values(newer))
        if len(unknown):
            row = int(unknown[0])
            key = printable({name: rows[f"{SOURCE}.{name}"][row].as_py() for name in self.key})
            raise ColumnError(
                f"Column {self.name!r} was not sent for the key {key}: its value is "
                f"{printable(self.mode.unavailable)}. This key is not in the table. Send the whole row, or "
                "skip new keys with new_keys='ignore'.",
                column=self.name,
                key=key,
            )
        return newer


@dataclass(frozen=True)
class _IsUpsert:
    # With `anew`, a row must also follow a delete of its key.

    anew: bool = False

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        stays = pc.invert(rows[f"{SOURCE}.{IS_DELETED}"])
        return pc.and_(stays, rows[f"{SOURCE}.{_ANEW}"]) if self.anew else stays


__all__ = [
    "PartialRowsInMemory",
    "PartialRows",
    "PartialUpsert",
    "one_per_key",
    "partial_upsert",
    "convert_to_merge_rules",
    "as_merge_source",
]
