"""Processes of one job over one topic are killed at any moment, and each message takes effect in exactly one commit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka_broker import Broker
from patience import wait_for
from tiers import sized

import hoodoo

PROCESSES = 3
PARTITIONS = 4
KILLS = sized(5, 25)
MESSAGES, AT_ONCE = sized((4_000, 100), (20_000, 200))
BAD_EVERY = 97


def message(number: int) -> bytes:
    return json.dumps({"id": number, "v": f"v{number}"}).encode() if number % BAD_EVERY else b"{broken"


@pytest.mark.both
def test_each_message_is_in_one_commit_whoever_is_killed(kafka: Broker, tmp_path: Path) -> None:
    rng, path = random.Random(5), tmp_path / "t"
    topic = kafka.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        kafka.put(topic, *map(message, range(partition, MESSAGES, PARTITIONS)), partition=partition)
    table = hoodoo.create(path, {"id": "bigint", "v": "string"}, key="id", compact_after_logs=20)
    command = [sys.executable, "-m", "hoodoo", "ingest", f"kafka://{kafka.address}/{topic}", str(path), "--name", "job"]
    command += ["--max-rows", str(AT_ONCE), "--max-bad-share", "1", "--poll-seconds", "0.05", "--min-seconds", "0"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    last = MESSAGES // AT_ONCE - 1  # all messages are there before, so each commit takes as many as it may
    commits = last // KILLS

    def done() -> bool:
        return table.inspect.application("job").version == last

    running = [start() for _ in range(PROCESSES)]
    try:
        for kill in range(KILLS):
            wait_for(lambda few=commits * kill: table.inspect.application("job").version >= few, "some more commits")
            time.sleep(rng.random() * 0.1)  # at any moment of what they do; nothing is said of how long that takes
            victim = running.pop(rng.randrange(PROCESSES))
            victim.kill()
            victim.communicate()
            running.append(start())
        wait_for(done, "all messages to be taken")
        for process in running:
            process.terminate()
        for process in running:
            _, said = process.communicate()
            # 5: others were always first; and one that has only just begun does not heed signals yet
            assert process.returncode in (0, 5, -signal.SIGTERM), said
    finally:
        for process in running:
            process.kill()
    changes = table.changes(1, versions="all").to_arrow()
    assert sorted(one["id"] for one in changes["after"].to_pylist() if one) == [
        number for number in range(MESSAGES) if number % BAD_EVERY
    ]
    assert set(changes["op"].to_pylist()) == {"i"}
    positions = table.quarantine().rows()["position"].to_pylist()
    assert sorted(one.rpartition(":")[0] for one in positions) == sorted(
        f"{number % PARTITIONS}:{number // PARTITIONS}" for number in range(0, MESSAGES, BAD_EVERY)
    )
    assert table.inspect.application("job").version == last
    table.maintenance.sweep(older_than_hours=0)
    assert table.verify().problems == []
