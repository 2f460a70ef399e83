"""What a table costs grows with its columns, not with their square."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process, the better of two runs."""
    found = []
    for _ in range(2):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def wide(folder: Path, columns: int) -> tuple[hoodoo.Table, pa.Table]:
    schema = pa.schema([("id", pa.string()), *((f"c{number:05d}", pa.int64()) for number in range(columns))])
    table = hoodoo.create(folder / str(columns), schema, key="id", name="t")
    row = pa.table([pa.array(["a"]), *[pa.array([1])] * columns], schema=schema)
    table.upsert(row)
    table.upsert(row)
    return table, row


CALLS: dict[str, Callable[[hoodoo.Table, pa.Table], object]] = {
    "update": lambda table, row: table.upsert(row),
    "scan": lambda table, row: table.scan().to_arrow(),
    "scan of chosen columns": lambda table, row: table.scan(columns=row.schema.names).to_arrow(),
    "where": lambda table, row: table.scan(columns=["id"], where="c00001 = 1").to_arrow(),
    "get": lambda table, row: table.get(["a"]),
    "incremental": lambda table, row: table.incremental("earliest").to_arrow(),
    "changes": lambda table, row: table.changes("earliest").to_arrow(),
    "delete": lambda table, row: table.delete(row.select(["id"])),
    "compact": lambda table, row: table.compact(),
}
"""In the order in which they run, on one table."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, float]]:
    few, many = (wide(tmp_path_factory.mktemp("wide"), columns) for columns in (500, 2000))
    return {
        name: (seconds(lambda call=call: call(*few)), seconds(lambda call=call: call(*many)))  # type: ignore[misc]
        for name, call in CALLS.items()
    }


@pytest.mark.deep  # each call twice on tables of many columns
@pytest.mark.parametrize("call", CALLS)
def test_four_times_the_columns_cost_about_four_times_the_work(
    counted: dict[str, tuple[float, float]], call: str
) -> None:
    """Names were looked up in lists of names, column by column: four times the columns took twelve times as long."""
    few, many = counted[call]
    assert many < 8 * few + 0.1, f"{call}: {few:.3f} CPU s for 500 columns, {many:.3f} for 2000"
