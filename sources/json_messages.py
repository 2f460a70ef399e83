"""JSON objects, one a message or a line, as rows.

All are decoded together, fast. Where that fails, they are cut in halves until each bad one stands alone. Each message
is one object: half an object in one and half in another are two bad ones, never a row that stands for neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.sources.bad_messages import BadMessages, said
from hoodoo.writers.batches.json_text import objects_in
from hoodoo.writers.batches.row_files import rows_of

PROBLEMS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, DataError, UnicodeDecodeError, ValueError)
"""How text says that it is not what it should be."""
AT_ONCE = 20_000  # messages that are tried together
Numbered = tuple[int, bytes]


class JsonDecoder:
    """Decodes messages by the columns of a table.

    Attributes:
        left_out: Columns that nobody asked for, as far as they have been met.
    """

    def __init__(self, columns: pa.Schema, unknown: bool) -> None:
        """Take what is asked for.

        Args:
            columns: What text is read as. A row needs those that are not nullable.
            unknown: Are columns wanted that `columns` does not have?
        """
        self.columns, self.unknown, self.left_out = columns, unknown, set[str]()
        self.needed = [field.name for field in columns if not field.nullable]

    def parse(self, content: pa.Buffer) -> pa.Table:
        """Decode objects that follow each other. Raises one of PROBLEMS."""
        return self.wanted(rows_of("json", content, self.columns, lambda column: False))

    def wanted(self, rows: pa.Table) -> pa.Table:
        """Leave out what nobody asked for."""
        names = list(rows.schema.names)  # Arrow decodes the names only now
        if self.unknown:
            return rows
        self.left_out.update(one for one in names if one not in self.columns.names and one != IS_DELETED)
        rows = rows.select([one for one in names if one not in self.left_out])
        for at, field in enumerate(rows.schema):
            if field.name in self.columns.names and pa.types.is_struct(field.type):
                rows = rows.set_column(at, field.name, self._cut(rows[field.name], field.name))
        return rows

    def _cut(self, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Structs without the fields that nobody asked for."""
        kind = self.columns.field(name).type
        if not pa.types.is_struct(kind):
            return values
        known = {field.name for field in kind}
        strange = [field.name for field in values.type if field.name not in known]
        if not strange or not known & {field.name for field in values.type}:
            return values
        self.left_out.update(f"{name}.{field}" for field in strange)
        fields = [field for field in values.type if field.name in known]
        chunks = [
            pa.StructArray.from_arrays(
                [pc.struct_field(chunk, field.name) for field in fields], fields=fields, mask=chunk.is_null()
            )
            for chunk in values.chunks
        ]
        return pa.chunked_array(chunks, pa.struct(fields))

    def lacking(self, rows: pa.Table) -> dict[str, np.ndarray]:
        """Which rows have no value in a column that each needs, by column."""
        found = dict[str, np.ndarray]()
        for name in self.needed:
            if name not in rows.column_names:
                found[name] = np.ones(len(rows), bool)
            elif rows[name].null_count:
                found[name] = rows[name].is_null().to_numpy()
        return found

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
            text = b"\n".join(message.replace(b"\n", b" ").replace(b"\r", b" ").strip() for _, message in messages)
            rows = self.parse(pa.py_buffer(text + b"\n"))
            if len(rows) == len(messages) == objects_in(pa.py_buffer(text)):
                yield from self._having_all(rows, messages, bad)
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

    def _having_all(
        self, rows: pa.Table, messages: Sequence[Numbered], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """The rows that have all that each needs; the messages of the others are bad, and kept as they came."""
        lacks = self.lacking(rows)
        there = np.ones(len(rows), bool)
        for name, mask in lacks.items():
            for at in np.flatnonzero(mask & there).tolist():
                number, message = messages[at]
                bad.note(number, f"no value for the key column {name!r}", message, "null_key")
            there &= ~mask
        if there.all():
            yield rows, [number for number, _ in messages]
        elif there.any():
            yield rows.filter(pa.array(there)), [messages[at][0] for at in np.flatnonzero(there).tolist()]


def _why(message: bytes, problem: BaseException) -> str:
    """What is wrong with a message, in words that point into it where it is no JSON at all."""
    try:
        json.loads(message)
    except ValueError as syntax:
        return f"no JSON object: {syntax}"
    except RecursionError:
        return "no JSON object: it is nested too deeply"
    return said(problem)


__all__ = ["PROBLEMS", "JsonDecoder"]
