"""The words of protocol_model.py: transactions, actors, slots, files, messages, and the state of all of them. Knows no
step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a transaction does to the one file group of the model."""

    REWRITE = "rewrite"  # a new base file from everything up to its base
    DELTA = "delta"  # a log over whatever base there is
    SCHEMA = "schema"  # a slot with metadata=true
    COMPACTION = "compaction"  # a plan, then a new base file from the logs that it names


class Role(StrEnum):
    WRITER = "writer"
    PLANNER = "planner"
    WORKER = "worker"
    ROLLBACK = "rollback"


class Outcome(StrEnum):
    COMPLETED = "completed"
    PLANNED = "planned"
    ROLLED_BACK = "rolled back"


RULES = {
    "slots are numbered in one sequence": "complete, step 2: with a key of its own "
    "nothing makes check and creation one step",
    "every slot is read before the next is tried": "complete, step 1",
    "a refused PUT may be ours": "complete, step 3: 412 means unknown",
    "a timeout is no failure": "complete, step 3",
    "the watermark is read after success": "complete, step 3",
    "an archived slot is no failure": "archive: what cannot be read any more is unknown",
    "who does not know deletes nothing": "complete: an outcome that was archived before it was heard is unknown, "
    "and the files may be committed",
    "a rollback takes a slot": "rollback: deletion only after the slot is won",
    "a rollback is found in the sequence": "rollback: a marker beside the sequence does not do",
    "a schema change conflicts": "conflict",
    "a plan is decided as of the slot before it": "5",
    "nothing is rewritten under a plan": "6",
    "a worker that loses deletes nothing": "10",
    "the plan names the output": "10",
    "attempts of a task share a name": "14",
    "a data file is created once": "14",
}


@dataclass(frozen=True)
class Transaction:
    """attempts: how often its task may be tried (0: its file appears in one step as it begins). rollback: may somebody
    roll it back?
    """

    kind: Kind = Kind.REWRITE
    attempts: int = 0
    rollback: bool = False
    workers: int = 0


@dataclass(frozen=True)
class Actor:
    """A process. Actors with equal `sort` are interchangeable, so they need to begin in one order only."""

    role: Role
    transaction: int
    sort: int


class Entry(NamedTuple):
    """A slot. digest: of the data file that it lists; base: the head when its transaction began (a compaction's: the
    slot before its plan).
    """

    outcome: Outcome
    transaction: int
    owner: int
    base: int
    digest: int


class File(NamedTuple):
    """A data file: its name is (transaction, token), its content the digest."""

    transaction: int
    token: int
    digest: int


class Put(NamedTuple):
    """A slot PUT on its way. again: a second copy, sent after a timeout by us or by the client's library: to the store
    they are the same.
    """

    actor: int
    slot: int
    entry: Entry
    again: bool


class DataPut(NamedTuple):
    """A data file PUT on its way."""

    actor: int
    file: File


class Process(NamedTuple):
    """What an actor knows. step: idle, write, scan, put, wait, won, refused, unclear, delete, mark, done or dead."""

    step: str
    base: int = 0
    checked: int = 0  # slots up to here were read
    target: int = 0  # slot aimed at
    digest: int = 0  # of the data file it will list
    launched: int = 0  # attempts of its task
    told: str = ""  # ok, failed or unknown: what its caller heard


IDLE, DONE, DEAD = Process("idle"), Process("done"), Process("dead")


class State(NamedTuple):
    """slots: the sequence as readers know it. deleted: slots up to here are gone from the store, which takes a PUT
    there again.
    """

    slots: tuple[Entry, ...]
    deleted: int
    watermark: int
    network: frozenset[Put | DataPut]
    processes: tuple[Process, ...]
    files: frozenset[File]
    marked: frozenset[int]

    @property
    def head(self) -> int:
        return len(self.slots)


def plan_slot(slots: tuple[Entry, ...], transaction: int) -> int:
    """The slot that planned `transaction`, or 0."""
    return next((seq for seq, entry in enumerate(slots, 1) if entry[:2] == (Outcome.PLANNED, transaction)), 0)
