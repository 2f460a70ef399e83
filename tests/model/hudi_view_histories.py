"""Random histories of the table of hudi_view_model.py: which transactions there are, who moves next, who dies, who is
rolled back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from hudi_view_model import Broken, Record, Slot, Table
from hudi_view_transactions import DATA, Transaction

_STEPS_MAX = 400
_CHANGING = (
    "upsert upsert delete rename rename widen add",
    "upsert upsert rename widen add plan plan work work",
    "cow upsert overwrite cluster rename widen add plan work",
)
_CHANGING_EVERY = 4  # histories: in one of so many the columns change
_MIXES = (
    "upsert delete cow",
    "upsert cow delete plan plan work work",
    "upsert delete overwrite cluster plan work",
    "cow overwrite upsert clean savepoint restore",
    "upsert upsert cow delete delete overwrite cluster plan plan work work work savepoint restore clean",
)


class History:
    """One history, decided by its seed."""

    def __init__(self, seed: int, dropped: str = "") -> None:
        self.rng = rng = random.Random(seed)
        self.table, self.now = Table(dropped, rng), 10
        self.all_equal = rng.random() < 0.25  # all ordering values the same: as a table ordered by commit time
        mix = rng.choice(_MIXES if seed % _CHANGING_EVERY else _CHANGING).split()
        self.keys = "abc"[: rng.randint(1, 3)]
        self.transactions = [self._transaction(str(number), rng.choice(mix)) for number in range(rng.randint(2, 6))]

    def _transaction(self, name: str, kind: str) -> Transaction:
        rng = self.rng
        one = Transaction(name, kind, rng)
        one.part, one.keep = rng.randint(0, 1), rng.randint(0, 2)
        if kind != "overwrite" or rng.random() >= 0.4:
            one.records = [
                self._record(key, kind, name) for key in rng.sample(self.keys, min(len(self.keys), rng.randint(1, 2)))
            ]
        return one

    def _record(self, key: str, kind: str, name: str) -> Record:
        if kind == "delete" and self.rng.random() < 0.5:
            return Record(key, None, None)
        return Record(key, 1 if self.all_equal else self.rng.randint(1, 3), None if kind == "delete" else name)

    def run(self) -> str:
        """What broke, or ''."""
        try:
            self._begin()
            for _ in range(_STEPS_MAX):
                alive = [one for one in self.transactions if one.step not in ("stop", "dead")]
                if not alive and self.table.published == self.table.head:
                    break
                if self._step(alive):
                    self.table.check()
            self._check_end()
        except Broken as problem:
            return str(problem)
        return ""

    def _begin(self) -> None:
        """The table's creation and up to two transactions, all published."""
        table, rng = self.table, self.rng
        if table.keeps("created_first"):
            table.take(Slot("write", table.claim(1)), 2)
            table.publish()
        for number, kind in enumerate(("upsert", rng.choice(("upsert", "delete")))[: rng.randint(0, 2)]):
            one = self._transaction(f"s{number}", kind)
            while one.step != "stop":
                one.advance(table, self.now)
                self.now += 1
        while table.published < table.head:
            table.publish()

    def _step(self, alive: list[Transaction]) -> bool:
        """Somebody does something; False if nobody did."""
        table, rng = self.table, self.rng
        self.now += rng.choice((0, 1, 3))
        chance, one = rng.random(), rng.choice(alive) if alive else None
        if table.published < table.head and (chance < 0.3 or not alive):
            table.publish()
        elif one and chance < 0.33 and one.step != "begin":
            one.step = "dead"
        elif chance < 0.38 and (pending := self._pending()):
            self._roll_back(rng.choice(pending))
        elif chance < 0.42 and table.published:
            slot = table.slots[rng.randint(1, table.published)]
            if slot.kind != "clean":  # a slow helper publishes it once more
                table.show(slot)
        elif one:
            one.advance(table, self.now)
        else:
            return False
        return True

    def _pending(self) -> list[Transaction]:
        """Writes that somebody may take for dead, rightly or not."""
        return [
            one
            for one in self.transactions
            if one.step in ("write", "complete", "dead") and not one.fenced and one.kind in DATA
        ]

    def _roll_back(self, one: Transaction) -> None:
        one.fenced = True
        self.table.take(Slot("rollback", target=one.instant), self.now)

    def _check_end(self) -> None:
        """Every snapshot that may be read still reads as it was, and nobody is stuck. Raises Broken."""
        table = self.table
        for seq in {*range(table.readable, table.head + 1), *table.saved}:
            if table.ours(seq) != table.truth[seq]:
                raise Broken(f"slot {seq} reads {table.ours(seq)}, was {table.truth[seq]}")
        if any(one.step not in ("stop", "dead") for one in self.transactions):
            raise Broken("stuck")


def first_broken(seeds: Iterable[int], dropped: str = "") -> tuple[int, str] | None:
    """The first seed whose history breaks, and how."""
    for seed in seeds:
        if broken := History(seed, dropped).run():
            return seed, broken
    return None
