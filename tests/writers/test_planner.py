"""The layout of a table does not depend on where a batch lay: the same file groups with the same rows each, the same
appends and rewrites, whether it was written in this process or through staged files and Spark's tasks.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tiers import sized

import hoodoo
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import LookupKeys
from hoodoo.writers import operations
from hoodoo.writers.batches.batch import Batch, prepare_batch
from hoodoo.writers.batches.write_options import WriteOptions
from hoodoo.writers.context import Context
from hoodoo.writers.sources import InMemoryBatch, Source
from hoodoo.writers.staging import staged, staged_rows
from hoodoo.writers.staging.staged_files import discard, new_folder, stage, to_table
from hoodoo.writers.staging.staged_rows import StagedSource

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
KINDS = ("merge_on_read", "copy_on_write")
NO_SERVICES = {"compact_after_logs": None, "clean_every": None}
Layout = list[tuple[str, int, list[tuple[int, int]]]]
"""Partition, rows of the base, updates and deletes of each log, for each file group."""


def rows(rng: random.Random, ids: Sequence[int], ts: int, length: int) -> pa.Table:
    cities = [rng.choice("xxxxyz") for _ in ids]
    text = [rng.randbytes(rng.randint(0, length)).hex() for _ in ids]
    tags = [[city] * (n % 3) for n, city in enumerate(cities)]
    columns = {"id": list(ids), "city": cities, "ts": [ts] * len(ids), "text": text, "tags": tags}
    return pa.table(columns, SCHEMA)


def make(path: Path, kind: str, target: int) -> hoodoo.Table:
    options: dict[str, Any] = {**NO_SERVICES, "target_file_bytes": target}
    return hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, **options)


def layout(table: hoodoo.Table) -> Layout:
    return sorted(
        (group.partition, group.base.file.rows, [(log.file.updates, log.file.deletes) for log in group.logs])
        for group in table.handle.history.head().groups()
        if group.base
    )


def staged_source(context: Context, batch: Batch, folder: str, tasks: int) -> StagedSource:
    """As Spark's preparing tasks leave it, each of which had some of the rows."""
    parts = np.array_split(np.arange(len(batch)), tasks)
    pieces = [
        piece
        for number, places in enumerate(parts)
        for piece in stage(context.store, folder, to_table(batch.take(places)), (number, 0))
    ]
    return StagedSource(folder, pieces, batch.terms, "newest", batch.stale)


def write_staged(table: hoodoo.Table, batch: Batch, write: Callable[[Context, Source], Any], tasks: int) -> None:
    context, folder = table.handle.context(), new_folder()
    write(context, staged_source(context, batch, folder, tasks))
    discard(context.store, folder)


@pytest.mark.both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(sized(2, 20)))
def test_a_batch_gives_the_same_layout_in_process_and_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """Two planners decided, with two guesses of bytes per row: rows in whole pieces here, in equal parts there."""
    monkeypatch.setattr(staged_rows, "_PIECE_ROWS", 700)
    monkeypatch.setattr(staged_rows, "_ROUTE_BYTES", 100_000)
    monkeypatch.setattr("hoodoo.writers.staging.staged_files._CUT_BYTES", 20_000)
    rng = random.Random(seed)
    make(tmp_path / "t", kind, rng.choice((60_000, 250_000))).upsert(rows(rng, range(300), 0, 20))
    ways: dict[str, Callable[[Context, Source], Any]] = {
        "upsert": operations.upsert,
        "insert": lambda context, source: operations.insert_rows(context, source, "keep", bulk=False),
        "bulk": lambda context, source: operations.insert_rows(context, source, "keep", bulk=True),
        "overwrite": lambda context, source: operations.overwrite(context, source, ["city=x"], "INSERT_OVERWRITE"),
        "delete": operations.upsert,
    }
    for ts, way in enumerate(["upsert", "bulk", *rng.sample(sorted(ways), 3)], 1):
        ids = rng.sample(range(9_000), rng.choice((30, 3_000)))
        given = rows(rng, ids, ts, rng.choice((4, 60)))
        if way == "overwrite":
            given = given.filter(pa.compute.equal(given["city"], "x"))
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        shutil.copytree(tmp_path / "t", tmp_path / "other")
        here, there = hoodoo.open(tmp_path / "t"), hoodoo.open(tmp_path / "other")
        given = given.select(["id", "city"]) if way == "delete" else given
        batch = prepare_batch(given, here.handle.config, WriteOptions(delete=way == "delete"))
        ways[way](here.handle.context(), InMemoryBatch(batch))
        write_staged(there, batch, ways[way], rng.randint(1, 5))
        assert layout(hoodoo.open(tmp_path / "t")) == layout(hoodoo.open(tmp_path / "other")), way
    assert len(layout(hoodoo.open(tmp_path / "t"))) > 4
    for name in ("t", "other"):
        assert hoodoo.open(tmp_path / name).verify().problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataframe_gives_the_layout_that_its_rows_give_in_process(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    rng = random.Random(7)
    make(tmp_path / "t", kind, 120_000).upsert(rows(rng, range(2_000), 0, 20))
    shutil.copytree(tmp_path / "t", tmp_path / "other")
    given = rows(rng, rng.sample(range(8_000), 4_000), 1, 30)
    done = hoodoo.open(tmp_path / "t").upsert(given)
    same = hoodoo.open(tmp_path / "other").upsert(spark.createDataFrame(given).repartition(3))
    assert (done.inserted, done.updated, done.files) == (same.inserted, same.updated, same.files)
    assert layout(hoodoo.open(tmp_path / "t")) == layout(hoodoo.open(tmp_path / "other"))


class Remainder:
    """An index kind in which new keys must go to the file group of their hash's remainder, like a bucket index."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def required_group(self, keys: LookupKeys) -> list[str]:
        partitions = [keys.partitions[code] for code in keys.codes]
        hashes = keys.hashes[keys.rows].tolist()
        return [f"{value % 3}-{name[-1]}" for value, name in zip(hashes, partitions, strict=True)]


@pytest.mark.parametrize("through_staging", [False, True])
def test_an_index_may_say_which_file_group_a_new_key_must_go_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through_staging: bool
) -> None:
    rng, table = random.Random(1), make(tmp_path / "t", "merge_on_read", 1 << 20)
    real = staged_rows.index_of
    monkeypatch.setattr(staged_rows, "index_of", lambda store, **how: Remainder(real(store, **how)))
    for start in (0, 200):
        batch = prepare_batch(rows(rng, range(start, start + 400), start, 5), table.handle.config)
        if through_staging:
            write_staged(table, batch, operations.upsert, 2)
        else:
            context = table.handle.context()
            operations.upsert(replace(context, index=Remainder(context.index)), InMemoryBatch(batch))
    table = hoodoo.open(tmp_path / "t")
    groups = list(table.handle.history.head().groups())
    assert {group.file_id for group in groups} == {f"{n}-{city}" for n in range(3) for city in "xyz"}
    for city in "xyz":
        mine = table.scan(where=f"city = '{city}'", meta=True).to_arrow()
        hashes = dict(zip(mine[RECORD_KEY].to_pylist(), mine["_hoodie_file_name"].to_pylist(), strict=True))
        found = prepare_batch(mine.select(SCHEMA.names), table.handle.config)
        for key, value in zip(found.rows[RECORD_KEY].to_pylist(), found.hashes.tolist(), strict=True):
            assert hashes[key].startswith(f"{value % 3}-{city}")
