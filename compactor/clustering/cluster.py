"""Clustering of small and unsorted files.

It packs small file groups into larger ones, and optionally sorts their rows. No row changes, so incremental reads do
not show clustering. Each unit of file groups (units.py) is one short transaction. If a writer rewrites a file group
that a unit has read, the unit is given up. Changes that writers only append to logs during the transaction are carried
over to the new file groups (log_rebase.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from hoodoo.arguments import check_allowed_value
from hoodoo.compactor.clustering import curve
from hoodoo.compactor.clustering.cluster_tasks import ClusteredFiles, ClusterTask, run_clustering_task
from hoodoo.compactor.clustering.log_rebase import ConcurrentChangeCopier
from hoodoo.compactor.clustering.units import ClusteringUnit, plan_packing, plan_sorting
from hoodoo.compactor.limits import RateLimiter, ServiceLimits, ServiceStopped, never
from hoodoo.errors import CorruptTable, Fenced
from hoodoo.timeline.commits.draft import Conflict
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import REPLACE_COMMIT
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import CLUSTER, ROLLED_BACK, Slot
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context
from hoodoo.writers.routing.route import generate_file_id
from hoodoo.writers.routing.sorting import sort_columns

log = logging.getLogger("hoodoo.compactor")
NO_LIMITS = ServiceLimits()


@dataclass
class ClusterResult:
    """Result of a clustering.

    Attributes:
        units: Number of completed units. A unit is a set of files that are rewritten together.
        yielded: Number of units that were given up, mostly because a writer changed their files first.
        files_before: Number of base and log files in the partitions at the start.
        files_after: Number of base and log files in the partitions at the end.
        bytes_read: Number of bytes that were read.
        bytes_written: Total size of the new files, in bytes.
        copied_bytes: Number of bytes that were copied without decoding them. They are part of `bytes_written`.
        instants: The instants of the units, in order.
        more: True if units are left because of the limit on the number of units.
    """

    units: int = 0
    yielded: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    copied_bytes: int = 0
    instants: tuple[str, ...] = ()
    more: bool = False  # True if units are left because of the limit


def cluster_files(
    context: Context,
    by: str | Sequence[str] | None = (),
    order: str = curve.LINEAR,
    partitions: Sequence[str] | None = None,
    limits: ServiceLimits = NO_LIMITS,
    stopped: Callable[[], bool] = never,
    units: int | None = None,
) -> ClusterResult:
    """Cluster files: sort their rows, or pack small files.

    Returns when the files that existed at the start are done, when `units` units are done, or when `stopped` returns
    True. A unit is a set of files that are rewritten together.

    Args:
        context: The context of the operation.
        by: The columns to sort by. Default: no columns.
        order: The sort order: 'linear' (default), 'zorder' or 'hilbert'.
        partitions: The paths of the partitions to rewrite. None (default): all partitions.
        limits: Limits on the resources.
        stopped: Function that returns True to stop early.
        units: Maximum number of units. None (default): no limit.

    Raises:
        ColumnError: A column in `by` cannot be used for sorting.
        OptionError: An argument is invalid.
        CorruptTable: A file is damaged. The undamaged units have been completed.
    """
    state = context.timeline.heal()
    view, config = state.view, state.config
    names = sort_columns(by, config)
    check_allowed_value("order", order, curve.ORDERS)
    service = _ClusterCall(
        context, config, names, order, None if partitions is None else frozenset(partitions), view, limits, stopped
    )
    return service.run(units)


def pack_small_files(
    context: Context, limits: ServiceLimits = NO_LIMITS, stopped: Callable[[], bool] = never, units: int | None = None
) -> ClusterResult:
    """Pack small files into larger files.

    Row groups are copied without decoding them where possible.

    The call is cheap if there is nothing to pack. See `cluster` for the arguments.
    """
    state = context.timeline.look()
    if not plan_packing(state.view, state.config.options.target_file_bytes):
        return ClusterResult()
    return cluster_files(context, limits=limits, stopped=stopped, units=units)


class _ClusterCall:
    def __init__(
        self,
        context: Context,
        config: TableConfig,
        by: tuple[str, ...],
        order: str,
        partitions: frozenset[str] | None,
        start: View,
        limits: ServiceLimits,
        stopped: Callable[[], bool],
    ) -> None:
        self._context, self._config, self._by, self._order, self._partitions = context, config, by, order, partitions
        self._start, self._limits, self._stopped = start, limits, stopped
        self._ids = [config.columns.by_name[name].id for name in by]  # ids stay valid if a column is renamed
        self._tried: set[str] = set()  # input groups of units that were completed or given up
        self._made: set[str] = set()
        self._damaged: list[CorruptTable] = []
        self._result = ClusterResult(files_before=self._files(start))

    def run(self, most: int | None) -> ClusterResult:
        at_once, remaining = self._limits.at_once(self._context.engine.threads), most
        while not self._stopped() and (units := self._units(self._context.timeline.history.head())):
            if remaining is not None and remaining <= 0:
                self._result.more = True
                break
            wave = units[: at_once if remaining is None else min(at_once, remaining)]
            remaining = None if remaining is None else remaining - len(wave)
            try:
                self._wave(wave)
            except ServiceStopped:
                break
        if self._damaged:
            raise self._damaged[0]
        self._result.files_after = self._files(self._context.timeline.history.head())
        return self._result

    def _files(self, view: View) -> int:
        return sum(view.totals_of(partition).bases + view.totals_of(partition).logs for partition in self._chosen(view))

    def _chosen(self, view: View) -> list[str]:
        return [partition for partition in view.partitions if self._partitions is None or partition in self._partitions]

    def _units(self, view: View) -> list[ClusteringUnit]:
        target = self._config.options.target_file_bytes
        chosen = self._chosen(view)
        config = self._config.with_schemas(view.schemas)
        by = [config.columns.by_id[number].name for number in self._ids if number in config.columns.by_id]
        if len(by) < len(self._by):
            return []  # a column to sort by was dropped
        units = plan_sorting(view, config, by, self._order, chosen) if by else plan_packing(view, target, chosen)
        return [unit for unit in units if not unit.ids & self._tried and self._is_due(unit)]

    def _is_due(self, unit: ClusteringUnit) -> bool:
        # File groups that writers add after the start mostly wait for the next call. Otherwise a call might never end
        # on a busy table.
        included = [
            group
            for group in unit.groups
            if group.base and (group.base.seq <= self._start.seq or group.file_id in self._made)
        ]
        return len(included) == len(unit.groups) or (len(included) > 1 and not self._by)

    # ---- several units at a time, each in its own transaction
    def _wave(self, units: Sequence[ClusteringUnit]) -> None:
        self._tried |= {file_id for unit in units for file_id in unit.ids}
        memory = self._limits.memory_bytes if self._context.engine.remote else self._limits.memory_bytes // len(units)
        pace = RateLimiter(self._limits.bytes_per_second, self._stopped, shares=len(units))
        completed = 0
        with ExitStack() as transactions:
            attempts = [_UnitAttempt(self._context, unit) for unit in units]
            begun = [attempt for attempt in attempts if attempt.begin(transactions)]
            results = self._context.engine.map(run_clustering_task, [attempt.task(memory, pace) for attempt in begun])
            for attempt, result in zip(begun, results, strict=True):
                if isinstance(result, CorruptTable):
                    if attempt.inputs_unchanged():  # otherwise a writer replaced the files, and cleaning deleted them
                        self._damaged.append(result)
                elif slot := attempt.complete(result):
                    completed += 1
                    self._count(slot, result, attempt)
        self._result.yielded += len(units) - completed

    def _count(self, slot: Slot, done: ClusteredFiles, attempt: _UnitAttempt) -> None:
        self._made |= set(attempt.file_ids)
        result = self._result
        result.units += 1
        result.bytes_read += done.bytes_read
        result.bytes_written += sum(file.size for file in slot.files)
        result.copied_bytes += done.copied_bytes
        result.instants = (*result.instants, slot.instant)


def _unchanged(view: View, unit: ClusteringUnit) -> bool:
    current = [view.group(group.partition, group.file_id) for group in unit.groups]
    return all(
        current_group is not None and current_group.base == group.base
        for current_group, group in zip(current, unit.groups, strict=True)
    )


class _UnitAttempt:
    _transaction: Transaction  # set by `begin`

    def __init__(self, context: Context, unit: ClusteringUnit) -> None:
        self._context, self._unit = context, unit
        self.file_ids = tuple(generate_file_id(context.timeline.environment.token) for _ in range(unit.outputs))

    def begin(self, transactions: ExitStack) -> bool:
        # Returns False if a writer changed a file group after the planning. The requested instant looks like a
        # replacement, because Hudi's own services would run or roll back a request for a clustering.
        requested = commit_metadata.requested_replacecommit(CLUSTER)
        try:
            self._transaction = transactions.enter_context(
                self._context.timeline.attempt(REPLACE_COMMIT, requested, self._inflight)
            )
        except Conflict:
            return False
        return True

    def _inflight(self, base: View) -> bytes:
        if not _unchanged(base, self._unit) or self._unit.ids & base.planned_ids():
            raise Conflict("Another writer changed the file groups first")
        groups = tuple(
            group for planned in self._unit.groups if (group := base.group(planned.partition, planned.file_id))
        )
        self._unit = ClusteringUnit(self._unit.partition, groups, self._unit.outputs, self._unit.by, self._unit.order)
        rows = sum(group.base.file.rows for group in groups if group.base)
        return commit_metadata.encode_inflight_file(CLUSTER, [(self._unit.partition, "", "", rows, 0)])

    def task(self, memory: int, pace: RateLimiter) -> ClusterTask:
        attempt = self._transaction
        task = ClusterTask(
            self._context.store, attempt.config, attempt.instant, self._unit, self.file_ids, memory, pace
        )
        attempt.register(task.leftovers)
        return task

    def inputs_unchanged(self) -> bool:
        return _unchanged(self._context.timeline.history.head(), self._unit)

    def _is_pending(self) -> bool:
        history, instant = self._context.timeline.history, self._transaction.instant
        return all(
            slot.outcome != ROLLED_BACK or slot.target != instant
            for slot in history.slots(self._transaction.base.seq, history.head().seq)
        )

    def complete(self, done: ClusteredFiles) -> Slot | None:
        carrier = ConcurrentChangeCopier(self._transaction, self._unit, done.files, self._context.index)
        try:
            return self._transaction.complete(carrier.create_clustering_commit)
        except (Conflict, Fenced) as problem:
            log.info("clustering instant %s yields: %s", self._transaction.instant, problem)
            return None
        except CorruptTable:
            if self.inputs_unchanged() and self._is_pending():
                raise
            return None  # cleaning deleted a replaced input file, or a rollback deleted the unit's new files


__all__ = ["ClusterResult", "cluster_files", "pack_small_files"]
