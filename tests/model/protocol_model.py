"""The commit protocol (docs/protocol.md) as a model whose every reachable state is visited.

Modelled: write-once slots; PUTs that land late, twice or after their sender died, and whose replies may be lost;
crashes at every step; rollback by a failure detector that may be wrong at any time; an archiver that deletes slots;
schema changes; compaction by several workers; tasks that run in several attempts. There is no clock in it. Left out:
what a Hudi reader sees (hudi_view_model.py), leases, cleaning.

A rule of the protocol can be dropped by name (RULES); the exploration must then reach a state that breaks an invariant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from protocol_invariants import Invariants
from protocol_terms import (
    DEAD,
    DONE,
    IDLE,
    RULES,
    Actor,
    DataPut,
    Entry,
    File,
    Kind,
    Outcome,
    Process,
    Put,
    Role,
    State,
    Transaction,
    plan_slot,
)

Step = tuple[tuple[object, ...], State]


@dataclass(frozen=True)
class Found:
    """The end of an exploration: states visited, and the shortest way to a state that breaks an invariant, if there is
    one.
    """

    states: int
    broken: str = ""
    trace: tuple[str, ...] = ()


class Model:
    """The transitions of one configuration.

    crashes=False leaves out the step to `dead`: a process that crashes is one that takes no further step, and nobody
    reacts to its death, so that every such state is visited anyway. dropped: a key of RULES.
    """

    def __init__(
        self, *transactions: Transaction, archiver: bool = False, crashes: bool = True, dropped: str = ""
    ) -> None:
        assert not dropped or dropped in RULES
        self.transactions, self.archiver, self.crashes, self.dropped = transactions, archiver, crashes, dropped
        self.actors = tuple(self._actors())
        self.invariants = Invariants(self.transactions, self.actors)
        self.before = tuple(
            max(
                (j for j in range(i) if other.role is not Role.ROLLBACK and self.actors[j].sort == other.sort),
                default=-1,
            )
            for i, other in enumerate(self.actors)
        )

    def _actors(self) -> Iterator[Actor]:
        sorts: list[tuple[Role, Transaction]] = []

        def sort(role: Role, transaction: Transaction) -> int:
            if (role, transaction) not in sorts:
                sorts.append((role, transaction))
            return sorts.index((role, transaction))

        for number, one in enumerate(self.transactions):
            yield Actor(Role.PLANNER if one.kind is Kind.COMPACTION else Role.WRITER, number, sort(Role.WRITER, one))
        for number, one in enumerate(self.transactions):
            for _ in range(one.workers):
                yield Actor(Role.WORKER, number, sort(Role.WORKER, one))
        for number, one in enumerate(self.transactions):
            if one.rollback:
                yield Actor(Role.ROLLBACK, number, -1)

    def keeps(self, rule: str) -> bool:
        return self.dropped != rule

    def start(self) -> State:
        return State((), 0, 0, frozenset(), (IDLE,) * len(self.actors), frozenset(), frozenset())

    # ---- every step that may come next
    def steps(self, state: State) -> Iterator[Step]:
        for message in state.network:
            yield from (
                self._deliver_data(state, message) if isinstance(message, DataPut) else self._deliver(state, message)
            )
        for number, process in enumerate(state.processes):
            if process.step in ("done", "dead"):
                continue
            if self.crashes and process.step != "idle":
                yield (number, "crashes"), self._moved(state, number, DEAD)
            yield from getattr(self, f"_{process.step}")(state, number, process)
        if self.archiver and state.head and not state.watermark:
            yield ("archiver writes checkpoint and watermark",), self._purged(state._replace(watermark=state.head))
        if state.watermark and not state.deleted:
            yield ("archiver deletes slots",), self._purged(state._replace(deleted=state.watermark))

    def _moved(
        self,
        state: State,
        number: int,
        process: Process,
        network: frozenset[Put | DataPut] | None = None,
        files: frozenset[File] | None = None,
    ) -> State:
        slots, deleted, watermark, old_network, processes, old_files, marked = state
        processes = (*processes[:number], process, *processes[number + 1 :])
        return State(
            slots,
            deleted,
            watermark,
            old_network if network is None else network,
            processes,
            old_files if files is None else files,
            marked,
        )

    # ---- the store
    def _deliver(self, state: State, put: Put) -> Iterator[Step]:
        """The PUT reaches the store; the reply reaches a sender that waits, or is lost."""
        slots, slot = state.slots, put.slot
        if not self.keeps("slots are numbered in one sequence"):  # only its own key may be taken
            slot = 1 if put.entry in slots else state.head + 1
        if slot > state.head + 1:
            return
        created = slot <= state.deleted or slot == state.head + 1
        if slot == state.head + 1:
            slots = (*slots, put.entry)
        rest = state.network - {put}
        process = state.processes[put.actor]
        landed = self._purged(state._replace(slots=slots, network=rest))
        yield (put.actor, f"PUT of slot {slot} lands, created: {created}, reply lost"), landed
        if process.step == "wait" and process.target == put.slot:
            heard = process._replace(step="won" if created else "refused")
            yield (put.actor, f"PUT of slot {slot} lands, created: {created}"), self._moved(landed, put.actor, heard)

    def _purged(self, state: State) -> State:
        """Without PUTs that can change nothing any more. Who waits for the reply of one times out, looks, and finds the
        same.
        """
        inert = {
            put
            for put in state.network
            if (self._inert_data(put, state) if isinstance(put, DataPut) else self._inert(put, state))
        }
        return state._replace(network=state.network - inert) if inert else state

    def _inert(self, put: Put, state: State) -> bool:
        if put.slot > state.head or not self.keeps("slots are numbered in one sequence"):
            return False
        if put.slot <= state.deleted:
            return state.processes[put.actor].target != put.slot  # the store takes it, no reader ever looks there
        return not self.archiver or 0 < state.watermark < put.slot

    def _inert_data(self, put: DataPut, state: State) -> bool:
        one = self.transactions[put.file.transaction]
        stays = (
            not one.rollback
            and self.keeps("a worker that loses deletes nothing")
            and self.keeps("a data file is created once")
        )
        return stays and any(file[:2] == put.file[:2] for file in state.files)

    def _deliver_data(self, state: State, put: DataPut) -> Iterator[Step]:
        network, files, wanted = state.network - {put}, state.files, put.file
        there = next((file for file in files if file[:2] == wanted[:2]), None)
        if there and not self.keeps("a data file is created once"):
            files, there = files - {there}, None
        file = there or wanted
        landed = self._purged(state._replace(network=network, files=files | {file}))
        yield (
            (put.actor, f"attempt {wanted.digest} writes its file, created: {there is None}, but does not report"),
            landed,
        )
        process = state.processes[put.actor]
        if process.step == "write":
            reported = process._replace(step="scan", digest=file.digest)
            yield (
                (put.actor, f"attempt {wanted.digest} reports digest {file.digest}"),
                self._moved(landed, put.actor, reported),
            )

    # ---- processes, by step
    def _idle(self, state: State, number: int, process: Process) -> Iterator[Step]:
        actor = self.actors[number]
        if actor.role is Role.ROLLBACK:
            yield from self._suspect(state, number)
            return
        if self.before[number] >= 0 and state.processes[self.before[number]].step == "idle":
            return
        base, head, files = state.head, state.head, state.files
        one = self.transactions[actor.transaction]
        if actor.role is Role.WORKER:
            plan = plan_slot(state.slots, actor.transaction)
            if not plan:
                return
            base, head = state.slots[plan - 1].base, plan
        attempts = self._attempts(actor)
        if actor.role is Role.WRITER and not attempts:
            files = files | {File(actor.transaction, 0, 1)} if one.kind is not Kind.SCHEMA else files
        begun = Process("write" if attempts else "scan", base, head, digest=0 if one.kind is Kind.SCHEMA else 1)
        yield (number, f"{actor.role} begins on slot {base}"), self._moved(state, number, begun, files=files)

    def _attempts(self, actor: Actor) -> int:
        return (
            1
            if actor.role is Role.WORKER
            else 0
            if actor.role is Role.PLANNER
            else self.transactions[actor.transaction].attempts
        )

    def _suspect(self, state: State, number: int) -> Iterator[Step]:
        """Somebody takes the transaction for dead, rightly or not."""
        transaction = self.actors[number].transaction
        owner = next(i for i, actor in enumerate(self.actors) if actor.transaction == transaction)
        if state.processes[owner].step == "idle":
            return
        committed = any(entry[:2] == (Outcome.COMPLETED, transaction) for entry in state.slots)
        if not self.keeps("a rollback takes a slot"):
            if not committed:
                yield (number, "finds no commit"), self._moved(state, number, Process("delete"))
        elif not self.keeps("a rollback is found in the sequence"):
            if not committed:
                yield (
                    (number, "leaves a marker"),
                    self._moved(state._replace(marked=state.marked | {transaction}), number, Process("mark")),
                )
        else:
            yield (number, "begins a rollback"), self._moved(state, number, Process("scan"))

    def _mark(self, state: State, number: int, process: Process) -> Iterator[Step]:
        committed = any(entry[:2] == (Outcome.COMPLETED, self.actors[number].transaction) for entry in state.slots)
        yield (number, "looks again"), self._moved(state, number, DONE if committed else Process("delete"))

    def _write(self, state: State, number: int, process: Process) -> Iterator[Step]:
        """The driver launches attempts of its task, several at a time; a later attempt may find the file of an earlier
        one.
        """
        actor = self.actors[number]
        token = 0
        if actor.role is Role.WORKER and not self.keeps("the plan names the output"):
            token = number
        if actor.role is Role.WRITER and not self.keeps("attempts of a task share a name"):
            token = process.launched
        there = next((file for file in state.files if file[:2] == (actor.transaction, token)), None)
        if there and self.keeps("a data file is created once"):
            yield (
                (number, "an attempt finds the file"),
                self._moved(state, number, process._replace(step="scan", digest=there.digest)),
            )
        elif process.launched < self._attempts(actor):
            content = 10 * number + process.launched + 1
            put = DataPut(number, File(actor.transaction, token, content))
            launched = process._replace(launched=process.launched + 1)
            yield (
                (number, f"attempt {content} starts"),
                self._moved(state, number, launched, network=state.network | {put}),
            )

    def _scan(self, state: State, number: int, process: Process) -> Iterator[Step]:
        """Read every slot since the last look."""
        actor, verdict, head = self.actors[number], "", state.head
        if process.checked < state.deleted:
            verdict = "archived"
        for seq in range(process.checked + 1, head + 1):
            verdict = verdict or self._judge(number, process, seq, state.slots[seq - 1], state)
        if not self.keeps("a rollback is found in the sequence") and actor.transaction in state.marked:
            verdict = verdict or "fenced"
        if not verdict and self._under_plan(actor, state):
            verdict = "conflict"
        label = (number, f"reads slots up to {head}: {verdict or 'clear'}")
        if not verdict:
            yield label, self._moved(state, number, process._replace(step="put", checked=head, target=head + 1))
        elif actor.role is Role.ROLLBACK:
            yield label, self._moved(state, number, Process("delete") if verdict in ("mine", "fenced") else DONE)
        elif verdict == "beaten" and not self.keeps("a worker that loses deletes nothing"):
            yield label, self._moved(state, number, Process("delete"))
        else:
            yield label, self._moved(state, number, self._ended(actor, verdict))

    def _ended(self, actor: Actor, verdict: str) -> Process:
        """What an owner does that cannot go on: say so, and where it has failed for good delete its files. No slot is
        needed for that.
        """
        unknown = verdict == "archived" and self.keeps("an archived slot is no failure")
        told = (
            "ok"
            if verdict == "mine" and self.keeps("a refused PUT may be ours")
            else "unknown"
            if unknown
            else "failed"
        )
        tidies = told == "failed" or (told == "unknown" and not self.keeps("who does not know deletes nothing"))
        return Process("delete" if tidies and actor.role is Role.WRITER else "done", told=told)

    def _judge(self, number: int, process: Process, seq: int, entry: Entry, state: State) -> str:
        """What slot `seq` means for the transaction of this process; '' is nothing."""
        actor = self.actors[number]
        if entry.owner == number:
            return "mine"
        if entry.transaction == actor.transaction:
            if entry.outcome is Outcome.ROLLED_BACK:
                return "fenced"
            if entry.outcome is Outcome.COMPLETED:
                return "beaten"  # a rollback: it is committed; a worker: another one was faster
        if actor.role in (Role.ROLLBACK, Role.WORKER) or seq <= process.base:
            return ""
        if actor.role is Role.PLANNER:
            return "conflict" if self.keeps("a plan is decided as of the slot before it") else ""
        return "conflict" if self.conflict(self.transactions[actor.transaction].kind, entry) else ""

    def conflict(self, mine: Kind, entry: Entry) -> bool:
        """May a transaction of kind `mine`, begun before `entry`, not come after it? First committer wins."""
        other = self.transactions[entry.transaction].kind
        if entry.outcome is Outcome.ROLLED_BACK:
            return False
        if entry.outcome is Outcome.PLANNED:
            return False  # whether it is open still, _under_plan asks
        if other is Kind.SCHEMA:
            return self.keeps("a schema change conflicts")
        return mine is Kind.REWRITE and not (
            other is Kind.COMPACTION and not self.keeps("nothing is rewritten under a plan")
        )

    def _under_plan(self, actor: Actor, state: State) -> bool:
        """Is there an open plan that forbids what this writer does? A plan older than its base counts as well."""
        if (
            actor.role is not Role.WRITER
            or self.transactions[actor.transaction].kind is not Kind.REWRITE
            or not self.keeps("nothing is rewritten under a plan")
        ):
            return False
        planned = {entry.transaction for entry in state.slots if entry.outcome is Outcome.PLANNED}
        return bool(planned - {entry.transaction for entry in state.slots if entry.outcome is Outcome.COMPLETED})

    def _entry(self, number: int, process: Process) -> Entry:
        actor = self.actors[number]
        outcome = {Role.ROLLBACK: Outcome.ROLLED_BACK, Role.PLANNER: Outcome.PLANNED}.get(actor.role, Outcome.COMPLETED)
        return Entry(outcome, actor.transaction, number, process.base, process.digest)

    def _put(self, state: State, number: int, process: Process) -> Iterator[Step]:
        put = Put(number, process.target, self._entry(number, process), False)
        sent = self._purged(state._replace(network=state.network | {put}))
        yield (number, f"sends slot {process.target}"), self._moved(sent, number, process._replace(step="wait"))

    def _wait(self, state: State, number: int, process: Process) -> Iterator[Step]:
        yield (number, "times out"), self._moved(state, number, process._replace(step="unclear"))

    def _won(self, state: State, number: int, process: Process) -> Iterator[Step]:
        if process.target <= state.watermark and self.keeps("the watermark is read after success"):
            yield (
                (number, "finds its slot below the watermark"),
                self._moved(state, number, process._replace(step="scan", target=0)),
            )
        elif self.actors[number].role is Role.ROLLBACK:
            yield (number, "has rolled back"), self._moved(state, number, Process("delete"))
        else:
            yield (number, "says ok"), self._moved(state, number, DONE._replace(told="ok"))

    def _refused(self, state: State, number: int, process: Process) -> Iterator[Step]:
        """412: another's slot, or an own PUT that came through earlier."""
        ours = state.deleted < process.target <= state.head and state.slots[process.target - 1].owner == number
        if ours and self.keeps("a refused PUT may be ours"):
            yield (number, "was refused by its own slot"), self._moved(state, number, process._replace(step="won"))
            return
        checked = process.checked if self.keeps("every slot is read before the next is tried") else state.head
        yield (
            (number, "lost the slot"),
            self._moved(state, number, process._replace(step="scan", target=0, checked=checked)),
        )

    def _unclear(self, state: State, number: int, process: Process) -> Iterator[Step]:
        """No answer: look, or send the same bytes to the same slot again, or give up without a verdict."""
        rollback = self.actors[number].role is Role.ROLLBACK
        if not self.keeps("a timeout is no failure") and not rollback:
            yield (
                (number, "takes the timeout for a failure"),
                self._moved(state, number, DONE._replace(told="failed")),
            )  # its files stay
        elif state.deleted < process.target <= state.head:
            yield (number, "looks at the slot"), self._moved(state, number, process._replace(step="refused"))
        else:
            put = Put(number, process.target, self._entry(number, process), True)
            yield (
                (number, f"sends slot {process.target} again"),
                self._moved(state, number, process._replace(step="wait"), network=state.network | {put}),
            )
            yield (
                (number, "gives up, outcome unknown"),
                self._moved(state, number, DONE if rollback else DONE._replace(told="unknown")),
            )

    def _delete(self, state: State, number: int, process: Process) -> Iterator[Step]:
        left = frozenset(file for file in state.files if file.transaction != self.actors[number].transaction)
        yield (
            (number, "deletes the files of its transaction"),
            self._moved(state, number, DONE._replace(told=process.told), files=left),
        )

    # ---- all of it
    def explore(self, states_max: int = 2_000_000) -> Found:
        """Visit every reachable state, nearest first, until one breaks an invariant."""
        first = self.start()
        came: dict[State, tuple[State, tuple[object, ...]] | None] = {first: None}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for label, following in self.steps(state):
                if following in came:
                    continue
                came[following] = state, label
                if why := self.invariants.broken(following):
                    return Found(len(came), why, tuple(self._way(came, following)))
                if len(came) > states_max:
                    raise RuntimeError(f"more than {states_max:,} states")
                queue.append(following)
        return Found(len(came))

    def _way(self, came: dict[State, tuple[State, tuple[object, ...]] | None], state: State) -> list[str]:
        way = []
        while step := came[state]:
            state, label = step
            actor = self.actors[label[0]] if isinstance(label[0], int) else None
            way.append(f"{actor.role} {label[0]} {label[1]}" if actor else str(label[0]))
        return way[::-1]
