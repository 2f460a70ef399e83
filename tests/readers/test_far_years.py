"""Tables that hold times beyond the year 9999, or before the year 1, are read like others.

Writes refuse such values since `writers/batches/value_validation`; tables of older releases and of other engines have
them (PostgreSQL's 'infinity' comes as one). Here they are written past that check.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.cli.main import main
from hoodoo.format.parquet import statistics

KINDS = {
    "timestamp with zone": (pa.timestamp("us", "UTC"), 2**62),
    "timestamp": (pa.timestamp("us"), 2**62),
    "early timestamp": (pa.timestamp("us"), -(2**62)),
    "date": (pa.date32(), 2**30),
    "first day of the year 10000": (pa.date32(), 2932897),
}


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hoodoo.writers.batches.batch.validate_columns", lambda data, names, key: data.select(list(names))
    )


def numbers(column: pa.ChunkedArray) -> list[int]:
    return column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_pylist()


def row(kind: pa.DataType, value: int) -> pa.Table:
    times = pa.array([value], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.table({"id": ["a"], "at": times})


@pytest.mark.parametrize("far_first", [False, True])
@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("unchecked")
def test_times_that_python_does_not_have_order_and_filter_rows(
    tmp_path: Path, name: str, type_: str, far_first: bool
) -> None:
    """Comparing the ordering column by way of Python raised OverflowError from scans, change feeds and writes."""
    kind, far = KINDS[name]
    table = hoodoo.create(
        tmp_path / "t", pa.schema([("id", pa.string()), ("at", kind)]), key="id", order_by="at", type=type_
    )
    values = [far, 1] if far_first else [1, far]
    start = table.upsert(row(kind, values[0])).cursor
    table.upsert(row(kind, values[1]))
    wanted = [max(values)]
    for _ in range(2):
        assert numbers(table.scan().to_arrow()["at"]) == wanted
        assert table.scan(where="at > '2020-01-01'").count() == (max(values) > 1)
        assert table.scan(where="at IN ('2020-01-01')").count() == 0
        assert table.scan(where="id = 'a'").count() == 1
        won = int(values[1] > values[0])
        assert table.incremental(start).count() == won
        assert table.changes(start).to_arrow().num_rows == won
        assert numbers(table.get(["a"])["at"]) == wanted
        assert table.scan().to_polars()["at"].to_physical().to_list() == wanted
        assert table.verify().problems == []
        table.compact()


@pytest.mark.usefixtures("unchecked")
def test_where_python_has_no_such_time_an_error_of_ours_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string()), ("at", pa.date32())]), key="id")
    table.upsert(row(pa.date32(), 2**30))
    with pytest.raises(hoodoo.ColumnError, match="year 9999"):
        table.scan().to_pandas()
    for machine in ([], ["--json"]):
        assert main(["scan", str(table.path), *machine]) != 0
        said = capsys.readouterr()
        assert "'at' has a value that cannot be shown" in said.err + said.out


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_bounds_of_far_years_bound_nothing_and_join_with_others(kind: pa.DataType) -> None:
    """An older release may have put them into slots: they are numbers there."""
    schema = pa.schema([("at", kind)])
    joined = statistics.combine_statistics([{"at": [1, 2**62, 0]}, {"at": [-(2**62), 5, 1]}], schema)
    assert joined == json.loads(json.dumps(joined)) == {"at": [-(2**62), 2**62, 1]}
    assert statistics.bound_from_json(2**62, kind) is None
    assert statistics.bound_from_json(-(2**62), kind) is None
