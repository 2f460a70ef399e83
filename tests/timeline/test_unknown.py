"""A commit whose fate the store did not tell is neither done nor failed: resolve() settles it, for good (hazards H10,
H11).
"""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from memory_store import MemoryStore

import hoodoo
from hoodoo.errors import CallError, StoreUnavailable
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.properties import hoodie_properties, table_options

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


class Deaf(MemoryStore):
    """From `when` on the first put of a slot ends without an answer, and so does every read of it, until `hears` is
    set. lands: was it carried out?
    """

    def __init__(self, data: dict[str, bytes], lands: bool) -> None:
        super().__init__(data)
        self.lands, self.hears, self.late = lands, False, list[tuple[str, bytes]]()

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(layout.SLOTS) and not self.hears:
            if self.lands and key not in self.data:
                super().put_if_absent(key, data, durable)
            self.late.append((key, bytes(data)))
            raise StoreUnavailable("no answer", key=key)
        super().put_if_absent(key, data, durable)

    def get(self, key: str) -> bytes:
        if self.late and key == self.late[0][0] and not self.hears:
            raise StoreUnavailable("no answer", key=key)
        return super().get(key)


def rows(ts: int) -> pa.Table:
    return pa.table({"id": [1], "ts": [ts]}, SCHEMA)


def unknown(lands: bool) -> tuple[Deaf, Table, hoodoo.CommitUnknown]:
    seconds = iter(range(10_000))
    store = MemoryStore()
    create_table.create_table(
        store,
        hoodie_properties.create_properties(
            "t",
            SCHEMA,
            ("id",),
            (),
            ("ts",),
            "merge_on_read",
            table_options.validate_new_options({"commit_timeout_seconds": 5}),
        ),
        Environment(),
    )
    Table(store).upsert(rows(1))
    deaf = Deaf(store.data, lands)
    table = Table(deaf, Environment(sleep=lambda _: None, elapsed=lambda: float(next(seconds))))
    with pytest.raises(hoodoo.CommitUnknown) as caught:
        table.upsert(rows(2))
    return deaf, table, caught.value


@pytest.mark.parametrize("lands", [True, False])
def test_resolve_says_whether_the_commit_is_there_and_what_it_says_stays_true(lands: bool) -> None:
    store, table, problem = unknown(lands)
    with pytest.raises(hoodoo.TryAgainError):
        problem.resolve()
    store.hears = True
    assert problem.resolve() is lands
    assert problem.resolve() is lands
    assert Table(store).maintenance.resolve(problem.details["instant"]) is lands
    for key, data in store.late:  # the network delivers what it kept
        with pytest.raises(FileExistsError):
            MemoryStore.put_if_absent(store, key, data)
    assert Table(store).scan().to_arrow()["ts"].to_pylist() == [2 if lands else 1]
    table.upsert(rows(3))
    fresh = Table(store)
    assert fresh.scan().to_arrow()["ts"].to_pylist() == [3]
    assert fresh.verify().problems == []
    assert [entry.state for entry in fresh.inspect.timeline() if entry.state in ("requested", "inflight")] == []


def test_nothing_of_a_commit_that_may_be_there_is_deleted() -> None:
    store, _, problem = unknown(lands=True)
    store.hears = True
    assert Table(store).scan().to_arrow()["ts"].to_pylist() == [2]
    assert problem.details["slot"] == 3 and len(problem.details["nonce"]) == 32


def test_the_error_can_cross_a_process_and_then_names_the_way_to_ask() -> None:
    store, _, problem = unknown(lands=True)
    crossed = pickle.loads(pickle.dumps(problem))
    assert (crossed.code, crossed.details) == ("COMMIT_UNKNOWN", problem.details)
    with pytest.raises(CallError, match=r"resolve\(instant\)"):
        crossed.resolve()
    store.hears = True
    assert Table(store).maintenance.resolve(crossed.details["instant"]) is True


def test_a_transaction_that_is_tried_again_after_an_unknown_commit_is_committed_once() -> None:
    for lands in (True, False):
        seconds = iter(range(10_000))
        store = MemoryStore()
        properties = hoodie_properties.create_properties(
            "t",
            SCHEMA,
            ("id",),
            (),
            ("ts",),
            "merge_on_read",
            table_options.validate_new_options({"commit_timeout_seconds": 5}),
        )
        create_table.create_table(store, properties, Environment())
        deaf = Deaf(store.data, lands)
        table = Table(deaf, Environment(sleep=lambda _: None, elapsed=lambda seconds=seconds: float(next(seconds))))  # type: ignore[misc]
        with pytest.raises(hoodoo.CommitUnknown):
            table.upsert(rows(2), transaction=("app", 7))
        deaf.hears = True
        assert table.upsert(rows(2), transaction=("app", 7)).skipped is lands
        assert table.scan().to_arrow()["ts"].to_pylist() == [2]
        assert sum(slot.transaction == ("app", 7) for slot in table.handle.history.slots(0, table.cursor.seq)) == 1
