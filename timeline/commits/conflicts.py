"""Decides whether a write conflicts with a slot that came after its base: the first committer wins.

Conditions of the table itself are judged in transaction.py (`_check`): its columns, its checks, its type, a commit of
another engine, and the age of the instant. docs/protocol.md (Operations) lists the rules.

A false alarm costs a rebase, so sets of keys may be hashes; a missed conflict would lose an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hoodoo.timeline.sinks import sink_of
from hoodoo.timeline.slots.keyset import intersect
from hoodoo.timeline.slots.slot import COMPLETED, LOG, PLANNED, DataFile, Slot
from hoodoo.timeline.views.view import View


def no_keys() -> np.ndarray:
    """Return the hashes of no key."""
    return np.empty(0, np.uint64)


@dataclass(frozen=True)
class Derived:
    """The stored rows that a write was made from.

    Attributes:
        groups: Ids of the file groups whose rows were read.
        may_match: Tells by partition and statistics whether a file that is new since may hold a row that the write
            would have to be made from, too.
    """

    groups: frozenset[str]
    may_match: Callable[[DataFile], bool]


@dataclass
class WriteSet:
    """What a write touched: all that decides whether it conflicts with others.

    The hashes of keys come from functions, because those of a large batch are read only if a slot came in between.

    Attributes:
        rewrites: Ids of the file groups whose base it writes anew.
        appends: Ids of the file groups it writes a log for.
        replaces: Ids of the file groups it removes.
        reads: Ids of the file groups in which it found keys that it leaves alone because they are there.
        searched: Ids of the file groups that have the hash of one of its keys, but not the key. What was logged there
            since may be the key.
        overwrites: The partitions it replaces whole.
        everything: Whether it replaces the whole table, with partitions that are not there yet.
        exclusive: Whether it depends on the whole table as it was.
        alters: Whether it changes the table's columns.
        derived: The stored rows that its rows were made from. None: they were made from none.
        application: The application of its (application, version), '' if it carries none.
        carried: By file group, the slot up to which it brings along the logs that others wrote to it.
        inserted: Gives the hashes (sorted uint64) of the keys that nobody may have inserted since its base. These are
            the keys it inserts, changes or deletes.
        updated: Gives the hashes (sorted uint64) of the keys it updates, or leaves alone because they are there.
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
    derived: Derived | None = None
    application: str = ""
    carried: Mapping[str, int] = field(default_factory=dict)
    inserted: Callable[[], np.ndarray] = no_keys
    updated: Callable[[], np.ndarray] = no_keys

    @property
    def anything(self) -> bool:
        """Whether the write touches any file group, partition or column."""
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


def conflict(mine: WriteSet, instant: str, slot: Slot, keys_of: KeysOf) -> str:
    """Why the write `mine` of `instant` cannot come after `slot`, or ''. keys_of(slot, 'inserted' | 'deleted') gives
    sorted hashes.

    keys_of is asked only if `mine` has keys itself: a rollback has none, and looks at slots whose key sets a clean may
    have taken.
    """
    if slot.published and (mine.anything or mine.application or len(mine.inserted())):
        return "another engine committed"  # what it did is described by files only; an undo takes transactions back
    if mine.alters and slot.instant > instant and (slot.commits or slot.outcome == PLANNED):
        # protocol rule S1: engines take the columns from the commit with the largest requested instant
        return "a commit or a plan with a larger instant came first"
    if slot.outcome != COMPLETED or slot.action == "clean":
        return ""
    if mine.application and slot.transaction and sink_of(slot.transaction[0]) == sink_of(mine.application):
        # the retry sees whether ours is due still
        return f"another version of application {mine.application!r} was committed"
    if mine.exclusive and slot.writes_rows:
        return "the table was written"
    written = {
        file.file_id for file in slot.files if file.kind != LOG or slot.seq > mine.carried.get(file.file_id, 0)
    }  # a log brought along is not lost
    logged = {file.file_id for file in slot.files if file.kind == LOG}
    replaced = {file_id for _, file_id in slot.replaced}
    if mine.derived and (why := _read_since(mine.derived, slot)):
        return why
    held = mine.rewrites | mine.replaces
    if shared := (held | mine.searched) & (written | replaced):
        return f"file group {min(shared)} was written or replaced"
    if shared := (mine.appends | mine.reads) & replaced:
        return f"file group {min(shared)} was replaced"
    if slot.action == "compaction":
        return ""  # a delta belongs to the slice after the plan
    if slot.files and (mine.everything or mine.overwrites & {file.partition for file in slot.files}):
        return "an overwritten partition was written"
    if (shared := mine.appends & logged) and slot.instant > instant:
        return f"a newer delta of file group {min(shared)} came first"  # protocol rule 4: Hudi orders logs by instant
    if slot.inserted and len(inserted := mine.inserted()) and intersect(inserted, keys_of(slot, "inserted")):
        return "the same new key was inserted"
    if slot.deleted and len(updated := mine.updated()) and intersect(updated, keys_of(slot, "deleted")):
        return "an updated key was deleted"  # protocol rule 9: it would be a re-insert in a log
    return ""


def _read_since(derived: Derived, slot: Slot) -> str:
    """Why rows that a write was made from may be others since `slot`, or ''. Its instant does not matter: two writers
    of `n = n + 1` each log a row of their own, and the later log would hide the earlier one.
    """
    if slot.columns:
        return "the table's columns were changed"
    if not slot.writes_rows:
        return ""  # a table service moves rows and changes none
    touched = {file.file_id for file in slot.files} | {file_id for _, file_id in slot.replaced}
    if shared := derived.groups & touched:
        return f"rows of file group {min(shared)} were read and changed since"
    if any(derived.may_match(file) for file in slot.files):
        return "rows were written that the condition may match"
    return ""


def under_plan(mine: WriteSet, view: View) -> str:
    """Why the write cannot come beside the open plans of `view`, or ''.

    Protocol rule 6: a group under an open plan is neither rewritten nor planned again. It is checked at completion too.
    """
    shared = mine.rewrites & view.planned_ids()
    return f"file group {min(shared)} is under a compaction plan" if shared else ""
