"""Salvage of tables with damaged files.

A damaged file group gets a new base file with its readable rows, and copies of the damaged files are kept. If the
newest version of a key is damaged, the key keeps its last readable version from an older log or from the previous file
slice. This is a loss that the caller must accept. A damaged result of a compaction is not a loss as long as the
compacted file slice still exists.

A salvage is one replacement commit. It starts again if a writer changes one of the file groups during the salvage. Rows
keep their commit times, as in any table service. Only one file group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, OptionError, SnapshotExpired
from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.resolve import NO_CHANGES
from hoodoo.index.key_index import base_entry_path
from hoodoo.merge.kernels import KeyedChanges, as_upserts, find_indexes
from hoodoo.readers.slices import damage, slices
from hoodoo.readers.slices.damage import Damage
from hoodoo.redact import printable
from hoodoo.storage.spool import IN_MEMORY
from hoodoo.storage.store import Store
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import RetrySettings
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import REPLACE_COMMIT
from hoodoo.timeline.layout import SALVAGED
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, CLUSTER, SALVAGE, DataFile
from hoodoo.timeline.views.view import FileGroup, View
from hoodoo.writers.context import Context
from hoodoo.writers.files.base_sink import put_base
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.routing.route import generate_file_id

_GHOST = "#damaged"  # extra column: the index of the damage that makes a row unreadable, or -1 for a readable row
_NAMED = 10
_SPENT = "Nothing was salvaged. Call salvage again when there are fewer writes."


@dataclass(frozen=True)
class UnreadablePart:
    """Unreadable part of a file.

    Attributes:
        file: The path of the file.
        block: The index, from 0, of the log block or of the row group of a base file. None if the damage is larger.
        row: The index, from 0, of the row in the block or row group. None if the damage is larger.
        rows: Number of rows in the part, or 0 if it is unknown.
        why: Description of the damage.
    """

    file: str
    block: int | None
    row: int | None
    rows: int
    why: str


@dataclass(frozen=True)
class LostRow:
    """Lost row of a damaged file.

    Its newest version or its delete is unreadable.

    Attributes:
        partition: The path of the partition.
        key: The record key, or None for rows with unreadable keys.
        kept: True if an earlier, readable version of the key stays.
        file: The path of the damaged file.
        rows: Number of rows that this loss represents: 1 if `key` is known, otherwise the number of rows with
            unreadable keys, or 0 if it is unknown.
    """

    partition: str
    key: str | None
    kept: bool
    file: str
    rows: int = 1


@dataclass
class SalvageReport:
    """Result of repairing damaged files.

    Attributes:
        dry_run: True if nothing was written.
        groups: Number of file groups with damaged files.
        rows: Number of rows that stay in these file groups.
        places: The unreadable parts of files.
        lost: The keys whose newest version or whose delete cannot be read.
        kept_aside: The paths of the copies of the damaged files.
        instant: The instant of the commit, or '' in a dry run or if nothing was damaged.
    """

    dry_run: bool
    groups: int = 0
    rows: int = 0
    places: list[UnreadablePart] = field(default_factory=list)
    lost: list[LostRow] = field(default_factory=list)
    kept_aside: tuple[str, ...] = ()
    instant: str = ""

    @property
    def ok(self) -> bool:
        """True if no file is damaged."""
        return not self.places


def salvage_damaged_files(context: Context, dry_run: bool = False, accept_loss: bool = False) -> SalvageReport:
    """Salvage damaged files: replace them with their readable rows.

    This reads the whole table.

    Raises:
        OptionError: Rows would be lost, and accept_loss is False. Nothing was written.
        CommitConflict: The retries are exhausted because of concurrent writers.
    """
    retries = context.timeline.look().config.options.max_retries
    once = partial(_once, context, dry_run, accept_loss)
    return RetrySettings(retries, spent=_SPENT).run(context.timeline.environment, once)


def _once(context: Context, dry_run: bool, accept_loss: bool) -> SalvageReport:
    state = context.timeline.heal()
    view, config = state.view, state.config
    report = SalvageReport(dry_run)
    damaged = [group for group in view.groups() if _examine_file_group(context, config, group, report)]
    if dry_run or not damaged:
        return report
    if report.lost and not accept_loss:
        raise _refusal(report)
    report.kept_aside = tuple(_copy_damaged_files(context.store, {damaged.file for damaged in report.places}))
    report.instant = _replace_damaged_groups(context, damaged)
    return report


def _refusal(report: SalvageReport) -> OptionError:
    keys = [loss.key for loss in report.lost if loss.key is not None]
    without_keys = [loss for loss in report.lost if loss.key is None]
    rows = len(keys) + sum(loss.rows for loss in without_keys)
    descriptions = [", ".join(map(printable, keys[:_NAMED]))] if keys else []
    descriptions += [
        f"{loss.rows or 'some'} rows of {loss.file} whose keys cannot be read" for loss in without_keys[:_NAMED]
    ]
    return OptionError(
        f"Salvaging loses the newest version of {rows} rows ({'; '.join(descriptions)}). Nothing was written. Inspect "
        "maintenance.salvage(dry_run=True), then pass accept_loss=True (--accept-loss). To lose nothing, first write "
        "these rows again, or call restore() with a readable snapshot from before the damage.",
        option="accept_loss",
        keys=keys[:_NAMED],
        lost=rows,
    )


def _examine_file_group(context: Context, config: TableConfig, group: FileGroup, report: SalvageReport) -> bool:
    entries = list(_damaged_entries(context, group))
    files = (placed.file for placed in group.files())
    if not entries and not any(True for file in files for _ in damage.unreadable(context.store, config, file)):
        return False
    group_salvage = _GroupSalvage(context, config, group)
    report.groups += 1
    report.rows += len(group_salvage.rows)
    report.places += entries
    report.places += [
        UnreadablePart(
            damaged_part.file.path,
            damaged_part.block,
            damaged_part.row,
            damaged_part.rows,
            damaged_part.why.rstrip("."),
        )
        for damaged_part in group_salvage.damages
    ]
    report.lost += group_salvage.losses()
    return True


def _damaged_entries(context: Context, group: FileGroup) -> Iterator[UnreadablePart]:
    # A salvage replaces index entries together with the data files.
    for placed in group.files():
        if placed.file.index:
            try:
                context.index.require_sound(placed.file.index)
            except CorruptTable as problem:
                yield UnreadablePart(placed.file.index, None, None, 0, problem.message.rstrip("."))


class _GroupSalvage:
    def __init__(self, context: Context, config: TableConfig, group: FileGroup) -> None:
        self._context, self._config, self._group = context, config, group
        store, schema = context.store, config.stored_schema
        base = group.base.file if group.base else None
        self._base = list(damage.read_base(store, config, base, schema)) if base else []
        self._compacted = False  # True if a compaction made the base from the previous slice, which is undamaged
        self._former = self._readable_earlier_rows(schema)
        self._logs = [
            part for file in slices.sort_logs_by_instant(group) for part in damage.read_log(store, config, file, schema)
        ]
        self.damages = [part for part in (*self._base, *self._logs) if isinstance(part, Damage)]
        self.rows = self._merged(
            [*(part for part in self._base if isinstance(part, pa.Table)), self._former],
            [part for part in self._logs if isinstance(part, KeyedChanges)],
            schema,
        )

    def _readable_earlier_rows(self, schema: pa.Schema) -> pa.Table:
        # These are rows of the previous file slice whose newer versions in the base file are unreadable. There are none
        # if the previous slice was cleaned, or if the index does not contain the keys of the base file.
        group, no_rows = self._group, schema.empty_table()
        if group.base is None or not any(isinstance(part, Damage) and part.rows for part in self._base):
            return no_rows
        history = self._context.timeline.history
        try:
            view = history.view(group.base.seq - 1)
            before = view.group(group.partition, group.file_id)
            if before is None or before.base == group.base or not group.base.file.index:
                return no_rows
            former = _GroupSalvage(self._context, self._config.knowing(view.schemas), before)
            self._compacted = history.slot(group.base.seq).compacts and not former.damages
            rows = former.rows
            is_in_base = self._context.index.holds(group.base.file.index, hash64(rows[RECORD_KEY]))
        except (SnapshotExpired, CorruptTable):
            return no_rows
        sound = [part[RECORD_KEY].combine_chunks() for part in self._base if isinstance(part, pa.Table)]
        was_read = pc.is_in(rows[RECORD_KEY], value_set=pa.concat_arrays([pa.array([], pa.string()), *sound]))
        return rows.filter(pa.array(is_in_base & ~was_read.to_numpy(zero_copy_only=False).astype(bool)))

    def _merged(self, base: Sequence[pa.Table], logs: list[KeyedChanges], schema: pa.Schema) -> pa.Table:
        base_rows = pa.concat_tables([schema.empty_table(), *base])
        policy = self._config.merge_policy
        return policy.applied(
            base_rows, [_drop_partial_updates_without_row(part, base_rows) for part in policy.one_per_key(logs)]
        )

    # ---- losses
    def losses(self) -> list[LostRow]:
        # Damaged rows take part in a merge of keys and ordering values. A damaged row that wins is a loss. A damaged
        # row with an unknown ordering value counts as the winner.
        kept = set(self.rows[RECORD_KEY].to_pylist())
        lost = dict[str, Damage]()
        ghosts = self._merged(
            [self._narrow(part, number) for number, part in self._base_keys()],
            [self._narrow_changes(part, number) for number, part in self._with_index_of_damage(self._logs)],
            self._narrow_schema(),
        )
        ghosts = ghosts.filter(pa.array(ghosts[_GHOST].to_numpy() >= 0))
        for key, number in zip(ghosts[RECORD_KEY].to_pylist(), ghosts[_GHOST].to_pylist(), strict=True):
            lost[key] = self.damages[number]
        compacted = set(self._former[RECORD_KEY].to_pylist()) if self._compacted else set()
        for damaged_part in self.damages:
            if damaged_part.known is not None and not self._is_ordered(damaged_part.known):
                keys = set(damaged_part.known[RECORD_KEY].to_pylist()) - (
                    compacted if damaged_part.file.kind == BASE else set()
                )
                lost |= {key: lost.get(key, damaged_part) for key in keys}
            lost |= {key: lost.get(key, damaged_part) for key in self._reappearing_keys(damaged_part)}
        partition = self._group.partition
        keyed_losses = [
            LostRow(partition, key, key in kept, damaged_part.file.path) for key, damaged_part in sorted(lost.items())
        ]
        return keyed_losses + [LostRow(partition, None, False, *location) for location in self._losses_without_keys()]

    def _losses_without_keys(self) -> Iterator[tuple[str, int]]:
        # Yields the file and the number of lost rows.
        base_damages = [damaged_part for damaged_part in self.damages if damaged_part.file.kind == BASE]
        keys = [part[RECORD_KEY].combine_chunks() for number, part in self._base_keys() if number >= 0]
        keys += [self._former[RECORD_KEY].combine_chunks()] if self._compacted else []
        known = len(pa.concat_arrays([pa.array([], pa.string()), *keys]).unique())
        if (missing := sum(damaged_part.rows for damaged_part in base_damages) - known) > 0:
            yield base_damages[0].file.path, missing
        for damaged_part in self.damages:
            if damaged_part.file.kind == BASE:
                continue
            missing = damaged_part.rows - (0 if damaged_part.known is None else len(damaged_part.known))
            unknown_log = damaged_part.rows == 0 and damaged_part.known is None and not damaged_part.deletes
            if missing > 0 or unknown_log or (damaged_part.deletes and not damaged_part.file.index):
                yield damaged_part.file.path, max(0, missing)

    def _reappearing_keys(self, damaged_log: Damage) -> list[str]:
        # The index entry of the log has the keys of its deletes.
        if not damaged_log.deletes or not damaged_log.file.index:
            return []
        keys = self.rows[RECORD_KEY]
        is_deleted = self._context.index.holds(damaged_log.file.index, hash64(keys)) if len(keys) else np.zeros(0, bool)
        return keys.filter(pa.array(is_deleted)).to_pylist()

    def _is_ordered(self, known: pa.Table) -> bool:
        order_by = self._config.merge_policy.order_by
        return all(name in known.schema.names and not known[name].null_count for name in order_by)

    def _narrow_schema(self) -> pa.Schema:
        names = slices.columns_to_decode(self._config, [], merging=True)
        return slices.schema_of(self._config, names).append(pa.field(_GHOST, pa.int32()))

    def _base_keys(self) -> Iterator[tuple[int, pa.Table]]:
        # Yields each key once, with the index of its damage or -1. A row of the previous file slice counts as the
        # newest version only if a compaction made the base file from that slice.
        former_keys = self._former[RECORD_KEY].combine_chunks()
        if len(former_keys):
            damaged = next(
                number
                for number, damaged_part in enumerate(self.damages)
                if damaged_part.file.kind == BASE and damaged_part.rows
            )
            yield -1 if self._compacted else damaged, self._former
        for number, part in self._with_index_of_damage(self._base):
            assert isinstance(part, pa.Table)
            yield (
                number,
                part if number < 0 else part.filter(pc.invert(pc.is_in(part[RECORD_KEY], value_set=former_keys))),
            )

    def _with_index_of_damage(
        self, parts: Sequence[pa.Table | KeyedChanges | Damage]
    ) -> Iterator[tuple[int, pa.Table | KeyedChanges]]:
        # Readable parts get -1.
        numbers = {id(damaged_part): number for number, damaged_part in enumerate(self.damages)}
        for part in parts:
            if not isinstance(part, Damage):
                yield -1, part
            elif part.known is not None and len(part.known):
                yield numbers[id(part)], part.known if part.file.kind == BASE else as_upserts(part.known)

    def _narrow(self, rows: pa.Table, number: int) -> pa.Table:
        schema = self._narrow_schema()
        rows = rows.select([name for name in rows.schema.names if schema.get_field_index(name) >= 0])
        rows = rows.append_column(_GHOST, pa.array(np.full(len(rows), number, np.int32)))
        return NO_CHANGES.to_requested_columns(rows, list(schema))

    def _narrow_changes(self, changes: KeyedChanges, number: int) -> KeyedChanges:
        columns = None if changes.columns is None else (*changes.columns, *([_GHOST] if number >= 0 else []))
        return KeyedChanges(self._narrow(changes.rows, number), changes.delete, changes.unconditional, columns)


def _drop_partial_updates_without_row(changes: KeyedChanges, rows: pa.Table) -> KeyedChanges:
    # The other columns of such rows are unknown.
    if not changes.unset:
        return changes
    has_row = find_indexes(changes.rows[RECORD_KEY], rows[RECORD_KEY]) >= 0
    return changes.take(np.flatnonzero(has_row | ~changes.partial))


def _copy_damaged_files(store: Store, paths: set[str]) -> Iterator[str]:
    # Services ignore the folder `salvaged`. Missing files are skipped.
    for path in sorted(paths):
        try:
            data = store.get(path) if store.size(path) <= IN_MEMORY else store.mapped(path)
        except FileNotFoundError:
            continue
        store.write_once(SALVAGED + path, data)
        yield SALVAGED + path


def _replace_damaged_groups(context: Context, groups: Sequence[FileGroup]) -> str:
    # Returns the instant. Raises Conflict if another process wrote to one of the groups.
    ids = [generate_file_id(context.timeline.environment.token) for _ in groups]

    def inflight(base: View) -> bytes:
        if any(base.group(group.partition, group.file_id) != group for group in groups):
            raise Conflict("Another process wrote to a damaged file group")
        return commit_metadata.encode_inflight_file(CLUSTER)

    requested = commit_metadata.requested_replacecommit(SALVAGE)
    with context.timeline.attempt(REPLACE_COMMIT, requested, inflight) as attempt:
        files = [
            file
            for group, file_id in zip(groups, ids, strict=True)
            if (file := _write_readable_rows(context, attempt, group, file_id))
        ]
        replaced_groups = tuple((group.partition, group.file_id) for group in groups)
        touches = WriteSet(replaces={group.file_id for group in groups})
        return attempt.complete(
            SlotDraft(SALVAGE, files=tuple(files), replaced=replaced_groups, touches=touches)
        ).instant


def _write_readable_rows(context: Context, attempt: Transaction, group: FileGroup, file_id: str) -> DataFile | None:
    # Returns None if no row is readable.
    config = attempt.config
    rows = _GroupSalvage(context, config, group).rows
    if not len(rows):
        return None
    target = FileTarget(group.partition, file_id, attempt.instant)
    attempt.register([target.base_path, base_entry_path(file_id, attempt.instant)])
    attempt.mark(target.base_path, "CREATE")
    return put_base(context.store, config, context.index, target, rows)


__all__ = ["UnreadablePart", "LostRow", "SalvageReport", "salvage_damaged_files"]
