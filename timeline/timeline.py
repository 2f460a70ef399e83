"""Timeline of a table, which lists its commits.

Every writer and table service commits through `TableTimeline.attempt`, which runs the steps of a transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from hoodoo.errors import AlreadyCommitted, PositionError, StoreDenied, StoreFull, StoreRefused, UnsupportedTable
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.storage.store import Store
from hoodoo.timeline.columns.rewrites import require_current_names
from hoodoo.timeline.commits.draft import SlotDraft
from hoodoo.timeline.commits.retry import HOUSEKEEPING, RetrySettings
from hoodoo.timeline.commits.turn_request import FairnessPauses
from hoodoo.timeline.environment import SYSTEM, Environment, in_order
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.external_history import CompletedInstant, list_unimported_commits, unknown_plans
from hoodoo.timeline.hudi.hudi_lock import hudi_lock
from hoodoo.timeline.hudi.publish import NOTHING, ExternalRollback, Publisher, was_published
from hoodoo.timeline.hudi.undo import undo_rolled_back_commits
from hoodoo.timeline.instant import COMPACTION, RESTORE, ROLLBACK, WRITES, Instant, State
from hoodoo.timeline.layout import CLAIMS, HUDI_HEARTBEATS
from hoodoo.timeline.slots.slot import COMPLETED, ROLLED_BACK, Slot, strict_json
from hoodoo.timeline.state import TableState, read_table_state
from hoodoo.timeline.views.view import PendingCompaction, View

if TYPE_CHECKING:
    from hoodoo.timeline.commits.transaction import Draft, Transaction

_CLOCK_MS = 900_000  # maximum difference from the store's clock, as in S3


class TableTimeline:
    """Timeline of a table, which lists its commits.

    `entry_keys` returns the key hashes of an index entry. `adopt` imports a commit of another engine as slots.
    """

    def __init__(
        self,
        store: Store,
        entry_keys: Callable[[str], np.ndarray],
        environment: Environment = SYSTEM,
        adopt: Callable[[CompletedInstant], None] | None = None,
    ) -> None:
        self.store, self.entry_keys, self.environment = store, entry_keys, environment
        self.adopt = adopt or _refuse_external_commit
        # on a local disk, a request is faster than starting a thread
        self.history = History(store, environment.together if store.lists_by_prefix else in_order)
        self.publisher = Publisher(store, self.history)
        self.fairness = FairnessPauses(store, environment)
        self._known: TableState | None = None

    def look(self, properties: bool = True) -> TableState:
        """Read the current state of the table.

        Args:
            properties: False does not read the properties file again, which is sufficient for readers. Default True.

        Raises:
            TableReplaced: The store contains a different table than before.
            TableNotFound: The table does not exist.
        """
        state = self._known = read_table_state(self.history, self._known, properties)
        return state

    def last_state(self) -> TableState:
        return self._known or self.look()

    def prepare_for_write(self) -> TableState:
        """Prepare the table for a write.

        Returns its state. Slots of crashed writers are published to Hudi's timeline. Commits of other engines become
        slots, and so do compaction plans of Apache Hudi if it writes concurrently. Raises UnsupportedTable if a commit
        cannot be adopted.
        """
        while True:
            state = self.look()
            if not self._publish_through(state):
                continue
            plans = unknown_plans(self.store, state.view, state.names) if state.config.options.hudi_writers else []
            external = state.external and (
                list_unimported_commits(self.history) or state.external
            )  # unfinished adoptions first
            if not (external := external or plans):
                return state
            self.adopt(external[0])

    @contextmanager
    def attempt(
        self,
        action: str,
        requested: bytes = NOTHING,
        inflight: bytes | Callable[[View], bytes] = NOTHING,
        state: TableState | None = None,
        mends: bool = False,
    ) -> Iterator[Transaction]:
        """Run one attempt at a commit.

        The requested and inflight files of a write are written before the body runs. If the body ends without a slot
        (`attempt.slot`) or raises, the attempt is abandoned: its registered files and its instant are deleted.

        Args:
            action: The action of the instant.
            requested: The content of the requested file.
            inflight: The content of the inflight file, or a function that returns it for the base view. The function
                may raise Conflict if no work is left.
            state: The state to start from. None (default): the current state.
            mends: True if the attempt rewrites the files that `require_current_names` rejects. Default False.

        Raises:
            RewriteNeeded: Files must be rewritten before hoodoo can commit.
            UnsupportedTable: A commit of another engine cannot be adopted.
        """
        if not mends and (action in WRITES or action == COMPACTION):
            state = state or self.prepare_for_write()
            require_current_names(state.config, state.view)
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
    def resume_compaction(self, plan: PendingCompaction) -> Iterator[Transaction]:
        """Run one attempt to complete a planned compaction.

        Several workers may try at the same time, and only one of them completes the plan. Files of a failed attempt are
        kept, so that the next attempt can use them.
        """
        state = self.prepare_for_write()
        require_current_names(state.config, state.view)
        from hoodoo.timeline.commits.transaction import Transaction

        transaction = Transaction(self, state, COMPACTION, plan.instant, self.environment.token())
        transaction.start(NOTHING)
        yield transaction

    def settle(self, action: str, draft: Draft, state: TableState | None = None) -> Slot:
        """Commit a change without data files.

        An example is a savepoint.

        Args:
            action: The action of the instant.
            draft: The content of the slot.
            state: The state for the first attempt. None (default): the current state.

        Raises:
            CommitConflict: The retries are exhausted. Exceptions of `Transaction.complete` are raised, too.
        """
        begun = iter([state])

        def once() -> Slot:
            with self.attempt(action, state=next(begun, None)) as attempt:
                return attempt.complete(draft)

        return HOUSEKEEPING.run(self.environment, once)

    def begin(self, action: str, requested: bytes = NOTHING, state: TableState | None = None) -> Transaction:
        state = state or self.prepare_for_write()
        self._require_right_clock()
        nonce = self.environment.token()
        instant = self._claim(action, nonce, state.view)
        if action in WRITES:  # the requested files of other actions are written after their slot
            if state.config.options.hudi_writers:
                self.store.write_once(f"{HUDI_HEARTBEATS}{instant}", NOTHING, durable=False)
            self.store.write_once(Instant(instant, action, State.REQUESTED).key, requested, durable=False)
        from hoodoo.timeline.commits.transaction import Transaction

        return Transaction(self, state, action, instant, nonce)

    def _require_right_clock(self) -> None:
        # Instants only grow, so one instant in the future would shift the later instants of all writers.
        store_ms = self.store.clock_ms()
        if store_ms is not None and abs(difference := self.environment.now_ms() - store_ms) > _CLOCK_MS:
            raise StoreRefused(
                f"Clock of this machine differs by {difference / 60_000:+.0f} min from the store's clock. Nothing was "
                "written. Correct the clock.",
                off_ms=difference,
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
        """Heal the table after crashes and external rollbacks.

        Commits of crashed writers are published, and commits that another engine rolled back are undone.
        """
        while not self._publish_through(state := self.look()):
            continue
        return state

    def _publish_through(self, state: TableState) -> bool:
        # Returns False if another engine rolled back one of the slots, and a new slot has undone it.
        shared: AbstractContextManager[None] = nullcontext()
        config = state.config
        if (
            config.options.hudi_writers
            and config.metadata_partitions
            and self.publisher.has_unpublished(state.view.seq, state.names)
        ):
            # its metadata table and the properties are Hudi's too, which changes them under its lock
            shared = hudi_lock(self.store, self.environment, config.options.commit_timeout_seconds)
        try:
            with shared:
                self.publisher.publish_through(state.view.seq, config, names=state.names)
        except ExternalRollback as gone:
            if not any(instant.action == RESTORE for instant in state.external):
                undo_rolled_back_commits(self.history, gone.slot)
                return False  # but a restore, which the next write adopts as a whole
        return True

    def find_commit_action(self, instant: str) -> str:
        """Find the action of a commit.

        An example is 'deltacommit'. Raises PositionError if hoodoo did not start the instant, or its claim was
        archived.
        """
        try:
            return str(strict_json(self.store.get(CLAIMS + instant), CLAIMS + instant)["action"])
        except FileNotFoundError:
            raise PositionError(
                f"Instant {instant} does not exist in this table. List all instants with inspect.timeline().",
                instant=instant,
            ) from None

    def rollback(self, instant: str) -> Slot:
        """Roll back a pending commit and delete its files.

        Any writer may have started it. Only the process that commits the rollback slot deletes files. A slow writer
        finds the slot and cannot commit.

        Raises:
            AlreadyCommitted: The instant is completed or rolled back.
            PositionError: The instant is unknown, or is a compaction plan.
        """
        action = self.find_commit_action(instant)
        if action == COMPACTION:
            raise PositionError(
                f"Instant {instant} is a compaction plan, which cannot be rolled back. Run compact() to complete it.",
                instant=instant,
            )
        if action not in WRITES:
            raise PositionError(
                f"Instant {instant} is a {action}, but only writes can be rolled back.", instant=instant
            )
        return self._fence(instant, action)

    def resolve(self, instant: str, nonce: str = "") -> bool:
        """Find out whether a write was committed.

        False is final: a pending instant is rolled back, so that a delayed request cannot complete it later. Only the
        plan of a compaction stays open, and may be completed later.

        Args:
            instant: The instant of the commit.
            nonce: The nonce of the attempt, which identifies one of several runs of a compaction. '' (default): any.

        Raises:
            StoreUnavailable: The store did not respond.
            CommitUnknown: The outcome is still unknown.
        """
        try:
            action = self.find_commit_action(instant)
        except PositionError:
            if instant >= instant_of_ms(self.history.slot(self.history.oldest_slot()).completed_at):
                raise
            return was_published(self.store, instant)  # its claim was archived, so it is too old to complete
        if action == COMPACTION:
            head = self.history.head()
            slots = self.history.slots(self.history.find_last_completed_by(ms_of_instant(instant)) - 1, head.seq)
            return any(
                slot.instant == instant and slot.outcome == COMPLETED and slot.nonce == (nonce or slot.nonce)
                for slot in slots
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
                # the target may have completed before this rollback began, so check all slots newer than the target
                attempt.detect_conflicts_since(self.history.newest_before(ms_of_instant(instant)))
                return attempt.complete(draft)

        return RetrySettings(spent=f"Instant {instant} is still pending. Try again.").run(self.environment, once)


def _refuse_external_commit(found: CompletedInstant) -> None:
    raise UnsupportedTable(
        f"Instant {found.time} was committed by another engine after the table was opened. Open the table again.",
        instant=found.time,
    )
