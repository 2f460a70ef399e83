"""What a job says of itself: to its caller after each commit, to Prometheus, and in the list of applications."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from whole_numbers import SCHEMA, Numbers, row

import hoodoo
from hoodoo.ingestion.report import BatchReport
from hoodoo.sources import BAD, Part, Planned, SourceLag


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts", checks={"early": "ts < 100"}
    )


class Shared(Numbers):
    """Even numbers wait in partition 0 and odd ones in partition 1; each tenth is no row, or not one of the table."""

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        for part in super().read(planned, columns, unknown):
            bad = {"place": "0:0", "reason": "json", "detail": "no JSON", "payload": b"{"}
            late = pa.Table.from_pylist([row(7, ts=100), row(8, ts=101)], SCHEMA)
            yield Part(pa.concat_tables([part.rows, late]), pa.Table.from_pylist([bad], BAD))

    def lag(self, position: str) -> SourceLag:
        odd = (waiting := super().lag(position).waiting) // 2
        return SourceLag(waiting, "numbers", 0.0, {"0": waiting - odd, "1": odd})


def test_what_each_batch_brought_is_told_after_its_commit(table: hoodoo.Table) -> None:
    told = list[BatchReport]()

    def tell(batch: BatchReport) -> None:
        assert hoodoo.open(table.path).inspect.application("numbers").version == batch.version
        told.append(batch)

    report = hoodoo.ingest(Numbers(25), table).run(each_batch=tell)
    assert [(one.version, one.position, one.rows) for one in told] == [(0, "10", 10), (1, "20", 10), (2, "25", 5)]
    for phase in ("plan", "read", "transform", "write"):
        assert sum(one.seconds[phase] for one in told) == pytest.approx(report.seconds[phase])


def test_metrics_say_what_a_job_did_and_what_waits(table: hoodoo.Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "hoodoo.ingest")
    texts = list[str]()

    def look(batch: BatchReport) -> None:
        [where] = [one.hoodoo["metrics"] for one in caplog.records if one.getMessage().startswith("event=metrics")]  # type: ignore[attr-defined]
        with urllib.request.urlopen(where) as answer:
            texts.append(answer.read().decode())

    hoodoo.ingest(Shared(25), table, name="job", on_bad_rows=hoodoo.BadRowLimits(share=1.0)).run(
        each_batch=look, metrics_port=0
    )
    labels = f'application="job",table="{table.path}"'
    assert f"hoodoo_ingest_rows_total{{{labels}}} 13.0" in texts[0]
    assert f"hoodoo_ingest_rows_total{{{labels}}} 34.0" in texts[-1]
    assert f"hoodoo_ingest_batches_total{{{labels}}} 3.0" in texts[-1]
    assert f"hoodoo_ingest_up{{{labels}}} 1.0" in texts[-1]
    waiting = 'hoodoo_ingest_lag{{application="job",partition="{}",table="{}",unit="numbers"}} {}'
    assert waiting.format(0, table.path, 8.0) in texts[0] and waiting.format(1, table.path, 7.0) in texts[0]
    bad = 'hoodoo_ingest_bad_rows_total{{application="job",reason="{}",table="{}"}} {}'
    assert bad.format("json", table.path, 3.0) in texts[-1] and bad.format("check", table.path, 6.0) in texts[-1]
    assert f'hoodoo_ingest_seconds_total{{application="job",phase="write",table="{table.path}"}}' in texts[-1]


def test_the_applications_of_a_table_are_listed(table: hoodoo.Table) -> None:
    assert table.inspect.applications() == []
    hoodoo.ingest(Numbers(10), table, name="b").run()
    table.upsert([row(70)], transaction=("a", 3))
    assert [(one.name, one.version, one.position) for one in table.inspect.applications()] == [
        ("a", 3, ""),
        ("b", 0, "10"),
    ]


def test_bad_rows_are_counted_by_what_is_wrong_with_them(table: hoodoo.Table) -> None:
    told = list[BatchReport]()
    report = hoodoo.ingest(Shared(20), table, on_bad_rows=hoodoo.BadRowLimits(share=1.0)).run(each_batch=told.append)
    assert [one.reasons for one in told] == [{"json": 1, "check": 2}] * 2
    assert (report.bad, report.reasons) == (6, {"json": 2, "check": 4})
    result = table.upsert([row(1, ts=200), row(2)], on_bad_rows="quarantine")
    assert (result.quarantined, result.reasons) == (1, {"check": 1})
