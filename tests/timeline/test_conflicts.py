"""Which writes conflict with a slot that came since their base."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from slots import make_slot

from hoodoo.timeline.commits.conflicts import RowDependencies, WriteSet, explain_conflict
from hoodoo.timeline.slots.slot import DataFile, Slot


def slot(**more: object) -> Slot:
    return make_slot(5, **more)


def log(file_id: str) -> DataFile:
    return DataFile(f"{file_id}.log", "", file_id, "log", 1, "", 1, updates=1)


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
    assert bool(explain_conflict(mine, "20260101000000000", FOREIGN, lambda *_: np.empty(0, np.uint64))) == conflicts


@pytest.mark.parametrize(
    ("other", "conflicts"),
    [
        (slot(files=(log("read"),)), True),  # with a larger instant than its own or a smaller one: the row was read
        (slot(files=(log("new"),)), True),  # a row that may match came into a group that was not read
        (slot(files=(log("elsewhere"),)), False),
        (slot(replaced=(("", "read"),)), True),
        (slot(files=(log("read"),), operation="CLUSTER", action="replacecommit"), False),  # rows moved, none changed
        (slot(files=(log("read"),), action="compaction"), False),
        (slot(columns={"id": 2}, operation="ALTER_SCHEMA"), True),  # `where` may mean another column
        (slot(files=(log("read"),), outcome="rolled_back"), False),
    ],
)
@pytest.mark.parametrize("instant", ["20250101000000000", "20270101000000000"])
def test_what_is_made_from_stored_rows_conflicts_with_whoever_changed_them(
    other: Slot, conflicts: bool, instant: str
) -> None:
    derived = RowDependencies(frozenset({"read"}), lambda file: file.file_id == "new")
    found = explain_conflict(WriteSet(derived=derived), instant, other, lambda *_: np.empty(0, np.uint64))
    assert bool(found) == conflicts


def test_two_transactions_of_one_application_conflict_and_of_two_do_not() -> None:
    other = slot(transaction=("loader", 3))
    assert explain_conflict(WriteSet(application="loader"), "2", other, lambda *_: np.empty(0, np.uint64))
    assert not explain_conflict(WriteSet(application="billing"), "2", other, lambda *_: np.empty(0, np.uint64))


def test_two_inserts_conflict_only_where_they_share_a_hash() -> None:
    other = slot(inserted=({"entry": "x"},))
    assert explain_conflict(WriteSet(inserted=keys(1, 2)), "2", other, lambda *_: np.array([2, 3], np.uint64))
    assert not explain_conflict(WriteSet(inserted=keys(1)), "2", other, lambda *_: np.array([2, 3], np.uint64))
