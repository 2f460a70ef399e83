"""The operations that change rows: one loop that locates, routes, writes and completes, and on a conflict does it
again.

What survives a retry (the prepared batch) is made once; what carries the old instant (files, meta columns) is made
anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable, KeyExists
from hoodoo.format.columns import TableSchema
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import NOWHERE, KeyIndex, Located
from hoodoo.readers import slices
from hoodoo.readers.predicate import checks
from hoodoo.readers.predicate.checks import Check
from hoodoo.storage.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.alterations import Alteration, altered
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.conflicts import WriteSet, no_keys
from hoodoo.timeline.draft import Conflict, SlotDraft
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import REPLACE_COMMIT
from hoodoo.timeline.retry import Retry
from hoodoo.timeline.rewrites import rewrite_needed, rewrites
from hoodoo.timeline.slot import SETTINGS, Slot
from hoodoo.timeline.state import TableState
from hoodoo.timeline.timeline import Timeline
from hoodoo.timeline.transaction import Transaction
from hoodoo.timeline.view import View
from hoodoo.writers.bad_rows import BadRows, none_of
from hoodoo.writers.batch import NAMED_KEYS, Batch, first_keys, require_checks
from hoodoo.writers.evolution import Evolution
from hoodoo.writers.locate import locate_by_key
from hoodoo.writers.route import Assignment, Mode, UnderPlan, plan
from hoodoo.writers.sorting import sort_columns
from hoodoo.writers.split import BatchRows, ordered, split
from hoodoo.writers.tasks import WriteTask, Written, run

log = logging.getLogger("hoodoo.writers")
T = TypeVar("T")
R = TypeVar("R")
_SPENT = "Nothing was written. Write again, or raise max_retries."


class Engine(Protocol):
    """Runs tasks; `threads` of them at a time, as far as it knows. remote: in other processes, to which tasks are
    pickled. at_once: at most so many tasks run at a time. waiting: they hold little and wait for a server more than
    they work.
    """

    remote: bool
    threads: int

    def map(
        self, task: Callable[[Any], Any], items: Sequence[Any], at_once: int | None = None, waiting: bool = False
    ) -> list[Any]: ...


@dataclass(frozen=True)
class Context:
    """What an operation works with. run_plans: runs the open compaction plans of some file groups; alter: changes the
    table's columns where that rewrites logs (services, handed down by the facade). evolution: of a batch that may
    change the table's columns. begun: what the first attempt goes on from, where the table was looked at to prepare it.
    """

    store: Store
    timeline: Timeline
    index: KeyIndex
    engine: Engine
    run_plans: Callable[[View], None]
    alter: Callable[[Sequence[Alteration]], None]
    evolution: Evolution | None = None
    begun: TableState | None = None


@dataclass
class Committed:
    """What a write did. slot: of this commit, or the head if nothing was written; counts as docs/semantics.md says."""

    slot: int
    instant: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    exact: bool = True
    files: int = 0
    bytes_written: int = 0
    retries: int = 0
    skipped: bool = False


@dataclass(frozen=True)
class WritePlan:
    """What one attempt wants to write on a given view, and what it replaces. inserted, updated: sorted key hashes, for
    the conflict check.
    """

    assignments: list[Assignment] = field(default_factory=list)
    inserted: Callable[[], np.ndarray] = no_keys
    updated: Callable[[], np.ndarray] = no_keys
    replaced: tuple[tuple[str, str], ...] = ()
    overwrites: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    everything: bool = False
    exclusive: bool = False  # nothing may be written since the view
    position: int = 0  # a restore: the slot whose rows come back
    columns: TableSchema | None = None  # the table's columns from the slot on, where they change
    settings: Mapping[str, str] = field(default_factory=dict)  # properties that change with them
    removed_rows: int = 0
    stale: int = 0
    exact: bool = True
    silent: bool = False  # change logs name no row

    @property
    def writes(self) -> bool:
        """Does it change anything? If not, it is committed only to record a transaction, under the
        same conflict rules.
        """
        return bool(self.assignments or self.replaced or self.columns)


Propose = Callable[[View, TableConfig], WritePlan | None]


def commit(context: Context, operation: str, propose: Propose, transaction: tuple[str, int] | None = None) -> Committed:
    """Run `propose` on the head, write and complete; on a conflict again under a new instant. None from `propose`:
    nothing to do.

    Raises CommitConflict when the retries are spent, CommitUnknown, Fenced, and whatever the data or the store give
    cause for.
    """
    for retries in count():
        state = context.timeline.ready() if retries or context.begun is None else context.begun
        if transaction and state.view.transactions.get(transaction[0], -1) >= transaction[1]:
            return Committed(state.view.seq, skipped=True, retries=retries)
        try:
            result = _once(context, state, operation, propose, transaction)
        except Conflict as conflict:
            log.info("%s rebases: %s", operation, conflict)
            retry = Retry(state.config.options.max_retries, spent=_SPENT)
            retry.wait(context.timeline.environment, retries, conflict)
        else:
            result.retries = retries
            return result
    raise AssertionError("count() ends never")


def _once(
    context: Context, state: TableState, operation: str, propose: Propose, transaction: tuple[str, int] | None
) -> Committed:
    """One attempt on `state`. Raises Conflict where another one may succeed."""
    try:
        config = _evolved(context, state)
        proposal = propose(state.view, config)
        if not transaction and not (proposal and proposal.writes):
            return Committed(state.view.seq)
        if proposal and config is not state.config:
            proposal = replace(proposal, columns=config.columns)
        return _Attempt(context, state, operation, transaction).run(proposal or WritePlan())
    except UnderPlan:
        context.run_plans(state.view)
        raise Conflict("a compaction plan stayed open") from None
    except CorruptTable:
        if _cleaned_away(context, state):
            raise Conflict("a clean took files of the view") from None
        raise


def _evolved(context: Context, state: TableState) -> TableConfig:
    """The table as the batch needs it. What cannot be in the slot of the write is done before. Raises RewriteNeeded."""
    if context.evolution is None or not (found := context.evolution.alterations(state.config)):
        return state.config
    after = altered(state.config, found)
    checks.altered(state.config, found)
    needed = rewrites(state.config, state.view, after)
    if needed.wrong:
        raise rewrite_needed(
            needed.wrong,
            "The batch brings a column by a name that another one had, which is in older files: ",
            "Add it first, by add_column(..., rewrite=True) (hoodoo alter PATH add ... --rewrite), or choose another "
            "name.",
        )
    if needed.groups:
        context.alter(found)
        raise Conflict("the table's columns were changed first")
    return state.config.with_columns(after)


def _cleaned_away(context: Context, state: TableState) -> bool:
    """Has a clean taken what the view of `state` needs, or was the table put back from a backup? Then a missing file is
    no damage, and the newest view is the one to write on.
    """
    history = context.timeline.history
    return history.head().min_readable > state.view.seq or history.backup_restores != state.backup_restores


class _Attempt:
    """One transaction attempt: its instant, its files, its slot."""

    def __init__(
        self, context: Context, state: TableState, operation: str, transaction: tuple[str, int] | None
    ) -> None:
        self.context, self.state, self.operation, self.transaction = context, state, operation, transaction

    def run(self, proposal: WritePlan) -> Committed:
        """Raises Conflict, and what the data or the store give cause for."""
        replaces = bool(proposal.replaced or proposal.overwrites or proposal.everything)
        action = REPLACE_COMMIT if replaces else self.state.config.write_action
        requested = commit_metadata.requested_replace(self.operation) if replaces else b""
        inflight = commit_metadata.inflight(self.operation, _profile(proposal.assignments))
        with self.context.timeline.attempt(action, requested, inflight, self.state) as attempt:
            written = self._write(attempt, proposal)
            drafted = self._draft(proposal, written)
            slot = attempt.complete(partial(self._still, drafted, proposal.columns) if proposal.columns else drafted)
        return self._result(slot, proposal, written)

    def _still(self, drafted: SlotDraft, columns: TableSchema, view: View) -> SlotDraft:
        """`drafted`, unless files came since for which the new columns need more than this slot."""
        if view.schemas != self.state.view.schemas:
            raise Conflict("the table's columns changed")
        if not drafted.position and rewrites(self.state.config, view, columns).groups:
            raise Conflict("file groups were written that a change of columns rewrites")  # S5
        return drafted

    def _write(self, attempt: Transaction, proposal: WritePlan) -> list[Written]:
        config = self.state.config
        if proposal.columns:
            config = config.with_columns(proposal.columns)
        tasks = [
            WriteTask(
                self.context.store,
                config,
                self.context.index,
                attempt.instant,
                n,
                a.mode,
                a.partition,
                a.file_id,
                a.group,
                a.load,
                proposal.silent,
            )
            for n, a in enumerate(proposal.assignments)
        ]
        attempt.register(key for task in tasks for key in task.leftovers)
        waiting = self.context.store.lists_by_prefix and all(task.is_small for task in tasks)
        return self.context.engine.map(run, tasks, waiting=waiting)

    def _draft(self, proposal: WritePlan, written: list[Written]) -> SlotDraft:
        modes: dict[Mode, set[str]] = {}
        for assignment in proposal.assignments:
            modes.setdefault(assignment.mode, set()).add(assignment.file_id)
        touches = WriteSet(
            rewrites=modes.get(Mode.REWRITE, set()),
            appends=modes.get(Mode.APPEND, set()),
            replaces={file_id for _, file_id in proposal.replaced},
            overwrites=set(proposal.overwrites),
            reads=set(proposal.reads),
            searched=set(proposal.searched),
            everything=proposal.everything,
            exclusive=proposal.exclusive,
            alters=proposal.columns is not None,
            application=self.transaction[0] if self.transaction else "",
            inserted=proposal.inserted,
            updated=proposal.updated,
        )
        return SlotDraft(
            self.operation,
            files=tuple(one.file for one in written),
            replaced=proposal.replaced,
            inserted=tuple(reference for one in written for reference in one.inserted),
            deleted=tuple(reference for one in written for reference in one.deleted),
            position=proposal.position,
            columns=proposal.columns.to_json() if proposal.columns else {},
            settings=dict(proposal.settings),
            needs=(SETTINGS,) if proposal.settings else (),
            transaction=self.transaction,
            counts={
                name: sum(getattr(one, name) for one in written) for name in ("inserts", "updates", "deletes", "stale")
            },
            touches=touches,
        )

    def _result(self, slot: Slot, proposal: WritePlan, written: list[Written]) -> Committed:
        return Committed(
            slot.seq,
            slot.instant,
            inserted=sum(one.inserts for one in written),
            updated=sum(one.updates for one in written),
            deleted=sum(one.deletes for one in written) + proposal.removed_rows,
            stale=sum(one.stale for one in written) + proposal.stale,
            exact=proposal.exact and all(one.exact for one in written),
            files=len(written),
            bytes_written=sum(one.file.size + sum(size for size, _ in one.file.changes.values()) for one in written),
        )


def _profile(assignments: Sequence[Assignment]) -> list[tuple[str, str, str, int, int]]:
    """What inflight says: new rows per partition together, then each file group."""
    fresh: dict[str, int] = {}
    known = []
    for a in assignments:
        if a.mode == Mode.NEW:
            fresh[a.partition] = fresh.get(a.partition, 0) + a.rows
        elif a.group and a.group.base:
            known.append(
                (
                    a.partition,
                    a.file_id,
                    a.group.base.file.name.rpartition("_")[2].removesuffix(".parquet"),
                    a.inserts,
                    a.rows - a.inserts,
                )
            )
    return [(partition, "", "", rows, 0) for partition, rows in fresh.items()] + known


class Source(Protocol):
    """Rows to write, wherever they are: proposes assignments for a view."""

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None: ...

    def insert(
        self, context: Context, view: View, config: TableConfig, existing: str, bulk: bool, sort: Sequence[str] = ()
    ) -> WritePlan | None: ...

    def place(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        """All rows into new file groups, whatever is there."""
        ...

    def partitions_used(self) -> list[str]: ...


@dataclass(frozen=True)
class InProcess:
    """A batch in this process's memory. checked: what its rows are known to pass. bad: rows taken out of it before.
    evolution: what it may make of the table's columns.
    """

    batch: Batch
    checked: tuple[Check, ...] = ()
    bad: BadRows = field(default_factory=partial(none_of, 0))
    evolution: Evolution | None = None

    def fitted(self, config: TableConfig) -> Batch:
        """The batch with the columns that the table has by now. Raises ColumnError where it has values for one that is
        gone, CheckFailed where a row fails a check that was set since it was prepared.
        """
        batch = self.batch.fitted(config)
        if not batch.unconditional:
            require_checks(batch.rows, config, batch.delete, unchecked(config, self.checked))
        return batch

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        batch = self.fitted(config)
        located = locate_by_key(context.store, config, context.index, view, batch)
        return self._routed(context, batch, located, view, config)

    def insert(
        self,
        context: Context,
        view: View,
        config: TableConfig,
        existing: str,
        bulk: bool,
        sort: Sequence[str] = (),
    ) -> WritePlan | None:
        batch = self.fitted(config)
        located = locate_by_key(context.store, config, context.index, view, batch, compare_all=True)
        there = rows_that_exist(context.store, config, batch, located)
        if there.any():
            if existing == "fail":
                raise key_exists([some_of(batch, there)])
            left = np.flatnonzero(~there)
            proposal = self._routed(context, batch.take(left), located.take(left), view, config, bulk, sort)
            kept = batch.hashes[there]
            return replace(
                proposal, updated=lambda: np.union1d(proposal.updated(), kept), reads=groups_of(located, there)
            )
        return self._routed(context, batch, located, view, config, bulk, sort)

    def _routed(
        self,
        context: Context,
        batch: Batch,
        located: Located,
        view: View,
        config: TableConfig,
        bulk: bool = False,
        sort: Sequence[str] = (),
    ) -> WritePlan:
        chunks = split(batch, located, config, context.index)
        chunks = [ordered(batch, chunk, sort) for chunk in chunks]
        token = context.timeline.environment.token
        assignments = plan(chunks, BatchRows(batch), view, config, token, fill=not bulk)
        at_home = located.group != NOWHERE
        return WritePlan(
            assignments,
            # deletes too: a key that appears meanwhile must not outlive a delete in a later slot; those at home too:
            # what is there may be another key with the same hash
            lambda: np.unique(batch.hashes),
            lambda: np.unique(batch.hashes[~batch.delete & at_home]),
            searched=located.searched,
            stale=self.batch.stale,
        )

    def place(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        batch = self.fitted(config)
        return self._routed(context, batch, Located.nowhere(len(batch)), view, config, bulk=True)

    def partitions_used(self) -> list[str]:
        return [self.batch.partitions[code] for code in np.unique(self.batch.codes).tolist()]


def unchecked(config: TableConfig, passed: Sequence[Check]) -> tuple[Check, ...]:
    """The table's checks without those that rows are known to pass."""
    return tuple(check for check in checks.of(config) if check not in passed)


def upsert(
    context: Context, source: Source, operation: str = "UPSERT", transaction: tuple[str, int] | None = None
) -> Committed:
    """Insert new keys, replace or delete rows of known ones."""
    return commit(context, operation, lambda view, config: source.upsert(context, view, config), transaction)


def insert(
    context: Context,
    source: Source,
    existing: str,
    bulk: bool,
    transaction: tuple[str, int] | None = None,
    sort: str | Sequence[str] | None = None,
) -> Committed:
    """Insert new keys only. existing='fail': KeyExists if one is there; 'keep': such rows are left out. bulk: new
    file groups only, with their rows in the order of `sort`, if it names columns.
    """

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        return source.insert(context, view, config, existing, bulk, sort_columns("sort", sort, config))

    return commit(context, "BULK_INSERT" if bulk else "INSERT", propose, transaction)


def overwrite(
    context: Context,
    source: Source | None,
    partitions: Sequence[str] | None,
    operation: str,
    transaction: tuple[str, int] | None = None,
) -> Committed:
    """Replace whole partitions (None: all there are) by the rows of `source`."""

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        doomed = list(view.partitions if partitions is None else partitions)
        groups = list(view.groups(doomed))
        placed = source.place(context, view, config) if source else WritePlan()
        rows = sum(group.base.file.rows for group in groups if group.base)
        gone = tuple((group.partition, group.file_id) for group in groups)
        return replace(
            placed,
            replaced=gone,
            overwrites=frozenset(doomed),
            everything=partitions is None,
            removed_rows=rows,
            exact=not any(g.logs for g in groups),
        )

    return commit(context, operation, propose, transaction)


def rows_that_exist(store: Store, config: TableConfig, batch: Batch, located: Located) -> np.ndarray:
    """Mask: is there a live row with this key? Where a log deletes the key, the slice is read to know."""
    there = located.group != NOWHERE
    for number in np.unique(located.group[located.unsure]).tolist():
        places = np.flatnonzero((located.group == number) & located.unsure)
        keys = batch.rows[RECORD_KEY].take(pa.array(places)).combine_chunks()
        there[places] = slices.live_keys(store, config, located.groups[number], keys)
    return there


def groups_of(located: Located, mask: np.ndarray) -> frozenset[str]:
    """Ids of the file groups where the rows under `mask` live."""
    return frozenset(located.groups[number].file_id for number in np.unique(located.group[mask]).tolist())


@dataclass(frozen=True)
class SomeKeys:
    """So many record keys of a batch, and the first of them in their order, to be named."""

    count: int
    first: tuple[str, ...]


def some_of(batch: Batch, mask: np.ndarray) -> SomeKeys:
    """The keys of the rows under `mask`."""
    keys = batch.rows[RECORD_KEY].filter(pa.array(mask))
    return SomeKeys(len(keys), tuple(first_keys(keys)))


def key_exists(parts: Sequence[SomeKeys]) -> KeyExists:
    """The refusal of keys that exist, found in parts of a batch."""
    count = sum(part.count for part in parts)
    named = sorted(key for part in parts for key in part.first)[:NAMED_KEYS]
    return KeyExists(
        (
            f"{count} of the keys exist: {', '.join(map(printable, named))}. Use upsert, or insert(..., "
            "existing='keep')."
        ),
        keys=named,
    )


__all__ = ["Context", "InProcess", "WritePlan", "Source", "Committed", "commit", "insert", "overwrite", "upsert"]
