"""What is due, in which order it is planned, and how much of it: triggers and strategies on real views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor.compaction import plans, strategies
from hoodoo.compactor.compaction.strategies import CompactionStrategy
from hoodoo.compactor.compaction.triggers import (
    CompactionTriggers,
    behind,
    find_files_to_compact,
    log_bytes,
    read_amplification,
)
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.timeline.environment import Environment

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("text", pa.string())])
NONE = CompactionTriggers(None, None, None, None)


def rows(day: str, ids: range, text: str) -> pa.Table:
    return pa.table(
        {"id": [f"{i:05d}" for i in ids], "day": [day] * len(ids), "text": [f"{text}{i}" for i in ids]}, schema=SCHEMA
    )


def make(path: Path, days: dict[str, list[int]]) -> hoodoo.Table:
    """Partitions of 2,000 rows; for each the rows of its logs, one commit a log."""
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="day", compact_after_logs=None, clean_every=None)
    for day, logs in days.items():
        table.upsert(rows(day, range(2000), "first"))
        for number, count in enumerate(logs):
            table.upsert(rows(day, range(count), f"log {number} of {day}: " + "x" * 200))
    return table


def days_of(groups: Any) -> list[str]:
    return [group.partition.partition("=")[2] for group in groups]


def due_days(table: hoodoo.Table, triggers: CompactionTriggers) -> set[str]:
    return set(days_of(find_files_to_compact(table.handle.timeline, table.handle.history.head(), triggers)))


def test_each_trigger_names_the_groups_it_is_about_and_none_of_them_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", {"a": [1, 1, 1], "b": [2000], "c": [1]})
    monkeypatch.setattr("hoodoo.compactor.compaction.triggers._BYTES_MIN", 0)
    assert due_days(table, NONE) == set()
    assert due_days(table, CompactionTriggers(3, None, None, None)) == {"a"}
    assert due_days(table, CompactionTriggers(None, None, 1.0, None)) == {"b"}
    assert due_days(table, CompactionTriggers(None, 3600.0, None, None)) == set()
    assert due_days(table, CompactionTriggers(None, 0.0, None, None)) == {"a", "b", "c"}
    assert due_days(table, CompactionTriggers(3, None, 1.0, None)) == {"a", "b"}


def test_read_amplification_names_as_many_of_the_largest_as_bring_it_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", {"a": [1500], "b": [2000], "c": [10], "d": []})
    monkeypatch.setattr("hoodoo.compactor.compaction.triggers._BYTES_MIN", 0)
    view = table.handle.history.head()
    size = {group.partition.partition("=")[2]: log_bytes(group) for group in view.groups()}
    base = sum(group.base.file.size for group in view.groups() if group.base)
    assert read_amplification(view) == pytest.approx(1 + sum(size.values()) / base)
    only_b = 1 + (size["a"] + size["c"] + 1) / base
    assert due_days(table, CompactionTriggers(None, None, None, only_b)) == {"b"}
    assert due_days(table, CompactionTriggers(None, None, None, only_b - 2 / base)) == {"a", "b"}
    assert due_days(table, CompactionTriggers(None, None, None, 1 + sum(size.values()) / base)) == set()


def test_a_few_log_bytes_never_make_a_tiny_table_due_by_size(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"a": [1000]})
    assert due_days(table, CompactionTriggers(None, None, 0.001, 1.001)) == set()


def test_strategies_order_by_log_size_by_newest_partition_or_take_partitions_whole(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"2024-01-01": [500], "2024-01-02": [2000], "2024-01-03": [1]})
    view = table.handle.history.head()
    everything = behind(view)
    assert days_of(CompactionStrategy("log_size").plan(view, everything).groups) == [
        "2024-01-02",
        "2024-01-01",
        "2024-01-03",
    ]
    assert days_of(CompactionStrategy("newest_partitions").plan(view, everything).groups) == [
        "2024-01-03",
        "2024-01-02",
        "2024-01-01",
    ]
    with pytest.raises(hoodoo.OptionError, match="log_size, newest_partitions, whole_partition"):
        CompactionStrategy("alphabetical")


def test_a_whole_partition_is_planned_when_one_of_its_groups_is_due(tmp_path: Path) -> None:
    table = hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", partition_by="day", compact_after_logs=None, clean_every=None
    )
    for day in ("a", "b"):
        for first in (0, 2000):
            table.insert(rows(day, range(first, first + 2000), "first"), bulk=True)
    for _ in range(3):
        table.upsert(rows("a", range(5), "many logs"))
    table.upsert(rows("a", range(2000, 2005), "one log"))
    table.upsert(rows("b", range(5), "one log"))
    view = table.handle.history.head()
    wanted = find_files_to_compact(table.handle.timeline, view, CompactionTriggers(3, None, None, None))
    assert len(wanted) == 1
    assert days_of(CompactionStrategy("whole_partition").plan(view, wanted).groups) == ["a", "a"]


def test_a_plan_takes_as_many_groups_as_its_bytes_allow_and_at_least_one(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"a": [2000], "b": [1000], "c": [500]})
    view = table.handle.history.head()
    whole = CompactionStrategy().plan(view, behind(view))
    sizes = [strategies.io_bytes(group) for group in whole.groups]
    assert len(CompactionStrategy(io_bytes=sum(sizes[:2])).plan(view, behind(view)).groups) == 2
    assert len(CompactionStrategy(io_bytes=1).plan(view, behind(view)).groups) == 1
    result = plans.compact_files(table.handle.context(), strategy=CompactionStrategy(io_bytes=1))
    assert (result.groups, len(result.instants)) == (3, 3), "one plan after the other, until what was there is done"


def test_no_more_groups_than_allowed_are_in_work_at_once(tmp_path: Path) -> None:
    import threading

    table = make(tmp_path / "t", {"a": [10], "b": [10], "c": [10], "d": [10]})
    lock, running, most = threading.Lock(), [0], [0]

    class Watched(type(table.handle.store)):  # type: ignore[misc]
        def get(self, key: str) -> bytes:
            if ".log." in key:
                with lock:
                    running[0] += 1
                    most[0] = max(most[0], running[0])
                threading.Event().wait(0.05)
                with lock:
                    running[0] -= 1
            return bytes(super().get(key))

    watched = hoodoo.Table(Watched(table.path))
    assert plans.compact_files(watched.handle.context(), limits=ServiceLimits(groups_at_once=1)).groups == 4
    assert most[0] == 1


def test_age_alone_does_not_rewrite_a_large_base_for_a_small_log_until_it_is_very_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small log every ten minutes rewrote the whole base every ten minutes."""
    table = make(tmp_path / "t", {"a": [1], "b": [2000]})
    monkeypatch.setattr("hoodoo.compactor.compaction.triggers._BASE_MIN", 0)
    sizes = {group.partition: group.base_bytes / log_bytes(group) for group in table.handle.history.head().groups()}
    assert sizes["day=a"] > 8 > sizes["day=b"]
    now = table.handle.timeline.environment.now_ms()
    clock = [now + 700_000]
    aged = hoodoo.Table(table.handle.store, Environment(now_ms=lambda: clock[0]))
    assert due_days(aged, CompactionTriggers(None, 600.0, None, None)) == {"b"}
    clock[0] = now + 24 * 600_000 + 1_000
    assert due_days(aged, CompactionTriggers(None, 600.0, None, None)) == {"a", "b"}
