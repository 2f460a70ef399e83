"""Position of a job in a Kafka topic.

    {"source": "kafka", "id": "7co8koLWSQO1AkDGcZgNOQ", "offsets": "shop.orders,0:123,1:456"}

The position also contains the id of the topic. A recreated topic may be longer than the position, so the offsets alone
do not show that the topic was recreated. A Spark stream has no id and its own format of offsets, which the sink of a
table with `positions=True` stores:

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
from hoodoo.sources.start_points import KNOWN

_KIND, _SPARK = "kafka", "spark"
_SPARK_EARLIEST, _SPARK_LATEST = -2, -1
_OFFSETS = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(?P<pairs>(?:,\d+:\d+)*)", re.ASCII)


@dataclass(frozen=True)
class TopicPosition:
    """Position of a job in a Kafka topic.

    Attributes:
        topic: The name of the topic.
        id: The id of the topic, or '' if the broker does not return one.
        offsets: The next offset to read of each partition, including deleted partitions.
    """

    topic: str
    id: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, position: str, topic: str) -> TopicPosition | None:
        """Parse a stored position of the topic.

        Returns None for an empty string. Raises SourceLost if the position belongs to another source.
        """
        if not position:
            return None
        try:
            content = json.loads(position)
            if content["source"] == _SPARK:
                return cls._parse_spark_offsets(content["offsets"], topic)
            offsets = _parse_hudi_offsets(content["offsets"], topic)
            if content["source"] == _KIND and isinstance(content["id"], str) and offsets is not None:
                return cls(topic, content["id"], offsets)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise SourceLost(
            f"The position {printable(position)} belongs to another source: expected a position of topic "
            f"{topic!r}. To read this topic from its beginning, give the job another name.",
            position=position[:1000],
        )

    @classmethod
    def _parse_spark_offsets(cls, offsets: Any, topic: str) -> TopicPosition:
        # Raises ValueError, KeyError or TypeError for offsets of another topic.
        (by_topic,) = offsets
        ((name, pairs),) = by_topic.items()
        by_partition = {int(partition): offset for partition, offset in pairs.items()}
        if name != topic or not all(type(offset) is int and offset >= 0 for offset in by_partition.values()):
            raise ValueError(offsets)
        return cls(topic, "", by_partition)

    @classmethod
    def of_hudi(cls, checkpoint: str, topic: str, topic_id: str) -> TopicPosition:
        offsets = _parse_hudi_offsets(checkpoint, topic)
        if not offsets:
            raise OptionError(
                f"{printable(checkpoint)} does not contain offsets for topic {topic!r}. Write them like "
                f"'{topic},0:123,1:456'.",
                option="checkpoint",
            )
        return cls(topic, topic_id, offsets)

    def text(self) -> str:
        return json.dumps({"source": _KIND, "id": self.id, "offsets": self._offsets_text()}, separators=(",", ":"))

    def to_spark(self) -> str:
        offsets = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return json.dumps({self.topic: offsets}, separators=(",", ":"))

    def to_hudi(self) -> str:
        """Format the offsets for Hudi's streamer.

        An example is 'orders,0:123,1:456'. Returns '' for a position without partitions, which Hudi cannot parse.
        """
        return self._offsets_text() if self.offsets else ""

    def _offsets_text(self) -> str:
        return ",".join([self.topic, *(f"{one}:{self.offsets[one]}" for one in sorted(self.offsets))])


def is_stored_position(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and isinstance(content.get("source"), str)


def parse_user_offsets(text: str, topic: str) -> dict[int, int]:
    """Parse offsets that a user wrote.

    Args:
        text: Such as 'orders,0:123,1:456' or '{"orders":{"0":123,"1":456}}'.
        topic: The name of the topic.

    Returns:
        The next offset by partition, at least one. As in Spark, -2 is the beginning of a partition and -1 its end.

    Raises:
        OptionError: The string does not contain offsets of the topic.
    """
    named = _parse_spark_json(text, topic) if text.startswith("{") else _parse_hudi_offsets(text, topic)
    if not named:
        raise OptionError(
            f"{printable(text)} is not a valid position in topic {topic!r}. Use {KNOWN}, the next offset of "
            f"each partition, such as '{topic},0:123,1:456' or {json.dumps({topic: {'0': 123, '1': 456}})!r}, "
            "or a position of an earlier batch.",
            option="start",
        )
    return named


def resolve_existing_offsets(
    named: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], topic: str
) -> dict[int, int]:
    """Check that offsets exist in the topic.

    `named` is the result of `parse_user_offsets`. The offsets -2 (beginning) and -1 (end) are resolved. Raises
    OptionError if a partition does not exist or is not listed, or if its offset does not exist.
    """
    offsets = dict[int, int]()
    for partition, offset in sorted(named.items()):
        if partition not in bounds:
            raise OptionError(
                f"Topic {topic!r} does not have partition {partition}: expected 0 to {max(bounds)}. Nothing was "
                "changed.",
                option="start",
                partition=partition,
            )
        low, high = bounds[partition]
        offset = {_SPARK_EARLIEST: low, _SPARK_LATEST: high}.get(offset, offset)
        if not low <= offset <= high:
            raise OptionError(
                f"Partition {partition} of topic {topic!r} does not have offset {offset}: expected {low} to {high}, "
                "the offset of the next message. Nothing was changed.",
                option="start",
                partition=partition,
                offset=offset,
            )
        offsets[partition] = offset
    if missing := sorted(bounds.keys() - offsets.keys()):
        raise OptionError(
            f"Offsets are missing for partitions {printable(missing)} of topic {topic!r}. Nothing was changed. "
            "Pass an offset for each partition.",
            option="start",
            partition=missing[0],
        )
    return offsets


def _parse_hudi_offsets(text: str, topic: str) -> dict[int, int] | None:
    # None if the text does not contain offsets of the topic.
    match = _OFFSETS.fullmatch(text)
    if not match or match["topic"] != topic:
        return None
    pairs = (pair.split(":") for pair in match["pairs"].split(",")[1:])
    return {int(partition): int(offset) for partition, offset in pairs}


def _parse_spark_json(text: str, topic: str) -> dict[int, int] | None:
    # None if the text does not contain offsets of the topic.
    try:
        ((name, pairs),) = json.loads(text).items()
        offsets = {int(partition): offset for partition, offset in pairs.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    is_valid = all(type(offset) is int and offset >= _SPARK_EARLIEST for offset in offsets.values())
    return offsets if name == topic and is_valid else None


def distribute_batch(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """Distribute the messages of a batch evenly over partitions.

    `waiting` is the number of unread messages in each partition, and `most` is the total number to read. Partitions
    with more messages get the unused shares of partitions with fewer.
    """
    remaining, counts = max(most, 1), dict[int, int]()
    for index, (partition, count) in enumerate(sorted(waiting.items(), key=lambda one: (one[1], one[0]))):
        share = -(-remaining // (len(waiting) - index))
        counts[partition] = min(count, share, remaining)
        remaining -= counts[partition]
    return counts
