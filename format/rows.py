"""Selection of rows from large tables.

Arrow joins the chunks of a column before it takes rows from them, and a plain string array is limited to 2 GiB. These
functions keep larger tables in chunks.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

WHOLE_BYTES = 1 << 30
"""Size in bytes from which on the chunks of a table are not joined."""


def take_rows(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    """Select rows of a large table by position.

    Besides the result, it needs at most `WHOLE_BYTES` of memory.

    Args:
        rows: The table to take from.
        positions: int[n] or uint[n], row positions in `rows`. They may repeat.
    """
    if not len(positions):
        return rows.slice(0, 0)  # Arrow would join all chunks even for an empty result
    if rows.nbytes < WHOLE_BYTES:
        return _take_shared_once(rows, pa.array(positions))
    if (positions[1:] > positions[:-1]).all():  # unsigned differences would wrap around
        return _filter_distinct(rows, positions)
    weight = rows.nbytes * len(positions) // max(1, len(rows))
    pieces = np.array_split(positions, min(len(positions), 1 + 2 * weight // WHOLE_BYTES))
    return pa.concat_tables([part for piece in pieces for part in _pieces(rows, piece)])


def _take_shared_once(rows: pa.Table, positions: pa.Array) -> pa.Table:
    # The key column and the record key column often share memory.
    taken: dict[object, pa.ChunkedArray] = {}
    columns = []
    for number, column in enumerate(rows.columns):
        memory = _memory_id(column) or number
        if memory not in taken:
            taken[memory] = column.take(positions)
        columns.append(taken[memory])
    return pa.table(columns, schema=rows.schema)


def _memory_id(column: pa.ChunkedArray) -> tuple[object, ...]:
    if not pa.types.is_string(column.type):
        return ()
    return tuple((part.offset, len(part), *map(_address, part.buffers())) for part in column.chunks)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address


def take_from_column(column: pa.ChunkedArray, positions: np.ndarray) -> pa.ChunkedArray:
    return take_rows(pa.table([column], names=["column"]), positions).column(0)


def _filter_distinct(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    mask = np.zeros(len(rows), bool)
    mask[positions] = True
    return rows.filter(pa.array(mask))


def _pieces(rows: pa.Table, positions: np.ndarray) -> list[pa.Table]:
    distinct, indices = np.unique(positions, return_inverse=True)
    picked = _filter_distinct(rows, distinct)
    if len(positions) == 1:
        return [picked]
    weight = picked.nbytes * len(positions) // max(1, len(distinct))  # a position may repeat
    if weight < WHOLE_BYTES:
        try:
            return [picked.take(pa.array(indices))]
        except pa.ArrowInvalid:  # a few repeated rows have most of the bytes
            pass
    half = len(positions) // 2
    return _pieces(rows, positions[:half]) + _pieces(rows, positions[half:])


def compact(rows: pa.Table) -> pa.Table:
    if rows.nbytes < WHOLE_BYTES:
        return rows.combine_chunks()
    parts: list[list[pa.Table]] = [[]]
    part_bytes = 0
    for batch in rows.to_batches():
        if part_bytes and part_bytes + batch.nbytes > WHOLE_BYTES:
            parts.append([])
            part_bytes = 0
        parts[-1].append(pa.Table.from_batches([batch]))
        part_bytes += batch.nbytes
    return pa.concat_tables([pa.concat_tables(part).combine_chunks() for part in parts if part])


__all__ = ["WHOLE_BYTES", "compact", "take_rows", "take_from_column"]
