"""Ordering columns compared one after the other: the kernels against Python's own comparison of tuples."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.format.names import RECORD_KEY
from hoodoo.merge import kernels

NAN, INFINITE = float("nan"), float("inf")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int32": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -5, 0, 7, 2**63 - 1]),
    "float64": (pa.float64(), [-INFINITE, -0.0, 0.0, 1.5, INFINITE, NAN]),
    "float32": (pa.float32(), [-1.5, 0.0, NAN]),
    "string": (pa.string(), ["", "a", "ab", "z", "é"]),
    "date": (pa.date32(), [dt.date(1969, 1, 1), dt.date(2024, 5, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(1960, 1, n, tzinfo=dt.timezone.utc) for n in (1, 2)]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("-1.50"), decimal.Decimal("0.00"), decimal.Decimal("3.25")]),
}


def rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row in Python's order: null is least, NaN greatest."""
    return tuple(
        (0, 0) if value is None else (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)
        for value in row
    )


def random_rows(rng: random.Random, kinds: tuple[str, ...], count: int, nulls: bool) -> list[tuple[Any, ...]]:
    return [tuple(rng.choice(VALUES[kind][1] + [None] * nulls) for kind in kinds) for _ in range(count)]


def arrow(rows: list[tuple[Any, ...]], kinds: tuple[str, ...]) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], VALUES[kind][0]) for at, kind in enumerate(kinds)]
    halves = [pa.chunked_array([column.slice(0, 3), column.slice(3)]) for column in columns]
    return pa.table(halves, names=[f"c{at}" for at in range(len(kinds))])


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_rows_beat_others_as_tuples_of_python_do(count: int, nulls: bool) -> None:
    for number, kinds in enumerate(itertools.product(VALUES, repeat=count)):
        rng = random.Random(number)
        new, old = (random_rows(rng, kinds, 12, nulls) for _ in range(2))
        names = tuple(f"c{at}" for at in range(count))
        won = kernels.find_winning_rows(arrow(new, kinds), arrow(old, kinds), names)
        assert won.tolist() == [rank(mine) >= rank(theirs) for mine, theirs in zip(new, old, strict=True)], kinds


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranks_are_in_the_order_of_pythons_tuples_and_equal_where_these_are(count: int, nulls: bool) -> None:
    for number, kinds in enumerate(itertools.product(VALUES, repeat=count)):
        rows = random_rows(random.Random(number), kinds, 15, nulls)
        positions = np.array(random.Random(number).sample(range(15), 10))
        found = kernels.rank_rows(arrow(rows, kinds), positions, tuple(f"c{at}" for at in range(count)))
        mine = [rank(rows[at]) for at in positions]
        for one, other in itertools.product(range(10), repeat=2):
            assert (found[one] < found[other]) == (mine[one] < mine[other]), (kinds, rows)
            assert (found[one] == found[other]) == (mine[one] == mine[other]), (kinds, rows)


def test_a_partial_update_is_compared_where_it_sets_all_ordering_columns_and_wins_where_it_does_not() -> None:
    schema = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), ("seq", pa.int64()), ("v", pa.string())])
    base = pa.Table.from_pylist([{RECORD_KEY: key, "ts": 10, "seq": 5, "v": "old"} for key in "abc"], schema)
    given = [{RECORD_KEY: key, "ts": 10, "seq": seq, "v": "new"} for key, seq in zip("abc", (4, 5, 6), strict=True)]
    changes = kernels.as_upserts(pa.Table.from_pylist(given, schema))

    def values(*names: str) -> list[str]:
        found = kernels.set_columns(base, replace(changes, columns=names), ("ts", "seq"))
        return found["v"].to_pylist()

    assert values("ts", "seq", "v") == ["old", "new", "new"]
    assert values("ts", "v") == values("v") == ["new", "new", "new"]


def test_no_rows_have_no_ranks_and_beat_nothing() -> None:
    none = arrow([], ("int64", "string"))
    assert kernels.find_winning_rows(none, none, ("c0", "c1")).tolist() == []
    assert kernels.rank_rows(none, np.empty(0, np.int64), ("c0", "c1")).tolist() == []
