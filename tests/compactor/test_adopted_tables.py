"""Services on tables that Apache Hudi wrote: whatever its logs hold, partial updates included, no row changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_tables import NAMES, plain, sorted_rows, unpack

import hoodoo
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind


def everything(table: hoodoo.Table) -> list[dict[str, Any]]:
    return sorted_rows([plain(row) for row in table.scan().to_arrow().to_pylist()])


SERVICES: dict[str, Callable[[hoodoo.Table], Any]] = {
    "compaction": lambda table: table.compact(),
    "packing": lambda table: table.maintenance.cluster(),
    "sorting": lambda table: table.maintenance.cluster(sort_by=table.key[0]),
    "log compaction": lambda table: compact_logs(table.handle.context(), lambda view: behind(view, 1)),
}


@pytest.mark.parametrize("service", list(SERVICES))
@pytest.mark.parametrize("name", [name for name in NAMES if name != "mor_version_6"])  # which no write adopts
def test_a_service_changes_no_row_of_a_table_that_hudi_wrote(tmp_path: Path, name: str, service: str) -> None:
    """Adoption gives sound logs of Hudi's a digest; services took that for a sign of our own logs, and merged partial
    updates as whole rows.
    """
    table = hoodoo.open(unpack(name, tmp_path))
    before = everything(table)
    table.savepoints.create("adopted")
    SERVICES[service](table)
    assert everything(table) == before
    assert everything(hoodoo.open(table.path)) == before
