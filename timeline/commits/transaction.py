"""Transaction, which is one attempt to commit.

    begin      claim the instant by put-if-absent; it is larger than the head's completion time (protocol rule 2)
    start      from here on data files may be written, with the instant in their names
    register   record the names of files before writing them, so that a failed attempt can delete them
    complete   THE atomic step: write the slot after the head by put-if-absent, if no slot since the base conflicts
    publish    write Hudi's completed instant, after the instants of all earlier slots
    abandon    instead of a slot, if the attempt fails: delete its files, then the pending instant

`TableTimeline.attempt` (timeline.py) runs the steps in this order.

After a crash before the slot, nothing is committed, and orphan removal (compactor/cleaning/sweep.py) deletes the files
of the instant. After a crash after the slot, the write is committed, and the next process that opens the table
publishes it. An unknown response of the store is resolved by nonce, and never counts as a failure.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Protocol

import numpy as np

from hoodoo.errors import (
    AlreadyCommitted,
    CommitUnknown,
    Fenced,
    HoodooError,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.format.names import ms_of_instant
from hoodoo.redact import redact
from hoodoo.storage.store import REFUSALS, Store
from hoodoo.timeline.commits.conflicts import explain_compaction_conflict, explain_conflict
from hoodoo.timeline.commits.draft import Conflict, SlotDraft, add_hudi_checkpoint
from hoodoo.timeline.commits.turn_request import FairnessPauses, PauseRequest
from hoodoo.timeline.environment import Environment, ResultHolder
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.hudi_lock import Heartbeat, hudi_lock
from hoodoo.timeline.hudi.publish import (
    NOTHING,
    SLOW_WRITE_MS,
    ExternalRollback,
    Publisher,
    is_rolled_back_externally,
    remove_markers,
)
from hoodoo.timeline.hudi.undo import undo_rolled_back_commits
from hoodoo.timeline.instant import COMPACTION, WRITES, Instant, State
from hoodoo.timeline.layout import HUDI_HEARTBEATS, MARKERS, slot_key
from hoodoo.timeline.properties import check_properties
from hoodoo.timeline.slots import keyset, watermark
from hoodoo.timeline.slots.slot import (
    COLUMNS,
    COMPLETED,
    PLANNED,
    ROLLED_BACK,
    Slot,
    SlotBody,
    encode_commit_file,
    list_reader_features,
    sha,
)
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import View

log = logging.getLogger("hoodoo.timeline")
_PUBLISH_ATTEMPTS = 4
Draft = SlotDraft | Callable[[View], SlotDraft | None]


class CommitInterface(Protocol):
    """Interface to the commits of a table."""

    store: Store
    environment: Environment
    history: History
    publisher: Publisher
    fairness: FairnessPauses
    entry_keys: Callable[[str], np.ndarray]

    def look(self) -> TableState: ...

    def resolve(self, instant: str, nonce: str) -> bool: ...


class Transaction:
    def __init__(self, timeline: CommitInterface, state: TableState, action: str, instant: str, nonce: str) -> None:
        self.timeline, self.config, self.base = timeline, state.config, state.view
        self.action, self.instant, self.nonce = action, instant, nonce
        self.slot: Slot | None = None  # set when the transaction is completed
        self._checked = state.view.seq
        self._backup_restores = state.backup_restores
        self._turn_request, self._gave_way = PauseRequest(timeline.store, timeline.environment, nonce), False
        self._tried = 0  # number of the newest slot that this attempt tried to write
        self._version = ""  # the version of that slot in the store, if known
        self._seen = state.config  # the configuration when the state was last read
        self._stands = (
            False  # True if a check after writing the slot showed that no other engine had rolled back the instant
        )
        self._sealed = False  # True if the slot may exist, so that nothing of this attempt may be deleted
        self._files: list[str] = []  # files that are written or about to be written
        self._heartbeat: Heartbeat | None = None
        self._loaded: dict[tuple[int, str], np.ndarray] = {}

    @property
    def store(self) -> Store:
        return self.timeline.store

    def start(self, inflight: bytes = NOTHING) -> None:
        self.store.write_once(Instant(self.instant, self.action, State.INFLIGHT).key, inflight, durable=False)
        if self.config.options.hudi_writers and self.action in WRITES:
            self._heartbeat = Heartbeat(self.store, self.instant)

    def _stop_beating(self) -> None:
        if self._heartbeat:
            self._heartbeat.stop()
        if self.config.options.hudi_writers:
            self.store.delete(f"{HUDI_HEARTBEATS}{self.instant}")

    def register(self, files: Iterable[str]) -> None:
        self._files += files

    def detect_conflicts_since(self, seq: int) -> None:
        self._checked = seq

    def mark(self, path: str, kind: str) -> None:
        self.store.write_once(f"{MARKERS}{self.instant}/{path}.marker.{kind}", NOTHING, durable=False)

    def complete(self, draft: Draft) -> Slot:
        """Commit the write.

        It is then published in Hudi's timeline. `draft` is the draft of the slot, or a function that returns it for the
        newest view, or None if no work is left.

        Raises:
            Conflict: The attempt conflicts with another slot and must be retried, or no work is left.
            Fenced: The attempt was rolled back by another process.
            AlreadyCommitted: The attempt is a rollback of an instant that has already ended.
            CommitUnknown: It is unknown whether the slot was written.
        """
        options, environment = self.config.options, self.timeline.environment
        shared = (
            hudi_lock(self.store, environment, options.commit_timeout_seconds)
            if options.hudi_writers
            else contextlib.nullcontext()
        )
        with shared:
            try:
                self.slot = self._complete(draft, environment.elapsed() + options.commit_timeout_seconds)
            finally:
                self._turn_request.withdraw()
        return self.slot

    def _complete(self, draft: Draft, deadline: float) -> Slot:
        while True:
            try:
                slot = self._try_slot(draft, deadline)
            except (HoodooError, OSError, Conflict) as problem:
                if self._sealed and not isinstance(
                    problem, CommitUnknown
                ):  # the slot may exist, so the attempt must not count as failed
                    raise self._unknown(self._tried) from problem
                raise
            if slot:
                return self._finish(slot)

    def _try_slot(self, draft: Draft, deadline: float) -> Slot | None:
        # Returns the slot if it was written, now or earlier, or None if another writer took the slot number.
        state = self._look_after_pause()
        view, self._seen = state.view, state.config
        current = draft(view) if callable(draft) else draft
        if current is None:
            raise Conflict("Another worker completed this instant.")
        if mine := self._require_no_conflict(state, current):
            return mine
        slot = self._slot(view, current)
        self._sealed, self._tried = True, slot.seq
        if self._write_slot(slot, deadline):
            late = ResultHolder(lambda: self._was_archived(slot, deadline))
            stands = ResultHolder(lambda: self._is_not_rolled_back(slot))
            self.timeline.history.together([late, stands, self._turn_request.withdraw])
            if late.result:
                return None  # an earlier request may be among the archived slots, so the attempt stays sealed
            self._stands = stands.result
            self.timeline.history.add_written_slot(slot, encode_commit_file(slot), self._version)
            return slot
        archived = ResultHolder(lambda: watermark.deleted_up_to(self.store))
        self.timeline.history.together([archived, self._turn_request.record_lost_race])
        self._sealed = slot.seq <= archived.result  # an archived slot may have been the slot of this attempt
        return None

    def _look_after_pause(self) -> TableState:
        state = self.timeline.look()
        turns = self.config.options.hudi_writers  # writers that hold Hudi's lock do not race
        if state.turn_requests and not (turns or self._gave_way or self._turn_request.made):
            self._gave_way = True
            return self.timeline.fairness.wait_for_slower_writers(state, self.timeline.look)
        return state

    def _was_archived(self, slot: Slot, deadline: float) -> bool:
        # If the slot is archived, it is deleted, because no reader sees it.
        environment = self.timeline.environment
        while True:
            try:
                if slot.seq > watermark.deleted_up_to(self.store):
                    return False
                break
            except StoreUnavailable:  # the slot exists, so an unknown watermark is not a failure
                if environment.elapsed() > deadline:
                    raise self._unknown(slot.seq) from None
                environment.sleep(0.05 + environment.fraction() * 0.1)
        self.store.delete(slot_key(slot.seq))
        return True

    def _is_not_rolled_back(self, slot: Slot) -> bool:
        # If False, the publisher checks it again.
        try:
            return slot.commits and not is_rolled_back_externally(self.store, slot)
        except (HoodooError, OSError):
            return False

    def _require_no_conflict(self, state: TableState, draft: SlotDraft) -> Slot | None:
        # conflicts.py has the rules for slots. Returns the slot of this attempt if it already exists.
        view, config = state.view, state.config
        if state.backup_restores != self._backup_restores:
            raise Conflict("The table was restored from a backup.")
        for slot in self._since(self._checked, view.seq):
            if slot.instant == self.instant and slot.nonce == self.nonce:
                return slot
            self._judge(slot, draft)
        self._checked = view.seq
        if state.external:
            raise Conflict("Another engine committed.")
        if self.action in WRITES and view.completed_at - ms_of_instant(self.instant) > SLOW_WRITE_MS:
            raise Conflict("The write took too long, so its instant is too old.")
        if why := explain_compaction_conflict(draft.touches, view):
            raise Conflict(why)
        if draft.outcome == PLANNED and view.completed_at >= ms_of_instant(self.instant):
            raise Conflict("Another commit was published after the plan was made.")  # protocol rule 5
        if self.action in WRITES and not state.has(Instant(self.instant, self.action, State.INFLIGHT)):
            raise Fenced(
                (
                    f"Write was rolled back by another engine: the inflight file of instant {self.instant} is missing. "
                    "Write again."
                ),
                instant=self.instant,
            )
        if config.options.hudi_writers and not self.config.options.hudi_writers:
            raise Conflict("Concurrent writes by Apache Hudi were enabled.")  # this attempt does not hold Hudi's lock
        if config.raw.get("hoodie.table.type") != self.config.raw.get("hoodie.table.type"):
            raise Conflict("The table type was changed.")
        if self.action != COMPACTION and config.columns != self.config.columns:
            raise Conflict(
                "The table's columns were changed."
            )  # protocol rule S2; a plan's files keep its columns (S3)
        if self.action in WRITES and check_properties.stored(config.raw) != check_properties.stored(self.config.raw):
            raise Conflict("The table's checks were changed.")
        return None

    def _since(self, after: int, up_to: int) -> Iterable[Slot]:
        try:
            return self.timeline.history.slots(after, up_to)
        except SnapshotExpired:
            if self._tried:
                raise self._unknown(self._tried) from None
            raise Conflict("Slots that this write must check were archived.") from None

    def _judge(self, slot: Slot, draft: SlotDraft) -> None:
        ended = slot.target if slot.outcome == ROLLED_BACK else slot.instant if slot.outcome == COMPLETED else ""
        if ended == self.instant:
            if slot.outcome == ROLLED_BACK:
                raise Fenced(
                    (
                        f"Write at instant {self.instant} was rolled back by {slot.writer}. Nothing was committed. "
                        "Write again."
                    ),
                    instant=self.instant,
                )
            raise Conflict("Another worker completed this plan.")
        if draft.outcome == ROLLED_BACK and slot.outcome == ROLLED_BACK and draft.target == slot.instant:
            raise AlreadyCommitted(
                f"Instant {draft.target} is a completed rollback (slot {slot.seq}), which cannot be rolled back.",
                instant=draft.target,
                outcome=COMPLETED,
            )
        if draft.outcome == ROLLED_BACK and draft.target == ended:
            if slot.outcome == COMPLETED:
                raise AlreadyCommitted(
                    f"Instant {draft.target} is completed (slot {slot.seq}), but only pending instants can be rolled "
                    f"back. To read the table before this instant, use scan(as_of={slot.seq - 1}). To undo this and "
                    f"all later commits, use restore({slot.seq - 1}) (hoodoo restore PATH {slot.seq - 1}).",
                    instant=draft.target,
                    outcome=COMPLETED,
                )
            raise AlreadyCommitted(
                f"Instant {draft.target} was already rolled back (slot {slot.seq}).",
                instant=draft.target,
                outcome=ROLLED_BACK,
            )
        if why := explain_conflict(draft.touches, self.instant, slot, self._keys_of):
            raise Conflict(why)

    def _keys_of(self, slot: Slot, which: str) -> np.ndarray:
        cache_key = (slot.seq, which)
        if cache_key not in self._loaded:
            references: Iterable[keyset.Reference] = slot.inserted if which == "inserted" else slot.deleted
            self._loaded[cache_key] = keyset.load(self.store, references, self.timeline.entry_keys)
        return self._loaded[cache_key]

    def _slot(self, view: View, draft: SlotDraft) -> Slot:
        instant_ms = ms_of_instant(self.instant)
        target_ms = ms_of_instant(
            draft.target or self.instant
        )  # a process that ends an instant later checks the slots that completed after it
        completed_at = (
            instant_ms
            if draft.outcome == PLANNED
            else max(self.timeline.environment.now_ms(), view.completed_at + 1, instant_ms + 1, target_ms + 1)
        )
        body = {body_field.name: getattr(draft, body_field.name) for body_field in fields(SlotBody)}
        body["needs"] = tuple(dict.fromkeys((*draft.needs, *_required_features(draft))))
        slot = Slot(
            seq=view.seq + 1,
            prev=view.sha,
            table=view.table,
            instant=self.instant,
            action=self.action,
            nonce=self.nonce,
            base_seq=self.base.seq,
            completed_at=completed_at,
            writer=self.timeline.environment.writer(),
            overwritten=tuple(sorted(draft.touches.overwrites)),
            columns_before=self.config.columns.to_json() if draft.columns and not view.schemas else {},
            **body,
        )
        return add_hudi_checkpoint(slot, view, draft.place)

    def _write_slot(self, slot: Slot, deadline: float) -> bool:
        # If the outcome is unknown, the slot is read, and written again if it is missing.
        key, data, environment, sent = slot_key(slot.seq), encode_commit_file(slot), self.timeline.environment, False
        while True:
            try:
                try:
                    self._version = self.store.put_if_absent(key, data) or ""
                    return True
                except FileExistsError:
                    return self._holds(key, data)
                except REFUSALS:
                    self._sealed = sent  # a refused first request has written nothing
                    raise
            except StoreUnavailable:
                sent = True
                try:
                    return self._is_ours(key, data)
                except (FileNotFoundError, StoreUnavailable):
                    if environment.elapsed() > deadline:
                        raise self._unknown(slot.seq) from None
                    environment.sleep(0.05 + environment.fraction() * 0.1)

    def _is_ours(self, key: str, data: bytes) -> bool:
        ours = sha(self.store.get(key)) == sha(data)
        if ours:
            self.store.settle(key)
        return ours

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self._is_ours(key, data)
        except FileNotFoundError:
            return False  # the slot was archived in the meantime, so look again from the head

    def _unknown(self, seq: int) -> CommitUnknown:
        problem = CommitUnknown(
            f"Outcome of the commit is unknown: the store did not confirm slot {seq} (instant {self.instant}). Before "
            "you write the batch again, call resolve() of this error, or maintenance.resolve(instant) of the table.",
            instant=self.instant,
            slot=seq,
            nonce=self.nonce,
        )
        problem.ask = lambda: self.timeline.resolve(self.instant, self.nonce)
        return problem

    def _finish(self, slot: Slot) -> Slot:
        try:
            return self._publish(slot)
        finally:
            if self._heartbeat:
                self._heartbeat.stop()

    def _publish(self, slot: Slot) -> Slot:
        # The commit is already final. If the store fails repeatedly, the next process that opens the table publishes
        # the slot.
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                if self.timeline.history.known_head().seq < slot.seq:
                    self.timeline.history.head()
                self.timeline.publisher.publish_through(slot.seq, self._seen, new=slot.seq, stands=self._stands)
                self._stop_beating()
                break
            except ExternalRollback as gone:
                if gone.slot.seq != slot.seq:
                    log.warning(
                        "slot %d is committed, but another engine rolled back the earlier instant %s",
                        slot.seq,
                        gone.slot.instant,
                    )
                    break
                undo_rolled_back_commits(self.timeline.history, gone.slot)
                raise Fenced(
                    f"Write at instant {self.instant} was rolled back by another engine before it was published. "
                    "Write again.",
                    instant=self.instant,
                ) from None
            except (HoodooError, OSError) as problem:
                self._stands = False
                log.warning("slot %d is committed but not yet published: %s", slot.seq, redact(str(problem)))
                self.timeline.environment.sleep(0.05 * attempt)
        return slot

    def abandon(self) -> None:
        """Abandon a failed commit and delete its files.

        Does nothing if the slot may exist, or if the action writes no files before its slot. A rollback slot is not
        needed, because only this attempt could have completed the instant. Failures are logged, and orphan removal
        deletes the files later.
        """
        if self._heartbeat:
            self._heartbeat.stop()
        if self._sealed or self.action not in WRITES:
            return
        try:
            for path in self._files:
                self.store.delete(path)
            for state in (State.INFLIGHT, State.REQUESTED):
                self.store.delete(Instant(self.instant, self.action, state).key)
            self._stop_beating()
            remove_markers(self.store, self.instant)
        except (HoodooError, OSError) as problem:
            log.warning("failed to delete the files of instant %s: %s", self.instant, redact(str(problem)))


def _required_features(draft: SlotDraft) -> list[str]:
    needed = [COLUMNS] if draft.columns or any(file.schema for file in draft.files) else []
    return [*needed, *list_reader_features(draft.files)]


__all__ = ["Conflict", "Draft", "SlotDraft", "Transaction"]
