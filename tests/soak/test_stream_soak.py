"""A reader that follows a table beside its writer, compactor, clusterer and cleaner: every change once, none missed,
though it is stopped and started all the time.

HOODOO_SECONDS: how long each runs (default 30; ten minutes is 600).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from figures import record
from patience import PATIENCE_S, wait_for
from soak import EACH_ITS_OWN, Writer, workers

import hoodoo

SECONDS = float(os.environ.get("HOODOO_SECONDS", "30"))


class Reader(threading.Thread):
    """Follows with a consumer, which holds back the cleaner; forgets everything but what it committed at random
    moments.

    seen: each (instant, op, key, ts) that it was told and committed. rows: what replaying that gives, key -> ts. first:
    the slot up to which its first read went, which began with the snapshot that there was.
    """

    def __init__(self, path: Path, versions: str) -> None:
        super().__init__()
        self.path, self.versions, self.rng = path, versions, random.Random(7)
        self.seen: Counter[tuple[str, str, str, int]] = Counter()
        self.rows: dict[str, int] = {}
        self.first = 0
        self.stopped, self.restarts, self.reads = threading.Event(), 0, 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.follow(until=None)
            self.follow(until=hoodoo.open(self.path).cursor.seq)
        except BaseException as problem:
            self.failure = problem

    def follow(self, until: int | None) -> None:
        """One life: from the committed position, for a while, or up to slot `until`."""
        table = hoodoo.open(self.path)
        consumer = table.consumer("reader")
        self.restarts += 1
        for found in table.follow(
            consumer.position,
            versions=self.versions,
            most_commits=self.rng.choice([None, 1, 5]),
            poll_seconds=0.02,
            timeout_seconds=0.2 if until is None else 0,
        ):
            rows = found.to_arrow()
            if until is None and self.rng.random() < 0.2:
                return  # killed between reading and committing: it is read again
            self.take(rows)
            consumer.commit(found.cursor)
            self.first = self.first or found.cursor.seq
            self.reads += 1
            if until is None and self.rng.random() < 0.05:
                return

    def take(self, rows: pa.Table) -> None:
        for change in rows.to_pylist():
            before, after = change["before"], change["after"]
            image = after or before
            assert self.rows.get(image["id"]) == (before["ts"] if before else None), (
                f"{change} does not fit what came before"
            )
            if after:
                self.rows[image["id"]] = after["ts"]
            else:
                del self.rows[image["id"]]
            self.seen[change["instant"], change["op"], image["id"], image["ts"]] += 1


def operations(writer: Writer) -> set[str]:
    """Of all slots that the table still has."""
    history = writer.table.handle.history
    return {slot.operation for slot in history.slots(history.oldest_slot(), writer.table.cursor.seq)}


@pytest.mark.parametrize(("kind", "versions"), [("merge_on_read", "all"), ("copy_on_write", "net")])
def test_a_stream_beside_all_services_loses_nothing_and_repeats_nothing(
    tmp_path: Path, kind: str, versions: str
) -> None:
    writer = Writer(tmp_path / "t", kind)
    writer.table.consumer("reader")
    reader = Reader(tmp_path / "t", versions)
    services = {"COMPACT", "CLUSTER", "CLEAN"} if kind == "merge_on_read" else {"CLUSTER", "CLEAN"}
    commits, ends = 0, time.monotonic() + SECONDS

    def enough() -> bool:
        return time.monotonic() > ends and reader.restarts > 3 and operations(writer) >= services

    def happened() -> bool:
        """Asked before each commit, so that a slow machine takes longer and sees as much."""
        nonlocal commits
        if reader.failure or commits % 20 == 0 and enough():
            return True
        writer.commit()
        commits += 1
        return False

    with workers(tmp_path / "t", *EACH_ITS_OWN):
        reader.start()
        try:
            wait_for(happened, "four restarts and a slot of each service", PATIENCE_S + SECONDS)
        finally:
            reader.stopped.set()
            reader.join()
    if reader.failure:
        raise reader.failure
    alive = np.flatnonzero(writer.model >= 0)
    wanted = dict(zip([f"key-{number:08d}" for number in alive.tolist()], writer.model[alive].tolist(), strict=True))
    assert reader.rows == wanted
    assert max(reader.seen.values()) == 1
    if versions == "all":
        told: Counter[str] = Counter()
        for (instant, *_), count in reader.seen.items():
            told[instant] += count
        later = {instant: count for instant, (slot, count) in writer.changed.items() if slot > reader.first and count}
        assert later and {instant: told[instant] for instant in later} == later
    record(
        f"stream-{kind}",
        seconds=SECONDS,
        commits=commits,
        reads=reader.reads,
        restarts=reader.restarts,
        changes=sum(reader.seen.values()),
    )


def test_a_reader_behind_the_cleaner_is_told_the_earliest_position_and_gets_no_row(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "t", "copy_on_write")
    first = writer.table.cursor
    for _ in range(8):
        writer.commit()
    writer.table.maintenance.clean(retain_hours=0, retain_commits=2)
    earliest = writer.table.handle.history.head().min_readable
    calls: list[Any] = [
        lambda: writer.table.changes(first),
        lambda: writer.table.changes(first, versions="all"),
        lambda: writer.table.changes(first, versions="diff"),
        lambda: writer.table.incremental(first, deletes=True),
        lambda: next(writer.table.follow(first)),
    ]
    for call in calls:
        with pytest.raises(hoodoo.SnapshotExpired) as caught:
            call()
        assert caught.value.details["earliest"] == earliest
    assert writer.table.changes(hoodoo.Cursor(first.table, earliest)).count() > 0
