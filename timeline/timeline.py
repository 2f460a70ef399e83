"""Changes one table's commit sequence: reads the state that a write goes on from, makes attempts at a commit, and ends
instants that nobody completed.

`attempt` is the unit of work of every writer and table service, and the only door to a transaction's steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from hoodoo.errors import AlreadyCommitted, PositionError, StoreDenied, StoreFull, StoreRefused, UnsupportedTable
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.storage.store import Store
from hoodoo.timeline.columns.rewrites import require_names
from hoodoo.timeline.commits.draft import SlotDraft
from hoodoo.timeline.commits.plea import Courtesy
from hoodoo.timeline.commits.retry import HOUSEKEEPING, Retry
from hoodoo.timeline.commits.transaction import Draft, Transaction
from hoodoo.timeline.environment import SYSTEM, Environment, in_order
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.foreign import CompletedInstant, unfinished_adoptions, unknown_plans
from hoodoo.timeline.hudi.neighbour import hudi_lock
from hoodoo.timeline.hudi.publish import NOTHING, Publisher, TakenBack, was_published
from hoodoo.timeline.hudi.undo import undo
from hoodoo.timeline.instant import COMPACTION, RESTORE, ROLLBACK, WRITES, Instant, State
from hoodoo.timeline.layout import CLAIMS, HUDI_HEARTBEATS
from hoodoo.timeline.slots.slot import COMPLETED, ROLLED_BACK, Slot, strict_json
from hoodoo.timeline.state import TableState, look
from hoodoo.timeline.views.view import Plan, View

_CLOCK_MS = 900_000  # as far off as S3 itself lets a client be


class TableTimeline:
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
        # on a disk an answer is there sooner than a thread
        self.history = History(store, environment.together if store.lists_by_prefix else in_order)
        self.publisher = Publisher(store, self.history)
        self.courtesy = Courtesy(store, environment)
        self._known: TableState | None = None

    def look(self, properties: bool = True) -> TableState:
        """The state of the table now; properties: read them anew, which a reader need not. Raises TableReplaced where
        the store holds another table now, TableNotFound.
        """
        state = self._known = look(self.history, self._known, properties)
        return state

    def known(self) -> TableState:
        """The newest state that this process has seen, without a look at the store."""
        return self._known or self.look()

    def ready(self) -> TableState:
        """The state that a write may go on from: what crashed writers left unpublished is published, what another
        engine committed, or planned where it works beside us, is adopted. Raises UnsupportedTable where it cannot be.
        """
        while True:
            state = self.look()
            if not self._publish_through(state):
                continue
            plans = unknown_plans(self.store, state.view, state.names) if state.config.options.hudi_writers else []
            found = state.foreign and (unfinished_adoptions(self.history) or state.foreign)  # what was archived first
            if not (found := found or plans):
                return state
            self.adopt(found[0])

    @contextmanager
    def attempt(
        self,
        action: str,
        requested: bytes = NOTHING,
        inflight: bytes | Callable[[View], bytes] = NOTHING,
        state: TableState | None = None,
        mends: bool = False,
    ) -> Iterator[Transaction]:
        """One attempt at a commit under an instant of its own, claimed on `state`, by default as it is now.

        A write's requested and inflight instants are published before the body runs; `inflight` may depend on the view
        that the attempt goes on from, and raise Conflict where there is nothing to do on it. A body that ends without
        a slot (`attempt.slot`), or raises, is abandoned: the files it registered are deleted, then its instant. mends:
        files are written anew whose columns other engines know by ids only. Raises what ready() raises, RewriteNeeded.
        """
        if not mends and (action in WRITES or action == COMPACTION):
            state = state or self.ready()
            require_names(state.config, state.view)
        transaction: Transaction | None = None
        try:
            transaction = self.begin(action, requested, state)
            if action in WRITES:
                transaction.start(inflight(transaction.base) if callable(inflight) else inflight)
            yield transaction
        except (StoreFull, StoreDenied) as problem:
            if transaction and transaction.slot:
                raise
            raise type(problem)(f"{problem.message} Nothing was committed.", **problem.details) from None
        finally:
            if transaction and transaction.slot is None:
                transaction.abandon()

    @contextmanager
    def resume(self, plan: Plan) -> Iterator[Transaction]:
        """An attempt at running `plan` under the plan's own instant: any number of workers may try, one completes.
        What it wrote stays if it does not complete, for whoever runs the plan next.
        """
        state = self.ready()
        require_names(state.config, state.view)
        transaction = Transaction(self, state, COMPACTION, plan.instant, self.environment.token())
        transaction.start(NOTHING)
        yield transaction

    def settle(self, action: str, draft: Draft, state: TableState | None = None) -> Slot:
        """A slot that writes no files: begun and completed, again on a conflict. state: what the first try goes on
        from, by default the table as it is now. Raises CommitConflict, and what complete() raises.
        """
        begun = iter([state])

        def once() -> Slot:
            with self.attempt(action, state=next(begun, None)) as attempt:
                return attempt.complete(draft)

        return HOUSEKEEPING.run(self.environment, once)

    def begin(self, action: str, requested: bytes = NOTHING, state: TableState | None = None) -> Transaction:
        """The first step of an attempt: claim an instant on `state`, publish requested. Raises what ready() raises."""
        state = state or self.ready()
        self._require_right_clock()
        nonce = self.environment.token()
        instant = self._claim(action, nonce, state.view)
        if action in WRITES:  # what the other actions request is known, and published, only after their slot
            if state.config.options.hudi_writers:
                self.store.write_once(f"{HUDI_HEARTBEATS}{instant}", NOTHING, durable=False)
            self.store.write_once(Instant(instant, action, State.REQUESTED).key, requested, durable=False)
        return Transaction(self, state, action, instant, nonce)

    def _require_right_clock(self) -> None:
        """Instants are taken from this machine's clock; one far ahead would drag every later instant with it."""
        theirs = self.store.clock_ms()
        if theirs is not None and abs(off := self.environment.now_ms() - theirs) > _CLOCK_MS:
            raise StoreRefused(
                f"This machine's clock is {off / 60_000:+.0f} min off the store's. Nothing was written; set the clock.",
                off_ms=off,
            )

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
        """Publish every slot up to the head of `state`.

        Returns False where another engine took one of them back; a new slot undoes it then. Raises LockHeld.
        """
        shared: AbstractContextManager[None] = nullcontext()
        config = state.config
        if (
            config.options.hudi_writers
            and config.metadata_partitions
            and self.publisher.owes(state.view.seq, state.names)
        ):
            # its metadata table and the properties are Hudi's too, which changes them under its lock
            shared = hudi_lock(self.store, self.environment, config.options.commit_timeout_s)
        try:
            with shared:
                self.publisher.publish_through(state.view.seq, config, names=state.names)
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
        """Tell whether the commit of `instant` is in the table, which CommitUnknown left open.

        False means that it never will be: a pending instant is fenced by a rollback slot, so that a request still under
        way cannot complete it later. Only a compaction is not fenced; one that completes later does what its plan says.

        Args:
            instant: The instant of the commit.
            nonce: The nonce of the attempt, which tells the completions of one compaction apart; '' for any.

        Raises:
            StoreUnavailable: The store did not answer.
            CommitUnknown: It is still not known.
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
        draft = SlotDraft("ROLLBACK", ROLLED_BACK, target=instant, target_action=action)

        def once() -> Slot:
            with self.attempt(ROLLBACK) as attempt:
                # the target may have completed before this rollback began: every slot is looked at that is newer than
                # the target itself
                attempt.judge_since(self.history.newest_before(ms_of_instant(instant)))
                return attempt.complete(draft)

        return Retry(spent=f"Instant {instant} is still pending. Try again.").run(self.environment, once)


def _refuse(found: CompletedInstant) -> None:
    raise UnsupportedTable(
        f"Another engine committed instant {found.time} to this table. Open it anew to go on.", instant=found.time
    )
