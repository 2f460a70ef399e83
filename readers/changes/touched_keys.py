"""Search for touched keys, which changed between two snapshots.

Table services keep the commit time of a row when they rewrite or move it. Compaction, clustering and log compaction
therefore touch no key. The search reads the keys and commit times of the files that may differ. If the table has a
change log, the search reads the keys in the change log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log import change_log_block
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY
from hoodoo.readers.changes.change_log_reader import read_change_log
from hoodoo.readers.changes.snapshot_pair import FilePair, paths
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup


@dataclass
class ChangedKeys:
    """Keys that may have changed between two snapshots.

    A shared file is read once.

    Attributes:
        store: The store of the table.
        config: The configuration of the table.
        instants: The instants of all commits from the earlier to the later snapshots. None if the snapshots do not
            follow each other.
    """

    store: Store
    config: TableConfig
    instants: pa.Array | None = None
    _versions: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)

    def of(self, pair: FilePair) -> pa.Array | None:
        """Find the keys whose rows may have changed.

        None means all keys.
        """
        if not pair.before or not pair.after:
            return None
        if len(pair.before) == len(pair.after) == 1:
            before, after = pair.before[0], pair.after[0]
            if before.base_path == after.base_path:
                return self._keys_in_differing_logs(before, after)
            if self._has_complete_change_log(pair.instant, before, after):
                return self._keys_in_change_log(after)
        old, new = self._read_row_versions(pair.before), self._read_row_versions(pair.after)
        changed, lost = self._changed_keys(old, new, pa.array([pair.instant]) if pair.instant else self.instants)
        if not lost:
            return changed
        gone = old[RECORD_KEY].filter(pc.invert(pc.is_in(old[RECORD_KEY], value_set=new[RECORD_KEY].combine_chunks())))
        return _concat_strings([changed, *gone.chunks])

    def _changed_keys(self, old: pa.Table, new: pa.Table, instants: pa.Array | None) -> tuple[pa.Array, bool]:
        # `instants` are the instants of the commits between the two snapshots, or None if the snapshots do not follow
        # each other. A row that these commits did not write has the same version in both snapshots, so that the row
        # counts show whether keys are missing.
        if instants is not None:
            changed = new[RECORD_KEY].filter(pa.array(_mask_of_values(new[COMMIT_TIME], instants))).combine_chunks()
            updated = int(np.count_nonzero(slices.among(old[RECORD_KEY], changed)))
            if (lost := len(old) - (len(new) - len(changed)) - updated) >= 0:
                return changed, lost > 0
        index = pc.index_in(new[RECORD_KEY], value_set=old[RECORD_KEY].combine_chunks())
        same = pc.equal(new[COMMIT_TIME].cast(pa.string()), old[COMMIT_TIME].cast(pa.string()).take(index)).fill_null(
            False
        )
        return new[RECORD_KEY].filter(pc.invert(same)).combine_chunks(), True

    def _keys_in_differing_logs(self, before: FileGroup, after: FileGroup) -> pa.Array:
        old_logs, new_logs = ({log.file.content: log.file for log in group.logs} for group in (before, after))
        files: list[DataFile] = [
            file
            for content, file in {**old_logs, **new_logs}.items()
            if content not in old_logs or content not in new_logs
        ]
        schema = slices.schema_of(self.config, slices.columns_to_decode(self.config, [], merging=True))
        parts = [
            part.rows[RECORD_KEY] for file in files for part in slices.read_log(self.store, self.config, file, schema)
        ]
        return _concat_strings([chunk for part in parts for chunk in part.chunks]).unique()

    def _has_complete_change_log(self, instant: str, before: FileGroup, after: FileGroup) -> bool:
        # With log files, another commit may have written logs between `before` and the rewrite.
        if (
            before.base is None
            or after.base is None
            or not after.base.file.changes
            or self.config.merge_on_read
            and not instant
        ):
            return False
        return after.base.file.previous == before.base.file.path

    def _keys_in_change_log(self, after: FileGroup) -> pa.Array:
        # The keys of the rewrite come from Hudi's change log, and later keys from the log files.
        assert after.base is not None
        rows = read_change_log(self.store, self.config, after.base.file)
        assert rows is not None
        return _concat_strings(
            [*rows[change_log_block.KEY].chunks, self._keys_in_differing_logs(replace(after, logs=()), after)]
        ).unique()

    def _read_row_versions(self, groups: Sequence[FileGroup]) -> pa.Table:
        schema = pa.schema(
            [pa.field(RECORD_KEY, pa.string()), pa.field(COMMIT_TIME, pa.dictionary(pa.int32(), pa.string()))]
        )  # dictionary: there are few commit times and many rows
        parts = []
        for group in groups:
            cached = self._versions.pop(paths(group), None)
            parts.append(slices.read_file_slice(self.store, self.config, group, schema) if cached is None else cached)
        self._versions = dict(
            zip(map(paths, groups), parts, strict=True)
        )  # the next pair begins with the snapshot that ends this pair
        return pa.concat_tables([schema.empty_table(), *parts])


def _mask_of_values(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    parts = [
        pc.is_in(chunk.dictionary, value_set=values).take(chunk.indices).fill_null(False).to_numpy(zero_copy_only=False)
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, bool), *parts])


def _concat_strings(chunks: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *chunks])
