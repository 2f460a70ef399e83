"""The position of a topic: the next offset of each partition, spelled as Apache Hudi's streamer spells it.

    {"source": "kafka", "id": "7co8koLWSQO1AkDGcZgNOQ", "offsets": "shop.orders,0:123,1:456"}

Beside the offsets stands the topic's id: a topic that was deleted and made anew may be longer than the position, which
offsets alone do not show. A stream on Spark says no id, and spells offsets in its own way, as a sink of a table with
`positions=True` does:

    {"source": "spark", "offsets": [{"shop.orders": {"0": 123, "1": 456}}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hoodoo.errors import OptionError, SourceLost
from hoodoo.redact import printable
from hoodoo.sources.places import KNOWN

_KIND, _SPARK = "kafka", "spark"
_SPARK_EARLIEST, _SPARK_LATEST = -2, -1
_OFFSETS = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(?P<pairs>(?:,\d+:\d+)*)", re.ASCII)


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic was read.

    Attributes:
        topic: Its name.
        id: Its id, '' where the broker does not say.
        offsets: The next offset of each partition that has ever been seen.
    """

    topic: str
    id: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, position: str, topic: str) -> TopicPosition | None:
        """Read a position; None where the topic was never read. Raises SourceLost where it is none of the topic."""
        if not position:
            return None
        try:
            said = json.loads(position)
            if said["source"] == _SPARK:
                return cls._of_spark(said["offsets"], topic)
            found = _offsets_in(said["offsets"], topic)
            if said["source"] == _KIND and isinstance(said["id"], str) and found is not None:
                return cls(topic, said["id"], found)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise SourceLost(
            f"The position {printable(position)} belongs to another source: expected a position of topic "
            f"{topic!r}. Give the job another name.",
            position=position[:1000],
        )

    @classmethod
    def _of_spark(cls, offsets: Any, topic: str) -> TopicPosition:
        """Read what a stream on Spark says that reads one topic. Raises ValueError, KeyError or TypeError."""
        (one,) = offsets
        ((found, pairs),) = one.items()
        said = {int(partition): offset for partition, offset in pairs.items()}
        if found != topic or not all(type(offset) is int and offset >= 0 for offset in said.values()):
            raise ValueError(offsets)
        return cls(topic, "", said)

    @classmethod
    def of_hudi(cls, place: str, topic: str, topic_id: str) -> TopicPosition:
        """Read offsets as Hudi's streamer has them. Raises OptionError where they are none of the topic."""
        found = _offsets_in(place, topic)
        if not found:
            raise OptionError(
                f"{printable(place)} has no offsets for topic {topic!r}. Write them like '{topic},0:123,1:456'.",
                option="place",
            )
        return cls(topic, topic_id, found)

    def text(self) -> str:
        """The position as text."""
        return json.dumps({"source": _KIND, "id": self.id, "offsets": self._spelled()}, separators=(",", ":"))

    def to_spark(self) -> str:
        """The offsets as Spark's option `startingOffsets` has them."""
        offsets = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return json.dumps({self.topic: offsets}, separators=(",", ":"))

    def to_hudi(self) -> str:
        """The offsets as Hudi's streamer has them; '' where no partition has been seen, which it could not read."""
        return self._spelled() if self.offsets else ""

    def _spelled(self) -> str:
        return ",".join([self.topic, *(f"{one}:{self.offsets[one]}" for one in sorted(self.offsets))])


def is_position(place: str) -> bool:
    """Tell whether a place is a position, of whatever source, and not offsets that somebody names."""
    try:
        said = json.loads(place)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and isinstance(said.get("source"), str)


def offsets_named(place: str, topic: str) -> dict[int, int]:
    """Read offsets that somebody names, as Hudi's streamer spells them or Spark's option `startingOffsets` does.

    Args:
        place: Such as 'orders,0:123,1:456' or '{"orders":{"0":123,"1":456}}'.
        topic: The topic.

    Returns:
        The next offset by partition, at least one; -2 is the beginning of a partition and -1 its end, as for Spark.

    Raises:
        OptionError: They are none of the topic.
    """
    named = _offsets_in_spark(place, topic) if place.startswith("{") else _offsets_in(place, topic)
    if not named:
        raise OptionError(
            f"{printable(place)} is not a valid position in topic {topic!r}. Use {KNOWN}, the next offset of "
            f"each partition, such as '{topic},0:123,1:456' or {json.dumps({topic: {'0': 123, '1': 456}})!r}, "
            "or a position of an earlier batch.",
            option="place",
        )
    return named


def offsets_there(named: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], topic: str) -> dict[int, int]:
    """Look up offsets that somebody names.

    Args:
        named: What `offsets_named` gave.
        bounds: The first offset of each partition that there is, and the one behind its last.
        topic: The topic, for the error.

    Returns:
        The next offset of each partition.

    Raises:
        OptionError: A partition does not exist, is not named, or does not have its offset.
    """
    offsets = dict[int, int]()
    for partition, at in sorted(named.items()):
        if partition not in bounds:
            raise OptionError(
                f"Topic {topic!r} has no partition {partition}: expected 0 to {max(bounds)}. Nothing was changed.",
                option="place",
                partition=partition,
            )
        low, high = bounds[partition]
        at = {_SPARK_EARLIEST: low, _SPARK_LATEST: high}.get(at, at)
        if not low <= at <= high:
            raise OptionError(
                f"Partition {partition} of topic {topic!r} has no offset {at}: expected {low} to {high}, the "
                "offset of the next message. Nothing was changed.",
                option="place",
                partition=partition,
                offset=at,
            )
        offsets[partition] = at
    if missing := sorted(bounds.keys() - offsets.keys()):
        raise OptionError(
            f"Offsets are missing for partitions {printable(missing)} of topic {topic!r}. Nothing was changed. "
            "Pass an offset for each partition.",
            option="place",
            partition=missing[0],
        )
    return offsets


def _offsets_in(text: str, topic: str) -> dict[int, int] | None:
    """Offsets of a topic as Hudi's streamer spells them; None where they are none of it."""
    found = _OFFSETS.fullmatch(text)
    if not found or found["topic"] != topic:
        return None
    pairs = (pair.split(":") for pair in found["pairs"].split(",")[1:])
    return {int(partition): int(offset) for partition, offset in pairs}


def _offsets_in_spark(text: str, topic: str) -> dict[int, int] | None:
    """Offsets of a topic as Spark spells them; None where they are none of it."""
    try:
        ((found, pairs),) = json.loads(text).items()
        said = {int(partition): offset for partition, offset in pairs.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    known = all(type(offset) is int and offset >= _SPARK_EARLIEST for offset in said.values())
    return said if found == topic and known else None


def shares(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """Share a number of messages among partitions.

    Args:
        waiting: How many messages each has.
        most: How many are taken in all; one at least.

    Returns:
        How many are taken of each: even shares, and what one does not need the others get.
    """
    left, taken = max(most, 1), dict[int, int]()
    for at, (partition, count) in enumerate(sorted(waiting.items(), key=lambda one: (one[1], one[0]))):
        share = -(-left // (len(waiting) - at))
        taken[partition] = min(count, share, left)
        left -= taken[partition]
    return taken
