"""What a transaction wants its slot to say, before it is known which slot that will be."""

from __future__ import annotations

from dataclasses import dataclass, field

from hoodoo.timeline import keyset
from hoodoo.timeline.conflicts import WriteSet
from hoodoo.timeline.slot import COMPLETED, DataFile, PlannedGroup


class Conflict(Exception):
    """A slot since the base conflicts: rebase under a new instant. Never leaves the package."""


@dataclass
class SlotBody:
    """What a transaction wants its slot to say. Fields as in Slot; `touches` feeds the conflict check."""

    operation: str
    outcome: str = COMPLETED
    files: tuple[DataFile, ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()
    inserted: tuple[keyset.Reference, ...] = ()
    deleted: tuple[keyset.Reference, ...] = ()
    plan: tuple[PlannedGroup, ...] = ()
    plan_seq: int = 0
    merged: tuple[str, ...] = ()
    target: str = ""
    target_action: str = ""
    victims: tuple[tuple[str, str], ...] = ()
    swept: tuple[str, ...] = ()
    min_readable: int = 0
    savepoint: str = ""
    position: int = 0
    transaction: tuple[str, int] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    touches: WriteSet = field(default_factory=WriteSet)
