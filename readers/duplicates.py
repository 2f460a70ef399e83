"""Search for duplicate keys in a snapshot.

The rows of a key may be in several partitions, because a key is unique within its partition only. Several rows with one
key in one partition are damage.

The search reads the record keys twice. The first pass keeps only hashes, in temporary files if there are many. The
second pass reads the rows whose hashes occurred more than once. Memory use therefore grows with the number of
duplicates, not with the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.engine.local import LocalEngine
from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.readers.output import convert_read_errors
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View

PART_ROWS = 1 << 22
"""Approximate number of hashes in memory at a time."""
_PARTS_MAX = 256
_AT_ONCE = 16  # number of file groups whose hashes or repeated rows are in memory at a time
_PARTITION = "#partition"  # table columns cannot have this name
T = TypeVar("T")


def find_duplicate_keys(history: History, config: TableConfig, view: View, part_rows: int = PART_ROWS) -> pa.Table:
    """Find the duplicate keys, which have several rows.

    Args:
        history: The slots of the table.
        config: The configuration of the table under `view`.
        view: The snapshot.
        part_rows: The approximate number of hashes in memory at a time.

    Returns:
        One row per key, in key order: the key columns, `count`, and `partitions`, a sorted list of partition folders.

    Raises:
        SnapshotExpired: Cleaning deleted files of the snapshot during the read.
        CorruptTable: A file is damaged.
    """
    rows = convert_read_errors(
        history,
        lambda: history.require_readable(view.seq),
        lambda: _read_duplicate_rows(config, view, history, part_rows),
    )
    names = list(config.key)
    grouped = rows.group_by([RECORD_KEY, *names]).aggregate([(_PARTITION, "count"), (_PARTITION, "distinct")])
    grouped = grouped.filter(pc.greater(grouped[f"{_PARTITION}_count"], 1)).sort_by(RECORD_KEY)
    folders = pa.array(
        [sorted(partitions) for partitions in grouped[f"{_PARTITION}_distinct"].to_pylist()], pa.list_(pa.string())
    )
    keys = [grouped[name].combine_chunks() for name in names]
    counts = grouped[f"{_PARTITION}_count"].combine_chunks()
    return pa.table([*keys, counts, folders], names=[*names, "count", "partitions"])


def _read_duplicate_rows(config: TableConfig, view: View, history: History, part_rows: int) -> pa.Table:
    suspects = _repeated_key_hashes(config, view, history, part_rows)
    wanted = tuple(dict.fromkeys((RECORD_KEY, *config.key)))
    schema = pa.schema([*(config.file_schema.field(name) for name in wanted), pa.field(_PARTITION, pa.string())])
    parts_so_far = [schema.empty_table()]
    if len(suspects):

        def repeated(task: SliceTask) -> pa.Table:
            parts = [schema.empty_table()]
            for rows in task.stream(BATCH_ROWS):
                hashes = hash64(rows[RECORD_KEY])
                indexes = np.minimum(np.searchsorted(suspects, hashes), len(suspects) - 1)
                matching = rows.filter(pa.array(suspects[indexes] == hashes))
                folder = pa.array([task.group.partition], pa.string()).take(pa.array(np.zeros(len(matching), np.int32)))
                parts.append(matching.append_column(_PARTITION, folder).select(schema.names).cast(schema))
            return pa.concat_tables(parts)

        for tables in _map_in_groups(repeated, _create_read_tasks(config, view, history, wanted)):
            parts_so_far += tables
    return pa.concat_tables(parts_so_far)


def _repeated_key_hashes(config: TableConfig, view: View, history: History, part_rows: int) -> np.ndarray:
    rows = sum(group.base.file.rows for group in view.groups() if group.base)
    parts = min(_PARTS_MAX, rows // part_rows + 1)
    spools = [Spool(IN_MEMORY // parts) for _ in range(parts)]
    width = -(-(1 << 64) // parts)

    def hashes(task: SliceTask) -> list[np.ndarray]:
        return [hash64(rows[RECORD_KEY]) for rows in task.stream(BATCH_ROWS)]

    for results in _map_in_groups(hashes, _create_read_tasks(config, view, history, (RECORD_KEY,))):
        for task_hashes in (batch for result in results for batch in result):
            if parts == 1:
                spools[0].write(task_hashes.tobytes())
                continue
            ordered = np.sort(task_hashes)
            ends = np.searchsorted(ordered, [np.uint64(width * number) for number in range(1, parts)])
            for spool, piece in zip(spools, np.split(ordered, ends), strict=True):
                spool.write(piece.tobytes())
    repeated = [np.empty(0, np.uint64)]
    for spool in spools:
        if spool.tell():
            ordered = np.sort(np.frombuffer(spool.buffer(), np.uint64))
            repeated.append(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))
    return np.concatenate(repeated)


def _create_read_tasks(
    config: TableConfig, view: View, history: History, columns: tuple[str, ...]
) -> Iterator[SliceTask]:
    for group in view.groups():
        yield SliceTask(history.store, config, group, columns, None, None, False)


def _map_in_groups(work: Callable[[SliceTask], T], tasks: Iterator[SliceTask]) -> Iterator[list[T]]:
    while window := list(islice(tasks, _AT_ONCE)):
        yield LocalEngine().map(work, window)


__all__ = ["find_duplicate_keys"]
