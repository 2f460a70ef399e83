"""Servers that several files of tests ask."""

from __future__ import annotations

from collections.abc import Iterator

import catalog_servers
import pytest


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive metastore."""
    with catalog_servers.hive_metastore(tmp_path_factory.mktemp("hive")) as uri:
        yield uri
