"""The documentation site has every page, every public name, every command and every error code once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import hoodoo
from hoodoo import errors
from hoodoo.cli.overview import GROUPS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import pictures  # noqa: E402
import reference_pages  # noqa: E402

PAGES = reference_pages.pages()
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HoodooError)]
CODES = sorted({kind.code for kind in KINDS} - {"HOODOO"})


def in_nav(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for value in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from in_nav(value)


def test_the_navigation_names_every_page_once() -> None:
    nav = sorted(in_nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert nav == sorted([*PAGES, *(page.name for page in (ROOT / "docs").glob("*.md"))])


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(PAGES.values())
    named = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert set(hoodoo.__all__) - {"sources"} <= named
    assert {name for name in hoodoo.sources.__all__ if name[0].isupper()} <= named


def test_the_command_line_page_has_the_help_of_every_command() -> None:
    page = PAGES["reference/command-line.md"]
    names = [name for group in GROUPS.values() for name in group]
    assert re.findall(r"^### hoodoo (\S+)$", page, re.MULTILINE) == names
    assert page.count("usage: hoodoo ") == len(names)


@pytest.mark.parametrize("code", CODES)
def test_troubleshooting_has_the_cause_and_the_remedy_of_every_error_code(code: str) -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    [section] = re.findall(rf"^### {code}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert re.search(r"\*\*Cause\.\*\* \S+.*\n\*\*Remedy\.\*\* \S+", section)


def test_the_pictures_are_those_that_the_code_draws_and_a_page_shows_each() -> None:
    files = {path.name: path.read_text() for path in pictures.IMAGES.iterdir()}
    assert files == {name: draw() for name, draw in pictures.PICTURES.items()}
    pages = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert all(f"images/{name})" in pages for name in files)
