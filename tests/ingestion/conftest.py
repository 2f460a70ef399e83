"""A folder, and a table that a job takes its files into."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_numbers import SCHEMA

import hoodoo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="part", order_by="ts", clean_every=None)
