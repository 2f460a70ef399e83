"""Rebase of log changes that writers made during a clustering.

Log rebase copies changes that writers log during a clustering to the new file groups. Clustering can therefore finish
on a busy table without blocking writers. Records that were appended to the logs of the input groups are written, by
key, into logs of the new groups. These logs have the unit's own instant and a version number that grows with each
round. Records keep commit time and sequence number, and deletes keep their ordering values.

The rebase runs on the newest view when the unit is completed. Each further round only writes the changes since the
previous round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hoodoo.compactor.clustering.units import ClusteringUnit
from hoodoo.format.names import FILE_NAME, PARTITION_PATH
from hoodoo.index.key_index import KeyIndex, deletes_entry_path
from hoodoo.merge.kernels import KeyedChanges, concat_changes
from hoodoo.readers.slices import slices
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.slots.slot import CLUSTER, DataFile
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.files.log_file import add_row_positions, write_log_file

_BYTES_MAX = 64 << 20  # maximum log bytes of a file group in one round; a busier table should be compacted first


class ConcurrentChangeCopier:
    """Copier of concurrent changes that writers made during a clustering."""

    def __init__(
        self, attempt: Transaction, unit: ClusteringUnit, outputs: Sequence[DataFile], index: KeyIndex
    ) -> None:
        self._attempt, self._unit, self._outputs, self._index = attempt, unit, tuple(outputs), index
        self._seen = attempt.base.seq
        self._version = 0
        self.logs: list[DataFile] = []

    def create_clustering_commit(self, view: View) -> SlotDraft:
        """Create the commit of a clustering.

        Newly logged changes are first written to new logs. Raises Conflict if an input file group was rewritten, the
        columns changed, or a change cannot be carried over.
        """
        if view.schemas != self._attempt.base.schemas:
            raise Conflict("Another write changed the columns of the table")
        if changes := self._changes_since_last_round(view):
            self._write(changes)
        self._seen = view.seq
        ids = set(self._unit.ids)
        touches = WriteSet(rewrites=ids, replaces=ids, carried=dict.fromkeys(ids, view.seq))
        replaced_groups = tuple((group.partition, group.file_id) for group in self._unit.groups)
        return SlotDraft(CLUSTER, files=(*self._outputs, *self.logs), replaced=replaced_groups, touches=touches)

    # ---- changes since the last round
    def _changes_since_last_round(self, view: View) -> KeyedChanges | None:
        # The result has one change per key. None if nothing was logged.
        changes = []
        for input_group in self._unit.groups:
            current = view.group(input_group.partition, input_group.file_id)
            if (
                current is None
                or current.base is None
                or input_group.base is None
                or current.base.file.path != input_group.base.file.path
            ):
                raise Conflict(f"Another write rewrote or replaced file group {input_group.file_id}")
            new_logs = FileGroup(
                current.partition, current.file_id, None, tuple(log for log in current.logs if log.seq > self._seen)
            )
            if new_logs.logs:
                changes.append(self._read(new_logs))
        return concat_changes(changes) if changes else None

    def _read(self, group: FileGroup) -> KeyedChanges:
        if sum(log.file.size for log in group.logs) > _BYTES_MAX:
            raise Conflict(f"Another write logged too many rows to file group {group.file_id}")
        config = self._attempt.config
        schema = pa.schema([field for field in config.file_schema if field.name not in (PARTITION_PATH, FILE_NAME)])
        parts = [
            part
            for file in slices.sort_logs_by_instant(group)
            for part in slices.read_log(self._attempt.store, config, file, schema)
        ]
        if config.merge_policy.order_by and any(part.columns is not None for part in parts):
            raise Conflict(f"Another write logged a partial update to file group {group.file_id}")
        return config.merge_policy.collapse(concat_changes(parts))

    # ---- new logs
    def _write(self, changes: KeyedChanges) -> None:
        self._version += 1
        hashes = changes.key_hashes()
        changes = replace(changes, hashes=hashes)
        owners = [self._index.holds(output.index, hashes) for output in self._outputs]
        count = np.sum(owners, axis=0)
        if (count > 1).any() or ((count == 0) & ~changes.delete).any():  # a delete of a missing key has no effect
            raise Conflict("A logged change does not belong to exactly one of the new file groups")
        for output, mask in zip(self._outputs, owners, strict=True):
            if mask.any():
                self._append(output, changes.take(np.flatnonzero(mask)))

    def _append(self, output: DataFile, changes: KeyedChanges) -> None:
        attempt = self._attempt
        target = FileTarget(output.partition, output.file_id, attempt.instant)
        path = target.log_path(self._version)
        attempt.register([path, deletes_entry_path(output.file_id, attempt.instant, self._version)])
        attempt.mark(path, "CREATE")
        changes = add_row_positions(self._index, output, changes)
        self.logs.append(write_log_file(attempt.store, attempt.config, target, [changes], output, self._version))
