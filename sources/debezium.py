"""Decoder of Debezium change events.

It returns rows to upsert and rows to delete. An event contains an image of the row after the change. For a delete, only
the key of the message is used, because the image before the delete may contain placeholders. If the table has the
column `_event_lsn` or `_event_seq`, this column gets the position of the change in the database's log.

Ambiguous events raise errors. This may stop a job, but never writes a wrong row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import ColumnError, DataError
from hoodoo.format import transforms
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium_events import UPDATE, ChangeEvents, EventReader
from hoodoo.sources.debezium_kept import EventContext, encode_event
from hoodoo.sources.debezium_keys import KeyReader
from hoodoo.sources.debezium_messages import KafkaConnectMessages, PayloadExtractor
from hoodoo.sources.debezium_schemas import ConnectColumn, read_column_descriptions, type_of_new_column
from hoodoo.sources.debezium_units import add_time_units, create_time_descriptions
from hoodoo.sources.debezium_values import HSTORE, UNFIT, convert_event_values, find_unconvertible_values
from hoodoo.sources.json_messages import AT_ONCE
from hoodoo.sources.source import Placing

EVENT, LOOKUP = "event", "lookup"
UNAVAILABLE = "__debezium_unavailable_value"
LSN, SEQ = "_event_lsn", "_event_seq"
_BROKER_COLUMNS = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key")
_ORDER_COLUMNS = (LSN, SEQ, *_BROKER_COLUMNS)
_CONNECTORS_BY_COLUMN = {LSN: ("postgresql",), SEQ: ("mysql", "mariadb")}
_FILE_NUMBER = r"^.*\.(?P<number>\d+)$"  # matches mysql-bin.000123
_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>\d{1,18})")\s*,\s*(?:null|"(?P<lsn>\d{1,18})")\s*\]$'
# PostgreSQL's `source.sequence`: the end of the last committed transaction, and the LSN of the change.
NOT_SENT = "_not_sent."
"""Prefix of the marker columns `_not_sent.NAME`.

They are true for rows that do not contain the column NAME. The column with only the prefix as its name is true for new
rows, from an insert or a snapshot.
"""
_ROW_OPS, _DELETE, _TRUNCATE, _MESSAGE = ("r", "c", UPDATE), "d", "t", "m"


class DebeziumDecoder:
    """Decoder of Debezium change events.

    Attributes:
        unavailable: The placeholder string that Debezium sends for an unchanged large value.
        units: Units of times without a unit in the event's schema, by column, as `hoodoo.arguments.time_units` returns
            them.
        added: Function that returns the broker's columns (`_kafka_...`) for the number of a message. None: no columns.
    """

    unavailable = UNAVAILABLE
    units: Mapping[str, str] = {}
    added: Callable[[int], pa.Table] | None = None

    def __init__(
        self, topic: str, columns: pa.Schema, unknown: bool, placing: Placing, truncate: str, before: str = EVENT
    ) -> None:
        """Create a decoder for the events of one topic.

        Args:
            topic: The name of the topic, for errors.
            columns: The columns of the table.
            unknown: True to also read columns that the table does not have.
            placing: The key, partition and ordering columns of the table.
            truncate: Handling of a truncate event: 'fail', 'ignore' or 'delete'. With 'delete', `emptied` is the number
                of the last truncate message.
            before: Where a row's former partition comes from: the 'event', or a 'lookup' in the table. `unplaced` is
                True if a lookup is needed.

        Raises:
            ColumnError: The table is ordered by a column that events do not contain, or `_event_lsn` or `_event_seq` is
                not a bigint.
        """
        self.topic, self.columns, self.unknown, self.truncate = printable(topic), columns, unknown, truncate
        self._told = (topic, before)
        self.placing = placing
        if unsupported := [name for name in placing.order_by if name not in _ORDER_COLUMNS]:
            raise ColumnError(
                f"The table is ordered by {unsupported[0]!r}, but delete events do not contain this column. Use a "
                f"table with order_by={LSN!r} (PostgreSQL) or {SEQ!r} (MySQL), or without order_by.",
                column=unsupported[0],
            )
        own_columns = {IS_DELETED, *_ORDER_COLUMNS}
        self._known = {field.name: field for field in columns if field.name not in own_columns}
        outside = [name for name in placing.placed_by if name not in placing.key_names]
        self.unplaced = before == LOOKUP and bool(outside)
        self._outside = [] if self.unplaced else outside
        self._made = [transforms.transform_of(text) for text in placing.made]
        self._order = next((name for name in (LSN, SEQ) if name in columns.names), None)
        if self._order and columns.field(self._order).type != pa.int64():
            raise ColumnError(
                f"Column {self._order!r} has the wrong type: expected bigint (pyarrow int64), got "
                f"{columns.field(self._order).type}. Create a table with that type.",
                column=self._order,
            )
        self._messages = PayloadExtractor()
        self._reader = EventReader(self._known, unknown, bool(self._outside))
        self._keys = KeyReader(self.topic, placing, self._known, self._reader.spelt)
        self._passed_over = 0
        self.emptied: int | None = None

    @property
    def left_out(self) -> set[str]:
        return self._reader.left_out

    @property
    def skipped(self) -> int:
        return self._reader.skipped + self._passed_over

    # ---- messages
    def rows(
        self, numbers: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode change events to rows.

        Args:
            numbers: The numbers of the messages that have a value, in ascending order.
            keys: The keys of these messages.
            values: The values of these messages.
            bad: Collector for the invalid events.

        Yields:
            Rows in the order of the events, and the number of each row's message.

        Raises:
            DataError: The events cannot be applied to the table: their key differs, or they lack the former partition
                or the log position of a row.
        """
        bad.kept = self._event_encoder(numbers, keys)
        for start in range(0, len(numbers), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            for low, high, payloads, schema in self._messages.split_by_schema(values[block]):
                run = slice(start + low, start + high)
                messages = KafkaConnectMessages(numbers[run], keys[run], values[run], payloads, schema)
                descriptions = read_column_descriptions(schema, "after") or {}
                self._add_event_columns(descriptions)
                for events in self._reader.events(messages, bad):
                    yield from self._convert_events(events, descriptions, bad)

    def _event_encoder(self, numbers: Sequence[int], keys: Sequence[bytes | None]) -> Callable[[int, bytes], bytes]:
        def kept(number: int, value: bytes) -> bytes:
            key = keys[bisect_left(numbers, number)]
            context = EventContext(*self._told, self.unavailable, self.units, self._schema_texts(key, value))
            return encode_event(key, value, self.added(number) if self.added else None, context)

        return kept

    @cached_property
    def _columns_with_units(self) -> Mapping[str, ConnectColumn]:
        return create_time_descriptions(self.units, self.columns, self.unknown)

    def _schema_texts(self, key: bytes | None, value: bytes) -> dict[str, Sequence[str]] | None:
        # None if the event needs no registry.
        return None

    # ---- rows
    def _convert_events(
        self, events: ChangeEvents, descriptions: Mapping[str, ConnectColumn], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        descriptions = add_time_units(descriptions, self._columns_with_units)
        ops = events.op
        is_row, is_delete = _is_in_mask(ops, _ROW_OPS), _is_in_mask(ops, (_DELETE,))
        bad_rows = dict[int, str]()
        self._count_skipped_events(events, is_row | is_delete, bad_rows)
        for index in np.flatnonzero(is_row & ~events.there).tolist():
            bad_rows[index] = "no row after the change"
        self._keys.require([events.of.keys[index] for index in np.flatnonzero(is_row | is_delete).tolist()])
        columns = dict(events.after)
        self._fill_delete_keys(events, is_delete, columns, bad_rows)
        moved_rows = self._fill_delete_partitions(events, is_delete, columns, descriptions)
        keep = is_row | is_delete
        values = self._convert_values(columns, descriptions, keep, bad_rows)
        values |= self._order_column_values(events, keep, bad_rows)
        values |= self._unsent_markers(events)
        for index, reason in sorted(bad_rows.items()):
            bad.note(events.of.numbers[index], reason, events.of.values[index])
        values[IS_DELETED] = pa.array(is_delete)
        keep[list(bad_rows)] = False
        table, rows, moved_rows = pa.table(values), np.flatnonzero(keep), moved_rows[keep[moved_rows]]
        if len(moved_rows):  # a row that changes its partition is deleted in the old one and inserted into the new one
            table, rows = self._add_moved_deletes(events, table, rows, moved_rows, descriptions)
        elif len(rows) < len(table):
            table = table.take(pa.array(rows))
        if len(rows):
            yield table, [events.of.numbers[index] for index in rows.tolist()]

    def _add_event_columns(self, descriptions: Mapping[str, ConnectColumn]) -> None:
        # Columns that the table does not have are added only if the caller requested them.
        if self.unknown:
            for name, description in descriptions.items():
                if (
                    name not in self._known
                    and name not in _ORDER_COLUMNS
                    and (kind := type_of_new_column(description)) is not None
                ):
                    self._reader.add_new_column(name, kind)

    def _convert_values(
        self,
        columns: Mapping[str, pa.Array],
        descriptions: Mapping[str, ConnectColumn],
        keep: np.ndarray,
        bad_rows: dict[int, str],
    ) -> dict[str, pa.Array]:
        # Each row of `keep` with a value that does not match gets an entry in `bad_rows`.
        converted = dict[str, pa.Array]()
        for name, values in columns.items():
            field = self._known.get(name)
            if field is None:
                if self.unknown:
                    converted[name] = values
                else:
                    self.left_out.add(name)
                continue
            if self._reader.spelt[name] is None and not (values.type == field.type == HSTORE):
                if values.null_count < len(values):
                    raise ColumnError(f"Column {name!r}: an event cannot contain a {field.type}.", column=name)
                continue
            try:
                converted[name] = convert_event_values(values, field, descriptions.get(name))
            except UNFIT:
                unfit_values = find_unconvertible_values(values, field, descriptions.get(name))
                bad_rows |= {index: reason for index, reason in unfit_values if keep[index]}
                fits = np.ones(len(values), bool)
                fits[[index for index, _ in unfit_values]] = False
                converted[name] = convert_event_values(
                    pc.if_else(pa.array(fits), values, pa.scalar(None, values.type)), field, descriptions.get(name)
                )
        return converted

    def _unsent_markers(self, events: ChangeEvents) -> dict[str, pa.Array]:
        # Marks the column values that the database left out of each event. An update keeps the stored value, and a new
        # row gets the default (`ingestion/unsent_values.py`).
        skipped = {*self.placing.key_names, *self._outside}
        lacking = {name: mask for name, mask in events.lacking.items() if name not in skipped}
        new = ~_is_in_mask(events.op, (UPDATE,))
        markers = {NOT_SENT + name: pa.array(mask) for name, mask in lacking.items()}
        if any((mask & new).any() for mask in lacking.values()):
            markers[NOT_SENT] = pa.array(new)
        return markers

    def _count_skipped_events(self, events: ChangeEvents, counts: np.ndarray, bad_rows: dict[int, str]) -> None:
        # `counts` is a mask of the events that change a row. Raises DataError if the source table was truncated and
        # `truncate` is 'fail'.
        if counts.all():
            return
        for index in np.flatnonzero(~counts).tolist():
            op = events.op[index].as_py()
            if op == _TRUNCATE and self.truncate == "fail":
                raise DataError(
                    f"{self.topic}: the source table was truncated. No row of this batch was written. Use "
                    "truncate='delete' (--truncate delete) to also delete all rows of this table, or "
                    "truncate='ignore' (--truncate ignore) to keep them.",
                    topic=self.topic,
                )
            if op == _TRUNCATE and self.truncate == "delete":
                self.emptied = max(events.of.numbers[index], self.emptied or 0)
            if op in (_TRUNCATE, _MESSAGE):
                self._passed_over += 1
            else:
                bad_rows[index] = f"it is not a change event: its op is {printable(op)}"

    def _fill_delete_keys(
        self, events: ChangeEvents, is_delete: np.ndarray, columns: dict[str, pa.Array], bad_rows: dict[int, str]
    ) -> None:
        indexes = np.flatnonzero(is_delete)
        if not len(indexes):
            return
        for key_indexes, key_columns in self._decode_keys(events, indexes, bad_rows):
            mask = np.zeros(len(is_delete), bool)
            mask[key_indexes] = True
            for name, values in key_columns.items():
                column_values = columns.get(name)
                if column_values is None:
                    column_values = pa.nulls(len(is_delete), values.type)
                columns[name] = pc.replace_with_mask(column_values, pa.array(mask), values.cast(column_values.type))

    def _decode_keys(
        self, events: ChangeEvents, indexes: np.ndarray, bad_rows: dict[int, str]
    ) -> Iterator[tuple[np.ndarray, Mapping[str, pa.Array]]]:
        # All keys are decoded together. If that fails, they are split in halves until each invalid key is alone.
        contents = [events.of.keys[index] for index in indexes.tolist()]
        key_columns = self._keys.columns(contents)
        if key_columns is not None:
            yield indexes, key_columns
        elif len(indexes) > 1:
            half = len(indexes) // 2
            yield from self._decode_keys(events, indexes[:half], bad_rows)
            yield from self._decode_keys(events, indexes[half:], bad_rows)
        else:
            bad_rows[int(indexes[0])] = f"the key of the message is not a valid key of a row: {printable(contents[0])}"

    # ---- partitions
    def _fill_delete_partitions(
        self,
        events: ChangeEvents,
        is_delete: np.ndarray,
        columns: dict[str, pa.Array],
        descriptions: Mapping[str, ConnectColumn],
    ) -> np.ndarray:
        # Returns the indexes of updates that move a row to another partition. Raises DataError if an event does not
        # contain the former partition of its row.
        if not self._outside:
            return np.empty(0, np.int64)
        updates = _is_in_mask(events.op, (UPDATE,))
        without_old_partition = np.flatnonzero((is_delete | updates) & ~self._has_complete_row(events))
        if len(without_old_partition):
            raise DataError(
                f"{self.topic}: the table is partitioned by {self._outside[0]!r}, which is not part of the "
                "key, and an event does not contain the old partition of its row. Nothing was written. Pass "
                "before='lookup' (--before lookup) to look up each key in the table. Or run ALTER TABLE ... "
                "REPLICA IDENTITY FULL on the source table and take a new snapshot. Or partition by a column "
                "of the key.",
                topic=self.topic,
                column=self._outside[0],
            )
        is_moved = np.zeros(len(is_delete), bool)
        for name in self._outside:
            before, after = events.before.get(name), columns.get(name)
            if before is not None and after is not None and name in events.lacking:
                after = columns[name] = pc.if_else(pa.array(events.lacking[name] & updates), before, after)
            if before is None or (after is None and before.null_count == len(before)):
                continue
            if after is None:
                after = pa.nulls(len(is_delete), before.type)
            columns[name] = pc.if_else(pa.array(is_delete), before, after)
            differs = np.flatnonzero(updates & ~_equal_or_null(before, after))
            is_moved[differs[self._changes_partition(name, before, after, differs, descriptions)]] = True
        return np.flatnonzero(is_moved)

    def _changes_partition(
        self,
        name: str,
        before: pa.Array,
        after: pa.Array,
        indexes: np.ndarray,
        descriptions: Mapping[str, ConnectColumn],
    ) -> np.ndarray:
        partition_transforms = [transform for transform in self._made if transform.column == name]
        is_moved = np.ones(len(indexes), bool)
        if not partition_transforms or not len(indexes):
            return is_moved
        field = self._known[name]
        try:
            old_values, new_values = (
                convert_event_values(values.take(pa.array(indexes)), field, descriptions.get(name))
                for values in (before, after)
            )
        except UNFIT:  # the row is quarantined for this value
            return is_moved
        return ~np.logical_and.reduce(
            [
                _equal_or_null(
                    transforms.compute_partition_values(transform, old_values),
                    transforms.compute_partition_values(transform, new_values),
                )
                for transform in partition_transforms
            ]
        )

    def _has_complete_row(self, events: ChangeEvents) -> np.ndarray:
        # A row counts as complete if any column outside the key has a real value: not null, 0, '' or false.
        is_full = np.zeros(len(events.op), bool)
        for name, values in events.before.items():
            if name in self.placing.key_names:
                continue
            kind = values.type
            has_value = values.is_valid()
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                has_value = pc.and_(has_value, pc.not_equal(values, pa.scalar(0, kind)))
            elif pa.types.is_string(kind):
                has_value = pc.and_(has_value, pc.greater(pc.utf8_length(values), 0))
            elif pa.types.is_boolean(kind):
                has_value = pc.and_(has_value, values)
            elif pa.types.is_decimal(kind):
                has_value = pc.and_(has_value, pc.not_equal(values, pa.scalar(Decimal(0), kind)))
            else:
                continue
            is_full |= pc.fill_null(has_value, False).to_numpy(False)
        return is_full

    def _add_moved_deletes(
        self,
        events: ChangeEvents,
        table: pa.Table,
        rows: np.ndarray,
        moved: np.ndarray,
        descriptions: Mapping[str, ConnectColumn],
    ) -> tuple[pa.Table, np.ndarray]:
        # A delete in the former partition precedes each row that moved to another partition. Returns the rows at the
        # indexes `rows` with these deletes, and the index of each row's event.
        old_rows = table.take(pa.array(moved))
        for name in self._outside:
            if name in events.before and name in table.column_names:
                old_values = convert_event_values(
                    events.before[name].take(pa.array(moved)), self._known[name], descriptions.get(name)
                )
                old_rows = old_rows.set_column(old_rows.column_names.index(name), name, old_values)
        flag = old_rows.column_names.index(IS_DELETED)
        old_rows = old_rows.set_column(flag, IS_DELETED, pa.array(np.ones(len(moved), bool)))
        sort_positions = np.append(rows * 2 + 1, moved * 2)
        order = np.argsort(sort_positions, kind="stable")
        index = np.append(rows, len(table) + np.arange(len(moved)))
        return pa.concat_tables([table, old_rows]).take(pa.array(index[order])), sort_positions[order] // 2

    # ---- order
    def _commit_order_values(self, events: ChangeEvents) -> pa.Array:
        """Compute log positions in commit order.

        They are the values of `_event_lsn`. All changes of a transaction are logged before its commit. The `sequence`
        of the next transaction begins with the end of that commit. The larger of these two numbers therefore grows in
        the order of the commits.
        """
        lsn, sequence = events.source["lsn"], pc.extract_regex(events.source["sequence"], _SEQUENCE)
        commit = pc.struct_field(sequence, [0])
        has_commit = pc.greater(pc.utf8_length(commit), 0)
        commit_end = pc.if_else(has_commit, commit, pa.scalar(None, pa.string())).cast(pa.int64())
        order_value = pc.if_else(lsn.is_valid(), pc.max_element_wise(lsn, commit_end), pa.scalar(None, pa.int64()))
        if LSN not in self.placing.order_by:
            return order_value
        is_unknown = pc.fill_null(pc.and_(pc.invert(has_commit), pa.array(~_is_in_mask(events.op, ("r",)))), False)
        return pc.if_else(is_unknown, pc.subtract(pa.scalar(-1, pa.int64()), order_value), order_value)

    def _order_column_values(
        self, events: ChangeEvents, keep: np.ndarray, bad_rows: dict[int, str]
    ) -> dict[str, pa.Array]:
        # Raises DataError if the connector sends no log position.
        name = self._order
        if name is None:
            return {}
        parts = events.source
        if name == LSN:
            order_value = self._commit_order_values(events)
        else:
            file = pc.extract_regex(parts["file"], _FILE_NUMBER)
            number = pc.struct_field(file, [0]).cast(pa.int64())
            row = pc.fill_null(parts["row"], 0)
            order_value = pc.add(pc.add(pc.shift_left(number, 40), pc.shift_left(parts["pos"], 8)), row)
        if order_value.null_count:
            is_supported = _is_in_mask(parts["connector"], _CONNECTORS_BY_COLUMN[name])
            is_missing = order_value.is_null().to_numpy(zero_copy_only=False)
            is_snapshot = (
                is_missing & is_supported & _is_in_mask(events.op, ("r",))
            )  # a snapshot row without a position is older than changes
            order_value = pc.if_else(pa.array(is_snapshot), 0, order_value)
            for index in np.flatnonzero(is_missing & ~is_snapshot & keep).tolist():
                connector = parts["connector"][index].as_py()
                if connector is None or is_supported[index]:
                    bad_rows[index] = f"the event has no log position, which is needed for {name!r}"
                    continue
                raise DataError(
                    f"{self.topic}: events of the connector {printable(connector)} do not contain the values "
                    f"for {name!r}. {LSN!r} is for PostgreSQL, {SEQ!r} for MySQL and MariaDB. For other "
                    "connectors, create a table without order_by. Nothing was written.",
                    topic=self.topic,
                    column=name,
                )
        return {name: order_value.cast(self.columns.field(name).type)}


def _equal_or_null(left: pa.Array, right: pa.Array) -> np.ndarray:
    # Two nulls are equal.
    is_equal: np.ndarray = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return is_equal | left.is_null().to_numpy(zero_copy_only=False) & right.is_null().to_numpy(zero_copy_only=False)


def _is_in_mask(ops: pa.Array, wanted: Sequence[str]) -> np.ndarray:
    is_in: np.ndarray = pc.is_in(ops, value_set=pa.array(wanted)).to_numpy(False)
    return is_in


__all__ = ["EVENT", "LOOKUP", "LSN", "NOT_SENT", "SEQ", "UNAVAILABLE", "DebeziumDecoder"]
