"""Changes that alter the columns of a table.

Columns are added, dropped, renamed, moved or retyped in one commit. The commit rewrites the file groups that engines
would read incorrectly because they match columns by name. Most changes write no data files. Like any write, a column
change starts again after a conflicting commit. Rewritten rows keep their commit times and sequence numbers, so that
change readers do not see them.

timeline/columns/alterations.py defines the changes. timeline/columns/rewrites.py decides which file groups to rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.merge_group import MergeTask, run_task
from hoodoo.compactor.limits import RateLimiter, ServiceLimits
from hoodoo.compactor.retyping import find_lossy_type_changes, require_convertible_values
from hoodoo.errors import CorruptTable
from hoodoo.format.names import base_file_name, join
from hoodoo.format.table_schema import TableSchema
from hoodoo.index.key_index import base_entry_path
from hoodoo.readers.predicate import checks
from hoodoo.timeline.columns.alterations import Alteration, altered, translate_column_names
from hoodoo.timeline.columns.rewrites import (
    FilesToRewrite,
    find_outdated_names,
    rewrite_needed,
    select_files_to_rewrite,
)
from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.commits.draft import Conflict, SlotDraft
from hoodoo.timeline.commits.retry import RetrySettings
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import ALTER, SETTINGS, DataFile
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context

_COMPACT_AFTER = 3  # after this many conflicts, logs are compacted first, which does not conflict with writers
_RETRIES_EXHAUSTED = "The columns were not changed. Try again when there are fewer writes."


@dataclass(frozen=True)
class ColumnChangeResult:
    """Result of a column change.

    Attributes:
        slot: The slot of the commit, or the newest slot if nothing had to be changed.
        instant: The instant of the commit, or '' if nothing had to be changed.
        groups: Number of file groups that were rewritten.
        rows: Number of rows in the new base files.
        bytes_written: Total size of the new base files, in bytes.
    """

    slot: int
    instant: str = ""
    groups: int = 0
    rows: int = 0
    bytes_written: int = 0


def apply_column_changes(
    context: Context, alterations: Sequence[Alteration], rewrite: bool = False, limits: ServiceLimits | None = None
) -> ColumnChangeResult:
    """Apply column changes to a table.

    All changes are applied in order and in one commit.

    Args:
        context: The context of the operation.
        alterations: The column changes. If they change nothing, `rewrite` repairs base files that other engines read
            incorrectly.
        rewrite: True allows rewriting base files. Default False.
        limits: Limits on the resources for rewriting. None (default): the default limits.

    Raises:
        SchemaError: A change is not allowed, or a stored value is not convertible to the new type.
        RewriteNeeded: Files have to be rewritten, and `rewrite` is False.
        CommitConflict: The retries are exhausted because of concurrent writers.
        CorruptTable: A file that has to be rewritten is damaged.
    """
    tries = 0

    def once() -> ColumnChangeResult:
        nonlocal tries
        tries += 1
        if tries > _COMPACT_AFTER and any(True for _ in context.timeline.history.head().groups_behind()):
            plans.compact_files(context)
        state = context.timeline.prepare_for_write()
        changes = translate_column_names(state.config, alterations)
        after = altered(state.config, changes)
        if after.columns == state.config.columns.columns:
            needs_repair = rewrite and select_files_to_rewrite(state.config, state.view, after, True).wrong
            if not (needs_repair or find_outdated_names(state.config, state.view)):
                return ColumnChangeResult(state.view.seq)
            after = after.with_columns(after.columns)
        settings = checks.update_checks(state.config, changes)
        attempt = _AlterAttempt(context, state, after, settings, limits or ServiceLimits())
        if attempt.needed.wrong and not rewrite:
            raise rewrite_needed(attempt.needed.wrong)
        if retypes := find_lossy_type_changes(state.config.columns, after):
            if any(group.logs for group in attempt.needed.groups):  # values of rows that logs replace need not match
                plans.compact_files(context)
                raise Conflict("Log files must be compacted before the columns can change")
            require_convertible_values(context, state, attempt.needed.groups, retypes)
        return attempt.run()

    retries = context.timeline.prepare_for_write().config.options.max_retries
    return RetrySettings(retries, spent=_RETRIES_EXHAUSTED).run(context.timeline.environment, once)


class _AlterAttempt:
    def __init__(
        self,
        context: Context,
        state: TableState,
        after: TableSchema,
        settings: Mapping[str, str],
        limits: ServiceLimits,
    ) -> None:
        self._context, self._state, self._after, self._limits = context, state, after, limits
        self._settings = dict(settings)
        self._everything = after.columns == state.config.columns.columns  # no column changes, only repair files
        self.needed = select_files_to_rewrite(state.config, state.view, after, self._everything)
        self._config: TableConfig = state.config.with_columns(after)

    def run(self) -> ColumnChangeResult:
        if self.needed.groups and self._state.view.plans:
            self._context.run_plans(self._state.view)
            raise Conflict(
                "Open compaction plans must run before the columns can change"
            )  # protocol rule S4: their output has the columns of the plan
        timeline, action = self._context.timeline, self._state.config.write_action
        inflight = commit_metadata.encode_inflight_file(ALTER)
        with timeline.attempt(action, inflight=inflight, state=self._state, mends=True) as attempt:
            files = self._rewritten(attempt)
            slot = attempt.complete(lambda view: self._draft(view, files))
        return ColumnChangeResult(
            slot.seq, slot.instant, len(files), sum(file.rows for file in files), sum(file.size for file in files)
        )

    def _rewritten(self, attempt: Transaction) -> list[DataFile]:
        store, instant = self._context.store, attempt.instant
        groups = self.needed.groups
        paths = [join(group.partition, base_file_name(group.file_id, instant)) for group in groups]
        attempt.register([*paths, *(base_entry_path(group.file_id, instant) for group in groups)])
        for path, group in zip(paths, groups, strict=True):
            attempt.mark(path, "MERGE" if group.base else "CREATE")
        at_once = self._limits.at_once(self._context.engine.threads)
        pace = RateLimiter(self._limits.bytes_per_second, shares=max(1, min(at_once, len(groups))))
        memory = self._limits.memory_bytes // max(1, min(at_once, len(groups)))
        tasks = [MergeTask(store, self._config, instant, group, memory, pace) for group in groups]
        merged_files = self._context.engine.map(run_task, tasks, self._limits.groups_at_once)
        files = []
        for file in merged_files:
            if isinstance(file, CorruptTable):
                self._require_damage(file)
                raise Conflict("Cleaning deleted files that the column change needs")
            files.append(file)
        return files

    def _require_damage(self, problem: CorruptTable) -> None:
        # If cleaning deleted files of the snapshot that the attempt read, the file is not damaged, and the attempt is
        # repeated.
        history = self._context.timeline.history
        if history.head().min_readable <= self._state.view.seq:
            raise problem

    def _draft(self, view: View, files: Sequence[DataFile]) -> SlotDraft:
        # Raises Conflict if the columns or the file groups to rewrite have changed, or if a compaction plan is open.
        if view.schemas != self._state.view.schemas:
            raise Conflict("Another write changed the columns of the table")
        if select_files_to_rewrite(self._state.config, view, self._after, self._everything) != self.needed:
            # protocol rules S5, S6
            raise Conflict("Another write changed file groups that the column change has to rewrite")
        if self.needed.groups and view.plans:
            raise Conflict("Another process planned a compaction")
        touches = WriteSet(rewrites={group.file_id for group in self.needed.groups}, alters=True)
        needs = (SETTINGS,) if self._settings else ()
        columns, settings = self._after.to_json(), self._settings
        return SlotDraft(ALTER, files=tuple(files), columns=columns, settings=settings, needs=needs, touches=touches)


__all__ = ["ColumnChangeResult", "FilesToRewrite", "apply_column_changes"]
