"""Arguments and input rows of writes.

This module does not commit anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import Transaction, application_version, flag, one_of
from hoodoo.readers.cursor import PositionLike
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import BadRows, sifted
from hoodoo.writers.batches.column_alignment import FAIL, NULL
from hoodoo.writers.batches.input import ArrowLike, to_arrow
from hoodoo.writers.batches.partial_columns import (
    asked,
    chosen,
    is_taken,
)
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions, limits_of
from hoodoo.writers.sources import InProcess, Source

if TYPE_CHECKING:
    from hoodoo.readers.predicate.checks import Check
    from hoodoo.writers.merging.partial_upsert import PartialRows


def options_of(
    duplicates: str,
    missing: str,
    evolve: bool,
    on_bad_rows: str | BadRowLimits,
    transaction: Transaction | None,
    if_head: PositionLike | None = None,
) -> WriteOptions:
    """Convert the arguments of a write to WriteOptions."""
    one_of("duplicates", duplicates, ("newest", "fail"))
    one_of("missing", missing, (FAIL, NULL))
    limits, version = limits_of(on_bad_rows), application_version(transaction)
    return WriteOptions(False, duplicates, missing, flag("evolve", evolve), limits, version, if_head)


def is_without_partition(frame: Any, config: TableConfig) -> bool:
    """Return whether keys to delete lack partition columns.

    This is the case if the table is partitioned, and the frame has each key column once but no partition column, except
    partition columns that are derived from the key.
    """
    from hoodoo.table.keys_given import PartitionsGiven

    there = list(frame.columns)
    keyed = all(there.count(name) == 1 for name in config.key)
    told = PartitionsGiven.by(there, config)
    return bool(config.partition_by) and keyed and not (told.wholly or told.partly)


def with_current_names(options: WriteOptions, config: TableConfig) -> WriteOptions:
    """Replace original column names in write options."""
    return replace(options, columns=config.name_mapping.names(options.columns)) if config.name_mapping else options


def as_arrow(data: ArrowLike, config: TableConfig, options: WriteOptions) -> pa.Table:
    options = with_current_names(options, config)

    def whole(name: str) -> bool:  # whether a missing value must not be read as null
        name = config.name_mapping.taken.name(name)
        if options.columns is not None and not is_taken(name, config, options.columns):
            return False
        column = config.columns.by_name.get(name)
        return options.missing == FAIL or column is not None and column.has_default

    return to_arrow(data, config.name_mapping.hints(config.schema), whole)


def checks_of(options: WriteOptions, config: TableConfig) -> tuple[Check, ...]:
    """Return the checks that written rows must satisfy."""
    return () if options.delete else row_checks.of(config)


def as_partial(source: Source) -> PartialRows:
    from hoodoo.writers.merging.partial_upsert import PartialRowsInMemory

    if isinstance(source, InProcess):
        return PartialRowsInMemory(source.batch)
    from hoodoo.writers.staging.staged_merge import PartialRowsStaged
    from hoodoo.writers.staging.staged_rows import StagedSource

    assert isinstance(source, StagedSource)
    return PartialRowsStaged(source)


def prepared(given: pa.Table, config: TableConfig, options: WriteOptions) -> tuple[InProcess, BadRows]:
    """Separate valid rows from bad rows.

    The batch has the columns of `config`. With the option `evolve`, it also has the columns that the write adds.
    """
    given, options = config.name_mapping.rows(given), with_current_names(options, config)
    if options.columns is not None:
        given = chosen(given, config, options.columns)
    evolution = None
    if options.evolve:
        from hoodoo.writers.batches.evolution import of_rows

        evolution = of_rows(given, config)
    changed = evolution.of(config) if evolution else config
    wanted, checks = asked(given.schema, changed, options, checks_of(options, config))
    batch, bad = sifted(given, wanted, options, checks, config.columns.last)
    return InProcess(batch, checks, evolution=evolution), bad
