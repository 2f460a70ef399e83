"""Orders over several columns, each against its definition."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hoodoo.compactor.clustering.curve import HILBERT, LINEAR, ORDERS, ZORDER, compute_sort_values


def some_columns(seed: int, rows: int = 500) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "a": pa.array([rng.choice([None, *range(5)]) for _ in range(rows)], pa.int64()),
            "b": pa.array([rng.choice([None, "x", "y", "ü", ""]) for _ in range(rows)], pa.string()),
            "c": pa.array([rng.choice([None, math.nan, -0.5, 3.25, math.inf]) for _ in range(rows)], pa.float64()),
        }
    )


@pytest.mark.parametrize("seed", range(10))
def test_linear_is_the_order_of_a_stable_lexicographic_sort_with_nulls_last(seed: int) -> None:
    columns = some_columns(seed).drop_columns(["c"])  # arrow sorts NaN with the nulls, we before them
    for names in (["a"], ["b", "a"], ["a", "b"]):
        wanted = pc.sort_indices(columns, sort_keys=[(name, "ascending") for name in names])
        assert (
            np.argsort(compute_sort_values(columns.select(names), LINEAR), kind="stable").tolist() == wanted.to_pylist()
        )


def spread_bits(value: int, axis: int, count: int, bits: int) -> int:
    return sum(((value >> bit) & 1) << (bit * count + count - 1 - axis) for bit in range(bits))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_zorder_interleaves_the_bits_of_the_ranks(seed: int, count: int) -> None:
    rng = random.Random(seed)
    sides = [rng.choice([2, 4, 8, 16]) for _ in range(count)]
    points = list(itertools.product(*(range(side) for side in sides)))
    rng.shuffle(points)
    bits = max(side - 1 for side in sides).bit_length()
    wanted = [
        sum(
            spread_bits(value * (1 << bits) // side, axis, count, bits)
            for axis, (value, side) in enumerate(zip(point, sides, strict=True))
        )
        for point in points
    ]
    columns = pa.table([pa.array(axis) for axis in zip(*points, strict=True)], names=[f"c{n}" for n in range(count)])
    assert compute_sort_values(columns, ZORDER).tolist() == wanted


@pytest.mark.parametrize(("count", "side"), [(2, 2), (2, 4), (2, 32), (3, 2), (3, 8), (4, 4)])
def test_neighbours_on_the_hilbert_curve_differ_by_one_step_in_one_column_and_every_cell_is_visited_once(
    count: int, side: int
) -> None:
    grid = np.array(list(itertools.product(range(side), repeat=count)))
    places = compute_sort_values(
        pa.table([pa.array(axis) for axis in grid.T], names=[f"c{n}" for n in range(count)]), HILBERT
    )
    assert sorted(places.tolist()) == list(range(side**count))
    steps = np.abs(np.diff(grid[np.argsort(places)], axis=0))
    assert (steps.sum(axis=1) == 1).all()


@pytest.mark.parametrize("order", ORDERS)
def test_equal_rows_have_equal_places_and_different_rows_different_ones(order: str) -> None:
    columns = some_columns(1)
    places = compute_sort_values(columns, order).tolist()
    seen: dict[str, int] = {}
    for row, place in zip(columns.to_pylist(), places, strict=True):
        assert seen.setdefault(repr(row), place) == place
    assert len(set(seen.values())) == len(seen)


@pytest.mark.parametrize("order", ORDERS)
def test_no_rows_and_columns_of_one_value_are_fine(order: str) -> None:
    empty = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    assert compute_sort_values(empty, order).tolist() == []
    assert (
        len(set(compute_sort_values(pa.table({"a": [7] * 5, "b": pa.array([None] * 5, pa.string())}), order).tolist()))
        == 1
    )


@pytest.mark.parametrize("order", [ZORDER, HILBERT])
def test_a_curve_keeps_boxes_of_both_columns_in_fewer_places_than_a_linear_order(order: str) -> None:
    rng = np.random.default_rng(0)
    columns = pa.table({"a": rng.integers(0, 1000, 50_000), "b": rng.integers(0, 1000, 50_000)})
    box = (columns["b"].to_numpy() >= 100) & (columns["b"].to_numpy() < 150)

    def files_hit(how: str) -> int:
        place = np.empty(50_000, np.int64)
        place[np.argsort(compute_sort_values(columns, how), kind="stable")] = np.arange(50_000)
        return len(np.unique(place[box] // 1000))

    assert files_hit(LINEAR) == 50
    assert files_hit(order) <= 15
