"""Draft of a slot: its content before its slot number is known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.slots.slot import STREAMED, Slot, SlotBody
from hoodoo.timeline.views.view import View


class Conflict(Exception):
    """Internal exception: a newly committed slot conflicts with the write, so the write starts again with a new
    instant.
    """


@dataclass(frozen=True)
class SlotDraft(SlotBody):
    """Content of a slot before its slot number is known.

    Attributes:
        touches: The write set that conflict detection compares with the slots after the base.
        place: The source position `reached` in the format of Apache Hudi's streamer, or '' if it is not set.
    """

    touches: WriteSet = field(default_factory=WriteSet)
    place: str = ""


def with_place(slot: Slot, view: View, said: str) -> Slot:
    """Add the source position to `slot` from which Apache Hudi's streamer would continue, if the slot changes rows.

    The position depends only on earlier slots and `said`, so that every process that publishes the slot writes the same
    value. Without a position to publish, `slot` stays unchanged.

    Args:
        slot: The slot after `view`.
        view: The view before the slot.
        said: The position of the slot's application in the format of Apache Hudi's streamer, or ''.
    """
    place = view.streamed.after(slot.transaction[0], said) if slot.transaction and slot.reached else view.streamed
    if not (place.text and slot.writes_rows):
        return slot
    return replace(slot, streamed=tuple(place), needs=(*slot.needs, STREAMED))
