"""Three tiers of tests. Quick: every property once, in what `make test` may take. Deep: the same harder, and what needs
long. Sample: some of the deep tier, at small sizes and fixed seeds, for the gate.

A folder belongs to the quick tier or to the deep one. Marks say what differs: `deep`, a test of a quick folder that
takes long; `both`, a test that runs in the deep tier too, with a size of its own there (`sized`); `sample`, a test of
the deep tier that has a size for the sample. Tests of one tier are chosen by `pytest --tier=quick`, `deep` or `sample`;
without the option all run, at quick sizes.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
QUICK, DEEP, SAMPLE = "quick", "deep", "sample"
MARKS = {
    "deep": "takes long; runs in the deep tier only",
    "both": "runs in the quick and in the deep tier, with a size of its own in each",
    "sample": "of the deep tier, with a size for the gate's sample",
    "alone": "measures or needs much memory: the deep tier runs it after the others, in one process",
    "outside": "needs processes or sockets of others: tests/support/outside.py",
}
DEEP_FOLDERS = frozenset({"crash", "fuzz", "load", "model", "soak", "spark_kill"})
BUDGET_S: dict[str, int] = {
    "cli": 90,
    "compactor": 160,
    "docs": 30,
    "engine": 10,
    "exports": 40,
    "format": 60,
    "index": 20,
    "ingestion": 60,
    "kafka": 60,
    "merge": 20,
    "readers": 70,
    "reliability": 60,
    "schema": 60,
    "security": 40,
    "simulator": 60,
    "sources": 70,
    "spark": 190,
    "storage": 60,
    "table": 130,
    "timeline": 90,
    "writers": 65,
}
"""Seconds of tests that a folder may take in the quick tier, by all workers: printed after a run, never failed."""
_VARIABLE = "HOODOO_TIER"


def choose(tier: str) -> None:
    """Set the tier of this process, and of those that it starts."""
    os.environ[_VARIABLE] = tier


def sized(quick: T, deep: T, sample: T | None = None) -> T:
    """A size for the tier that runs; in the sample that of the quick tier, unless there is one of its own."""
    tier = os.environ.get(_VARIABLE)
    return deep if tier == DEEP else sample if tier == SAMPLE and sample is not None else quick


def is_deep() -> bool:
    """Tell whether the deep tier runs."""
    return os.environ.get(_VARIABLE) == DEEP


def folder_of(path: Path) -> str:
    """The folder of `tests/` in which a test lies; '' for one beside the folders."""
    parts = path.parts[path.parts.index("tests") + 1 : -1] if "tests" in path.parts else ()
    return parts[0] if parts else ""


def runs_in(tier: str, path: Path, marks: Collection[str]) -> bool:
    """Tell whether a test runs in a tier.

    Args:
        tier: one of the three; '' for all tests.
        path: the test's file.
        marks: names of the marks that it carries.
    """
    if not tier:
        return True
    if tier == SAMPLE:
        return "sample" in marks
    deep = "deep" in marks or folder_of(path) in DEEP_FOLDERS
    return deep == (tier == DEEP) or "both" in marks
