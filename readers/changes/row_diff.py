"""Row differences between two snapshots.

Two versions of a row are equal if their record keys and commit times are equal. The comparison usually has two passes:
`touched_keys` finds the keys whose rows may differ, then the rows of these keys are read. One pass is enough if each
row has the same position in both snapshots (`positional_diff`, `by_row`). All file groups are in one partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.equality import equal_values
from hoodoo.format.log import change_log_block
from hoodoo.format.log.change_log_block import DELETE, INSERT, UPDATE
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY
from hoodoo.format.rows import compact, take_rows
from hoodoo.merge.kernels import KeyedChanges, find_indexes
from hoodoo.readers.changes.positional_diff import find_changed_rows
from hoodoo.readers.changes.snapshot_pair import FilePair
from hoodoo.readers.changes.touched_keys import ChangedKeys
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.by_row import find_rows_changed_in_logs
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

KEY = "#key"  # the record key; no table column can have this name, since it is not a valid Avro name


@dataclass
class SnapshotDiff:
    """Row differences between two snapshots.

    A file that several comparisons need is read once.

    Attributes:
        store: The store of the table.
        config: The configuration of the table.
        schema: The columns of the images.
        where: Filter for the rows. A row that no longer matches counts as deleted.
        net: True to omit updates that change no value.
        instants: The instants of all commits from the earlier to the later snapshots. None if the snapshots do not
            follow each other.
    """

    store: Store
    config: TableConfig
    schema: pa.Schema
    where: Filter | None
    net: bool
    instants: pa.Array | None = None
    _expected: pa.Array | None = None
    _bases: dict[str, pa.Table] = field(default_factory=dict)
    _logs: dict[tuple[str, str], list[KeyedChanges]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._touched = ChangedKeys(self.store, self.config, self.instants)

    def changes_schema(self) -> pa.Schema:
        image = pa.struct(list(self.schema))
        return pa.schema(
            [
                pa.field(KEY, pa.string()),
                ("op", pa.string()),
                ("instant", pa.string()),
                ("before", image),
                ("after", image),
            ]
        )

    def touched_keys(self, pair: FilePair) -> pa.Array | None:
        return self._touched.of(pair)

    def announce_keys_to_read(self, keys: pa.Array) -> None:
        self._expected = keys

    def live_rows(self, groups: Sequence[FileGroup], keys: pa.Array | None) -> pa.Table:
        """Read the current rows of some keys.

        None reads all live rows.

        The columns are the record key, the commit time, and the columns of `schema` and of `where`.
        """
        wanted = self._image_schema()
        read = self._read_cached_rows if keys is not None and self._expected is not None else self._read_live_rows
        return pa.concat_tables([wanted.empty_table(), *(read(group, wanted, keys) for group in groups)])

    def _image_schema(self) -> pa.Schema:
        filtered = sorted(self.where.columns if self.where else ())
        return slices.schema_of(self.config, dict.fromkeys([RECORD_KEY, COMMIT_TIME, *self.schema.names, *filtered]))

    def _read_live_rows(self, group: FileGroup, wanted: pa.Schema, keys: pa.Array | None) -> pa.Table:
        return slices.read_file_slice(self.store, self.config, group, wanted, keys=keys)

    def _read_cached_rows(self, group: FileGroup, wanted: pa.Schema, keys: pa.Array) -> pa.Table:
        # The base file rows and log changes of the expected keys are cached.
        columns = slices.columns_to_decode(self.config, wanted.names, merging=True)
        schema = slices.schema_of(self.config, columns)
        base = self._cached_base_rows(group.base.file, schema) if group.base else schema.empty_table()
        logs = [part for file in slices.sort_logs_by_instant(group) for part in self._cached_log_changes(file, schema)]
        policy = self.config.merge_policy
        rows = policy.applied(base, policy.one_per_key(logs)).select(wanted.names)
        return rows.filter(pa.array(slices.among(rows[RECORD_KEY], keys)))

    def _cached_base_rows(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        if file.path not in self._bases:
            self._bases = {
                file.path: slices.read_rows_of_keys(self.store, self.config, file, schema, self._expected),
                **dict(list(self._bases.items())[:1]),
            }
        return self._bases[file.path]

    def _cached_log_changes(self, file: DataFile, schema: pa.Schema) -> list[KeyedChanges]:
        if file.content not in self._logs:
            self._logs[file.content] = [
                slices.changes_of_keys(part, self._expected)
                for part in slices.read_log(self.store, self.config, file, schema)
            ]
        return self._logs[file.content]

    def diff(self, pair: FilePair) -> pa.Table:
        """Find the changed rows between two snapshots.

        Returns:
            One row per change, with the columns of `changes_schema`. Deleted keys of unknown commits have instant ''.
        """
        if sides := self._compare_by_position(pair):
            return self._compare_rows(pair, *sides)
        keys = self.touched_keys(pair)
        if keys is not None:
            self.announce_keys_to_read(keys)  # a base file that both snapshots use is read once
        return self.changes(pair, keys)

    def _compare_by_position(self, pair: FilePair) -> tuple[pa.Table, pa.Table] | None:
        # Rows can be compared by position if the newer base file is an in-place rewrite of the older one, or if both
        # snapshots have the same base file and only their logs differ. Otherwise the result is None.
        if not len(pair.before) == len(pair.after) == 1:
            return None
        before, after = pair.before[0], pair.after[0]
        if before.base_path == after.base_path:
            return find_rows_changed_in_logs(self.store, self.config, before, after, self._image_schema())
        if not before.base or not after.base or before.logs or after.logs or after.base.file.changes:
            return None
        return find_changed_rows(self.store, self.config, before.base.file, after.base.file, self._image_schema())

    def changes(self, pair: FilePair, keys: pa.Array | None) -> pa.Table:
        return self._compare_rows(pair, self.live_rows(pair.before, keys), self.live_rows(pair.after, keys))

    def _compare_rows(self, pair: FilePair, old: pa.Table, new: pa.Table) -> pa.Table:
        position = find_indexes(new[RECORD_KEY], old[RECORD_KEY])
        both = np.flatnonzero(position >= 0)
        both = both[~_equal_strings(new[COMMIT_TIME], both, old[COMMIT_TIME], position[both])]
        is_gone = np.ones(len(old), bool)
        is_gone[position[position >= 0]] = False
        was, now = self._matches(old), self._matches(new)
        updated = both[was[position[both]] & now[both]]
        left, entered = both[was[position[both]] & ~now[both]], both[~was[position[both]] & now[both]]
        fresh = np.flatnonzero((position < 0) & now)
        parts = [
            self._changes_of_kind(UPDATE, pair, new, updated, (old, position[updated]), (new, updated)),
            self._changes_of_kind(DELETE, pair, new, left, (old, position[left]), None),
            self._changes_of_kind(
                INSERT, pair, new, np.concatenate([entered, fresh]), None, (new, np.concatenate([entered, fresh]))
            ),
            self._changes_of_kind(
                DELETE,
                pair,
                old,
                np.flatnonzero(is_gone & was),
                (old, np.flatnonzero(is_gone & was)),
                None,
                unknown=True,
            ),
        ]
        return pa.concat_tables(parts)

    def _matches(self, rows: pa.Table) -> np.ndarray:
        if self.where is None:
            return np.ones(len(rows), bool)
        mask = np.zeros(len(rows), bool)
        numbered = rows.append_column(KEY, pa.array(np.arange(len(rows))))
        mask[self.where.matching(numbered)[KEY].to_numpy()] = True
        return mask

    def _changes_of_kind(
        self,
        op: str,
        pair: FilePair,
        versions: pa.Table,
        at: np.ndarray,
        before: tuple[pa.Table, np.ndarray] | None,
        after: tuple[pa.Table, np.ndarray] | None,
        unknown: bool = False,
    ) -> pa.Table:
        # The rows of `versions` at `at` contain the keys of the changes. They also contain the commit times of the
        # changes, unless `unknown` is true.
        images = [self._row_images(side, len(at)) for side in (before, after)]
        at = pa.array(at)
        instants = (
            pa.array([pair.instant] * len(at), pa.string())
            if pair.instant or unknown
            else versions[COMMIT_TIME].take(at)
        )
        found = pa.table(
            [versions[RECORD_KEY].take(at), pa.array([op] * len(at), pa.string()), instants, *images],
            schema=self.changes_schema(),
        )
        return without_equal_images(found) if self.net and op == UPDATE else found

    def _row_images(self, side: tuple[pa.Table, np.ndarray] | None, row_count: int) -> pa.Array | pa.ChunkedArray:
        if side is None:
            return pa.nulls(row_count, pa.struct(list(self.schema)))
        table, positions = side
        return change_log_block.images(take_rows(table.select(self.schema.names), positions), np.zeros(row_count, bool))


def report_moves_as_updates(changes: pa.Table, net: bool) -> pa.Table:
    """Report rows that moved to another partition as updates.

    A delete in one file group and an insert of the same key in another file group become an update.
    """
    deletes, inserts = changes.filter(pc.equal(changes["op"], DELETE)), changes.filter(pc.equal(changes["op"], INSERT))
    position = pc.index_in(inserts[KEY], value_set=deletes[KEY].combine_chunks())
    if position.null_count == len(position):
        return changes
    moved_in = inserts.filter(position.is_valid())
    moved_out = take_rows(deletes, position.drop_null().to_numpy())
    updates = (
        moved_in.set_column(1, "op", pa.array([UPDATE] * len(moved_in), pa.string()))
        .set_column(3, "before", moved_out["before"])
        .cast(changes.schema)
    )
    rest = changes.filter(
        pc.invert(
            pc.and_(
                pc.is_in(changes[KEY], value_set=moved_in[KEY].combine_chunks()), pc.not_equal(changes["op"], UPDATE)
            )
        )
    )
    return pa.concat_tables([rest, without_equal_images(updates) if net else updates])


def without_equal_images(updates: pa.Table) -> pa.Table:
    sides = compact(updates.select(["before", "after"])).to_batches()
    same = np.concatenate([np.zeros(0, bool), *(equal_values(side.column(0), side.column(1)) for side in sides)])
    return updates.filter(pa.array(~same)) if same.any() else updates


def _equal_strings(
    left: pa.ChunkedArray, left_at: np.ndarray, right: pa.ChunkedArray, right_at: np.ndarray
) -> np.ndarray:
    return pc.equal(
        left.take(pa.array(left_at)).combine_chunks(), right.take(pa.array(right_at)).combine_chunks()
    ).to_numpy(zero_copy_only=False)
