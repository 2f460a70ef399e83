"""What must hold in every state of protocol_model.py, whatever rules it keeps. Knows slots, files and what callers were
told; no step.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol_terms import Actor, Entry, Kind, Outcome, Role, State, Transaction, plan_slot


class Invariants:
    def __init__(self, transactions: Sequence[Transaction], actors: Sequence[Actor]) -> None:
        self.transactions, self.actors = transactions, actors
        self._judged: dict[object, str] = {}

    def broken(self, state: State) -> str:
        """The invariant that `state` breaks, or ''. It is a matter of the slots, the files and what was told."""
        facts = state.slots, state.files, tuple(process.told for process in state.processes)
        if facts not in self._judged:
            self._judged[facts] = self._broken(state)
        return self._judged[facts]

    def _broken(self, state: State) -> str:
        completed: dict[int, tuple[int, Entry]] = {}
        ended: set[int] = set()
        for seq, entry in enumerate(state.slots, 1):
            if entry.outcome is Outcome.COMPLETED:
                if entry.transaction in completed:
                    return f"transaction {entry.transaction} is committed twice"
                completed[entry.transaction] = seq, entry
            elif entry.outcome is Outcome.ROLLED_BACK:
                ended.add(entry.transaction)
        if both := ended & completed.keys():
            return f"transaction {min(both)} is committed and rolled back"
        return (
            self._files_broken(state, completed)
            or self._told_broken(state, completed)
            or self._order_broken(state, completed)
        )

    def _files_broken(self, state: State, completed: dict[int, tuple[int, Entry]]) -> str:
        for transaction, (_, entry) in completed.items():
            there = [file for file in state.files if file.transaction == transaction]
            if entry.digest and not there:
                return f"transaction {transaction} is committed and its file is gone"
            if entry.digest and all(file.digest != entry.digest for file in there):
                return f"transaction {transaction} lists a digest that its file does not have"
            if len(there) > 1:
                return f"two files carry the committed instant of transaction {transaction}"
        return ""

    def _told_broken(self, state: State, completed: dict[int, tuple[int, Entry]]) -> str:
        for number, process in enumerate(state.processes):
            actor = self.actors[number]
            if not process.told:
                continue
            if actor.role is Role.PLANNER:
                visible = bool(plan_slot(state.slots, actor.transaction))
            else:
                visible = actor.transaction in completed and completed[actor.transaction][1].owner == number
            if process.told == "ok" and not visible:
                return f"{actor.role} {number} was told ok, but no reader sees it"
            if process.told == "failed" and visible:
                return f"{actor.role} {number} was told that it failed, but it is committed"
        return ""

    def _order_broken(self, state: State, completed: dict[int, tuple[int, Entry]]) -> str:
        """First committer wins, and the snapshot holds every completed write."""
        if len(completed) < 2:
            return ""
        order = sorted((seq, entry) for seq, entry in completed.values())
        for place, (_, later) in enumerate(order):
            for seq, earlier in order[:place]:
                if later.base < seq and self._must_conflict(later, earlier):
                    return (
                        f"transaction {later.transaction} on base {later.base} came over transaction "
                        f"{earlier.transaction} in slot {seq}"
                    )
        lost = {
            entry.transaction
            for _, entry in order
            if self.transactions[entry.transaction].kind in (Kind.REWRITE, Kind.DELTA)
        } - self._snapshot(state, order)
        return f"the update of transaction {min(lost)} is lost" if lost else ""

    def _must_conflict(self, later: Entry, earlier: Entry) -> bool:
        kinds = self.transactions[later.transaction].kind, self.transactions[earlier.transaction].kind
        return (
            (kinds[1] is Kind.SCHEMA and kinds[0] is not Kind.COMPACTION)
            or kinds == (Kind.REWRITE, Kind.REWRITE)
            or kinds == (Kind.REWRITE, Kind.DELTA)
        )

    def _snapshot(self, state: State, order: list[tuple[int, Entry]]) -> set[int]:
        """Transactions whose rows a reader finds: those in the newest base file, and the logs that it takes to lie over
        it.
        """
        found: set[int] = set()
        for seq, entry in order:
            kind = self.transactions[entry.transaction].kind
            if kind is Kind.DELTA:
                found.add(entry.transaction)
            elif kind is not Kind.SCHEMA:
                over = plan_slot(state.slots, entry.transaction) if kind is Kind.COMPACTION else seq
                inside = {other.transaction for at, other in order if at <= entry.base and at < seq}
                logs = {
                    other.transaction
                    for at, other in order
                    if over < at < seq and self.transactions[other.transaction].kind is Kind.DELTA
                }
                found = inside | logs | {entry.transaction}
        return found
