"""A job that is behind reads its next part while it commits the last one, and what was read too early never counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S

import hoodoo
from hoodoo.errors import CommitConflict, SourceLost, TooManyBadRows
from hoodoo.ingestion.job import Job
from hoodoo.sources import BAD, Limits, Part, Planned, Source, SourceLag

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


class Steps(Source):
    """Parts of two rows each. `reading[n]` is set once part n is read, and `broken` says what is wrong with one."""

    name = "steps"
    reads_ahead = True

    def __init__(self, parts: int, broken: dict[int, Exception] | None = None) -> None:
        self.parts, self.broken = parts, broken or {}
        self.reading = [threading.Event() for _ in range(parts)]
        self.reads, self.threads = list[int](), set[str]()

    def plan(self, position: str, limits: Limits) -> Planned | None:
        self.threads.add(threading.current_thread().name)
        number = int(position or 0)
        return Planned(number, str(number + 1)) if number < self.parts else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        number: Any = planned.what
        self.reads.append(number)
        self.reading[number].set()
        if number in self.broken:
            raise self.broken[number]
        yield Part(self.rows(number))

    def rows(self, number: int) -> pa.Table:
        return pa.table({"id": [2 * number, 2 * number + 1], "v": [f"{number}", f"{number}"]}, SCHEMA)

    def lag(self, position: str) -> SourceLag:
        self.threads.add(threading.current_thread().name)
        return SourceLag(self.parts - int(position or 0), "parts", 0.0)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None)


def before_write(job: Job, number: int, act: Any) -> None:
    """Have `act` called as the job begins to write the batch of a number."""
    write = job.table.upsert

    def upsert(rows: Any, **how: Any) -> Any:
        if how["transaction"].version == number:
            act()
        return write(rows, **how)

    job.table.upsert = upsert  # type: ignore[method-assign]


def ids(table: hoodoo.Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def test_the_next_part_is_read_while_the_last_one_is_committed(table: hoodoo.Table) -> None:
    source = Steps(4)
    job = hoodoo.ingest(source, table)
    met = list[bool]()
    before_write(job, 1, lambda: met.append(source.reading[2].wait(PATIENCE_S)))
    report = job.run()
    assert met == [True] and source.reads == [0, 1, 2, 3]
    assert ids(table) == list(range(8)) and (report.batches, report.rows, report.version) == (4, 8, 3)


def test_a_source_that_does_not_say_so_is_asked_in_one_thread(table: hoodoo.Table) -> None:
    source = Steps(3)
    source.reads_ahead = False
    hoodoo.ingest(source, table).run()
    assert source.threads == {threading.current_thread().name} and ids(table) == list(range(6))


def test_what_was_read_ahead_of_another_commit_is_thrown_away(table: hoodoo.Table) -> None:
    source, other = Steps(4), hoodoo.ingest(Steps(4), hoodoo.open(table.path), name="steps")
    job = hoodoo.ingest(source, table)

    def overtaken() -> None:
        assert source.reading[2].wait(PATIENCE_S)
        other.run()

    before_write(job, 1, overtaken)
    report = job.run()
    assert (report.batches, report.lost_races) == (1, 1) and source.reads == [0, 1, 2]
    found = table.changes(table.handle.history.oldest_slot(), versions="all").to_arrow()
    assert sorted(one["id"] for one in found["after"].to_pylist()) == list(range(8))


def test_a_part_that_was_read_for_other_columns_is_read_again(table: hoodoo.Table) -> None:
    source = Steps(3)
    job = hoodoo.ingest(source, table)

    def widened() -> None:
        assert source.reading[2].wait(PATIENCE_S)
        hoodoo.open(table.path).alter.add_column("w", "double")

    before_write(job, 1, widened)
    job.run()
    assert source.reads == [0, 1, 2, 2] and ids(table) == list(range(6))


def test_an_error_of_the_next_part_comes_after_the_commit_of_the_last_one(table: hoodoo.Table) -> None:
    job = hoodoo.ingest(Steps(3, {2: SourceLost("It is gone.")}), table)
    with pytest.raises(SourceLost):
        job.run()
    assert ids(table) == list(range(4)) and job.report.batches == 2


def test_bad_rows_of_a_part_that_was_read_ahead_are_set_aside_under_its_own_number(table: hoodoo.Table) -> None:
    bad = pa.Table.from_pylist([{"place": "2:0", "reason": "decode", "detail": "no row", "payload": b"x"}], BAD)
    job = hoodoo.ingest(Steps(3, {2: TooManyBadRows("Too many.", found=bad)}), table)
    with pytest.raises(TooManyBadRows):
        job.run()
    assert ids(table) == list(range(4)) and job.position() == "2"
    (kept,) = hoodoo.open(f"{table.path}__quarantine").scan().to_arrow().to_pylist()
    assert (kept["position"], kept["number"]) == ("2:0", 2)


def test_a_job_that_waits_before_its_next_batch_reads_nothing_ahead(table: hoodoo.Table) -> None:
    source = Steps(2)
    job = hoodoo.ingest(source, table, min_seconds=3_600)
    job.run(once=False, each_batch=lambda batch: job.stop())
    assert source.reads == [0] and ids(table) == [0, 1]


def test_a_job_that_is_stopped_asks_its_source_no_more(table: hoodoo.Table) -> None:
    source = Steps(9)
    job = hoodoo.ingest(source, table)
    report = job.run(each_batch=lambda batch: job.stop())
    asked = list(source.reads)
    assert report.batches == 1 and asked in ([0], [0, 1])
    assert hoodoo.ingest(source, table).run().batches == 8 and ids(table) == list(range(18))
    assert source.reads == [*asked, *range(1, 9)]


def test_the_lag_is_measured_when_nobody_reads(table: hoodoo.Table) -> None:
    source, busy = Steps(3), threading.Lock()
    read = source.read

    def alone(*asked: Any) -> Iterator[Part]:
        with busy:
            yield from read(*asked)

    def lag(position: str) -> SourceLag:
        assert busy.acquire(blocking=False), "the source is asked for two things at once"
        busy.release()
        return Steps.lag(source, position)

    source.read, source.lag = alone, lag  # type: ignore[method-assign]
    job = hoodoo.ingest(source, table)
    job.run(each_batch=lambda batch: job.measure_lag())
    assert ids(table) == list(range(6)) and job.lag is not None


def test_a_look_at_a_source_that_has_nothing_new_looks_at_the_table_once(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked three times, as for a batch that was read ahead, and a look costs requests of the store."""
    source = Steps(1)
    job, looks = hoodoo.ingest(source, table), list[None]()
    job.run()
    look = type(table.handle).look
    monkeypatch.setattr(type(table.handle), "look", lambda self: (looks.append(None), look(self))[1])
    assert job.take() is None and len(looks) == 1


def test_another_process_that_is_always_first_ends_a_job_that_reads_ahead(table: hoodoo.Table) -> None:
    job = hoodoo.ingest(Steps(3), table)

    def first(rows: Any, **how: Any) -> Any:
        raise CommitConflict("Another one was first.")

    job.table.upsert = first  # type: ignore[method-assign]
    with pytest.raises(CommitConflict):
        job.run()
    assert ids(table) == []
