"""A bad row is in the quarantine once per occurrence, until somebody drops it, and it can be tried again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.ingestion.job import Job
from hoodoo.sources import Files


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def put(folder: Path, name: str, *rows: Any) -> None:
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))


def job(folder: Path, table: hoodoo.Table, **how: Any) -> Job:
    return hoodoo.ingest(
        Files(folder, settle_seconds=0), table, name="job", on_bad_rows=hoodoo.BadRowLimits(share=1), **how
    )


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32())])
    return hoodoo.create(tmp_path / "t", columns, key="id", checks={"positive": "v > 0"})


@pytest.mark.parametrize("transform", [None, lambda rows: rows])
def test_a_bad_row_that_was_dropped_is_kept_when_it_comes_again(
    landing: Path, table: hoodoo.Table, transform: Any
) -> None:
    """It was in neither place, though the report counted it."""
    put(landing, "a.jsonl", {"id": 1, "v": -5})
    job(landing, table, transform=transform).run()
    assert table.quarantine().drop(table.quarantine().rows()["position"].to_pylist()) == 1
    put(landing, "b.jsonl", {"id": 1, "v": -5})
    report = job(landing, table, transform=transform).run()
    assert (report.bad, table.quarantine().count(), table.quarantine().count(None)) == (1, 1, 2)


def test_equal_bad_rows_of_one_batch_are_kept_once_each(landing: Path, table: hoodoo.Table) -> None:
    for name in ("a", "b"):
        put(landing, f"{name}.jsonl", {"id": 1, "v": -5}, {"id": 1, "v": -5}, {"id": 2, "v": 7})
    assert job(landing, table).run().bad == 4 and table.quarantine().count() == 4


def test_a_write_without_a_version_keeps_a_bad_row_once_and_again_after_it_was_dropped(table: hoodoo.Table) -> None:
    for _ in range(2):
        table.upsert([{"id": 1, "v": -5}], on_bad_rows=hoodoo.BadRowLimits(share=1))
    assert table.quarantine().count() == 1
    for dropped in (1, 2):
        table.quarantine().drop(table.quarantine().rows("new")["position"].to_pylist())
        for _ in range(2):
            table.upsert([{"id": 1, "v": -5}], on_bad_rows=hoodoo.BadRowLimits(share=1))
        assert (table.quarantine().count(), table.quarantine().count(None)) == (1, 1 + dropped)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_text_that_did_not_match_a_column_is_replayed_once_the_column_is_wider(
    landing: Path, tmp_path: Path, name: str
) -> None:
    """Only rows that came as Arrow could be replayed."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("v", pa.int32())]), key="id")
    lines = ["id,v", "1,1", "2,5000000000"] if name.endswith("csv") else []
    put(landing, name, *(lines or [{"id": 1, "v": 1}, {"id": 2, "v": 5_000_000_000}]))
    assert job(landing, table).run().bad == 1
    assert table.quarantine().replay().bad == 1
    table.alter.widen_column("v", "bigint")
    assert table.quarantine().replay().replayed == 1 and table.quarantine().count() == 0
    assert table.get([2])["v"].to_pylist() == [5_000_000_000]


def test_files_whose_types_do_not_match_are_named(landing: Path, table: hoodoo.Table) -> None:
    import pyarrow.parquet as pq

    put(landing, "good.jsonl", {"id": 1, "v": 1})
    pq.write_table(pa.table({"id": [2], "v": ["5"]}), landing / "culprit.parquet")
    with pytest.raises(hoodoo.HoodooError, match=r"File 'culprit\.parquet': "):
        job(landing, table).run()
    (landing / "culprit.parquet").unlink()
    put(landing, "culprit.jsonl", {"id": 2, "v": 1, "z": 5})
    put(landing, "other.jsonl", {"id": 3, "v": 1, "z": "t"})
    with pytest.raises(hoodoo.HoodooError, match=r"of '.*\.jsonl' and of '.*\.jsonl' have different types"):
        job(landing, table, new_columns="add").run()


def test_each_batch_and_the_log_name_left_out_columns_and_files_that_are_skipped(
    landing: Path, table: hoodoo.Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the report named them, which a job that goes on prints when it ends."""
    caplog.set_level(logging.WARNING, "hoodoo.ingest")
    put(landing, "a.jsonl", {"id": 1, "v": 1, "renamed": 5})
    put(landing, "note.txt", "x")
    running, batches = job(landing, table), list[Any]()
    running.run(once=False, poll_seconds=0.01, each_batch=lambda batch: (batches.append(batch), running.stop()))
    assert (batches[0].unknown, batches[0].passed_over) == (("renamed",), ("note.txt",))
    said = [record.getMessage() for record in caplog.records]
    assert any("column left out" in one and "renamed" in one for one in said)
    assert any("passed over" in one and "note.txt" in one for one in said)
