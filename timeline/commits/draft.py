"""What a transaction wants its slot to say, before it is known which slot that will be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.slots.slot import STREAMED, Slot, SlotBody
from hoodoo.timeline.views.view import View


class Conflict(Exception):
    """A slot since the base conflicts: rebase under a new instant. Never leaves the package."""


@dataclass(frozen=True)
class SlotDraft(SlotBody):
    """touches: what the conflict check compares with the slots since the base. place: `reached` as Apache Hudi spells
    it, '' where its application does not say.
    """

    touches: WriteSet = field(default_factory=WriteSet)
    place: str = ""


def with_place(slot: Slot, view: View, said: str) -> Slot:
    """Return `slot` with the place that it publishes for Apache Hudi's streamer, if it changes rows and there is one.

    It follows from the slots before alone, so that whoever publishes the slot says the same.

    Args:
        slot: The slot after `view`.
        view: The view that it follows.
        said: The position of its application, as Apache Hudi spells it; '' where it does not say.
    """
    place = view.streamed.after(slot.transaction[0], said) if slot.transaction and slot.reached else view.streamed
    if not (place.text and slot.writes_rows):
        return slot
    return replace(slot, streamed=tuple(place), needs=(*slot.needs, STREAMED))
