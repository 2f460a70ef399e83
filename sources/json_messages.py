"""JSON objects, one a message or a line, as rows.

All are decoded together, fast. Where that fails, they are cut in halves until each bad one stands alone. Each message
is one object: half an object in one and half in another are two bad ones, never a row that stands for neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from hoodoo.errors import DataError
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.sources.wanted_rows import Numbered, WantedRows
from hoodoo.writers.batches.json_text import objects_in, require_exact
from hoodoo.writers.batches.row_files import rows_of

PROBLEMS = (pa.ArrowException, DataError, ValueError)
"""How text says that it is not what it should be."""
AT_ONCE = 20_000  # messages that are tried together


_EVENTS = ({"op", "source", "after"}, {"op", "source", "before"}, {"schema", "payload"})
"""The fields by which a change event of Debezium is known, without a schema or with one."""


class JsonDecoder(WantedRows):
    """Decodes messages by the columns of a table: text is read as what they are."""

    def __init__(self, columns: pa.Schema, unknown: bool, events: str = "") -> None:
        """Take what is asked for.

        Args:
            columns: As `WantedRows` takes it.
            unknown: As `WantedRows` takes it.
            events: How change events of Debezium are read instead, to be said of messages without a key that look like
                such. '' (default): they cannot be.
        """
        super().__init__(columns, unknown)
        self._events = events

    def meant(self, message: bytes) -> str:
        """Say that a message without a key looks like a change event, where such can be read."""
        if not self._events:
            return ""
        try:
            fields = json.loads(message)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(fields, dict) or not any(event <= fields.keys() for event in _EVENTS):
            return ""
        return f"; it looks like a change event of Debezium, which {self._events} reads"

    def parse(self, content: pa.Buffer) -> pa.Table:
        """Decode objects that follow each other. Raises one of PROBLEMS."""
        rows = self.wanted(sound(rows_of("json", content, self.columns, lambda column: False)))
        require_exact(rows, content, self.columns)
        return rows

    def rows(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode messages.

        Args:
            messages: Their numbers and their bytes.
            bad: Where those go that are no object.

        Yields:
            Rows in the order of the messages, and the numbers of these.
        """
        for start in range(0, len(messages), AT_ONCE):
            yield from self._halved(messages[start : start + AT_ONCE], bad)

    def _halved(self, messages: Sequence[Numbered], bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        problem: BaseException
        try:
            text = _lines([message for _, message in messages])
            rows = self.parse(pa.py_buffer(text))
            if len(rows) == len(messages):
                yield from self.complete(rows, messages, bad)
                return
            problem = ValueError("not one JSON object")
        except PROBLEMS as found:
            problem = found
        if len(messages) > 1:
            middle = len(messages) // 2
            yield from self._halved(messages[:middle], bad)
            yield from self._halved(messages[middle:], bad)
            return
        [(number, message)] = messages
        bad.note(number, _why(message, problem), message)


def sound(rows: pa.Table) -> pa.Table:
    """Check and repair what Arrow's JSON reader returns.

    Args:
        rows: Rows of JSON text.

    Returns:
        The same rows. Lists that hold nulls only have too few items when the reader returns them.

    Raises:
        UnicodeDecodeError: A name, at any level, is not UTF-8.
    """
    for at, field in enumerate(rows.schema):
        if _has_lists_of_nulls(field):
            chunks = [_repaired(chunk) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, field, pa.chunked_array(chunks, field.type))
    return rows


def _has_lists_of_nulls(field: pa.Field) -> bool:
    """Tell whether a column has lists of nulls at any level, after it decoded all names: Arrow does so only now."""
    kind, _ = field.type, field.name
    inner = [_has_lists_of_nulls(kind.field(at)) for at in range(kind.num_fields)]
    return any(inner) or pa.types.is_list(kind) and pa.types.is_null(kind.value_type)


def _repaired(values: pa.Array) -> pa.Array:
    kind, mask = values.type, values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        parts = [_repaired(values.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if not pa.types.is_list(kind):
        return values
    if pa.types.is_null(kind.value_type):
        items = pa.nulls(values.offsets[-1].as_py())
    else:
        items = _repaired(values.values)
    return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=mask)


def _lines(messages: Sequence[bytes]) -> bytes:
    """An object on each line, as far as its first and its last character tell. Raises ValueError."""
    text = b"\n".join([*messages, b""])
    if text.count(b"\n") > len(messages) or b"\r" in text or objects_in(pa.py_buffer(text)) != len(messages):
        text = b"".join(message.replace(b"\n", b" ").replace(b"\r", b" ").strip() + b"\n" for message in messages)
        if objects_in(pa.py_buffer(text)) != len(messages):
            raise ValueError("not one JSON object")
    return text


def _why(message: bytes, problem: BaseException) -> str:
    """What is wrong with a message, in words that point into it where it is no JSON at all."""
    try:
        json.loads(message)
    except ValueError as syntax:
        return f"no JSON object: {syntax}"
    except RecursionError:
        return "no JSON object: it is nested too deeply"
    return said(problem)


__all__ = ["PROBLEMS", "JsonDecoder", "sound"]
