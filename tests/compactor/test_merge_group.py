"""Merging a file group within a budget: the same rows in the same order as reading the slice, whatever the budget, and
the memory that was promised.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from figures import record
from tiers import sized

import hoodoo
from hoodoo.compactor import limits
from hoodoo.compactor.compaction import merge_group, plans
from hoodoo.compactor.compaction.merge_group import MergeTask
from hoodoo.compactor.limits import RateLimiter, ServiceLimits, ServiceStopped
from hoodoo.merge import pending
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.merge.pending import StreamingMerge
from hoodoo.readers.slices import slices
from hoodoo.timeline.views.view import FileGroup
from hoodoo.writers.files import in_place

SCHEMA = pa.schema([("id", pa.string()), ("tens", pa.int64()), ("ts", pa.int64()), ("text", pa.string())])
INSTANT = "20991231235959000"
SMALL = 1 << 20


def rows(ids: list[int], ts: list[int]) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{i:06d}" for i in ids],
            "tens": [t // 10 for t in ts],
            "ts": ts,
            "text": [f"text {i} {t}" for i, t in zip(ids, ts, strict=True)],
        },
        schema=SCHEMA,
    )


def table_with_logs(path: Path, seed: int, order_by: str | tuple[str, ...] | None, deletes: bool) -> hoodoo.Table:
    chance = random.Random(seed)
    table = hoodoo.create(
        path, SCHEMA, key="id", order_by=order_by, compact_after_logs=None, clean_every=None, row_group_rows=500
    )
    table.upsert(rows(list(range(3000)), [chance.randrange(100) for _ in range(3000)]))
    pool = range(3000)
    for _ in range(6):
        changed = chance.sample(pool, 400)
        batch = rows(changed, [chance.randrange(100) for _ in changed])
        if deletes and chance.random() < 0.5:
            gone = [chance.random() < 0.3 for _ in changed]
            batch = batch.append_column("_hoodie_is_deleted", pa.array(gone))
            pool = sorted(
                set(pool) - {key for key, deleted in zip(changed, gone, strict=True) if deleted}
            )  # they would come back by a rewrite of the base
        table.upsert(batch)
    return table


def only_group(table: hoodoo.Table) -> FileGroup:
    (group,) = table.handle.history.head().groups()
    assert group.base and len(group.logs) > 1
    return group


def merged(table: hoodoo.Table, memory: int, instant: str = INSTANT, **kwargs: object) -> pa.Table:
    task = MergeTask(table.handle.store, table.handle.config, instant, only_group(table), memory, **kwargs)  # type: ignore[arg-type]
    file = task()
    assert file.rows >= 0
    return slices.read_base(
        table.handle.store, table.handle.config, file, table.handle.config.stored_schema, verified=True
    )


@pytest.mark.both
@pytest.mark.parametrize("order_by", ["ts", ("tens", "ts"), None], ids=["ts", "tens, ts", "None"])
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("small", [0, 1 << 40], ids=["in place", "as a whole"])
def test_whatever_the_budget_the_new_base_holds_the_rows_of_the_slice(
    tmp_path: Path,
    order_by: str | tuple[str, ...] | None,
    deletes: bool,
    small: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(sized(1, 3)):
        table = table_with_logs(tmp_path / f"t{seed}", seed, order_by, deletes)
        expected = slices.read_file_slice(
            table.handle.store, table.handle.config, only_group(table), table.handle.config.stored_schema
        )
        monkeypatch.setattr(in_place, "_SMALL", small)
        ample = merged(table, 1 << 30)
        assert by_key(ample) == by_key(expected)
        assert (keys(ample) == keys(expected)) == (not small), "winners stand at the end, or where the losers stood"
        monkeypatch.setattr(merge_group, "_LOG_GROWTH", 1000.0)  # so that these logs count as larger than any budget
        tight = merged(table, SMALL, "20991231235959001")
        monkeypatch.undo()
        assert by_key(tight) == by_key(ample)


def test_the_ordering_column_may_be_called_as_the_one_was_that_numbers_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs beyond the budget of a table ordered by `arrival` could not be compacted: the name stood there twice."""
    schema = pa.schema([("id", pa.string()), ("arrival", pa.int64())])
    path = tmp_path / "t"
    table = hoodoo.create(path, schema, key="id", order_by="arrival", compact_after_logs=None, clean_every=None)
    for arrival in (1, 3, 2, 4):
        table.upsert(pa.table({"id": ["a", "b"], "arrival": [arrival, 5 - arrival]}, schema=schema))
    monkeypatch.setattr(in_place, "_SMALL", 0)
    monkeypatch.setattr(merge_group, "_LOG_GROWTH", 1e9)  # so that these logs count as larger than any budget
    assert [row["arrival"] for row in by_key(merged(table, SMALL))] == [4, 4]


def by_key(rows: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rows.sort_by("_hoodie_record_key").to_pylist()
    return found


def keys(rows: pa.Table) -> list[str]:
    found: list[str] = rows["_hoodie_record_key"].to_pylist()
    return found


def test_keys_that_share_a_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with_logs(tmp_path / "t", 1, "ts", True)
    expected = merged(table, 1 << 30)
    monkeypatch.setattr(pending, "_FEW", 0)
    monkeypatch.setattr(pending, "hash64", lambda keys: np.full(len(keys), 7, np.uint64))
    held = StreamingMerge.__init__

    def colliding(self: StreamingMerge, changes: KeyedChanges, order_by: tuple[str, ...], rows: None = None) -> None:
        held(self, replace(changes, hashes=np.full(len(changes), 7, np.uint64)), order_by, rows)

    monkeypatch.setattr(StreamingMerge, "__init__", colliding)
    assert merged(table, 1 << 30, "20991231235959001").to_pylist() == expected.to_pylist()


def test_a_file_merged_in_place_without_deletes_keeps_the_index_entry_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place, "_SMALL", 0)
    table = table_with_logs(tmp_path / "t", 2, "ts", deletes=False)
    group = only_group(table)
    assert group.base
    file = MergeTask(table.handle.store, table.handle.config, INSTANT, group)()
    before = group.base.file
    assert (file.index, file.order, file.rows) == (before.index, before.order, before.rows)


def test_a_merge_stops_between_two_batches(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "t", 3, "ts", deletes=False)
    answers = iter([False] * 8)
    with pytest.raises(ServiceStopped):
        merged(table, SMALL, pace=RateLimiter(None, lambda: next(answers, True)))
    assert not [name for name in Path(table.path).iterdir() if INSTANT in name.name], "nothing of it is stored"


def test_a_merge_in_place_stops_between_two_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_SMALL", 0)
    table = table_with_logs(tmp_path / "t", 3, "ts", deletes=False)
    files, asked = len(list(only_group(table).files())), list[int]()

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > files  # each has been read by then

    with pytest.raises(ServiceStopped):
        merged(table, 1 << 30, pace=RateLimiter(None, stopped))
    assert not [name for name in Path(table.path).iterdir() if INSTANT in name.name], "nothing of it is stored"


def test_the_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands but for the waiting, so that all of it is the pace's."""
    table = table_with_logs(tmp_path / "t", 4, "ts", deletes=False)
    group = only_group(table)
    work = sum(entry.file.size for entry in group.files()) + group.base_bytes
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(limits, "time", clock)
    merged(table, SMALL, pace=RateLimiter(work / 2))
    assert now[0] > 2 - limits._BURST_S - limits._SLICE_S, "two seconds' worth of bytes, less the burst"


_MEASURED = """
import gc, sys, threading
import pyarrow as pa
import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.limits import ServiceLimits

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

table = hoodoo.open(sys.argv[1])
budget = int(sys.argv[2])
pa.set_memory_pool(pa.system_memory_pool())  # gives back what is freed, so that what is measured is what is held
manual = {"compact_after_logs": None, "clean_every": None}
small = hoodoo.create(sys.argv[1] + "-small", table.schema, key="id", order_by="ts", **manual)
for ts in range(3):
    small.upsert(pa.table({"id": ["a"], "ts": [ts], "text": ["b"]}, schema=table.schema))
small.compact()  # everything imported
gc.collect()
before, peak, done = anonymous(), [0], threading.Event()

def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
result = plans.compact_files(table.handle.context(), limits=ServiceLimits(memory_bytes=budget))
done.set()
watcher.join()
assert result.groups == 1, result
print(peak[0] - before)
"""


def test_what_compresses_well_is_not_taken_for_small(tmp_path: Path) -> None:
    """Batches were sized by the file's bytes, and logs by theirs: rows of repeated text or small numbers took ten times
    the budget.
    """
    names = [f"n{i}" for i in range(200)]
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), *((name, pa.int64()) for name in names)])
    n, budget = 20_000, 16 << 20

    def batch(ids: range, value: int) -> pa.Table:
        return pa.table(
            {
                "id": [f"{i:06d}" for i in ids],
                "text": ["all the same " * 50] * len(ids),
                **{name: pa.array([value] * len(ids)) for name in names},
            },
            schema=schema,
        )

    table = hoodoo.create(tmp_path / "t", schema, key="id", compact_after_logs=None, clean_every=None)
    table.upsert(batch(range(n), 0))
    for value in range(1, 3):
        table.upsert(batch(range(0, n, 3), value))
    expected = table.scan().to_arrow().sort_by("id")
    assert expected.nbytes > 2 * budget
    merging = merge_group.BaseFileMerge(
        MergeTask(table.handle.store, table.handle.config, INSTANT, only_group(table), budget)
    )
    assert merging._log_memory() > budget
    assert max(part.nbytes for part in merging.rows()) < budget  # one log block, which is decoded at once
    result = plans.compact_files(table.handle.context(), limits=ServiceLimits(memory_bytes=budget))
    assert result.groups == 1
    assert table.scan().to_arrow().sort_by("id").equals(expected)


@pytest.mark.deep
@pytest.mark.alone
@pytest.mark.parametrize("heavy", ["base", "logs"])
def test_a_group_five_times_the_budget_is_compacted_in_a_part_of_its_size(tmp_path: Path, heavy: str) -> None:
    budget, n = 128 << 20, 660_000 if heavy == "base" else 250_000
    random_text, schema = np.random.default_rng(5), SCHEMA.remove(SCHEMA.get_field_index("tens"))

    def batch(ids: np.ndarray, version: int) -> pa.Table:
        text = pa.array([value.hex() for value in np.frombuffer(random_text.bytes(len(ids) * 512), "V512").tolist()])
        return pa.table(
            {
                "id": pa.array([f"key-{i:032d}" for i in ids.tolist()]),
                "ts": pa.array(np.full(len(ids), version)),
                "text": text,
            },
            schema=schema,
        )

    table = hoodoo.create(
        tmp_path / "t",
        schema,
        key="id",
        order_by="ts",
        compact_after_logs=None,
        clean_every=None,
        target_file_bytes=1 << 38,
    )
    table.upsert(batch(np.arange(n), 0))
    rounds, share = (1, 50) if heavy == "base" else (6, 2)
    for version in range(1, rounds + 1):
        changed = random_text.choice(n, n // share, replace=False)
        table.upsert(batch(changed, version))
    table.delete(pa.table({"id": [f"key-{i:032d}" for i in range(10, 15)]}))
    group = only_group(table)
    before = table.scan().to_arrow()
    size = before.nbytes if heavy == "base" else sum(log.file.size for log in group.logs)
    assert size > 5 * budget, size
    held = {
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "MALLOC_ARENA_MAX": "2",
    }  # glibc else keeps what is freed
    command = [sys.executable, "-c", _MEASURED, table.path, str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=os.environ | held)
    assert done.returncode == 0, done.stderr
    record(f"compaction-memory-{heavy}", budget=budget, size=size, peak=int(done.stdout))
    assert int(done.stdout) < 2 * budget, "half to spare: threads and the allocator have a share of their own"
    assert table.scan().to_arrow().sort_by("id").equals(before.sort_by("id"))
