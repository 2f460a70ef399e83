"""Planted bugs of changes of columns: one for each rule S1 to S6 of docs/protocol.md, and for late helpers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bug_registry import Patch, bug
from simulation import SLOW, Scene

from hoodoo.compactor import alter
from hoodoo.compactor.compaction import plans
from hoodoo.timeline.columns import rewrites
from hoodoo.timeline.commits import transaction
from hoodoo.timeline.commits.conflicts import explain_conflict
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.hudi.publish import Publisher

_ALTERERS = Scene(("alterer", "alterer", "alterer"), SLOW)
_BESIDE_PLANS = Scene(("alterer", "alterer", "compactor", "compactor"), SLOW)


@bug("S1", "a change of columns completes after a commit with a larger instant", _ALTERERS)
def older_change_wins(patch: Patch) -> None:
    def blind(mine: Any, *rest: Any) -> str:
        return explain_conflict(replace(mine, alters=False), *rest)

    patch(transaction, "explain_conflict", blind)


@bug("S2", "a write goes on although the columns changed since its base", _ALTERERS)
def old_columns_written(patch: Patch) -> None:
    check = Transaction._require_no_conflict

    def unaware(self: Transaction, state: Any, draft: Any) -> Any:
        if draft.operation == "ALTER_SCHEMA":
            return check(self, state, draft)
        return check(self, replace(state, config=state.config.with_schemas(self.base.schemas)), draft)

    patch(Transaction, "_require_no_conflict", unaware)


@bug("S3", "a compaction writes the columns of whoever runs the plan", _BESIDE_PLANS)
def plan_run_under_new_columns(patch: Patch) -> None:
    merge_tasks = plans.merge_tasks

    def under_new(context: Any, config: Any, *rest: Any) -> Any:
        return merge_tasks(context, config.with_schemas(context.timeline.last_state().view.schemas), *rest)

    patch(plans, "merge_tasks", under_new)


@bug("S4", "a change of columns waits for open plans instead of running them", _BESIDE_PLANS)
def plans_left_open(patch: Patch) -> None:
    run = alter._AlterAttempt.run

    def waiting(self: Any) -> Any:
        self._context = replace(self._context, run_plans=lambda view: None)
        return run(self)

    patch(alter._AlterAttempt, "run", waiting)


@bug("S5", "logs that were written while a change of columns was under way stay", _ALTERERS)
def new_logs_stay(patch: Patch) -> None:
    needed = rewrites.select_files_to_rewrite

    def wrong_only(*given: Any) -> Any:
        return replace(needed(*given), logged=())

    patch(alter, "select_files_to_rewrite", wrong_only)


@bug("S6", "a rename leaves files that have the column under its old name", _ALTERERS)
def renamed_in_words_only(patch: Patch) -> None:
    needed = rewrites.select_files_to_rewrite

    def logged_only(*given: Any) -> Any:
        return replace(needed(*given), wrong=())

    patch(alter, "select_files_to_rewrite", logged_only)


@bug("S6", "files that came while a rename was under way keep the old name", _ALTERERS)
def new_files_not_renamed(patch: Patch) -> None:
    draft = alter._AlterAttempt._draft

    def as_it_was(self: Any, view: Any, files: Any) -> Any:
        return draft(self, self._state.view, files)

    patch(alter._AlterAttempt, "_draft", as_it_was)


@bug("publication", "a helper publishes an older slot with the columns of now", Scene(("alterer",) * 4, SLOW))
def late_helper_tells_new_columns(patch: Patch) -> None:
    def as_now(self: Publisher, slot: Any, config: Any) -> Any:
        return config.with_schemas(self.history.known_head().schemas)

    patch(Publisher, "_config_at", as_now)
