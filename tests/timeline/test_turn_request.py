"""No writer starves: one whose requests are slow gets its turn beside one that is always first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from counted_store import CountedStore
from figures import record
from virtual_time import FarStore, World

from hoodoo.errors import StoreUnavailable
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.commits import turn_request
from hoodoo.timeline.environment import SYSTEM, Environment
from hoodoo.timeline.layout import SLOTS, TURN_REQUESTS
from hoodoo.timeline.properties import hoodie_properties, table_options

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
PLAIN = table_options.validate_new_options({"clean_every": None, "compact_after_logs": None})


def rows(city: str, *ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": [city] * len(ids), "ts": [1] * len(ids)}, SCHEMA)


def properties() -> dict[str, str]:
    return hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), "merge_on_read", PLAIN)


# ---- in virtual time
def world_with_a_table() -> World:
    world = World()
    create_table.create_table(world.store, properties(), world.environment("founder"))
    world.written_ms = dict.fromkeys(world.store.data, int(world.now_s * 1000))
    return world


class Writer:
    """A process that upserts to a partition of its own, its requests taking `request_s`, pausing between commits.
    ended_s: when each was told of.
    """

    def __init__(self, world: World, name: str, request_s: float, pause_seconds: float = 0.0) -> None:
        self.world, self.name, self.request_s, self.pause_seconds = world, name, request_s, pause_seconds
        self.ended_s: list[float] = []

    def __call__(self) -> None:
        began = self.world.now_s
        table = Table(FarStore(self.world, self.request_s), self.world.environment(self.name))
        while True:
            table.upsert(rows(self.name, len(self.ended_s)))
            self.ended_s.append(self.world.now_s - began)
            self.world.sleep(self.pause_seconds)


def slow(world: World, name: str = "slow") -> Writer:
    return Writer(world, name, 0.5)


def fast(world: World) -> Writer:
    """Commits every 0.3 s."""
    return Writer(world, "fast", 0.003, 0.27)


def race(world: World, *writers: Writer, until: Callable[[], bool]) -> None:
    for writer in writers:
        world.start(writer)
    world.run(195, until)


def turn_requests(world: World) -> list[str]:
    return [key for key in world.store.data if key.startswith(TURN_REQUESTS)]


def test_a_writer_whose_requests_take_half_a_second_commits_beside_one_that_commits_every_third_of_a_second() -> None:
    """It looked, and by the time its slot reached the store the fast one had taken it: no commit in 195 s."""
    world = world_with_a_table()
    one, other = slow(world), fast(world)
    race(world, one, other, until=lambda: len(one.ended_s) == 2)
    assert len(one.ended_s) == 2 and one.ended_s[1] < 60
    assert len(other.ended_s) > 2 * one.ended_s[1], "the fast one goes on"
    assert not turn_requests(world)
    record("plea", first_seconds=round(one.ended_s[0], 1), second_s=round(one.ended_s[1], 1), beside=len(other.ended_s))


@pytest.mark.deep
def test_without_pleas_such_a_writer_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the world of the test above is one in which turn requests are needed."""
    monkeypatch.setattr(turn_request.FairnessPauses, "wait_for_slower_writers", lambda self, state, look: state)
    world = world_with_a_table()
    one = slow(world)
    race(world, one, fast(world), until=lambda: bool(one.ended_s))
    assert not one.ended_s


def test_two_slow_writers_that_both_plead_do_not_wait_for_each_other() -> None:
    world = world_with_a_table()
    both = slow(world, "a"), slow(world, "b")
    race(world, *both, fast(world), until=lambda: all(one.ended_s for one in both))
    assert all(one.ended_s and one.ended_s[0] < 60 for one in both)


def test_a_dead_writers_plea_costs_others_every_second_commit_a_pause_until_it_is_old_and_then_nothing() -> None:
    world = world_with_a_table()
    world.store.put(TURN_REQUESTS + "dead", b"")
    world.written_ms[TURN_REQUESTS + "dead"] = int(world.now_s * 1000)
    writer = fast(world)
    world.start(writer)
    world.run(100)
    gaps = [after - before for before, after in itertools.pairwise(writer.ended_s)]
    paused = [number for number, gap in enumerate(gaps) if gap > 1]
    assert len(paused) > 10 and max(gaps) < 3.5
    assert {after - before for before, after in itertools.pairwise(paused)} == {2}, "never two in a row"
    assert writer.ended_s[paused[-1]] < 61 and not turn_requests(world), "whoever finds it old deletes it"


# ---- request by request
class Racing(CountedStore):
    """A store in which `others` take a slot each right before the owner of this handle asks for it."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__()
        self.data, self.others, self.refuses_pleas = data, list[Callable[[], object]](), False

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str:
        if key.startswith(SLOTS) and self.others:
            self.others.pop()()
        return super().put_if_absent(key, data, durable)

    def put(self, key: str, data: Any) -> None:
        super().put(key, data)
        if key.startswith(TURN_REQUESTS) and self.refuses_pleas:
            raise StoreUnavailable("no answer", key=key)


def loser(races: int, seconds: float = 2) -> tuple[Table, Racing]:
    """A table whose next commit loses that many races, so many seconds each, to a writer of another partition."""
    store = Racing({})
    create_table.create_table(store, properties(), SYSTEM)
    other = Table(Racing(store.data))
    passed = itertools.count(0, seconds)
    table = Table(store, Environment(together=store.together, elapsed=lambda: next(passed)))
    table.upsert(rows("a", 1))
    store.others = [lambda number=number: other.upsert(rows("b", 100 + number)) for number in range(races)]
    store.requests.clear()
    return table, store


@pytest.mark.parametrize(("races", "made"), [(2, 0), (3, 1), (5, 1), (6, 2)])
def test_a_writer_pleads_after_every_third_lost_race_and_takes_its_plea_away(races: int, made: int) -> None:
    table, store = loser(races)
    assert table.upsert(rows("a", 2)).retries == 0
    assert store.requests["put", "turn_requests"] == made
    assert store.requests["delete", "turn_requests"] == bool(made)
    assert not [key for key in store.data if key.startswith(TURN_REQUESTS)]


def test_a_writer_that_loses_races_as_quickly_as_others_win_them_does_not_plead() -> None:
    """Thirty of them made each other pause: 8.6 commits a second instead of 10.4."""
    table, store = loser(9, seconds=0.05)
    table.upsert(rows("a", 2))
    assert store.requests["put", "turn_requests"] == 0


def test_a_plea_that_nobody_hears_of_harms_no_commit() -> None:
    table, store = loser(4)
    store.refuses_pleas = True
    assert table.upsert(rows("a", 2)).inserted == 1
    assert not [key for key in store.data if key.startswith(TURN_REQUESTS)], "it may have arrived all the same"


def test_a_plea_is_taken_away_when_its_writer_rebases_or_fails() -> None:
    table, store = loser(3)
    table.upsert(rows("a", 7))
    rival = Table(Racing(store.data))
    store.others = [lambda number=number: rival.upsert(rows("b", 200 + number)) for number in range(3)]
    store.others.insert(0, lambda: rival.upsert(rows("a", 7)))
    store.requests.clear()
    assert table.upsert(rows("a", 7)).retries == 1
    assert store.requests["put", "turn_requests"] == 1
    assert not [key for key in store.data if key.startswith(TURN_REQUESTS)]


def test_pleas_stand_in_no_ones_way(tmp_path: Any) -> None:
    """Readers, verify and new processes take them for no slot; a sweep takes old ones away."""
    table, store = loser(0)
    store.put(TURN_REQUESTS + "somebody", b"")
    again = Table(store)
    assert again.scan().to_arrow().num_rows == 1
    assert again.verify().problems == []
    assert again.maintenance.sweep(older_than_hours=1).kinds == {"turn_requests": 1}
    assert not [key for key in store.data if key.startswith(TURN_REQUESTS)]


def test_what_stands_after_a_gap_is_found_by_verify_beside_a_plea() -> None:
    table, store = loser(0)
    store.put(TURN_REQUESTS + "somebody", b"")
    head = table.cursor.seq
    store.data[f"{SLOTS}{head + 2:020d}"] = b"planted"
    assert [problem.file for problem in table.verify().problems] == [f"{SLOTS}{head + 1:020d}"]
