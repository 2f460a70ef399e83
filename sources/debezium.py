"""Decoder that converts Debezium change events to rows to upsert and rows to delete.

An event contains an image of the row after the change. For a delete, only the key of the message is used, because the
image before the delete may contain placeholders. If the table has the column `_event_lsn` or `_event_seq`, it gets the
position of the change in the database's log.

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
from hoodoo.sources.debezium_events import UPDATE, EventReader, Events
from hoodoo.sources.debezium_kept import EventContext, event_bytes
from hoodoo.sources.debezium_keys import KeyReader
from hoodoo.sources.debezium_messages import Messages, Unwrapping
from hoodoo.sources.debezium_schemas import ConnectColumn, kind_of, said_in
from hoodoo.sources.debezium_units import assumed, with_units
from hoodoo.sources.debezium_values import HSTORE, UNFIT, meant, unfit
from hoodoo.sources.json_messages import AT_ONCE
from hoodoo.sources.source import Placing

EVENT, LOOKUP = "event", "lookup"
UNAVAILABLE = "__debezium_unavailable_value"
LSN, SEQ = "_event_lsn", "_event_seq"
_TOLD = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key")
_ORDERS = (LSN, SEQ, *_TOLD)
_CONNECTORS = {LSN: ("postgresql",), SEQ: ("mysql", "mariadb")}
_FILE_NUMBER = r"^.*\.(?P<number>\d+)$"  # matches mysql-bin.000123
_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>\d{1,18})")\s*,\s*(?:null|"(?P<lsn>\d{1,18})")\s*\]$'
"""PostgreSQL's `source.sequence`: the end of the last committed transaction, and the LSN of the change."""
NOT_SENT = "_not_sent."
"""Prefix of the marker columns `_not_sent.NAME`.

They are true for rows that do not contain the column NAME. The column with only the prefix as its name is true for new
rows, from an insert or a snapshot.
"""
_ROWS, _DELETE, _TRUNCATE, _MESSAGE = ("r", "c", UPDATE), "d", "t", "m"


class DebeziumDecoder:
    """Decoder of the Debezium events of one Kafka topic into rows with the columns of a table.

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
            before: Origin of a row's former partition: the 'event', or a 'lookup' in the table. `unplaced` is True if a
                lookup is needed.

        Raises:
            ColumnError: The table is ordered by a column that events do not contain, or `_event_lsn` or `_event_seq` is
                not a bigint.
        """
        self.topic, self.columns, self.unknown, self.truncate = printable(topic), columns, unknown, truncate
        self._told = (topic, before)
        self.placing = placing
        if strange := [name for name in placing.order_by if name not in _ORDERS]:
            raise ColumnError(
                f"The table is ordered by {strange[0]!r}, but delete events do not contain this column. Use a "
                f"table with order_by={LSN!r} (PostgreSQL) or {SEQ!r} (MySQL), or without order_by.",
                column=strange[0],
            )
        ours = {IS_DELETED, *_ORDERS}
        self._known = {field.name: field for field in columns if field.name not in ours}
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
        self._messages = Unwrapping()
        self._reader = EventReader(self._known, unknown, bool(self._outside))
        self._keys = KeyReader(self.topic, placing, self._known, self._reader.spelt)
        self._passed_over = 0
        self.emptied: int | None = None

    @property
    def left_out(self) -> set[str]:
        """Names of the event columns that were left out so far, because the table does not have them."""
        return self._reader.left_out

    @property
    def skipped(self) -> int:
        """Number of messages so far that change no row, such as heartbeats and ignored truncates."""
        return self._reader.skipped + self._passed_over

    # ---- messages
    def rows(
        self, numbers: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode change events to rows. Invalid events are collected in `bad`.

        Args:
            numbers: The numbers of the messages that have a value, in ascending order.
            keys: The keys of these messages.
            values: The values of these messages.
            bad: Collects the invalid events.

        Yields:
            Rows in the order of the events, and the number of each row's message.

        Raises:
            DataError: The events cannot be applied to the table: their key differs, or they lack the former partition
                or the log position of a row.
            or the log position of a row.
        """
        bad.kept = self._keeper(numbers, keys)
        for start in range(0, len(numbers), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            for low, high, payloads, schema in self._messages.unwrapped(values[block]):
                cut = slice(start + low, start + high)
                some = Messages(numbers[cut], keys[cut], values[cut], payloads, schema)
                said = said_in(schema, "after") or {}
                self._learn(said)
                for events in self._reader.events(some, bad):
                    yield from self._rows(events, said, bad)

    def _keeper(self, numbers: Sequence[int], keys: Sequence[bytes | None]) -> Callable[[int, bytes], bytes]:
        """Return a function that encodes a message for the quarantine, with its key and the decoder's settings."""

        def kept(number: int, value: bytes) -> bytes:
            key = keys[bisect_left(numbers, number)]
            context = EventContext(*self._told, self.unavailable, self.units, self._schema_texts(key, value))
            return event_bytes(key, value, self.added(number) if self.added else None, context)

        return kept

    @cached_property
    def _assumed(self) -> Mapping[str, ConnectColumn]:
        """Column descriptions for times whose unit the user has set. Raises ColumnError for an unsuitable column."""
        return assumed(self.units, self.columns, self.unknown)

    def _schema_texts(self, key: bytes | None, value: bytes) -> dict[str, Sequence[str]] | None:
        """Return the registry schemas that a quarantined event needs for a replay, or None if it needs no registry."""
        return None

    # ---- rows
    def _rows(
        self, events: Events, said: Mapping[str, ConnectColumn], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """Convert decoded events to rows to upsert or delete, and the number of each row's message."""
        said = with_units(said, self._assumed)
        ops = events.op
        is_row, gone = _in(ops, _ROWS), _in(ops, (_DELETE,))
        bad_rows = dict[int, str]()
        self._pass_over(events, is_row | gone, bad_rows)
        for at in np.flatnonzero(is_row & ~events.there).tolist():
            bad_rows[at] = "no row after the change"
        self._keys.require([events.of.keys[at] for at in np.flatnonzero(is_row | gone).tolist()])
        columns = dict(events.after)
        self._keys_of_deleted(events, gone, columns, bad_rows)
        moved = self._placed(events, gone, columns, said)
        keep = is_row | gone
        made = self._values(columns, said, keep, bad_rows)
        made |= self._ordered(events, keep, bad_rows)
        made |= self._not_sent(events)
        for at, why in sorted(bad_rows.items()):
            bad.note(events.of.numbers[at], why, events.of.values[at])
        made[IS_DELETED] = pa.array(gone)
        keep[list(bad_rows)] = False
        table, rows, moved = pa.table(made), np.flatnonzero(keep), moved[keep[moved]]
        if len(moved):  # a row that changes its partition is deleted in the old one and inserted into the new one
            table, rows = self._with_moves(events, table, rows, moved, said)
        elif len(rows) < len(table):
            table = table.take(pa.array(rows))
        if len(rows):
            yield table, [events.of.numbers[at] for at in rows.tolist()]

    def _learn(self, said: Mapping[str, ConnectColumn]) -> None:
        """Add the columns of an event's schema that the table does not have, if such columns are requested."""
        if self.unknown:
            for name, one in said.items():
                if name not in self._known and name not in _ORDERS and (kind := kind_of(one)) is not None:
                    self._reader.learn(name, kind)

    def _values(
        self,
        columns: Mapping[str, pa.Array],
        said: Mapping[str, ConnectColumn],
        keep: np.ndarray,
        bad_rows: dict[int, str],
    ) -> dict[str, pa.Array]:
        """Convert event values to the column types of the table.

        Adds an entry to `bad_rows` for each row of `keep` whose value does not match.
        """
        made = dict[str, pa.Array]()
        for name, values in columns.items():
            field = self._known.get(name)
            if field is None:
                if self.unknown:
                    made[name] = values
                else:
                    self.left_out.add(name)
                continue
            if self._reader.spelt[name] is None and not (values.type == field.type == HSTORE):
                if values.null_count < len(values):
                    raise ColumnError(f"Column {name!r}: an event cannot contain a {field.type}.", column=name)
                continue
            try:
                made[name] = meant(values, field, said.get(name))
            except UNFIT:
                wrong = unfit(values, field, said.get(name))
                bad_rows |= {at: why for at, why in wrong if keep[at]}
                fits = np.ones(len(values), bool)
                fits[[at for at, _ in wrong]] = False
                made[name] = meant(
                    pc.if_else(pa.array(fits), values, pa.scalar(None, values.type)), field, said.get(name)
                )
        return made

    def _not_sent(self, events: Events) -> dict[str, pa.Array]:
        """Create the marker columns that show which column values the database left out of each event.

        An update then keeps the stored value, and a new row gets the default (`ingestion/unsent_values.py`).
        """
        skipped = {*self.placing.key_names, *self._outside}
        lacking = {name: mask for name, mask in events.lacking.items() if name not in skipped}
        new = ~_in(events.op, (UPDATE,))
        found = {NOT_SENT + name: pa.array(mask) for name, mask in lacking.items()}
        if any((mask & new).any() for mask in lacking.values()):
            found[NOT_SENT] = pa.array(new)
        return found

    def _pass_over(self, events: Events, counts: np.ndarray, bad_rows: dict[int, str]) -> None:
        """Count the events that change no row, such as truncates. `counts` is a mask of the events that change a row.

        Raises DataError if the source table was truncated and truncate is 'fail'.
        """
        if counts.all():
            return
        for at in np.flatnonzero(~counts).tolist():
            op = events.op[at].as_py()
            if op == _TRUNCATE and self.truncate == "fail":
                raise DataError(
                    f"{self.topic}: the source table was truncated. No row of this batch was written. Use "
                    "truncate='delete' (--truncate delete) to also delete all rows of the table, or "
                    "truncate='ignore' to keep them.",
                    topic=self.topic,
                )
            if op == _TRUNCATE and self.truncate == "delete":
                self.emptied = max(events.of.numbers[at], self.emptied or 0)
            if op in (_TRUNCATE, _MESSAGE):
                self._passed_over += 1
            else:
                bad_rows[at] = f"it is not a change event: its op is {printable(op)}"

    def _keys_of_deleted(
        self, events: Events, gone: np.ndarray, columns: dict[str, pa.Array], bad_rows: dict[int, str]
    ) -> None:
        """Fill the key columns of delete events from the keys of their messages."""
        where = np.flatnonzero(gone)
        if not len(where):
            return
        for at, found in self._keys_at(events, where, bad_rows):
            mask = np.zeros(len(gone), bool)
            mask[at] = True
            for name, values in found.items():
                old = columns.get(name)
                if old is None:
                    old = pa.nulls(len(gone), values.type)
                columns[name] = pc.replace_with_mask(old, pa.array(mask), values.cast(old.type))

    def _keys_at(
        self, events: Events, where: np.ndarray, bad_rows: dict[int, str]
    ) -> Iterator[tuple[np.ndarray, Mapping[str, pa.Array]]]:
        """Decode the message keys of the events at the indexes `where`.

        The keys are decoded together, or in halves until each invalid key is alone.
        """
        contents = [events.of.keys[at] for at in where.tolist()]
        found = self._keys.columns(contents)
        if found is not None:
            yield where, found
        elif len(where) > 1:
            half = len(where) // 2
            yield from self._keys_at(events, where[:half], bad_rows)
            yield from self._keys_at(events, where[half:], bad_rows)
        else:
            bad_rows[int(where[0])] = f"the key of the message is not a valid key of a row: {printable(contents[0])}"

    # ---- partitions
    def _placed(
        self, events: Events, gone: np.ndarray, columns: dict[str, pa.Array], said: Mapping[str, ConnectColumn]
    ) -> np.ndarray:
        """Fill the partition columns of deletes. Returns the indexes of updates that move a row to another partition.

        Raises DataError if an event does not contain the former partition of its row.
        """
        if not self._outside:
            return np.empty(0, np.int64)
        updates = _in(events.op, (UPDATE,))
        unsure = np.flatnonzero((gone | updates) & ~self._full(events))
        if len(unsure):
            raise DataError(
                f"{self.topic}: the table is partitioned by {self._outside[0]!r}, which is not part of the "
                "key, and an event does not contain the old partition of its row. Nothing was written. Pass "
                "before='lookup' (--before lookup) to look up each key in the table. Or run ALTER TABLE ... "
                "REPLICA IDENTITY FULL on the source table and take a new snapshot. Or partition by a column "
                "of the key.",
                topic=self.topic,
                column=self._outside[0],
            )
        moved = np.zeros(len(gone), bool)
        for name in self._outside:
            before, after = events.before.get(name), columns.get(name)
            if before is not None and after is not None and name in events.lacking:
                after = columns[name] = pc.if_else(pa.array(events.lacking[name] & updates), before, after)
            if before is None or (after is None and before.null_count == len(before)):
                continue
            if after is None:
                after = pa.nulls(len(gone), before.type)
            columns[name] = pc.if_else(pa.array(gone), before, after)
            differs = np.flatnonzero(updates & ~_equal(before, after))
            moved[differs[self._leaves(name, before, after, differs, said)]] = True
        return np.flatnonzero(moved)

    def _leaves(
        self, name: str, before: pa.Array, after: pa.Array, at: np.ndarray, said: Mapping[str, ConnectColumn]
    ) -> np.ndarray:
        """Return a mask of the updates at the indexes `at` that move their row to another partition, by one column."""
        made = [one for one in self._made if one.column == name]
        other = np.ones(len(at), bool)
        if not made or not len(at):
            return other
        field = self._known[name]
        try:
            was, now = (meant(values.take(pa.array(at)), field, said.get(name)) for values in (before, after))
        except UNFIT:  # the row is quarantined for this value
            return other
        return ~np.logical_and.reduce(
            [_equal(transforms.values(one, was), transforms.values(one, now)) for one in made]
        )

    def _full(self, events: Events) -> np.ndarray:
        """Return a mask of the events that contain the complete row before the change.

        The row counts as complete if any column outside the key has a real value: not null, 0, '' or false.
        """
        found = np.zeros(len(events.op), bool)
        for name, values in events.before.items():
            if name in self.placing.key_names:
                continue
            kind = values.type
            counts = values.is_valid()
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                counts = pc.and_(counts, pc.not_equal(values, pa.scalar(0, kind)))
            elif pa.types.is_string(kind):
                counts = pc.and_(counts, pc.greater(pc.utf8_length(values), 0))
            elif pa.types.is_boolean(kind):
                counts = pc.and_(counts, values)
            elif pa.types.is_decimal(kind):
                counts = pc.and_(counts, pc.not_equal(values, pa.scalar(Decimal(0), kind)))
            else:
                continue
            found |= pc.fill_null(counts, False).to_numpy(False)
        return found

    def _with_moves(
        self, events: Events, table: pa.Table, rows: np.ndarray, moved: np.ndarray, said: Mapping[str, ConnectColumn]
    ) -> tuple[pa.Table, np.ndarray]:
        """Add a delete in the former partition before each row that moved to another partition.

        Returns the rows at the indexes `rows` with these deletes, and the index of each row's event.
        """
        olds = table.take(pa.array(moved))
        for name in self._outside:
            if name in events.before and name in table.column_names:
                old = meant(events.before[name].take(pa.array(moved)), self._known[name], said.get(name))
                olds = olds.set_column(olds.column_names.index(name), name, old)
        flag = olds.column_names.index(IS_DELETED)
        olds = olds.set_column(flag, IS_DELETED, pa.array(np.ones(len(moved), bool)))
        place = np.append(rows * 2 + 1, moved * 2)
        order = np.argsort(place, kind="stable")
        index = np.append(rows, len(table) + np.arange(len(moved)))
        return pa.concat_tables([table, olds]).take(pa.array(index[order])), place[order] // 2

    # ---- order
    def _commit_order(self, events: Events) -> pa.Array:
        """Compute values of `_event_lsn` that grow in commit order. The LSNs of changes do not.

        All changes of a transaction are logged before its commit. The `sequence` of the next transaction begins with
        the end of that commit. The larger one of both numbers is therefore below that of every later transaction.
        Within a transaction, it grows with the LSN.

        Rows of a snapshot have no last commit. Their LSN is the start of streaming. The first transaction after a
        snapshot has no last commit either. It may have been logged before the snapshot, which does not contain it. If
        the table is ordered by the column, such a change gets `-1 - LSN`, which `ingestion/arrival_order.py` replaces.
        """
        lsn, sequence = events.source["lsn"], pc.extract_regex(events.source["sequence"], _SEQUENCE)
        commit = pc.struct_field(sequence, [0])
        known = pc.greater(pc.utf8_length(commit), 0)
        ended = pc.if_else(known, commit, pa.scalar(None, pa.string())).cast(pa.int64())
        place = pc.if_else(lsn.is_valid(), pc.max_element_wise(lsn, ended), pa.scalar(None, pa.int64()))
        if LSN not in self.placing.order_by:
            return place
        unknown = pc.fill_null(pc.and_(pc.invert(known), pa.array(~_in(events.op, ("r",)))), False)
        return pc.if_else(unknown, pc.subtract(pa.scalar(-1, pa.int64()), place), place)

    def _ordered(self, events: Events, keep: np.ndarray, bad_rows: dict[int, str]) -> dict[str, pa.Array]:
        """Compute the ordering column `_event_lsn` or `_event_seq` from the log position of each change.

        Raises DataError if the connector sends no log position.
        """
        name = self._order
        if name is None:
            return {}
        parts = events.source
        if name == LSN:
            place = self._commit_order(events)
        else:
            file = pc.extract_regex(parts["file"], _FILE_NUMBER)
            number = pc.struct_field(file, [0]).cast(pa.int64())
            row = pc.fill_null(parts["row"], 0)
            place = pc.add(pc.add(pc.shift_left(number, 40), pc.shift_left(parts["pos"], 8)), row)
        if place.null_count:
            mine = _in(parts["connector"], _CONNECTORS[name])
            without = place.is_null().to_numpy(zero_copy_only=False)
            read = without & mine & _in(events.op, ("r",))  # a snapshot row without a position is older than changes
            place = pc.if_else(pa.array(read), 0, place)
            for at in np.flatnonzero(without & ~read & keep).tolist():
                connector = parts["connector"][at].as_py()
                if connector is None or mine[at]:
                    bad_rows[at] = f"the event has no log position, which is needed for {name!r}"
                    continue
                raise DataError(
                    f"{self.topic}: events of the connector {printable(connector)} do not contain the values "
                    f"for {name!r}. {LSN!r} is for PostgreSQL, {SEQ!r} for MySQL and MariaDB. For other "
                    "connectors, create a table without order_by. Nothing was written.",
                    topic=self.topic,
                    column=name,
                )
        return {name: place.cast(self.columns.field(name).type)}


def _equal(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Compare two columns, and return a mask of the equal values. Two nulls are equal."""
    found: np.ndarray = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    return found | one.is_null().to_numpy(zero_copy_only=False) & other.is_null().to_numpy(zero_copy_only=False)


def _in(ops: pa.Array, wanted: Sequence[str]) -> np.ndarray:
    found: np.ndarray = pc.is_in(ops, value_set=pa.array(wanted)).to_numpy(False)
    return found


__all__ = ["EVENT", "LOOKUP", "LSN", "NOT_SENT", "SEQ", "UNAVAILABLE", "DebeziumDecoder"]
