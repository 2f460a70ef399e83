"""Each file of a folder is taken once, in whatever order files appear, are dated and are cut off by limits."""

from __future__ import annotations

import random

import pytest

from hoodoo.errors import SourceLost
from hoodoo.sources.folders import Listed
from hoodoo.sources.taken_files import TakenFiles

GRACE_MS = 3_600_000


def listed(name: str, time_ms: int, stamp: str = "1") -> Listed:
    return Listed(time_ms, name, 1, stamp)


@pytest.mark.parametrize("seed", range(30))
def test_every_file_is_taken_once_if_it_appears_within_the_grace(seed: int) -> None:
    rng = random.Random(seed)
    grace = rng.choice([0, 1_000, GRACE_MS])
    there, taken, position, now = list[Listed](), list[str](), "", 10 * GRACE_MS
    for step in range(120):
        now += rng.choice([0, 1, 700, GRACE_MS // 3])
        for number in range(rng.choice([0, 0, 1, 4])):
            late = rng.randint(0, grace) if rng.random() < 0.5 else 0
            there.append(listed(f"{step}-{number}", max(now - late, TakenFiles.of(position).upto)))
        state = TakenFiles.of(position)
        new = state.new(there)
        chosen = new[: rng.choice([0, 1, 2, 100])]
        if chosen:
            taken += [file.name for file in chosen]
            position = state.and_these(chosen, new[len(chosen) :], now, grace).text()
        if rng.random() < 0.1:  # whoever put them takes old ones away
            there = [file for file in there if file.time_ms > now - 2 * GRACE_MS or file.name not in taken]
    while new := (state := TakenFiles.of(position)).new(there):
        taken += [file.name for file in new]
        position = state.and_these(new, [], now, grace).text()
    assert len(taken) == len(set(taken)) and {file.name for file in there} <= set(taken)


def test_files_of_one_time_that_a_limit_cut_off_are_taken_by_the_next_batch() -> None:
    """ "Newer than the newest one" passed over the second and third file of one second."""
    files = [listed(name, 5_000) for name in "abc"]
    state = TakenFiles().and_these(files[:1], files[1:], now_ms=9_000_000, grace_ms=0)
    assert [file.name for file in state.new(files)] == ["b", "c"]


def test_a_file_that_appears_late_is_taken_although_a_younger_one_was() -> None:
    state = TakenFiles().and_these([listed("young", 9_000_000)], [], now_ms=9_000_000, grace_ms=GRACE_MS)
    assert [file.name for file in state.new([listed("young", 9_000_000), listed("late", 6_000_000)])] == ["late"]


def test_a_file_that_is_dated_ahead_of_the_clock_makes_no_other_one_old() -> None:
    ahead = listed("ahead", 99_000_000)
    state = TakenFiles().and_these([ahead], [], now_ms=9_000_000, grace_ms=GRACE_MS)
    assert state.upto <= 9_000_000 - GRACE_MS
    assert [file.name for file in state.new([ahead, listed("next", 9_000_001)])] == ["next"]


def test_names_are_remembered_for_the_grace_only() -> None:
    state = TakenFiles()
    for hour in range(50):
        file = listed(f"{hour}", hour * GRACE_MS)
        state = state.and_these([file], [], now_ms=hour * GRACE_MS, grace_ms=GRACE_MS)
    assert set(state.seen) == {"48", "49"}


@pytest.mark.parametrize(
    "position",
    [
        "{}",
        "null",
        "[]",
        "7",
        "shop.orders,0:17",
        '{"source":"kafka","upto":1,"seen":{}}',
        '{"source":"files","upto":-1,"seen":{}}',
        '{"source":"files","upto":"x","seen":{}}',
        '{"source":"files","upto":1,"seen":["a"]}',
        '{"source":"files","upto":1,"seen":{"a":[1]}}',
        '{"source":"files","upto":1}',
    ],
)
def test_a_position_of_another_source_is_refused_and_never_means_the_beginning(position: str) -> None:
    with pytest.raises(SourceLost, match="another source"):
        TakenFiles.of(position)


def test_a_position_is_read_back_as_it_was_written() -> None:
    state = TakenFiles(17, {'"ü\n': (18, "1-2"), "b": (19, "")})
    assert TakenFiles.of(state.text()) == state
    assert TakenFiles.of("") == TakenFiles()


def test_hudis_streamer_is_told_a_time_behind_which_nothing_is_missing() -> None:
    """It takes files that are younger, and one as old as `upto` may not have been taken."""
    assert TakenFiles(17_000, {"a": (18_000, "s")}).to_hudi() == "16999"
    assert TakenFiles().to_hudi() == ""
