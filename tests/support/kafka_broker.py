"""A real broker of Apache Kafka for tests: one JVM, one node, on loopback ports of its own; started and stopped by id.

Knows topics and messages, and nothing of tables. Run as a program it fetches the broker's jars, and archives its
classes.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import secrets
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from java_program import java
from kafka_jars import KAFKA
from listed_jars import run
from patience import PATIENCE_S, NotInTime, wait_for

CLASSES = KAFKA.folder / "classes.jsa"
"""The classes of a broker as a JVM has them in memory, made once: with them a broker starts in half the time."""
_QUICK = ["-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_LOWEST, _HIGHEST = 6_000, 10_900
"""Ports to draw from, below those that a kernel hands out by itself: nobody takes one while a broker is down."""
_STARTS = 5
PASSWORD = "right"
_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_reader="{PASSWORD}" user_stranger="{PASSWORD}";'
)
_ASK_S = 10.0


def draw_port() -> int:
    while True:
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _id() -> str:
    """An id as Kafka spells it; it takes none that begins as an option does."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _settings(data: Path, port: int, locked: int, controller: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{_both(port, locked)},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": _both(port, locked),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # who comes without a password may do all, and the others what is not somebody else's
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        # there is one node
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        # little memory, few threads, and nothing waits for what comes by itself
        "num.network.threads": 1,
        "num.io.threads": 2,
        "background.threads": 1,
        "log.cleaner.dedupe.buffer.size": 2 << 20,
        "log.cleaner.backoff.ms": 100,
        "log.initial.task.delay.ms": 100,
        "log.retention.check.interval.ms": 500,
        "log.segment.delete.delay.ms": 100,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,
        "controller.quorum.election.timeout.ms": 200,
        "group.initial.rebalance.delay.ms": 0,
    }


def _both(port: int, locked: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{locked}"


class Broker:
    """A broker on its own ports and folder; `kill` and `start` again as often as one likes, the messages stay.

    Attributes:
        address: Where clients find it.
        locked: Where those find it that say who they are.
    """

    def __init__(self, folder: Path) -> None:
        if missing := KAFKA.wrong():
            raise FileNotFoundError(f"The tests of topics need the jars of Kafka, and {missing[0]}: run make kafka")
        port, locked, controller = draw_port(), draw_port(), draw_port()
        self.address, self.locked, self.folder = f"127.0.0.1:{port}", f"127.0.0.1:{locked}", folder
        self._process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True)
        # with this file a folder counts as formatted, by which a second JVM is saved
        self._cluster = _id()
        said = {"version": 1, "node.id": 1, "cluster.id": self._cluster, "directory.id": _id()}
        _write(data / "meta.properties", said)
        _write(folder / "server.properties", _settings(data, port, locked, controller))
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200})
        self._numbers = itertools.count()

    def start(self, *more: str) -> None:
        """Start, or start again, and wait until it answers. more: options of the JVM."""
        archive = [f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []
        command = [java(), *_QUICK, *(more or archive), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", KAFKA.class_path(), "kafka.Kafka", str(self.folder / "server.properties")]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(self._answers, "an answer of the broker")
        except NotInTime:
            raise NotInTime(f"Kafka did not start: {self.log.read_text()[-2000:]}") from None

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / "broker.log"

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise NotInTime("it ended")
        with contextlib.suppress(KafkaException):
            return self.admin.list_topics(timeout=1).cluster_id == self._cluster  # and nobody else on that port
        return False

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        if self._process:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Let it end in order."""
        if self._process:
            self._process.terminate()
            self._process.wait(PATIENCE_S)

    def settings_of(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        """Settings of a client that says it is 'reader' or 'stranger'."""
        said = {"sasl.username": user, "sasl.password": password}
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **said}

    def allow(self, user: str, kind: ResourceType, name: str) -> None:
        """Let nobody but `user` read a topic or a group of that name; those without a password still may."""
        rule = (kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        binding = AclBinding(*rule)
        self.admin.create_acls([binding])[binding].result(_ASK_S)
        known = AclBindingFilter(*rule)
        wait_for(lambda: self.admin.describe_acls(known).result(_ASK_S), "a broker that knows the rule")

    # ---- topics
    def topic(self, partitions: int = 1, name: str = "", **settings: object) -> str:
        """Make a topic that is new, and return its name. settings: of the topic, with _ for the dots in their names."""
        name = name or f"topic-{next(self._numbers)}"
        said = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=said)])[name].result(_ASK_S)
        self.wait_for_partitions(name, partitions)
        return name

    def wait_for_partitions(self, topic: str, count: int) -> None:
        """Wait until a topic has so many that are led by a broker."""

        def led() -> bool:
            found = self.admin.list_topics(topic, timeout=_ASK_S).topics[topic]
            return found.error is None and [one.leader for one in found.partitions.values()] == [1] * count

        wait_for(led, f"{count} partitions of {topic} that have a leader")

    def put(
        self,
        topic: str,
        *values: Any,
        partition: int = 0,
        key: bytes | None = None,
        at_ms: int = 0,
        **settings: object,
    ) -> None:
        """Put messages, and wait until they are there; a dict is JSON. at_ms: their time, 0 for now. settings: of the
        producer, with _ for dots.
        """
        said = {name.replace("_", "."): value for name, value in settings.items()}
        send(
            Producer({"bootstrap.servers": self.address, "log_level": 2, **said}),
            topic,
            *values,
            partition=partition,
            key=key,
            at_ms=at_ms,
        )

    def transactions(self) -> Producer:
        """A producer whose messages are in transactions."""
        made = Producer({"bootstrap.servers": self.address, "log_level": 2, "transactional.id": secrets.token_hex(4)})
        made.init_transactions(_ASK_S * 3)
        return made


def send(
    producer: Producer, topic: str, *values: Any, partition: int = 0, key: bytes | None = None, at_ms: int = 0
) -> None:
    """Send messages by a producer, and wait until they are there; a dict is JSON. at_ms: their time, 0 for now."""
    for value in values:
        said = json.dumps(value).encode() if isinstance(value, dict) else value
        while True:
            try:
                producer.produce(topic, said, key, partition, timestamp=at_ms)
                break
            except BufferError:  # its queue is full
                producer.poll(1)
        producer.poll(0)
    if left := producer.flush(60):
        raise NotInTime(f"{left} messages were not sent within a minute")


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that runs, in a new folder below `folder`; on other ports if somebody was quicker to take one."""
    for attempt in range(_STARTS):
        running = Broker(folder / str(attempt))
        try:
            running.start()
            break
        except NotInTime:
            running.kill()
            if attempt == _STARTS - 1:
                raise
    try:
        yield running
    finally:
        running.kill()  # its messages are thrown away, and it takes its time to end in order


def archive_classes() -> None:
    """Make CLASSES, by a broker that starts and ends."""
    with tempfile.TemporaryDirectory() as scratch:
        once = Broker(Path(scratch, "once"))
        once.start(f"-XX:ArchiveClassesAtExit={CLASSES}")
        once.end()


def _write(file: Path, said: dict[str, object]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in said.items()))


if __name__ == "__main__":
    run(KAFKA, ())
    if not CLASSES.exists():
        archive_classes()
