"""Tasks as data: what they have in common travels once, and what a task unpickles does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.engine import spark as spark_engine
from hoodoo.engine.spark import SparkEngine, dumps
from hoodoo.engine.task_pickling import TaskDeserializer, serialize_tasks
from hoodoo.readers.slices.slice_task import SliceTask
from hoodoo.storage.local import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.int64()), *((f"column_{n}", pa.string()) for n in range(20))])


def slice_tasks(path: Path, partitions: int) -> list[SliceTask]:
    rows = pa.table({"id": range(partitions), "p": range(1000, 1000 + partitions)})
    for field in list(SCHEMA)[2:]:
        rows = rows.append_column(field, pa.nulls(partitions, field.type))
    options = {"compact_after_logs": None, "clean_every": None}
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="p", **options)
    table.upsert(rows)
    found = table.scan(columns=["id"], where="id >= 0").tasks()
    return [task for task in found if isinstance(task, SliceTask)]


class LocalFrame:
    """Runs what Spark would run, one task for each part, and notes what each task gets."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
        self.heaviest = 0

    def mapInArrow(self, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Any:
        found = []
        for number, part in enumerate(self.parts):
            self.heaviest = max(self.heaviest, len(dumps(run)) + len(part))
            found += list(run(iter([pa.RecordBatch.from_pydict({"id": [number], "part": [part]})])))
        self.result = pa.Table.from_batches(found)
        return self

    def toArrow(self) -> pa.Table:
        return self.result


def heaviest(monkeypatch: pytest.MonkeyPatch, tasks: list[SliceTask]) -> int:
    """Most bytes that a task unpickles where all of `tasks` run, as those of Spark do."""
    frames = []

    def deal(_: Any, parts: list[bytes], at_once: int | None = None) -> LocalFrame:
        frames.append(LocalFrame(parts))
        return frames[-1]

    monkeypatch.setattr(spark_engine, "distribute_tasks", deal)
    monkeypatch.setattr(spark_engine, "prepare_session", lambda spark: None)
    rows = SparkEngine(None).map(lambda task: len(task()), tasks)
    assert rows == [1] * len(tasks)
    return frames[0].heaviest


def test_what_a_task_unpickles_does_not_grow_with_the_number_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that Spark sent to each task held all of them: 48 MB each at 10,000 tasks."""
    few, many = slice_tasks(tmp_path / "few", 3), slice_tasks(tmp_path / "many", 60)
    assert len(many) == 60
    assert heaviest(monkeypatch, many) < heaviest(monkeypatch, few) + 200


def test_a_task_s_own_part_has_neither_store_nor_configuration_nor_filter(tmp_path: Path) -> None:
    tasks = slice_tasks(tmp_path / "t", 3)
    common, parts = serialize_tasks(len, tasks)
    for word in (b"LocalStore", b"TableConfig", b"Filter"):
        assert word in common and not any(word in part for part in parts)
    pickled = TaskDeserializer(common)
    back = [pickled.item(part) for part in parts]
    assert [task.group for task in back] == [task.group for task in tasks]
    assert len({id(task.store) for task in back}) == len({id(task.config) for task in back}) == 1
    assert back[0]().to_pylist() == tasks[0]().to_pylist()


def test_things_that_travel_once_are_told_apart_by_identity(tmp_path: Path) -> None:
    one, other, schema = LocalStore(tmp_path / "a"), LocalStore(tmp_path / "b"), pa.schema([("x", pa.int8())])
    items = [(one, 1, [schema]), (other, 2, {"deep": (one, schema)})]
    common, parts = serialize_tasks(str, items)
    first, second = (TaskDeserializer(common).item(part) for part in parts)
    assert (first[0].uri, first[1], first[2]) == (one.uri, 1, [schema])
    assert (second[0].uri, second[2]["deep"][0].uri, second[2]["deep"][1]) == (other.uri, one.uri, schema)
    assert TaskDeserializer(common).run(serialize_tasks(None, [7])[1][0]) == "7"
