"""Search for purged values in the bounds of columns.

Slots, checkpoints and exports contain the minimum and maximum of each column of a file (its bounds).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hoodoo.compactor.cleaning.key_search import KeySearch
from hoodoo.compactor.cleaning.purge_report import PurgeProgress
from hoodoo.errors import CorruptTable
from hoodoo.exports.described_files import find_described_files
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet.statistics import bound_to_json
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS
from hoodoo.timeline.layout import CHECKPOINTS, slot_key
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views import checkpoint
from hoodoo.writers.batches.batch import Batch

_Values = dict[tuple[str, str], set[Any]]  # values, encoded like bounds, by partition and column


@dataclass(frozen=True)
class FilesWithPurgedValues:
    """Files whose column statistics contain purged values.

    Attributes:
        keys: The paths of slots, and of the checkpoint in the archiving watermark.
        until: The earliest time at which `archive` can delete these slots and this checkpoint, or None without them.
        exports: The paths of export files.
    """

    keys: tuple[str, ...]
    until: dt.datetime | None
    exports: tuple[str, ...]


class PurgedValueSearch:
    """Search for purged values in the bounds of columns.

    If the purge could not read the rows of a file before the file was deleted, every bound of the file counts, unless a
    live file has an equal bound.
    """

    def __init__(
        self, timeline: TableTimeline, config: TableConfig, batch: Batch, search: KeySearch, removed: PurgeProgress
    ) -> None:
        self.timeline, self.store, self.config = timeline, timeline.store, config
        self.search, self.removed = search, removed
        self.view = timeline.history.head()
        self._keys = _key_values(batch, config)
        self._live: _Values = {}
        self._there = set[str]()
        for group in self.view.groups(search.keys):
            for entry in group.files():
                self._there.add(entry.file.path)
                for column, stats in entry.file.stats.items():
                    self._live.setdefault((entry.file.partition, column), set()).update(stats[:2])

    def find_checkpoints(self) -> Iterator[str]:
        """Find the checkpoints that contain a purged value.

        The checkpoint in the archiving watermark is left out.
        """
        for key, _ in list(self.store.list(CHECKPOINTS)):
            if self._checkpoint_has_purged_value(key):
                yield key

    def remaining(self) -> FilesWithPurgedValues:
        history = self.timeline.history
        paths, last, leaking, harmless = [], 0, set[str](), set[str]()
        for seq in range(history.oldest_slot(), self.view.seq + 1):
            slot = history.slot(seq)
            leaking_here = {
                file.path
                for file in slot.files
                if slot.instant not in self.removed.instants and self._may_contain_purged_value(file)
            }
            harmless |= {file.path for file in slot.files if file.partition in self.search.keys} - leaking_here
            if leaking_here:
                paths.append(slot_key(seq))
                leaking |= leaking_here
            if leaking_here or leaking.intersection(path for path, _ in slot.victims):
                last = slot.completed_at
        mark = watermark.deleted_up_to(self.store)
        if mark and self._checkpoint_has_purged_value(watermark.archive_checkpoint_path(mark)):
            paths.append(watermark.archive_checkpoint_path(mark))
            last = max(last, self.view.completed_at)
        return FilesWithPurgedValues(
            tuple(paths),
            self._earliest_archive_time(last) if paths else None,
            self._exports_with_purged_values(self._there | harmless),
        )

    def _earliest_archive_time(self, last: int) -> dt.datetime:
        # `last` is in ms since 1970.
        options = self.config.options
        hours = max(options.archive_after_hours, options.retain_hours, SLOW_WRITE_MS / 3_600_000)
        return dt.datetime.fromtimestamp(last / 1000, dt.timezone.utc) + dt.timedelta(hours=hours)

    def _exports_with_purged_values(self, clear: set[str]) -> tuple[str, ...]:
        # A deleted file that no slot describes counts, unless it was searched and contained no key. An unreadable
        # export file counts too. `clear` contains the paths of files whose bounds contain no purged value.
        def leaks(path: str) -> bool:
            folder = path.rpartition("/")[0]
            return folder in self.search.keys and path not in clear and self.search.cached_result(path) is not False

        described = find_described_files(self.store)
        return tuple(sorted(key for key, paths in described if paths is None or any(map(leaks, paths))))

    def _may_contain_purged_value(self, file: DataFile) -> bool:
        if file.partition not in self.search.keys or file.path in self._there:
            return False
        was_found = self.search.cached_result(file.path)
        if was_found is None and not self._may_hold(file):
            return False
        return any(
            self._may_be_purged_value(value, (file.partition, column), was_found)
            for column, stats in file.stats.items()
            for value in stats[:2]
            if value is not None
        )

    def _may_be_purged_value(self, value: Any, column: tuple[str, str], known: bool | None) -> bool:
        # `column` is the partition and the name of the column. `known` is whether the file contained a key when it was
        # searched, or None if it was not searched.
        if value in self._keys.get(column, ()):
            return True
        if value in self._live.get(column, ()):
            return False
        return known is None or (known and value in self.removed.values.get(column, ()))

    def _may_hold(self, file: DataFile) -> bool:
        # Only the first key column is compared.
        name = self.config.key[0]
        low, high = file.stats.get(name, (None, None))[:2]
        if low is None or high is None or file.external or pa.types.is_decimal(self.config.schema.field(name).type):
            return True
        return any(low <= value <= high for value in self._keys.get((file.partition, name), ()))

    def _checkpoint_has_purged_value(self, key: str) -> bool:
        # False if the checkpoint is missing or damaged.
        try:
            view = checkpoint.read_checkpoint(self.store, key)
            return any(
                self._may_contain_purged_value(entry.file)
                for group in view.groups(self.search.keys)
                for entry in group.files()
            )
        except (FileNotFoundError, CorruptTable):
            return False


def _key_values(batch: Batch, config: TableConfig) -> _Values:
    # The values have the encoding of statistics. The columns of a composite key are separate entries.
    values_by_column: _Values = {}
    for code in np.unique(batch.codes).tolist():
        rows = batch.rows.filter(pa.array(batch.codes == code))
        for column in (RECORD_KEY, *config.key):
            values = {bound_to_json(value) for value in rows[column].to_pylist()} - {None}
            values_by_column[batch.partitions[code], column] = values
    return values_by_column


__all__ = ["PurgedValueSearch", "FilesWithPurgedValues"]
