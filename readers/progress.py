"""Decides where the next part of a stream ends: at which slot, or after how many file groups of a first snapshot.

Knows numbers of commits, files and rows, neither a table nor who streams. A part always holds at least one commit or
one file group, or a stream with a small limit would make no progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoodoo.errors import PositionError

IDLE_SLOTS = 100
"""So many slots that changed no row are passed without a part of their own; those of services would otherwise each make
an empty one.
"""


@dataclass(frozen=True)
class StreamPosition:
    """How far a stream has read.

    slot: the slot up to which it has read; 0 for nothing.
    groups: how many file groups of the snapshot at `slot` it has read; None where it has read them all.
    digest: the first digits of the slot's digest; '' in positions of older releases.
    """

    slot: int
    groups: int | None = None
    digest: str = field(default="", compare=False)

    def to_json(self, table: str, digest: str = "") -> dict[str, Any]:
        """Return the position as a checkpoint of Spark stores it. table: the table's id; digest: that of the slot."""
        known = {"digest": digest} if digest else {}
        return {"table": table, "slot": self.slot, **known} | ({} if self.groups is None else {"groups": self.groups})

    @staticmethod
    def from_json(found: dict[str, Any], table: str) -> StreamPosition:
        """Inverse of `to_json`. Raises PositionError for what is no position of `table`."""
        slot, groups, digest = found.get("slot"), found.get("groups"), found.get("digest", "")
        whole = all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in (slot, 0 if groups is None else groups)
        )
        if set(found) - {"table", "slot", "groups", "digest"} or not whole or not isinstance(digest, str):
            raise PositionError(
                "The checkpoint contains a position that is not from hoodoo. Start the query with a new checkpoint."
            )
        if found.get("table") != table:
            raise PositionError(
                "The checkpoint belongs to another table, or this table was recreated. Start the query with a "
                "new checkpoint."
            )
        return StreamPosition(int(slot or 0), groups, digest)


@dataclass(frozen=True)
class Weight:
    """How many commits, files and rows a part of the stream holds."""

    commits: int = 0
    files: int = 0
    rows: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.commits + other.commits, self.files + other.files, self.rows + other.rows)


@dataclass(frozen=True)
class StreamLimits:
    """How much one part may be; None: no limit."""

    commits: int | None = None
    files: int | None = None
    rows: int | None = None

    def allow(self, used: Weight) -> bool:
        """Tell whether a part of this weight keeps every limit."""
        pairs = ((used.commits, self.commits), (used.files, self.files), (used.rows, self.rows))
        return all(limit is None or amount <= limit for amount, limit in pairs)


NONE = StreamLimits()


def next_groups(slot: int, done: int, weights: Sequence[Weight], limits: StreamLimits) -> StreamPosition:
    """Return where the next part of a snapshot ends.

    Args:
        slot: The slot of the snapshot.
        done: How many of its file groups have been read.
        weights: The weight of each of its file groups.
        limits: How much the part may hold.
    """
    end, used = done, Weight()
    for weight in weights[done:]:
        used += weight
        if end > done and not limits.allow(used):
            return StreamPosition(slot, end)
        end += 1
    return StreamPosition(slot)


def next_slot(
    start: int, head: int, written: Iterable[tuple[int, Weight]], limits: StreamLimits, least: int = 0
) -> StreamPosition:
    """Return where the part after slot `start` ends.

    Args:
        start: The slot up to which the stream has read.
        head: The newest slot.
        written: The slots in between that changed rows, in order, with their weights. No more of them are taken than
            are needed.
        limits: How much the part may hold.
        least: The first slot that a part may end at, where earlier ones cannot be read any more.
    """
    end, used = start, Weight()
    for seq, weight in written:
        if seq > least:  # what lies before comes along in any case
            if used != Weight() and not limits.allow(used + weight):
                return StreamPosition(max(end, least))
            used += weight
        end = seq
    idle = end == start and head - start <= IDLE_SLOTS
    return StreamPosition(start if idle else head)
