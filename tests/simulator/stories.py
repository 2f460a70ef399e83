"""Histories of a few steps, written by hand, of planted bugs that random ones come upon too seldom.

Each raises where its bug is planted, and does not where it is not.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from faulty_store import FaultyStore

import hoodoo
from hoodoo.sources import Files
from hoodoo.table import Table
from hoodoo.timeline.environment import Environment

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def rows(*triples: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def ids(table: Table) -> list[str]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def not_to_hear_whether_a_stored_slot_counts_is_no_failure(folder: Path) -> None:
    table = hoodoo.create(folder / "t", SCHEMA, key="id", partition_by="city", order_by="ts")
    store = FaultyStore(table.path)
    mine = Table(store)
    store.counted = ("put_if_absent", "list")

    def no_answer_after_the_slot(number: int, operation: str, key: str) -> str | None:
        last = store.log[-2][1] if len(store.log) > 1 else ""
        return "lost" if operation == "list" and "/watermark/slots-" in key and "/commits/" in last else None

    store.fault = no_answer_after_the_slot
    assert mine.upsert(rows(("a", "p", 1))).instant
    assert ids(table) == ["a"]


def archived_up_to_the_last_slot(tmp_path: Path) -> tuple[Table, str, str]:
    """A table whose oldest slot is also its newest; the instant of that slot, and one of a writer that died before the
    archived slots.
    """
    now = [3_000_000_000_000]

    def tick() -> int:
        now[0] += 1_000
        return now[0]

    clock = Environment(now_ms=tick)
    hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", type="copy_on_write", retain_hours=0, retain_commits=1, clean_every=None
    )
    table = Table(FaultyStore(str(tmp_path / "t")), clock)
    store = FaultyStore(table.path)
    dying = Table(store, clock)
    store.fault = lambda number, operation, key: "die" if operation == "put_if_absent" and "/commits/" in key else None
    with pytest.raises(BaseException):  # noqa: B017 - the process ends here
        dying.upsert(rows(("dead", "p", 1)))
    dead = table.inspect.timeline()[-1].instant
    for number in range(3):
        table.upsert(rows(("a", "p", number)))
        now[0] += 2 * 86_400_000
    last = table.upsert(rows(("a", "p", 9)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    now[0] += 40 * 86_400_000
    table.maintenance.archive(older_than_hours=0, keep_instants=1_000_000)
    assert table.handle.history.oldest_slot() == last.cursor.seq
    return table, last.instant, dead


def a_commit_in_the_oldest_slot_there_is_cannot_be_rolled_back(folder: Path) -> None:
    """The search for slots newer than the instant began after the oldest slot, although that one was newer."""
    table, committed, _ = archived_up_to_the_last_slot(folder)
    with pytest.raises(hoodoo.AlreadyCommitted):
        table.maintenance.rollback(committed)
    assert ids(table) == ["a"]


def what_is_bad_is_kept_before_the_commit_that_moves_past_it(folder: Path) -> None:
    """Else a process that dies right after its commit leaves a line that is neither a row nor in the quarantine."""
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.jsonl").write_text('{"id": "a"}\nbroken\n')
    source = Files(folder / "in", settle_seconds=0)
    table = hoodoo.create(folder / "t", {"id": "string"}, key="id")
    store = FaultyStore(table.path)
    store.fault = lambda number, operation, key: (
        "die after" if operation == "put_if_absent" and "/commits/" in key else None
    )
    with pytest.raises(BaseException):  # noqa: B017 - the process ends here
        hoodoo.ingest(source, Table(store), on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    assert store.dead
    hoodoo.ingest(source, table, on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    assert (ids(table), table.quarantine().count("new")) == (["a"], 1)
