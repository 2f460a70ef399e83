"""Every Python snippet in README and docs runs, in order, from an empty folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import hoodoo

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Any]:
    """Those with snippets. What needs Spark runs where the other tests of Spark do."""
    for page in PAGES:
        if blocks := _BLOCK.findall(page.read_text()):
            marks = [pytest.mark.xdist_group("spark")] if "pyspark" in "".join(blocks) else []
            yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", list(pages()))
def test_every_snippet_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    blocks = _BLOCK.findall(page.read_text())
    if any("pyspark" in block for block in blocks):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert os.listdir(tmp_path)


def test_the_guide_can_be_followed_in_the_folder_where_the_readme_was() -> None:
    """Both made `lake/trips`, so that the second said TableExists."""
    made = [
        set(re.findall(r'hoodoo\.create\(\s*"([^"]+)"', "".join(_BLOCK.findall((ROOT / page).read_text()))))
        for page in ("README.md", "docs/guide.md")
    ]
    assert all(made) and not made[0] & made[1]


_GUESS = re.compile(r"^\| (?:pandas|polars|DuckDB|deltalake) \| `(.*)` \| (?:works|names `(.*)`) \|$", re.MULTILINE)
GUESSES = _GUESS.findall((ROOT / "docs/from-dataframes.md").read_text())


def test_of_at_least_fifty_first_guesses_four_in_five_work() -> None:
    assert len(GUESSES) >= 50 and sum(not line for _, line in GUESSES) >= 0.8 * len(GUESSES)


@pytest.mark.parametrize(("guess", "line"), GUESSES)
def test_a_first_guess_works_or_its_error_names_the_line_to_type(
    guess: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    orders = {
        "order_id": [1, 2, 3, 4],
        "status": ["new", "paid", "sent", "new"],
        "amount": [9.5, 20.0, 7.25, 1.0],
        "day": pd.to_datetime(["2026-01-01"] * 4),
    }
    df = pd.DataFrame(orders)
    new = df.assign(order_id=[5, 6, 7, 8])
    new.to_csv("new.csv", index=False)
    new.to_parquet("new.parquet")
    t = hoodoo.create("orders", df, key="order_id")
    t.insert(df)
    names = {"hoodoo": hoodoo, "pd": pd, "pl": pl, "df": df, "new": new, "pl_df": pl.DataFrame(df), "t": t}
    if not line:
        eval(guess, {**names, "duckdb": duckdb})
    else:
        with pytest.raises((hoodoo.HoodooError, AttributeError, TypeError)) as refused:
            eval(guess, names)
        assert line in str(refused.value)
        assert t.scan().to_pandas().sort_values("order_id")["status"].to_list() == orders["status"]


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_path_that_a_page_names_exists() -> None:
    """Pages send a reader to files and folders, which move now and then."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    for page in PAGES:
        for named in re.findall(rf"`((?:{folders})/[\w./]*\w)", page.read_text()):
            path = ROOT / named
            assert path.exists() or path.with_name(f"{path.name}.py").exists(), f"{page.name} names {named}"


def test_every_option_is_declared_once_stands_in_the_guide_and_there_are_few() -> None:
    from dataclasses import fields

    from hoodoo.timeline.properties.table_options import Options

    assert len(fields(Options)) <= 26
    guide = (ROOT / "docs/guide.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE) == [field.name for field in fields(Options)]
