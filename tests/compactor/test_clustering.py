"""Clustering moves rows and changes none: what readers, writers and other engines see before and after."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.compactor.clustering import units
from hoodoo.compactor.clustering.cluster import ClusterResult, cluster_files, pack_small_files
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.engine.local import LocalEngine
from hoodoo.engine.spark import SparkEngine
from hoodoo.errors import ColumnError, OptionError
from hoodoo.table import Table
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import AddedFile, FileGroup, View

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("note", pa.string()),
    ]
)
KINDS = ["copy_on_write", "merge_on_read"]


def rows(ids: range, ts: int, seed: int = 0, city: str = "p") -> pa.Table:
    rng = np.random.default_rng(seed + ts)
    n = len(ids)
    columns = {
        "id": [f"k{i:06d}" for i in ids],
        "city": [city] * n,
        "ts": [ts] * n,
        "a": rng.integers(0, 1000, n),
        "b": rng.random(n),
    }
    return pa.table(columns | {"note": [None if v < 10 else f"n{v}" for v in rng.integers(0, 100, n)]}, SCHEMA)


def new(path: Path, kind: str = "merge_on_read", **options: Any) -> Table:
    chosen = {
        "compact_after_logs": None,
        "clean_every": None,
        "target_file_bytes": 64 << 10,
        "row_group_rows": 500,
    } | options
    return hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, **chosen)


def small_groups(table: Table, count: int = 6, each: int = 500, city: str = "p") -> None:
    """`count` file groups, each with the keys of one bulk insert."""
    for number in range(count):
        table.insert(rows(range(number * each, (number + 1) * each), 1, number, city), bulk=True)


IDENTITY = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    *SCHEMA.names,
]


def found(table: Table, **how: Any) -> list[str]:
    """All rows with all that identifies them; the name of the file they lie in is none of it."""
    return sorted(map(repr, table.scan(columns=IDENTITY, meta=True, **how).to_arrow().to_pylist()))


def by_hudi(table: Table) -> list[str]:
    return sorted(repr({name: row[name] for name in IDENTITY}) for row in hudi_rows(table.path))


def groups(table: Table) -> int:
    return len(list(table.handle.history.head().groups()))


def clustered(table: Table, **how: Any) -> ClusterResult:
    return cluster_files(table.handle.context(), **how)


@pytest.mark.parametrize(
    "how", [{}, {"by": ["a"]}, {"by": ["a", "b"], "order": "zorder"}, {"by": ["b", "note"], "order": "hilbert"}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_all_that_identifies_them_are_the_same_after_clustering_for_every_reader(
    tmp_path: Path, kind: str, how: dict[str, Any]
) -> None:
    table = new(tmp_path / "t", kind)
    small_groups(table)
    small_groups(table, 5, city="q")
    table.upsert(rows(range(100, 900, 3), 2))
    table.delete(rows(range(0, 3000, 7), 3))
    before, cursor, there = found(table), table.cursor, groups(table)
    result = clustered(table, **how)
    assert result.units >= 2 and result.yielded == 0
    assert groups(table) < there and result.files_after < result.files_before
    assert found(table) == before == by_hudi(table)
    assert found(hoodoo.open(table.path)) == before
    assert found(table, as_of=cursor) == before
    assert table.verify().problems == []
    assert set(
        table.scan(columns=["_hoodie_file_name"], meta=True).to_arrow()["_hoodie_file_name"].unique().to_pylist()
    ) == {group.base.file.name for group in table.handle.history.head().groups() if group.base}


@pytest.mark.parametrize("kind", KINDS)
def test_an_incremental_read_over_a_clustering_is_empty_and_one_from_before_shows_what_was_written(
    tmp_path: Path, kind: str
) -> None:
    table = new(tmp_path / "t", kind)
    small_groups(table, 4)
    first = table.cursor
    table.upsert(rows(range(10, 20), 2))
    second = table.cursor
    clustered(table)
    assert table.incremental(second).to_arrow().num_rows == 0
    assert sorted(table.incremental(first).to_arrow()["id"].to_pylist()) == [f"k{i:06d}" for i in range(10, 20)]
    table.upsert(rows(range(15, 25), 3))
    assert sorted(table.incremental(second).to_arrow()["id"].to_pylist()) == [f"k{i:06d}" for i in range(15, 25)]


@pytest.mark.parametrize("kind", KINDS)
def test_writes_after_a_clustering_find_their_keys_in_the_new_groups(tmp_path: Path, kind: str) -> None:
    table = new(tmp_path / "t", kind)
    small_groups(table, 6)
    clustered(table, by=["a"])
    result = table.upsert(rows(range(1000, 3500), 5))
    assert (result.inserted, result.updated) == (500, 2000)
    table.delete(rows(range(0, 100), 0))
    ids = table.scan(columns=["id", "ts"]).to_arrow().to_pylist()
    assert {row["id"]: row["ts"] for row in ids} == {f"k{i:06d}": 5 if i >= 1000 else 1 for i in range(100, 3500)}
    assert len(ids) == 3400
    assert by_hudi(table) == found(table)


def test_packing_copies_row_groups_and_files_of_tiny_row_groups_are_joined(tmp_path: Path) -> None:
    table = new(tmp_path / "t", target_file_bytes=400 << 10)
    small_groups(table, 6)
    small_groups(table, 6, each=10, city="q")
    before = found(table)
    result = clustered(table)
    assert found(table) == before == by_hudi(table)
    files = {group.partition: group.base.file for group in table.handle.history.head().groups() if group.base}
    assert 0 < result.copied_bytes < result.bytes_written
    assert result.copied_bytes > 0.5 * files["city=p"].size
    assert pq.read_metadata(tmp_path / "t" / files["city=p"].path).num_row_groups == 6
    assert pq.read_metadata(tmp_path / "t" / files["city=q"].path).num_row_groups == 1


@pytest.mark.parametrize("how", [{}, {"by": ["a", "b"], "order": "zorder"}])
def test_a_second_clustering_finds_nothing_to_do(tmp_path: Path, how: dict[str, Any]) -> None:
    table = new(tmp_path / "t")
    small_groups(table, 9)
    assert clustered(table, **how).units > 0
    for _ in range(2):
        result = clustered(table, **how)
        assert (result.units, result.bytes_written) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_is_sorted_again_only_when_more_than_a_tenth_of_it_is_new(tmp_path: Path, kind: str) -> None:
    table = new(tmp_path / "t", kind, target_file_bytes=1 << 20)
    small_groups(table, 10)
    small_groups(table, 10, city="q")
    assert clustered(table, by=["a"]).units == 2
    table.insert(rows(range(9000, 9100), 1), bulk=True)
    assert clustered(table, by=["a"]).units == 0
    table.insert(rows(range(9100, 10000), 1), bulk=True)
    assert clustered(table, by=["a"]).units == 1
    assert clustered(table, by=["a", "b"], order="zorder").units == 2  # another order is another wish


def test_compaction_and_updates_keep_the_mark_of_an_order_and_new_rows_drop_it(tmp_path: Path) -> None:
    def marks(table: Table) -> set[str]:
        return {group.base.file.sorted for group in table.handle.history.head().groups() if group.base}

    for kind in KINDS:
        table = new(tmp_path / kind, kind, checkpoint_every=1)
        small_groups(table, 3)
        clustered(table, by=["a"])
        table.upsert(rows(range(50), 2))
        table.compact()
        assert marks(table) == marks(hoodoo.open(table.path)) == {"linear:a"}
        table.upsert(rows(range(5000, 5010), 2))
        assert "" in marks(table)


def test_an_order_is_no_order_any_more_once_more_than_a_tenth_of_the_rows_were_updated(tmp_path: Path) -> None:
    """Updated rows go to the end of the file; the file still said that it was sorted, and was never sorted again."""
    table = new(tmp_path / "t", "merge_on_read")
    small_groups(table, 3)
    clustered(table, by=["a"])
    ids = [int(name[1:]) for name in table.scan(columns=["id"]).to_arrow()["id"].to_pylist()]
    table.upsert(rows(sorted(ids), 2, 7))
    table.compact()
    assert clustered(table, by=["a"]).units == 1


def test_a_bound_on_units_is_kept_and_says_that_there_is_more(tmp_path: Path) -> None:
    """Packing went on until everything was packed, in the middle of whoever had called it."""
    table = new(tmp_path / "t")
    for city in "pqr":
        small_groups(table, 5, city=city)
    first = pack_small_files(table.handle.context(), units=2)
    assert (first.units, first.more) == (2, True)
    second = pack_small_files(table.handle.context(), units=2)
    assert (second.units, second.more) == (1, False)
    assert not pack_small_files(table.handle.context(), units=2).more


def test_a_damaged_file_is_named_and_keeps_only_its_own_unit_from_being_packed(tmp_path: Path) -> None:
    """The first unit that raised ended the call, every time; no other partition was ever packed."""
    table = new(tmp_path / "t")
    for city in "pqr":
        small_groups(table, 5, city=city)
    damaged = next(Path(table.path).glob("*p/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20] + bytes(20))
    with pytest.raises(hoodoo.CorruptTable, match=damaged.name):
        pack_small_files(table.handle.context())
    found = {partition: len(found) for partition, found in table.handle.history.head().partitions.items()}
    assert sorted(found.values()) == [1, 1, 5]


def test_the_rows_of_a_sorted_unit_are_in_order_across_its_files(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    small_groups(table, 8)
    clustered(table, by=["a", "note"])
    view = table.handle.history.head()
    files = sorted((group.base.file for group in view.groups() if group.base), key=lambda file: file.stats["a"][0])
    assert len(files) > 1
    for one, other in zip(files, files[1:], strict=False):
        assert one.stats["a"][1] <= other.stats["a"][0]


def test_a_selective_scan_opens_fewer_files_and_row_groups_after_zorder(tmp_path: Path) -> None:
    table = new(tmp_path / "t", row_group_rows=200)
    small_groups(table, 8, each=1000)
    where = "a < 60 AND b < 0.1"
    before = table.scan(where=where)
    tasks_before, rows_before = len(before.tasks()), before.to_arrow()
    clustered(table, by=["a", "b"], order="zorder")
    after = table.scan(where=where)
    assert len(after.tasks()) * 2 <= tasks_before
    assert sorted(after.to_arrow()["id"].to_pylist()) == sorted(rows_before["id"].to_pylist())


def test_a_unit_larger_than_its_memory_gives_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    one, other = new(tmp_path / "one", target_file_bytes=1 << 30), new(tmp_path / "other", target_file_bytes=1 << 30)
    for table in (one, other):
        small_groups(table, 4, each=10_000)
        table.upsert(rows(range(500, 9000, 5), 2))
    size = one.scan(meta=True).to_arrow().nbytes
    clustered(one, by=["b", "a"], order="hilbert")
    assert size > 5 * (1 << 20)
    clustered(other, by=["b", "a"], order="hilbert", limits=ServiceLimits(memory_bytes=1 << 20))
    assert groups(one) == groups(other) == 1
    assert one.scan().to_arrow().equals(other.scan().to_arrow())


PEAK = """
import sys, pyarrow as pa, hoodoo
from hoodoo.compactor.clustering.cluster import cluster_files
from hoodoo.compactor.limits import ServiceLimits
table = hoodoo.open(sys.argv[1])
limits = ServiceLimits(memory_bytes=int(sys.argv[2]))
result = cluster_files(table.handle.context(), by=["b", "a"], order="zorder", limits=limits)
assert result.units == 1
print(pa.default_memory_pool().max_memory())
"""


def test_sorting_a_unit_of_five_times_the_budget_stays_within_the_budget(tmp_path: Path) -> None:
    budget = 8 << 20
    table = new(tmp_path / "t", target_file_bytes=1 << 30, row_group_rows=2000)
    for number in range(8):
        some = rows(range(number * 12_000, (number + 1) * 12_000), 1, number)
        wide = pa.array([random.Random(n).randbytes(170).hex() for n in range(len(some))], pa.string())
        table.insert(some.set_column(SCHEMA.get_field_index("note"), "note", wide), bulk=True)
    table.upsert(rows(range(500, 9000, 5), 2))
    assert table.scan(meta=True).to_arrow().nbytes >= 5 * budget
    before = found(table)
    peak = int(
        subprocess.run(
            [sys.executable, "-c", PEAK, str(tmp_path / "t"), str(budget)], check=True, capture_output=True, text=True
        ).stdout
    )
    assert peak <= budget, peak
    assert found(table) == before


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("copy_on_write", "upsert"),
        pytest.param("merge_on_read", "upsert", marks=pytest.mark.deep),
        pytest.param("merge_on_read", "bulk_insert", marks=pytest.mark.deep),
    ],
)
def test_after_200_small_commits_the_median_file_is_at_least_half_the_target(
    tmp_path: Path, kind: str, operation: str
) -> None:
    target, each = 40 << 10, 80
    table = new(tmp_path / "t", kind, target_file_bytes=target, clean_every=20, compact_after_logs=10)
    rng = random.Random(1)
    for number in range(200):
        fresh = rows(range(number * each, (number + 1) * each), number + 1, number)
        if operation == "upsert":
            first = rng.randrange(number * each + 1)
            table.upsert(pa.concat_tables([fresh, rows(range(first, min(first + 20, number * each)), number + 1)]))
        else:
            table.insert(fresh, bulk=True)
    sizes = [group.base.file.size for group in table.handle.history.head().groups() if group.base]
    assert len(sizes) > 4 and statistics.median(sizes) >= target / 2
    assert len(table.scan(columns=["id"]).to_arrow()) == 200 * each
    assert table.verify().problems == []


@pytest.mark.parametrize(
    ("how", "error"),
    [({"by": "nope"}, ColumnError), ({"by": ["a"], "order": "spiral"}, OptionError), ({"by": ["a", "a"]}, OptionError)],
)
def test_a_wish_that_makes_no_sense_is_an_error_before_anything_is_written(
    tmp_path: Path, how: dict[str, Any], error: type[Exception]
) -> None:
    table = new(tmp_path / "t")
    small_groups(table, 2)
    seq = table.cursor.seq
    with pytest.raises(error):
        clustered(table, **how)
    assert table.cursor.seq == seq


def test_only_the_partitions_asked_for_are_clustered(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    small_groups(table, 4)
    small_groups(table, 4, city="q")
    clustered(table, partitions=["city=q"])
    view = table.handle.history.head()
    assert (len(view.partitions["city=p"]), len(view.partitions["city=q"])) == (4, 1)


def test_whatever_is_packed_ends_in_a_file_at_least_twice_as_large_as_each_of_its_parts() -> None:
    rng = random.Random(3)
    for _ in range(200):
        sizes = [rng.choice([rng.randint(1, 20), rng.randint(1, 1000)]) for _ in range(rng.randint(0, 12))]
        files = {
            f"g{n}": DataFile(f"g{n}_0-0-0_20260101000000000.parquet", "", f"g{n}", "base", size, "", 1)
            for n, size in enumerate(sizes)
        }
        placed = {name: FileGroup("", name, AddedFile(n + 1, file)) for n, (name, file) in enumerate(files.items())}
        found = units.plan_packing(View(seq=99, partitions={"": placed}), 1000)
        assert sum(len(unit.groups) for unit in found) == len(
            {group.file_id for unit in found for group in unit.groups}
        )
        for unit in found:
            parts = [group.base_bytes for group in unit.groups]
            assert len(parts) >= 2 and sum(parts) <= 1000
            assert sum(parts) >= 500 or sum(parts) >= 2 * max(parts)
        left = [size for n, size in enumerate(sizes) if size < 500 and not any(f"g{n}" in unit.ids for unit in found)]
        assert len(left) < 2 or sum(left) < 500


@pytest.mark.parametrize("how", [{}, {"by": ["a", "b"], "order": "hilbert"}])
def test_units_that_run_on_spark_give_the_files_that_they_give_in_this_process(
    tmp_path: Path, spark: Any, how: dict[str, Any]
) -> None:
    files = []
    for name, engine in (("here", LocalEngine(1)), ("there", SparkEngine(spark))):
        table = new(tmp_path / name)
        small_groups(table)
        small_groups(table, city="q")
        result = cluster_files(replace(table.handle.context(), engine=engine), **how)
        assert result.units == 2
        made = [group.base.file for group in table.handle.history.head().groups() if group.base]
        files.append(
            sorted(
                (
                    file.partition,
                    file.sorted,
                    pq.read_table(tmp_path / name / file.path, columns=["id"])["id"].to_pylist(),
                )
                for file in made
            )
        )
        assert by_hudi(table) == found(table)
    assert files[0] == files[1]


def _bins_by_summing_anew(small: list[FileGroup], target: int) -> list[list[FileGroup]]:
    """How bins were packed before: the bytes of the bin are summed for every file."""

    def size(group: FileGroup) -> int:
        return group.base_bytes

    bins: list[list[FileGroup]] = []
    current: list[FileGroup] = []
    for group in sorted(small, key=lambda group: (group.base.seq if group.base else 0, group.file_id)):
        if current and sum(map(size, current)) + size(group) > target:
            bins.append(current)
            current = []
        current.append(group)
    if len(current) > 1 and sum(map(size, current)) * 2 >= target:
        bins.append(current)
    elif tier := units._choose_smallest_groups(current):
        bins.append(tier)
    return bins


def test_packing_with_a_running_total_makes_the_bins_that_summing_anew_made() -> None:
    """Twenty thousand small files took 6 CPU seconds inside a writer's commit: each file summed its bin again."""
    rng = random.Random(1)
    for _ in range(200):
        small = [
            FileGroup(
                "",
                f"{n}",
                AddedFile(rng.randint(1, 9), DataFile(f"{n}", "", f"{n}", "base", rng.randint(1, 499), "", 1)),
            )
            for n in range(rng.randint(0, 60))
        ]
        target = rng.randint(900, 3000)
        assert units._divide_into_bins(small, target) == _bins_by_summing_anew(small, target)
