"""Write operations with retries after conflicts.

A retry reuses the prepared batch. It writes all files again, because files and meta columns contain the instant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import CommitConflict, CorruptTable
from hoodoo.format.table_schema import TableSchema
from hoodoo.readers.cursor import cursor_of, cursor_of_commit_number
from hoodoo.readers.predicate import checks
from hoodoo.timeline.applications import is_committed, require_streamer_not_ahead
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import RetrySettings
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import REPLACE_COMMIT
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import SETTINGS, Slot
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import View
from hoodoo.writers.committed import Committed
from hoodoo.writers.context import Context
from hoodoo.writers.files.tasks import NoFileResult, WriteTask, WriteTaskResult, run
from hoodoo.writers.routing.route import CompactionPending, GroupAssignment, Mode
from hoodoo.writers.routing.sorting import sort_columns
from hoodoo.writers.routing.write_plan import WritePlan
from hoodoo.writers.sources import Source

log = logging.getLogger("hoodoo.writers")
_SPENT = "Nothing was written. Write again, or raise max_retries."


Propose = Callable[[View, TableConfig], WritePlan | None]


class _MistakenKeys(Exception):
    """Error for new keys that were mistaken for stored keys."""


def commit_write(
    context: Context,
    operation: str,
    propose: Propose,
    transaction: ApplicationVersion | None = None,
    comparing: Propose | None = None,
) -> Committed:
    """Run a write operation and commit it.

    It is repeated after each conflict. `propose` returns the plan for the newest view, or None if there is nothing to
    write. If it mistook a key for a stored key with the same hash, `comparing` replaces it, which compares keys. This
    repetition does not count as a retry, because no other writer interfered.

    Raises CommitConflict if the retries are exhausted, and CommitUnknown or Fenced. Raises OptionError if the sink
    already has the batch `transaction` from another query. Also raises errors of the data or the store.
    """
    state, retries = context.begun or context.timeline.prepare_for_write(), 0
    while True:
        if transaction and is_committed(transaction, state.view.transactions, state.view.reached):
            return Committed(cursor_of(state.view), skipped=True, retries=retries)
        if transaction:
            require_streamer_not_ahead(transaction, state.view.streamed)
        try:
            result = _attempt_commit(context, state, operation, propose, transaction)
        except _MistakenKeys:
            assert comparing is not None and propose is not comparing
            propose = comparing
        except Conflict as conflict:
            log.info("%s retries: %s", operation, conflict)
            retry = RetrySettings(state.config.options.max_retries, spent=_SPENT)
            retry.wait(context.timeline.environment, retries, conflict)
            retries += 1
        else:
            result.retries = retries
            return result
        state = context.timeline.prepare_for_write()


def _attempt_commit(
    context: Context, state: TableState, operation: str, propose: Propose, transaction: ApplicationVersion | None
) -> Committed:
    # Raises Conflict or _MistakenKeys if another attempt may succeed.
    if context.head is not None:
        _require_no_rows_after(context, context.head, state.view.seq)
    try:
        config = _config_with_batch_columns(context, state)
        proposal = propose(state.view, config)
        if not transaction and not (proposal and proposal.writes):
            return Committed(cursor_of(state.view))
        if proposal and context.head is not None:
            proposal = replace(proposal, exclusive=True)
        if proposal and config is not state.config:
            proposal = replace(proposal, columns=config.columns)
        return _Attempt(context, state, operation, transaction).run(proposal or WritePlan())
    except CompactionPending:
        context.run_plans(state.view)
        raise Conflict("A compaction plan stayed open.") from None
    except CorruptTable:
        if _is_view_outdated(context, state):
            raise Conflict("Cleaning deleted files that the write needs.") from None
        raise


def _require_no_rows_after(context: Context, head: int, newest: int) -> None:
    for slot in context.timeline.history.slots(head, newest):
        if slot.writes_rows:
            raise CommitConflict(
                f"Option if_head is outdated: expected no new rows after slot {head}, got the {slot.operation} of "
                f"instant {slot.instant}. Nothing was written. Read the new rows, and pass the new cursor.",
                slot=slot.seq,
                instant=slot.instant,
            )


def _config_with_batch_columns(context: Context, state: TableState) -> TableConfig:
    # Column changes that cannot be part of the write's slot are committed first.
    if context.evolution is None or not (alterations := context.evolution.alterations(state.config)):
        return state.config
    from hoodoo.timeline.columns.alterations import altered
    from hoodoo.timeline.columns.rewrites import rewrite_needed, select_files_to_rewrite

    after = altered(state.config, alterations)
    checks.update_checks(state.config, alterations)
    needed_rewrites = select_files_to_rewrite(state.config, state.view, after)
    if needed_rewrites.wrong:
        raise rewrite_needed(
            needed_rewrites.wrong,
            "The batch adds a column with the name of an earlier column, which is still in older files: ",
            "Add the column first with alter.add_column(..., rewrite=True) (hoodoo alter PATH add ... --rewrite), or "
            "choose another name.",
        )
    if needed_rewrites.groups:
        context.alter(alterations)
        raise Conflict("The table's columns were changed first.")
    return state.config.with_columns(after)


def _is_view_outdated(context: Context, state: TableState) -> bool:
    # A missing file is then not damage, and the write is repeated on the newest view.
    history = context.timeline.history
    return history.head().min_readable > state.view.seq or history.backup_restores != state.backup_restores


class _Attempt:
    def __init__(
        self, context: Context, state: TableState, operation: str, transaction: ApplicationVersion | None
    ) -> None:
        self.context, self.state, self.operation, self.transaction = context, state, operation, transaction

    def run(self, proposal: WritePlan) -> Committed:
        replaces = bool(proposal.replaced or proposal.overwrites or proposal.everything)
        action = REPLACE_COMMIT if replaces else self.state.config.write_action
        requested = commit_metadata.requested_replacecommit(self.operation) if replaces else b""
        inflight = commit_metadata.encode_inflight_file(self.operation, _inflight_entries(proposal.assignments))
        with self.context.timeline.attempt(action, requested, inflight, self.state) as attempt:
            proposal, written = self._run_write_tasks(attempt, proposal)
            if proposal.derived and not proposal.writes and not self.transaction:
                return Committed(cursor_of(self.state.view), stale=proposal.stale)
            drafted = self._draft_slot(proposal, written)
            slot = attempt.complete(
                partial(self._require_compatible_columns, drafted, proposal.columns) if proposal.columns else drafted
            )
        return self._result(slot, proposal, written)

    def _require_compatible_columns(self, drafted: SlotDraft, columns: TableSchema, view: View) -> SlotDraft:
        # A commit of another writer may have changed columns, or written files that would have to be rewritten first.
        from hoodoo.timeline.columns.rewrites import select_files_to_rewrite

        if view.schemas != self.state.view.schemas:
            raise Conflict("The table's columns changed.")
        if not drafted.position and select_files_to_rewrite(self.state.config, view, columns).groups:
            # protocol rule S5
            raise Conflict("Another write changed file groups that the column change has to rewrite.")
        return drafted

    def _run_write_tasks(self, attempt: Transaction, proposal: WritePlan) -> tuple[WritePlan, list[WriteTaskResult]]:
        config = self.state.config
        if proposal.columns:
            config = config.with_columns(proposal.columns)
        tasks = [
            WriteTask(
                self.context.store,
                config,
                self.context.index,
                attempt.instant,
                number,
                assignment.mode,
                assignment.partition,
                assignment.file_id,
                assignment.group,
                assignment.load,
                proposal.silent,
                assignment.from_stored,
            )
            for number, assignment in enumerate(proposal.assignments)
        ]
        attempt.register(key for task in tasks for key in task.leftovers)
        waiting = self.context.store.lists_by_prefix and all(task.is_small for task in tasks)
        results = self.context.engine.map(run, tasks, waiting=waiting)
        unwritten = [result for result in results if isinstance(result, NoFileResult)]
        if any(result.mistaken for result in unwritten):
            raise _MistakenKeys
        stale = proposal.stale + sum(result.stale for result in unwritten)
        pairs = [
            (assignment, result)
            for assignment, result in zip(proposal.assignments, results, strict=True)
            if isinstance(result, WriteTaskResult)
        ]
        return replace(proposal, assignments=[assignment for assignment, _ in pairs], stale=stale), [
            result for _, result in pairs
        ]

    def _draft_slot(self, proposal: WritePlan, written: list[WriteTaskResult]) -> SlotDraft:
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
            derived=proposal.derived,
            alters=proposal.columns is not None,
            application=self.transaction.application if self.transaction else "",
            inserted=proposal.inserted,
            updated=proposal.updated,
        )
        return SlotDraft(
            self.operation,
            files=tuple(result.file for result in written),
            replaced=proposal.replaced,
            inserted=tuple(reference for result in written for reference in result.inserted),
            deleted=tuple(reference for result in written for reference in result.deleted),
            position=proposal.position,
            columns=proposal.columns.to_json() if proposal.columns else {},
            settings=dict(proposal.settings),
            needs=(SETTINGS,) if proposal.settings else (),
            transaction=self.transaction[:2] if self.transaction else None,
            reached=self.transaction.position if self.transaction else "",
            place=self.transaction.streamer if self.transaction else "",
            counts={
                **_row_counts(proposal, written),
                "removed": proposal.removed_rows,
                "exact": int(_exact(proposal, written)),
            },
            touches=touches,
        )

    def _result(self, slot: Slot, proposal: WritePlan, written: list[WriteTaskResult]) -> Committed:
        counts = _row_counts(proposal, written)
        return Committed(
            cursor_of_commit_number(self.context.timeline.history, slot.seq),
            slot.instant,
            inserted=counts["inserts"],
            updated=counts["updates"],
            deleted=counts["deletes"] + proposal.removed_rows,
            stale=counts["stale"] + proposal.stale,
            rows_rewritten=sum(result.file.rows for result in written) if proposal.position else 0,
            exact=_exact(proposal, written),
            files=len(written),
            bytes_written=sum(
                result.file.size + sum(size for size, _ in result.file.changes.values()) for result in written
            ),
        )


def _exact(proposal: WritePlan, written: Sequence[WriteTaskResult]) -> bool:
    return proposal.exact and all(result.exact for result in written)


def _row_counts(proposal: WritePlan, written: Sequence[WriteTaskResult]) -> dict[str, int]:
    names = ("inserts", "updates", "deletes", "stale")
    if proposal.counts is not None:
        return dict(zip(names, proposal.counts, strict=True))
    return {name: sum(getattr(result, name) for result in written) for name in names}


def _inflight_entries(assignments: Sequence[GroupAssignment]) -> list[tuple[str, str, str, int, int]]:
    # Hudi's inflight file contains the new rows per partition, then one entry per file group.
    new_rows: dict[str, int] = {}
    existing_groups = []
    for assignment in assignments:
        if assignment.mode == Mode.NEW:
            new_rows[assignment.partition] = new_rows.get(assignment.partition, 0) + assignment.rows
        elif assignment.group and assignment.group.base:
            existing_groups.append(
                (
                    assignment.partition,
                    assignment.file_id,
                    assignment.group.base.file.name.rpartition("_")[2].removesuffix(".parquet"),
                    assignment.inserts,
                    assignment.rows - assignment.inserts,
                )
            )
    return [(partition, "", "", rows, 0) for partition, rows in new_rows.items()] + existing_groups


def upsert(
    context: Context, source: Source, operation: str = "UPSERT", transaction: ApplicationVersion | None = None
) -> Committed:
    return commit_write(context, operation, lambda view, config: source.upsert(context, view, config), transaction)


def insert_rows(
    context: Context,
    source: Source,
    existing: str,
    bulk: bool,
    transaction: ApplicationVersion | None = None,
    sort: str | Sequence[str] | None = None,
) -> Committed:
    """Insert rows with new keys.

    With existing='fail', an existing key raises KeyExists. With 'keep', rows with existing keys are left out. If `bulk`
    is True, only new file groups are written, whose rows are sorted by the columns in `sort`, if there are any.
    """

    def propose(view: View, config: TableConfig) -> WritePlan | None:
        return source.insert(context, view, config, existing, bulk, sort_columns(sort, config))

    return commit_write(context, "BULK_INSERT" if bulk else "INSERT", propose, transaction)


def overwrite(
    context: Context,
    source: Source | None,
    partitions: Sequence[str] | None,
    operation: str,
    transaction: ApplicationVersion | None = None,
) -> Committed:
    def propose(view: View, config: TableConfig) -> WritePlan | None:
        replaced_partitions = list(view.partitions if partitions is None else partitions)
        groups = list(view.groups(replaced_partitions))
        proposal = source.into_new_groups(context, view, config) if source else WritePlan()
        rows = sum(group.base.file.rows for group in groups if group.base)
        replaced_groups = tuple((group.partition, group.file_id) for group in groups)
        return replace(
            proposal,
            replaced=replaced_groups,
            overwrites=frozenset(replaced_partitions),
            everything=partitions is None,
            removed_rows=rows,
            exact=not any(group_.logs for group_ in groups),
        )

    return commit_write(context, operation, propose, transaction)


__all__ = ["Committed", "Propose", "commit_write", "insert_rows", "overwrite", "upsert"]
