"""Decoder for Avro messages.

A message consists of a zero byte, the schema id in four bytes, and the encoded record. All messages of one schema are
decoded together, column by column. If that fails, they are split in halves until each bad message is alone. A record
must end at the end of its message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError, DataError, TableError
from hoodoo.format.avro.decode import decode_spans
from hoodoo.format.avro.nested import python_values_to_arrow
from hoodoo.format.avro.values import UnreadableField
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.avro_schemas import AvroColumn, AvroSchemas, MessageSchema
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.json_messages import AT_ONCE
from hoodoo.sources.one_type import concatenate_tables
from hoodoo.sources.wanted_rows import Numbered, RowFilter
from hoodoo.writers.batches.cast import cast_column, find_uncastable_rows

HEAD = 5
"""Number of bytes before the encoded record: a zero byte and the schema id."""
Note = Callable[[int, str], None]
Picked = tuple[tuple[int, str, pa.DataType | None], ...]
"""Columns to read from a schema: index in the schema, name in the rows, and an optional type."""
_DECODING_ERRORS = (TableError, UnreadableField, pa.ArrowException, ValueError, TypeError, ArithmeticError)


class AvroMessageReader:
    """Reader that groups Avro messages by schema."""

    def __init__(self, schemas: AvroSchemas) -> None:
        self._schemas = schemas
        self._refused = dict[int, str]()

    def groups(self, messages: Sequence[bytes], note: Note) -> Iterator[tuple[MessageSchema, np.ndarray, AvroRecords]]:
        """Group Avro messages by schema.

        Args:
            messages: The messages.
            note: Function that is called with the index of each message without a valid schema, and the reason.

        Yields:
            A schema, the indexes of its messages in ascending order, and their encoded records.

        Raises:
            SourceUnavailable: The registry does not respond.
            OptionError: The registry denies access.
        """
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        raw = np.frombuffer(b"".join(messages) + bytes(HEAD), np.uint8)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        headed = (sizes >= HEAD) & (raw[starts] == 0)
        for index in np.flatnonzero(~headed).tolist():
            note(index, "not an Avro message: it does not start with a zero byte and a schema id")
        numbers = np.zeros(len(messages), np.int64)
        for byte in range(1, HEAD):
            numbers = numbers << 8 | raw[starts + byte]
        with_head = np.flatnonzero(headed)
        for schema_id in dict.fromkeys(numbers[with_head].tolist()):
            indexes = with_head[numbers[with_head] == schema_id]
            try:
                schema = self._schema_by_id(schema_id)
            except DataError as problem:
                for index in indexes.tolist():
                    note(index, problem.message)
                continue
            yield schema, indexes, AvroRecords(raw[:-HEAD], starts[indexes] + HEAD, ends[indexes])

    def _schema_by_id(self, number: int) -> MessageSchema:
        # A rejected schema is requested only once.
        if number in self._refused:
            raise DataError(self._refused[number], schema=number)
        try:
            return self._schemas.of(number)
        except DataError as problem:
            self._refused[number] = problem.message
            raise


class AvroRecords:
    """Encoded Avro records with the same schema."""

    def __init__(self, raw: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        self._raw, self._starts, self._ends = raw, starts, ends

    def rows(self, schema: MessageSchema, picked: Picked, note: Note) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Decode the Avro records.

        Args:
            schema: The schema of the records.
            picked: The columns to read.
            note: Function that is called with the index of each invalid record, and the reason.

        Yields:
            Rows, and the index of each row's record.
        """
        if len(self._starts):
            yield from self._decode_in_halves(schema, picked, 0, len(self._starts), note)

    def _decode_in_halves(
        self, schema: MessageSchema, picked: Picked, low: int, high: int, note: Note
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        try:
            is_record = schema.record is not None
            rows = (
                self._decode_columns(schema, picked, low, high)
                if is_record
                else self._decode_one_by_one(schema, picked, low, high)
            )
        except _DECODING_ERRORS as error:
            problem = error
        else:
            yield rows, np.arange(low, high)
            return
        if high - low > 1:
            middle = (low + high) // 2
            yield from self._decode_in_halves(schema, picked, low, middle, note)
            yield from self._decode_in_halves(schema, picked, middle, high, note)
            return
        if schema.record is not None:
            try:
                rows = self._decode_one_by_one(schema, picked, low, high)
            except _DECODING_ERRORS as error:
                problem = error
            else:
                yield rows, np.arange(low, high)
                return
        note(low, f"not a record of its schema: {said(problem).replace(' of a log block', '')}")

    def _decode_columns(self, schema: MessageSchema, picked: Picked, low: int, high: int) -> pa.Table:
        # The last field is always read, because it shows where a record ends.
        assert schema.record is not None
        names = [schema.columns[index].name for index, _, _ in picked]
        last = schema.columns[-1].name
        columns = decode_spans(
            self._raw, self._starts[low:high], self._ends[low:high], schema.record, list(dict.fromkeys([*names, last]))
        )
        return pa.table([columns[name] for name in names], [name for _, name, _ in picked])

    def _decode_one_by_one(self, schema: MessageSchema, picked: Picked, low: int, high: int) -> pa.Table:
        # For schemas with a field that has no single Arrow type.
        view, values = memoryview(self._raw.data), list[Any]()
        for start, end in zip(self._starts[low:high].tolist(), self._ends[low:high].tolist(), strict=True):
            stream = BytesIO(view[start:end])
            try:
                values.append(fastavro.schemaless_reader(stream, schema.by_value, None))
            except Exception as problem:  # fastavro raises various Python errors: EOFError, IndexError, ...
                raise ValueError(f"Record is truncated or invalid ({type(problem).__name__})") from None
            if stream.tell() != end - start:
                raise ValueError(f"Record is followed by {end - start - stream.tell()} more bytes")
        columns = [
            _column_array([record[f"f{index}"] for record in values], schema.columns[index], kind)
            for index, _, kind in picked
        ]
        return pa.table(columns, [name for _, name, _ in picked])


def _column_array(values: list[object], column: AvroColumn, kind: pa.DataType | None) -> pa.Array:
    if column.type is not None:
        return python_values_to_arrow(values, column.type)
    try:
        return pa.array(values, kind)
    except _DECODING_ERRORS as problem:
        raise ValueError(f"Column {column.name!r}: {said(problem)}") from None


class AvroDecoder(RowFilter):
    def __init__(self, topic: str, columns: pa.Schema, unknown: bool, schemas: AvroSchemas) -> None:
        """Create a decoder for Avro messages.

        Args:
            topic: The name of the topic, for errors.
            columns: The columns of the table, as in `RowFilter`.
            unknown: True to also read columns that the table does not have. They get the types of the schema. Columns
                without a single type are left out.
            schemas: The cache of Avro schemas.
        """
        super().__init__(columns, unknown)
        self._topic, self._reader = topic, AvroMessageReader(schemas)

    def rows(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode Avro messages to rows.

        Args:
            messages: The numbers and bytes of the messages.
            bad: Collector for the messages that are not valid records, or that have no value in a required column.

        Yields:
            Rows in the order of the messages, and the numbers of the messages.

        Raises:
            ColumnError: A column that is not in the table has values of several types.
            SourceUnavailable: The registry does not respond.
            OptionError: The registry denies access.
        """
        for start in range(0, len(messages), AT_ONCE):
            block = messages[start : start + AT_ONCE]

            def note(at: int, reason: str, block: Sequence[Numbered] = block) -> None:
                number, content = block[at]
                bad.note(number, reason, content)

            parts = list[tuple[pa.Table, list[int]]]()
            for schema, where, spans in self._reader.groups([content for _, content in block], note):
                note_of_schema = _translate_indexes(where, note)
                for rows, at in spans.rows(schema, self._fields_to_decode(schema), note_of_schema):
                    rows, at = self._convert_types(self.drop_unknown_columns(rows), where[at], note)
                    parts += self.yield_complete_rows(rows, [block[index] for index in at.tolist()], bad)
            yield from merge_in_message_order(self._topic, parts, self.columns)

    def _convert_types(self, rows: pa.Table, where: np.ndarray, note: Note) -> tuple[pa.Table, np.ndarray]:
        # Afterwards, rows of different schemas have equal types. `where` contains the index of each row's message.
        for name in rows.column_names:
            if name not in self.columns.names or rows[name].type == self.columns.field(name).type:
                continue
            field = pa.field(name, self.columns.field(name).type)
            try:
                values = cast_column(rows[name], field)
            except ColumnError as problem:
                unfit = self._find_unfit_values(rows[name], field, problem)
                for index, reason in unfit.items():
                    note(int(where[index]), reason)
                fits = np.ones(len(rows), bool)
                fits[list(unfit)] = False
                rows, where = rows.filter(pa.array(fits)), where[fits]
                is_empty = rows[name].null_count == len(rows)
                values = (
                    pa.chunked_array([pa.nulls(len(rows), field.type)]) if is_empty else cast_column(rows[name], field)
                )
            rows = rows.set_column(rows.column_names.index(name), field, values)
        return rows, where

    def _find_unfit_values(self, values: pa.ChunkedArray, field: pa.Field, problem: ColumnError) -> dict[int, str]:
        # If the type of the column itself is incompatible, all non-null values are unfit.
        try:
            rows = find_uncastable_rows(values, field, len(values))
        except ColumnError:
            return dict.fromkeys(np.flatnonzero(values.is_valid().to_numpy()).tolist(), problem.message)
        shown = {index: printable(values[index].as_py()) for index in rows}
        return {index: f"Column {field.name!r}: {text} is not a valid {field.type}" for index, text in shown.items()}

    def _fields_to_decode(self, schema: MessageSchema) -> Picked:
        # Former names (aliases) are mapped to the column names of the table.
        picked, taken = list[tuple[int, str, pa.DataType | None]](), set[str]()
        wanted, schema_names = {*self.columns.names, IS_DELETED}, {column.name for column in schema.columns}
        for index, column in enumerate(schema.columns):
            former_names = (
                alias
                for alias in column.aliases
                if alias in wanted and alias not in schema_names and alias not in taken
            )
            name = column.name if column.name in wanted else next(former_names, column.name)
            kind = self.columns.field(name).type if name in self.columns.names else None
            if name in taken or name not in wanted and not (self.unknown and column.type is not None):
                self.left_out.add(column.name)
                continue
            taken.add(name)
            picked.append((index, name, pa.bool_() if name == IS_DELETED else kind))
        return tuple(picked)


def _translate_indexes(where: np.ndarray, note: Note) -> Note:
    return lambda at, why: note(int(where[at]), why)


def merge_in_message_order(
    topic: str, parts: Sequence[tuple[pa.Table, list[int]]], columns: pa.Schema
) -> Iterator[tuple[pa.Table, list[int]]]:
    """Merge decoded rows in message order.

    Args:
        topic: The name of the topic, for errors.
        parts: Tables of rows, and the number of each row's message.
        columns: The columns of the table, used for an empty result.

    Yields:
        All rows, and the number of each row's message. Nothing for an empty batch.

    Raises:
        ColumnError: A column has values of several types.
    """
    if len(parts) < 2:
        yield from parts
        return
    numbers = np.concatenate([np.array(part_numbers, np.int64) for _, part_numbers in parts])
    order = np.argsort(numbers, kind="stable")
    yield concatenate_tables(topic, [rows for rows, _ in parts], columns).take(pa.array(order)), numbers[order].tolist()


__all__ = ["AvroDecoder", "AvroMessageReader", "Note", "Picked", "AvroRecords", "merge_in_message_order"]
