"""The S3 server is killed with SIGKILL while a PUT is on its way, and started again on the same folder: no acknowledged
commit is lost.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import actors
import kill_loop
import pytest
import seaweed
from fault_proxy import FaultProxy, Rates, proxy
from figures import record
from patience import PATIENCE_S, wait_for
from replay import Judge, noted

import hoodoo

pytestmark = pytest.mark.xdist_group("s3")  # two servers at a time are too many for a small machine
KILLS = int(os.environ.get("HOODOO_SERVER_KILLS", "20"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[seaweed.Server]:
    running = seaweed.started(tmp_path / "server")
    try:
        yield running
    finally:
        running.kill()


def acknowledged(notes: Path) -> int:
    return sum("ok" in note for _, note in noted(notes))


def kill_in_a_put(server: seaweed.Server, between: FaultProxy, of_a_slot: bool) -> None:
    """Kill when the next PUT (that of a slot, if asked for) has been sent and not been answered."""
    done = threading.Event()

    def kill(request: str) -> None:
        if not done.is_set() and ("/commits/" in request or not of_a_slot):
            time.sleep(random.random() * 0.003)
            server.kill()
            done.set()

    between.on_put = kill
    wait_for(done.is_set, "the kill in a PUT")
    between.on_put = None


@pytest.mark.deep
def test_no_acknowledged_commit_is_lost_when_the_server_is_killed_in_mid_put(
    server: seaweed.Server, tmp_path: Path
) -> None:
    path, notes = f"s3://{seaweed.BUCKET}/t", tmp_path / "notes"
    notes.mkdir()
    table = hoodoo.create(
        path,
        actors.SCHEMA,
        key="id",
        partition_by="part",
        order_by="ts",
        storage=server.options,
        max_retries=200,
        commit_timeout_seconds=20,
    )
    began = time.monotonic()
    with proxy(server.port, rates=Rates(0, 0, 0, 0, 0, 0)) as between:
        through = server.options | {"endpoint": f"http://127.0.0.1:{between.port}"}
        place = actors.Place(path, notes, time.monotonic() + PATIENCE_S * KILLS, through)
        crew = [
            kill_loop.processes().Process(target=actors.run, args=("writer", place, f"writer-{number}"), daemon=True)
            for number in range(3)
        ]
        try:
            for process in crew:
                process.start()
            for number in range(KILLS):
                before = acknowledged(notes)
                wait_for(lambda before=before: acknowledged(notes) > before, "a commit after the server's start")  # type: ignore[misc]
                kill_in_a_put(server, between, of_a_slot=number % 2 == 0)
                server.start()
        finally:
            for process in crew:
                process.kill()
                process.join()
    judge = Judge(table, notes).run()
    record(
        "T4b S3 server killed",
        kills=KILLS,
        seconds=round(time.monotonic() - began, 1),
        violations=len(judge.violations),
        **dict(judge.counts),
    )
    assert judge.violations == []
    assert judge.counts["commits acknowledged"] >= KILLS
    table.maintenance.sweep(older_than_hours=0)
    assert table.verify().problems == []
