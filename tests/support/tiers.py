"""Two tiers of tests. Quick: every property once, in what `make test` may take. Deep: the same harder, and what needs
long.

A folder belongs to the quick tier, to the deep one, or to both, with sizes of its own in each (`sized`). Tests of one
tier are chosen by `pytest --tier=quick` or `--tier=deep`; without the option all run, at quick sizes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
QUICK, DEEP = "quick", "deep"
ONLY_DEEP = frozenset({"crash", "fuzz", "load", "model", "soak", "spark_kill", "test_pairs.py", "test_counters.py"})
BOTH = frozenset(
    {"reliability", "schema", "security", "simulator", "test_dict_histories.py", "test_changes.py", "test_in_place.py"}
)
BUDGET_S: dict[str, int] = {
    "cli": 90,
    "compactor": 160,
    "docs": 30,
    "engine": 10,
    "format": 60,
    "index": 20,
    "merge": 20,
    "readers": 70,
    "reliability": 60,
    "schema": 60,
    "security": 40,
    "simulator": 60,
    "spark": 120,
    "storage": 60,
    "table": 130,
    "timeline": 90,
    "writers": 45,
}
"""Seconds of tests that a folder may take in the quick tier, by all workers: printed after a run, never failed."""
_VARIABLE = "HOODOO_TIER"


def choose(tier: str) -> None:
    """Set the tier of this process, and of those that it starts."""
    os.environ[_VARIABLE] = tier


def sized(quick: T, deep: T) -> T:
    """A size for the tier that runs."""
    return deep if os.environ.get(_VARIABLE) == DEEP else quick


def folder_of(path: Path) -> str:
    """The folder of `tests/` in which a test lies; '' for one beside the folders."""
    parts = path.parts[path.parts.index("tests") + 1 : -1] if "tests" in path.parts else ()
    return parts[0] if parts else ""


def runs_in(tier: str, path: Path, marked: bool = False) -> bool:
    """Does a test in the file `path` run in `tier`, '' being both? marked: as one that takes long (`pytest.mark.deep`),
    in a folder of the quick tier.
    """
    deep = marked or bool(ONLY_DEEP & {folder_of(path), path.name})
    return not tier or deep == (tier == DEEP) or not deep and bool(BOTH & {folder_of(path), path.name})
