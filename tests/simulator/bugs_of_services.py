"""Planted bugs of claims, rollbacks, compactions, readers, cleans, sweeps and the archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bug_registry import Patch, bug
from bugs_of_commits import slot_otherwise
from simulation import SLOW, Scene
from stories import a_commit_in_the_oldest_slot_there_is_cannot_be_rolled_back

from hoodoo.compactor.cleaning import clean, sweep
from hoodoo.compactor.compaction import plans
from hoodoo.format.names import instant_of_ms, ms_of_instant, parse_data_file
from hoodoo.readers.cursor import resolve_position
from hoodoo.readers.scan import Scan
from hoodoo.readers.slices.slice_task import CommitRange
from hoodoo.table.reading import Readable
from hoodoo.timeline.commits import conflicts, transaction
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi.publish import list_data_files
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import COMPLETED, LOG, ROLLED_BACK
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views import view


# ---- claims and rollback
@bug("H1, begin", "instants are not claimed")
def instants_unclaimed(patch: Patch) -> None:
    patch(
        TableTimeline,
        "_claim",
        lambda self, action, nonce, view_: instant_of_ms(max(self.environment.now_ms(), view_.completed_at + 1)),
    )


@bug("H7, rollback", "a rollback deletes the files without winning a slot")
def rollback_without_a_slot(patch: Patch) -> None:
    def delete_at_once(self: TableTimeline, instant: str, action: str) -> None:
        self.heal()
        for _, path in list(list_data_files(self.store, instant)):
            self.store.delete(path)

    patch(TableTimeline, "_fence", delete_at_once)


@bug("H8, rollback", "a writer does not look whether it was rolled back")
def not_fenced(patch: Patch) -> None:
    judge = Transaction._judge

    def deaf(self: Transaction, slot: Any, draft: Any) -> None:
        if slot.outcome != ROLLED_BACK or slot.target != self.instant:
            judge(self, slot, draft)

    patch(Transaction, "_judge", deaf)


@bug(
    "H9, rollback",
    "a rollback's slot may complete before the instant that it ends",
    Scene(("ender", "ender"), (("hold", 0.2),)),
)
def rollback_before_its_target(patch: Patch) -> None:
    def as_any_other(self: Transaction, slot: Any, view_: Any) -> Any:
        own = ms_of_instant(slot.instant)
        return (
            replace(slot, completed_at=max(self.timeline.environment.now_ms(), view_.completed_at + 1, own + 1))
            if slot.target
            else slot
        )

    slot_otherwise(patch, as_any_other)


@bug("rollback", "a rollback reads the key sets of slots that came since, which a clean may have taken")
def rollback_reads_keys(patch: Patch) -> None:
    def eager(mine: Any, instant: str, slot: Any, keys_of: Any) -> str:
        if slot.outcome == COMPLETED and slot.inserted:
            keys_of(slot, "inserted")
        return conflicts.explain_conflict(mine, instant, slot, keys_of)

    patch(transaction, "explain_conflict", eager)


# ---- compaction and readers
@bug("H14, compaction", "a compaction takes the place of logs that came after its plan too")
def newer_logs_dropped(patch: Patch) -> None:
    draft = plans.SlotDraft
    patch(
        plans,
        "SlotDraft",
        lambda *parts, **named: draft(*parts, **{**named, "plan_seq": 1 << 60} if "plan_seq" in named else named),
    )


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

    original = view._SlotChange.put_files
    patch(view._SlotChange, "put_files", place)


@bug("H13, incremental", "changes since a slot are those with larger instants", Scene(("consumer",) * 3, SLOW))
def incremental_by_instant(patch: Patch) -> None:
    def by_instant(
        self: Readable, since: Any, until: Any = None, columns: Any = None, where: Any = None, meta: bool = False
    ) -> Scan:
        after = resolve_position(self.handle.history, since, exclusive=True)
        head = self.handle.history.head()
        bound = self.handle.history.slot(after).instant
        instants = frozenset(
            slot.instant for slot in self.handle.history.slots(0, head.seq) if slot.writes_rows and slot.instant > bound
        )
        return Scan(
            self.handle.history, self.handle.config, head, columns, where, meta, changed=CommitRange(0, instants)
        )

    patch(Readable, "incremental", by_instant)


# ---- cleaning and sweeping
@bug(
    "H16, readers",
    "a reader looks at the head before it writes its lease",
    Scene(("pinner", "pinner", "pinner", "cleaner", "cleaner"), SLOW),
)
def lease_after_the_look(patch: Patch) -> None:
    def late(history: Any, environment: Any, seq: int, hours: float) -> Any:
        history.head()
        found = history.view(seq)
        return leases.Lease(history.store, environment, seq, hours), found

    patch(leases, "take_lease", late)


@bug("H16, clean", "a clean does not look at leases")
def leases_ignored(patch: Patch) -> None:
    patch(leases, "list_protected_commits", lambda store: set())


@bug("H16, clean", "a clean takes files of the oldest snapshot that stays readable")
def live_file_cleaned(patch: Patch) -> None:
    cleanable = clean.cleanable
    patch(clean, "cleanable", lambda view_, min_readable, *held: cleanable(view_, min_readable + 1, *held))


@bug("savepoint", "a clean does not look at savepoints")
def savepoints_ignored(patch: Patch) -> None:
    cleanable = clean.cleanable
    patch(
        clean,
        "cleanable",
        lambda view_, min_readable, *held: cleanable(replace(view_, savepoints={}), min_readable, *held),
    )


def _keep_otherwise(patch: Patch, forget: Callable[[Any], None]) -> None:
    init = sweep._NeededFiles.__init__

    def forgetful(self: Any, *rest: Any) -> None:
        init(self, *rest)
        forget(self)

    patch(sweep._NeededFiles, "__init__", forgetful)


@bug(
    "H17, sweep",
    "a sweep takes the output of a running compaction",
    Scene(("compactor", "compactor", "sweeper", "sweeper"), SLOW),
)
def plan_output_swept(patch: Patch) -> None:
    init = sweep._NeededFiles.__init__

    def forgetful(self: Any, *rest: Any) -> None:
        init(self, *rest)
        self.working.clear()

    patch(sweep._NeededFiles, "__init__", forgetful)


@bug("H17, sweep", "a sweep deletes the files of writers that no slot has ended")
def live_writer_swept(patch: Patch) -> None:
    patch(sweep, "_roll_back_pending_write", lambda timeline, instant: False)


@bug(
    "sweep",
    "a sweep leaves what a rolled-back writer's late request put",
    Scene(("ender", "ender", "ender", "sweeper", "cleaner"), (("late", 0.06), ("hold", 0.1))),
)
def late_request_left(patch: Patch) -> None:
    end = sweep._roll_back_pending_write

    def only_end(timeline: TableTimeline, instant: str) -> bool:
        here, sweep.ROLLED_BACK = sweep.ROLLED_BACK, "never"
        try:
            return end(timeline, instant)
        finally:
            sweep.ROLLED_BACK = here

    patch(sweep, "_roll_back_pending_write", only_end)


# ---- archiving
@bug("archive", "slots are deleted before the watermark says so")
def no_watermark(patch: Patch) -> None:
    patch(watermark, "record_archived_commits", lambda store, seq, state: None)


@bug(
    "I8, archive",
    "a rollback looks only at slots after the oldest one there is",
    story=a_commit_in_the_oldest_slot_there_is_cannot_be_rolled_back,
)
def oldest_slot_overlooked(patch: Patch) -> None:
    patch(History, "newest_before", History.find_last_completed_by)


@bug(
    "sweep, archive",
    "a sweep leaves a dead write whose claim was archived",
    Scene(("archiver", "archiver", "cleaner", "cleaner"), (("die", 0.01), ("die_after", 0.01), ("hold", 0.2))),
)
def archived_claim_never_ended(patch: Patch) -> None:
    patch(sweep, "ms_of_instant", lambda instant: 1 << 60)
