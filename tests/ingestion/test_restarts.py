"""A job goes on from a place that somebody names, or from where another application has read to."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from streamer_commits import places, streamer_commits

import hoodoo
from hoodoo.errors import CommitConflict, OptionError, Overtaken, SourceLost
from hoodoo.sources import Files, Limits, Part, Planned, Source, SourceLag, TableChanges

COLUMNS = {"id": "bigint", "v": "string"}
NINE = dt.datetime(2026, 1, 1, 9, tzinfo=dt.timezone.utc)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Three files, of nine, ten and eleven o'clock; moving a file into a folder would count as its time."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        file = folder / f"{number}.jsonl"
        file.write_text(json.dumps({"id": number, "v": "x"}) + "\n")
    return folder


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", COLUMNS, key="id")


def ids(table: hoodoo.Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def test_a_reset_reads_again_or_passes_over_and_keeps_what_was_read(landing: Path, table: hoodoo.Table) -> None:
    job = hoodoo.ingest(Files(landing, settle_seconds=0), table, name="job")
    assert job.reset("latest", -1).version == 0
    assert job.run().rows == 0 and ids(table) == []
    assert job.reset("earliest", 0).version == 1
    assert job.run().rows == 3 and ids(table) == [0, 1, 2]
    middle = sorted((landing / f"{number}.jsonl").stat().st_ctime for number in range(3))[0]
    place = dt.datetime.fromtimestamp(middle + 3600, dt.timezone.utc).isoformat()
    job.reset(place, 2)
    assert job.run().rows == 3  # the report is of all that the job did: nothing is younger than in an hour
    assert ids(table) == [0, 1, 2] and table.verify().problems == []


def test_of_two_who_reset_a_job_one_is_told(landing: Path, table: hoodoo.Table) -> None:
    job = hoodoo.ingest(Files(landing, settle_seconds=0), table, name="job")
    job.run()
    job.reset("earliest", 0)
    with pytest.raises(CommitConflict, match="another number: expected 0, got 1"):
        job.reset("earliest", 0)
    assert table.inspect.application("job").version == 1


def test_a_position_of_before_is_a_place_and_one_of_another_source_is_none(
    landing: Path, table: hoodoo.Table, tmp_path: Path
) -> None:
    other = hoodoo.create(tmp_path / "other", COLUMNS, key="id")
    job = hoodoo.ingest(Files(landing, settle_seconds=0), other, name="job", max_bytes=1)
    first = list[str]()
    job.run(each_batch=lambda batch: first.append(batch.position))
    again = hoodoo.ingest(Files(landing, settle_seconds=0), table, name="job")
    again.reset(first[0], -1)
    assert again.run().rows == 2
    for wrong in ("yesterday", "", '{"source":"files"}', '{"source":"kafka","id":"","offsets":"t,0:1"}', "{"):
        with pytest.raises((OptionError, SourceLost)):
            again.reset(wrong, again.update_report().version)
    assert table.inspect.application("job").version == 1


def test_a_table_that_follows_another_one_is_reset_by_time_or_to_all_of_it(tmp_path: Path, table: hoodoo.Table) -> None:
    copy = hoodoo.create(tmp_path / "copy", COLUMNS, key="id")
    table.upsert([{"id": 1, "v": "a"}])
    job = hoodoo.ingest(TableChanges(table), copy, name="job")
    job.reset("latest", -1)
    table.upsert([{"id": 2, "v": "b"}])
    job.run()
    assert ids(copy) == [2]
    job.reset("earliest", table_version(copy))
    job.run()
    assert ids(copy) == [1, 2]
    with pytest.raises(
        OptionError, match="'somewhere' is not a valid position in a table. Use 'earliest', 'latest', an ISO 8601 time"
    ):
        job.reset("somewhere", table_version(copy))


def table_version(table: hoodoo.Table) -> int:
    return table.inspect.application("job").version


class Numbers(Source):
    """A source of a user's own, without places."""

    name = "numbers"

    def plan(self, position: str, limits: Limits) -> Planned | None:
        start = json.loads(position)["at"] if position else 0
        return Planned((start, 5), json.dumps({"at": 5})) if start < 5 else None

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        start, stop = planned.what  # type: ignore[misc]
        yield Part(pa.Table.from_pylist([{"id": one, "v": ""} for one in range(start, stop)]))

    def lag(self, position: str) -> SourceLag:
        return SourceLag(5 - json.loads(position)["at"], "numbers", 0.0)


def test_a_source_of_a_users_own_is_reset_to_its_positions_only(table: hoodoo.Table) -> None:
    job = hoodoo.ingest(Numbers(), table, name="job")
    with pytest.raises(OptionError, match="only start at a position of an earlier plan"):
        job.reset("earliest", -1)
    with pytest.raises(OptionError, match="Apache Hudi's streamer"):
        Numbers().from_hudi("5")
    job.reset('{"at": 3}', -1)
    assert job.run().rows == 2 and ids(table) == [3, 4]


def test_a_job_begins_where_another_one_has_read_to(landing: Path, table: hoodoo.Table) -> None:
    source = Files(landing, settle_seconds=0)
    hoodoo.ingest(source, table, name="old").run()
    (landing / "new.jsonl").write_text('{"id": 7, "v": "y"}\n')
    job = hoodoo.ingest(source, table, name="new")
    assert job.continue_from("old").version == 0
    assert job.run().rows == 1
    with pytest.raises(OptionError, match="already has a position"):
        job.continue_from("old")
    with pytest.raises(OptionError, match="Application 'nobody' has no stored position"):
        hoodoo.ingest(source, table, name="third").continue_from("nobody")
    with pytest.raises(SourceLost):
        hoodoo.ingest(TableChanges(hoodoo.create(f"{table.path}-other", COLUMNS, key="id")), table).continue_from("old")


def test_a_job_goes_on_from_where_hudis_streamer_stopped_and_tells_it_its_place(
    landing: Path, table: hoodoo.Table
) -> None:
    source, path = Files(landing, settle_seconds=0), Path(table.path)
    os.utime(landing / "0.jsonl", (NINE.timestamp(), NINE.timestamp()))
    times = [file.time_ms for file in source._list_files(2**60)[0]]
    table.upsert([{"id": 100, "v": ""}])
    streamer_commits(path, str(min(times) - 1))
    job = hoodoo.ingest(source, hoodoo.open(path), name="job")
    job.continue_from("hudi-streamer")
    assert job.run().rows == 3
    for wrong in ("soon", "12x"):
        with pytest.raises(OptionError, match="expected a time in ms"):
            source.from_hudi(wrong)
    assert places(path)[-1]


@pytest.mark.parametrize(("place", "number", "named"), [("earliest", -2, "expect_number"), (5, 0, "start")])
def test_a_wrong_argument_of_a_reset_is_named(
    landing: Path, table: hoodoo.Table, place: Any, number: int, named: str
) -> None:
    with pytest.raises(OptionError) as refused:
        hoodoo.ingest(Files(landing), table).reset(place, number)
    assert refused.value.details["option"] == named


def test_an_owner_that_hudis_streamer_has_overtaken_goes_on_after_a_reset(landing: Path, table: hoodoo.Table) -> None:
    source, path = Files(landing, settle_seconds=0, grace_seconds=0), Path(table.path)
    hoodoo.ingest(source, table, name="job").run()
    streamer_commits(path, str(2**45))
    job = hoodoo.ingest(source, hoodoo.open(path), name="job")
    (landing / "new.jsonl").write_text('{"id": 7, "v": "y"}\n')
    with pytest.raises(Overtaken):
        job.run()
    job.reset("earliest", 0)
    assert job.run().rows == 4 and 7 in ids(hoodoo.open(path))
