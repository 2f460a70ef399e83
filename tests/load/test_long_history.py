"""A hundred thousand commits: opening a table, committing to it and the memory it takes do not grow with its history
(L3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from figures import record

import hoodoo
from hoodoo.compactor.cleaning.clean import cleanable
from hoodoo.format.names import base_file_name, instant_of_ms
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.hudi.publish import find_publication_file
from hoodoo.timeline.slots.slot import BASE, DataFile, Slot, encode_commit_file, sha
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import apply

COMMITS = int(os.environ.get("HOODOO_COMMITS", "100000"))
ACTIVE = 1_000  # instants that the archive leaves in Hudi's timeline
GROUPS = 10
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


def grow(path: Path, commits: int) -> None:
    """Give a table the history of that many commits: what the archive and cleans leave of one, without the data files
    of old versions.
    """
    table = hoodoo.create(path, SCHEMA, key="id", order_by="ts", type="copy_on_write", clean_every=None)
    view, now = table.handle.history.head(), time.time_ns() // 1_000_000
    file_ids = [f"{number:08d}-0000-0000-0000-000000000000-0" for number in range(GROUPS)]
    for number in range(commits):
        at = now + 1_000 + number * 10_000
        instant, base = (
            instant_of_ms(at),
            {
                "table": view.table,
                "prev": view.sha,
                "seq": view.seq + 1,
                "base_seq": view.seq,
                "nonce": f"{number:032x}",
            },
        )
        if number % 50 == 49:
            victims = tuple((entry.path, entry.partition) for entry in cleanable(view, view.seq))
            slot = Slot(
                **base,
                instant=instant,
                action="clean",
                outcome="completed",
                operation="CLEAN",
                completed_at=at + 5,
                victims=victims,
                min_readable=view.seq,
            )
        else:
            file_id = file_ids[number % GROUPS]
            file = DataFile(base_file_name(file_id, instant), "", file_id, BASE, 4_000, "0" * 32, 10, updates=10)
            slot = Slot(
                **base,
                instant=instant,
                action="commit",
                outcome="completed",
                operation="UPSERT",
                completed_at=at + 5,
                files=(file,),
            )
        data = encode_commit_file(slot)
        _write(path / layout.slot_key(slot.seq), data)
        view = apply(view, slot, sha(data))
        if commits - number <= ACTIVE:
            for name in (
                find_publication_file(slot),
                f"{layout.TIMELINE}{instant}.{slot.action}.requested",
                f"{layout.TIMELINE}{instant}.inflight",
            ):
                _write(path / name, b"")
    checkpoint.write(table.handle.store, view)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class Counting(LocalStore):
    """Counts requests, and finds slots by listing, as on S3."""

    lists_by_prefix = True

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.requests: Counter[str] = Counter()

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        found = list(super().list(prefix, after))
        self.requests["list pages"] += 1 + len(found) // 1000
        return iter(found)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.requests["gets"] += 1
        return super().get_range(key, start, length)

    def size(self, key: str) -> int:
        self.requests["heads"] += 1
        return super().size(key)


@pytest.fixture(scope="module")
def histories() -> Iterator[dict[str, Path]]:
    memory = Path("/dev/shm")  # everything is in the cache anyway: it was written just now
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None) as name:
        folder = Path(name)
        grow(folder / "long", COMMITS)
        grow(folder / "short", 100)
        yield {"long": folder / "long", "short": folder / "short"}


def test_opening_costs_the_same_requests_however_long_the_history_is(histories: dict[str, Path]) -> None:
    counts = {}
    for name, path in histories.items():
        store = Counting(str(path))
        table = Table(store)
        assert table.scan().schema == SCHEMA
        counts[name] = store.requests
    record(
        "L3 requests",
        **{f"{name} {what}": number for name, counted in counts.items() for what, number in counted.items()},
    )
    assert counts["long"]["list pages"] <= counts["short"]["list pages"] + 2
    assert (
        counts["long"]["gets"] <= counts["short"]["gets"] + 1
        and counts["long"]["heads"] <= counts["short"]["heads"] + 1
    )


MEASURE = """
import json, sys, time
import hoodoo
from hoodoo.timeline.commits.draft import SlotDraft
hoodoo.open(sys.argv[1])

def median_ms(run):
    times = []
    for _ in range(9):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return round(sorted(times)[4] * 1000, 1)

table = hoodoo.open(sys.argv[1])

def commit():
    attempt = table.handle.timeline.begin("commit")
    attempt.start()
    attempt.complete(SlotDraft("UPSERT"))

found = {"open_ms": median_ms(lambda: hoodoo.open(sys.argv[1])), "commit_ms": median_ms(commit)}
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps(found | {"rss_mb": int(own.split()[1]) // 1024}))
"""


def test_memory_stays_small_with_a_long_history(histories: dict[str, Path]) -> None:
    """Times are recorded for the report, not judged here: the machine that runs this may be busy."""
    found = {}
    for name, path in histories.items():
        done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        found[name] = json.loads(done.stdout)
    record(
        "L3 cost",
        commits=COMMITS,
        **{f"{name} {what}": number for name, figures in found.items() for what, number in figures.items()},
    )
    assert found["long"]["rss_mb"] <= 300
