"""One Spark session with Apache Hudi for all of tests/interop; run by `make interop`, never by `make test`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hudi_session
import pytest
from pyspark.sql import SparkSession

from hoodoo.writers.files import in_place


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with hudi_session.hudi_session(tmp_path_factory.mktemp("hudi")) as session:
        yield session


@pytest.fixture
def in_place_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrites take apart even the small files of tests."""
    monkeypatch.setattr(in_place, "_SMALL", 0)


@pytest.fixture
def hudi_rows(hudi: SparkSession) -> Callable[..., list[dict[str, Any]]]:
    """`hudi_rows(path, *columns, as_of=, begin=, end=, read_optimized=, options=)`: what Apache Hudi reads."""
    return partial(hudi_session.hudi_rows, hudi)


@pytest.fixture
def hudi_write(hudi: SparkSession) -> Callable[..., None]:
    """`hudi_write(path, rows, schema, operation=, options=)`: one write by Apache Hudi."""
    return partial(hudi_session.hudi_write, hudi)
