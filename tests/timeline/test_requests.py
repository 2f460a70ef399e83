"""What an operation asks of a store that lists, request by request, as docs/protocol.md names them. A write on an
object store is as dear as its requests.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from counted_store import CountedStore
from worker_tables import loop_of

from hoodoo.table import Table
from hoodoo.timeline import config, create_table, options
from hoodoo.timeline.environment import SYSTEM

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
LOOK = {("list", "timeline"): 1, ("list", "slots"): 1, ("get", "properties"): 1}
COMMIT = Counter(LOOK) + Counter(LOOK)
COMMIT += Counter({("put", "claims"): 1, ("put", "slots"): 1, ("list", "watermark"): 1, ("list", "markers"): 1})
COMMIT += Counter({("put", "timeline"): 3, ("head", "timeline"): 1})
FILE = Counter({("put", "data"): 1, ("put", "markers"): 1, ("delete", "markers"): 1})


def rows(*ids: int, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)}, SCHEMA)


@pytest.fixture
def table() -> Table:
    """A table with a base and a log, and a handle that has written before."""
    store, chosen = CountedStore(), options.with_options({})
    made = config.new_properties("t", SCHEMA, ("id",), (), "ts", "merge_on_read", chosen)
    create_table.create(store, made, SYSTEM)
    table = Table(store)
    table.upsert(rows(1, 2))
    table.upsert(rows(1, ts=2))
    store.requests.clear()
    return table


def asked(table: Table) -> Counter[tuple[str, str]]:
    store = table.handle.store
    assert isinstance(store, CountedStore)
    return store.requests


def test_a_warm_upsert_of_one_log_asks_for_two_looks_its_instant_its_slot_and_its_file(table: Table) -> None:
    table.upsert(rows(1, ts=3))
    assert asked(table) == COMMIT + FILE


def test_a_write_that_brings_keys_asks_for_its_index_entry_too(table: Table) -> None:
    table.upsert(rows(9))
    writes = Counter({what: n for what, n in asked(table).items() if what[0] != "get" or what[1] == "properties"})
    assert writes == COMMIT + FILE + Counter({("put", "index"): 1})


def test_a_scan_asks_for_two_lists_and_its_files(table: Table) -> None:
    assert table.scan().to_arrow().num_rows == 2
    assert asked(table) == Counter(
        {("list", "timeline"): 1, ("list", "slots"): 1, ("get", "data"): 3}
    )  # of the base, its footer and its columns


def test_lag_asks_only_who_wants_to_know_it(table: Table) -> None:
    result = table.upsert(rows(1, ts=3))
    asked(table).clear()
    assert result.lag and result.lag.log_files_max == 2
    assert asked(table)


def test_opening_asks_for_the_newest_checkpoint_and_the_slots_since(table: Table) -> None:
    slots = table.cursor.seq
    asked(table).clear()
    Table(table.handle.store)
    assert asked(table) == Counter(LOOK) + Counter(
        {
            ("list", "checkpoints"): 1,
            ("list", "watermark"): 1,
            ("get", "slots"): slots,
            ("head", "timeline"): 1,  # is the newest slot published?
            ("get", "timeline"): 1,  # does Hudi's history hold what a crashed adoption left to do?
        }
    )


def test_a_worker_that_finds_nothing_to_do_asks_for_one_list_of_slots(table: Table) -> None:
    """A round was 6 lists and more: two looks, one for the round and one for each service."""
    with loop_of(table, "compact", "cluster", "clean", "archive") as loop:
        while loop.round():
            continue
        loop.round()  # what it published itself
        loop.quiet.set()
        loop._beating.join()  # its heartbeat is counted apart
        asked(table).clear()
        assert not loop.round()
        assert asked(table) == Counter({("list", "slots"): 1})
        table.upsert(rows(1, ts=9))
        asked(table).clear()
        loop.round()
        assert asked(table)["list", "timeline"], "what was written is looked at"


def test_a_heartbeat_asks_whether_the_table_is_there_and_puts_one_file(table: Table) -> None:
    with loop_of(table, "compact") as loop:
        loop.round()
        loop.quiet.set()
        loop._beating.join()
        asked(table).clear()
        loop._beat()
        assert asked(table) == Counter({("head", "properties"): 1, ("put", "heartbeats"): 1})
