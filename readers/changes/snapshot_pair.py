"""Pairs of snapshots to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoodoo.timeline.views.view import FileGroup


@dataclass(frozen=True)
class FilePair:
    """Pair of the earlier and later version of some files.

    Attributes:
        before: The file groups in the earlier snapshot.
        after: The file groups in the later snapshot.
        instant: The instant of the commit between the snapshots, or '' if there may be several commits.
    """

    before: tuple[FileGroup, ...]
    after: tuple[FileGroup, ...]
    instant: str = ""


def pair_changed_files(before: Sequence[FileGroup], after: Sequence[FileGroup], instant: str = "") -> list[FilePair]:
    """Pair the changed files of two snapshots.

    A file group that is in both snapshots gets its own pair if its files differ. All removed file groups form one pair
    with all added file groups. If no file group was removed, each added file group gets its own pair.
    """
    old, new = {group.file_id: group for group in before}, {group.file_id: group for group in after}
    steps = [
        FilePair((old[name],), (new[name],), instant)
        for name in old
        if name in new and paths(old[name]) != paths(new[name])
    ]
    gone = tuple(group for name, group in old.items() if name not in new)
    came = tuple(group for name, group in new.items() if name not in old)
    if gone:
        return [*steps, FilePair(gone, came, instant)]
    return [*steps, *(FilePair((), (group,), instant) for group in came)]


def paths(group: FileGroup) -> tuple[str, ...]:
    return tuple(entry.file.path for entry in group.files())
