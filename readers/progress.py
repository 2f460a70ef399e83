"""Where the next part of a stream ends: which slot, or how many file groups of a first snapshot, given where it stands
and how much it may take.

Pure: knows numbers of commits, files and rows, neither a table nor who streams. A part always holds at least one commit
or file group, or a stream with a small limit would stand still.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import PositionError

IDLE_SLOTS = 100
"""So many slots that changed no row are passed without a part of their own; those of services would otherwise each make
an empty one.
"""


@dataclass(frozen=True)
class Position:
    """Up to where a stream has read: everything up to `slot`; or, of the snapshot at `slot`, the first `groups` file
    groups. Slot 0: nothing.
    """

    slot: int
    groups: int | None = None

    def to_json(self, table: str) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return {"table": table, "slot": self.slot} | ({} if self.groups is None else {"groups": self.groups})

    @staticmethod
    def from_json(found: dict[str, Any], table: str) -> Position:
        """Inverse of `to_json`. Raises PositionError for what is no position of `table`."""
        slot, groups = found.get("slot"), found.get("groups")
        whole = all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in (slot, 0 if groups is None else groups)
        )
        if set(found) - {"table", "slot", "groups"} or not whole:
            raise PositionError(
                "The checkpoint holds a position that hoodoo did not write. Start the query with a new checkpoint."
            )
        if found.get("table") != table:
            raise PositionError(
                "The checkpoint belongs to another table, or this one was created anew. Start the query with a "
                "new checkpoint."
            )
        return Position(int(slot or 0), groups)


@dataclass(frozen=True)
class Weight:
    """How much a commit or a file group is."""

    commits: int = 0
    files: int = 0
    rows: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.commits + other.commits, self.files + other.files, self.rows + other.rows)


@dataclass(frozen=True)
class Limits:
    """How much one part may be; None: no limit."""

    commits: int | None = None
    files: int | None = None
    rows: int | None = None

    def allow(self, used: Weight) -> bool:
        pairs = ((used.commits, self.commits), (used.files, self.files), (used.rows, self.rows))
        return all(limit is None or amount <= limit for amount, limit in pairs)


NONE = Limits()


def next_groups(slot: int, done: int, weights: Sequence[Weight], limits: Limits) -> Position:
    """Where the next part of the snapshot at `slot` ends, whose file groups weigh `weights`, after the first `done` of
    them.
    """
    end, used = done, Weight()
    for weight in weights[done:]:
        used += weight
        if end > done and not limits.allow(used):
            return Position(slot, end)
        end += 1
    return Position(slot)


def next_slot(start: int, head: int, written: Iterable[tuple[int, Weight]], limits: Limits, least: int = 0) -> Position:
    """Where the part after slot `start` ends, at most at `head`. written: slots in between that changed rows, in order,
    with their weights.

    least: the first slot a part may end at, if what lies before cannot be read any more. Looks at no more of `written`
    than it has to.
    """
    end, used = start, Weight()
    for seq, weight in written:
        if seq > least:  # what lies before comes along in any case
            if used != Weight() and not limits.allow(used + weight):
                return Position(max(end, least))
            used += weight
        end = seq
    idle = end == start and head - start <= IDLE_SLOTS
    return Position(start if idle else head)
