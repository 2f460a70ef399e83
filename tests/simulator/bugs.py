"""Planted bugs: the real code with one rule dropped. A simulator that does not find them proves nothing.

Each is a small change of one function, undone afterwards. `python bugs.py table` prints the table of docs/simulation.md,
`python bugs.py search [name ...]` looks for the first seed that finds each, of those whose seed in bug_seeds.py does not any more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from bug_seeds import SEEDS
from simulation import Outcome, simulate

from hoodoo.compactor import clean, plans, sweep
from hoodoo.errors import StoreUnavailable
from hoodoo.format.names import base_file_name, instant_of_ms, join, ms_of_instant, parse_data_file
from hoodoo.readers.positions import resolve
from hoodoo.readers.scan import Range, Scan
from hoodoo.storage.store import Store
from hoodoo.table import Table
from hoodoo.timeline import conflicts, leases, publish, transaction, view, watermark
from hoodoo.timeline.history import History
from hoodoo.timeline.publish import Publisher, data_files_of
from hoodoo.timeline.slot import COMPLETED, LOG, PLANNED, ROLLED_BACK
from hoodoo.timeline.transaction import Timeline, Transaction
from hoodoo.writers import operations, route, tasks

MOST_SEEDS = 2_000
Patch = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Bug:
    """`rule`: number in docs/protocol.md, or the hazard; `dropped`: what the code does instead."""

    name: str
    rule: str
    dropped: str
    plant: Callable[[Patch], None]

    @property
    def seed(self) -> int:
        """The seed that finds it."""
        return SEEDS[self.name][0]

    @property
    def invariant(self) -> str:
        return SEEDS[self.name][1]


BUGS: dict[str, Bug] = {}


def bug(rule: str, dropped: str) -> Callable[[Callable[[Patch], None]], None]:
    def register(plant: Callable[[Patch], None]) -> None:
        name = plant.__name__.replace("_", "-")
        BUGS[name] = Bug(name, rule, dropped, plant)

    return register


@contextmanager
def planted(one: Bug) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    try:
        one.plant(patch)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def run(one: Bug, seed: int) -> Outcome:
    with planted(one):
        return simulate(seed)


def _judge_otherwise(patch: Patch, change: Callable[[Any, str, Any], tuple[Any, str, Any]]) -> None:
    """Let the conflict check see another (touches, instant, slot)."""

    def judge(mine: Any, instant: str, slot: Any, keys_of: Any) -> str:
        return conflicts.conflict(*change(mine, instant, slot), keys_of)

    patch(transaction, "conflict", judge)


# ---- completing
@bug("H4, complete 1", "no slot since the base is looked at for conflicts")
def conflicts_unchecked(patch: Patch) -> None:
    patch(transaction, "conflict", lambda mine, instant, slot, keys_of: "")


@bug("H6, complete 1", "after a lost slot the next one is taken without reading the winner")
def no_second_check(patch: Patch) -> None:
    check = Transaction._check

    def once(self: Transaction, view_: Any, draft: Any) -> Any:
        if not self._tried:
            return check(self, view_, draft)
        self._checked = view_.seq
        return None

    patch(Transaction, "_check", once)


@bug("H10, complete 3", "412 on the own slot is taken for a loss")
def own_slot_taken_for_a_loss(patch: Patch) -> None:
    check = Transaction._check

    def strangers_only(self: Transaction, view_: Any, draft: Any) -> Any:
        nonce, self.nonce = self.nonce, ""
        try:
            return check(self, view_, draft)
        finally:
            self.nonce = nonce

    patch(Transaction, "_check", strangers_only)
    patch(Transaction, "_holds", lambda self, key, data: False)


@bug("H11, complete 3", "a slot write without an answer is reported as failed")
def timeout_is_failure(patch: Patch) -> None:
    patch(Transaction, "_unknown", lambda self, seq: StoreUnavailable("the slot could not be written"))


@bug("H12, complete 3", "a slot that lands in the place of an archived one counts")
def late_slot_counts(patch: Patch) -> None:
    patch(Transaction, "_came_too_late", lambda self, slot, deadline: False)


@bug("complete 3", "not to hear whether a stored slot counts is reported as failed")
def no_watermark_is_failure(patch: Patch) -> None:
    patch(Transaction, "_came_too_late", lambda self, slot, deadline: slot.seq <= watermark.deleted_up_to(self.store))


@bug("complete 3", "an attempt whose slot may exist deletes its files when it gives up")
def sealed_files_deleted(patch: Patch) -> None:
    abandon = Transaction.abandon

    def careless(self: Transaction, files: Any = ()) -> None:
        self._sealed = False
        abandon(self, files)

    patch(Transaction, "abandon", careless)


@bug("complete 4", "a slot is published without the ones before it")
def published_out_of_order(patch: Patch) -> None:
    def only_this(self: Publisher, seq: int, config: Any) -> None:
        if not self.store.exists(publish.final_key(self.history.slot(seq))):
            self._publish(self.history.slot(seq), config)

    patch(Publisher, "publish_through", only_this)


@bug("complete 4", "nobody publishes what a dead writer left unpublished")
def nobody_heals(patch: Patch) -> None:
    patch(Timeline, "heal", lambda self: self.history.head())

    def own_only(self: Publisher, seq: int, config: Any) -> None:
        if not self.store.exists(publish.final_key(self.history.slot(seq))):
            self._publish(self.history.slot(seq), config)

    patch(Publisher, "publish_through", own_only)


# ---- conflicts
@bug("conflict: rewrites", "a rewrite does not conflict with what its file group got since")
def rewrites_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, rewrites=set()), instant, slot))


@bug("conflict: replaced groups", "a delta on a file group that was replaced completes")
def replaced_groups_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, replaced=())))


@bug("conflict: overwritten partitions", "an overwrite does not conflict with rows that came into its partition")
def overwritten_partition_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, overwrites=set(), everything=False), instant, slot))


@bug("H3, conflict: inserted keys", "two writers insert one key")
def inserted_keys_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, inserted=())))


@bug("conflict: inserted keys", "a write that found nothing to change is not looked at")
def empty_writes_unchecked(patch: Patch) -> None:
    draft = operations._Attempt._draft

    def without_keys(self: Any, proposal: Any, written: Any) -> Any:
        return draft(self, proposal if proposal.writes else operations.Proposal(), written)

    patch(operations._Attempt, "_draft", without_keys)


@bug("conflict: kept keys", "an insert that keeps existing keys does not care if they went away")
def kept_keys_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, reads=set()), instant, slot))


@bug("H25, exactly-once", "two writers commit one version of an application")
def transactions_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, application=""), instant, slot))


@bug("H26, restore", "a restore does not conflict with writes since its base")
def restore_not_exclusive(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (replace(mine, exclusive=False), instant, slot))


# ---- the rules that keep Hudi's order and ours equal
def _slot_otherwise(patch: Patch, change: Callable[[Transaction, Any, Any], Any]) -> None:
    make = Transaction._slot

    def made(self: Transaction, view_: Any, draft: Any) -> Any:
        return change(self, make(self, view_, draft), view_)

    patch(Transaction, "_slot", made)


@bug("1, H18", "completion times follow the clock alone")
def times_not_monotone(patch: Patch) -> None:
    def by_the_clock(self: Transaction, slot: Any, view_: Any) -> Any:
        return slot if slot.outcome == PLANNED else replace(slot, completed_at=self.timeline.environment.now_ms())

    _slot_otherwise(patch, by_the_clock)


@bug("1", "completion times grow, but may be smaller than the slot's own instant")
def completed_before_begun(patch: Patch) -> None:
    def after_the_head(self: Transaction, slot: Any, view_: Any) -> Any:
        return slot if slot.outcome == PLANNED else replace(slot, completed_at=view_.completed_at + 1)

    _slot_otherwise(patch, after_the_head)


@bug("2", "an instant may be smaller than the head's completion time")
def begins_before_the_head(patch: Patch) -> None:
    claim = Timeline._claim
    patch(Timeline, "_claim", lambda self, action, nonce, view_: claim(self, action, nonce, replace(view_, completed_at=0)))


@bug("3", "a rebase keeps its instant")
def rebase_keeps_the_instant(patch: Patch) -> None:
    claim, commit, kept = Timeline._claim, operations.commit, {}

    def claim_once(self: Timeline, action: str, nonce: str, view_: Any) -> str:
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

    patch(Timeline, "_claim", claim_once)
    patch(operations, "commit", with_one_instant)


@bug("4", "a delta completes after one with a larger instant on its file group")
def delta_order_unchecked(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (mine, "9" * 17, slot))


@bug("5", "a plan's slot may come after commits that are newer than its instant")
def plan_without_its_time(patch: Patch) -> None:
    check = Transaction._check
    patch(Transaction, "_check", lambda self, view_, draft: check(self, view_, replace(draft, outcome=COMPLETED) if draft.outcome == PLANNED else draft))
    _slot_otherwise(patch, lambda self, slot, view_: replace(slot, completed_at=max(slot.completed_at, view_.completed_at + 1)))


@bug("6", "a file group under an open plan is rewritten")
def rewrites_under_a_plan(patch: Patch) -> None:
    patch(transaction, "under_plan", lambda mine, view_: "")
    patch(route, "require_no_plan", lambda assignments, planned: None)


@bug("6", "completion does not look for plans that came since")
def plans_unchecked_at_completion(patch: Patch) -> None:
    patch(transaction, "under_plan", lambda mine, view_: "")


@bug("6", "a file group under an open plan is planned again")
def planned_twice(patch: Patch) -> None:
    behind = plans.behind
    patch(plans, "behind", lambda view_, logs_min: behind(replace(view_, plans={}), logs_min))


@bug("7", "the empty first commit is not published")
def no_first_commit(patch: Patch) -> None:
    publish_one = Publisher._publish
    patch(Publisher, "_publish", lambda self, slot, config: None if slot.seq == 1 else publish_one(self, slot, config))
    put = Store.write_once

    def forgetful(self: Store, key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(".hoodie/timeline/") and "_" in key:
            return
        put(self, key, data, durable)

    patch(Store, "write_once", forgetful)


@bug("8", "a deleted key comes back in a log")
def reinserted_in_a_log(patch: Patch) -> None:
    patch(route, "needs_base", lambda batch, located, places, config: False)


@bug("9", "an update completes although its key was deleted since")
def update_after_delete(patch: Patch) -> None:
    _judge_otherwise(patch, lambda mine, instant, slot: (mine, instant, replace(slot, deleted=())))


@bug("10, 14", "each attempt at a file gives it a name of its own")
def names_by_attempt(patch: Patch) -> None:
    numbers = count(1)
    patch(tasks, "base_file_name", lambda file_id, instant: base_file_name(file_id, instant, f"0-0-{next(numbers)}"))


@bug("10, H15", "a worker that loses a plan deletes the plan's output")
def loser_deletes_the_output(patch: Patch) -> None:
    run_plan = plans.run

    def tidy(context: Any, plan: Any, *rest: Any) -> Any:
        result = run_plan(context, plan, *rest)
        if not result.instants:
            for group in plan.groups:
                context.store.delete(join(group.partition, base_file_name(group.file_id, plan.instant)))
        return result

    patch(plans, "run", tidy)


@bug("11, I8", "a completed instant is rolled back, and what it published taken away")
def completed_rolled_back(patch: Patch) -> None:
    judge = Transaction._judge

    def lenient(self: Transaction, slot: Any, draft: Any) -> None:
        if draft.outcome != ROLLED_BACK or slot.instant != draft.target:
            judge(self, slot, draft)

    patch(Transaction, "_judge", lenient)


@bug("12", "a clean deletes before the slots up to its own are published")
def cleaned_before_publication(patch: Patch) -> None:
    finish = Transaction._finish

    def hasty(self: Transaction, slot: Any) -> Any:
        if slot.action == "clean":
            self.timeline.history.head()
            for path in {path for path, _ in slot.victims} - self.timeline.publisher._leased(slot):
                self.store.delete(path)
        return finish(self, slot)

    patch(Transaction, "_finish", hasty)
    heal = Timeline.heal
    patch(Timeline, "begin", _begin_without_healing(Timeline.begin, heal))


def _begin_without_healing(begin: Any, heal: Any) -> Any:
    def begun(self: Timeline, action: str, *rest: Any) -> Any:
        if action != "clean":
            return begin(self, action, *rest)
        self.heal = lambda: self.history.head()  # type: ignore[method-assign]
        try:
            return begin(self, action, *rest)
        finally:
            del self.heal

    return begun


# ---- claims and rollback
@bug("H1, begin", "instants are not claimed")
def instants_unclaimed(patch: Patch) -> None:
    patch(Timeline, "_claim", lambda self, action, nonce, view_: instant_of_ms(max(self.environment.now_ms(), view_.completed_at + 1)))


@bug("H7, rollback", "a rollback deletes the files without winning a slot")
def rollback_without_a_slot(patch: Patch) -> None:
    def delete_at_once(self: Timeline, instant: str, action: str) -> None:
        self.heal()
        for _, path in list(data_files_of(self.store, instant)):
            self.store.delete(path)

    patch(Timeline, "_fence", delete_at_once)


@bug("H8, rollback", "a writer does not look whether it was rolled back")
def not_fenced(patch: Patch) -> None:
    judge = Transaction._judge

    def deaf(self: Transaction, slot: Any, draft: Any) -> None:
        if slot.outcome != ROLLED_BACK or slot.target != self.instant:
            judge(self, slot, draft)

    patch(Transaction, "_judge", deaf)


@bug("H9, rollback", "a rollback's slot may complete before the instant that it ends")
def rollback_before_its_target(patch: Patch) -> None:
    def as_any_other(self: Transaction, slot: Any, view_: Any) -> Any:
        own = ms_of_instant(slot.instant)
        return replace(slot, completed_at=max(self.timeline.environment.now_ms(), view_.completed_at + 1, own + 1)) if slot.target else slot

    _slot_otherwise(patch, as_any_other)


@bug("rollback", "a rollback reads the key sets of slots that came since, which a clean may have taken")
def rollback_reads_keys(patch: Patch) -> None:
    def eager(mine: Any, instant: str, slot: Any, keys_of: Any) -> str:
        if slot.outcome == COMPLETED and slot.inserted:
            keys_of(slot, "inserted")
        return conflicts.conflict(mine, instant, slot, keys_of)

    patch(transaction, "conflict", eager)


# ---- compaction and readers
@bug("H14, compaction", "a compaction takes the place of logs that came after its plan too")
def newer_logs_dropped(patch: Patch) -> None:
    draft = plans.Draft
    patch(plans, "Draft", lambda *parts, **named: draft(*parts, **{**named, "plan_seq": 1 << 60} if "plan_seq" in named else named))


@bug("H14, snapshot", "a log belongs to a slice by its instant, not by its slot")
def sliced_by_instant(patch: Patch) -> None:
    def place(self: Any) -> None:
        newest = {file.file_id: parse_data_file(file.name).instant for file in self.slot.files if file.kind != LOG}  # type: ignore[union-attr]
        before = {key: group for groups in self.open.values() for key, group in groups.items()}
        original(self)
        if not self.slot.plan_seq:
            return
        for partition, groups in self.open.items():
            for file_id, group in list(groups.items()):
                if file_id in newest and before.get(file_id):
                    logs = tuple(log for log in group.logs if parse_data_file(log.file.name).instant > newest[file_id])  # type: ignore[union-attr]
                    self.open[partition][file_id] = replace(group, logs=logs)
            self.partitions[partition] = self.open[partition]

    original = view._Change.place
    patch(view._Change, "place", place)


@bug("H13, incremental", "changes since a slot are those with larger instants")
def incremental_by_instant(patch: Patch) -> None:
    def by_instant(self: Table, since: Any, until: Any = None, columns: Any = None, where: Any = None, meta: bool = False) -> Scan:
        after = resolve(self._history, since, exclusive=True)
        head = self._history.head()
        bound = self._history.slot(after).instant
        instants = frozenset(slot.instant for slot in self._history.slots(0, head.seq) if slot.writes_rows and slot.instant > bound)
        return Scan(self._history, self._config, head, columns, where, meta, changed=Range(0, instants))

    patch(Table, "incremental", by_instant)


# ---- cleaning and sweeping
@bug("H16, readers", "a reader looks at the head before it writes its lease")
def lease_after_the_look(patch: Patch) -> None:
    def late(history: Any, environment: Any, seq: int, hours: float) -> Any:
        history.head()
        found = history.view(seq)
        return leases.Lease(history.store, environment, seq, hours), found

    patch(leases, "take", late)


@bug("H16, clean", "a clean does not look at leases")
def leases_ignored(patch: Patch) -> None:
    patch(leases, "held", lambda store: set())


@bug("H16, clean", "a clean takes files of the oldest snapshot that stays readable")
def live_file_cleaned(patch: Patch) -> None:
    cleanable = clean.cleanable
    patch(clean, "cleanable", lambda view_, min_readable, *held: cleanable(view_, min_readable + 1, *held))


@bug("savepoint", "a clean does not look at savepoints")
def savepoints_ignored(patch: Patch) -> None:
    cleanable = clean.cleanable
    patch(clean, "cleanable", lambda view_, min_readable, *held: cleanable(replace(view_, savepoints={}), min_readable, *held))


def _keep_otherwise(patch: Patch, forget: Callable[[Any], None]) -> None:
    init = sweep._Kept.__init__

    def forgetful(self: Any, *rest: Any) -> None:
        init(self, *rest)
        forget(self)

    patch(sweep._Kept, "__init__", forgetful)


@bug("H17, sweep", "a sweep takes the output of a running compaction")
def plan_output_swept(patch: Patch) -> None:
    init = sweep._Kept.__init__

    def forgetful(self: Any, *rest: Any) -> None:
        init(self, *rest)
        self.working.clear()

    patch(sweep._Kept, "__init__", forgetful)


@bug("H17, sweep", "a sweep deletes the files of writers that no slot has ended")
def live_writer_swept(patch: Patch) -> None:
    patch(sweep, "_end", lambda timeline, instant: False)


@bug("sweep", "a sweep leaves what a rolled-back writer's late request put")
def late_request_left(patch: Patch) -> None:
    end = sweep._end

    def only_end(timeline: Timeline, instant: str) -> bool:
        here, sweep.ROLLED_BACK = sweep.ROLLED_BACK, "never"
        try:
            return end(timeline, instant)
        finally:
            sweep.ROLLED_BACK = here

    patch(sweep, "_end", only_end)


# ---- archiving
@bug("archive", "slots are deleted before the watermark says so")
def no_watermark(patch: Patch) -> None:
    patch(watermark, "raise_to", lambda store, seq, state: None)


@bug("I8, archive", "a rollback looks only at slots after the oldest one there is")
def oldest_slot_overlooked(patch: Patch) -> None:
    patch(History, "newest_before", History.last_completed_by)


@bug("sweep, archive", "a sweep leaves a dead write whose claim was archived")
def archived_claim_never_ended(patch: Patch) -> None:
    patch(sweep, "ms_of_instant", lambda instant: 1 << 60)


def search(names: list[str]) -> int:
    """Of those named, or of all whose seed in the table finds nothing any more."""
    blind = 0
    for name in names or [name for name in BUGS if not still_found(name)]:
        for seed in range(MOST_SEEDS):
            outcome = run(BUGS[name], seed)
            if outcome.violation:
                break
        blind += not outcome.violation
        print(f'    "{name}": ({seed if outcome.violation else -1}, "{outcome.violation.partition(":")[0]}"),  # {outcome.violation[:150]}', flush=True)
    return blind


def still_found(name: str) -> bool:
    if name not in SEEDS or BUGS[name].seed < 0:
        return False
    seed, invariant = SEEDS[name]
    return run(BUGS[name], seed).violation.partition(":")[0] == invariant and not simulate(seed).violation


def table() -> str:
    lines = ["| Bug | Rule or hazard | What the code does instead | Seed | Found by |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {one.name} | {one.rule} | {one.dropped} | {one.seed} | {one.invariant} |" for one in BUGS.values())])


if __name__ == "__main__":
    if sys.argv[1:2] == ["search"]:
        sys.exit(search(sys.argv[2:]))
    print(table())
