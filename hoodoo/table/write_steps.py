"""Steps of the write methods of `Table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.engine.session import is_spark_dataframe
from hoodoo.errors import CheckFailed
from hoodoo.readers.cursor import PositionLike
from hoodoo.readers.predicate import checks as row_checks
from hoodoo.table.given_rows import (
    as_arrow,
    as_partial,
    get_checks,
    is_without_partition,
    separate_rows,
    use_current_names,
)
from hoodoo.table.handle import TableHandle
from hoodoo.table.results import WriteResult
from hoodoo.writers import operations
from hoodoo.writers.batches.bad_rows import BadRows, no_bad_rows
from hoodoo.writers.batches.batch import prepare_batch
from hoodoo.writers.batches.input import ArrowLike
from hoodoo.writers.batches.write_options import NewKeys, WriteOptions
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.sources import DeletedKeys, InMemoryBatch, Source, SparkPreparedRows

if TYPE_CHECKING:
    from hoodoo.table.keys_given import KeysLike
    from hoodoo.table.partition_values import PartitionValues

Write = Callable[[Context, Source], Committed]
"""Function that commits the rows of a source, and returns the counts of the commit."""


def upsert(handle: TableHandle, data: ArrowLike, options: WriteOptions, new_keys: NewKeys) -> WriteResult:
    if not options.keeps_stored_values and new_keys == NewKeys.INSERT:

        def write_rows(context: Context, source: Source) -> Committed:
            return operations.upsert(context, source, transaction=options.transaction)

        return _write(handle, data, options, write_rows)
    from hoodoo.writers.merging.partial_upsert import partial_upsert

    if options.duplicates == "newest":
        options = replace(options, duplicates="each")

    def write(context: Context, source: Source) -> Committed:
        return partial_upsert(context, as_partial(source), new_keys, options.mode, options.transaction)

    return _write(handle, data, options, write)


def insert(
    handle: TableHandle,
    data: ArrowLike,
    options: WriteOptions,
    existing: str,
    bulk: bool,
    sort_by: str | Sequence[str] | None,
) -> WriteResult:
    def write(context: Context, source: Source) -> Committed:
        return operations.insert_rows(context, source, existing, bulk, options.transaction, sort_by)

    return _write(handle, data, options, write)


def replace_partitions(handle: TableHandle, data: ArrowLike, options: WriteOptions, whole_table: bool) -> WriteResult:
    """Replace the rows of partitions, or of the whole table."""

    def write(context: Context, source: Source) -> Committed:
        used = source.partitions_used()
        everything = whole_table or (not handle.config.partition_by and used)
        operation = "INSERT_OVERWRITE_TABLE" if whole_table else "INSERT_OVERWRITE"
        return operations.overwrite(context, source, None if everything else used, operation, options.transaction)

    return _write(handle, data, options, write)


def delete_keys(
    handle: TableHandle, keys: KeysLike, version: ApplicationVersion | None, if_head: PositionLike | None
) -> WriteResult:
    from hoodoo.readers.spark_names import by_table_names
    from hoodoo.table.keys_given import convert_keys

    options = WriteOptions(delete=True, transaction=version, if_head=if_head)

    def write(context: Context, source: Source) -> Committed:
        return operations.upsert(context, source, "DELETE", options.transaction)

    data: Any = by_table_names(keys, handle.config.name_mapping) if is_spark_dataframe(keys) else keys
    staged = is_spark_dataframe(data) and not is_without_partition(data, handle.config)
    if staged or isinstance(data, SparkPreparedRows):
        return _write(handle, data, options, write)
    context, state = handle.context(), handle.timeline.prepare_for_write()
    if is_spark_dataframe(data):
        data = data.select(*state.config.key).toArrow()
    given = convert_keys(data, state.config)
    batch = prepare_batch(given.rows, state.config, options)
    source = InMemoryBatch(batch) if given.in_partitions else DeletedKeys(batch)
    return _commit(handle, replace(context, begun=state), source, no_bad_rows(0), options, write)


def delete_partitions(
    handle: TableHandle, partitions: PartitionValues, version: ApplicationVersion | None
) -> WriteResult:
    from hoodoo.table.partition_values import convert_to_folders, require_values

    context, (config, _, view) = handle.context_at(None)
    paths = convert_to_folders(config, partitions)
    require_values(config, partitions, view.partitions)
    return handle.finished(context, operations.overwrite(context, None, paths, "DELETE_PARTITION", version))


def _write(handle: TableHandle, data: ArrowLike, options: WriteOptions, write: Write) -> WriteResult:
    if isinstance(data, SparkPreparedRows):
        return _write_prepared(handle, data, options, write)
    return (
        _write_frame(handle, data, options, write)
        if is_spark_dataframe(data)
        else _write_arrow(handle, data, options, write)
    )


def _write_prepared(handle: TableHandle, rows: SparkPreparedRows, options: WriteOptions, write: Write) -> WriteResult:
    # Spark tasks of `df.write` have already prepared the rows.
    context = handle.context()
    begun = handle.timeline.prepare_for_write()  # before bad rows are stored
    context = replace(context, evolution=rows.evolution, begun=begun)
    return _commit(handle, context, rows.source, rows.bad, options, write)


def _write_frame(handle: TableHandle, frame: Any, options: WriteOptions, write: Write) -> WriteResult:
    # Spark tasks prepare and stage the rows.
    from hoodoo.readers.spark_names import by_table_names
    from hoodoo.writers.staging.staged import prepare_dataframe

    context = handle.context()
    config = handle.timeline.prepare_for_write().config  # newest columns, because staging is expensive
    frame, options = by_table_names(frame, config.name_mapping), use_current_names(options, config)
    with prepare_dataframe(context, config, frame, options, get_checks(options, config)) as (context, source, bad):
        return _commit(handle, context, source, bad, options, write)


def _write_arrow(handle: TableHandle, data: ArrowLike, options: WriteOptions, write: Write) -> WriteResult:
    context = handle.context()
    given: pa.Table | None = None
    while True:
        state = handle.timeline.prepare_for_write()  # names in the batch are the current column names
        given = as_arrow(data, state.config, options) if given is None else given
        batch, bad = separate_rows(given, state.config, options)
        try:
            begun = replace(context, evolution=batch.evolution, begun=state)
            return _commit(handle, begun, batch, bad, options, write)
        except CheckFailed:
            if row_checks.load_checks(handle.newest_config()) == row_checks.load_checks(state.config):
                raise
            # the check is newer than the prepared batch: prepare again, so that the error shows the row as given


def _commit(
    handle: TableHandle, context: Context, source: Source, bad: BadRows, options: WriteOptions, write: Write
) -> WriteResult:
    # Bad rows are stored in the quarantine before the other rows are committed.
    if options.if_head is not None:
        context = context.on_head(handle.slot_of(context.timeline.history, options.if_head))
    reasons: Mapping[str, int] = {}
    if bad.count:
        from hoodoo.table.quarantine.quarantine_writer import quarantine_bad_rows

        reasons = dict(quarantine_bad_rows(handle, bad, options))
    result = handle.finished(context, write(context, source))
    return replace(result, quarantined=sum(reasons.values()), reasons=reasons)


__all__ = ["delete_keys", "delete_partitions", "insert", "replace_partitions", "upsert"]
