"""Base files that commits add and remove.

All exports use them as input. This module reads slots and views, and opens no data files. It is independent of the
formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hoodoo.errors import PartitionValueError, SnapshotExpired
from hoodoo.timeline.history import History
from hoodoo.timeline.slots.slot import ALTER, CLUSTER, COMPLETED, LOG_COMPACT, Slot
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import View

AS_OF_COMPACTION = (
    "Base files of a merge-on-read table: rows are as of the last compaction of their file group. Updates and deletes "
    "that logs hold do not show yet."
)
"""Table comment in the exported metadata of a merge-on-read table, if logs are not exported."""
IDLE_SLOTS = 100
"""Number of commits without changed base files after which an export stores its position.

The next export then skips these slots.
"""
_MOVES_ROWS = (CLUSTER, LOG_COMPACT, ALTER)


@dataclass(frozen=True)
class BaseFileChanges:
    """Base files that commits added and removed.

    `changes_rows` is True if readers of base files see different rows than before.
    """

    added: Mapping[str, AddedFile] = field(default_factory=dict)
    removed: Mapping[str, AddedFile] = field(default_factory=dict)
    changes_rows: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def then(self, later: BaseFileChanges) -> BaseFileChanges:
        added = {path: file for path, file in self.added.items() if path not in later.removed}
        added |= {path: file for path, file in later.added.items() if path not in self.removed}
        removed = {path: file for path, file in self.removed.items() if path not in later.added}
        removed |= {path: file for path, file in later.removed.items() if path not in self.added}
        return BaseFileChanges(added, removed, self.changes_rows or later.changes_rows)


NOTHING = BaseFileChanges()


@dataclass(frozen=True)
class CommitChanges:
    """Base file changes of one commit."""

    slot: Slot
    view: View
    changes: BaseFileChanges


def live(view: View) -> dict[str, AddedFile]:
    return {group.base.file.path: group.base for group in view.groups() if group.base}


def find_changed_base_files(slot: Slot, before: View, after: View) -> BaseFileChanges:
    """Find the base files that a commit changed.

    A compaction changes no rows of the table, but readers of base files see changed rows, because the contents of logs
    become visible to them. Any other rewrite of a file group with logs has the same effect.
    """
    if slot.outcome != COMPLETED:
        return NOTHING
    added: dict[str, AddedFile] = {}
    removed: dict[str, AddedFile] = {}
    changes_rows = False
    group_keys = dict.fromkeys([*slot.replaced, *((file.partition, file.file_id) for file in slot.files)])
    for partition, file_id in group_keys:
        old, new = before.group(partition, file_id), after.group(partition, file_id)
        old_base, new_base = old.base if old else None, new.base if new else None
        if (old_base.file.path if old_base else "") == (new_base.file.path if new_base else ""):
            continue
        if old_base:
            removed[old_base.file.path] = old_base
        if new_base:
            added[new_base.file.path] = new_base
        changes_rows |= slot.operation not in _MOVES_ROWS or bool(old and old.logs)
    return BaseFileChanges(added, removed, changes_rows)


def yield_commit_changes(history: History, after: int, until: int) -> Iterator[CommitChanges]:
    """Yield the changes of each commit.

    The commits are `after` + 1 to `until`. A slot that another engine rolled back is left out, because its files no
    longer exist. Its changes are part of the next slot's changes. Raises SnapshotExpired if slots since `after` were
    archived.
    """
    head = history.known_head()
    before, pending = (history.state(after) if after else View()), NOTHING
    for seq in range(after + 1, until + 1):
        slot, after_slot = history.slot(seq), history.state(seq)
        pending = pending.then(find_changed_base_files(slot, before, after_slot))
        before = after_slot
        if seq == until or not head.is_rolled_back_by_other_engine(seq):
            yield CommitChanges(slot, after_slot, pending)
            pending = NOTHING


def unchanged(history: History, after: int, until: int) -> bool:
    try:
        return not any(step.changes for step in yield_commit_changes(history, after, until))
    except SnapshotExpired:
        return False


def first_commit_to_export(history: History) -> int:
    head = history.known_head()
    seq = max(head.min_readable, history.oldest_slot(), 1)
    while seq < head.seq and head.is_rolled_back_by_other_engine(seq):
        seq += 1
    return seq


def can_continue_export(history: History, seq: int, instant: str) -> bool:
    """Check whether an earlier export can be continued.

    It cannot continue if the slots since then were archived. It also cannot continue if the table was restored from a
    backup, because other slots now have these numbers.
    """
    if not max(history.oldest_slot() - 1, 1) <= seq <= history.known_head().seq:
        return False
    try:
        return history.state(seq).instant == instant
    except SnapshotExpired:
        return False


def require_no_partition_at(view: View, folder: str) -> None:
    if any(partition.split("/")[0] == folder for partition in view.partitions):
        raise PartitionValueError(
            f"The table has a partition {folder!r}, but an export needs this folder for its metadata. Write the rows "
            "of this partition under another value, or do not export this format.",
            partition=folder,
        )
