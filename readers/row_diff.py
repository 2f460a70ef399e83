"""What became of the rows of some file groups between two states: which keys were touched, and their images before and
after.

A version of a row is its record key and its commit time. What a service moves or rewrites keeps both, so that
compaction, clustering and log compaction show no change. Reads in two passes: keys and commit times of what may differ
(or the keys in a change log, where the table keeps one), then whole rows of the keys that do.
Knows two states of file groups of one partition, not which slots lie between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log import change_log
from hoodoo.format.log.change_log import DELETE, INSERT, UPDATE
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY
from hoodoo.format.rows import compact, take
from hoodoo.merge.changes import Changes, places_among
from hoodoo.readers import slices
from hoodoo.readers.by_row import changed_in_logs
from hoodoo.readers.change_log import read_change_log
from hoodoo.readers.positional_diff import changed_rows
from hoodoo.readers.predicate.filter import Filter
from hoodoo.storage.store import Store
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.slot import DataFile
from hoodoo.timeline.view import FileGroup

KEY = "#key"  # the record key, beside columns that may be called anything an Avro name can be


@dataclass(frozen=True)
class SnapshotPair:
    """Two states of file groups of one partition, which hold the same keys or are all there is of them.

    instant: of the commit that led from one to the other, '' where there may have been several.
    """

    before: tuple[FileGroup, ...]
    after: tuple[FileGroup, ...]
    instant: str = ""


def pair_up(before: Sequence[FileGroup], after: Sequence[FileGroup], instant: str = "") -> list[SnapshotPair]:
    """The states of one partition as steps: each file group that stays by itself; those that went, with those that
    came, as one.
    """
    old, new = {group.file_id: group for group in before}, {group.file_id: group for group in after}
    steps = [
        SnapshotPair((old[name],), (new[name],), instant)
        for name in old
        if name in new and paths(old[name]) != paths(new[name])
    ]
    gone = tuple(group for name, group in old.items() if name not in new)
    came = tuple(group for name, group in new.items() if name not in old)
    if gone:
        return [*steps, SnapshotPair(gone, came, instant)]
    return [*steps, *(SnapshotPair((), (group,), instant) for group in came)]


def paths(group: FileGroup) -> tuple[str, ...]:
    return tuple(entry.file.path for entry in group.files())


@dataclass
class RowDiff:
    """Reads images with the columns of `schema`. What several steps need is read once.

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
    _logs: dict[str, list[Changes]] = field(default_factory=dict)
    _versions: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)

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

    # ---- which keys
    def touched(self, step: SnapshotPair) -> pa.Array | None:
        """Record keys whose version may differ between the states; None: all there are."""
        if not step.before or not step.after:
            return None
        if len(step.before) == len(step.after) == 1:
            before, after = step.before[0], step.after[0]
            if _base_path(before) == _base_path(after):
                return self._logged(before, after)
            if self._rewritten_once(step.instant, before, after):
                return self._in_change_log(after)
        old, new = self._all_versions(step.before), self._all_versions(step.after)
        changed, lost = self._written(old, new, pa.array([step.instant]) if step.instant else self.instants)
        if not lost:
            return changed
        gone = old[RECORD_KEY].filter(pc.invert(pc.is_in(old[RECORD_KEY], value_set=new[RECORD_KEY].combine_chunks())))
        return _one_array([changed, *gone.chunks])

    def _written(self, old: pa.Table, new: pa.Table, instants: pa.Array | None) -> tuple[pa.Array, bool]:
        """Keys of `new` whose version `old` has not; and may keys have gone? instants: of the commits between them,
        None if they do not follow each other.

        A row that none of them wrote is the version that `old` has, so that counting tells whether others are missing.
        """
        if instants is not None:
            changed = new[RECORD_KEY].filter(pa.array(_one_of(new[COMMIT_TIME], instants))).combine_chunks()
            updated = int(np.count_nonzero(slices.among(old[RECORD_KEY], changed)))
            if (lost := len(old) - (len(new) - len(changed)) - updated) >= 0:
                return changed, lost > 0
        place = pc.index_in(new[RECORD_KEY], value_set=old[RECORD_KEY].combine_chunks())
        same = pc.equal(new[COMMIT_TIME].cast(pa.string()), old[COMMIT_TIME].cast(pa.string()).take(place)).fill_null(
            False
        )
        return new[RECORD_KEY].filter(pc.invert(same)).combine_chunks(), True

    def _logged(self, before: FileGroup, after: FileGroup) -> pa.Array:
        """Keys in the logs that only one of the states has: the base is the same."""
        known, now = {log.file.path: log.file for log in before.logs}, {log.file.path: log.file for log in after.logs}
        files: list[DataFile] = [
            file for path, file in {**known, **now}.items() if path not in known or path not in now
        ]
        schema = slices.schema_of(self.config, slices.columns_for(self.config, [], merging=True))
        parts = [
            part.rows[RECORD_KEY] for file in files for part in slices.read_log(self.store, self.config, file, schema)
        ]
        return _one_array([chunk for part in parts for chunk in part.chunks]).unique()

    def _rewritten_once(self, instant: str, before: FileGroup, after: FileGroup) -> bool:
        """Does a change log say all that was done to `before`? Not where others may have logged between it and the
        rewrite.
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
        return _one_array([*rows[change_log.KEY].chunks, self._logged(replace(after, logs=()), after)]).unique()

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

    # ---- which rows
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

    def _log(self, file: DataFile, schema: pa.Schema) -> list[Changes]:
        if file.path not in self._logs:
            self._logs[file.path] = [
                slices.restricted(part, self._expected)
                for part in slices.read_log(self.store, self.config, file, schema)
            ]
        return self._logs[file.path]

    def diff(self, pair: SnapshotPair) -> pa.Table:
        """Compare the two snapshots of `pair`.

        Returns:
            A row for each change, as `found_schema` says. Its instant is '' for a deleted key whose commit is not
            known.
        """
        if sides := self._by_places(pair):
            return self._between(pair, *sides)
        keys = self.touched(pair)
        if keys is not None:
            self.expect(keys)  # a base that both states lie over is read once
        return self.changes(pair, keys)

    def _by_places(self, step: SnapshotPair) -> tuple[pa.Table, pa.Table] | None:
        """Rows before and after that differ, where one rewrite in place or several led from one base to the other, or
        logs lie over rows of one base.
        """
        if not len(step.before) == len(step.after) == 1:
            return None
        before, after = step.before[0], step.after[0]
        if _base_path(before) == _base_path(after):
            return changed_in_logs(self.store, self.config, before, after, self._wanted())
        if not before.base or not after.base or before.logs or after.logs or after.base.file.changes:
            return None
        return changed_rows(self.store, self.config, before.base.file, after.base.file, self._wanted())

    def changes(self, step: SnapshotPair, keys: pa.Array | None) -> pa.Table:
        """As `found`, of the changes among `keys`."""
        return self._between(step, self.live(step.before, keys), self.live(step.after, keys))

    def _between(self, step: SnapshotPair, old: pa.Table, new: pa.Table) -> pa.Table:
        place = places_among(new[RECORD_KEY], old[RECORD_KEY])
        both = np.flatnonzero(place >= 0)
        both = both[~_equal_texts(new[COMMIT_TIME], both, old[COMMIT_TIME], place[both])]
        gone = np.ones(len(old), bool)
        gone[place[place >= 0]] = False
        was, now = self._matches(old), self._matches(new)
        updated = both[was[place[both]] & now[both]]
        left, entered = both[was[place[both]] & ~now[both]], both[~was[place[both]] & now[both]]
        fresh = np.flatnonzero((place < 0) & now)
        parts = [
            self._found(UPDATE, step, new, updated, (old, place[updated]), (new, updated)),
            self._found(DELETE, step, new, left, (old, place[left]), None),
            self._found(
                INSERT, step, new, np.concatenate([entered, fresh]), None, (new, np.concatenate([entered, fresh]))
            ),
            self._found(
                DELETE, step, old, np.flatnonzero(gone & was), (old, np.flatnonzero(gone & was)), None, unknown=True
            ),
        ]
        return pa.concat_tables(parts)

    def _matches(self, rows: pa.Table) -> np.ndarray:
        if self.where is None:
            return np.ones(len(rows), bool)
        mask = np.zeros(len(rows), bool)
        numbered = rows.append_column(KEY, pa.array(np.arange(len(rows))))
        mask[numbered.filter(self.where.expression)[KEY].to_numpy()] = True
        return mask

    def _found(
        self,
        op: str,
        step: SnapshotPair,
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
            pa.array([step.instant] * len(at), pa.string())
            if step.instant or unknown
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
        table, places = side
        return change_log.images(take(table.select(self.schema.names), places), np.zeros(rows, bool))


def joined(found: pa.Table, net: bool) -> pa.Table:
    """`found` in several steps of one partition: a key that went from one file group and came in
    another was updated.
    """
    went, came = found.filter(pc.equal(found["op"], DELETE)), found.filter(pc.equal(found["op"], INSERT))
    place = pc.index_in(came[KEY], value_set=went[KEY].combine_chunks())
    if place.null_count == len(place):
        return found
    moved_in = came.filter(place.is_valid())
    moved_out = take(went, place.drop_null().to_numpy())
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


def equal_values(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Mask: are the values at the same place equal? Nulls are equal to each other, and so are NaNs; of any type,
    without a loop over rows.
    """
    kind = left.type
    valid = left.is_valid().to_numpy(zero_copy_only=False)
    same: np.ndarray = valid == right.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            same = same & (
                equal_values(left.field(number), right.field(number)) | ~valid
            )  # what is below a null does not count
        return same
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return same & (_equal_lists(_as_list(left), _as_list(right)) | ~valid)
    if pa.types.is_null(kind):
        return same
    equal = pc.equal(left, right)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return same & (equal.fill_null(False).to_numpy(zero_copy_only=False) | ~valid)


def _as_list(values: pa.Array) -> pa.Array:
    """A map as a list of its entries."""
    if not pa.types.is_map(values.type):
        return values
    entries = pa.StructArray.from_arrays(
        [values.keys, values.items],
        fields=[pa.field("key", values.type.key_type), pa.field("value", values.type.item_type)],
    )
    mask = pa.array(values.is_null()) if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(_offsets(values), pa.int32()), entries, mask=mask)


def _offsets(values: pa.Array) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _equal_lists(left: pa.Array, right: pa.Array) -> np.ndarray:
    lengths = pc.list_value_length(left).fill_null(-1).to_numpy(zero_copy_only=False)
    same = lengths == pc.list_value_length(right).fill_null(-1).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(same & (lengths > 0))
    if not len(places):
        return same
    items = [pc.list_flatten(side.take(pa.array(places))) for side in (left, right)]
    starts = np.concatenate([[0], np.cumsum(lengths[places])[:-1]])
    same[places] = np.logical_and.reduceat(equal_values(items[0], items[1]), starts)
    return same


def _equal_texts(
    left: pa.ChunkedArray, left_at: np.ndarray, right: pa.ChunkedArray, right_at: np.ndarray
) -> np.ndarray:
    return pc.equal(
        left.take(pa.array(left_at)).combine_chunks(), right.take(pa.array(right_at)).combine_chunks()
    ).to_numpy(zero_copy_only=False)


def _one_of(column: pa.ChunkedArray, few: pa.Array) -> np.ndarray:
    """Mask: is each value of a dictionary column one of `few`?"""
    parts = [
        pc.is_in(chunk.dictionary, value_set=few).take(chunk.indices).fill_null(False).to_numpy(zero_copy_only=False)
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, bool), *parts])


def _base_path(group: FileGroup) -> str:
    return group.base.file.path if group.base else ""


def _one_array(chunks: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *chunks])
