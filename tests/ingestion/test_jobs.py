"""A job takes each row of its source into the table once, sets aside what is none, and keeps nothing anywhere else."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from faulty_store import Died, FaultyStore
from job_files import files, ids, put
from streamer_commits import places, streamer_commits
from tiers import sized
from whole_numbers import SCHEMA, Numbers, row

import hoodoo
from hoodoo.errors import (
    CommitConflict,
    CorruptTable,
    DataError,
    OptionError,
    Overtaken,
    SourceLost,
    TooManyBadRows,
)
from hoodoo.ingestion import scheduler
from hoodoo.ingestion.positions import load_position, store_position
from hoodoo.sources import BAD, Files, Limits, Part, Planned
from hoodoo.timeline.layout import POSITIONS


def inserts(table: hoodoo.Table) -> list[int]:
    found = table.changes(table.handle.history.oldest_slot(), versions="all").to_arrow()
    return sorted(one["id"] for one in found["after"].to_pylist() if one)


# ---- once
def test_rows_of_all_files_are_in_the_table_and_the_next_run_takes_new_ones_only(
    folder: Path, table: hoodoo.Table
) -> None:
    put(folder, "a.jsonl", row(1), row(2))
    put(folder, "b.jsonl", row(2, 2), row(3))
    report = hoodoo.ingest(files(folder), table).run()
    assert (report.batches, report.rows, report.bad, report.version) == (1, 4, 0, 0)
    assert ids(table) == [1, 2, 3]
    put(folder, "c.jsonl", row(4), {**row(1, 5), "_hoodie_is_deleted": True})
    again = hoodoo.ingest(files(folder), hoodoo.open(table.path)).run()
    assert (again.batches, again.rows, again.version) == (1, 2, 1)
    assert ids(table) == [2, 3, 4]
    assert hoodoo.ingest(files(folder), table).run().batches == 0
    assert table.verify().problems == []


def test_the_flag_of_a_delete_is_no_column_that_a_check_names(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", {**row(1), "_hoodie_is_deleted": True})
    assert hoodoo.ingest(files(folder), table).check().columns == tuple(row(1))


def test_a_source_of_three_methods_is_a_source(table: hoodoo.Table) -> None:
    report = hoodoo.ingest(Numbers(95), table, max_rows=10).run()
    assert (report.batches, report.rows, report.position) == (10, 95, "95")
    assert inserts(table) == list(range(95))
    assert table.inspect.application("numbers").version == 9
    assert [one.position for one in table.history()][:2] == ["95", "90"]


def test_several_processes_of_one_job_commit_each_row_once(table: hoodoo.Table) -> None:
    # fewer batches than races that one may lose in a row
    runs = [hoodoo.ingest(Numbers(200), hoodoo.open(table.path)) for _ in range(3)]
    threads = [threading.Thread(target=each.run) for each in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inserts(table) == list(range(200))
    assert sum(each.report.batches for each in runs) == 20 and table.inspect.application("numbers").version == 19


@pytest.mark.both
@pytest.mark.parametrize("what", sized(["die", "lost after"], ["die", "die after", "lost", "lost after"]))
def test_a_job_that_dies_at_any_write_is_gone_on_with_and_doubles_nothing(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder, "a.jsonl", row(1), "no row", row(2))
    number, hit = 0, True
    while hit:
        number, hit = number + 1, False
        path = tmp_path / str(number)
        hoodoo.create(
            path, SCHEMA, key="id", partition_by="part", order_by="ts", compact_after_logs=None, clean_every=None
        )
        store = FaultyStore(str(path))

        def fault(count: int, operation: str, key: str, at: int = number) -> str | None:
            nonlocal hit
            hit = hit or count == at
            return what if count == at else None

        store.fault = fault
        with contextlib.suppress(Died):
            hoodoo.ingest(files(folder), hoodoo.Table(store), on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
        healed = hoodoo.open(path)
        hoodoo.ingest(files(folder), healed, on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
        assert inserts(healed) == [1, 2]
        [position] = healed.quarantine().rows()["position"].to_pylist()
        assert position.startswith("a.jsonl:line:2:")
        assert healed.inspect.application(f"files:{folder}").version == 0
        assert healed.verify().problems == []
    assert number > 8


def test_an_insert_keeps_the_rows_that_are_there(folder: Path, table: hoodoo.Table) -> None:
    table.upsert([row(1, v="old")])
    put(folder, "a.jsonl", row(1, 9, v="new"), row(2))
    for operation in ("insert", "bulk_insert"):
        hoodoo.ingest(files(folder), table, name=operation, operation=operation).run()
    assert table.scan(where="id = 1").to_arrow()["v"].to_pylist() == ["old"] and ids(table) == [1, 2]


# ---- bad rows
def test_what_is_no_row_and_what_the_table_refuses_is_set_aside_once(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", row(1), '{"id": 5', {"part": "a", "ts": 1}, row(2))
    report = hoodoo.ingest(files(folder), table, name="trips", on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    assert (report.rows, report.bad, ids(table)) == (4, 2, [1, 2])
    aside = table.quarantine().rows()
    assert sorted(zip(aside["reason"].to_pylist(), aside["application"].to_pylist(), strict=True)) == [
        ("decode", "trips"),
        ("null_key", "trips"),
    ]
    assert b'{"id": 5' in aside["payload"].to_pylist()
    [position] = aside.filter(pc.equal(aside["reason"], "decode"))["position"].to_pylist()
    assert position.startswith("a.jsonl:line:2:")
    assert table.quarantine().original(position).to_pylist() == [{"payload": '{"id": 5'}]
    done = table.quarantine().replay()
    assert (done.replayed, done.bad) == (0, 2) and "cannot be decoded as a row" in str(done.details)
    report_of_purge = table.maintenance.purge([{"id": 1, "part": "b"}], older_than_hours=0)
    assert report_of_purge.quarantine_unread == 1 and not report_of_purge.files_proved
    assert table.quarantine().drop(position) == 1


def test_too_many_bad_rows_stop_the_job_before_their_batch(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", *(row(number) for number in range(100)), "x", "y")
    with pytest.raises(TooManyBadRows, match=r"2 of 102 rows are bad: .*The first is at a\.jsonl:line:101"):
        hoodoo.ingest(files(folder), table).run()
    with pytest.raises(TooManyBadRows):
        hoodoo.ingest(files(folder), table, on_bad_rows=hoodoo.BadRowLimits(rows=1, share=1)).run()
    assert ids(table) == [] and table.inspect.application(f"files:{folder}").version == -1
    assert len(table.quarantine().rows()) == 2  # to be looked at
    assert hoodoo.ingest(files(folder), table, on_bad_rows=hoodoo.BadRowLimits(share=0.5)).run().bad == 2
    assert len(table.quarantine().rows()) == 2 and len(ids(table)) == 100


def test_a_file_with_far_too_many_bad_lines_is_not_read_to_its_end(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", *["x"] * 5_000)
    with pytest.raises(TooManyBadRows, match="too many bad rows: expected at most 1,000"):
        hoodoo.ingest(files(folder), table).run()
    assert len(table.quarantine().rows()) == 100
    assert hoodoo.ingest(files(folder), table, on_bad_rows=hoodoo.BadRowLimits(rows=5_000, share=1)).run().bad == 5_000


def test_a_batch_of_bad_rows_only_moves_the_position(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", "x")
    report = hoodoo.ingest(files(folder), table).run()
    assert (report.batches, report.bad, report.version) == (1, 1, 0)
    assert hoodoo.ingest(files(folder), table).run().batches == 0


def test_a_long_bad_row_is_cut(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", "x" * (2 << 20))
    hoodoo.ingest(files(folder), table).run()
    [cut], [payload] = (table.quarantine().rows()[name].to_pylist() for name in ("payload_cut", "payload"))
    assert cut and payload == b"x" * (64 << 10)


# ---- positions
def test_a_position_that_is_too_long_for_a_slot_lies_in_a_file_that_a_sweep_keeps_until_it_is_passed(
    folder: Path, table: hoodoo.Table
) -> None:
    for number in range(1_200):
        put(folder, f"{number:050d}.jsonl", row(number))
    hoodoo.ingest(files(folder), table, max_bytes=1 << 15).run()
    assert ids(table) == list(range(1_200))
    kept = table.inspect.application(f"files:{folder}").position
    assert kept.startswith("sha256:")
    store = table.handle.store
    assert len(list(store.list(POSITIONS))) > 1
    table.maintenance.sweep(older_than_hours=0)
    assert [key for key, _ in store.list(POSITIONS)] == [POSITIONS + kept.removeprefix("sha256:")]
    assert hoodoo.ingest(files(folder), table).run().batches == 0
    assert table.verify().problems == []
    store.delete(POSITIONS + kept.removeprefix("sha256:"))
    with pytest.raises(CorruptTable, match="Position file .* of a job is missing or damaged"):
        hoodoo.ingest(files(folder), table).run()


@pytest.mark.parametrize("text", ["x", "ü" * 8_000, "ü" * 9_000, "7" * (1 << 20)])
def test_a_position_of_any_length_is_read_back(table: hoodoo.Table, text: str) -> None:
    store = table.handle.store
    assert load_position(store, store_position(store, text)) == text and len(store_position(store, text)) <= 16 << 10


def test_a_position_of_a_source_cannot_name_a_file(table: hoodoo.Table) -> None:
    with pytest.raises(OptionError, match="sha256:"):
        store_position(table.handle.store, "sha256:abc")


def test_another_kind_of_source_under_the_same_name_is_refused(folder: Path, table: hoodoo.Table) -> None:
    hoodoo.ingest(Numbers(5), table, name="job").run()
    put(folder, "a.jsonl", row(77))
    with pytest.raises(SourceLost, match="another source"):
        hoodoo.ingest(files(folder), table, name="job").run()
    assert ids(table) == list(range(5))


# ---- races, ends
def test_a_job_that_always_comes_second_says_so(table: hoodoo.Table) -> None:
    class Second(Numbers):
        def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
            yield from super().read(planned, columns, unknown)
            at = table.inspect.application("numbers")
            table.upsert([], transaction=at.next(f"{int(at.position or 0) + 1}"))

    job = hoodoo.ingest(Second(10_000), hoodoo.open(table.path))
    with pytest.raises(CommitConflict, match="Another process of application 'numbers' committed first"):
        job.run()
    assert job.report.lost_races == scheduler.RACES_MAX and ids(table) == []


def test_a_job_tells_hudis_streamer_its_place_and_stops_at_once_where_that_one_read_on(
    table: hoodoo.Table,
) -> None:
    class Spelled(Numbers):
        def to_hudi(self, position: str) -> str:
            return f"numbers,0:{position}"

    source, path = Spelled(5), Path(table.path)
    hoodoo.ingest(source, table).run()
    assert places(path)[-1] == "numbers,0:5"
    streamer_commits(path, "numbers,0:8")
    source.there = 9
    with pytest.raises(Overtaken, match="numbers,0:8"):
        hoodoo.ingest(source, table).run(once=False)
    assert source.reads == 2 and ids(table) == list(range(5))


def test_a_place_in_hudis_words_that_is_too_long_to_be_repeated_is_not_said(table: hoodoo.Table) -> None:
    class Long(Numbers):
        def to_hudi(self, position: str) -> str:
            return "x" * (64 * 1024 + 1)

    assert hoodoo.ingest(Long(5), table).run().rows == 5
    assert places(Path(table.path))[-1] == ""


def test_an_object_with_the_three_methods_of_a_source_says_no_place(table: hoodoo.Table) -> None:
    class Plain:
        name, plan, read, lag = "plain", *(getattr(Numbers(5), one) for one in ("plan", "read", "lag"))

    assert hoodoo.ingest(Plain(), table).run().rows == 5  # type: ignore[arg-type]
    assert places(Path(table.path))[-1] == ""


def test_a_job_that_goes_on_ends_when_it_is_stopped(folder: Path, table: hoodoo.Table) -> None:
    job = hoodoo.ingest(files(folder), table, min_seconds=0)
    done = threading.Thread(target=job.run, args=(False, 0.01))
    done.start()
    put(folder, "a.jsonl", row(1))
    other = hoodoo.open(table.path)
    while other.scan().count() == 0:
        assert done.is_alive()
    put(folder, "b.jsonl", row(2))
    while other.scan().count() == 1:
        assert done.is_alive()
    job.stop()
    done.join()
    assert job.report.batches == 2 and job.run().batches == 2  # it stays stopped


def test_the_second_signal_ends_a_job_at_once(folder: Path, table: hoodoo.Table) -> None:
    class Endless(Numbers):
        def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
            while True:
                signal.raise_signal(signal.SIGINT)
                yield Part(SCHEMA.empty_table())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark may have one of its own there
    try:
        with pytest.raises(KeyboardInterrupt):
            hoodoo.ingest(Endless(1), table).run()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert table.inspect.application("numbers").version == -1


def test_a_source_that_changes_meanwhile_is_looked_at_again(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", row(1))

    class Changing(Files):
        changed = False

        def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
            if not self.changed:
                self.changed = True
                put(folder, "a.jsonl", row(1), row(2))
            yield from super().read(planned, columns, unknown)

    assert hoodoo.ingest(Changing(folder, settle_seconds=0), table).run().rows == 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"source": "landing"}, "source"),
        ({"table": "lake/t"}, "table"),
        ({"name": ""}, "name"),
        ({"operation": "append"}, "operation"),
        ({"transform": "jobs:rows"}, "transform"),
        ({"new_columns": "drop"}, "new_columns"),
        ({"missing": "skip"}, "missing"),
        ({"missing": "keep", "operation": "insert"}, "missing"),
        ({"max_rows": 0}, "max_rows"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"on_bad_rows": "skip"}, "on_bad_rows"),
        ({"min_seconds": -1}, "min_seconds"),
        ({"min_seconds": None}, "min_seconds"),
        ({"max_rows_per_second": 0}, "max_rows_per_second"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_read(
    table: hoodoo.Table, wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(OptionError, match=named if named != "name" else "Application") as refused:
        hoodoo.ingest(**{"source": Numbers(1), "table": table, **wrong})
    assert refused.value.details["option"] == named


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"once": "yes"}, "once"),
        ({"poll_seconds": -1}, "poll_seconds"),
        ({"poll_seconds": 0}, "poll_seconds"),
        ({"poll_seconds": float("nan")}, "poll_seconds"),
        ({"each_batch": "print"}, "each_batch"),
        ({"metrics_port": 70_000}, "metrics_port"),
    ],
)
def test_a_wrong_argument_of_a_run_is_named(table: hoodoo.Table, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as refused:
        hoodoo.ingest(Numbers(1), table).run(**wrong)
    assert refused.value.details["option"] == named and ids(table) == []


def test_a_source_that_does_not_move_on_is_not_read_for_ever(table: hoodoo.Table) -> None:
    class Standing(Numbers):
        def plan(self, position: str, limits: Limits) -> Planned | None:
            return Planned((0, 1), "here")

    with pytest.raises(DataError, match=r"plan\(\) must advance"):
        hoodoo.ingest(Standing(1), table).run()
    assert table.inspect.application("numbers").version == 0


def test_bad_rows_of_a_source_have_the_columns_that_it_says() -> None:
    assert Part(SCHEMA.empty_table()).bad.schema == BAD
