"""A transaction: claim, requested, inflight, slot, publication. The one place where these steps are ordered.

    begin      the instant is claimed by put-if-absent and is larger than the head's completion time (rule 2)
    start      data files may be written from here on, under names that carry the instant
    complete   THE atomic step: the slot after the head, by put-if-absent, once no slot since the base conflicts
    publish    Hudi's completed instant, after every earlier slot's

Crash before the slot: nothing happened; files under the instant are orphans that a sweep deletes.
Crash after the slot: it happened; the next to open the table publishes it.
An unknown reply is resolved by nonce; it is never taken for a failure.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import fields

import numpy as np

from hoodoo.errors import (
    AlreadyCommitted,
    CommitConflict,
    CommitUnknown,
    Fenced,
    HoodooError,
    PositionError,
    SnapshotExpired,
    StoreRefused,
    StoreUnavailable,
    UnsupportedTable,
)
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.storage.redact import redact
from hoodoo.storage.store import REFUSALS, Store
from hoodoo.timeline import keyset, watermark
from hoodoo.timeline.conflicts import conflict, under_plan
from hoodoo.timeline.environment import SYSTEM, Environment
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.foreign import CompletedInstant, unfinished_adoptions, unknown_plans
from hoodoo.timeline.hudi.neighbour import Heartbeat, hudi_lock
from hoodoo.timeline.hudi.publish import NOTHING, SLOW_WRITE_MS, Publisher, TakenBack, remove_markers, was_published
from hoodoo.timeline.hudi.undo import undo
from hoodoo.timeline.instant import COMPACTION, RESTORE, ROLLBACK, WRITES, Instant, State
from hoodoo.timeline.layout import CLAIMS, HUDI_HEARTBEATS, MARKERS, slot_key
from hoodoo.timeline.slot import COMPLETED, PLANNED, ROLLED_BACK, Slot, encode, sha, strict_json
from hoodoo.timeline.slot_body import Conflict, SlotBody
from hoodoo.timeline.state import TableState, look
from hoodoo.timeline.view import Plan, View

log = logging.getLogger("hoodoo.timeline")
_PUBLISH_ATTEMPTS = 4
_SETTLE_ATTEMPTS = 20
_CLOCK_MS = 900_000  # as far off as S3 itself lets a client be


class Timeline:
    """Everything that changes one table's commit sequence. entry_keys: gives the key hashes of an index entry; adopt:
    takes up another engine's commit.
    """

    def __init__(
        self,
        store: Store,
        entry_keys: Callable[[str], np.ndarray],
        environment: Environment = SYSTEM,
        adopt: Callable[[CompletedInstant], None] | None = None,
    ) -> None:
        self.store, self.entry_keys, self.environment = store, entry_keys, environment
        self.adopt = adopt or _refuse
        self.history = History(store)
        self.publisher = Publisher(store, self.history)
        self._known: TableState | None = None

    def look(self, properties: bool = True) -> TableState:
        """The state of the table now; properties: read them anew, which a reader need not. Raises TableReplaced where
        another took its place, TableNotFound.
        """
        state = self._known = look(self.history, self._known, properties)
        return state

    def known(self) -> TableState:
        """The newest state that this process has seen, without a look at the store."""
        return self._known or self.look()

    def ready(self) -> TableState:
        """The state that a write may go on from: what crashed writers left unpublished is published, what another
        engine committed, or planned where it works beside us, is adopted. Raises UnsupportedTable where a commit would
        be invisible to others.
        """
        while True:
            state = self.look()
            state.config.require_no_metadata_table()
            if not self._publish_through(state):
                continue
            plans = unknown_plans(self.store, state.view, state.names) if state.config.options.hudi_writers else []
            found = state.foreign and (unfinished_adoptions(self.history) or state.foreign)  # what was archived first
            if not (found := found or plans):
                return state
            self.adopt(found[0])

    def begin(self, action: str, requested: bytes = NOTHING, state: TableState | None = None) -> Transaction:
        """Claim an instant on `state`, by default as it is now. Raises what ready() raises."""
        state = state or self.ready()
        self._require_right_clock()
        nonce = self.environment.token()
        instant = self._claim(action, nonce, state.view)
        if action in WRITES:  # what the other actions request is known, and published, only after their slot
            if state.config.options.hudi_writers:
                self.store.write_once(f"{HUDI_HEARTBEATS}{instant}", NOTHING, durable=False)
            self.store.write_once(Instant(instant, action, State.REQUESTED).key, requested, durable=False)
        return Transaction(self, state, action, instant, nonce)

    def settle(self, action: str, draft: SlotBody | Callable[[View], SlotBody | None]) -> Slot:
        """A slot that writes no files: begun and completed, again on a conflict. Raises CommitConflict, and what
        complete() raises.
        """
        for _ in range(_SETTLE_ATTEMPTS):
            try:
                return self.begin(action).complete(draft)
            except Conflict as conflict:
                why = str(conflict)
        raise CommitConflict(
            f"Other writers kept winning ({_SETTLE_ATTEMPTS} attempts; last: {why}). Nothing was changed. Try again.",
            retries=_SETTLE_ATTEMPTS,
        )

    def _require_right_clock(self) -> None:
        """Instants are taken from this machine's clock; one far ahead would drag every later instant with it."""
        theirs = self.store.clock_ms()
        if theirs is not None and abs(off := self.environment.now_ms() - theirs) > _CLOCK_MS:
            raise StoreRefused(
                f"This machine's clock is {off / 60_000:+.0f} min off the store's. Nothing was written; set the clock.",
                off_ms=off,
            )

    def resume(self, plan: Plan) -> Transaction:
        """An attempt at running `plan` under the plan's own instant: any number of workers may try, one completes."""
        state = self.ready()
        return Transaction(self, state, COMPACTION, plan.instant, self.environment.token())

    def _claim(self, action: str, nonce: str, view: View) -> str:
        moment = max(self.environment.now_ms(), view.completed_at + 1)
        while True:
            instant = instant_of_ms(moment)
            body = {"nonce": nonce, "action": action, "writer": self.environment.writer(), "table": view.table}
            try:
                self.store.write_once(CLAIMS + instant, json.dumps(body, sort_keys=True).encode())
                return instant
            except FileExistsError:
                moment += 1 + int(self.environment.fraction() * 5)

    def heal(self) -> TableState:
        """Publish what a crashed writer left unpublished, undo what another engine took back meanwhile; the state."""
        while not self._publish_through(state := self.look()):
            continue
        return state

    def _publish_through(self, state: TableState) -> bool:
        """Is every slot up to the head of `state` published? False: one was taken back, and a new slot undoes it."""
        try:
            self.publisher.publish_through(state.view.seq, state.config)
        except TakenBack as gone:
            if not any(found.action == RESTORE for found in state.foreign):
                undo(self.history, gone.slot)
                return False  # but a restore, which the next write adopts as a whole
        return True

    def claimed_action(self, instant: str) -> str:
        """The action a pending or completed instant was claimed for. Raises PositionError for one nobody claimed."""
        try:
            return str(strict_json(self.store.get(CLAIMS + instant), CLAIMS + instant)["action"])
        except FileNotFoundError:
            raise PositionError(
                f"No instant {instant} was ever begun on this table; look it up in timeline().", instant=instant
            ) from None

    def rollback(self, instant: str) -> Slot:
        """End the pending `instant` for good, whoever owns it, and delete its files. Raises AlreadyCommitted,
        PositionError.

        Only the winner of the rollback's slot deletes; a slow owner finds the slot and is fenced.
        """
        action = self.claimed_action(instant)
        if action == COMPACTION:
            raise PositionError(
                f"Instant {instant} is a compaction plan; a plan is run, never rolled back.", instant=instant
            )
        if action not in WRITES:
            raise PositionError(f"Instant {instant} is a {action}; only a write can be rolled back.", instant=instant)
        return self._fence(instant, action)

    def resolve(self, instant: str, nonce: str = "") -> bool:
        """Is the commit of `instant` there? False: it is not, and never will be. Settles what CommitUnknown left open.

        A pending one is fenced by a rollback slot, so that a request still under way cannot make it true later. Only a
        compaction is not
        fenced: `nonce` tells whose completion it was, and one that lands later does what its plan says. Raises
        StoreUnavailable, CommitUnknown.
        """
        try:
            action = self.claimed_action(instant)
        except PositionError:
            if instant >= instant_of_ms(self.history.slot(self.history.oldest_slot()).completed_at):
                raise
            return was_published(self.store, instant)  # its claim was archived: too old to complete any more
        if action == COMPACTION:
            head = self.history.head()
            found = self.history.slots(self.history.last_completed_by(ms_of_instant(instant)) - 1, head.seq)
            return any(
                slot.instant == instant and slot.outcome == COMPLETED and slot.nonce == (nonce or slot.nonce)
                for slot in found
            )
        try:
            self._fence(instant, action)
            return False
        except AlreadyCommitted as ended:
            return ended.details["outcome"] == COMPLETED

    def _fence(self, instant: str, action: str) -> Slot:
        draft = SlotBody("ROLLBACK", ROLLED_BACK, target=instant, target_action=action)
        for _ in range(_SETTLE_ATTEMPTS):
            transaction = self.begin(ROLLBACK)
            # The target may have completed before this rollback began: look at every slot that is newer than the target
            # itself.
            transaction._checked = self.history.newest_before(ms_of_instant(instant))
            try:
                return transaction.complete(draft)
            except Conflict:
                continue
        raise CommitConflict(
            f"Other writers kept winning; instant {instant} is still pending. Try again.", instant=instant
        )


def _refuse(found: CompletedInstant) -> None:
    raise UnsupportedTable(
        f"Another engine committed instant {found.time} to this table. Open it anew to go on.", instant=found.time
    )


class Transaction:
    """One attempt under one instant. `base` is the view it was begun on."""

    def __init__(self, timeline: Timeline, state: TableState, action: str, instant: str, nonce: str) -> None:
        self.timeline, self.config, self.base = timeline, state.config, state.view
        self.action, self.instant, self.nonce = action, instant, nonce
        self._checked = state.view.seq
        self._put_back = state.put_back
        self._tried = 0  # the newest slot that was put
        self._version = ""  # of that slot in the store, where it is known
        self._sealed = False  # a slot of ours may exist: from here on nothing of this attempt may be deleted
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

    def mark(self, path: str, kind: str) -> None:
        """Leave Hudi's marker for a data file about to be written, so that Hudi's own rollback of a dead attempt finds
        it.
        """
        self.store.write_once(f"{MARKERS}{self.instant}/{path}.marker.{kind}", NOTHING, durable=False)

    def complete(self, draft: SlotBody | Callable[[View], SlotBody | None]) -> Slot:
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
            return self._complete(draft, environment.elapsed() + options.commit_timeout_s)

    def _complete(self, draft: SlotBody | Callable[[View], SlotBody | None], deadline: float) -> Slot:
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

    def _try(self, draft: SlotBody | Callable[[View], SlotBody | None], deadline: float) -> Slot | None:
        """One look and, if nothing conflicts, one slot; our slot if it is there."""
        state = self.timeline.look()
        view = state.view
        current = draft(view) if callable(draft) else draft
        if current is None:
            raise Conflict("another worker did it")
        if mine := self._check(state, current):
            return mine
        slot = self._slot(view, current)
        self._sealed, self._tried = True, slot.seq
        if self._put(slot, deadline):
            if self._came_too_late(slot, deadline):
                return None  # an earlier request of ours may be among the archived slots: sealed for good
            self.timeline.history.took(slot, encode(slot), self._version)
            return slot
        self._sealed = slot.seq <= watermark.deleted_up_to(
            self.store
        )  # archived before we could look: it may have been ours
        return None

    def _came_too_late(self, slot: Slot, deadline: float) -> bool:
        """Did the slot land in the place of one that was archived? Then nobody reads it, and it does not count."""
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

    def _check(self, state: TableState, draft: SlotBody) -> Slot | None:
        """Judge every slot that came since the last look; our own slot if it is among them."""
        view, config = state.view, state.config
        if state.put_back != self._put_back:
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
            raise Conflict("a commit came between the plan and its instant")  # rule 5
        if self.action in WRITES and not state.has(Instant(self.instant, self.action, State.INFLIGHT)):
            raise Fenced(
                (
                    f"The inflight file of instant {self.instant} is gone: another engine rolled this write back. "
                    "Write again."
                ),
                instant=self.instant,
            )
        config.require_no_metadata_table()
        if config.options.hudi_writers and not self.config.options.hudi_writers:
            raise Conflict("Apache Hudi writes at the same time from now on")  # this attempt holds no lock of it
        if (config.schema, config.raw.get("hoodie.table.type")) != (
            self.config.schema,
            self.config.raw.get("hoodie.table.type"),
        ):
            raise Conflict("the table's configuration changed")
        return None

    def _since(self, after: int, up_to: int) -> Iterable[Slot]:
        try:
            return self.timeline.history.slots(after, up_to)
        except SnapshotExpired:
            if self._tried:
                raise self._unknown(self._tried) from None
            raise Conflict("the slots since its base were archived") from None

    def _judge(self, slot: Slot, draft: SlotBody) -> None:
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
                    f"Instant {draft.target} is completed (slot {slot.seq}); a completed instant is not rolled back.",
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

    def _slot(self, view: View, draft: SlotBody) -> Slot:
        own = ms_of_instant(self.instant)
        ended = ms_of_instant(
            draft.target or self.instant
        )  # whoever ends an instant later looks at the slots that completed after it
        completed_at = (
            own
            if draft.outcome == PLANNED
            else max(self.timeline.environment.now_ms(), view.completed_at + 1, own + 1, ended + 1)
        )
        named = {each.name: getattr(draft, each.name) for each in fields(SlotBody) if each.name != "touches"}
        return Slot(
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
            **named,
        )

    def _put(self, slot: Slot, deadline: float) -> bool:
        """Is the slot ours? An unknown outcome is resolved by looking, then by putting the same bytes again."""
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
                self.timeline.publisher.publish_through(slot.seq, self.config, new=slot.seq)
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
                log.warning("slot %d is committed but not yet published: %s", slot.seq, redact(str(problem)))
                self.timeline.environment.sleep(0.05 * attempt)
        return slot

    def abandon(self, files: Iterable[str] = ()) -> None:
        """Give up an attempt that has no slot: delete its data files, then its pending instant. Does nothing once a
        slot may exist.

        No slot is needed to say so: nobody but this attempt could have completed it. A failure here is no harm, files
        are swept later.
        """
        if self._heartbeat:
            self._heartbeat.stop()
        if self._sealed:
            return
        try:
            for path in files:
                self.store.delete(path)
            if self.action != COMPACTION:
                for state in (State.INFLIGHT, State.REQUESTED):
                    self.store.delete(Instant(self.instant, self.action, state).key)
            self._stop_beating()
            remove_markers(self.store, self.instant)
        except HoodooError:
            return


__all__ = ["Conflict", "SlotBody", "Timeline", "Transaction"]
