"""Rows and arguments given by callers of a write.

This module does not commit anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import Transaction, check_allowed_value, check_flag, convert_transaction
from hoodoo.readers.cursor import PositionLike
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, separate_bad_rows
from hoodoo.writers.batches.column_alignment import FAIL, NULL
from hoodoo.writers.batches.input import ArrowLike, to_arrow
from hoodoo.writers.batches.partial_columns import (
    chosen,
    is_taken,
    select_columns,
)
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions, limits_of
from hoodoo.writers.sources import InMemoryBatch, Source

if TYPE_CHECKING:
    from hoodoo.readers.predicate.checks import Check
    from hoodoo.writers.merging.partial_upsert import PartialRows


def convert_write_arguments(
    duplicates: str,
    missing: str,
    evolve: bool,
    on_bad_rows: str | BadRowLimits,
    transaction: Transaction | None,
    if_head: PositionLike | None = None,
) -> WriteOptions:
    """Convert the arguments of a write to WriteOptions."""
    check_allowed_value("duplicates", duplicates, ("newest", "fail"))
    check_allowed_value("missing", missing, (FAIL, NULL))
    limits, version = limits_of(on_bad_rows), convert_transaction(transaction)
    return WriteOptions(False, duplicates, missing, check_flag("evolve", evolve), limits, version, if_head)


def is_without_partition(frame: Any, config: TableConfig) -> bool:
    """Return whether keys to delete lack partition columns.

    This is the case if the table is partitioned, and the frame has each key column once but no partition column, except
    partition columns that are derived from the key.
    """
    from hoodoo.table.keys_given import PartitionColumns

    there = list(frame.columns)
    keyed = all(there.count(name) == 1 for name in config.key)
    told = PartitionColumns.by(there, config)
    return bool(config.partition_by) and keyed and not (told.wholly or told.partly)


def use_current_names(options: WriteOptions, config: TableConfig) -> WriteOptions:
    """Replace original column names in write options."""
    return replace(options, columns=config.name_mapping.names(options.columns)) if config.name_mapping else options


def as_arrow(data: ArrowLike, config: TableConfig, options: WriteOptions) -> pa.Table:
    options = use_current_names(options, config)

    def whole(name: str) -> bool:  # whether a missing value must not be read as null
        name = config.name_mapping.taken.name(name)
        if options.columns is not None and not is_taken(name, config, options.columns):
            return False
        column = config.columns.by_name.get(name)
        return options.missing == FAIL or column is not None and column.has_default

    return to_arrow(data, config.name_mapping.hints(config.schema), whole)


def get_checks(options: WriteOptions, config: TableConfig) -> tuple[Check, ...]:
    """Return the checks that written rows must satisfy."""
    return () if options.delete else row_checks.load_checks(config)


def as_partial(source: Source) -> PartialRows:
    from hoodoo.writers.merging.partial_upsert import PartialRowsInMemory

    if isinstance(source, InMemoryBatch):
        return PartialRowsInMemory(source.batch)
    from hoodoo.writers.staging.staged_merge import PartialRowsStaged
    from hoodoo.writers.staging.staged_rows import StagedSource

    assert isinstance(source, StagedSource)
    return PartialRowsStaged(source)


def separate_rows(given: pa.Table, config: TableConfig, options: WriteOptions) -> tuple[InMemoryBatch, BadRows]:
    """Separate bad rows from valid rows.

    The batch has the columns of `config`. With the option `evolve`, it also has the columns that the write adds.
    """
    given, options = config.name_mapping.rows(given), use_current_names(options, config)
    if options.columns is not None:
        given = chosen(given, config, options.columns)
    evolution = None
    if options.evolve:
        from hoodoo.writers.batches.evolution import find_changes_for_rows

        evolution = find_changes_for_rows(given, config)
    changed = evolution.of(config) if evolution else config
    wanted, checks = select_columns(given.schema, changed, options, get_checks(options, config))
    batch, bad = separate_bad_rows(given, wanted, options, checks, config.columns.last)
    return InMemoryBatch(batch, checks, evolution=evolution), bad
