"""Kafka client for one topic.

A client has threads and connections, and its consumer is closed as soon as the client is no longer referenced.
Callbacks of librdkafka therefore hold no reference to the client.
"""

from __future__ import annotations

import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hoodoo.errors import EngineError, HoodooError, OptionError, SourceChanged, SourceLost, SourceUnavailable
from hoodoo.redact import printable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
OURS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}
"""Settings that users cannot override, because they ensure that each message is read once."""
_CONSUMER_SETTINGS = {
    "group.id": "hoodoo",
    "queued.max.messages.kbytes": 65_536,
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 20,  # new messages are not awaited, only the end of a range after the last message
}
_DEFAULTS = {**_CONSUMER_SETTINGS, "log_level": 2}
_AT_ONCE, _AT_LEAST = 10_000, 100  # messages per call; up to this many may arrive beyond the byte limit
_ASK_S, _ASK_ID_S = 10.0, 5.0
_FIRST_S = 0.5
# Timeout of the first request in seconds. Each retry doubles it. Between retries, librdkafka reports errors.
_LISTEN_S = 0.05
_TRANSIENT_ERRORS = ("SSL transport error", "Failed to acquire")
# Prefixes of librdkafka errors for a broken connection, or a token service without a response.

_NO_PROTOCOL = (
    " If the broker requires a password or TLS, it may not respond to other connections. In that case, set "
    "security.protocol in settings (--setting)."
)
_RECENT_ADMINS: deque[AdminClient] = deque(maxlen=16)
"""Administrators that stay alive until their requests have ended.

Otherwise, garbage collection in the thread of a response could destroy the administrator in its own thread, and
librdkafka would abort the process.
"""


@dataclass(frozen=True)
class ReadMessages:
    """Kafka messages of one batch.

    Attributes:
        messages: The messages, sorted by partition and offset.
        upto: For each partition the offset after the last message that was read. No message before it is missing.
        size: The number of bytes in the keys and values of the messages.
    """

    messages: list[Message]
    upto: dict[int, int]
    size: int


class _ReadAmount:
    """Counter of Kafka messages and bytes.

    Attributes:
        messages: The number of messages that were read.
        bytes: The bytes of the keys and values of these messages.
    """

    def __init__(self, bytes_max: int | None) -> None:
        # `bytes_max` is None for no limit. One message is always read.
        self.messages = self.bytes = 0
        self._bytes_max = bytes_max

    def number_to_request(self) -> int:
        # Only a few messages may exceed the byte limit.
        if self._bytes_max is None:
            return _AT_ONCE
        mean = self.bytes / self.messages if self.messages else self._bytes_max
        return min(_AT_ONCE, max(_AT_LEAST, int((self._bytes_max - self.bytes) / max(1.0, mean))))

    def add(self, messages: Sequence[Message]) -> int:
        # Returns how many of the messages are within the limit.
        sizes = [len(message) + len(message.key() or b"") for message in messages]
        taken, size = len(sizes), sum(sizes)
        if self._bytes_max is not None and self.bytes + size > self._bytes_max:
            within_limit = bisect_right(list(accumulate(sizes)), self._bytes_max - self.bytes)
            taken = within_limit if self.messages else max(1, within_limit)
            size = sum(sizes[:taken])
        self.messages, self.bytes = self.messages + taken, self.bytes + size
        return taken


class _ErrorListener:
    # Holds no reference to a client, so that librdkafka's callbacks do not keep a client alive.
    def __init__(self, refusals: Collection[int], says_nothing: int) -> None:
        self.last: Any = None
        self.refusal: Any = None
        self._refusals, self._ignored_code = refusals, says_nothing

    def note(self, problem: Any) -> None:
        if problem.code() != self._ignored_code:
            self.last = problem
            if problem.code() in self._refusals and not any(one in problem.str() for one in _TRANSIENT_ERRORS):
                self.refusal = problem

    def forget(self) -> None:
        self.last = self.refusal = None


class KafkaClient:
    """Client for one Kafka topic.

    Attributes:
        topic: The name of the topic.
        servers: Addresses of brokers.
    """

    def __init__(
        self, servers: str, topic: str, settings: Mapping[str, Any], idle_seconds: float, skips_lost: bool
    ) -> None:
        """Create a client for one topic.

        The brokers are not contacted yet.

        Args:
            servers: Addresses of brokers, such as "broker-1:9092,broker-2:9092".
            topic: The name of the topic.
            settings: More settings of librdkafka.
            idle_seconds: Time after which reading fails if the brokers send no message although more exist, in seconds.
            skips_lost: True if the reader continues after messages that were deleted unread.

        Raises:
            OptionError: A setting would lose messages.
            EngineError: confluent-kafka is not installed.
        """
        if reserved := sorted(settings.keys() & {*OURS, "bootstrap.servers"}):
            raise OptionError(
                f"Setting {reserved[0]!r} is not supported, because the position in the table determines what is "
                "read. Leave it out.",
                option="settings",
            )
        try:
            import confluent_kafka
        except ImportError:
            raise EngineError("Kafka requires confluent-kafka. Install it: pip install 'hoodoo[kafka]'.") from None
        self.topic, self.servers = topic, servers
        self._idle_seconds, self._skips_lost = idle_seconds, skips_lost
        self._kafka = confluent_kafka
        self._settings = {**_DEFAULTS, **settings, **OURS, "bootstrap.servers": servers}
        self._advice = _rejection_advice(confluent_kafka.KafkaError, topic)
        self._passing = (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError._TIMED_OUT)
        self._error_listener = _ErrorListener(self._advice.keys(), confluent_kafka.KafkaError._ALL_BROKERS_DOWN)
        self._open_consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._has_no_topic_id = False

    # ---- offsets and topic id
    def bounds(self) -> dict[int, tuple[int, int]]:
        """Request the offset range of each partition.

        Returns:
            For each partition the first offset, and the offset after the last committed message.

        Raises:
            OptionError: The client rejects a setting, or the brokers reject the client.
            SourceLost: The topic does not exist.
            SourceUnavailable: No broker responds.
        """

        def ask(wait_seconds: float) -> dict[int, tuple[int, int]]:
            metadata = self._consumer.list_topics(self.topic, timeout=wait_seconds).topics[self.topic]
            if metadata.error is not None:
                raise self._convert_error(metadata.error)
            return {
                partition: self._consumer.get_watermark_offsets(
                    self._kafka.TopicPartition(self.topic, partition), timeout=wait_seconds, cached=False
                )
                for partition in sorted(metadata.partitions)
            }

        return self._request_with_retries(ask)

    def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Request the end offset of each partition.

        It is the offset after the last message, including messages of open transactions. The result is empty if the
        brokers do not respond.
        """
        from confluent_kafka import IsolationLevel, admin

        admin_types: Any = admin  # its type information lacks OffsetSpec
        latest = {
            self._kafka.TopicPartition(self.topic, partition): admin_types.OffsetSpec.latest()
            for partition in partitions
        }
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        requests = self._administrator.list_offsets(latest, isolation_level=uncommitted, request_timeout=_ASK_ID_S)
        try:
            return {
                partition.partition: int(request.result(_ASK_ID_S).offset) for partition, request in requests.items()
            }
        except (self._kafka.KafkaException, TimeoutError):
            return {}  # the lag then only counts readable messages

    @property
    def _administrator(self) -> AdminClient:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            names = self._settings.keys() - {*_CONSUMER_SETTINGS, *OURS}
            self._admin = AdminClient({name: self._settings[name] for name in names})
            _RECENT_ADMINS.append(self._admin)
        return self._admin

    def topic_id(self, known: str) -> str:
        """Request the id of the topic.

        It differs after the topic was recreated, and is '' if the broker is too old to support ids. `known` is the id
        that an earlier request returned, or ''. Raises SourceUnavailable if the broker returned `known` before, but
        returns no id now.
        """
        if self._has_no_topic_id and not known:
            return ""
        requests = self._administrator.describe_topics(
            self._kafka.TopicCollection([self.topic]), request_timeout=_ASK_ID_S
        )
        try:
            return str(requests[self.topic].result(_ASK_ID_S).topic_id or "")
        except (self._kafka.KafkaException, TimeoutError) as problem:
            if known:  # without the id, a recreated topic would not be noticed
                raise SourceUnavailable(
                    f"Kafka did not confirm that topic {self.topic!r} was not recreated: {problem}. Try again later.",
                    topic=self.topic,
                ) from None
            self._has_no_topic_id = True
            return ""

    def offsets_at_time(self, moment: int, partitions: Collection[int]) -> dict[int, int]:
        """Request the offset of each partition at a time.

        It is the first offset at or after `moment` (in ms since 1970), and negative if all messages of the partition
        are older. Raises SourceUnavailable if no broker responds.
        """
        requested = [self._kafka.TopicPartition(self.topic, one, moment) for one in partitions]
        found = self._request_with_retries(
            lambda wait_seconds: self._consumer.offsets_for_times(requested, timeout=wait_seconds)
        )
        for one in found:
            if one.error is not None:
                raise self._convert_error(one.error)
        return {one.partition: one.offset for one in found}

    # ---- messages
    def take(self, ranges: Mapping[int, tuple[int, int]], bytes_max: int | None = None) -> ReadMessages:
        """Read the messages in given offset ranges.

        Args:
            ranges: For each partition the first offset, and the offset after the last one.
            bytes_max: The maximum number of bytes in keys and values. One message is always read. None: no limit.

        Returns:
            The messages, and the offset that was reached in each partition.

        Raises:
            SourceLost: Messages were deleted.
            SourceChanged: Messages were deleted, and `skips_lost` is True.
            OptionError: The brokers reject the client.
            SourceUnavailable: The brokers sent nothing for `idle_seconds`.
        """
        found: dict[int, list[Message]] = {one: [] for one in sorted(ranges)}
        upto, amount = {one: start for one, (start, _) in ranges.items()}, _ReadAmount(bytes_max)
        with closing(self._receive_messages(ranges, amount)) as arriving:
            for partition, messages in arriving:
                count = amount.add(messages)
                if count:
                    found[partition] += messages[:count]
                    upto[partition] = cast("int", messages[count - 1].offset()) + 1
                if count < len(messages):
                    break
            else:
                upto = {one: stop for one, (_, stop) in ranges.items()}
        return ReadMessages([message for run in found.values() for message in run], upto, amount.bytes)

    def _receive_messages(
        self, ranges: Mapping[int, tuple[int, int]], amount: _ReadAmount
    ) -> Generator[tuple[int, list[Message]], None, None]:
        """Yield the messages in ranges of offsets.

        Consecutive messages of one partition are yielded together. A range ends at its last offset, or if the partition
        ends after it, because only transaction markers and aborted or compacted messages may follow. `amount` counts
        the messages so far.
        """
        if not ranges:
            return
        consumer, left = self._consumer, set(ranges)
        consumer.assign([self._kafka.TopicPartition(self.topic, one, start) for one, (start, _) in ranges.items()])
        last_heard, offsets = time.monotonic(), sum(stop - start for start, stop in ranges.values())
        try:
            while left:
                # consume() returns when it has this many messages, so a small range does not wait for more
                results = consumer.consume(max(1, min(amount.number_to_request(), offsets - amount.messages)), 0.2)
                for partition, messages, end in self._group_results(results):
                    if partition not in left:
                        continue  # this partition is complete
                    last_heard, stop = time.monotonic(), ranges[partition][1]
                    if messages and end > stop:
                        messages = [message for message in messages if cast("int", message.offset()) < stop]
                    if messages:
                        yield partition, messages
                    if end >= stop:
                        left.discard(partition)
                        consumer.pause([self._kafka.TopicPartition(self.topic, partition)])
                if time.monotonic() - last_heard > self._idle_seconds:
                    raise self._missing_response_error(
                        f"Kafka sent no message of topic {self.topic!r} for {self._idle_seconds:g} s, although "
                        f"messages are left in partitions {sorted(left)}. Nothing was written"
                    )
        finally:
            consumer.resume([self._kafka.TopicPartition(self.topic, one) for one in ranges.keys() - left])
            consumer.unassign()

    def _group_results(self, results: Iterable[Message]) -> Iterator[tuple[int, list[Message], int]]:
        # Yields runs: a partition, its messages, and the offset after them. The end of a partition is a run without
        # messages. Raises the error if the client returned one.
        for failed, run in groupby(results, _has_failed):
            if not failed:
                for partition, messages in groupby(run, self._kafka.Message.partition):
                    run_messages = list(messages)
                    yield cast("int", partition), run_messages, cast("int", run_messages[-1].offset()) + 1
                continue
            for result in run:
                problem = cast("Any", result.error())
                if problem.code() == self._kafka.KafkaError._PARTITION_EOF:
                    yield cast("int", result.partition()), [], cast("int", result.offset())
                elif not problem.retriable() and problem.code() != self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise self._convert_error(problem)  # partitions are assigned, so no group is needed

    # ---- errors
    def lost(self, why: str, can_skip: bool = False, **details: Any) -> SourceLost:
        """Create the error for deleted messages.

        `why` becomes part of the error message. `can_skip` is True if the job can continue with later messages.
        """
        remedy = "pass on_loss='skip'" if can_skip else "give the job another name"
        return SourceLost(
            f"{why}, so topic {self.topic!r} no longer has all unread messages. Nothing was read. To continue "
            f"with the remaining messages, {remedy}.",
            topic=self.topic,
            **details,
        )

    @property
    def _consumer(self) -> Consumer:
        if self._open_consumer is None:
            try:
                self._open_consumer = self._kafka.Consumer({"error_cb": self._error_listener.note, **self._settings})
            except self._kafka.KafkaException as problem:
                raise OptionError(
                    f"Kafka's client rejects a setting: {problem.args[0].str()}. Correct this setting.",
                    option="settings",
                ) from None
            weakref.finalize(self, self._open_consumer.close)
        return self._open_consumer

    def _request_with_retries(self, ask: Callable[[float], T]) -> T:
        # `ask` receives a timeout in seconds. Transient failures are retried for 10 s.
        end, wait_seconds = time.monotonic() + _ASK_S, min(_FIRST_S, _ASK_S)
        while True:
            try:
                answer = ask(wait_seconds)
            except self._kafka.KafkaException as problem:
                self._process_callbacks(_LISTEN_S)
                left_s = end - time.monotonic()
                is_transient = problem.args[0].code() in self._passing
                if self._error_listener.refusal is None and is_transient and left_s > 0:
                    wait_seconds = min(2 * wait_seconds, left_s)
                    continue
                raise self._convert_error(problem.args[0]) from None
            self._process_callbacks(0)
            self._error_listener.forget()
            return answer

    def _process_callbacks(self, seconds: float) -> None:
        # Connection errors are reported in callbacks. No partition is assigned, so no message arrives.
        self._consumer.poll(seconds)

    def _convert_error(self, problem: Any) -> HoodooError:
        lost = (self._kafka.KafkaError._AUTO_OFFSET_RESET, self._kafka.KafkaError.OFFSET_OUT_OF_RANGE)
        missing = (self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, self._kafka.KafkaError._UNKNOWN_TOPIC)
        if problem.code() in lost and self._skips_lost:
            return SourceChanged(
                f"Messages of topic {self.topic!r} were deleted since they were planned: {problem.str()}. Nothing was "
                "written. Plan again.",
                topic=self.topic,
            )
        if problem.code() in lost:
            return self.lost(problem.str(), can_skip=True)
        if problem.code() in missing:
            return SourceLost(
                f"Kafka at {self.servers} does not have topic {self.topic!r}. Nothing was read. Create the topic, or "
                "pass the name of an existing topic. If a topic was deleted and recreated, give the job another name.",
                topic=self.topic,
            )
        if problem.code() in self._advice:
            return self._access_denied_error(problem)
        without_reason = problem.code() in self._passing and "security.protocol" not in self._settings
        return self._missing_response_error(
            f"Kafka did not respond for topic {self.topic!r}: {problem.str()}", _NO_PROTOCOL if without_reason else ""
        )

    def _missing_response_error(self, what: str, guess: str = "") -> OptionError | SourceUnavailable:
        # The error contains the reason that librdkafka reported, or otherwise `guess`.
        if self._error_listener.refusal is not None:
            return self._access_denied_error(self._error_listener.refusal)
        reason = (
            f" ({printable(self._error_listener.last.str(), 500)})."
            if self._error_listener.last is not None
            else f".{guess}"
        )
        return SourceUnavailable(f"{what}{reason}", topic=self.topic)

    def _access_denied_error(self, problem: Any) -> OptionError:
        return OptionError(
            f"Kafka at {self.servers} denies reading topic {self.topic!r}: {printable(problem.str(), 500)}. "
            f"{self._advice[problem.code()]}",
            option="settings",
            topic=self.topic,
        )


def _has_failed(message: Message) -> bool:
    return message.error() is not None


def _rejection_advice(codes: Any, topic: str) -> dict[int, str]:
    # The error codes are those with which brokers permanently reject a client.
    login = (
        "Set security.protocol, sasl.mechanism, sasl.username and sasl.password in settings "
        "(--setting, --settings-from) to values that the brokers accept."
    )
    permission = f"Allow the user in the settings (sasl.username) to describe and read topic {topic!r}."
    encryption = (
        "Set security.protocol in settings (--setting) to the protocol of the brokers, ssl.ca.location to the "
        "certificate of their CA, and, if they require one, ssl.certificate.location and ssl.key.location to your own."
    )
    return {
        codes._AUTHENTICATION: login,
        codes.SASL_AUTHENTICATION_FAILED: login,
        codes.UNSUPPORTED_SASL_MECHANISM: login,
        codes.TOPIC_AUTHORIZATION_FAILED: permission,
        codes.CLUSTER_AUTHORIZATION_FAILED: permission,
        codes._SSL: encryption,
    }


__all__ = ["KafkaClient", "ReadMessages"]
