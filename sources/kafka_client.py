"""What asks the brokers of Kafka: librdkafka's clients of one topic, their settings, and what their errors mean.

Knows nothing of positions, of plans, and of what is in a message. A client is closed as soon as nobody needs it: it has
threads and connections. So what librdkafka calls back knows no client.
"""

from __future__ import annotations

import time
import weakref
from bisect import bisect_right
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
"""What decides that each message is read once: no setting of a user may say otherwise."""
_OF_CONSUMERS = {
    "group.id": "hoodoo",
    "queued.max.messages.kbytes": 65_536,
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 20,  # nobody waits for new messages, but for the end of a range behind the last one
}
_DEFAULTS = {**_OF_CONSUMERS, "log_level": 2}
_AT_ONCE, _AT_LEAST = 10_000, 100  # messages of one call of the client: as many may come beyond a bound of bytes
_ASK_S, _ASK_ID_S = 10.0, 5.0
_FIRST_S = 0.5
"""So long the first try to ask waits, each further one twice as long: between two of them librdkafka says why."""
_LISTEN_S = 0.05
_PASSING = ("SSL transport error", "Failed to acquire")
"""How librdkafka begins to say that a connection broke, or that who gives tokens did not answer: that passes."""

_NO_PROTOCOL = (
    " A broker that wants a password, or speaks TLS, may not answer who does not: if it is one, set security.protocol "
    "in settings (--setting)."
)


@dataclass(frozen=True)
class Taken:
    """What was read.

    Attributes:
        messages: The messages, by partition and offset.
        upto: The offset behind what was read of each partition. There is no other message before it.
        size: How many bytes their keys and values have.
    """

    messages: list[Message]
    upto: dict[int, int]
    size: int


class _Amount:
    """How much was read, and how much more may be.

    Attributes:
        messages: Messages that were read.
        bytes: The bytes of their keys and values.
    """

    def __init__(self, bytes_max: int | None) -> None:
        """Begin with nothing. bytes_max: the most bytes; one message is read whatever it has. None: any number."""
        self.messages = self.bytes = 0
        self._bytes_max = bytes_max

    def at_once(self) -> int:
        """How many messages are asked for, so that few come beyond the bound."""
        if self._bytes_max is None:
            return _AT_ONCE
        mean = self.bytes / self.messages if self.messages else self._bytes_max
        return min(_AT_ONCE, max(_AT_LEAST, int((self._bytes_max - self.bytes) / max(1.0, mean))))

    def add(self, messages: Sequence[Message]) -> int:
        """Take as many of these messages as may be, and return how many."""
        sizes = [len(message) + len(message.key() or b"") for message in messages]
        taken, size = len(sizes), sum(sizes)
        if self._bytes_max is not None and self.bytes + size > self._bytes_max:
            fits = bisect_right(list(accumulate(sizes)), self._bytes_max - self.bytes)
            taken = fits if self.messages else max(1, fits)
            size = sum(sizes[:taken])
        self.messages, self.bytes = self.messages + taken, self.bytes + size
        return taken


class _Heard:
    """What librdkafka says of its connections, beside the answers to what it is asked.

    It knows no client, so that none is kept by what librdkafka calls.
    """

    def __init__(self, refusals: Collection[int], says_nothing: int) -> None:
        self.last: Any = None
        self.refusal: Any = None
        self._refusals, self._says_nothing = refusals, says_nothing

    def note(self, problem: Any) -> None:
        if problem.code() != self._says_nothing:
            self.last = problem
            if problem.code() in self._refusals and not any(one in problem.str() for one in _PASSING):
                self.refusal = problem

    def forget(self) -> None:
        self.last = self.refusal = None


class KafkaClient:
    """What asks about one topic. Nothing is asked before it is needed.

    Attributes:
        topic: The topic.
        servers: Some brokers.
    """

    def __init__(self, servers: str, topic: str, settings: Mapping[str, Any], idle_s: float, skips_lost: bool) -> None:
        """Name a topic.

        Args:
            servers: Some brokers, as "broker-1:9092,broker-2:9092".
            topic: The topic.
            settings: More settings of librdkafka.
            idle_s: For how long a broker may send nothing of what is there, in seconds.
            skips_lost: Does the reader go on where messages are gone?

        Raises:
            OptionError: A setting would lose messages.
            EngineError: confluent-kafka is not installed.
        """
        if ours := sorted(settings.keys() & {*OURS, "bootstrap.servers"}):
            raise OptionError(
                f"{ours[0]} is not for settings: the position in the table decides what is read. Leave it out.",
                option="settings",
            )
        try:
            import confluent_kafka
        except ImportError:
            raise EngineError("Kafka needs confluent-kafka: pip install 'hoodoo[kafka]'.") from None
        self.topic, self.servers = topic, servers
        self._idle_s, self._skips_lost = idle_s, skips_lost
        self._kafka = confluent_kafka
        self._settings = {**_DEFAULTS, **settings, **OURS, "bootstrap.servers": servers}
        self._remedies = _remedies(confluent_kafka.KafkaError, topic)
        self._passing = (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError._TIMED_OUT)
        self._heard = _Heard(self._remedies.keys(), confluent_kafka.KafkaError._ALL_BROKERS_DOWN)
        self._made: Consumer | None = None
        self._admin: AdminClient | None = None
        self._tells_no_id = False

    # ---- what there is
    def bounds(self) -> dict[int, tuple[int, int]]:
        """Ask for the first offset of each partition, and the one after the last that is committed.

        Returns:
            Both, by partition, as they are now.

        Raises:
            OptionError: The client refuses a setting, or the brokers refuse the client.
            SourceLost: There is no such topic.
            SourceUnavailable: No broker answers.
        """

        def ask(wait_s: float) -> dict[int, tuple[int, int]]:
            found = self._consumer.list_topics(self.topic, timeout=wait_s).topics[self.topic]
            if found.error is not None:
                raise self._failed(found.error)
            return {
                partition: self._consumer.get_watermark_offsets(
                    self._kafka.TopicPartition(self.topic, partition), timeout=wait_s, cached=False
                )
                for partition in sorted(found.partitions)
            }

        return self._asked(ask)

    def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Ask for the offset behind the last message of each partition, whether or not its transaction has ended.

        Args:
            partitions: The partitions.

        Returns:
            The offset by partition; empty if the brokers do not answer.
        """
        from confluent_kafka import IsolationLevel, admin

        specs: Any = admin  # its type information leaves OffsetSpec out
        latest = {self._kafka.TopicPartition(self.topic, one): specs.OffsetSpec.latest() for one in partitions}
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        asked = self._administrator.list_offsets(latest, isolation_level=uncommitted, request_timeout=_ASK_ID_S)
        try:
            return {one.partition: int(found.result(_ASK_ID_S).offset) for one, found in asked.items()}
        except (self._kafka.KafkaException, TimeoutError):
            return {}  # the lag then counts only what can be read

    @property
    def _administrator(self) -> AdminClient:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            others = self._settings.keys() - {*_OF_CONSUMERS, *OURS}
            self._admin = AdminClient({name: self._settings[name] for name in others})
        return self._admin

    def topic_id(self, known: str) -> str:
        """Ask for the id of the topic, which another topic of that name does not have.

        Args:
            known: What it was when it was asked for before, '' if it never was.

        Returns:
            The id; '' where the broker is too old to say.

        Raises:
            SourceUnavailable: The broker does not say it, and has said it before.
        """
        if self._tells_no_id and not known:
            return ""
        asked = self._administrator.describe_topics(
            self._kafka.TopicCollection([self.topic]), request_timeout=_ASK_ID_S
        )
        try:
            return str(asked[self.topic].result(_ASK_ID_S).topic_id or "")
        except (self._kafka.KafkaException, TimeoutError) as problem:
            if known:  # it has told before: without it nobody would see that the topic is another one
                raise SourceUnavailable(
                    f"Kafka did not confirm that topic {self.topic!r} is still the same: {problem}.", topic=self.topic
                ) from None
            self._tells_no_id = True
            return ""

    def offsets_at(self, moment: int, partitions: Collection[int]) -> dict[int, int]:
        """Ask for the first offset of each partition whose message is not older than a moment.

        Args:
            moment: The moment, in ms since 1970.
            partitions: The partitions.

        Returns:
            The offset by partition; a negative one where all messages are older.

        Raises:
            SourceUnavailable: No broker answers.
        """
        asked = [self._kafka.TopicPartition(self.topic, one, moment) for one in partitions]
        found = self._asked(lambda wait_s: self._consumer.offsets_for_times(asked, timeout=wait_s))
        for one in found:
            if one.error is not None:
                raise self._failed(one.error)
        return {one.partition: one.offset for one in found}

    # ---- messages
    def take(self, ranges: Mapping[int, tuple[int, int]], bytes_max: int | None = None) -> Taken:
        """Read the messages in ranges, all of them or as many as come until there are too many bytes.

        Args:
            ranges: Of each partition from an offset up to another one, that excluded.
            bytes_max: How many bytes their keys and values have at most; one message is read whatever it has. None: any
                number.

        Returns:
            What was read.

        Raises:
            SourceLost: Messages are gone.
            SourceChanged: They are, and the reader goes on.
            OptionError: The brokers refuse the client.
            SourceUnavailable: The brokers sent nothing for `idle_s`.
        """
        found: dict[int, list[Message]] = {one: [] for one in sorted(ranges)}
        upto, read = {one: start for one, (start, _) in ranges.items()}, _Amount(bytes_max)
        with closing(self._arriving(ranges, read)) as arriving:
            for partition, messages in arriving:
                taken = read.add(messages)
                if taken:
                    found[partition] += messages[:taken]
                    upto[partition] = cast("int", messages[taken - 1].offset()) + 1
                if taken < len(messages):
                    break
            else:
                upto = {one: stop for one, (_, stop) in ranges.items()}
        return Taken([message for those in found.values() for message in those], upto, read.bytes)

    def _arriving(
        self, ranges: Mapping[int, tuple[int, int]], read: _Amount
    ) -> Generator[tuple[int, list[Message]], None, None]:
        """All messages in ranges, some of a partition at a time, in the order of their offsets. read: those before.

        A range ends at its last offset, or where the partition ends behind it: behind the last message there may be
        marks of transactions only, and what was aborted or compacted away. A partition that ends within the range does
        not end it: a replica may lag behind the one that was asked for its end.
        """
        if not ranges:
            return
        consumer, left = self._consumer, set(ranges)
        consumer.assign([self._kafka.TopicPartition(self.topic, one, start) for one, (start, _) in ranges.items()])
        heard, offsets = time.monotonic(), sum(stop - start for start, stop in ranges.values())
        try:
            while left:
                # it returns once it has so many, so that a small range does not wait for more
                some = consumer.consume(max(1, min(read.at_once(), offsets - read.messages)), 0.2)
                for partition, messages, end in self._sorted(some):
                    if partition not in left:
                        continue  # others say nothing of those that are waited for
                    heard, stop = time.monotonic(), ranges[partition][1]
                    if messages and end > stop:
                        messages = [message for message in messages if cast("int", message.offset()) < stop]
                    if messages:
                        yield partition, messages
                    if end >= stop:
                        left.discard(partition)
                        consumer.pause([self._kafka.TopicPartition(self.topic, partition)])
                if time.monotonic() - heard > self._idle_s:
                    raise self._unanswered(
                        f"Kafka sent nothing of topic {self.topic!r} for {self._idle_s:g} s, with messages left in "
                        f"partitions {sorted(left)}, and nothing was written"
                    )
        finally:
            consumer.resume([self._kafka.TopicPartition(self.topic, one) for one in ranges.keys() - left])
            consumer.unassign()

    def _sorted(self, some: Iterable[Message]) -> Iterator[tuple[int, list[Message], int]]:
        """What the client was given, in runs: the partition, its messages, and the offset behind them.

        A partition that ends is a run without messages. Raises what the client was told instead of messages.
        """
        for failed, run in groupby(some, _has_failed):
            if not failed:
                for partition, messages in groupby(run, self._kafka.Message.partition):
                    those = list(messages)
                    yield cast("int", partition), those, cast("int", those[-1].offset()) + 1
                continue
            for told in run:
                problem = cast("Any", told.error())
                if problem.code() == self._kafka.KafkaError._PARTITION_EOF:
                    yield cast("int", told.partition()), [], cast("int", told.offset())
                elif not problem.retriable() and problem.code() != self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise self._failed(problem)  # partitions are assigned: no group is needed

    # ---- errors
    def lost(self, why: str, can_skip: bool = False, **details: Any) -> SourceLost:
        """Say that what comes next is gone.

        Args:
            why: How that is known.
            can_skip: Is there something to go on with?
            details: More names that the message is about.

        Returns:
            The error.
        """
        remedy = "pass on_loss='skip'" if can_skip else "give the job another name"
        return SourceLost(
            f"Topic {self.topic!r} does not have what comes after the position: {why}. Nothing was read. To go on with "
            f"what is there, {remedy}.",
            topic=self.topic,
            **details,
        )

    @property
    def _consumer(self) -> Consumer:
        if self._made is None:
            try:
                self._made = self._kafka.Consumer({"error_cb": self._heard.note, **self._settings})
            except self._kafka.KafkaException as problem:
                raise OptionError(
                    f"Kafka's client refuses a setting: {problem.args[0].str()}.", option="settings"
                ) from None
            weakref.finalize(self, self._made.close)
        return self._made

    def _asked(self, ask: Callable[[float], T]) -> T:
        """What `ask` returns, which is told how many seconds it may wait."""
        ends, wait_s = time.monotonic() + _ASK_S, min(_FIRST_S, _ASK_S)
        while True:
            try:
                answer = ask(wait_s)
            except self._kafka.KafkaException as problem:
                self._listen(_LISTEN_S)
                left_s = ends - time.monotonic()
                passes = problem.args[0].code() in self._passing
                if self._heard.refusal is None and passes and left_s > 0:
                    wait_s = min(2 * wait_s, left_s)
                    continue
                raise self._failed(problem.args[0]) from None
            self._listen(0)
            self._heard.forget()
            return answer

    def _listen(self, seconds: float) -> None:
        """Let librdkafka say what it has to. Nothing is assigned, so that no message comes."""
        self._consumer.poll(seconds)

    def _failed(self, problem: Any) -> HoodooError:
        """The error that an answer of librdkafka is."""
        lost = (self._kafka.KafkaError._AUTO_OFFSET_RESET, self._kafka.KafkaError.OFFSET_OUT_OF_RANGE)
        gone = (self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, self._kafka.KafkaError._UNKNOWN_TOPIC)
        if problem.code() in lost and self._skips_lost:
            return SourceChanged(
                f"Messages of topic {self.topic!r} were deleted since they were planned: {problem.str()}. Nothing was "
                "written. Plan again.",
                topic=self.topic,
            )
        if problem.code() in lost:
            return self.lost(problem.str(), can_skip=True)
        if problem.code() in gone:
            return SourceLost(
                f"Kafka at {self.servers} has no topic {self.topic!r}. Nothing was read. Make the topic, or name one "
                "that is there. A job whose topic was deleted and made anew needs another name.",
                topic=self.topic,
            )
        if problem.code() in self._remedies:
            return self._refused(problem)
        says_nothing = problem.code() in self._passing and "security.protocol" not in self._settings
        return self._unanswered(
            f"Kafka did not respond for topic {self.topic!r}: {problem.str()}", _NO_PROTOCOL if says_nothing else ""
        )

    def _unanswered(self, what: str, guess: str = "") -> OptionError | SourceUnavailable:
        """The error that nothing came, with the reason where librdkafka says one. guess: what is said where it says
        none.
        """
        if self._heard.refusal is not None:
            return self._refused(self._heard.refusal)
        why = f" ({printable(self._heard.last.str(), 500)})." if self._heard.last is not None else f".{guess}"
        return SourceUnavailable(f"{what}{why}", topic=self.topic)

    def _refused(self, problem: Any) -> OptionError:
        return OptionError(
            f"Kafka at {self.servers} refuses to let topic {self.topic!r} be read: {printable(problem.str(), 500)}. "
            f"{self._remedies[problem.code()]}",
            option="settings",
            topic=self.topic,
        )


def _has_failed(message: Message) -> bool:
    return message.error() is not None


def _remedies(codes: Any, topic: str) -> dict[int, str]:
    """What to do about each error by which brokers refuse a client. It does not pass by itself."""
    known = (
        "Set security.protocol, sasl.mechanism, sasl.username and sasl.password in settings "
        "(--setting, --settings-from) to what the brokers know."
    )
    allowed = f"Allow the user in the settings (sasl.username) to describe and read topic {topic!r}."
    encrypted = (
        "Set security.protocol in settings (--setting) to what the brokers speak, ssl.ca.location to who signed their "
        "certificates, and ssl.certificate.location and ssl.key.location where they ask for one."
    )
    return {
        codes._AUTHENTICATION: known,
        codes.SASL_AUTHENTICATION_FAILED: known,
        codes.UNSUPPORTED_SASL_MECHANISM: known,
        codes.TOPIC_AUTHORIZATION_FAILED: allowed,
        codes.CLUSTER_AUTHORIZATION_FAILED: allowed,
        codes._SSL: encrypted,
    }


__all__ = ["KafkaClient", "Taken"]
