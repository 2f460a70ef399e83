"""Preparation of a write: checks its arguments, and converts its rows to Arrow with the table's names and types.

This module does not commit anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import Transaction, application_version, flag, number_from, one_of
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
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions
from hoodoo.writers.sources import InProcess, Source

if TYPE_CHECKING:
    from hoodoo.readers.predicate.checks import Check
    from hoodoo.writers.merging.partial_upsert import PartialRows


def bad_row_limits(on_bad_rows: str, max_bad_rows: int, max_bad_share: float) -> BadRowLimits | None:
    """Check the arguments of a write that control bad rows, and return their limits.

    Returns:
        The limits on bad rows that go to the quarantine, or None if a single bad row makes the whole write fail.

    Raises:
        OptionError: An argument has an invalid value.
    """
    one_of("on_bad_rows", on_bad_rows, ("fail", "quarantine"))
    rows = number_from("max_bad_rows", max_bad_rows, 0, whole=True, optional=False)
    share = number_from("max_bad_share", max_bad_share, 0, optional=False)
    return BadRowLimits(rows, share) if on_bad_rows == "quarantine" else None


def options_of(
    duplicates: str, missing: str, evolve: bool, limits: BadRowLimits | None, transaction: Transaction | None
) -> WriteOptions:
    """Check the arguments that all write methods accept, and return them as WriteOptions. Raises OptionError."""
    one_of("duplicates", duplicates, ("newest", "fail"))
    one_of("missing", missing, (FAIL, NULL))
    return WriteOptions(False, duplicates, missing, flag("evolve", evolve), limits, application_version(transaction))


def is_without_partition(frame: Any, config: TableConfig) -> bool:
    """Return whether a DataFrame of keys to delete leaves the partition of each key open.

    This is the case if the table is partitioned, and the frame has each key column once but no partition column, except
    partition columns that are derived from the key.
    """
    from hoodoo.table.keys_given import PartitionsGiven

    there = list(frame.columns)
    keyed = all(there.count(name) == 1 for name in config.key)
    told = PartitionsGiven.by(there, config)
    return bool(config.partition_by) and keyed and not (told.wholly or told.partly)


def spelled(options: WriteOptions, config: TableConfig) -> WriteOptions:
    """Return write options whose `columns` use the table's current column names instead of the original ones."""
    return replace(options, columns=config.name_mapping.names(options.columns)) if config.name_mapping else options


def as_arrow(data: ArrowLike, config: TableConfig, options: WriteOptions) -> pa.Table:
    options = spelled(options, config)

    def whole(name: str) -> bool:  # whether a missing value must not be read as null
        name = config.name_mapping.taken.name(name)
        if options.columns is not None and not is_taken(name, config, options.columns):
            return False
        column = config.columns.by_name.get(name)
        return options.missing == FAIL or column is not None and column.has_default

    return to_arrow(data, config.name_mapping.hints(config.schema), whole)


def checks_of(options: WriteOptions, config: TableConfig) -> tuple[Check, ...]:
    """Return the table's checks that the rows of a write must satisfy. Deletes are not checked."""
    return () if options.delete else row_checks.of(config)


def as_partial(source: Source) -> PartialRows:
    """Wrap the rows of a write for a partial upsert, whether they are in memory or staged as files."""
    from hoodoo.writers.merging.partial_upsert import PartialInMemory

    if isinstance(source, InProcess):
        return PartialInMemory(source.batch)
    from hoodoo.writers.staging.staged_merge import PartialStaged
    from hoodoo.writers.staging.staged_rows import StagedSource

    assert isinstance(source, StagedSource)
    return PartialStaged(source)


def prepared(given: pa.Table, config: TableConfig, options: WriteOptions) -> tuple[InProcess, BadRows]:
    """Validate the rows of a write, and split them into a batch of valid rows and the bad rows.

    The batch has the columns of `config`. With the option `evolve`, it also has the columns that the write adds.
    """
    given, options = config.name_mapping.rows(given), spelled(options, config)
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
