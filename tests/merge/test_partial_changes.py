"""Partial updates among changes: each column of a row has its newest value since the newest whole row or delete of its
key, however the changes are grouped, and whether they meet the base by key or by position.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.merge import kernels
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.merge.policy import LATER_WINS, MergePolicy

KEY = "_hoodie_record_key"
SCHEMA = pa.schema([(KEY, pa.string()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int64()))])
FREE = ("a", "b", "c")
Row = dict[str, Any]


def value(rng: random.Random, name: str) -> Any:
    some = {"a": rng.randrange(9), "b": rng.choice("xyz"), "c": [rng.randrange(3)]}
    return rng.choice([None, some[name]])


def changes(rows: list[Row], sets: tuple[str, ...] | None, keys: list[str], delete: bool = False) -> KeyedChanges:
    flags = np.full(len(rows), delete)
    at = np.array([keys.index(row[KEY]) for row in rows], np.int64)
    columns = None if sets is None else (KEY, *sets)
    return KeyedChanges(pa.Table.from_pylist(rows, SCHEMA), flags, flags, columns, at=at)


def history(rng: random.Random, keys: list[str]) -> tuple[list[KeyedChanges], dict[str, Row]]:
    """Parts in order of arrival, and what becomes of a base with all of `keys`."""
    stored: dict[str, Row] = {key: {KEY: key, "a": 0, "b": "base", "c": [0]} for key in keys}
    parts = []
    for _ in range(rng.randint(1, 7)):
        some = rng.sample(sorted(stored), rng.randint(0, len(stored)))  # what a log deletes never comes back in one
        kind = rng.choices(["partial", "whole", "delete"], [5, 2, 1])[0]
        if kind == "delete":
            some = some[:2]
            parts.append(changes([{KEY: key} for key in some], None, keys, delete=True))
            for key in some:
                del stored[key]
            continue
        sets = tuple(sorted(rng.sample(FREE, rng.randint(1, 3)))) if kind == "partial" else FREE
        rows = [{KEY: key} | {name: value(rng, name) for name in sets} for key in some]
        parts.append(changes(rows, sets if kind == "partial" else None, keys))
        for row in rows:
            stored[row[KEY]] |= row
    return parts, stored


def grouped(rng: random.Random, parts: list[KeyedChanges]) -> KeyedChanges:
    """The parts as one, neighbours first."""
    left = list(parts)
    while len(left) > 1:
        at = rng.randrange(len(left) - 1)
        left[at : at + 2] = [LATER_WINS.collapse(kernels.concat_changes(left[at : at + 2]))]
    return LATER_WINS.collapse(kernels.concat_changes(left))


@pytest.mark.parametrize("seed", range(150))
def test_any_grouping_gives_every_column_its_newest_value(seed: int) -> None:
    rng = random.Random(seed)
    keys = [f"k{number}" for number in range(8)]
    parts, stored = history(rng, keys)
    base = pa.Table.from_pylist([{KEY: key, "a": 0, "b": "base", "c": [0]} for key in keys], SCHEMA)
    wanted = [stored[key] for key in keys if key in stored]
    by_key = [KeyedChanges(part.rows, part.delete, part.unconditional, part.columns) for part in parts]
    for some in (parts, by_key):
        one = grouped(rng, some)
        assert len(set(one.rows[KEY].to_pylist())) == len(one)
        assert LATER_WINS.apply(base, one).rows.to_pylist() == wanted
        assert LATER_WINS.applied(base, LATER_WINS.one_per_key(some)).to_pylist() == wanted
        assert LATER_WINS.start_streaming_merge(some).applied(base).to_pylist() == wanted
    (whole,) = LATER_WINS.one_per_key(parts)
    assert whole.at is not None
    assert LATER_WINS.applied_by_row(base, whole, whole.at).to_pylist() == wanted


def test_a_partial_update_of_a_key_that_is_nowhere_leaves_nothing_of_a_value_to_be_kept() -> None:
    part = changes([{KEY: "k0", "a": 1}, {KEY: "k1", "a": None}], ("a",), ["k0", "k1"])
    one = kernels.concat_changes([part])
    assert one.columns is None and sorted(one.unset) == ["b", "c"] and one.partial.all()
    assert not kernels.concat_changes([changes([{KEY: "k0"}], None, ["k0"])]).partial.any()
    assert one.setting("a", np.array([0, 1])) is None
    assert one.setting("b", np.array([0, 1])) is not None


def test_with_an_ordering_column_partial_updates_stay_by_themselves() -> None:
    """They are not associative: a late one loses whole, and must not hide in what became of newer ones."""
    rows = [{KEY: "k0", "a": 5, "b": "x"}]
    parts = [changes(rows, ("a", "b"), ["k0"]), changes(rows, None, ["k0"])]
    assert [part.columns for part in MergePolicy("a").one_per_key(parts)] == [(KEY, "a", "b"), None]
    assert len(LATER_WINS.one_per_key(parts)) == 1
