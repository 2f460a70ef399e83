"""Which version of a key wins: the policy against a dictionary, whichever way changes and stored rows meet."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.merge.kernels import KeyedChanges, concat_changes
from hoodoo.merge.policy import MergePolicy

KEY = "_hoodie_record_key"
SCHEMA = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("seq", pa.int32()), ("v", pa.int64())])
POLICIES = {
    "event time": MergePolicy(("ts",)),
    "two columns": MergePolicy(("ts", "seq")),
    "commit time": MergePolicy(()),
}
ORDERED = [name for name, policy in POLICIES.items() if policy.order_by]
Version = tuple[str, int, int, int, str]  # key, ordering values, value, 'row' | 'ordered delete' | 'delete'
Stored = dict[str, tuple[int, int, int]]


def changes(versions: Sequence[Version]) -> KeyedChanges:
    orders = [(None, None) if kind == "delete" else (ts, seq) for _, ts, seq, _, kind in versions]
    rows = [{KEY: one[0], "ts": ts, "seq": seq, "v": one[3]} for one, (ts, seq) in zip(versions, orders, strict=True)]
    delete = np.array([kind != "row" for *_, kind in versions], bool)
    unconditional = np.array([kind == "delete" for *_, kind in versions], bool)
    return KeyedChanges(pa.Table.from_pylist(rows, schema=SCHEMA), delete, unconditional)


def table(stored: Stored) -> pa.Table:
    rows = [{KEY: key, "ts": ts, "seq": seq, "v": v} for key, (ts, seq, v) in stored.items()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def dictionary(rows: pa.Table) -> Stored:
    found = {row[KEY]: (row["ts"], row["seq"], row["v"]) for row in rows.to_pylist()}
    assert len(found) == len(rows), "a key stands twice"
    return found


def stored_of(rng: random.Random, keys: Iterable[str]) -> Stored:
    return {key: (rng.randrange(4), rng.randrange(3), rng.randrange(1000)) for key in keys}


def versions_of(rng: random.Random, count: int, policy: MergePolicy) -> list[Version]:
    """Random changes; without an ordering column every delete is unconditional."""
    kinds = ["row", "row", "row", "delete", "ordered delete"] if policy.order_by else ["row", "row", "delete"]
    return [
        (rng.choice("abcdef"), rng.randrange(4), rng.randrange(3), rng.randrange(1000), rng.choice(kinds))
        for _ in range(count)
    ]


def one_by_one(stored: Stored, versions: Iterable[Version], policy: MergePolicy) -> Stored:
    """The rule, said once more: each change meets what is there."""
    found, count = dict(stored), len(policy.order_by)
    for key, ts, seq, v, kind in versions:
        if kind == "delete":
            found.pop(key, None)
        elif key not in found or (ts, seq)[:count] >= found[key][:count]:
            found.pop(key, None)
            if kind == "row":
                found[key] = (ts, seq, v)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_changes_applied_one_by_one_are_what_the_rule_says(name: str) -> None:
    policy, rng = POLICIES[name], random.Random(1)
    for _ in range(150):
        stored = stored_of(rng, rng.sample("abcdef", 3))
        versions = versions_of(rng, 6, policy)
        rows = table(stored)
        for version in versions:
            rows = policy.apply(rows, changes([version])).rows
        assert dictionary(rows) == one_by_one(stored, versions, policy)


@pytest.mark.parametrize("name", POLICIES)
def test_a_base_that_goes_by_in_batches_ends_as_one_that_is_there_whole(name: str) -> None:
    policy, rng = POLICIES[name], random.Random(2)
    for _ in range(150):
        stored = stored_of(rng, "abcdef")
        parts = [changes(versions_of(rng, rng.randrange(1, 6), policy)) for _ in range(3)]
        whole = policy.applied(table(stored), policy.one_per_key(parts))
        held, base = policy.start_streaming_merge(parts), table(stored)
        kept = [batch.filter(pa.array(held.mask_of_kept_rows(batch))) for batch in (base.slice(0, 2), base.slice(2))]
        live = held.changes.rows.filter(pa.array(held.live())).select(SCHEMA.names)
        assert dictionary(pa.concat_tables([*kept, live])) == dictionary(whole)


@pytest.mark.parametrize("name", POLICIES)
def test_merging_rows_first_among_themselves_in_any_groups_changes_nothing(name: str) -> None:
    policy, rng = POLICIES[name], random.Random(3)
    for _ in range(150):
        stored = stored_of(rng, "abc")
        versions = [v for v in versions_of(rng, 9, policy) if v[4] == "row"]
        cut = sorted(rng.sample(range(len(versions) + 1), 2)) if len(versions) > 1 else [0, 0]
        lots = [versions[: cut[0]], versions[cut[0] : cut[1]], versions[cut[1] :]]
        merged = [policy.collapse(changes(lot)) for lot in lots if lot]
        at_once = policy.applied(table(stored), policy.one_per_key([changes(versions)] if versions else []))
        grouped = policy.applied(table(stored), [policy.collapse(concat_changes(merged))] if merged else [])
        assert dictionary(grouped) == dictionary(at_once) == one_by_one(stored, versions, policy)


@pytest.mark.parametrize("name", ORDERED)
def test_of_what_is_said_of_bounds_every_change_wins(name: str) -> None:
    policy, rng = POLICIES[name], random.Random(4)
    said = 0
    for _ in range(600):
        stored = {key: (rng.randrange(6), rng.randrange(3), 0) for key in rng.sample("abcdef", 3)}
        versions = [(key, rng.randrange(6), rng.randrange(3), 1, "row") for key in rng.sample("abcdef", 2)]
        least, greatest = min(ts for _, ts, *_ in versions), max(ts for ts, *_ in stored.values())
        won = policy.apply(table(stored), changes(versions)).won.all()
        if policy.changes_always_win([least], [greatest]):
            said += 1
            assert won
    assert said > 20


def test_equal_bounds_are_enough_for_one_column_and_leave_several_open() -> None:
    assert POLICIES["event time"].changes_always_win([2], [2])
    assert not POLICIES["two columns"].changes_always_win([2], [2])
    assert POLICIES["two columns"].changes_always_win([3], [2])


def test_an_unknown_bound_promises_nothing_and_without_an_ordering_column_nothing_can_lose() -> None:
    assert not POLICIES["event time"].changes_always_win([None], [1])
    assert not POLICIES["event time"].changes_always_win([2], [None])
    assert POLICIES["event time"].changes_always_win([2], [])
    assert POLICIES["commit time"].changes_always_win([None], [None])


def test_needed_columns_are_the_key_and_what_orders() -> None:
    assert POLICIES["event time"].needed_columns == (KEY, "ts")
    assert POLICIES["two columns"].needed_columns == (KEY, "ts", "seq")
    assert POLICIES["commit time"].needed_columns == (KEY,)
