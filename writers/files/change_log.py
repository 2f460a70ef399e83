"""The change log of a rewrite: which rows it inserted, updated and deleted, with their images, in the mode that the
table asks for.

Made from the tables that the rewriting task has in hand, some rows at a time. Knows nothing of who asked for the
rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.format.log import change_log_block
from hoodoo.format.log.block import BLOCK_MAX
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import WHOLE_BYTES, take
from hoodoo.merge.kernels import KeyedChanges, Merged
from hoodoo.storage.spool import Spool
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.files.base_sink import store_once
from hoodoo.writers.files.file_target import FileTarget

_ROWS = 1 << 15
_CODES = (change_log_block.INSERT, change_log_block.UPDATE, change_log_block.DELETE)


@dataclass(frozen=True)
class Rewritten:
    """A merge and what went into it: `base` (record key, table columns), the changes, and what became of them."""

    base: pa.Table
    changes: KeyedChanges
    merged: Merged

    def tables(self, config: TableConfig) -> Iterator[pa.Table]:
        """Tables of changes in the table's mode, in order of the changes; one that lost or found nothing to delete is
        none.
        """
        changes, merged = self.changes, self.merged
        took = np.flatnonzero(merged.won & (merged.found | ~changes.delete))
        step = max(1, min(_ROWS, BLOCK_MAX * len(changes) // max(1, changes.rows.nbytes)))
        for begin in range(0, len(took), step):
            yield self._table(config, took[begin : begin + step])

    def _table(self, config: TableConfig, took: np.ndarray) -> pa.Table:
        own, wanted = config.schema.names, change_log_block.columns_of(config.change_log)
        delete, partner = self.changes.delete[took], self.merged.partner[took]
        code = np.where(delete, 2, np.where(partner < 0, 0, 1))
        known: dict[str, Any] = {change_log_block.OP: pa.array(_CODES).take(pa.array(code))}
        if change_log_block.KEY in wanted:
            known[change_log_block.KEY] = self.changes.rows[RECORD_KEY].take(pa.array(took))
        if change_log_block.BEFORE in wanted:
            known[change_log_block.BEFORE] = change_log_block.images(
                _taken(self.base.select(own), partner), partner < 0
            )
        if change_log_block.AFTER in wanted:
            known[change_log_block.AFTER] = change_log_block.images(
                _taken(self.changes.rows.select(own), np.where(delete, -1, took)), delete
            )
        return pa.table([known[name] for name in wanted], names=list(wanted))


def _taken(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    """Rows at `positions`; null rows, or any, where a position is negative: the image is null anyway."""
    if rows.nbytes >= WHOLE_BYTES:
        return take(rows, np.maximum(positions, 0))
    return rows.take(pa.array(positions, mask=positions < 0))


def put_change_log(
    store: Store, config: TableConfig, target: FileTarget, tables: Iterable[pa.Table]
) -> dict[str, list[Any]]:
    """Write the change log of a base file, even without changes: Hudi's change query asks for the file.

    Args:
        store: The store of the table.
        config: The table as the base file is written for it.
        target: The base file.
        tables: Changes, as `Rewritten.tables` gives them.

    Returns:
        The size in bytes and the digest of the change log by its path, as `DataFile.changes` has them.
    """
    spool, instant = Spool(), target.instant
    for changes in tables:
        for piece in change_log_block.encode(instant, config.name, config.schema, config.change_log, changes):
            spool.write(piece)
    if not spool.tell():
        for piece in change_log_block.encode(instant, config.name, config.schema, config.change_log, _nothing(config)):
            spool.write(piece)
    path = target.change_log_path
    data = store_once(store, path, spool.buffer())
    return {path: [len(data), digest(data)]}


def _nothing(config: TableConfig) -> pa.Table:
    image = pa.struct(list(config.schema))
    kinds = {change_log_block.BEFORE: image, change_log_block.AFTER: image}
    return pa.schema(
        [pa.field(name, kinds.get(name, pa.string())) for name in change_log_block.columns_of(config.change_log)]
    ).empty_table()


__all__ = ["Rewritten", "put_change_log"]
