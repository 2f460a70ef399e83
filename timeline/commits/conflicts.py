"""Detection of conflicts between concurrent commits.

transaction.py (`_require_no_conflict`) checks the table itself: columns, checks, type, commits of other engines, and
the age of the instant. docs/protocol.md (Operations) lists the rules.

A false conflict only costs a retry, so comparing key hashes instead of keys is sufficient. A missed conflict would lose
an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hoodoo.timeline.sinks import sink_of
from hoodoo.timeline.slots.keyset import intersect
from hoodoo.timeline.slots.slot import COMPLETED, LOG, PLANNED, DataFile, Slot
from hoodoo.timeline.views.view import View


def no_key_hashes() -> np.ndarray:
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class RowDependencies:
    """Dependencies of a write on rows that other commits may change.

    An example is the rows that an update changes. If another commit changes these rows first, the write must be
    computed again.

    Attributes:
        groups: The ids of the file groups whose rows were read.
        may_match: Returns whether a newer file may contain rows that the write must also read, based on the partition
            and the statistics of the file.
    """

    groups: frozenset[str]
    may_match: Callable[[DataFile], bool]


@dataclass
class WriteSet:
    """Files and keys that a write reads or changes.

    Key hashes are returned by functions, because the hashes of a large batch are only loaded if other slots were
    committed since the write began.

    Attributes:
        rewrites: The ids of the file groups whose base file the write rewrites.
        appends: The ids of the file groups that the write logs to.
        replaces: The ids of the file groups that the write removes.
        reads: The ids of the file groups with existing keys that the write leaves unchanged.
        searched: The ids of the file groups that contain the hash of one of the write's keys, but not the key itself. A
            newer log may contain the key.
        overwrites: The partitions that the write replaces completely.
        everything: True if the write replaces the whole table, including partitions created since the write began.
        exclusive: True if the write depends on the whole table.
        alters: True if the write changes the table's columns.
        derived: The stored rows that the write was computed from, or None.
        application: The application of the write's transaction, or ''.
        carried: The last slot whose logs the write carries over, by file group.
        inserted: Returns the hashes (sorted uint64) of the keys that the write inserts, changes or deletes. No other
            write may have inserted these keys since the write began.
        updated: Returns the hashes (sorted uint64) of the keys that the write updates, and of existing keys that it
            leaves unchanged.
    """

    rewrites: set[str] = field(default_factory=set)
    appends: set[str] = field(default_factory=set)
    replaces: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    searched: set[str] = field(default_factory=set)
    overwrites: set[str] = field(default_factory=set)
    everything: bool = False
    exclusive: bool = False
    alters: bool = False
    derived: RowDependencies | None = None
    application: str = ""
    carried: Mapping[str, int] = field(default_factory=dict)
    inserted: Callable[[], np.ndarray] = no_key_hashes
    updated: Callable[[], np.ndarray] = no_key_hashes

    @property
    def changes_or_reads_data(self) -> bool:
        return bool(
            self.rewrites
            or self.appends
            or self.replaces
            or self.reads
            or self.searched
            or self.overwrites
            or self.everything
            or self.exclusive
            or self.alters
            or self.derived
        )


KeysOf = Callable[[Slot, str], np.ndarray]


def explain_conflict(mine: WriteSet, instant: str, slot: Slot, keys_of: KeysOf) -> str:
    """Explain the conflict of a commit with a newer commit.

    Args:
        mine: The changes and reads of the write.
        instant: The instant of the write.
        slot: A slot that was committed since the write began.
        keys_of: Returns the sorted key hashes that a slot 'inserted' or 'deleted'. It is only called if `mine` has
            keys. A rollback has no keys, and checks slots whose key sets may already be deleted.
    """
    if slot.published and (mine.changes_or_reads_data or mine.application or len(mine.inserted())):
        return "another engine committed"  # its keys are unknown, and an undo also reverts transactions
    if mine.alters and slot.instant > instant and (slot.commits or slot.outcome == PLANNED):
        # protocol rule S1: engines take the columns from the commit with the largest requested instant
        return "a commit or a plan with a larger instant was written first"
    if slot.outcome != COMPLETED or slot.action == "clean":
        return ""
    if mine.application and slot.transaction and sink_of(slot.transaction[0]) == sink_of(mine.application):
        # the retry checks whether the version of `mine` still has to be committed
        return f"another version of application {mine.application!r} was committed"
    if mine.exclusive and slot.writes_rows:
        return "the table was written"
    written = {
        file.file_id for file in slot.files if file.kind != LOG or slot.seq > mine.carried.get(file.file_id, 0)
    }  # a log that is carried over is not lost
    logged = {file.file_id for file in slot.files if file.kind == LOG}
    replaced = {file_id for _, file_id in slot.replaced}
    if mine.derived and (why := _derived_conflict(mine.derived, slot)):
        return why
    removed = mine.rewrites | mine.replaces
    if shared := (removed | mine.searched) & (written | replaced):
        return f"file group {min(shared)} was written or replaced"
    if shared := (mine.appends | mine.reads) & replaced:
        return f"file group {min(shared)} was replaced"
    if slot.action == "compaction":
        return ""  # a delta belongs to the slice after the plan
    if slot.files and (mine.everything or mine.overwrites & {file.partition for file in slot.files}):
        return "an overwritten partition was written"
    if (shared := mine.appends & logged) and slot.instant > instant:
        return (
            f"a newer log of file group {min(shared)} was written first"  # protocol rule 4: Hudi orders logs by instant
        )
    if slot.inserted and len(inserted := mine.inserted()) and intersect(inserted, keys_of(slot, "inserted")):
        return "the same new key was inserted"
    if slot.deleted and len(updated := mine.updated()) and intersect(updated, keys_of(slot, "deleted")):
        return "an updated key was deleted"  # protocol rule 9: it would be a re-insert in a log
    return ""


def _derived_conflict(derived: RowDependencies, slot: Slot) -> str:
    # The order of instants does not matter. Two concurrent updates `n = n + 1` would each log a row, and the later log
    # would hide the earlier log.
    if slot.columns:
        return "the table's columns were changed"
    if not slot.writes_rows:
        return ""  # a table service moves rows without changing them
    touched = {file.file_id for file in slot.files} | {file_id for _, file_id in slot.replaced}
    if shared := derived.groups & touched:
        return f"rows of file group {min(shared)} were changed after this write read them"
    if any(derived.may_match(file) for file in slot.files):
        return "new rows may match the condition of this write"
    return ""


def explain_compaction_conflict(mine: WriteSet, view: View) -> str:
    """Explain the conflict of a commit with a pending compaction.

    Returns '' if there is no conflict. Protocol rule 6: a file group in an open plan is neither rewritten nor planned
    again. This is also checked when the write completes.
    """
    shared = mine.rewrites & view.planned_ids()
    return f"file group {min(shared)} is under a compaction plan" if shared else ""
