"""Decoder for JSON messages and lines.

All messages are decoded together, which is fast. If this fails, they are split in halves until each bad message is
alone. Each message must be one object. If an object is split over two messages, both messages are bad.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from hoodoo.errors import DataError
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.wanted_rows import Numbered, RowFilter
from hoodoo.writers.batches.json_text import count_objects, require_exact_integers
from hoodoo.writers.batches.row_files import parse_rows

PROBLEMS = (pa.ArrowException, DataError, ValueError)
"""Errors for text that is not valid JSON, or does not match the table's columns."""
AT_ONCE = 20_000  # number of messages that are decoded together


_EVENT_FIELDS = ({"op", "source", "after"}, {"op", "source", "before"}, {"schema", "payload"})
# Fields that identify a Debezium change event, without or with a schema.


class JsonDecoder(RowFilter):
    def __init__(self, columns: pa.Schema, unknown: bool, events: str = "") -> None:
        """Create a decoder for JSON messages.

        Args:
            columns: The columns of the table, as in `RowFilter`.
            unknown: True to also read columns that the table does not have, as in `RowFilter`.
            events: The option that enables the reading of Debezium change events, for a hint about messages without a
                key that look like events. '' (default): no hint.
        """
        super().__init__(columns, unknown)
        self._events = events

    def meant(self, message: bytes) -> str:
        """Return a hint about Debezium events."""
        if not self._events:
            return ""
        try:
            fields = json.loads(message)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(fields, dict) or not any(event <= fields.keys() for event in _EVENT_FIELDS):
            return ""
        return f"; it looks like a change event of Debezium, which {self._events} reads"

    def parse(self, content: pa.Buffer) -> pa.Table:
        """Decode concatenated JSON objects to rows.

        Raises one of PROBLEMS.
        """
        rows = self.drop_unknown_columns(repair_rows(parse_rows("json", content, self.columns, lambda column: False)))
        require_exact_integers(rows, content, self.columns)
        return rows

    def rows(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode JSON messages to rows.

        Yields rows in the order of the messages, and the numbers of the messages. Invalid messages are added to `bad`.
        """
        for start in range(0, len(messages), AT_ONCE):
            yield from self._decode_in_halves(messages[start : start + AT_ONCE], bad)

    def _decode_in_halves(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        problem: BaseException
        try:
            text = _join_lines([message for _, message in messages])
            rows = self.parse(pa.py_buffer(text))
            if len(rows) == len(messages):
                yield from self.yield_complete_rows(rows, messages, bad)
                return
            problem = ValueError("Text is not exactly one JSON object")
        except PROBLEMS as error:
            problem = error
        if len(messages) > 1:
            middle = len(messages) // 2
            yield from self._decode_in_halves(messages[:middle], bad)
            yield from self._decode_in_halves(messages[middle:], bad)
            return
        [(number, message)] = messages
        bad.note(number, _describe_problem(message, problem), message)


def repair_rows(rows: pa.Table) -> pa.Table:
    """Repair rows from Arrow's JSON reader.

    Lists that only contain nulls are repaired, because the reader returns them with too few items. Raises
    UnicodeDecodeError if a name, at any level, is not UTF-8.
    """
    for index, field in enumerate(rows.schema):
        if _has_lists_of_nulls(field):
            chunks = [_repair_lists(chunk) for chunk in rows.column(index).chunks]
            rows = rows.set_column(index, field, pa.chunked_array(chunks, field.type))
    return rows


def _has_lists_of_nulls(field: pa.Field) -> bool:
    # Nested fields count too. All names are decoded here, because Arrow validates them lazily.
    kind, _ = field.type, field.name
    inner = [_has_lists_of_nulls(kind.field(index)) for index in range(kind.num_fields)]
    return any(inner) or pa.types.is_list(kind) and pa.types.is_null(kind.value_type)


def _repair_lists(values: pa.Array) -> pa.Array:
    kind, mask = values.type, values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        parts = [_repair_lists(values.field(index)) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if not pa.types.is_list(kind):
        return values
    if pa.types.is_null(kind.value_type):
        items = pa.nulls(values.offsets[-1].as_py())
    else:
        items = _repair_lists(values.values)
    return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=mask)


def _join_lines(messages: Sequence[bytes]) -> bytes:
    # Raises ValueError if a message is not one object. Only the first and the last character of each line are checked.
    text = b"\n".join([*messages, b""])
    if text.count(b"\n") > len(messages) or b"\r" in text or count_objects(pa.py_buffer(text)) != len(messages):
        text = b"".join(message.replace(b"\n", b" ").replace(b"\r", b" ").strip() + b"\n" for message in messages)
        if count_objects(pa.py_buffer(text)) != len(messages):
            raise ValueError("Text is not exactly one JSON object")
    return text


def _describe_problem(message: bytes, problem: BaseException) -> str:
    # For invalid JSON, the reason contains the position of the error.
    try:
        json.loads(message)
    except ValueError as syntax:
        return f"no JSON object: {syntax}"
    except RecursionError:
        return "no JSON object: it is nested too deeply"
    return said(problem)


__all__ = ["PROBLEMS", "JsonDecoder", "repair_rows"]
