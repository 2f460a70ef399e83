"""Salvage: file groups whose bases or logs cannot be read get new base files of their sound rows, and the damaged bytes
are kept aside. A key whose newest version is damaged keeps its last sound one, if there is one, in a log below it or in
the slice before its base; that is a loss, which the caller must accept. What a compaction wrote is no loss while the
slice that it compacted is there.

One replacement, under the rules of any: whoever wrote to one of the groups meanwhile comes first, and it begins again.
Rows keep their commit times, as in any table service. One file group is in memory at a time.
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
from hoodoo.format.resolve import AS_IT_STANDS
from hoodoo.index.key_index import entry_name
from hoodoo.merge.kernels import KeyedChanges, positions_among, upserts
from hoodoo.readers.slices import damage, slices
from hoodoo.readers.slices.damage import Damage
from hoodoo.redact import printable
from hoodoo.storage.spool import IN_MEMORY
from hoodoo.storage.store import Store
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import Retry
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
from hoodoo.writers.routing.route import new_file_id

_GHOST = "#damaged"  # column beside the table's: which damage a row that cannot be read is; -1: the row is sound
_NAMED = 10
_SPENT = "Nothing was salvaged; call it again when they pause."


@dataclass(frozen=True)
class DamagedPlace:
    """A part of a file that cannot be read.

    Attributes:
        file: The path of the file.
        block: The number of the log block, or of the row group of a base file, from 0. None where the damage is larger.
        row: The number of the row within it, from 0. None where the damage is larger.
        rows: How many rows the part has, 0 where that is not known.
        why: What is wrong, in words.
    """

    file: str
    block: int | None
    row: int | None
    rows: int
    why: str


@dataclass(frozen=True)
class Loss:
    """A key whose newest version cannot be read, or whose delete cannot be read, so that it came back.

    Attributes:
        partition: The path of the partition.
        key: The record key. None stands for rows whose keys cannot be read.
        kept: True if an earlier, sound version of the key stays.
        file: The path of the damaged file.
        rows: How many rows this stands for where `key` is None, 0 where that is not known. Otherwise 1.
    """

    partition: str
    key: str | None
    kept: bool
    file: str
    rows: int = 1


@dataclass
class SalvageReport:
    """What a salvage found, and what it did.

    Attributes:
        dry_run: True if nothing was written.
        groups: How many file groups have damaged files.
        rows: How many rows stay in these file groups.
        places: The parts of files that cannot be read.
        lost: The keys whose newest version or whose delete cannot be read.
        kept_aside: The paths of the copies of the damaged files.
        instant: The instant of the commit, or '' where nothing was damaged, and in a dry run.
    """

    dry_run: bool
    groups: int = 0
    rows: int = 0
    places: list[DamagedPlace] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)
    kept_aside: tuple[str, ...] = ()
    instant: str = ""

    @property
    def ok(self) -> bool:
        """True if no file is damaged."""
        return not self.places


def salvage(context: Context, dry_run: bool = False, accept_loss: bool = False) -> SalvageReport:
    """Give every damaged file group new base files of its sound rows. Reads the whole table.

    Raises OptionError, before anything is written, where a row is lost and accept_loss is not given; CommitConflict
    where writers kept winning.
    """
    retries = context.timeline.look().config.options.max_retries
    once = partial(_once, context, dry_run, accept_loss)
    return Retry(retries, spent=_SPENT).run(context.timeline.environment, once)


def _once(context: Context, dry_run: bool, accept_loss: bool) -> SalvageReport:
    state = context.timeline.heal()
    view, config = state.view, state.config
    report = SalvageReport(dry_run)
    damaged = [group for group in view.groups() if _look(context, config, group, report)]
    if dry_run or not damaged:
        return report
    if report.lost and not accept_loss:
        raise _refusal(report)
    report.kept_aside = tuple(_keep_aside(context.store, {damaged.file for damaged in report.places}))
    report.instant = _replace(context, damaged)
    return report


def _refusal(report: SalvageReport) -> OptionError:
    keys = [loss.key for loss in report.lost if loss.key is not None]
    nameless = [loss for loss in report.lost if loss.key is None]
    rows = len(keys) + sum(loss.rows for loss in nameless)
    named = [", ".join(map(printable, keys[:_NAMED]))] if keys else []
    named += [f"{loss.rows or 'some'} rows of {loss.file} whose keys cannot be read" for loss in nameless[:_NAMED]]
    return OptionError(
        f"Salvaging loses the newest version of {rows} rows ({'; '.join(named)}). Nothing was written. Look at "
        "salvage(dry_run=True), then pass accept_loss=True (--accept-loss). It is no loss where you write these rows "
        "again first; a snapshot from before the damage, if one can still be read, comes back whole with restore().",
        option="accept_loss",
        keys=keys[:_NAMED],
        lost=rows,
    )


def _look(context: Context, config: TableConfig, group: FileGroup, report: SalvageReport) -> bool:
    """Add the group to the report if it has damage, and tell whether it has."""
    entries = list(_damaged_entries(context, group))
    files = (placed.file for placed in group.files())
    if not entries and not any(True for file in files for _ in damage.unreadable(context.store, config, file)):
        return False
    found = _GroupSalvage(context, config, group)
    report.groups += 1
    report.rows += len(found.rows)
    report.places += entries
    report.places += [
        DamagedPlace(one.file.path, one.block, one.row, one.rows, one.why.rstrip(".")) for one in found.damages
    ]
    report.lost += found.losses()
    return True


def _damaged_entries(context: Context, group: FileGroup) -> Iterator[DamagedPlace]:
    """Index entries of the group that cannot be read: new files get new ones."""
    for placed in group.files():
        if placed.file.index:
            try:
                context.index.require_sound(placed.file.index)
            except CorruptTable as problem:
                yield DamagedPlace(placed.file.index, None, None, 0, problem.message.rstrip("."))


class _GroupSalvage:
    """One file group: its sound rows, its damages, and what is lost by them."""

    def __init__(self, context: Context, config: TableConfig, group: FileGroup) -> None:
        self._context, self._config, self._group = context, config, group
        store, schema = context.store, config.stored_schema
        base = group.base.file if group.base else None
        self._base = list(damage.read_base(store, config, base, schema)) if base else []
        self._compacted = False  # is the base what a compaction made of the slice before, and is that one sound?
        self._former = self._rows_before(schema)
        self._logs = [
            part for file in slices.logs_in_order(group) for part in damage.read_log(store, config, file, schema)
        ]
        self.damages = [part for part in (*self._base, *self._logs) if isinstance(part, Damage)]
        self.rows = self._merged(
            [*(part for part in self._base if isinstance(part, pa.Table)), self._former],
            [part for part in self._logs if isinstance(part, KeyedChanges)],
            schema,
        )

    def _rows_before(self, schema: pa.Schema) -> pa.Table:
        """Rows that the base has and nobody can read there, as the slice before it has them; none where that slice is
        cleaned, or where the index does not tell which keys the base has.
        """
        group, nothing = self._group, schema.empty_table()
        if group.base is None or not any(isinstance(part, Damage) and part.rows for part in self._base):
            return nothing
        history = self._context.timeline.history
        try:
            view = history.view(group.base.seq - 1)
            before = view.group(group.partition, group.file_id)
            if before is None or before.base == group.base or not group.base.file.index:
                return nothing
            former = _GroupSalvage(self._context, self._config.knowing(view.schemas), before)
            self._compacted = history.slot(group.base.seq).compacts and not former.damages
            rows = former.rows
            there = self._context.index.holds(group.base.file.index, hash64(rows[RECORD_KEY]))
        except (SnapshotExpired, CorruptTable):
            return nothing
        sound = [part[RECORD_KEY].combine_chunks() for part in self._base if isinstance(part, pa.Table)]
        read = pc.is_in(rows[RECORD_KEY], value_set=pa.concat_arrays([pa.array([], pa.string()), *sound]))
        return rows.filter(pa.array(there & ~read.to_numpy(zero_copy_only=False).astype(bool)))

    def _merged(self, base: Sequence[pa.Table], logs: list[KeyedChanges], schema: pa.Schema) -> pa.Table:
        whole = pa.concat_tables([schema.empty_table(), *base])
        policy = self._config.merge_policy
        return policy.applied(whole, [_over_rows(part, whole) for part in policy.one_per_key(logs)])

    # ---- what is lost
    def losses(self) -> list[Loss]:
        """Keys whose newest version is damaged: the damaged rows take part in a merge of keys and ordering values
        alone, and where one of them wins, it is a loss. One whose ordering value is not known counts as the winner.
        """
        kept = set(self.rows[RECORD_KEY].to_pylist())
        lost = dict[str, Damage]()
        ghosts = self._merged(
            [self._narrow(part, number) for number, part in self._base_keys()],
            [self._narrow_changes(part, number) for number, part in self._numbered(self._logs)],
            self._narrow_schema(),
        )
        ghosts = ghosts.filter(pa.array(ghosts[_GHOST].to_numpy() >= 0))
        for key, number in zip(ghosts[RECORD_KEY].to_pylist(), ghosts[_GHOST].to_pylist(), strict=True):
            lost[key] = self.damages[number]
        compacted = set(self._former[RECORD_KEY].to_pylist()) if self._compacted else set()
        for one in self.damages:
            if one.known is not None and not self._is_ordered(one.known):
                keys = set(one.known[RECORD_KEY].to_pylist()) - (compacted if one.file.kind == BASE else set())
                lost |= {key: lost.get(key, one) for key in keys}
            lost |= {key: lost.get(key, one) for key in self._back_again(one)}
        partition = self._group.partition
        named = [Loss(partition, key, key in kept, one.file.path) for key, one in sorted(lost.items())]
        return named + [Loss(partition, None, False, *rest) for rest in self._nameless()]

    def _nameless(self) -> Iterator[tuple[str, int]]:
        """(file, rows) of damages whose keys cannot all be read."""
        of_base = [one for one in self.damages if one.file.kind == BASE]
        keys = [part[RECORD_KEY].combine_chunks() for number, part in self._base_keys() if number >= 0]
        keys += [self._former[RECORD_KEY].combine_chunks()] if self._compacted else []
        known = len(pa.concat_arrays([pa.array([], pa.string()), *keys]).unique())
        if (missing := sum(one.rows for one in of_base) - known) > 0:
            yield of_base[0].file.path, missing
        for one in self.damages:
            if one.file.kind == BASE:
                continue
            missing = one.rows - (0 if one.known is None else len(one.known))
            unknown_log = one.rows == 0 and one.known is None and not one.deletes
            if missing > 0 or unknown_log or (one.deletes and not one.file.index):
                yield one.file.path, max(0, missing)

    def _back_again(self, one: Damage) -> list[str]:
        """Live keys that the file of a damage deletes, as its index entry has them."""
        if not one.deletes or not one.file.index:
            return []
        keys = self.rows[RECORD_KEY]
        gone = self._context.index.holds(one.file.index, hash64(keys)) if len(keys) else np.zeros(0, bool)
        return keys.filter(pa.array(gone)).to_pylist()

    def _is_ordered(self, known: pa.Table) -> bool:
        order_by = self._config.merge_policy.order_by
        return all(name in known.schema.names and not known[name].null_count for name in order_by)

    def _narrow_schema(self) -> pa.Schema:
        names = slices.columns_for(self._config, [], merging=True)
        return slices.schema_of(self._config, names).append(pa.field(_GHOST, pa.int32()))

    def _base_keys(self) -> Iterator[tuple[int, pa.Table]]:
        """The rows of the base, each key once, with the number of the damage that they lie in, -1 for sound ones. A row
        of the slice before is the newest version where a compaction made the base of it; else it may be an older one.
        """
        taken = self._former[RECORD_KEY].combine_chunks()
        if len(taken):
            damaged = next(number for number, one in enumerate(self.damages) if one.file.kind == BASE and one.rows)
            yield -1 if self._compacted else damaged, self._former
        for number, part in self._numbered(self._base):
            assert isinstance(part, pa.Table)
            yield number, part if number < 0 else part.filter(pc.invert(pc.is_in(part[RECORD_KEY], value_set=taken)))

    def _numbered(
        self, parts: Sequence[pa.Table | KeyedChanges | Damage]
    ) -> Iterator[tuple[int, pa.Table | KeyedChanges]]:
        """Each part that has keys with the number of its damage, -1 for a sound one."""
        numbers = {id(one): number for number, one in enumerate(self.damages)}
        for part in parts:
            if not isinstance(part, Damage):
                yield -1, part
            elif part.known is not None and len(part.known):
                yield numbers[id(part)], part.known if part.file.kind == BASE else upserts(part.known)

    def _narrow(self, rows: pa.Table, number: int) -> pa.Table:
        schema = self._narrow_schema()
        rows = rows.select([name for name in rows.schema.names if schema.get_field_index(name) >= 0])
        rows = rows.append_column(_GHOST, pa.array(np.full(len(rows), number, np.int32)))
        return AS_IT_STANDS.conform(rows, list(schema))

    def _narrow_changes(self, changes: KeyedChanges, number: int) -> KeyedChanges:
        columns = None if changes.columns is None else (*changes.columns, *([_GHOST] if number >= 0 else []))
        return KeyedChanges(self._narrow(changes.rows, number), changes.delete, changes.unconditional, columns)


def _over_rows(changes: KeyedChanges, rows: pa.Table) -> KeyedChanges:
    """`changes` without partial updates of rows that are not there, of which some columns are all there is."""
    if not changes.unset:
        return changes
    there = positions_among(changes.rows[RECORD_KEY], rows[RECORD_KEY]) >= 0
    return changes.take(np.flatnonzero(there | ~changes.partial))


def _keep_aside(store: Store, paths: set[str]) -> Iterator[str]:
    """Copy files to where no service looks; their names are unique, and a file there is never another one."""
    for path in sorted(paths):
        try:
            data = store.get(path) if store.size(path) <= IN_MEMORY else store.mapped(path)
        except FileNotFoundError:
            continue
        store.write_once(SALVAGED + path, data)
        yield SALVAGED + path


def _replace(context: Context, groups: Sequence[FileGroup]) -> str:
    """Replace damaged file groups by new ones with their sound rows, and return the instant.

    Raises:
        Conflict: One of the groups was written meanwhile.
    """
    ids = [new_file_id(context.timeline.environment.token) for _ in groups]

    def inflight(base: View) -> bytes:
        if any(base.group(group.partition, group.file_id) != group for group in groups):
            raise Conflict("a damaged file group was written")
        return commit_metadata.inflight(CLUSTER)

    requested = commit_metadata.requested_replace(SALVAGE)
    with context.timeline.attempt(REPLACE_COMMIT, requested, inflight) as attempt:
        files = [
            file
            for group, file_id in zip(groups, ids, strict=True)
            if (file := _write(context, attempt, group, file_id))
        ]
        gone = tuple((group.partition, group.file_id) for group in groups)
        touches = WriteSet(replaces={group.file_id for group in groups})
        return attempt.complete(SlotDraft(SALVAGE, files=tuple(files), replaced=gone, touches=touches)).instant


def _write(context: Context, attempt: Transaction, group: FileGroup, file_id: str) -> DataFile | None:
    """The new base of a group's sound rows; None where there are none."""
    config = attempt.config
    rows = _GroupSalvage(context, config, group).rows
    if not len(rows):
        return None
    target = FileTarget(group.partition, file_id, attempt.instant)
    attempt.register([target.base_path, entry_name(file_id, attempt.instant)])
    attempt.mark(target.base_path, "CREATE")
    return put_base(context.store, config, context.index, target, rows)


__all__ = ["DamagedPlace", "Loss", "SalvageReport", "salvage"]
