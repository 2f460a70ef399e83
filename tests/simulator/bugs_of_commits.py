"""Planted bugs of completion, of the conflict check, and of the rules that keep Hudi's order and ours equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from bug_registry import Patch, bug
from simulation import SLOW, UNSURE, Scene
from stories import not_to_hear_whether_a_stored_slot_counts_is_no_failure

from hoodoo.compactor.compaction import plans
from hoodoo.errors import StoreUnavailable
from hoodoo.format.names import base_file_name, join
from hoodoo.storage.store import Store
from hoodoo.timeline.commits import conflicts, transaction
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.commits.turn_request import FairnessPauses
from hoodoo.timeline.hudi import publish
from hoodoo.timeline.hudi.publish import Publisher
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import COMPLETED, PLANNED, ROLLED_BACK
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.writers import operations
from hoodoo.writers.files import base_sink
from hoodoo.writers.files.file_target import FileTarget
from hoodoo.writers.routing import route, split
from hoodoo.writers.routing.write_plan import WritePlan


def judge_otherwise(patch: Patch, change: Callable[[Any, str, Any], tuple[Any, str, Any]]) -> None:
    """Let the conflict check see another (touches, instant, slot)."""

    def judge(mine: Any, instant: str, slot: Any, keys_of: Any) -> str:
        return conflicts.explain_conflict(*change(mine, instant, slot), keys_of)

    patch(transaction, "explain_conflict", judge)


# ---- completing
@bug("H4, complete 1", "no slot since the base is looked at for conflicts")
def conflicts_unchecked(patch: Patch) -> None:
    patch(transaction, "explain_conflict", lambda mine, instant, slot, keys_of: "")


@bug("H6, complete 1", "after a lost slot the next one is taken without reading the winner")
def no_second_check(patch: Patch) -> None:
    check = Transaction._require_no_conflict

    def once(self: Transaction, state: Any, draft: Any) -> Any:
        if not self._tried:
            return check(self, state, draft)
        self._checked = state.view.seq
        return None

    patch(Transaction, "_require_no_conflict", once)


@bug(
    "H10, complete 3",
    "412 on the own slot is taken for a loss",
    Scene(("sweeper", "cleaner"), (("reply_lost", 0.08),)),
)
def own_slot_taken_for_a_loss(patch: Patch) -> None:
    check = Transaction._require_no_conflict

    def strangers_only(self: Transaction, state: Any, draft: Any) -> Any:
        nonce, self.nonce = self.nonce, ""
        try:
            return check(self, state, draft)
        finally:
            self.nonce = nonce

    patch(Transaction, "_require_no_conflict", strangers_only)
    patch(Transaction, "_holds", lambda self, key, data: False)


@bug("H11, complete 3", "a slot write without an answer is reported as failed")
def timeout_is_failure(patch: Patch) -> None:
    patch(Transaction, "_unknown", lambda self, seq: StoreUnavailable("the slot could not be written"))


@bug("H12, complete 3", "a slot that lands in the place of an archived one counts")
def late_slot_counts(patch: Patch) -> None:
    patch(Transaction, "_was_archived", lambda self, slot, deadline: False)


@bug(
    "complete 3",
    "not to hear whether a stored slot counts is reported as failed",
    story=not_to_hear_whether_a_stored_slot_counts_is_no_failure,
)
def no_watermark_is_failure(patch: Patch) -> None:
    patch(Transaction, "_was_archived", lambda self, slot, deadline: slot.seq <= watermark.deleted_up_to(self.store))


@bug("complete 3", "an attempt whose slot may exist deletes its files when it gives up")
def sealed_files_deleted(patch: Patch) -> None:
    abandon = Transaction.abandon

    def careless(self: Transaction) -> None:
        self._sealed = False
        abandon(self)

    patch(Transaction, "abandon", careless)


@bug("complete 4", "a slot is published without the ones before it")
def published_out_of_order(patch: Patch) -> None:
    def only_this(self: Publisher, seq: int, config: Any, **_: Any) -> None:
        if not self.store.exists(publish.find_publication_file(self.history.slot(seq))):
            self._publish(self.history.slot(seq), config)

    patch(Publisher, "publish_through", only_this)


@bug("complete 4", "nobody publishes what a dead writer left unpublished")
def nobody_heals(patch: Patch) -> None:
    patch(TableTimeline, "_publish_through", lambda self, state: True)

    def own_only(self: Publisher, seq: int, config: Any, **_: Any) -> None:
        if not self.store.exists(publish.find_publication_file(self.history.slot(seq))):
            self._publish(self.history.slot(seq), config)

    patch(Publisher, "publish_through", own_only)


# ---- conflicts
@bug("conflict: rewrites", "a rewrite does not conflict with what its file group got since")
def rewrites_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, rewrites=set()), instant, slot))


@bug("conflict: replaced groups", "a delta on a file group that was replaced completes")
def replaced_groups_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, replaced=())))


@bug("conflict: overwritten partitions", "an overwrite does not conflict with rows that came into its partition")
def overwritten_partition_unchecked(patch: Patch) -> None:
    judge_otherwise(
        patch, lambda mine, instant, slot: (replace(mine, overwrites=set(), everything=False), instant, slot)
    )


@bug("H3, conflict: inserted keys", "two writers insert one key")
def inserted_keys_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, inserted=())))


@bug("conflict: inserted keys", "a write that found nothing to change is not looked at")
def empty_writes_unchecked(patch: Patch) -> None:
    draft = operations._Attempt._draft_slot

    def without_keys(self: Any, proposal: Any, written: Any) -> Any:
        return draft(self, proposal if proposal.writes else WritePlan(), written)

    patch(operations._Attempt, "_draft_slot", without_keys)


@bug(
    "conflict: kept keys",
    "an insert that keeps existing keys does not care if they went away",
    Scene(("keeper", "keeper"), SLOW),
)
def kept_keys_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, reads=set()), instant, slot))


@bug("H25, exactly-once", "two writers commit one version of an application")
def transactions_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, application=""), instant, slot))


@bug("H26, restore", "a restore does not conflict with writes since its base", Scene(("keeper",) * 4, (("hold", 0.2),)))
def restore_not_exclusive(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, exclusive=False), instant, slot))


# ---- the rules that keep Hudi's order and ours equal
def slot_otherwise(patch: Patch, change: Callable[[Transaction, Any, Any], Any]) -> None:
    make = Transaction._slot

    def made(self: Transaction, view_: Any, draft: Any) -> Any:
        return change(self, make(self, view_, draft), view_)

    patch(Transaction, "_slot", made)


@bug("1, H18", "completion times follow the clock alone")
def times_not_monotone(patch: Patch) -> None:
    def by_the_clock(self: Transaction, slot: Any, view_: Any) -> Any:
        return slot if slot.outcome == PLANNED else replace(slot, completed_at=self.timeline.environment.now_ms())

    slot_otherwise(patch, by_the_clock)


@bug("1", "completion times grow, but may be smaller than the slot's own instant")
def completed_before_begun(patch: Patch) -> None:
    def after_the_head(self: Transaction, slot: Any, view_: Any) -> Any:
        return slot if slot.outcome == PLANNED else replace(slot, completed_at=view_.completed_at + 1)

    slot_otherwise(patch, after_the_head)


@bug("2", "an instant may be smaller than the head's completion time")
def begins_before_the_head(patch: Patch) -> None:
    claim = TableTimeline._claim
    patch(
        TableTimeline,
        "_claim",
        lambda self, action, nonce, view_: claim(self, action, nonce, replace(view_, completed_at=0)),
    )


@bug("3", "a rebase keeps its instant")
def rebase_keeps_the_instant(patch: Patch) -> None:
    claim, commit, kept = TableTimeline._claim, operations.commit_write, {}

    def claim_once(self: TableTimeline, action: str, nonce: str, view_: Any) -> str:
        known = kept.get(self)
        if known is None:
            return claim(self, action, nonce, view_)
        if not known:
            known.append(claim(self, action, nonce, view_))
        return known[0]

    def with_one_instant(context: Any, *rest: Any, **named: Any) -> Any:
        kept[context.timeline] = []
        try:
            return commit(context, *rest, **named)
        finally:
            del kept[context.timeline]

    patch(TableTimeline, "_claim", claim_once)
    patch(operations, "commit_write", with_one_instant)


@bug("4", "a delta completes after one with a larger instant on its file group")
def delta_order_unchecked(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (mine, "9" * 17, slot))


@bug("5", "a plan's slot may come after commits that are newer than its instant")
def plan_without_its_time(patch: Patch) -> None:
    check = Transaction._require_no_conflict
    patch(
        Transaction,
        "_require_no_conflict",
        lambda self, state, draft: check(
            self, state, replace(draft, outcome=COMPLETED) if draft.outcome == PLANNED else draft
        ),
    )
    slot_otherwise(
        patch, lambda self, slot, view_: replace(slot, completed_at=max(slot.completed_at, view_.completed_at + 1))
    )


@bug("6", "a file group under an open plan is rewritten", Scene(("compactor", "compactor"), SLOW))
def rewrites_under_a_plan(patch: Patch) -> None:
    patch(transaction, "explain_compaction_conflict", lambda mine, view_: "")
    patch(route, "require_no_plan", lambda assignments, planned: None)


@bug("6", "completion does not look for plans that came since", Scene(("compactor", "compactor"), SLOW))
def plans_unchecked_at_completion(patch: Patch) -> None:
    patch(transaction, "explain_compaction_conflict", lambda mine, view_: "")


@bug("6", "a file group under an open plan is planned again")
def planned_twice(patch: Patch) -> None:
    behind = plans.behind
    patch(plans, "behind", lambda view_, logs_min=1: behind(replace(view_, plans={}), logs_min))


@bug("7", "the empty first commit is not published")
def no_first_commit(patch: Patch) -> None:
    publish_one = Publisher._publish
    patch(Publisher, "_publish", lambda self, slot, *rest: None if slot.seq == 1 else publish_one(self, slot, *rest))
    put = Store.write_once

    def forgetful(self: Store, key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(".hoodie/timeline/") and "_" in key:
            return
        put(self, key, data, durable)

    patch(Store, "write_once", forgetful)


@bug("8", "a deleted key comes back in a log")
def reinserted_in_a_log(patch: Patch) -> None:
    patch(split, "needs_rewrite", lambda batch, located, places, config: False)


@bug("9", "an update completes although its key was deleted since", Scene(("reader",), SLOW))
def update_after_delete(patch: Patch) -> None:
    judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, deleted=())))


@bug("10, 14", "each attempt at a file gives it a name of its own")
def names_by_attempt(patch: Patch) -> None:
    numbers, store_base = count(1), base_sink.store_base_file

    def under_a_new_name(store: Any, config: Any, target: FileTarget, *rest: Any) -> Any:
        mine = _OfAttempt(target.partition, target.file_id, target.instant, f"0-0-{next(numbers)}")
        return store_base(store, config, mine, *rest)

    patch(base_sink, "store_base_file", under_a_new_name)


@dataclass(frozen=True)
class _OfAttempt(FileTarget):
    token: str = ""

    @property
    def base_path(self) -> str:
        return join(self.partition, base_file_name(self.file_id, self.instant, self.token))


@bug("10, H15", "a worker that loses a plan deletes the plan's output")
def loser_deletes_the_output(patch: Patch) -> None:
    run_plan = plans.run_compaction_plan

    def tidy(context: Any, plan: Any, *rest: Any, **named: Any) -> Any:
        result = run_plan(context, plan, *rest, **named)
        if not result.instants:
            for group in plan.groups:
                context.store.delete(join(group.partition, base_file_name(group.file_id, plan.instant)))
        return result

    patch(plans, "run_compaction_plan", tidy)


@bug("11, I8", "a completed instant is rolled back, and what it published taken away")
def completed_rolled_back(patch: Patch) -> None:
    judge = Transaction._judge

    def lenient(self: Transaction, slot: Any, draft: Any) -> None:
        if draft.outcome != ROLLED_BACK or slot.instant != draft.target:
            judge(self, slot, draft)

    patch(Transaction, "_judge", lenient)


@bug(
    "12",
    "a clean deletes before the slots up to its own are published",
    Scene(("cleaner", "cleaner", "cleaner", "compactor"), (("die", 0.01), ("hold", 0.2))),
)
def cleaned_before_publication(patch: Patch) -> None:
    finish = Transaction._finish

    def hasty(self: Transaction, slot: Any) -> Any:
        if slot.action == "clean":
            self.timeline.history.head()
            for path in {path for path, _ in slot.victims} - self.timeline.publisher._leased_files(slot):
                self.store.delete(path)
        return finish(self, slot)

    patch(Transaction, "_finish", hasty)
    patch(TableTimeline, "begin", _begin_without_healing(TableTimeline.begin))


def _begin_without_healing(begin: Any) -> Any:
    def begun(self: TableTimeline, action: str, *rest: Any) -> Any:
        if action != "clean":
            return begin(self, action, *rest)
        self._publish_through = lambda state: True  # type: ignore[method-assign]
        try:
            return begin(self, action, *rest)
        finally:
            del self._publish_through  # type: ignore[method-assign]

    return begun


# ---- turns
_PLEADING = Scene(("slow_writer", "slow_writer", "busy_writer"), UNSURE, pleads_after=1)


@bug("pleas", "a plea never grows old", _PLEADING)
def pleas_never_old(patch: Patch) -> None:
    patch(FairnessPauses, "_is_expired", lambda self, key: False)
