"""A transaction: one attempt at a commit under one instant. No other module orders its steps.

    begin      the instant is claimed by put-if-absent; it is larger than the head's completion time (protocol rule 2)
    start      data files may be written from here on, under names that carry the instant
    register   names of files that are about to be written: what an attempt without a slot has to delete
    complete   THE atomic step: the slot after the head, by put-if-absent, once no slot since the base conflicts
    publish    Hudi's completed instant, after every earlier slot's
    abandon    instead of a slot, by a writer that lives: it deletes its files, then the pending instant

`TableTimeline.attempt` (timeline.py) takes them in this order. Crash before the slot: nothing happened, and nobody
abandons; a sweep (compactor/cleaning/sweep.py) deletes the files under the instant. Crash after the slot: it happened;
the next to open the table publishes it. An unknown reply is resolved by nonce; it is never taken for a failure.
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
from hoodoo.timeline.commits.conflicts import conflict, under_plan
from hoodoo.timeline.commits.draft import Conflict, SlotDraft, with_place
from hoodoo.timeline.commits.plea import Courtesy, Plea
from hoodoo.timeline.environment import Deferred, Environment
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.neighbour import Heartbeat, hudi_lock
from hoodoo.timeline.hudi.publish import NOTHING, SLOW_WRITE_MS, Publisher, TakenBack, remove_markers, taken_back
from hoodoo.timeline.hudi.undo import undo
from hoodoo.timeline.instant import COMPACTION, WRITES, Instant, State
from hoodoo.timeline.layout import HUDI_HEARTBEATS, MARKERS, slot_key
from hoodoo.timeline.properties import check_properties
from hoodoo.timeline.slots import keyset, watermark
from hoodoo.timeline.slots.slot import COLUMNS, COMPLETED, PLANNED, ROLLED_BACK, Slot, SlotBody, encode, features, sha
from hoodoo.timeline.state import TableState
from hoodoo.timeline.views.view import View

log = logging.getLogger("hoodoo.timeline")
_PUBLISH_ATTEMPTS = 4
Draft = SlotDraft | Callable[[View], SlotDraft | None]


class CommitCore(Protocol):
    """What a transaction needs of its table's timeline."""

    store: Store
    environment: Environment
    history: History
    publisher: Publisher
    courtesy: Courtesy
    entry_keys: Callable[[str], np.ndarray]

    def look(self) -> TableState: ...

    def resolve(self, instant: str, nonce: str) -> bool: ...


class Transaction:
    """One attempt under one instant. `base` is the view it was begun on."""

    def __init__(self, timeline: CommitCore, state: TableState, action: str, instant: str, nonce: str) -> None:
        self.timeline, self.config, self.base = timeline, state.config, state.view
        self.action, self.instant, self.nonce = action, instant, nonce
        self.slot: Slot | None = None  # once it is completed
        self._checked = state.view.seq
        self._backup_restores = state.backup_restores
        self._plea, self._gave_way = Plea(timeline.store, timeline.environment, nonce), False
        self._tried = 0  # the newest slot that was put
        self._version = ""  # of that slot in the store, where it is known
        self._seen = state.config  # as it was at the newest look
        self._stands = False  # the slot's instant was seen to stand after the slot
        self._sealed = False  # a slot of ours may exist: from here on nothing of this attempt may be deleted
        self._files: list[str] = []  # that are written, or are about to be
        self._heartbeat: Heartbeat | None = None
        self._loaded: dict[tuple[int, str], np.ndarray] = {}

    @property
    def store(self) -> Store:
        return self.timeline.store

    def start(self, inflight: bytes = NOTHING) -> None:
        """Publish inflight; data files may be written from now on."""
        self.store.write_once(Instant(self.instant, self.action, State.INFLIGHT).key, inflight, durable=False)
        if self.config.options.hudi_writers and self.action in WRITES:
            self._heartbeat = Heartbeat(self.store, self.instant)

    def _stop_beating(self) -> None:
        if self._heartbeat:
            self._heartbeat.stop()
        if self.config.options.hudi_writers:
            self.store.delete(f"{HUDI_HEARTBEATS}{self.instant}")

    def register(self, files: Iterable[str]) -> None:
        """Name files before they are written: an attempt that ends without a slot deletes them."""
        self._files += files

    def judge_since(self, seq: int) -> None:
        """Judge the slots after `seq`, instead of those after the base."""
        self._checked = seq

    def mark(self, path: str, kind: str) -> None:
        """Leave Hudi's marker for a data file about to be written, so that Hudi's own rollback of a dead attempt finds
        it.
        """
        self.store.write_once(f"{MARKERS}{self.instant}/{path}.marker.{kind}", NOTHING, durable=False)

    def complete(self, draft: Draft) -> Slot:
        """Take the slot after the head, then publish. A callable drafts against the newest view (None: nothing left to
        do).

        Raises Conflict (rebase), Fenced (rolled back by somebody), AlreadyCommitted (rollback of a completed instant),
        CommitUnknown.
        """
        options, environment = self.config.options, self.timeline.environment
        shared = (
            hudi_lock(self.store, environment, options.commit_timeout_s)
            if options.hudi_writers
            else contextlib.nullcontext()
        )
        with shared:
            try:
                self.slot = self._complete(draft, environment.elapsed() + options.commit_timeout_s)
            finally:
                self._plea.withdraw()
        return self.slot

    def _complete(self, draft: Draft, deadline: float) -> Slot:
        while True:
            try:
                done = self._try(draft, deadline)
            except (HoodooError, OSError, Conflict) as problem:
                if self._sealed and not isinstance(
                    problem, CommitUnknown
                ):  # a slot of ours may be there: whatever went wrong, it is no failure
                    raise self._unknown(self._tried) from problem
                raise
            if done:
                return self._finish(done)

    def _try(self, draft: Draft, deadline: float) -> Slot | None:
        """One look and, if nothing conflicts, one slot; our slot if it is there."""
        state = self._look_in_turn()
        view, self._seen = state.view, state.config
        current = draft(view) if callable(draft) else draft
        if current is None:
            raise Conflict("another worker did it")
        if mine := self._check(state, current):
            return mine
        slot = self._slot(view, current)
        self._sealed, self._tried = True, slot.seq
        if self._put(slot, deadline):
            late = Deferred(lambda: self._came_too_late(slot, deadline))
            stands = Deferred(lambda: self._known_not_rolled_back(slot))
            self.timeline.history.together([late, stands, self._plea.withdraw])
            if late.result:
                return None  # an earlier request of ours may be among the archived slots: sealed for good
            self._stands = stands.result
            self.timeline.history.took(slot, encode(slot), self._version)
            return slot
        archived = Deferred(lambda: watermark.deleted_up_to(self.store))
        self.timeline.history.together([archived, self._plea.lost_a_race])
        self._sealed = slot.seq <= archived.result  # archived before we could look: it may have been ours
        return None

    def _look_in_turn(self) -> TableState:
        """The state to take a slot on: after a pause, once, where a slower writer asks for a turn."""
        state = self.timeline.look()
        turns = self.config.options.hudi_writers  # writers that hold Hudi's lock run no races
        if state.pleas and not (turns or self._gave_way or self._plea.made):
            self._gave_way = True
            return self.timeline.courtesy.give_way(state, self.timeline.look)
        return state

    def _came_too_late(self, slot: Slot, deadline: float) -> bool:
        """Tell whether the slot has the number of one that was archived. Nobody reads it then; delete it."""
        environment = self.timeline.environment
        while True:
            try:
                if slot.seq > watermark.deleted_up_to(self.store):
                    return False
                break
            except StoreUnavailable:  # the slot is there: not to know whether it counts is no failure
                if environment.elapsed() > deadline:
                    raise self._unknown(slot.seq) from None
                environment.sleep(0.05 + environment.fraction() * 0.1)
        self.store.delete(slot_key(slot.seq))
        return True

    def _known_not_rolled_back(self, slot: Slot) -> bool:
        """Tell whether it is known that no other engine has taken back the instant of the slot.

        Where it is not known, whoever publishes the slot checks it.
        """
        try:
            return slot.commits and not taken_back(self.store, slot)
        except (HoodooError, OSError):
            return False

    def _check(self, state: TableState, draft: SlotDraft) -> Slot | None:
        """Judge every slot that came since the last look, then the table itself.

        The rules for a slot are in conflicts.py. Those for the table are here: it was put back from a backup, another
        engine committed, the instant is too old, a group is under an open plan, Apache Hudi writes too from now on, or
        columns, checks or type are others than at the base.

        Returns:
            Our own slot if it is among those that came, None otherwise.

        Raises:
            Conflict: The attempt has to start again under a new instant.
            Fenced: Somebody rolled the attempt back.
        """
        view, config = state.view, state.config
        if state.backup_restores != self._backup_restores:
            raise Conflict("the table was put back from a backup")
        for slot in self._since(self._checked, view.seq):
            if slot.instant == self.instant and slot.nonce == self.nonce:
                return slot
            self._judge(slot, draft)
        self._checked = view.seq
        if state.foreign:
            raise Conflict("another engine committed")
        if self.action in WRITES and view.completed_at - ms_of_instant(self.instant) > SLOW_WRITE_MS:
            raise Conflict("its instant is too old by now")
        if why := under_plan(draft.touches, view):
            raise Conflict(why)
        if draft.outcome == PLANNED and view.completed_at >= ms_of_instant(self.instant):
            raise Conflict("a commit came between the plan and its instant")  # protocol rule 5
        if self.action in WRITES and not state.has(Instant(self.instant, self.action, State.INFLIGHT)):
            raise Fenced(
                (
                    f"The inflight file of instant {self.instant} is gone: another engine rolled this write back. "
                    "Write again."
                ),
                instant=self.instant,
            )
        if config.options.hudi_writers and not self.config.options.hudi_writers:
            raise Conflict("Apache Hudi writes at the same time from now on")  # this attempt holds no lock of it
        if config.raw.get("hoodie.table.type") != self.config.raw.get("hoodie.table.type"):
            raise Conflict("the table's configuration changed")
        if self.action != COMPACTION and config.columns != self.config.columns:
            raise Conflict("the table's columns changed")  # protocol rule S2; a plan's files keep its columns (S3)
        if self.action in WRITES and check_properties.stored(config.raw) != check_properties.stored(self.config.raw):
            raise Conflict("the table's checks changed")
        return None

    def _since(self, after: int, up_to: int) -> Iterable[Slot]:
        try:
            return self.timeline.history.slots(after, up_to)
        except SnapshotExpired:
            if self._tried:
                raise self._unknown(self._tried) from None
            raise Conflict("the slots since its base were archived") from None

    def _judge(self, slot: Slot, draft: SlotDraft) -> None:
        ended = slot.target if slot.outcome == ROLLED_BACK else slot.instant if slot.outcome == COMPLETED else ""
        if ended == self.instant:
            if slot.outcome == ROLLED_BACK:
                raise Fenced(
                    (
                        f"Instant {self.instant} was rolled back by {slot.writer}; nothing of it was committed. Write "
                        "again."
                    ),
                    instant=self.instant,
                )
            raise Conflict("another worker completed this plan")
        if draft.outcome == ROLLED_BACK and slot.outcome == ROLLED_BACK and draft.target == slot.instant:
            raise AlreadyCommitted(
                f"Instant {draft.target} is a rollback that is done (slot {slot.seq}).",
                instant=draft.target,
                outcome=COMPLETED,
            )
        if draft.outcome == ROLLED_BACK and draft.target == ended:
            if slot.outcome == COMPLETED:
                raise AlreadyCommitted(
                    f"Instant {draft.target} is completed (slot {slot.seq}); rollback ends only what is pending. "
                    f"scan(as_of={slot.seq - 1}) reads the table as it was before. restore({slot.seq - 1}) makes it so "
                    f"again, in a new commit, and undoes what came after, too (hoodoo restore PATH {slot.seq - 1}).",
                    instant=draft.target,
                    outcome=COMPLETED,
                )
            raise AlreadyCommitted(
                f"Instant {draft.target} was rolled back already (slot {slot.seq}).",
                instant=draft.target,
                outcome=ROLLED_BACK,
            )
        if why := conflict(draft.touches, self.instant, slot, self._keys_of):
            raise Conflict(why)

    def _keys_of(self, slot: Slot, which: str) -> np.ndarray:
        known = (slot.seq, which)
        if known not in self._loaded:
            references: Iterable[keyset.Reference] = slot.inserted if which == "inserted" else slot.deleted
            self._loaded[known] = keyset.load(self.store, references, self.timeline.entry_keys)
        return self._loaded[known]

    def _slot(self, view: View, draft: SlotDraft) -> Slot:
        own = ms_of_instant(self.instant)
        ended = ms_of_instant(
            draft.target or self.instant
        )  # whoever ends an instant later looks at the slots that completed after it
        completed_at = (
            own
            if draft.outcome == PLANNED
            else max(self.timeline.environment.now_ms(), view.completed_at + 1, own + 1, ended + 1)
        )
        body = {each.name: getattr(draft, each.name) for each in fields(SlotBody)}
        body["needs"] = tuple(dict.fromkeys((*draft.needs, *_features(draft))))
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
        return with_place(slot, view, draft.place)

    def _put(self, slot: Slot, deadline: float) -> bool:
        """Put the slot, and tell whether it is ours.

        An unknown outcome is resolved by reading the slot, then by putting the same bytes again.
        """
        key, data, environment, asked = slot_key(slot.seq), encode(slot), self.timeline.environment, False
        while True:
            try:
                try:
                    self._version = self.store.put_if_absent(key, data) or ""
                    return True
                except FileExistsError:
                    return self._holds(key, data)
                except REFUSALS:
                    self._sealed = asked  # refused at once: nothing is there
                    raise
            except StoreUnavailable:
                asked = True
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
            return False  # archived since: look again from the head

    def _unknown(self, seq: int) -> CommitUnknown:
        problem = CommitUnknown(
            f"The store did not say whether slot {seq} (instant {self.instant}) was written. Do not write the "
            "batch again before asking: "
            "call resolve() of this error, or resolve(instant) of the table.",
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
        """Publish. The commit is final: a store that fails now is tried a few times, then left to whoever opens the
        table next.
        """
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                if self.timeline.history.known_head().seq < slot.seq:
                    self.timeline.history.head()
                self.timeline.publisher.publish_through(slot.seq, self._seen, new=slot.seq, stands=self._stands)
                self._stop_beating()
                break
            except TakenBack as gone:
                if gone.slot.seq != slot.seq:
                    log.warning(
                        "slot %d is committed; instant %s before it was rolled back by another engine",
                        slot.seq,
                        gone.slot.instant,
                    )
                    break
                undo(self.timeline.history, gone.slot)
                raise Fenced(
                    f"Another engine rolled instant {self.instant} back before it was published. Write again.",
                    instant=self.instant,
                ) from None
            except (HoodooError, OSError) as problem:
                self._stands = False
                log.warning("slot %d is committed but not yet published: %s", slot.seq, redact(str(problem)))
                self.timeline.environment.sleep(0.05 * attempt)
        return slot

    def abandon(self) -> None:
        """Give up an attempt that has no slot: delete the files it registered, then its pending instant. Does nothing
        once a slot may exist, nor for actions that leave nothing before their slot.

        No slot is needed to say so: nobody but this attempt could have completed it. A failure here is no harm, files
        are swept later.
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
            log.warning("instant %s: clean-up failed: %s", self.instant, redact(str(problem)))


def _features(draft: SlotDraft) -> list[str]:
    """What a reader of the slot must know beside what its writer says."""
    found = [COLUMNS] if draft.columns or any(file.schema for file in draft.files) else []
    return [*found, *features(draft.files)]


__all__ = ["Conflict", "Draft", "SlotDraft", "Transaction"]
