"""Split of a batch into existing and new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log.block import supports_ordering_type
from hoodoo.format.rows import take_from_column, take_rows
from hoodoo.index.key_index import NOWHERE, KeyIndex, LookupKeys, LookupResult
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.routing.route import ChunkSlice, Mode, RoutedChunk
from hoodoo.writers.routing.sorting import positions_in_order

Positions = np.ndarray
"""Row positions in a batch."""


def split_by_file(
    batch: Batch, located: LookupResult, config: TableConfig, index: KeyIndex, part_of_more: bool = False
) -> list[RoutedChunk[Positions]]:
    """Split the rows of a batch by file.

    Rows with new keys are divided by partition. `part_of_more` means that other rows also go to the same partitions, so
    that sizes are needed even for few rows.
    """
    existing = np.flatnonzero(located.group != NOWHERE)
    chunks = []
    for number, positions in _group_by_value(existing, located.group):
        group = located.groups[number]
        in_base = needs_rewrite(batch, located, positions, config)
        chunks.append(RoutedChunk(positions, group.partition, len(positions), 0, group.file_id, needs_base=in_base))
    new_rows = np.flatnonzero((located.group == NOWHERE) & ~batch.delete)
    if len(new_rows):
        chunks += _new_row_chunks(batch, new_rows, 0 if part_of_more else config.options.target_file_bytes, index)
    return chunks


def _new_row_chunks(batch: Batch, new_rows: Positions, target: int, index: KeyIndex) -> list[RoutedChunk[Positions]]:
    keys = batch.keys
    required_groups = index.required_group(
        LookupKeys(keys.texts, keys.hashes, keys.partitions, keys.codes[new_rows], new_rows)
    )
    parts = []
    for code, positions in _group_by_value(new_rows, batch.codes):
        if required_groups is None:
            parts.append((batch.partitions[code], "", positions))
            continue
        ids, inverse = np.unique(np.asarray(required_groups)[np.searchsorted(new_rows, positions)], return_inverse=True)
        parts += [
            (batch.partitions[code], str(ids[n]), group_positions)
            for n, group_positions in _group_by_value(positions, inverse, own=True)
        ]
    sizes = _estimate_bytes(batch.rows, [positions for *_, positions in parts], target)
    return [
        RoutedChunk(positions, partition, len(positions), size, file_id, new=True)
        for (partition, file_id, positions), size in zip(parts, sizes, strict=True)
    ]


def _group_by_value(positions: Positions, values: np.ndarray, own: bool = False) -> Iterator[tuple[int, Positions]]:
    # If `own` is True, `values` has one value per position. Otherwise it has one value per row of the batch.
    position_values = values if own else values[positions]
    if len(position_values) and position_values.min() >= 0 and position_values.max() < 1 << 16:
        position_values = position_values.astype(np.uint16)  # allows a radix sort, which is several times as fast
    order = np.argsort(position_values, kind="stable")
    numbers, starts = np.unique(position_values[order], return_index=True)
    if len(numbers):
        yield from zip(numbers.tolist(), np.split(positions[order], starts[1:]), strict=True)


def needs_rewrite(batch: Batch, located: LookupResult, positions: Positions, config: TableConfig) -> bool:
    """Check whether changes require a rewrite of the base file.

    This is so for a key that a log deletes and that is written again, and for a delete whose ordering value cannot be
    written to a log. It is also so for a delete with an ordering value if a log already deletes the key, because in a
    log it could undo the earlier delete.
    """
    if (located.unsure[positions] & ~(batch.delete[positions] & batch.unconditional)).any():
        return True
    kinds = [config.schema.field(name).type for name in config.merge_policy.order_by]
    if not kinds or batch.unconditional or not batch.delete[positions].any():
        return False
    # One int32 of zero in a delete block would mean "unconditional" to Hudi (docs/format.md 11.3).
    return not all(map(supports_ordering_type, kinds)) or kinds == [pa.int32()]


def _estimate_bytes(rows: pa.Table, parts: Sequence[Positions], target: int) -> list[int]:
    # The result does not depend on how the rows are divided into parts. It is rough if all rows together do not fill a
    # file.
    if 2 * rows.nbytes < target:
        return [rows.nbytes * len(part) // len(rows) for part in parts]
    fixed, lengths, others = 0, np.zeros(len(rows), np.int64), []
    for column in rows.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            lengths += pc.fill_null(pc.binary_length(column), 0).to_numpy()
            fixed += 4
        elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
            fixed += max(1, kind.bit_width // 8)
        else:
            others.append(column)
    return [
        fixed * len(part) + int(lengths[part].sum()) + sum(take_from_column(column, part).nbytes for column in others)
        for part in parts
    ]


@dataclass(frozen=True)
class BatchRows:
    batch: Batch

    def sample(self, chunks: Sequence[RoutedChunk[Positions]], count: int) -> pa.Table:
        positions = np.concatenate([chunk.source for chunk in chunks])
        hashes = self.batch.hashes[positions]
        smallest = np.argpartition(hashes, count - 1)[:count]
        return take_rows(self.batch.rows, positions[smallest[np.argsort(hashes[smallest])]])

    def load(self, mode: Mode, parts: Sequence[ChunkSlice[Positions]]) -> Callable[[], KeyedChanges]:
        return SelectRows(self.batch, np.concatenate([part.source[part.start : part.stop] for part in parts]))


@dataclass(frozen=True)
class SelectRows:
    """Function that selects rows of a batch."""

    batch: Batch
    positions: Positions

    def __call__(self) -> KeyedChanges:
        is_whole = len(self.positions) == len(self.batch) and (np.diff(self.positions) == 1).all()
        selected = self.batch if is_whole else self.batch.take(self.positions)
        return KeyedChanges(
            selected.rows,
            selected.delete,
            selected.delete if selected.unconditional else np.zeros(len(selected), bool),
            hashes=selected.hashes,
        )


def sort_rows(batch: Batch, chunk: RoutedChunk[Positions], columns: Sequence[str]) -> RoutedChunk[Positions]:
    """Sort new rows by columns.

    New file groups then cover separate value ranges.
    """
    if not chunk.new or not columns:
        return chunk
    return replace(
        chunk, source=chunk.source[positions_in_order(take_rows(batch.rows.select(columns), chunk.source), columns)]
    )


__all__ = ["BatchRows", "needs_rewrite", "sort_rows", "split_by_file"]
