"""Source that reads a Kafka topic.

The messages are rows or Debezium change events. The source assigns partitions and never subscribes to a topic, so the
position in the table alone determines which offsets are read. No offsets are committed to the broker. Only committed
messages are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import xxhash

from hoodoo.arguments import check_allowed_value, check_flag, check_number, convert_time_units
from hoodoo.compactor.service_log import log_event
from hoodoo.errors import OptionError, SourceChanged
from hoodoo.redact import printable
from hoodoo.sources.avro_messages import AvroDecoder
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import EVENT, LOOKUP, UNAVAILABLE, DebeziumDecoder
from hoodoo.sources.debezium_avro import DebeziumAvroDecoder
from hoodoo.sources.json_messages import JsonDecoder
from hoodoo.sources.kafka_client import KafkaClient, ReadMessages
from hoodoo.sources.kafka_position import (
    TopicPosition,
    distribute_batch,
    is_stored_position,
    parse_user_offsets,
    resolve_existing_offsets,
)
from hoodoo.sources.kafka_rows import add_message_columns, columns_from_messages, kafka_columns_of_message
from hoodoo.sources.schema_registry import SchemaRegistry
from hoodoo.sources.source import Limits, Part, Placing, Planned, Source, SourceLag
from hoodoo.sources.start_points import EARLIEST, LATEST, parse_time_ms

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger("hoodoo.ingest")
DEBEZIUM, AVRO, DEBEZIUM_AVRO = "debezium-json", "avro", "debezium-avro"
FORMATS = ("json", AVRO, DEBEZIUM, DEBEZIUM_AVRO)
OF_REGISTRIES = (AVRO, DEBEZIUM_AVRO)
"""Formats whose messages contain the id of a schema in a registry."""
_EVENT_FORMAT_OPTION = f"format={DEBEZIUM!r} (--format {DEBEZIUM})"


@dataclass(frozen=True)
class _OffsetRanges:
    """Offsets that one batch reads.

    Each partition has the first offset and the offset after the last. Fewer messages are read if their bytes exceed
    `bytes_max`, since the size of a message is not known in advance.
    """

    of: Mapping[int, tuple[int, int]]
    bytes_max: int
    bad_max: int
    lost: int = 0


class Kafka(Source):
    """Source that reads a Kafka topic.

    The messages are JSON rows, Avro rows or Debezium change events. If the table has the columns `_kafka_partition`
    (int), `_kafka_offset` (bigint), `_kafka_timestamp` (timestamp) or `_kafka_key` (string), the source fills them.
    Fields of a message with these names are ignored.

    Attributes:
        name: 'kafka:' and the name of the topic.
    """

    reads_ahead = True

    def __init__(
        self,
        servers: str,
        topic: str,
        start: str = "earliest",
        on_loss: str = "fail",
        tombstones: str = "quarantine",
        idle_seconds: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        format: str = "json",
        truncate: str = "fail",
        unavailable: str = UNAVAILABLE,
        broker_columns: bool = False,
        registry: SchemaRegistry | str | None = None,
        before: str = EVENT,
        time_unit: str | Mapping[str, str] | None = None,
    ) -> None:
        """Create a source for a Kafka topic.

        The broker is not contacted yet.

        Args:
            servers: Addresses of one or more brokers, such as "broker-1:9092,broker-2:9092".
            topic: Name of the topic.
            start: Position of a new job: 'earliest' (default) or 'latest'.
            on_loss: Handling of messages that were deleted before they were read: 'fail' (default) raises SourceLost
                before anything is read, 'skip' continues with the oldest message of the partition.
            tombstones: Handling of messages without a value: 'quarantine' (default) or 'skip'. Tombstones of Debezium
                are always skipped, because a delete event precedes them.
            idle_seconds: Time that a broker may take to send the next message, in seconds. Default 30.
            settings: More settings of librdkafka, such as {"security.protocol": "SSL"}. Read secrets from the
                environment: the source neither logs nor stores them.
            format: Format of the messages: 'json' (default) or 'avro' for rows, 'debezium-json' (with or without
                schemas) or 'debezium-avro' for change events. An Avro message begins with a zero byte and the schema id
                in four bytes.
            truncate: Handling of a truncate event of Debezium: 'fail' (default), 'ignore', which keeps the rows, or
                'delete', which deletes all rows of the table. 'delete' requires a topic with one partition.
            unavailable: Placeholder of Debezium for a large value that did not change: the connector's option
                `unavailable.value.placeholder`. Default '__debezium_unavailable_value'.
            broker_columns: True adds the four columns `_kafka_...` to the rows that a transform receives. False
                (default) adds only the columns that the table has.
            registry: Schema registry, or its address, such as "https://registry:8081". Required for 'avro' and
                'debezium-avro'.
            before: For change events, if the table is partitioned by columns outside the key: source of a row's former
                partition. 'event' (default) reads it from the event; the database must log whole rows. 'lookup'
                searches all partitions for each key of a batch.
            time_unit: For change events without a schema: unit of times and of timestamps without a zone. 'ms', 'us' or
                'ns' for all columns, or a mapping of columns to units, such as {"created": "ms"}. None (default):
                microseconds if no other unit is possible for a value; other values are quarantined.

        Raises:
            OptionError: An argument is invalid, or a setting would lose messages.
            EngineError: confluent-kafka is not installed.
        """
        for option, value in (("servers", servers), ("topic", topic), ("unavailable", unavailable)):
            if not isinstance(value, str) or not value:
                raise OptionError(
                    f"Option {option} is invalid: expected a string, got {printable(value)}.", option=option
                )
        check_allowed_value("start", start, ("earliest", "latest"))
        check_allowed_value("on_loss", on_loss, ("fail", "skip"))
        check_allowed_value("tombstones", tombstones, ("quarantine", "skip"))
        check_allowed_value("format", format, FORMATS)
        check_allowed_value("truncate", truncate, ("fail", "ignore", "delete"))
        check_allowed_value("before", before, (EVENT, LOOKUP))
        self.topic, self.start, self.on_loss, self.tombstones = topic, start, on_loss, tombstones
        self.broker_columns = check_flag("broker_columns", broker_columns)
        self.format, self.truncate, self.unavailable, self.before = format, truncate, unavailable, before
        self.units = convert_time_units(time_unit)
        if self.units and format not in (DEBEZIUM, DEBEZIUM_AVRO):
            raise OptionError(
                f"Option time_unit is not valid for format={format!r}: expected {DEBEZIUM!r} or {DEBEZIUM_AVRO!r}. "
                "Leave time_unit out.",
                option="time_unit",
            )
        idle_seconds = check_number("idle_seconds", idle_seconds, 0, optional=False)
        self._client = KafkaClient(servers, topic, dict(settings or {}), idle_seconds, skips_lost=on_loss == "skip")
        # mean message size of the last batch, used to divide the byte limit among partitions
        self._mean_bytes = 1.0
        self.name = f"kafka:{topic}"
        self._schemas = _create_schema_cache(format, registry)

    def __repr__(self) -> str:
        return f"<topic {self.topic} of Kafka at {self._client.servers}>"

    # ---- plan
    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the offsets for the next batch.

        Args:
            position: Position of an earlier plan; '' for the first batch.
            limits: Limits of the batch over all partitions. `limits.bytes` counts keys and values; at least one message
                is read.

        Returns:
            A range of offsets for each partition; None if all messages were read.

        Raises:
            SourceLost: Messages after the position were deleted, or the topic was deleted and recreated.
            OptionError: librdkafka rejects a setting.
            SourceUnavailable: The broker does not respond.
        """
        last = TopicPosition.parse(position, self.topic)
        bounds, topic_id = self._client.bounds(), self._client.topic_id(last.id if last else "")
        if self.truncate == "delete" and len(bounds) > 1:
            raise OptionError(
                f"truncate='delete' requires a topic with one partition, but {self.topic!r} has {len(bounds)}: the "
                "order of rows and truncates in different partitions is unknown. Use truncate='fail'.",
                option="truncate",
            )
        begin = self._first_offsets(last, bounds, topic_id)
        lost = self._log_lost_messages(last, begin)
        waiting = {partition: bounds[partition][1] - begin[partition] for partition in begin}
        counts = distribute_batch(waiting, min(limits.rows, int(limits.bytes / self._mean_bytes)))
        if not any(counts.values()) and last is not None:
            return None
        ranges = {
            partition: (begin[partition], begin[partition] + count) for partition, count in counts.items() if count
        }
        after = TopicPosition(
            self.topic, topic_id, {**begin, **{partition: stop for partition, (_, stop) in ranges.items()}}
        )
        return Planned(_OffsetRanges(ranges, limits.bytes, limits.bad_rows, lost), after.text())

    def _first_offsets(
        self, last: TopicPosition | None, bounds: Mapping[int, tuple[int, int]], topic_id: str
    ) -> dict[int, int]:
        # Raises SourceLost if messages were deleted before they were read, unless on_loss is 'skip'.
        known = last.offsets if last else {}
        if last and last.id and topic_id and last.id != topic_id:
            raise self._client.lost("The topic was deleted and recreated")
        if missing := sorted(set(known) - set(bounds)):
            raise self._client.lost(f"Partition {missing[0]} does not exist")
        begin = {}
        for partition, (low, high) in bounds.items():
            # a partition that was added later is read from its beginning
            offset = known.get(partition, high if last is None and self.start == "latest" else low)
            if not low <= offset <= high:
                if self.on_loss == "fail":
                    raise self._client.lost(
                        f"Partition {partition} has the offsets {low} to {high} now, but the job needs offset {offset}",
                        can_skip=True,
                        partition=partition,
                        offset=offset,
                    )
                offset = low
            begin[partition] = offset
        return begin

    def _log_lost_messages(self, last: TopicPosition | None, begin: Mapping[int, int]) -> int:
        lost = 0
        for partition, offset in begin.items():
            expected = last.offsets.get(partition, offset) if last else offset
            if expected != offset:
                count = max(0, offset - expected)
                lost += count
                details = {"topic": self.topic, "partition": partition, "expected": expected, "next": offset}
                log_event(logging.WARNING, "messages lost", to=_log, **details, lost=count)
        return lost

    # ---- read
    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read the messages of a planned batch.

        The messages are in the order of partition and offset.

        Args:
            planned: A result of `plan`.
            columns: Columns of the table.
            unknown: True to also return columns that the table does not have.

        Yields:
            Rows and bad messages.

        Raises:
            SourceLost: Messages were deleted after `plan`.
            SourceChanged: Messages were deleted after `plan` and on_loss is 'skip', or the topic was recreated.
            SourceUnavailable: The broker or the schema registry does not respond.
            TooManyBadRows: There are more bad messages than the limits of the plan allow.
            OptionError: The broker or the schema registry denies access.
            DataError: Change events have no key, their key differs from the key of the table, or a column is missing.
        """
        ranges = cast("_OffsetRanges", planned.what)
        found = self._client.take(ranges.of, ranges.bytes_max)
        last, messages = cast("TopicPosition", TopicPosition.parse(planned.position, self.topic)), found.messages
        if last.id and self._client.topic_id(last.id) != last.id:
            raise SourceChanged(
                f"Topic {self.topic!r} was deleted and recreated while it was read. Nothing was written. Plan again.",
                topic=self.topic,
            )
        if messages:
            self._mean_bytes = max(1.0, found.size / len(messages))
        position = replace(last, offsets={**last.offsets, **found.upto}).text()

        def place(number: int, payload: bytes) -> str:
            message = messages[number]
            digest = xxhash.xxh3_64_hexdigest(last.id.encode() + payload)[:8]  # the topic may be deleted and recreated
            return f"{message.partition()}:{message.offset()}:{digest}"

        bad = BadMessages(self.topic, ranges.bad_max, place)
        if self.format in (DEBEZIUM, DEBEZIUM_AVRO):
            yield replace(self._decode_events(found, columns, unknown, bad, position), lost=ranges.lost)
            return
        numbered = list[tuple[int, bytes]]()
        for number, message in enumerate(messages):
            value = message.value()
            if value is not None:
                numbered.append((number, value))
            elif self.tombstones == "quarantine":
                bad.note(number, "the message has no value", message.key() or b"", "tombstone")
        decoded_columns = columns_from_messages(columns)
        decoder: JsonDecoder | AvroDecoder = JsonDecoder(decoded_columns, unknown, _EVENT_FORMAT_OPTION)
        if self._schemas is not None:
            decoder = AvroDecoder(f"Topic {self.topic!r}", decoded_columns, unknown, self._schemas)
        decoded = decoder.rows(numbered, bad)
        rows = add_message_columns(self.topic, decoded, messages, columns, self.broker_columns, decoder.left_out)
        yield Part(
            rows, bad.table(), tuple(sorted(decoder.left_out)), position=position, bytes=found.size, lost=ranges.lost
        )

    def _decode_events(
        self, found: ReadMessages, columns: pa.Schema, unknown: bool, bad: BadMessages, position: str
    ) -> Part:
        # Debezium sends messages without a value after deletes, only for the compaction of topics. They are skipped.
        messages = found.messages
        values = [message.value() for message in messages]
        numbers = [number for number, value in enumerate(values) if value is not None]
        decoder_args = (f"Topic {self.topic!r}", columns, unknown, Placing.of(columns), self.truncate, self.before)
        decoder = (
            DebeziumDecoder(*decoder_args)
            if self._schemas is None
            else DebeziumAvroDecoder(*decoder_args, self._schemas)
        )
        decoder.units = self.units
        decoder.unavailable, decoder.added = self.unavailable, lambda number: kafka_columns_of_message(messages[number])
        keys = [messages[number].key() for number in numbers]
        decoded = decoder.rows(numbers, keys, [cast("bytes", values[number]) for number in numbers], bad)
        rows = add_message_columns(self.topic, decoded, messages, columns, self.broker_columns, decoder.left_out)
        if decoder.emptied is not None:  # later messages are read again, into an empty table
            return Part(
                pa.table({}),
                skipped=decoder.emptied + 1,
                position=_position_after(messages[decoder.emptied], position),
                emptied=True,
            )
        skipped = decoder.skipped + len(messages) - len(numbers)
        return Part(
            rows,
            bad.table(),
            tuple(sorted(decoder.left_out)),
            skipped,
            self.unavailable,
            position,
            bytes=found.size,
            unplaced=decoder.unplaced,
        )

    # ---- lag
    def lag(self, position: str) -> SourceLag:
        """Count the unread offsets of the topic.

        The number includes transaction markers and messages after an open transaction.

        Args:
            position: Position of an earlier plan; '' for the beginning of the topic.

        Returns:
            The number of offsets and the age of the oldest message.
        """
        last = TopicPosition.parse(position, self.topic)
        bounds = self._client.bounds()
        begin = self._first_offsets(last, bounds, last.id if last else "")
        readable = {partition: bounds[partition][1] - begin[partition] for partition in begin}
        ends = self._client.ends(bounds)
        waiting = {
            partition: max(count, ends.get(partition, 0) - begin[partition]) for partition, count in readable.items()
        }
        oldest = self._client.take(
            {partition: (begin[partition], begin[partition] + 1) for partition, count in readable.items() if count}
        )
        times = [message.timestamp()[1] for message in oldest.messages]
        age = max(0.0, time.time() - min(times) / 1000) if times else 0.0
        return SourceLag(
            sum(waiting.values()),
            "messages",
            age,
            {str(partition): count for partition, count in sorted(waiting.items())},
        )

    def position_at(self, start: str) -> str:
        """Convert a start point such as 'latest' to a position.

        Args:
            start: One of: 'earliest'; 'latest'; a time, from which messages are read by their timestamps; an offset for
                each partition, such as 'orders,0:123,1:456'; offsets in the format of Spark,
                '{"orders":{"0":123,"1":456}}', where -2 is the beginning of a partition and -1 its end; a position of
                an earlier plan.

        Returns:
            The position.

        Raises:
            OptionError: `start` is invalid, or the topic lacks a partition or an offset.
            SourceLost: The position belongs to another topic.
            SourceUnavailable: The broker does not respond.
        """
        if is_stored_position(start):
            return super().position_at(start)
        moment = parse_time_ms(start)
        is_named = start not in (EARLIEST, LATEST) and moment is None
        named = parse_user_offsets(start, self.topic) if is_named else {}
        bounds = self._client.bounds()
        if is_named:
            offsets = resolve_existing_offsets(named, bounds, self.topic)
        elif moment is not None:
            found = self._client.offsets_at_time(moment, bounds)
            offsets = {one: at if at >= 0 else bounds[one][1] for one, at in found.items()}
        else:
            offsets = {one: low if start == EARLIEST else high for one, (low, high) in bounds.items()}
        return TopicPosition(self.topic, self._client.topic_id(""), offsets).text()

    def from_hudi(self, checkpoint: str) -> str:
        """Convert a checkpoint of Hudi's streamer to a position.

        Args:
            checkpoint: The checkpoint, such as 'orders,0:123,1:456'.

        Returns:
            The position.

        Raises:
            OptionError: The checkpoint belongs to another topic.
            SourceUnavailable: The broker does not respond.
        """
        return TopicPosition.of_hudi(checkpoint, self.topic, self._client.topic_id("")).text()

    def to_hudi(self, position: str) -> str:
        """Convert a position to a checkpoint of Hudi's streamer.

        Args:
            position: Position of a plan.

        Returns:
            The checkpoint, such as 'shop.orders,0:123,1:456'; '' if nothing was read.
        """
        last = TopicPosition.parse(position, self.topic)
        return last.to_hudi() if last else ""

    def to_spark(self, position: str) -> str:
        """Convert a position to Spark's `startingOffsets`.

        Args:
            position: Position of a plan, or '' if nothing was read.

        Returns:
            A string such as '{"shop.orders":{"0":123,"1":456}}'. If nothing was read, the value of `start`.
        """
        last = TopicPosition.parse(position, self.topic)
        return last.to_spark() if last else self.start


def _position_after(message: Message, planned: str) -> str:
    # The topic has one partition. `planned` is the position of the plan.
    topic = cast("str", message.topic())
    last = cast("TopicPosition", TopicPosition.parse(planned, topic))
    return replace(last, offsets={cast("int", message.partition()): cast("int", message.offset()) + 1}).text()


def _create_schema_cache(format: str, registry: SchemaRegistry | str | None) -> AvroSchemas | None:
    # None for a format without schemas.
    if (format in OF_REGISTRIES) != (registry is not None):
        rule = "requires" if registry is None else "does not support"
        raise OptionError(f"format={format!r} {rule} registry=, the address of a schema registry.", option="registry")
    if registry is None:
        return None
    client = registry if isinstance(registry, SchemaRegistry) else SchemaRegistry(registry)
    return AvroSchemas(client, times=format == AVRO)


__all__ = ["Kafka"]
