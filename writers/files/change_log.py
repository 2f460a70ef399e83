"""Change log of a rewritten base file.

The table's change log mode determines which images are stored. The log is built from tables that the rewriting task has
in memory, some rows at a time.
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
from hoodoo.format.rows import WHOLE_BYTES, take_rows
from hoodoo.merge.kernels import KeyedChanges, MergeResult
from hoodoo.storage.spool import Spool
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.files.base_sink import store_once
from hoodoo.writers.files.file_target import FileTarget

_ROWS = 1 << 15
_CODES = (change_log_block.INSERT, change_log_block.UPDATE, change_log_block.DELETE)


@dataclass(frozen=True)
class RewrittenRows:
    """Rewritten rows of a base file, for its change log.

    `base` contains the stored rows, with the record key and the table's columns.
    """

    base: pa.Table
    changes: KeyedChanges
    merged: MergeResult

    def tables(self, config: TableConfig) -> Iterator[pa.Table]:
        """List the rows of the change log.

        They are in the order of the changes. The table's change log mode determines the columns. The log leaves out
        changes that lost against the stored row, and deletes of keys that have no row.
        """
        changes, merged = self.changes, self.merged
        effective = np.flatnonzero(merged.won & (merged.found | ~changes.delete))
        step = max(1, min(_ROWS, BLOCK_MAX * len(changes) // max(1, changes.rows.nbytes)))
        for begin in range(0, len(effective), step):
            yield self._table(config, effective[begin : begin + step])

    def _table(self, config: TableConfig, effective: np.ndarray) -> pa.Table:
        column_names, wanted = config.schema.names, change_log_block.columns_of(config.change_log)
        delete, partner = self.changes.delete[effective], self.merged.partner[effective]
        code = np.where(delete, 2, np.where(partner < 0, 0, 1))
        columns: dict[str, Any] = {change_log_block.OP: pa.array(_CODES).take(pa.array(code))}
        if change_log_block.KEY in wanted:
            columns[change_log_block.KEY] = self.changes.rows[RECORD_KEY].take(pa.array(effective))
        if change_log_block.BEFORE in wanted:
            columns[change_log_block.BEFORE] = change_log_block.images(
                _take_or_null(self.base.select(column_names), partner), partner < 0
            )
        if change_log_block.AFTER in wanted:
            columns[change_log_block.AFTER] = change_log_block.images(
                _take_or_null(self.changes.rows.select(column_names), np.where(delete, -1, effective)), delete
            )
        return pa.table([columns[name] for name in wanted], names=list(wanted))


def _take_or_null(rows: pa.Table, positions: np.ndarray) -> pa.Table:
    # A negative position gives an arbitrary row, because its image is null.
    if rows.nbytes >= WHOLE_BYTES:
        return take_rows(rows, np.maximum(positions, 0))
    return rows.take(pa.array(positions, mask=positions < 0))


def write_change_log(
    store: Store, config: TableConfig, target: FileTarget, tables: Iterable[pa.Table]
) -> dict[str, list[Any]]:
    """Write the change log of a base file.

    Hudi's change query needs the file, so it is written even if there are no changes.

    Args:
        store: The store of the table.
        config: The table configuration for the base file.
        target: The base file.
        tables: Changes, as `Rewritten.tables` yields them.

    Returns:
        The size in bytes and the digest of the change log by its path, as in `DataFile.changes`.
    """
    spool, instant = Spool(), target.instant
    for changes in tables:
        for piece in change_log_block.encode_changes(instant, config.name, config.schema, config.change_log, changes):
            spool.write(piece)
    if not spool.tell():
        for piece in change_log_block.encode_changes(
            instant, config.name, config.schema, config.change_log, _empty_changes(config)
        ):
            spool.write(piece)
    path = target.change_log_path
    data = store_once(store, path, spool.buffer())
    return {path: [len(data), digest(data)]}


def _empty_changes(config: TableConfig) -> pa.Table:
    image = pa.struct(list(config.schema))
    kinds = {change_log_block.BEFORE: image, change_log_block.AFTER: image}
    return pa.schema(
        [pa.field(name, kinds.get(name, pa.string())) for name in change_log_block.columns_of(config.change_log)]
    ).empty_table()


__all__ = ["RewrittenRows", "write_change_log"]
