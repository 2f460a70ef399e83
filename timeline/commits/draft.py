"""What a transaction wants its slot to say, before it is known which slot that will be."""

from __future__ import annotations

from dataclasses import dataclass, field

from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.slots.slot import SlotBody


class Conflict(Exception):
    """A slot since the base conflicts: rebase under a new instant. Never leaves the package."""


@dataclass(frozen=True)
class SlotDraft(SlotBody):
    """touches: what the conflict check compares with the slots since the base."""

    touches: WriteSet = field(default_factory=WriteSet)
