"""Draft of a slot, before its slot number is known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.slots.slot import STREAMED, Slot, SlotBody
from hoodoo.timeline.views.view import View


class Conflict(Exception):
    """Internal exception: a slot after the base conflicts, so the write has to be rebased under a new instant."""


@dataclass(frozen=True)
class SlotDraft(SlotBody):
    """Draft of a slot.

    Attributes:
        touches: The write set that conflict detection compares with the slots after the base.
        place: The source position `reached` in the format of Apache Hudi's streamer, or '' if it is not set.
    """

    touches: WriteSet = field(default_factory=WriteSet)
    place: str = ""


def with_place(slot: Slot, view: View, said: str) -> Slot:
    """Return `slot` with the source position that it publishes for Apache Hudi's streamer.

    Only slots that change rows publish a position. It depends only on earlier slots and `said`, so that every publisher
    publishes the same value.

    Args:
        slot: The slot after `view`.
        view: The view before the slot.
        said: The position of the slot's application in the format of Apache Hudi's streamer, or ''.
    """
    place = view.streamed.after(slot.transaction[0], said) if slot.transaction and slot.reached else view.streamed
    if not (place.text and slot.writes_rows):
        return slot
    return replace(slot, streamed=tuple(place), needs=(*slot.needs, STREAMED))
