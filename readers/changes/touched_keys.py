"""Which record keys may have another version in one of two snapshots than in the other.

A version of a row is its record key and its commit time. What a service moves or rewrites keeps both, so that
compaction, clustering and log compaction touch no key. Reads keys and commit times of what may differ, or the keys in a
change log, where the table keeps one. Knows no other columns.
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
from hoodoo.readers.changes.snapshot_pair import SnapshotPair, paths
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup


@dataclass
class TouchedKeys:
    """The touched keys of the pairs of one comparison. What several pairs need is read once.

    instants: of all commits that lead from the earlier snapshots to the later ones; None if they do not follow each
    other.
    """

    store: Store
    config: TableConfig
    instants: pa.Array | None = None
    _versions: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)

    def of(self, pair: SnapshotPair) -> pa.Array | None:
        """Record keys whose version may differ between the snapshots of `pair`; None: all there are."""
        if not pair.before or not pair.after:
            return None
        if len(pair.before) == len(pair.after) == 1:
            before, after = pair.before[0], pair.after[0]
            if before.base_path == after.base_path:
                return self._logged(before, after)
            if self._rewritten_once(pair.instant, before, after):
                return self._in_change_log(after)
        old, new = self._all_versions(pair.before), self._all_versions(pair.after)
        changed, lost = self._written(old, new, pa.array([pair.instant]) if pair.instant else self.instants)
        if not lost:
            return changed
        gone = old[RECORD_KEY].filter(pc.invert(pc.is_in(old[RECORD_KEY], value_set=new[RECORD_KEY].combine_chunks())))
        return _one_array([changed, *gone.chunks])

    def _written(self, old: pa.Table, new: pa.Table, instants: pa.Array | None) -> tuple[pa.Array, bool]:
        """Keys of `new` whose version `old` has not, and whether keys may be gone. instants: of the commits between
        them, None if they do not follow each other.

        A row that none of them wrote is the version that `old` has, so that counting tells whether others are missing.
        """
        if instants is not None:
            changed = new[RECORD_KEY].filter(pa.array(_one_of(new[COMMIT_TIME], instants))).combine_chunks()
            updated = int(np.count_nonzero(slices.among(old[RECORD_KEY], changed)))
            if (lost := len(old) - (len(new) - len(changed)) - updated) >= 0:
                return changed, lost > 0
        index = pc.index_in(new[RECORD_KEY], value_set=old[RECORD_KEY].combine_chunks())
        same = pc.equal(new[COMMIT_TIME].cast(pa.string()), old[COMMIT_TIME].cast(pa.string()).take(index)).fill_null(
            False
        )
        return new[RECORD_KEY].filter(pc.invert(same)).combine_chunks(), True

    def _logged(self, before: FileGroup, after: FileGroup) -> pa.Array:
        """Keys in the logs that only one of the states has: the base is the same."""
        known, now = ({log.file.content: log.file for log in group.logs} for group in (before, after))
        files: list[DataFile] = [file for one, file in {**known, **now}.items() if one not in known or one not in now]
        schema = slices.schema_of(self.config, slices.columns_for(self.config, [], merging=True))
        parts = [
            part.rows[RECORD_KEY] for file in files for part in slices.read_log(self.store, self.config, file, schema)
        ]
        return _one_array([chunk for part in parts for chunk in part.chunks]).unique()

    def _rewritten_once(self, instant: str, before: FileGroup, after: FileGroup) -> bool:
        """True if a change log says all that was done to `before`. It does not if others may have logged between it and
        the rewrite.
        """
        if (
            before.base is None
            or after.base is None
            or not after.base.file.changes
            or self.config.merge_on_read
            and not instant
        ):
            return False
        return after.base.file.previous == before.base.file.path

    def _in_change_log(self, after: FileGroup) -> pa.Array:
        """Keys that the rewrite to the base of `after` changed, as Hudi's change log has them, and
        those logged since.
        """
        assert after.base is not None
        rows = read_change_log(self.store, self.config, after.base.file)
        assert rows is not None
        return _one_array([*rows[change_log_block.KEY].chunks, self._logged(replace(after, logs=()), after)]).unique()

    def _all_versions(self, groups: Sequence[FileGroup]) -> pa.Table:
        schema = pa.schema(
            [pa.field(RECORD_KEY, pa.string()), pa.field(COMMIT_TIME, pa.dictionary(pa.int32(), pa.string()))]
        )  # few times, many rows
        parts = []
        for group in groups:
            known = self._versions.pop(paths(group), None)
            parts.append(slices.read_slice(self.store, self.config, group, schema) if known is None else known)
        self._versions = dict(
            zip(map(paths, groups), parts, strict=True)
        )  # the state after one step is that before the next
        return pa.concat_tables([schema.empty_table(), *parts])


def _one_of(column: pa.ChunkedArray, few: pa.Array) -> np.ndarray:
    """Mask of the values of a dictionary column that are among `few`."""
    parts = [
        pc.is_in(chunk.dictionary, value_set=few).take(chunk.indices).fill_null(False).to_numpy(zero_copy_only=False)
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, bool), *parts])


def _one_array(chunks: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *chunks])
