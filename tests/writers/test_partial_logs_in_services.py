"""Table services, changes of columns and others beside logs of rows of some columns."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi_rows import hudi_rows
from partial_logs import FREE, QUIET, SCHEMA, blocks, found, logs, made, row, set_in, some, values

import hoodoo
from hoodoo.compactor.clustering.cluster import cluster_files
from hoodoo.compactor.compaction import merge_group
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.engine.local import LocalEngine
from hoodoo.format.log.block import find_base_instants
from hoodoo.readers.slices import slices
from hoodoo.timeline.slots.slot import LOG
from hoodoo.writers.files import in_place


@pytest.fixture(params=["avro", "parquet"])
def log_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- services
def test_log_compaction_makes_one_log_of_partial_and_whole_rows(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", log_format=log_format)
    table.upsert([some(number, word="x") for number in range(0, 80, 2)], columns="given")
    table.upsert([some(number, n=number) for number in range(40, 120, 2)], columns="given")
    table.upsert(pa.Table.from_pylist([row(number, random.Random(9)) for number in range(0, 10, 2)], SCHEMA))
    table.delete([some(8), some(50)])
    before, mark, meta = found(table), table.cursor, table.scan(meta=True).to_arrow().sort_by("id")
    assert compact_logs(table.handle.context(), lambda view: behind(view, 2)).logs == 4
    (log,) = logs(table)
    assert sorted(set_in(table, log)) == [
        (False, SCHEMA.names),
        (True, ["n"]),
        (True, ["n", "word"]),
        (True, ["word"]),
    ]
    assert log.partial and log.order and len(set(find_base_instants((Path(table.path) / log.path).read_bytes()))) == 1
    assert found(table) == before and table.incremental(mark).count() == 0
    times = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"]
    assert table.scan(meta=True).to_arrow().sort_by("id").select(times) == meta.select(times)
    assert table.verify().problems == []


def test_log_compaction_keeps_blocks_as_they_are_where_merging_would_make_more_of_them(tmp_path: Path) -> None:
    """Hudi reads the logs before, too, and failed where a row followed the delete of its key."""
    table, rng = made(tmp_path / "t"), random.Random(3)
    for name in FREE:
        table.upsert(
            pa.Table.from_pylist(
                [some(key) | {name: values(rng)[name]} for key in rng.sample(range(0, 200, 2), 60)],
                pa.schema([SCHEMA.field("id"), SCHEMA.field("day"), SCHEMA.field(name)]),
            ),
            columns="given",
        )
    gone = list(range(0, 40, 2))
    table.delete([some(key) for key in gone])
    before, count = found(table), len(logs(table))
    compact_logs(table.handle.context(), lambda view: behind(view, 2))
    (log,) = logs(table)
    assert [names for _, names in set_in(table, log)] == [[name] for name in FREE] and count == 5
    keys = {int(key) for block in blocks(table, log) for key in block.rows["_hoodie_record_key"].to_pylist()}
    assert keys and not keys & set(gone)
    assert found(table) == before
    assert {one["id"]: {name: one[name] for name in SCHEMA.names} for one in hudi_rows(table.path)} == before
    table.compact()
    assert found(table) == before


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["in place", "as a whole"])
@pytest.mark.parametrize("growth", [1.5, 1e6], ids=["held", "too large to be held"])
def test_compaction_completes_partial_rows_within_any_budget(
    tmp_path: Path, small: int, growth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(4)
    table = made(tmp_path / "t", 3000, row_group_rows=500)
    for _ in range(5):
        names = rng.sample(FREE, 2)
        batch = [some(key) | {name: values(rng)[name] for name in names} for key in rng.sample(range(3000), 300)]
        schema = pa.schema([field for field in SCHEMA if field.name in ("id", "day", *names)])
        table.upsert(pa.Table.from_pylist(batch, schema), columns="given")
    table.delete([some(key) for key in range(0, 3000, 7)])
    table.upsert([some(key) | values(rng) for key in range(1, 700, 7)])
    before = found(table)
    rows = table.scan().to_arrow().to_pylist()
    monkeypatch.setattr(in_place, "_SMALL", small)
    monkeypatch.setattr(merge_group, "_LOG_GROWTH", growth)
    table.compact()
    assert not logs(table) and found(table) == before
    assert table.scan().to_arrow().to_pylist() == rows, "in the same order as the slices were read"
    assert table.verify().problems == []


def test_columns_that_no_partial_log_sets_are_copied_by_a_compaction_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t", 4000, row_group_rows=1000)
    table.upsert([some(key, word="y") for key in range(0, 4000, 16)], columns="given")
    before, decoded = found(table), set[str]()
    monkeypatch.setattr(in_place, "_SMALL", 0)
    wide = in_place._Rewrite._decode_with_dictionaries

    def noted(self: Any, number: int, names: Any = None) -> pa.Table:
        decoded.update(names or ["all"])
        return wide(self, number, names)

    monkeypatch.setattr(in_place._Rewrite, "_decode_with_dictionaries", noted)
    table.compact()
    assert "word" in decoded and not decoded & {"all", "n", "v", "tags"}
    assert found(table) == before


# ---- changes of columns
def test_partial_logs_follow_changes_of_columns(tmp_path: Path, log_format: str) -> None:
    table = made(tmp_path / "t", 20, log_format=log_format)
    stored = found(table)
    table.upsert([some(4, word="four", n=4)], columns="given")
    stored[4] |= {"word": "four", "n": 4}
    table.alter.rename_column("word", "text", rewrite=True)
    assert not logs(table)
    table.upsert([some(6, text="six", n=6)], columns="given")
    stored[6] |= {"word": "six", "n": 6}
    table.alter.add_column("more", pa.int64())
    table.alter.drop_column("n")
    assert [log.partial for log in logs(table)] == [1]
    stored = {
        key: {"id": key, "day": one["day"], "v": one["v"], "text": one["word"], "tags": one["tags"], "more": None}
        for key, one in stored.items()
    }
    assert found(table) == stored
    table.upsert([some(4, more=1), some(5, more=2)], columns="given")
    table.update({"text": "text || '!'"}, where="id = 4")
    stored[4] |= {"more": 1, "text": "four!"}
    stored[5] |= {"more": 2}
    assert found(table) == stored
    assert found(table, where="more = 1") == {4: stored[4]}
    assert found(table, where="text = 'four!'") == {4: stored[4]}
    assert found(table, columns=["id", "more"]) == {
        key: {"id": key, "more": one["more"]} for key, one in stored.items()
    }
    compact_logs(table.handle.context(), lambda view: behind(view, 2))
    assert found(table) == stored
    table.compact()
    assert found(table) == stored and table.verify().problems == []


def test_a_column_added_after_a_partial_log_is_not_set_by_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 10)
    table.upsert([some(2, word="x")], columns="given")
    table.alter.add_column("late", pa.int64(), default=7)
    table.upsert([some(2, late=8)], columns="given")
    table.upsert([some(2, n=1)], columns="given")
    assert (found(table)[2]["late"], found(table)[2]["word"], found(table)[2]["n"]) == (8, "x", 1)
    table.compact()
    assert found(table)[2]["late"] == 8


# ---- beside others
def test_a_slot_and_a_checkpoint_say_that_a_log_is_partial(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 20, checkpoint_every=2)
    for number in range(5):
        table.upsert([some(2, word=f"{number}")], columns="given")
    again = hoodoo.open(table.path)
    assert [log.partial for log in logs(again)] == [1] * 5
    assert all(
        file.partial
        for slot in again.handle.history.slots(2, table.cursor.seq)
        for file in slot.files
        if file.kind == LOG
    )


def test_partial_rows_that_are_logged_while_a_clustering_works_are_brought_along(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 60)

    class Beside(LocalEngine):
        """Runs tasks, then lets somebody write before what they made is completed."""

        def map(self, task: Any, items: Any, at_once: int | None = None, waiting: bool = False) -> list[Any]:
            made = super().map(task, items)
            other = hoodoo.open(table.path)
            other.upsert([some(4, word="while"), some(5, word="while")], columns="given")
            other.update({"n": -1}, where="id < 10")
            return made

    result = cluster_files(replace(table.handle.context(), engine=Beside(1)), by=["n"])
    stored = found(table)
    assert result.yielded == 0 and [stored[key]["word"] for key in (4, 5)] == ["while"] * 2
    assert {key for key, one in stored.items() if one["n"] == -1} == set(range(10))
    assert any(log.partial for log in logs(table)) and table.verify().problems == []


def test_salvage_gives_a_partial_row_to_no_key_whose_row_is_lost(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", row_group_rows=100, **QUIET)
    rng = random.Random(6)
    table.insert(pa.Table.from_pylist([row(number, rng) for number in range(300)], SCHEMA), sort_by="id", bulk=True)
    table.upsert([some(key, word="kept") | {"day": "d"} for key in (150, 250)], columns=["word"])
    stored = found(table)
    (group,) = table.handle.history.head().groups()
    assert group.base is not None
    file = Path(table.path) / group.base.file.path
    data = bytearray(file.read_bytes())
    chunk = pq.ParquetFile(file).metadata.row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    for at in range(start, start + chunk.total_compressed_size):
        data[at] ^= 0xFF
    file.write_bytes(data)
    report = table.maintenance.salvage(accept_loss=True)
    lost = {int(loss.key) for loss in report.lost if loss.key is not None}
    assert found(table) == {key: one for key, one in stored.items() if not 100 <= key < 200}
    assert 150 in lost or any(loss.key is None for loss in report.lost)
    assert found(table)[250]["word"] == "kept" and table.verify().problems == []


def test_salvage_of_a_damaged_partial_log_names_its_keys_and_keeps_their_rows(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 20)
    before = found(table)
    table.upsert([some(4, word="lost"), some(6, word="lost")], columns="given")
    table.upsert([some(6, n=-6), some(8, n=-8)], columns="given")
    path = (
        Path(table.path)
        / slices.sort_logs_by_instant(next(group for group in table.handle.history.head().groups() if group.logs))[
            0
        ].path
    )
    data = bytearray(path.read_bytes())
    data[data.rindex(b"lost")] ^= 1
    path.write_bytes(data)
    with pytest.raises(hoodoo.CorruptTable):
        table.scan().to_arrow()
    report = table.maintenance.salvage(accept_loss=True)
    assert {(loss.key, loss.kept) for loss in report.lost} == {("4", True), ("6", True)}
    assert found(table) == before | {key: before[key] | {"n": -key} for key in (6, 8)}


def test_a_batch_of_some_columns_may_bring_a_new_one(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 6)
    before = found(table)
    table.upsert([some(4, word="x", note="new")], columns="given", evolve=True)
    assert [names for log in logs(table) for _, names in set_in(table, log)] == [["word", "note"]]
    stored = {key: one | {"note": None} for key, one in before.items()}
    assert found(table) == stored | {4: stored[4] | {"word": "x", "note": "new"}}


def test_a_null_is_refused_in_a_column_that_takes_none(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="day", **QUIET)
    table.insert([some(1, n=1, must=1)], missing="null")
    with pytest.raises(hoodoo.ColumnError, match="must"):
        table.upsert([some(1, must=None)], columns="given")
    assert table.upsert([some(1, n=None)], columns="given").updated == 1
    assert (found(table)[1]["n"], found(table)[1]["must"]) == (None, 1)


def test_two_writers_of_different_columns_of_a_row_keep_both(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 10)
    one, other = hoodoo.open(table.path), hoodoo.open(table.path)
    one.upsert([some(4, word="one")], columns="given")
    other.upsert([some(4, n=-2)], columns="given")
    assert other.delete([some(6)]).deleted == 1
    assert one.upsert([some(6, word="back")], columns="given", new_keys="ignore").updated == 0
    assert (found(table)[4]["word"], found(table)[4]["n"], 6 in found(table)) == ("one", -2, False)
