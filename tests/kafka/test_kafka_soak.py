"""A job that goes on for long beside a producer, while its broker and its own processes are killed: each message takes
effect once, and the last process, which lives for most of the time, keeps to its memory.

HOODOO_SECONDS: how long it runs (default 600, ten minutes). In less than five minutes memory is not judged, since
caches still fill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import fmean

import pytest
from confluent_kafka import Producer
from figures import record
from kafka_broker import Broker
from patience import PATIENCE_S, wait_for

import hoodoo

SECONDS = float(os.environ.get("HOODOO_SECONDS", "600"))
PARTITIONS = 4
A_SECOND = 400
KILLS = 3


class Source(threading.Thread):
    """Writes messages at a steady pace, each one to the topic once whatever happens to the broker.

    Attributes:
        sent: How many there are.
    """

    def __init__(self, kafka: Broker, topic: str) -> None:
        super().__init__()
        self.topic, self.sent, self.stopped = topic, 0, threading.Event()
        self.failure: BaseException | None = None
        said = {"enable.idempotence": True, "linger.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 2}
        self.producer = Producer({"bootstrap.servers": kafka.address, "delivery.timeout.ms": 240_000, **said})

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self.stopped.wait(0.05):
                for _ in range(int((time.monotonic() - began) * A_SECOND) - self.sent):
                    value = json.dumps({"id": self.sent, "v": f"some text of message {self.sent}"}).encode()
                    self.producer.produce(self.topic, value, None, self.sent % PARTITIONS, on_delivery=self._delivered)
                    self.sent += 1
                self.producer.poll(0)
            assert self.producer.flush(PATIENCE_S) == 0
        except BaseException as problem:
            self.failure = problem

    def _delivered(self, problem: object, _: object) -> None:
        if problem is not None:
            self.failure = AssertionError(f"the broker did not take a message: {problem}")


class Process:
    """A process of the job.

    Attributes:
        memory: How many kB were its own, now and then: not those of mapped files, which the system takes back when it
            needs room.
        mapped: How many kB of mapped files were in memory, then.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        with open(log, "ab") as said:
            self.popen = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        self.memory, self.mapped = list[int](), list[int]()

    def look(self) -> None:
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        said = {name: value for name, _, value in (line.partition(":") for line in lines)}
        self.memory.append(int(said["RssAnon"].split()[0]))
        self.mapped.append(int(said["RssFile"].split()[0]))


def quarters(looks: list[int]) -> list[float]:
    """The mean of each quarter of a life, in MB."""
    size = len(looks) // 4
    return [round(fmean(looks[size * number : size * (number + 1)]) / 1024, 1) for number in range(4)]


@pytest.mark.deep
@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 5 * PATIENCE_S)
def test_a_job_that_goes_on_loses_nothing_and_repeats_nothing(kafka: Broker, tmp_path: Path) -> None:
    path, log, topic = tmp_path / "t", tmp_path / "log", kafka.topic(PARTITIONS)
    table = hoodoo.create(path, {"id": "bigint", "v": "string"}, key="id")
    command = [sys.executable, "-m", "hoodoo", "ingest", f"kafka://{kafka.address}/{topic}", str(path), "--name", "job"]
    command += ["--min-seconds", "2", "--poll-seconds", "0.1", "--setting", "reconnect.backoff.max.ms=200"]
    source, process = Source(kafka, topic), Process(command, log)
    began = time.monotonic()
    at = [SECONDS / 20 * number for number in range(1, KILLS + 1)]  # so that the last process lives longest
    killed, restarted = 0, False

    def over() -> bool:
        nonlocal process, killed, restarted
        now = time.monotonic() - began
        assert source.failure is None and process.popen.poll() is None, log.read_text()[-2000:]
        process.look()
        if killed < KILLS and now > at[killed]:
            process.popen.kill()
            process.popen.wait()
            process, killed = Process(command, log), killed + 1
        elif not restarted and now > SECONDS / 4:
            kafka.kill()
            kafka.start()
            restarted = True
        time.sleep(0.2)
        return now > SECONDS

    source.start()
    try:
        wait_for(over, "the end of the time", SECONDS + PATIENCE_S)
        source.stopped.set()
        source.join()
        wait_for(lambda: table.count() >= source.sent or process.popen.poll() is not None, "all messages to be taken")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(PATIENCE_S) == 0, log.read_text()[-2000:]
    finally:
        source.stopped.set()
        process.popen.kill()
        source.join()
    assert source.failure is None
    changes = table.changes(1, versions="all").to_arrow()
    assert set(changes["op"].to_pylist()) == {"i"}
    assert sorted(one["id"] for one in changes["after"].to_pylist()) == list(range(source.sent))
    assert table.verify().problems == []
    mb, mapped_mb = quarters(process.memory), quarters(process.mapped)
    _, second, _, last = (own + mapped for own, mapped in zip(mb, mapped_mb, strict=True))
    assert last <= second * 1.05 or SECONDS < 300, (mb, mapped_mb)
    record(
        "kafka-soak",
        seconds=SECONDS,
        messages=source.sent,
        commits=table.inspect.application("job").version + 1,
        kills=killed,
        mb=mb,
        mapped_mb=mapped_mb,
    )
