"""Rows of Arrow tables taken and put together whatever they weigh. Arrow joins a column's chunks before it takes from
them, and one plain array of text ends at 2 GiB: what weighs more stays in chunks here.

Knows tables and positions in them, not what they hold.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

WHOLE_BYTES = 1 << 30
"""Rows of so many bytes or more are never joined into one chunk."""


def take(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    """Return the rows at `positions`, in the order of `positions`.

    The memory needed beside the result is small, or one piece of `WHOLE_BYTES` where `rows` has more bytes than that.

    Args:
        rows: The table to take from.
        positions: int[n] or uint[n], row positions in `rows`; one may occur more than once.
    """
    if not len(positions):
        return rows.slice(0, 0)  # Arrow joins all chunks even to take nothing
    if rows.nbytes < WHOLE_BYTES:
        return _each_once(rows, pa.array(positions))
    if (positions[1:] > positions[:-1]).all():  # unsigned differences would wrap around
        return _marked(rows, positions)
    weight = rows.nbytes * len(positions) // max(1, len(rows))
    pieces = np.array_split(positions, min(len(positions), 1 + 2 * weight // WHOLE_BYTES))
    return pa.concat_tables([part for piece in pieces for part in _pieces(rows, piece)])


def _each_once(rows: pa.Table, positions: pa.Array) -> pa.Table:
    """As Table.take; texts that lie in the same memory, as a key column and the record key often do, are taken once."""
    taken: dict[object, pa.ChunkedArray] = {}
    columns = []
    for number, column in enumerate(rows.columns):
        known = _memory(column) or number
        if known not in taken:
            taken[known] = column.take(positions)
        columns.append(taken[known])
    return pa.table(columns, schema=rows.schema)


def _memory(column: pa.ChunkedArray) -> tuple[object, ...]:
    """Where the texts of `column` lie; () of another type."""
    if not pa.types.is_string(column.type):
        return ()
    return tuple((part.offset, len(part), *map(_address, part.buffers())) for part in column.chunks)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address


def take_column(column: pa.ChunkedArray, positions: np.ndarray) -> pa.ChunkedArray:
    """As `take`, of one column."""
    return take(pa.table([column], names=["column"]), positions).column(0)


def _marked(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    """Rows at some of the `positions`, each once and in the order of `rows`: chunk by chunk."""
    mask = np.zeros(len(rows), bool)
    mask[positions] = True
    return rows.filter(pa.array(mask))


def _pieces(rows: pa.Table, positions: np.ndarray) -> list[pa.Table]:
    found, at = np.unique(positions, return_inverse=True)
    picked = _marked(rows, found)
    if len(positions) == 1:
        return [picked]
    weight = picked.nbytes * len(positions) // max(1, len(found))  # a position may be asked for more than once
    if weight < WHOLE_BYTES:
        try:
            return [picked.take(pa.array(at))]
        except pa.ArrowInvalid:  # few of them, asked for often, weigh most
            pass
    half = len(positions) // 2
    return _pieces(rows, positions[:half]) + _pieces(rows, positions[half:])


def compact(rows: pa.Table) -> pa.Table:
    """`rows` in one chunk, or in as few as their weight allows."""
    if rows.nbytes < WHOLE_BYTES:
        return rows.combine_chunks()
    parts: list[list[pa.Table]] = [[]]
    held = 0
    for batch in rows.to_batches():
        if held and held + batch.nbytes > WHOLE_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(pa.Table.from_batches([batch]))
        held += batch.nbytes
    return pa.concat_tables([pa.concat_tables(part).combine_chunks() for part in parts if part])


__all__ = ["WHOLE_BYTES", "compact", "take", "take_column"]
