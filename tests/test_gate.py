"""A red test says that something is broken: what is tried again, what carries the mark `outside`, what a tier runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from affected import affected
from outside import can_be_the_outsides_fault, is_outside
from patience import NotInTime, wait_for
from tiers import DEEP, QUICK, SAMPLE, folder_of, runs_in

import hoodoo

TESTS = Path(__file__).parent
_STARTS = re.compile(r"^\s*(import|from) (subprocess|socket|multiprocessing)\b|worker_tables import .*\bworker\b", re.M)


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("wrong rows"),
        hoodoo.CorruptTable("a lost file"),
        hoodoo.Fenced("a violated rule"),
        FileNotFoundError("a lost file"),
        KeyError("_hoodoo_hash"),
        pytest.fail.Exception("verify names a problem"),
        None,
    ],
    ids=repr,
)
def test_what_hoodoo_may_have_done_is_never_tried_again(error: BaseException | None) -> None:
    assert not can_be_the_outsides_fault(error)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(),
        TimeoutError(),
        subprocess.TimeoutExpired("x", 1),
        NotInTime(),
        hoodoo.errors.StoreUnavailable("away"),
        pytest.fail.Exception("Timeout (>600.0s) from pytest-timeout."),
    ],
    ids=repr,
)
def test_what_only_the_outside_can_do_is_tried_once_more(error: BaseException) -> None:
    assert can_be_the_outsides_fault(error)


def test_every_test_that_starts_processes_or_opens_sockets_is_marked() -> None:
    without_staging_columns = [
        file.name
        for file in sorted(TESTS.rglob("test_*.py"))
        if file != Path(__file__)
        and _STARTS.search(file.read_text("utf-8"))
        and not is_outside(file, folder_of(file), frozenset())
    ]
    assert without_staging_columns == []


def test_what_is_waited_for_is_returned_and_what_does_not_come_is_named() -> None:
    answers = iter(["", "", "found"])
    assert wait_for(lambda: next(answers), "an answer") == "found"
    with pytest.raises(NotInTime, match="the end of the world did not happen"):
        wait_for(lambda: False, "the end of the world", patience_seconds=0.0)


@pytest.mark.parametrize(
    ("path", "marks", "tiers"),
    [
        ("tests/table/test_types.py", (), {QUICK}),
        ("tests/table/test_types.py", ("both",), {QUICK, DEEP}),
        ("tests/table/test_types.py", ("deep",), {DEEP}),
        ("tests/crash/test_power_loss.py", (), {DEEP}),
        ("tests/crash/test_killed_process.py", ("sample",), {DEEP, SAMPLE}),
        ("tests/simulator/test_simulation.py", ("both", "sample"), {QUICK, DEEP, SAMPLE}),
    ],
)
def test_a_folder_and_its_marks_say_in_which_tiers_a_test_runs(
    path: str, marks: tuple[str, ...], tiers: set[str]
) -> None:
    assert {tier for tier in (QUICK, DEEP, SAMPLE) if runs_in(tier, Path(path), marks)} == tiers
    assert runs_in("", Path(path), marks)


def test_the_folders_that_a_change_needs_are_those_where_its_faults_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS.parent)
    assert affected(["timeline/slots/slot.py"]) == ["tests/crash", "tests/model", "tests/simulator", "tests/timeline"]
    assert "tests/fuzz" in affected(["format/avro/codec.py"])
    assert affected(["merge/policy.py", "tests/soak/test_services_soak.py"]) == [
        "tests/readers",
        "tests/schema",
        "tests/soak",
        "tests/table",
        "tests/writers",
    ]
    assert affected(["README.md", "docs/format.md", "bench/read.py", "tests/support/tiers.py"]) == []
