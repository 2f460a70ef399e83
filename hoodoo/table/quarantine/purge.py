"""Purge of quarantined rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.errors import DataError
from hoodoo.format.keys import compute_record_keys
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import take_rows
from hoodoo.table.quarantine.changes import get_event_keys
from hoodoo.table.quarantine.payloads import decode_payloads
from hoodoo.table.quarantine.schema import KEY, ROWS_AT_ONCE, SCHEMA
from hoodoo.table.quarantine.target import T, open_quarantine
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.renaming import rename_columns
from hoodoo.writers.batches.value_validation import validate_columns


def purge_quarantine(target: T, batch: Batch, older_than_hours: float) -> tuple[PurgeReport | None, int]:
    """Delete quarantined rows permanently.

    Args:
        target: The table that owns the quarantine.
        batch: The keys, as a batch of deletes for `target`.
        older_than_hours: See `Table.maintenance.purge`.

    Returns:
        The report, or None if no row matches; and the number of rows with unreadable keys, for example because they are
        truncated.
    """
    table = open_quarantine(target)
    if table is None:
        return None, 0
    config = target.handle.newest_config()
    wanted = batch.rows[RECORD_KEY].unique()
    keys, unread, doomed = table.scan(list(KEY)).to_arrow(), 0, [SCHEMA.empty_table().select(KEY)]
    for start in range(0, len(keys), ROWS_AT_ONCE):
        rows = table.get(keys.slice(start, ROWS_AT_ONCE))
        unread += len(rows)
        events = get_event_keys(target, rows)
        for positions, named in events:
            unread -= len(positions)
            doomed.append(take_rows(rows, np.array(positions, np.int64)[_find_rows(named, config, wanted)]).select(KEY))
        for positions, data in decode_payloads(rows, config):
            unread -= len(positions)
            named = rename_columns(data, config.columns.columns, leave_out=True)
            doomed.append(take_rows(rows, np.array(positions)[_find_rows(named, config, wanted)]).select(KEY))
    found = pa.concat_tables(doomed)
    if not len(found):
        return None, unread
    report = table.maintenance.purge(found, older_than_hours=older_than_hours)

    def placed(files: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{table.path}/{file}" for file in files)

    return replace(report, holders=placed(report.holders), pending=placed(report.pending)), unread


def _find_rows(rows: pa.Table, config: TableConfig, wanted: pa.Array) -> np.ndarray:
    """Find the rows with some record keys.

    Rows with invalid keys never match.
    """
    if not set(config.key) <= set(rows.schema.names):
        return np.zeros(len(rows), bool)
    try:
        sound = validate_columns(rows, config.key, config.key)
        fitted = [cast_column(sound[name], config.schema.field(name)) for name in config.key]
        keys = compute_record_keys(pa.table(fitted, names=list(config.key)), config.key, config.partition_by)
    except DataError:
        if len(rows) == 1:
            return np.zeros(1, bool)
        half = len(rows) // 2
        parts = (rows.slice(0, half), rows.slice(half))
        return np.concatenate([_find_rows(part, config, wanted) for part in parts])
    found: np.ndarray = pc.is_in(keys, wanted).to_numpy(zero_copy_only=False)
    return found
