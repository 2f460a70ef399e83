"""A topic of Apache Kafka: rows, or change events of Debezium, as JSON or as Avro, each message once.

Partitions are assigned, never subscribed to: the position in the table decides what is read, and no group and no
rebalance does. Nothing is told to the broker. Only what is committed there is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import xxhash

from hoodoo.arguments import flag, number_from, one_of, time_units
from hoodoo.compactor.service_log import say
from hoodoo.errors import OptionError, SourceChanged
from hoodoo.redact import printable
from hoodoo.sources.avro_messages import AvroDecoder
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import EVENT, LOOKUP, UNAVAILABLE, DebeziumDecoder
from hoodoo.sources.debezium_avro import DebeziumAvroDecoder
from hoodoo.sources.json_messages import JsonDecoder
from hoodoo.sources.kafka_client import KafkaClient, Taken
from hoodoo.sources.kafka_position import TopicPosition, is_position, offsets_named, offsets_there, shares
from hoodoo.sources.kafka_rows import added_columns, of_senders, rows_of_messages
from hoodoo.sources.places import EARLIEST, LATEST, time_ms
from hoodoo.sources.schema_registry import SchemaRegistry
from hoodoo.sources.source import Limits, Part, Placing, Planned, Source, SourceLag

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger("hoodoo.ingest")
DEBEZIUM, AVRO, DEBEZIUM_AVRO = "debezium-json", "avro", "debezium-avro"
FORMATS = ("json", AVRO, DEBEZIUM, DEBEZIUM_AVRO)
OF_REGISTRIES = (AVRO, DEBEZIUM_AVRO)
"""Formats whose messages name schemas of a registry."""
_READS_EVENTS = f"format={DEBEZIUM!r} (--format {DEBEZIUM})"


@dataclass(frozen=True)
class _Ranges:
    """What is read: of each partition from an offset up to another one, that excluded, or less, if there are too many
    bytes: how large a message is shows when it is here only.
    """

    of: Mapping[int, tuple[int, int]]
    bytes_max: int
    bad_max: int
    lost: int = 0


class Kafka(Source):
    """The messages of a topic.

    A message is a JSON object, which is a row, or an event that says how a row has changed. A table with a column
    `_kafka_partition` (int), `_kafka_offset` (bigint), `_kafka_timestamp` (timestamp) or `_kafka_key` (string) gets
    what the broker says of it; what a sender says under these names is never taken.

    Attributes:
        name: 'kafka:' and the topic.
    """

    reads_ahead = True

    def __init__(
        self,
        servers: str,
        topic: str,
        start: str = "earliest",
        on_loss: str = "fail",
        tombstones: str = "quarantine",
        idle_s: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        format: str = "json",
        truncate: str = "fail",
        unavailable: str = UNAVAILABLE,
        told: bool = False,
        registry: SchemaRegistry | str | None = None,
        before: str = EVENT,
        time_unit: str | Mapping[str, str] | None = None,
    ) -> None:
        """Name a topic. Nothing is asked yet.

        Args:
            servers: Some brokers, as "broker-1:9092,broker-2:9092".
            topic: The topic.
            start: Where a job begins that has read nothing: 'earliest' (default) or 'latest'.
            on_loss: What to do where messages are gone that were not read: 'fail' (default) raises SourceLost before
                anything is read, 'skip' goes on with the oldest that are there, in the partition concerned only.
            tombstones: What to do about messages without a value: 'quarantine' (default) or 'skip'. Those of Debezium
                are always skipped: the delete stands before them.
            idle_s: For how long the broker may send nothing of what is there, in seconds. Default 30.
            settings: More settings of the client (librdkafka's), such as {"security.protocol": "SSL"}. Take secrets
                from the environment: they are neither logged nor stored.
            format: What messages are: 'json' (default) or 'avro', rows, or change events of Debezium: 'debezium-json',
                with schemas or without, or 'debezium-avro'. Avro begins with a zero byte and the number of its schema
                in four.
            truncate: What to do where Debezium says that the source table was emptied: 'fail' (default), 'ignore',
                which keeps the rows, or 'delete', which deletes all rows of the table, whoever wrote them. A topic of
                several partitions does not tell which rows came before, so it cannot have the last one.
            unavailable: The text by which Debezium says that it did not get a value, because it is large and did not
                change: the connector's unavailable.value.placeholder. Default '__debezium_unavailable_value'.
            told: True gives rows the four columns `_kafka_...`, for a transform, also where the table does not have
                them. False (default): only those that it has.
            registry: Which schema registry has the schemas of Avro, or its address, as "https://registry:8081".
                Needed with 'avro' and 'debezium-avro', and for nothing else.
            before: Of Debezium: what tells in which partition of the table the row before a change was, where the table
                is partitioned by columns outside the key. 'event' (default): the event, for which the database logs
                whole rows. 'lookup': each key of a batch is looked up in all partitions.
            time_unit: Of Debezium: the unit of timestamps without a zone and of times, if no schema in the messages
                says it. 'ms', 'us' or 'ns' for all columns, or a mapping of columns to these, such as
                {"created": "ms"}. None (default): microseconds if a value cannot be anything else; other values go to
                the quarantine.

        Raises:
            OptionError: An argument does not have one of the values above, or a setting would lose messages.
            EngineError: confluent-kafka is not installed.
        """
        for option, value in (("servers", servers), ("topic", topic), ("unavailable", unavailable)):
            if not isinstance(value, str) or not value:
                raise OptionError(f"{option} takes a text, got {printable(value)}.", option=option)
        one_of("start", start, ("earliest", "latest"))
        one_of("on_loss", on_loss, ("fail", "skip"))
        one_of("tombstones", tombstones, ("quarantine", "skip"))
        one_of("format", format, FORMATS)
        one_of("truncate", truncate, ("fail", "ignore", "delete"))
        one_of("before", before, (EVENT, LOOKUP))
        self.topic, self.start, self.on_loss, self.tombstones = topic, start, on_loss, tombstones
        self.told = flag("told", told)
        self.format, self.truncate, self.unavailable, self.before = format, truncate, unavailable, before
        self.units = time_units(time_unit)
        if self.units and format not in (DEBEZIUM, DEBEZIUM_AVRO):
            raise OptionError(
                f"time_unit does not apply to format={format!r}: expected {DEBEZIUM!r} or {DEBEZIUM_AVRO!r}. Leave "
                "time_unit out.",
                option="time_unit",
            )
        idle_s = number_from("idle_s", idle_s, 0, optional=False)
        self._client = KafkaClient(servers, topic, dict(settings or {}), idle_s, skips_lost=on_loss == "skip")
        # how large a message was in the mean when some were read: a guess, by which partitions share a batch evenly
        self._mean_bytes = 1.0
        self.name = f"kafka:{topic}"
        self._schemas = _schemas(format, registry)

    def __repr__(self) -> str:
        return f"<topic {self.topic} of Kafka at {self._client.servers}>"

    # ---- plan
    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose offsets after a position.

        Args:
            position: The position of an earlier plan; '' for none.
            limits: Of all partitions together at most `limits.rows` offsets are taken. Reading ends before them where
                keys and values have more than `limits.bytes`; one message is read whatever it has.

        Returns:
            A range of each partition, or None where there is nothing new.

        Raises:
            SourceLost: Messages after the position are gone, or the topic is another one by now.
            OptionError: The client refuses a setting.
            SourceUnavailable: The broker does not answer.
        """
        was = TopicPosition.of(position, self.topic)
        bounds, topic_id = self._client.bounds(), self._client.topic_id(was.id if was else "")
        if self.truncate == "delete" and len(bounds) > 1:
            raise OptionError(
                f"truncate='delete' needs a topic of one partition, and {self.topic!r} has {len(bounds)}: which of "
                "their rows came before the truncate nobody can tell. Use truncate='fail'.",
                option="truncate",
            )
        begin = self._begin(was, bounds, topic_id)
        lost = self._lost(was, begin)
        waiting = {one: bounds[one][1] - begin[one] for one in begin}
        counts = shares(waiting, min(limits.rows, int(limits.bytes / self._mean_bytes)))
        if not any(counts.values()) and was is not None:
            return None
        ranges = {one: (begin[one], begin[one] + count) for one, count in counts.items() if count}
        after = TopicPosition(self.topic, topic_id, {**begin, **{one: stop for one, (_, stop) in ranges.items()}})
        return Planned(_Ranges(ranges, limits.bytes, limits.bad_rows, lost), after.text())

    def _begin(self, was: TopicPosition | None, bounds: Mapping[int, tuple[int, int]], topic_id: str) -> dict[int, int]:
        """Where each partition is read from."""
        known = was.offsets if was else {}
        if was and was.id and topic_id and was.id != topic_id:
            raise self._client.lost("the topic was deleted and made anew")
        if gone := sorted(set(known) - set(bounds)):
            raise self._client.lost(f"partition {gone[0]} is gone")
        begin = {}
        for partition, (low, high) in bounds.items():
            # a partition that came later is read from its beginning
            at = known.get(partition, high if was is None and self.start == "latest" else low)
            if not low <= at <= high:
                if self.on_loss == "fail":
                    raise self._client.lost(
                        f"partition {partition} has messages {low} to {high} by now, and {at} would be next",
                        can_skip=True,
                        partition=partition,
                        offset=at,
                    )
                at = low
            begin[partition] = at
        return begin

    def _lost(self, was: TopicPosition | None, begin: Mapping[int, int]) -> int:
        """Log the messages that are gone and were not read, and return their number."""
        lost = 0
        for partition, at in begin.items():
            expected = was.offsets.get(partition, at) if was else at
            if expected != at:
                count = max(0, at - expected)
                lost += count
                details = {"topic": self.topic, "partition": partition, "expected": expected, "next": at}
                say(logging.WARNING, "messages lost", to=_log, **details, lost=count)
        return lost

    # ---- read
    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read ranges, in the order of partition and offset.

        Args:
            planned: What `plan` gave.
            columns: The columns of the table.
            unknown: Are columns wanted that `columns` does not have?

        Yields:
            The rows, and the messages that are none.

        Raises:
            SourceLost: Messages were deleted since they were planned.
            SourceChanged: They were, and what is lost is skipped; or the topic is another one by now.
            SourceUnavailable: The broker or the schema registry does not answer.
            TooManyBadRows: There are more bad messages than the plan was told.
            OptionError: The brokers or the schema registry refuse to answer.
            DataError: Change events have no key, or another one than the table, or do not say what the table needs.
        """
        ranges = cast("_Ranges", planned.what)
        taken = self._client.take(ranges.of, ranges.bytes_max)
        was, messages = cast("TopicPosition", TopicPosition.of(planned.position, self.topic)), taken.messages
        if was.id and self._client.topic_id(was.id) != was.id:
            raise SourceChanged(
                f"Topic {self.topic!r} was deleted and made anew while it was read. Nothing was written. Plan again.",
                topic=self.topic,
            )
        if messages:
            self._mean_bytes = max(1.0, taken.size / len(messages))
        position = replace(was, offsets={**was.offsets, **taken.upto}).text()

        def place(number: int, payload: bytes) -> str:
            message = messages[number]
            digest = xxhash.xxh3_64_hexdigest(was.id.encode() + payload)[:8]  # the topic may be deleted and recreated
            return f"{message.partition()}:{message.offset()}:{digest}"

        bad = BadMessages(self.topic, ranges.bad_max, place)
        if self.format in (DEBEZIUM, DEBEZIUM_AVRO):
            yield replace(self._changes(taken, columns, unknown, bad, position), lost=ranges.lost)
            return
        numbered = list[tuple[int, bytes]]()
        for number, message in enumerate(messages):
            value = message.value()
            if value is not None:
                numbered.append((number, value))
            elif self.tombstones == "quarantine":
                bad.note(number, "a message without a value", message.key() or b"", "tombstone")
        asked = of_senders(columns)
        decoder: JsonDecoder | AvroDecoder = JsonDecoder(asked, unknown, _READS_EVENTS)
        if self._schemas is not None:
            decoder = AvroDecoder(f"Topic {self.topic!r}", asked, unknown, self._schemas)
        decoded = decoder.rows(numbered, bad)
        rows = rows_of_messages(self.topic, decoded, messages, columns, self.told, decoder.left_out)
        yield Part(
            rows, bad.table(), tuple(sorted(decoder.left_out)), position=position, bytes=taken.size, lost=ranges.lost
        )

    def _changes(self, taken: Taken, columns: pa.Schema, unknown: bool, bad: BadMessages, position: str) -> Part:
        """Change events as rows; a message without a value follows a delete, for those who compact the topic."""
        messages = taken.messages
        values = [message.value() for message in messages]
        there = [number for number, value in enumerate(values) if value is not None]
        asked = (f"Topic {self.topic!r}", columns, unknown, Placing.of(columns), self.truncate, self.before)
        decoder = DebeziumDecoder(*asked) if self._schemas is None else DebeziumAvroDecoder(*asked, self._schemas)
        decoder.units = self.units
        decoder.unavailable, decoder.added = self.unavailable, lambda number: added_columns(messages[number])
        keys = [messages[number].key() for number in there]
        decoded = decoder.rows(there, keys, [cast("bytes", values[number]) for number in there], bad)
        rows = rows_of_messages(self.topic, decoded, messages, columns, self.told, decoder.left_out)
        if decoder.emptied is not None:  # what was read after it is read again, into an empty table
            return Part(
                pa.table({}),
                skipped=decoder.emptied + 1,
                position=_behind(messages[decoder.emptied], position),
                emptied=True,
            )
        skipped = decoder.skipped + len(messages) - len(there)
        return Part(
            rows,
            bad.table(),
            tuple(sorted(decoder.left_out)),
            skipped,
            self.unavailable,
            position,
            bytes=taken.size,
            unplaced=decoder.unplaced,
        )

    # ---- lag
    def lag(self, position: str) -> SourceLag:
        """Count the offsets that wait, including marks of transactions and messages behind an open transaction.

        Args:
            position: How far the topic was read.

        Returns:
            How many there are, and how old the oldest message of them is.
        """
        was = TopicPosition.of(position, self.topic)
        bounds = self._client.bounds()
        begin = self._begin(was, bounds, was.id if was else "")
        readable = {one: bounds[one][1] - begin[one] for one in begin}
        ends = self._client.ends(bounds)
        waiting = {one: max(count, ends.get(one, 0) - begin[one]) for one, count in readable.items()}
        oldest = self._client.take({one: (begin[one], begin[one] + 1) for one, count in readable.items() if count})
        times = [message.timestamp()[1] for message in oldest.messages]
        age = max(0.0, time.time() - min(times) / 1000) if times else 0.0
        return SourceLag(
            sum(waiting.values()), "messages", age, {str(one): count for one, count in sorted(waiting.items())}
        )

    def position_at(self, place: str) -> str:
        """Look a place up.

        Args:
            place: 'earliest', 'latest', a time, from which on messages are read by their own times, an offset of each
                partition such as 'orders,0:123,1:456', the same as Spark spells it, '{"orders":{"0":123,"1":456}}',
                where -2 is the beginning of a partition and -1 its end, or a position.

        Returns:
            The position.

        Raises:
            OptionError: It is none of these, or the topic has other partitions, or no such offset.
            SourceLost: The position is that of another topic.
            SourceUnavailable: The broker does not answer.
        """
        if is_position(place):
            return super().position_at(place)
        moment = time_ms(place)
        is_named = place not in (EARLIEST, LATEST) and moment is None
        named = offsets_named(place, self.topic) if is_named else {}
        bounds = self._client.bounds()
        if is_named:
            offsets = offsets_there(named, bounds, self.topic)
        elif moment is not None:
            found = self._client.offsets_at(moment, bounds)
            offsets = {one: at if at >= 0 else bounds[one][1] for one, at in found.items()}
        else:
            offsets = {one: low if place == EARLIEST else high for one, (low, high) in bounds.items()}
        return TopicPosition(self.topic, self._client.topic_id(""), offsets).text()

    def from_hudi(self, place: str) -> str:
        """Read offsets as Apache Hudi's streamer has them.

        Args:
            place: Such as 'orders,0:123,1:456'.

        Returns:
            The position.

        Raises:
            OptionError: They are none of the topic.
            SourceUnavailable: The broker does not answer.
        """
        return TopicPosition.of_hudi(place, self.topic, self._client.topic_id("")).text()

    def to_hudi(self, position: str) -> str:
        """Spell the next offsets as Apache Hudi's streamer does.

        Args:
            position: The position of a plan.

        Returns:
            A text such as 'shop.orders,0:123,1:456'.
        """
        was = TopicPosition.of(position, self.topic)
        return was.to_hudi() if was else ""

    def to_spark(self, position: str) -> str:
        """Spell the next offsets as the option `startingOffsets` of Spark's source for Kafka has them.

        Args:
            position: How far the topic was read.

        Returns:
            A text such as '{"shop.orders":{"0":123,"1":456}}'; where it was not read, `start`.
        """
        was = TopicPosition.of(position, self.topic)
        return was.to_spark() if was else self.start


def _behind(message: Message, planned: str) -> str:
    """The position behind a message of a topic of one partition, instead of the planned one."""
    topic = cast("str", message.topic())
    was = cast("TopicPosition", TopicPosition.of(planned, topic))
    return replace(was, offsets={cast("int", message.partition()): cast("int", message.offset()) + 1}).text()


def _schemas(format: str, registry: SchemaRegistry | str | None) -> AvroSchemas | None:
    """The schemas of messages, if the format has any. Raises OptionError."""
    if (format in OF_REGISTRIES) != (registry is not None):
        needed = "needs" if registry is None else "does not take"
        raise OptionError(f"format={format!r} {needed} registry=, the address of a schema registry.", option="registry")
    if registry is None:
        return None
    asked = registry if isinstance(registry, SchemaRegistry) else SchemaRegistry(registry)
    return AvroSchemas(asked, times=format == AVRO)


__all__ = ["Kafka"]
