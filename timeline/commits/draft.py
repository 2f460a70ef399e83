"""Draft of a commit that has no number yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hoodoo.timeline.commits.conflicts import WriteSet
from hoodoo.timeline.slots.slot import STREAMED, Slot, SlotBody
from hoodoo.timeline.views.view import View


class Conflict(Exception):
    """Conflict of a write with a newer commit."""


@dataclass(frozen=True)
class SlotDraft(SlotBody):
    """Draft of a commit file that has no number yet.

    Attributes:
        touches: The file groups, partitions and keys that conflict detection compares with newer slots.
        place: The source position of an ingestion job in the format of Apache Hudi's streamer, or ''.
    """

    touches: WriteSet = field(default_factory=WriteSet)
    place: str = ""


def add_hudi_checkpoint(slot: Slot, view: View, said: str) -> Slot:
    """Add Apache Hudi's checkpoint of a source to a commit.

    The checkpoint only depends on earlier slots and `said`, so that every process that publishes the slot writes the
    same value. If there is no checkpoint to publish, `slot` is returned unchanged.

    Args:
        slot: The slot after `view`.
        view: The view before the slot.
        said: The source position of the slot's ingestion job as a checkpoint of Apache Hudi's streamer, or ''.
    """
    place = view.streamed.after(slot.transaction[0], said) if slot.transaction and slot.reached else view.streamed
    if not (place.text and slot.writes_rows):
        return slot
    return replace(slot, streamed=tuple(place), needs=(*slot.needs, STREAMED))
