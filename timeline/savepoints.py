"""Savepoints, which are snapshots that cleaning keeps.

Each creation and deletion of a savepoint is a slot.
"""

from __future__ import annotations

import re

from hoodoo.errors import OptionError, PositionError, SnapshotExpired
from hoodoo.redact import printable
from hoodoo.timeline.commits.draft import SlotDraft
from hoodoo.timeline.instant import SAVEPOINT
from hoodoo.timeline.slots.slot import Slot
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import View

_NAME = re.compile(r"[A-Za-z0-9_.-][A-Za-z0-9_. -]{0,199}")


def save(timeline: TableTimeline, name: str, seq: int) -> Slot:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.isdigit() or name in ("earliest", "latest"):
        raise OptionError(
            (
                f"Savepoint name {printable(name)} is invalid. Use at most 200 letters, digits, . _ - and spaces, and "
                "not only digits."
            ),
            option="name",
        )
    timeline.look()  # raises if the store contains a different table now
    timeline.history.require_readable(seq)
    anchor = find_snapshot_commit(timeline, seq)
    checkpoint.write(
        timeline.store, timeline.history.state(anchor)
    )  # cleaning and archiving keep this checkpoint, so that the snapshot can always be opened

    def draft(view: View) -> SlotDraft:
        if name in view.savepoints:
            raise OptionError(
                (
                    f"Savepoint {name!r} already exists at slot {view.savepoints[name]}. Delete it first, or "
                    "choose another name."
                ),
                option="name",
            )
        if anchor in view.savepoints.values():
            raise OptionError(
                f"Slot {anchor} already has the savepoint {_names_at(view, anchor)}. Use that savepoint.", option="name"
            )
        if not view.readable(seq):
            raise SnapshotExpired(
                (
                    f"Snapshot at slot {seq} was cleaned before the savepoint was created. Use slot "
                    f"{view.min_readable} or later."
                ),
                earliest=view.min_readable,
            )
        return SlotDraft("SAVEPOINT", savepoint=name, position=anchor)

    return timeline.settle(SAVEPOINT, draft)


def delete_savepoint(timeline: TableTimeline, name: str) -> Slot:
    """Delete a savepoint.

    Cleaning may then delete the files of its snapshot. Raises PositionError for an unknown name.
    """

    def draft(view: View) -> SlotDraft:
        find(view, name)
        return SlotDraft("DELETE_SAVEPOINT", savepoint=name)

    return timeline.settle(SAVEPOINT, draft)


def find(view: View, name: str) -> int:
    if not isinstance(name, str) or name not in view.savepoints:
        names = ", ".join(map(repr, sorted(view.savepoints)))
        known = f"expected one of {names}." if names else "the table has no savepoints. Create one first."
        raise PositionError(f"Savepoint {printable(name)} does not exist: {known}", savepoint=printable(name))
    return view.savepoints[name]


def find_snapshot_commit(timeline: TableTimeline, seq: int) -> int:
    """Find the commit that created a snapshot.

    It is the newest write or compaction up to `seq`.
    """
    history = timeline.history
    oldest = history.oldest_slot()
    while seq > oldest and not (history.slot(seq).commits or history.slot(seq).compacts):
        seq -= 1
    return seq


def _names_at(view: View, seq: int) -> str:
    return ", ".join(repr(name) for name, at in view.savepoints.items() if at == seq)
