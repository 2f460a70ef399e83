"""Progress of a stream and limits on its batches.

Each micro-batch contains at least one commit or one file group, so that a stream with small limits makes progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoodoo.errors import PositionError

IDLE_SLOTS = 100
"""Maximum number of commits without changed rows that one micro-batch skips.

Without this, each slot of a table service would cause an empty micro-batch.
"""


@dataclass(frozen=True)
class StreamPosition:
    """Position of a streaming read.

    Attributes:
        slot: The last slot that the stream has read, or 0 at the beginning.
        groups: The number of file groups of the snapshot at `slot` that were read. None if all were read.
        digest: The first digits of the slot's digest, or '' in positions of older releases.
    """

    slot: int
    groups: int | None = None
    digest: str = field(default="", compare=False)

    def to_json(self, table: str, digest: str = "") -> dict[str, Any]:
        optional = {"digest": digest} if digest else {}
        return {"table": table, "slot": self.slot, **optional} | (
            {} if self.groups is None else {"groups": self.groups}
        )

    @staticmethod
    def from_json(values: dict[str, Any], table: str) -> StreamPosition:
        slot, groups, digest = values.get("slot"), values.get("groups"), values.get("digest", "")
        is_valid = all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in (slot, 0 if groups is None else groups)
        )
        if set(values) - {"table", "slot", "groups", "digest"} or not is_valid or not isinstance(digest, str):
            raise PositionError(
                "The checkpoint contains a position that hoodoo did not write. Start the query with a new checkpoint."
            )
        if values.get("table") != table:
            raise PositionError(
                "The checkpoint belongs to another table, or this table was recreated. Start the query with a "
                "new checkpoint."
            )
        return StreamPosition(int(slot or 0), groups, digest)


@dataclass(frozen=True)
class MicroBatchSize:
    commits: int = 0
    files: int = 0
    rows: int = 0

    def __add__(self, other: MicroBatchSize) -> MicroBatchSize:
        return MicroBatchSize(self.commits + other.commits, self.files + other.files, self.rows + other.rows)


@dataclass(frozen=True)
class StreamLimits:
    """Limits on a batch of a stream.

    None means no limit.
    """

    commits: int | None = None
    files: int | None = None
    rows: int | None = None

    def allow(self, used: MicroBatchSize) -> bool:
        pairs = ((used.commits, self.commits), (used.files, self.files), (used.rows, self.rows))
        return all(limit is None or amount <= limit for amount, limit in pairs)


NONE = StreamLimits()


def find_snapshot_batch_end(
    slot: int, done: int, weights: Sequence[MicroBatchSize], limits: StreamLimits
) -> StreamPosition:
    """Find the end of the next batch of a snapshot.

    Args:
        slot: The slot of the snapshot.
        done: The number of its file groups that have been read.
        weights: The weight of each of its file groups.
        limits: The limits of the micro-batch.
    """
    end, used = done, MicroBatchSize()
    for weight in weights[done:]:
        used += weight
        if end > done and not limits.allow(used):
            return StreamPosition(slot, end)
        end += 1
    return StreamPosition(slot)


def find_next_batch_end(
    start: int, head: int, written: Iterable[tuple[int, MicroBatchSize]], limits: StreamLimits, least: int = 0
) -> StreamPosition:
    """Find the end of the next batch after a commit.

    Args:
        start: The last slot that the stream has read.
        head: The newest slot.
        written: The slots between `start` and `head` that changed rows, in order, with their weights. The iterable is
            read only as far as needed.
        limits: The limits of the micro-batch.
        least: The first slot at which a micro-batch may end, if earlier slots are no longer readable.
    """
    end, used = start, MicroBatchSize()
    for seq, weight in written:
        if seq > least:  # slots up to `least` are always part of the range
            if used != MicroBatchSize() and not limits.allow(used + weight):
                return StreamPosition(max(end, least))
            used += weight
        end = seq
    idle = end == start and head - start <= IDLE_SLOTS
    return StreamPosition(start if idle else head)
