"""Replay of quarantined change events.

A later delete of their row resolves events automatically.

An event is decoded as its job would decode it now. Its ordering columns come from the event itself, so an event that is
older than the stored row changes nothing. A deleted row lacks the ordering columns for this comparison. When a job
processes a delete, it therefore resolves the waiting events that are older (`resolve_deleted_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import DataError, HoodooError
from hoodoo.format.names import IS_DELETED
from hoodoo.ingestion.key_codes import assign_key_codes
from hoodoo.ingestion.reading import placing_of_table
from hoodoo.ingestion.stored_partitions import add_missing_partitions, assign_partitions
from hoodoo.ingestion.unresolvable_rows import find_unresolvable_rows
from hoodoo.ingestion.unsent_values import deletes, fill_from_stored_rows, fill_unsent_values, has_unsent_placeholder
from hoodoo.merge.modes import MergeMode
from hoodoo.readers.predicate import checks
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import LSN, NOT_SENT, DebeziumDecoder
from hoodoo.sources.debezium_avro import DebeziumAvroDecoder
from hoodoo.sources.debezium_kept import EventContext, QuarantinedSchemas, StoredEvent, event_in
from hoodoo.sources.source import Placing
from hoodoo.table import Table
from hoodoo.table.quarantine.changes import DecodedChanges
from hoodoo.table.quarantine.payloads import row_in
from hoodoo.table.quarantine.replay import set_row_state
from hoodoo.table.quarantine.schema import CHANGE, EVENT, KEY, NEW, REPLAYED, ROWS_AT_ONCE
from hoodoo.table.quarantine.target import open_quarantine
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import find_bad_rows
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.column_alignment import NULL, fill_missing_columns
from hoodoo.writers.batches.renaming import rename_columns

_IDS = b"hoodoo.ids"
_EVERY = 1 << 62


class _DecodedGroup:
    def __init__(self, waiting: Sequence[int], unavailable: str, unplaced: bool) -> None:
        self.waiting, self.unavailable, self.unplaced = waiting, unavailable, unplaced
        self.problems = dict[int, str]()
        self.rows = pa.table({})
        self.of = np.empty(0, np.int64)

    def reject_rows(self, problems: Mapping[int, str]) -> None:
        # Drops the changes of these quarantine rows, and keeps the reasons.
        if problems:
            self.problems |= problems
            keep = ~np.isin(self.of, list(problems))
            self.rows, self.of = self.rows.filter(pa.array(keep)), self.of[keep]


def decode_change_events(table: Table, rows: pa.Table, units: Mapping[str, str]) -> Iterator[DecodedChanges]:
    """Decode quarantined change events again.

    Args:
        table: The target table.
        rows: Quarantine rows that contain change events, or rows made from them, in order.
        units: Units of times by column, such as 'ms'. They override the units of the job.

    Yields:
        Groups of changes to write.
    """
    config = table.handle.newest_config()
    for piece in _decode_groups(rows, config, _decoder_schema(config), None, units):
        mode = MergeMode(unavailable=piece.unavailable)
        try:
            if len(piece.rows):
                _complete_changes(piece, table, config, mode)
        except DataError as problem:
            piece.reject_rows(dict.fromkeys(piece.waiting, problem.message))
        done = [index for index in piece.waiting if index not in piece.problems]
        is_incomplete = has_unsent_placeholder(piece.rows, mode)
        yield DecodedChanges(
            done, piece.rows, piece.unavailable if is_incomplete else None, list(piece.problems.values())
        )


def read_event_keys(table: Table, rows: pa.Table) -> Sequence[tuple[Sequence[int], pa.Table]]:
    """Read the keys of quarantined change events.

    Args:
        table: The target table.
        rows: Quarantine rows. Only rows with change events are used.

    Returns:
        Groups of events: the indexes of their quarantine rows, and their keys with the column names of the table.
        Events with unreadable keys are left out.
    """
    config = table.handle.newest_config()
    pieces = list(_decode_groups(rows, config, _key_columns_schema(config), EVENT))
    return [(piece.of.tolist(), piece.rows) for piece in pieces if len(piece.rows)]


def resolve_deleted_rows(table: Table, rows: pa.Table, emptied: bool, transaction: ApplicationVersion) -> None:
    """Resolve change events whose row was deleted later.

    Args:
        table: The table.
        rows: The changes of the batch, in order.
        emptied: True if the source was truncated. All waiting events are then older.
        transaction: The transaction of the batch's commit.
    """
    is_delete = deletes(rows)
    if not is_delete.any() and not emptied:
        return
    quarantine = open_quarantine(table)
    if quarantine is None:
        return
    waiting_keys = quarantine.scan(
        [*KEY, "application", "number"], where=f"state = '{NEW}' AND NOT payload_cut"
    ).to_arrow()
    config = table.handle.newest_config()
    deleted = config.name_mapping.rows(rows).filter(pa.array(is_delete)) if not emptied else rows
    if not emptied and not {*config.key, *config.order_by} <= {*deleted.column_names}:
        return
    for start in range(0, len(waiting_keys), ROWS_AT_ONCE):
        waiting = quarantine.get(waiting_keys.slice(start, ROWS_AT_ONCE).select(KEY))
        for piece in _decode_groups(waiting, config, _key_columns_schema(config), None):
            older = piece.of if emptied else piece.of[_older_than_deletes(piece, waiting, deleted, config, transaction)]
            if len(older):
                set_row_state(quarantine, waiting.take(pa.array(np.unique(older))), REPLAYED)


def _older_than_deletes(
    piece: _DecodedGroup, waiting: pa.Table, deleted: pa.Table, config: TableConfig, transaction: ApplicationVersion
) -> np.ndarray:
    # Without ordering columns, only changes from earlier batches of the job are known to be older.
    names = [*dict.fromkeys((*config.key, *config.order_by))]
    own_rows = _cast_to_table_types(piece.rows.select(names), config)
    both = pa.concat_tables([own_rows, _cast_to_table_types(deleted.select(names), config)])
    codes, count = assign_key_codes(both.select(config.key)), len(own_rows)
    if not config.order_by:
        indexes = pa.array(piece.of)
        is_same_job = pc.equal(waiting["application"].take(indexes), transaction.application)
        is_earlier = pc.less(waiting["number"].take(indexes), transaction.version)
        is_known = pc.fill_null(pc.and_(is_same_job, is_earlier), False).to_numpy().astype(bool)
        return is_known & np.isin(codes[:count], codes[count:])
    ranks = config.merge_policy.ranks(both, np.arange(len(both)))
    newest = np.full(len(both), -1, np.int64)
    np.maximum.at(newest, codes[count:], ranks[count:])
    return newest[codes[:count]] >= ranks[:count]


# ---- decoding
def _decode_groups(
    rows: pa.Table, config: TableConfig, columns: pa.Schema, only: bytes | None, units: Mapping[str, str] | None = None
) -> Iterator[_DecodedGroup]:
    """Decode quarantined change events.

    Payloads with equal decoder settings are decoded together. `units` override the units of the job.
    """
    groups = dict[tuple[bytes, bytes], list[tuple[int, pa.Table]]]()
    for index, content in enumerate(rows["payload"].to_pylist()):
        row = row_in(content)
        for name in (EVENT, CHANGE):
            if row is not None and name in (row.schema.metadata or {}) and only in (None, name):
                groups.setdefault((name, row.schema.metadata[name]), []).append((index, row))
    for (name, note), members in groups.items():
        if name == EVENT:
            events = {index: event_in(row) for index, row in members}
            context = EventContext.of(note)
            merged_units = {} if units is None else {**context.units, **units}
            yield _decode_events(events, replace(context, units=merged_units), columns)
        else:
            for member in members:
                yield _decode_stored_row(*member, json.loads(note), config)


def _decode_events(events: Mapping[int, StoredEvent], context: EventContext, columns: pa.Schema) -> _DecodedGroup:
    decoder_args = (context.topic, columns, False, Placing.of(columns), "ignore", context.before)
    decoder: DebeziumDecoder
    if context.schemas is None:
        decoder = DebeziumDecoder(*decoder_args)
    else:
        decoder = DebeziumAvroDecoder(*decoder_args, QuarantinedSchemas(context.schemas))
    decoder.units = context.units
    numbers = list(events)
    piece = _DecodedGroup(numbers, context.unavailable, decoder.unplaced)
    keys, values = [events[at].key for at in numbers], [events[at].value for at in numbers]
    bad = BadMessages("quarantine", _EVERY, lambda number, _: str(number))
    parts, row_indexes = list[pa.Table](), list[int]()
    try:
        for part, at in decoder.rows(numbers, keys, values, bad):
            for name in [name for name in events[at[0]].more if name in columns.names]:
                more = pa.chunked_array(
                    [chunk for bad_message in at for chunk in events[bad_message].more[name].chunks]
                )
                part = part.append_column(name, more)
            parts.append(part)
            row_indexes += at
    except HoodooError as problem:
        piece.problems = dict.fromkeys(numbers, problem.message)
        return piece
    piece.problems = {int(str(bad_message["place"])): str(bad_message["detail"]) for bad_message in bad.found}
    if parts:
        order = np.argsort(np.array(row_indexes, np.int64), kind="stable")
        piece.rows = pa.concat_tables(parts, promote_options="permissive").take(pa.array(order))
        piece.of = np.array(row_indexes, np.int64)[order]
        piece.rows = _replace_negative_lsns(piece.rows)
    return piece


def _decode_stored_row(index: int, row: pa.Table, note: Mapping[str, Any], config: TableConfig) -> _DecodedGroup:
    # Columns are renamed to their current names.
    piece = _DecodedGroup([index], note["unavailable"], note["unplaced"])
    ids = json.loads((row.schema.metadata or {}).get(_IDS, b"{}"))
    current_names = {column.id: column.name for column in config.columns.columns}
    try:
        named = rename_columns(row, config.columns.columns)
    except DataError as problem:
        piece.problems = {index: problem.message}
        return piece
    for name in note["not_sent"]:
        name = current_names.get(ids[name][0], name) if name in ids else name
        named = named.append_column(NOT_SENT + name, pa.array([True]))
    piece.rows, piece.of = _replace_negative_lsns(named), np.array([index], np.int64)
    return piece


def _replace_negative_lsns(rows: pa.Table) -> pa.Table:
    # A negative value marks a change as newer than all earlier changes, which are unknown at a replay. The change is
    # therefore ordered by its own LSN, so that a newer stored row stays.
    if LSN not in rows.column_names or not pa.types.is_int64(rows.schema.field(LSN).type):
        return rows
    lsn = rows[LSN]
    own = pc.if_else(pc.less(lsn, 0), pc.subtract(pa.scalar(-1, pa.int64()), lsn), lsn)
    return rows.set_column(rows.column_names.index(LSN), rows.schema.field(LSN), own)


# ---- rows
def _complete_changes(piece: _DecodedGroup, table: Table, config: TableConfig, mode: MergeMode) -> None:
    # Rows that the table would reject are left out. Raises DataError.
    piece.rows = fill_from_stored_rows(piece.rows, piece.rows, table, NULL)
    piece.rows = config.name_mapping.rows(piece.rows)
    columns = [name for name in piece.rows.column_names if name in {*config.schema.names, IS_DELETED}]
    piece.rows = piece.rows.select(columns)
    if piece.unplaced:
        piece.rows = add_missing_partitions(piece.rows, config)
    filled_rows = fill_missing_columns(piece.rows, config, NULL)
    rejected = find_bad_rows(piece.rows, filled_rows, config, checks.load_checks(config), len(piece.rows), NULL).found
    indexes = piece.of[rejected["row"].to_numpy()]
    piece.reject_rows(dict(zip(indexes.tolist(), rejected["detail"].to_pylist(), strict=True)))
    if not len(piece.rows):
        return
    piece.rows = _cast_to_table_types(piece.rows, config)
    if piece.unplaced:
        piece.rows = fill_unsent_values(piece.rows, table, config, mode)
    if has_unsent_placeholder(piece.rows, mode):
        positions, stale, messages = find_unresolvable_rows(piece.rows, table, config, mode)
        unresolved = piece.of[positions[~stale]]
        problems = dict(zip(unresolved.tolist(), messages["detail"].to_pylist(), strict=True))
        keep = np.ones(len(piece.rows), bool)
        keep[positions[stale]] = False
        piece.rows, piece.of = piece.rows.filter(pa.array(keep)), piece.of[keep]
        piece.reject_rows(problems)
    if piece.unplaced and len(piece.rows):
        piece.rows = assign_partitions(piece.rows, table, config)


def _cast_to_table_types(rows: pa.Table, config: TableConfig) -> pa.Table:
    for index, name in enumerate(rows.column_names):
        if name in config.schema.names and rows.schema.field(index).type != config.schema.field(name).type:
            field = pa.field(name, config.schema.field(name).type)
            rows = rows.set_column(index, field, cast_column(rows[name], field))
    return rows


def _decoder_schema(config: TableConfig) -> pa.Schema:
    hints = config.name_mapping.hints(config.schema).append(pa.field(IS_DELETED, pa.bool_()))
    return placing_of_table(config).noted_on(hints)


def _key_columns_schema(config: TableConfig) -> pa.Schema:
    columns = _decoder_schema(config)
    placing = replace(Placing.of(columns), placed_by=(), made=())
    names = {*placing.key_names, *placing.order_by, IS_DELETED}
    return placing.noted_on(pa.schema([field for field in columns if field.name in names]))


__all__ = ["decode_change_events", "read_event_keys", "resolve_deleted_rows"]
