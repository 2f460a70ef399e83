"""Wanted rows, without unknown columns and missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import IS_DELETED
from hoodoo.sources.bad_messages import BadMessages

Numbered = tuple[int, bytes]


class RowFilter:
    """Wanted rows, without unknown columns and missing values.

    Attributes:
        columns: The columns of the table.
        unknown: True to keep columns that the table does not have.
        left_out: Names of the columns that were dropped so far.
    """

    def __init__(self, columns: pa.Schema, unknown: bool) -> None:
        self.columns, self.unknown, self.left_out = columns, unknown, set[str]()
        self.needed = [field.name for field in columns if not field.nullable]

    def drop_unknown_columns(self, rows: pa.Table) -> pa.Table:
        """Drop columns that the table does not have.

        Struct fields that the table does not have are dropped too. If `unknown` is True, the rows are returned
        unchanged.
        """
        names = list(rows.schema.names)  # decodes the names, which Arrow does lazily
        if self.unknown:
            return rows
        self.left_out.update(name for name in names if name not in self.columns.names and name != IS_DELETED)
        rows = rows.select([name for name in names if name not in self.left_out])
        for index, field in enumerate(rows.schema):
            if field.name in self.columns.names and pa.types.is_struct(field.type):
                rows = rows.set_column(index, field.name, self._drop_unknown_fields(rows[field.name], field.name))
        return rows

    def _drop_unknown_fields(self, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        kind = self.columns.field(name).type
        if not pa.types.is_struct(kind):
            return values
        known = {field.name for field in kind}
        unknown_fields = [field.name for field in values.type if field.name not in known]
        if not unknown_fields or not known & {field.name for field in values.type}:
            return values
        self.left_out.update(f"{name}.{field}" for field in unknown_fields)
        fields = [field for field in values.type if field.name in known]
        chunks = [
            pa.StructArray.from_arrays(
                [pc.struct_field(chunk, field.name) for field in fields], fields=fields, mask=chunk.is_null()
            )
            for chunk in values.chunks
        ]
        return pa.chunked_array(chunks, pa.struct(fields))

    def lacking(self, rows: pa.Table) -> dict[str, np.ndarray]:
        """Find rows without a required value.

        Returns a boolean mask for each required (NOT NULL) column that has such rows.
        """
        masks = dict[str, np.ndarray]()
        for name in self.needed:
            if name not in rows.column_names:
                masks[name] = np.ones(len(rows), bool)
            elif rows[name].null_count:
                masks[name] = rows[name].is_null().to_numpy()
        return masks

    def meant(self, message: bytes) -> str:
        """Return a hint for an error message."""
        return ""

    def yield_complete_rows(
        self, rows: pa.Table, messages: Sequence[Numbered], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """Yield the rows with all required values.

        Yields the numbers of their messages too, and nothing for an empty batch. Messages whose rows lack a required
        value are added to `bad`.
        """
        masks = self.lacking(rows)
        is_complete = np.ones(len(rows), bool)
        for name, mask in masks.items():
            for index in np.flatnonzero(mask & is_complete).tolist():
                number, message = messages[index]
                detail = f"key column {name!r} has no value{self.meant(message)}"
                bad.note(number, detail, message, "null_key")
            is_complete &= ~mask
        if is_complete.all():
            yield rows, [number for number, _ in messages]
        elif is_complete.any():
            yield (
                rows.filter(pa.array(is_complete)),
                [messages[index][0] for index in np.flatnonzero(is_complete).tolist()],
            )


__all__ = ["Numbered", "RowFilter"]
