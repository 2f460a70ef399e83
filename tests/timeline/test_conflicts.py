"""Which writes conflict with a slot that came since their base."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from slots import make_slot

from hoodoo.timeline.commits.conflicts import WriteSet, conflict
from hoodoo.timeline.slots.slot import Slot


def slot(**more: object) -> Slot:
    return make_slot(5, **more)


def keys(*hashes: int) -> Callable[[], np.ndarray]:
    return lambda: np.array(hashes, np.uint64)


FOREIGN = slot(published=".hoodie/timeline/20260101000000000_20260101000000001.commit")


@pytest.mark.parametrize(
    ("mine", "conflicts"),
    [
        (WriteSet(application="loader"), True),  # an undo takes transactions back: position 18 landed on 16
        (WriteSet(inserted=keys(1)), True),  # what another engine inserted is described by files only: keys doubled
        (WriteSet(appends={"g"}), True),
        (WriteSet(), False),  # a rollback, a savepoint
    ],
)
def test_whatever_stands_on_rows_conflicts_with_another_engines_commit(mine: WriteSet, conflicts: bool) -> None:
    assert bool(conflict(mine, "20260101000000000", FOREIGN, lambda *_: np.empty(0, np.uint64))) == conflicts


def test_two_transactions_of_one_application_conflict_and_of_two_do_not() -> None:
    other = slot(transaction=("loader", 3))
    assert conflict(WriteSet(application="loader"), "2", other, lambda *_: np.empty(0, np.uint64))
    assert not conflict(WriteSet(application="billing"), "2", other, lambda *_: np.empty(0, np.uint64))


def test_two_inserts_conflict_only_where_they_share_a_hash() -> None:
    other = slot(inserted=({"entry": "x"},))
    assert conflict(WriteSet(inserted=keys(1, 2)), "2", other, lambda *_: np.array([2, 3], np.uint64))
    assert not conflict(WriteSet(inserted=keys(1)), "2", other, lambda *_: np.array([2, 3], np.uint64))
