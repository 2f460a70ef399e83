"""Clocks may step, freeze, differ by hours or be in another century: order, slices and increments follow the slots
(F1).
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from figures import record
from memory_store import MemoryStore
from tiers import sized

import hoodoo
from hoodoo.table import Table
from hoodoo.timeline import create_table
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.properties import hoodie_properties, table_options

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
HOUR, NOW = 3_600_000, 1_790_000_000_000
YEAR_2000, YEAR_2200 = 946_684_800_000, 7_258_118_400_000


class Odd:
    """A clock of one kind: frozen, stepping two hours back and forth, hours off, or in another century."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.kind = rng, rng.choice(["frozen", "steps", "off", "2000", "2200", "right"])
        self.ms = {"2000": YEAR_2000, "2200": YEAR_2200}.get(
            self.kind, NOW + (rng.randint(-2 * HOUR, 2 * HOUR) if self.kind == "off" else 0)
        )

    def __call__(self) -> int:
        if self.kind == "steps" and self.rng.random() < 0.2:
            self.ms += self.rng.choice([-2 * HOUR, 2 * HOUR, -1000, 1000])
        elif self.kind != "frozen":
            self.ms += self.rng.randint(0, 50)
        return self.ms


def rows(ids: list[int], ts: int) -> pa.Table:
    return pa.table({"id": ids, "ts": [ts] * len(ids)}, SCHEMA)


def schedule(seed: int) -> int:
    rng = random.Random(seed)
    store = MemoryStore()
    kind = rng.choice(["merge_on_read", "copy_on_write"])
    chosen = table_options.validate_new_options(
        {"compact_after_logs": None, "clean_every": None, "checkpoint_every": rng.randint(1, 5)}
    )
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), (), ("ts",), kind, chosen),
        Environment(now_ms=Odd(rng)),
    )
    writers = [Table(store, Environment(now_ms=Odd(rng), sleep=lambda seconds: None)) for _ in range(rng.randint(2, 4))]
    model: dict[int, int] = {}
    snapshots, changed = {1: {}}, dict[int, set[int]]()
    for turn in range(rng.randint(4, 9)):
        table, ids = rng.choice(writers), rng.sample(range(6), rng.randint(1, 4))
        action = rng.choice(["upsert", "upsert", "upsert", "delete", "compact"])
        if action == "upsert":
            changed[table.upsert(rows(ids, turn)).cursor.seq] = set(ids)
            model.update(dict.fromkeys(ids, turn))
        elif action == "delete":
            table.delete(rows(ids, 0))
            model = {key: ts for key, ts in model.items() if key not in ids}
        else:
            table.compact()
        head = table.cursor.seq
        for seq in range(max(snapshots) + 1, head + 1):
            snapshots[seq] = dict(model)
    fresh = Table(store, Environment(now_ms=Odd(rng)))
    times = [fresh.handle.history.slot(seq).completed_at for seq in range(1, fresh.cursor.seq + 1)]
    assert times == sorted(set(times))
    for seq, expected in snapshots.items():
        assert {
            row["id"]: row["ts"]
            for row in fresh.scan(as_of=hoodoo.Cursor(fresh.cursor.table, seq)).to_arrow().to_pylist()
        } == expected, (seed, seq)
    since = rng.randrange(1, fresh.cursor.seq + 1)
    later = set().union(*(ids for seq, ids in changed.items() if seq > since), set())
    found = fresh.incremental(since=hoodoo.Cursor(fresh.cursor.table, since)).to_arrow()["id"].to_pylist()
    assert sorted(found) == sorted(later & model.keys()), (seed, since)
    assert fresh.verify().problems == [], seed
    return len(times)


@pytest.mark.both
@pytest.mark.parametrize("first", range(0, sized(80, 200), 40))
def test_schedules_of_odd_clocks_change_no_answer(first: int) -> None:
    commits = sum(schedule(seed) for seed in range(first, first + 40))
    record(f"F1 from {first}", schedules=40, commits=commits)
    assert commits > 160


@pytest.mark.parametrize(("minutes", "refused"), [(14, False), (-14, False), (16, True), (-16, True), (120, True)])
def test_a_clock_that_is_a_quarter_of_an_hour_off_the_stores_is_refused_before_anything_is_written(
    minutes: int, refused: bool
) -> None:
    store = MemoryStore()
    moment: list[Any] = [NOW]
    store.clock_ms = lambda: NOW  # type: ignore[method-assign]  # as S3 says it in the Date of its answers
    chosen = table_options.validate_new_options({})
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), (), ("ts",), "merge_on_read", chosen),
        Environment(now_ms=lambda: NOW),
    )
    table = Table(store, Environment(now_ms=lambda: moment[0]))
    moment[0] = NOW + minutes * 60_000
    before = dict(store.data)
    if refused:
        with pytest.raises(hoodoo.StoreRefused, match="clock"):
            table.upsert(rows([1], 1))
        assert store.data == before
    else:
        assert table.upsert(rows([1], 1)).inserted == 1
