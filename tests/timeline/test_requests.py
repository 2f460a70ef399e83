"""What an operation asks of a store that lists, request by request, as docs/protocol.md names them. A write on an
object store is as dear as its requests.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pytest
from counted_store import CountedStore
from patience import PATIENCE_S
from worker_tables import loop_of

from hoodoo.errors import OptionError, PredicateError
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import SYSTEM, Environment, run_concurrently
from hoodoo.timeline.properties import hoodie_properties, table_options

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
    store, chosen = CountedStore(), table_options.validate_new_options({})
    made = hoodie_properties.create_properties("t", SCHEMA, ("id",), (), ("ts",), "merge_on_read", chosen)
    create_table.create_table(store, made, SYSTEM)
    table = Table(store, Environment(together=store.together))
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


def test_a_write_asks_once_for_each_index_entry_of_its_partitions_and_for_all_of_them_together() -> None:
    """Each was asked for twice, one after the other, and twice again by the task that rewrote its file."""
    store, parted = CountedStore(), SCHEMA.append(pa.field("part", pa.string()))
    made = hoodie_properties.create_properties(
        "t", parted, ("id",), ("part",), ("ts",), "copy_on_write", table_options.validate_new_options({})
    )
    create_table.create_table(store, made, SYSTEM)

    def batch(first: int) -> pa.Table:
        return pa.table({"id": range(first, first + 20), "ts": [1] * 20, "part": ["a", "b", "c", "d"] * 5}, parted)

    Table(store).upsert(batch(0))
    waits = list[int]()

    def together(works: Sequence[Callable[[], object]]) -> None:
        before = store.requests["get", "index"]
        store.together(works)
        if (asked_for := store.requests["get", "index"] - before) > 0:
            waits.append(asked_for)

    table = Table(store, Environment(together=together))
    store.requests.clear()
    assert table.upsert(batch(8)).inserted == 8
    assert store.requests["get", "index"] == 8 and waits == [8], "each of the four is opened and read"


def test_a_scan_asks_for_two_lists_and_its_files(table: Table) -> None:
    assert table.scan().to_arrow().num_rows == 2
    assert asked(table) == Counter(
        {("list", "timeline"): 1, ("list", "slots"): 1, ("get", "data"): 3}
    )  # of the base, its footer and its columns


def test_what_may_have_changed_since_is_told_after_two_lists_and_what_never_changes_without_any(table: Table) -> None:
    assert (table.name, table.type, table.key, table.partition_by, table.order_by) and repr(table)
    assert not asked(table)
    for tell in (lambda: table.schema, lambda: table.options, lambda: table.checks, table.savepoints.list):
        asked(table).clear()
        tell()
        assert asked(table) == Counter({("list", "timeline"): 1, ("list", "slots"): 1})


def test_options_and_checks_that_are_refused_begin_nothing(table: Table) -> None:
    with pytest.raises(PredicateError):
        table.set_checks({"c": "no_such_column > 0"})
    with pytest.raises(OptionError):
        table.set_options(partition_ttl_hours=1)  # of a table without partitions
    assert not any(kind in ("put", "delete") for kind, _ in asked(table))


def test_a_change_of_checks_asks_for_two_looks_its_instant_and_its_slot(table: Table) -> None:
    table.set_checks({"c": "ts > 0"})
    assert [asked(table)["put", what] for what in ("claims", "slots", "properties")] == [1, 1, 1]
    assert asked(table)["list", "slots"] == 4, "two of the change, one of its publication, one of what came of it"


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
            ("get", "timeline"): 1,  # does Hudi's history hold what a crashed adoption left to do?
        }
    )


def test_a_worker_that_finds_nothing_to_do_asks_for_one_list_of_slots(table: Table) -> None:
    """A round was 6 lists and more: two looks, one for the round and one for each service."""
    with loop_of(table, "compact", "cluster", "clean", "archive") as loop:
        while loop.run_due_services():
            continue
        loop.run_due_services()  # what it published itself
        loop.quiet.set()
        loop._beating.join()  # its heartbeat is counted apart
        asked(table).clear()
        assert not loop.run_due_services()
        assert asked(table) == Counter({("list", "slots"): 1})
        table.upsert(rows(1, ts=9))
        asked(table).clear()
        loop.run_due_services()
        assert asked(table)["list", "timeline"], "what was written is looked at"


def test_a_heartbeat_asks_whether_the_table_is_there_and_puts_one_file(table: Table) -> None:
    with loop_of(table, "compact") as loop:
        loop.run_due_services()
        loop.quiet.set()
        loop._beating.join()
        asked(table).clear()
        loop._send_heartbeat()
        assert asked(table) == Counter({("head", "properties"): 1, ("put", "heartbeats"): 1})


def chain(table: Table, operation: Callable[[], object]) -> int:
    """How many requests of the operation wait for each other."""
    store = table.handle.store
    assert isinstance(store, CountedStore)
    store.chain = 0
    operation()
    return store.chain


def test_the_longest_chain_of_requests_is_shorter_than_their_number(table: Table) -> None:
    """On an object store an operation takes as long as its longest chain; each of these waited for all others."""
    assert chain(table, lambda: table.upsert(rows(1, ts=3))) == 11
    assert chain(table, lambda: table.handle.look()) == 1
    slots = 30
    for ts in range(slots):
        table.upsert(rows(1, ts=ts))
    assert chain(table, lambda: Table(table.handle.store, table.handle.environment)) == 5


def test_what_is_asked_together_is_asked_by_threads_and_the_first_error_in_order_is_raised() -> None:
    meeting = threading.Barrier(5, timeout=PATIENCE_S)
    done: list[int] = []

    def work(number: int) -> None:
        meeting.wait()  # each waits for all others
        if number in (1, 3):
            raise KeyError(number)
        done.append(number)

    with pytest.raises(KeyError, match="1"):
        run_concurrently([partial(work, number) for number in range(5)])
    assert sorted(done) == [0, 2, 4], "the others end before"
    run_concurrently([])


def test_what_our_writers_publish_between_two_requests_of_a_look_is_not_taken_for_another_engines(table: Table) -> None:
    """The list of Hudi's timeline may be answered after the look for slots; each such look rebased its write."""
    racing: list[int] = []

    def together(works: Sequence[Callable[[], object]]) -> None:
        for work in reversed(works):
            work()
            if racing and len(works) == 3:
                table.upsert(rows(racing.pop()))

    slow = Table(table.handle.store, Environment(together=together))
    before = slow.handle.timeline.look()
    racing += [7, 8, 9]
    state = slow.handle.timeline.look()
    assert not racing and state.external == ()
    assert state.view.seq == before.view.seq + 3
    racing += [10]
    assert slow.upsert(rows(1, ts=99)).retries == 0
