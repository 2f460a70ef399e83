"""Avro messages as rows: a zero byte, the number of the schema in four, and a record.

Messages of one schema are decoded together, column by column. Where that fails, they are cut in halves until each bad
one stands alone. A record has to end where its message ends. Knows neither Kafka nor Debezium.
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
from hoodoo.format.avro.nested import array_of
from hoodoo.format.avro.values import Damaged
from hoodoo.format.names import IS_DELETED
from hoodoo.redact import printable
from hoodoo.sources.avro_schemas import AvroColumn, AvroSchemas, MessageSchema
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.json_messages import AT_ONCE
from hoodoo.sources.one_type import together
from hoodoo.sources.wanted_rows import Numbered, WantedRows
from hoodoo.writers.batches.cast import cast, unfit_rows

HEAD = 5
"""Bytes before the record."""
Note = Callable[[int, str], None]
Picked = tuple[tuple[int, str, pa.DataType | None], ...]
"""Of a schema's columns: which, the name that its rows have, and the type for values that have no single one."""
_UNFIT = (TableError, Damaged, pa.ArrowException, ValueError, TypeError, ArithmeticError)


class AvroReader:
    """Reads messages by schemas of a registry."""

    def __init__(self, schemas: AvroSchemas) -> None:
        self._schemas = schemas
        self._refused = dict[int, str]()

    def groups(self, messages: Sequence[bytes], note: Note) -> Iterator[tuple[MessageSchema, np.ndarray, Spans]]:
        """Sort messages by their schemas.

        Args:
            messages: Some messages.
            note: Is told the position of each that names no schema, and why.

        Yields:
            A schema, the positions of its messages, in order, and their records.

        Raises:
            SourceUnavailable: The registry does not answer.
            OptionError: It refuses to.
        """
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        raw = np.frombuffer(b"".join(messages) + bytes(HEAD), np.uint8)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        headed = (sizes >= HEAD) & (raw[starts] == 0)
        for at in np.flatnonzero(~headed).tolist():
            note(at, "not an Avro message: it does not start with a zero byte and a schema id")
        numbers = np.zeros(len(messages), np.int64)
        for byte in range(1, HEAD):
            numbers = numbers << 8 | raw[starts + byte]
        there = np.flatnonzero(headed)
        for number in dict.fromkeys(numbers[there].tolist()):
            where = there[numbers[there] == number]
            try:
                schema = self._schema(number)
            except DataError as problem:
                for at in where.tolist():
                    note(at, problem.message)
                continue
            yield schema, where, Spans(raw[:-HEAD], starts[where] + HEAD, ends[where])

    def _schema(self, number: int) -> MessageSchema:
        """The schema of a number; one that is refused is asked for once."""
        if number in self._refused:
            raise DataError(self._refused[number], schema=number)
        try:
            return self._schemas.of(number)
        except DataError as problem:
            self._refused[number] = problem.message
            raise


class Spans:
    """Records of one schema: where each begins and ends in some bytes."""

    def __init__(self, raw: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        self._raw, self._starts, self._ends = raw, starts, ends

    def rows(self, schema: MessageSchema, picked: Picked, note: Note) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Decode the records.

        Args:
            schema: Their schema.
            picked: What is wanted of it.
            note: Is told which of them are none, and why.

        Yields:
            Rows, and the position of each among the records.
        """
        if len(self._starts):
            yield from self._halved(schema, picked, 0, len(self._starts), note)

    def _halved(
        self, schema: MessageSchema, picked: Picked, low: int, high: int, note: Note
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        try:
            whole = schema.record is not None
            rows = self._together(schema, picked, low, high) if whole else self._by_value(schema, picked, low, high)
        except _UNFIT as found:
            problem = found
        else:
            yield rows, np.arange(low, high)
            return
        if high - low > 1:
            middle = (low + high) // 2
            yield from self._halved(schema, picked, low, middle, note)
            yield from self._halved(schema, picked, middle, high, note)
            return
        if schema.record is not None:
            try:
                rows = self._by_value(schema, picked, low, high)
            except _UNFIT as found:
                problem = found
            else:
                yield rows, np.arange(low, high)
                return
        note(low, f"not a record of its schema: {said(problem).replace(' of a log block', '')}")

    def _together(self, schema: MessageSchema, picked: Picked, low: int, high: int) -> pa.Table:
        """All records column by column. The last field is read too: only then is it known where a record ends."""
        assert schema.record is not None
        names = [schema.columns[at].name for at, _, _ in picked]
        last = schema.columns[-1].name
        found = decode_spans(
            self._raw, self._starts[low:high], self._ends[low:high], schema.record, list(dict.fromkeys([*names, last]))
        )
        return pa.table([found[name] for name in names], [name for _, name, _ in picked])

    def _by_value(self, schema: MessageSchema, picked: Picked, low: int, high: int) -> pa.Table:
        """Record by record, by fastavro."""
        view, values = memoryview(self._raw.data), list[Any]()
        for start, end in zip(self._starts[low:high].tolist(), self._ends[low:high].tolist(), strict=True):
            stream = BytesIO(view[start:end])
            try:
                values.append(fastavro.schemaless_reader(stream, schema.by_value, None))
            except Exception as problem:  # fastavro raises whatever Python raised: EOFError, IndexError, ...
                raise ValueError(f"it is truncated or invalid ({type(problem).__name__})") from None
            if stream.tell() != end - start:
                raise ValueError(f"{end - start - stream.tell()} bytes stand behind it")
        columns = [_column([one[f"f{at}"] for one in values], schema.columns[at], kind) for at, _, kind in picked]
        return pa.table(columns, [name for _, name, _ in picked])


def _column(values: list[object], column: AvroColumn, kind: pa.DataType | None) -> pa.Array:
    if column.type is not None:
        return array_of(values, column.type)
    try:
        return pa.array(values, kind)
    except _UNFIT as problem:
        raise ValueError(f"Column {column.name!r}: {said(problem)}") from None


class AvroDecoder(WantedRows):
    """Decodes messages by their schemas, for the columns of a table."""

    def __init__(self, topic: str, columns: pa.Schema, unknown: bool, schemas: AvroSchemas) -> None:
        """Take what is asked for.

        Args:
            topic: What errors call the topic.
            columns: As `WantedRows` takes them.
            unknown: As `WantedRows` takes it. Such columns have the type of the schema; those without a single type
                are left out.
            schemas: The schemas of the registry.
        """
        super().__init__(columns, unknown)
        self._topic, self._reader = topic, AvroReader(schemas)

    def rows(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode messages.

        Args:
            messages: Their numbers and their bytes.
            bad: Where those go that are no record, or have no value in a column that each row needs.

        Yields:
            Rows in the order of the messages, and the numbers of these.

        Raises:
            ColumnError: A column that the table does not have has values of several types.
            SourceUnavailable: The registry does not answer.
            OptionError: It refuses to.
        """
        for start in range(0, len(messages), AT_ONCE):
            some = messages[start : start + AT_ONCE]

            def note(at: int, why: str, some: Sequence[Numbered] = some) -> None:
                number, content = some[at]
                bad.note(number, why, content)

            parts = list[tuple[pa.Table, list[int]]]()
            for schema, where, spans in self._reader.groups([content for _, content in some], note):
                noted = _at(where, note)
                for rows, at in spans.rows(schema, self._picked(schema), noted):
                    rows, at = self._fitted(self.wanted(rows), where[at], note)
                    parts += self.complete(rows, [some[one] for one in at.tolist()], bad)
            yield from in_order(self._topic, parts, self.columns)

    def _fitted(self, rows: pa.Table, where: np.ndarray, note: Note) -> tuple[pa.Table, np.ndarray]:
        """`rows` of messages at `where`, with the types of the table: those of several schemas have to be equal."""
        for name in rows.column_names:
            if name not in self.columns.names or rows[name].type == self.columns.field(name).type:
                continue
            field = pa.field(name, self.columns.field(name).type)
            try:
                values = cast(rows[name], field)
            except ColumnError as problem:
                unfit = self._unfit(rows[name], field, problem)
                for at, why in unfit.items():
                    note(int(where[at]), why)
                fits = np.ones(len(rows), bool)
                fits[list(unfit)] = False
                rows, where = rows.filter(pa.array(fits)), where[fits]
                nothing = rows[name].null_count == len(rows)
                values = pa.chunked_array([pa.nulls(len(rows), field.type)]) if nothing else cast(rows[name], field)
            rows = rows.set_column(rows.column_names.index(name), field, values)
        return rows, where

    def _unfit(self, values: pa.ChunkedArray, field: pa.Field, problem: ColumnError) -> dict[int, str]:
        """Which values are none of a column, and why; all that are there if it is about their type."""
        try:
            rows = unfit_rows(values, field, len(values))
        except ColumnError:
            return dict.fromkeys(np.flatnonzero(values.is_valid().to_numpy()).tolist(), problem.message)
        shown = {at: printable(values[at].as_py()) for at in rows}
        return {at: f"Column {field.name!r}: {text} is not a valid {field.type}" for at, text in shown.items()}

    def _picked(self, schema: MessageSchema) -> Picked:
        """What is wanted of a schema, under the names of the table."""
        found, taken = list[tuple[int, str, pa.DataType | None]](), set[str]()
        known, own = {*self.columns.names, IS_DELETED}, {column.name for column in schema.columns}
        for at, column in enumerate(schema.columns):
            old = (one for one in column.aliases if one in known and one not in own and one not in taken)
            name = column.name if column.name in known else next(old, column.name)
            kind = self.columns.field(name).type if name in self.columns.names else None
            if name in taken or name not in known and not (self.unknown and column.type is not None):
                self.left_out.add(column.name)
                continue
            taken.add(name)
            found.append((at, name, pa.bool_() if name == IS_DELETED else kind))
        return tuple(found)


def _at(where: np.ndarray, note: Note) -> Note:
    """As `note`, for positions among those in `where`."""
    return lambda at, why: note(int(where[at]), why)


def in_order(
    topic: str, parts: Sequence[tuple[pa.Table, list[int]]], columns: pa.Schema
) -> Iterator[tuple[pa.Table, list[int]]]:
    """Put rows of several schemas back into the order of their messages.

    Args:
        topic: What errors call the topic.
        parts: Rows, and the number of the message of each.
        columns: The columns of the table, for where there are no rows.

    Yields:
        All rows, and the number of the message of each, if there are any.

    Raises:
        ColumnError: A column has values of several types.
    """
    if len(parts) < 2:
        yield from parts
        return
    numbers = np.concatenate([np.array(of, np.int64) for _, of in parts])
    order = np.argsort(numbers, kind="stable")
    yield together(topic, [rows for rows, _ in parts], columns).take(pa.array(order)), numbers[order].tolist()


__all__ = ["AvroDecoder", "AvroReader", "Note", "Picked", "Spans", "in_order"]
