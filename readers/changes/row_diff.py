"""What became of the rows of some file groups between two snapshots: their images before and after.

Two versions of a row are the same if record key and commit time are. Reads in two passes: which keys were touched
(touched_keys), then whole rows of those keys; or in one, by position (positional_diff, by_row), where both snapshots
have the same rows in the same positions. Knows two snapshots of file groups of one partition, not which slots lie
between.
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
from hoodoo.format.rows import compact, take
from hoodoo.merge.kernels import KeyedChanges, positions_among
from hoodoo.readers.changes.positional_diff import changed_rows
from hoodoo.readers.changes.snapshot_pair import SnapshotPair
from hoodoo.readers.changes.touched_keys import TouchedKeys
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.by_row import changed_in_logs
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

KEY = "#key"  # the record key, beside columns that may be called anything an Avro name can be


@dataclass
class RowDiff:
    """Compares the rows of snapshots, with the columns of `schema`. What several pairs need is read once.

    where: changes are those of the rows that match: one that ceases to match is a delete. net: an update that changes
    nothing is none.
    instants: of all commits that lead from the earlier states to the later ones; None if the states do not follow each
    other.
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
        self._touched = TouchedKeys(self.store, self.config, self.instants)

    def found_schema(self) -> pa.Schema:
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

    def touched(self, pair: SnapshotPair) -> pa.Array | None:
        """Record keys whose version may differ between the snapshots of `pair`; None: all there are."""
        return self._touched.of(pair)

    def expect(self, keys: pa.Array) -> None:
        """Further calls of `live` ask for some of these keys: what several states have in common is then read once."""
        self._expected = keys

    def live(self, groups: Sequence[FileGroup], keys: pa.Array | None) -> pa.Table:
        """Live rows with these record keys (None: all): key, commit time, and the columns of
        `schema` and of `where`.
        """
        wanted = self._wanted()
        read = self._remembered if keys is not None and self._expected is not None else self._read
        return pa.concat_tables([wanted.empty_table(), *(read(group, wanted, keys) for group in groups)])

    def _wanted(self) -> pa.Schema:
        filtered = sorted(self.where.columns if self.where else ())
        return slices.schema_of(self.config, dict.fromkeys([RECORD_KEY, COMMIT_TIME, *self.schema.names, *filtered]))

    def _read(self, group: FileGroup, wanted: pa.Schema, keys: pa.Array | None) -> pa.Table:
        return slices.read_slice(self.store, self.config, group, wanted, keys=keys)

    def _remembered(self, group: FileGroup, wanted: pa.Schema, keys: pa.Array) -> pa.Table:
        """As _read, from the rows and changes of the expected keys."""
        columns = slices.columns_for(self.config, wanted.names, merging=True)
        schema = slices.schema_of(self.config, columns)
        base = self._base(group.base.file, schema) if group.base else schema.empty_table()
        logs = [part for file in slices.logs_in_order(group) for part in self._log(file, schema)]
        policy = self.config.merge_policy
        rows = policy.applied(base, policy.one_per_key(logs)).select(wanted.names)
        return rows.filter(pa.array(slices.among(rows[RECORD_KEY], keys)))

    def _base(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        if file.path not in self._bases:
            self._bases = {
                file.path: slices.read_keys(self.store, self.config, file, schema, self._expected),
                **dict(list(self._bases.items())[:1]),
            }
        return self._bases[file.path]

    def _log(self, file: DataFile, schema: pa.Schema) -> list[KeyedChanges]:
        if file.content not in self._logs:
            self._logs[file.content] = [
                slices.restricted(part, self._expected)
                for part in slices.read_log(self.store, self.config, file, schema)
            ]
        return self._logs[file.content]

    def diff(self, pair: SnapshotPair) -> pa.Table:
        """Compare the two snapshots of `pair`.

        Returns:
            A row for each change, as `found_schema` says. Its instant is '' for a deleted key whose commit is not
            known.
        """
        if sides := self._by_position(pair):
            return self._between(pair, *sides)
        keys = self.touched(pair)
        if keys is not None:
            self.expect(keys)  # a base that both states lie over is read once
        return self.changes(pair, keys)

    def _by_position(self, pair: SnapshotPair) -> tuple[pa.Table, pa.Table] | None:
        """Return the rows before and after that differ, where positions tell; None where keys have to be compared.

        Positions tell where rewrites in place led from one base to the other, or where logs lie over rows of one
        base.
        """
        if not len(pair.before) == len(pair.after) == 1:
            return None
        before, after = pair.before[0], pair.after[0]
        if before.base_path == after.base_path:
            return changed_in_logs(self.store, self.config, before, after, self._wanted())
        if not before.base or not after.base or before.logs or after.logs or after.base.file.changes:
            return None
        return changed_rows(self.store, self.config, before.base.file, after.base.file, self._wanted())

    def changes(self, pair: SnapshotPair, keys: pa.Array | None) -> pa.Table:
        """Compare as `diff` does, but only rows with these `keys` (None: all)."""
        return self._between(pair, self.live(pair.before, keys), self.live(pair.after, keys))

    def _between(self, pair: SnapshotPair, old: pa.Table, new: pa.Table) -> pa.Table:
        position = positions_among(new[RECORD_KEY], old[RECORD_KEY])
        both = np.flatnonzero(position >= 0)
        both = both[~_equal_texts(new[COMMIT_TIME], both, old[COMMIT_TIME], position[both])]
        gone = np.ones(len(old), bool)
        gone[position[position >= 0]] = False
        was, now = self._matches(old), self._matches(new)
        updated = both[was[position[both]] & now[both]]
        left, entered = both[was[position[both]] & ~now[both]], both[~was[position[both]] & now[both]]
        fresh = np.flatnonzero((position < 0) & now)
        parts = [
            self._found(UPDATE, pair, new, updated, (old, position[updated]), (new, updated)),
            self._found(DELETE, pair, new, left, (old, position[left]), None),
            self._found(
                INSERT, pair, new, np.concatenate([entered, fresh]), None, (new, np.concatenate([entered, fresh]))
            ),
            self._found(
                DELETE, pair, old, np.flatnonzero(gone & was), (old, np.flatnonzero(gone & was)), None, unknown=True
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

    def _found(
        self,
        op: str,
        pair: SnapshotPair,
        versions: pa.Table,
        at: np.ndarray,
        before: tuple[pa.Table, np.ndarray] | None,
        after: tuple[pa.Table, np.ndarray] | None,
        unknown: bool = False,
    ) -> pa.Table:
        """Changes of one kind; `versions` at `at` has their keys, and the commit times that made them unless those are
        `unknown`.
        """
        images = [self._structs(side, len(at)) for side in (before, after)]
        at = pa.array(at)
        instants = (
            pa.array([pair.instant] * len(at), pa.string())
            if pair.instant or unknown
            else versions[COMMIT_TIME].take(at)
        )
        found = pa.table(
            [versions[RECORD_KEY].take(at), pa.array([op] * len(at), pa.string()), instants, *images],
            schema=self.found_schema(),
        )
        return without_equal_images(found) if self.net and op == UPDATE else found

    def _structs(self, side: tuple[pa.Table, np.ndarray] | None, rows: int) -> pa.Array | pa.ChunkedArray:
        if side is None:
            return pa.nulls(rows, pa.struct(list(self.schema)))
        table, positions = side
        return change_log_block.images(take(table.select(self.schema.names), positions), np.zeros(rows, bool))


def joined(found: pa.Table, net: bool) -> pa.Table:
    """`found` in several steps of one partition: a key that went from one file group and came in
    another was updated.
    """
    went, came = found.filter(pc.equal(found["op"], DELETE)), found.filter(pc.equal(found["op"], INSERT))
    position = pc.index_in(came[KEY], value_set=went[KEY].combine_chunks())
    if position.null_count == len(position):
        return found
    moved_in = came.filter(position.is_valid())
    moved_out = take(went, position.drop_null().to_numpy())
    updates = (
        moved_in.set_column(1, "op", pa.array([UPDATE] * len(moved_in), pa.string()))
        .set_column(3, "before", moved_out["before"])
        .cast(found.schema)
    )
    rest = found.filter(
        pc.invert(
            pc.and_(pc.is_in(found[KEY], value_set=moved_in[KEY].combine_chunks()), pc.not_equal(found["op"], UPDATE))
        )
    )
    return pa.concat_tables([rest, without_equal_images(updates) if net else updates])


def without_equal_images(updates: pa.Table) -> pa.Table:
    sides = compact(updates.select(["before", "after"])).to_batches()
    same = np.concatenate([np.zeros(0, bool), *(equal_values(side.column(0), side.column(1)) for side in sides)])
    return updates.filter(pa.array(~same)) if same.any() else updates


def _equal_texts(
    left: pa.ChunkedArray, left_at: np.ndarray, right: pa.ChunkedArray, right_at: np.ndarray
) -> np.ndarray:
    return pc.equal(
        left.take(pa.array(left_at)).combine_chunks(), right.take(pa.array(right_at)).combine_chunks()
    ).to_numpy(zero_copy_only=False)
