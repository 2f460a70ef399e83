"""Two snapshots of the same file groups, to be compared. Knows no rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoodoo.timeline.views.view import FileGroup


@dataclass(frozen=True)
class SnapshotPair:
    """Two states of file groups of one partition, which hold the same keys or are all there is of them.

    instant: of the commit that led from one to the other, '' where there may have been several.
    """

    before: tuple[FileGroup, ...]
    after: tuple[FileGroup, ...]
    instant: str = ""


def pair_up(before: Sequence[FileGroup], after: Sequence[FileGroup], instant: str = "") -> list[SnapshotPair]:
    """The states of one partition as steps: each file group that stays by itself; those that went, with those that
    came, as one.
    """
    old, new = {group.file_id: group for group in before}, {group.file_id: group for group in after}
    steps = [
        SnapshotPair((old[name],), (new[name],), instant)
        for name in old
        if name in new and paths(old[name]) != paths(new[name])
    ]
    gone = tuple(group for name, group in old.items() if name not in new)
    came = tuple(group for name, group in new.items() if name not in old)
    if gone:
        return [*steps, SnapshotPair(gone, came, instant)]
    return [*steps, *(SnapshotPair((), (group,), instant) for group in came)]


def paths(group: FileGroup) -> tuple[str, ...]:
    return tuple(entry.file.path for entry in group.files())
