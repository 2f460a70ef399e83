"""Where a part of a stream ends: within its limits, never standing still, never past the head."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoodoo.errors import PositionError
from hoodoo.readers.progress import (
    IDLE_SLOTS,
    MicroBatchSize,
    StreamLimits,
    StreamPosition,
    find_next_batch_end,
    find_snapshot_batch_end,
)

amounts = st.builds(MicroBatchSize, st.just(1), st.integers(0, 4), st.integers(0, 9))
limits = st.builds(StreamLimits, *[st.none() | st.integers(1, 8)] * 3)


@settings(max_examples=300)
@given(st.lists(st.none() | amounts, max_size=12), limits, st.integers(0, 14))
def test_parts_of_slots_hold_every_change_once_and_keep_their_limits_unless_one_commit_alone_exceeds_them(
    changed: list[MicroBatchSize | None], limit: StreamLimits, least: int
) -> None:
    head = len(changed)
    least = min(least, head)
    seq = 0
    while True:
        written = [(number, weight) for number, weight in enumerate(changed, 1) if weight is not None and number > seq]
        end = find_next_batch_end(seq, head, written, limit, least).slot
        assert seq <= end <= head
        taken = [weight for number, weight in written if max(seq, least) < number <= end]
        total = sum(taken, MicroBatchSize())
        assert limit.allow(total) or len(taken) == 1
        if end == seq:
            assert not written
            return
        assert end >= least and (end in (head, least) or changed[end - 1] is not None)
        if end < head and (following := [weight for number, weight in written if number > end]):
            assert not limit.allow(total + following[0])  # it took as much as fits
        seq = end


@settings(max_examples=200)
@given(st.lists(st.builds(MicroBatchSize, st.just(0), st.integers(1, 4), st.integers(0, 9)), max_size=10), limits)
def test_parts_of_a_snapshot_are_its_file_groups_in_order_within_the_limits(
    weights: list[MicroBatchSize], limit: StreamLimits
) -> None:
    here, parts = StreamPosition(7, 0), []
    while here.groups is not None:
        end = find_snapshot_batch_end(7, here.groups, weights, limit)
        stop = len(weights) if end.groups is None else end.groups
        parts.append(weights[here.groups : stop])
        assert end == StreamPosition(7) or stop > here.groups
        here = end
    assert list(itertools.chain(*parts)) == weights
    assert all(limit.allow(sum(part, MicroBatchSize())) or len(part) == 1 for part in parts)


def test_slots_that_change_no_row_make_no_part_until_they_are_many() -> None:
    assert find_next_batch_end(5, 5 + IDLE_SLOTS, [], StreamLimits()) == StreamPosition(5)
    assert find_next_batch_end(5, 6 + IDLE_SLOTS, [], StreamLimits()) == StreamPosition(6 + IDLE_SLOTS)


def test_no_more_slots_are_looked_at_than_the_limit_asks_for() -> None:
    looked = []

    def written() -> object:
        for seq in range(1, 1000):
            looked.append(seq)
            yield seq, MicroBatchSize(1, 1, 1)

    assert find_next_batch_end(0, 1000, written(), StreamLimits(commits=3)) == StreamPosition(3)  # type: ignore[arg-type]
    assert looked == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"table": "t"},
        {"table": "t", "slot": -1},
        {"table": "t", "slot": "1"},
        {"table": "t", "slot": True},
        {"table": "t", "slot": 1, "x": 1},
        {"table": "t", "slot": 1, "groups": -1},
        {"table": "other", "slot": 1},
    ],
)
def test_an_offset_that_is_not_of_this_table_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(PositionError, match="new checkpoint"):
        StreamPosition.from_json(found, "t")


def test_an_offset_comes_back_from_its_json() -> None:
    for position in (StreamPosition(0), StreamPosition(9), StreamPosition(9, 0), StreamPosition(9, 3)):
        assert StreamPosition.from_json(position.to_json("t"), "t") == position
