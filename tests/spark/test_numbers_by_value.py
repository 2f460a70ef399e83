"""Numbers of a DataFrame go into a column that has the same ones, in Spark's tasks as in process.

A whole number was refused by a decimal column, whatever it was, also in tasks; expected values are Python's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from same_numbers import Number, of_type, same

import hoodoo
from hoodoo.writers.staging import staged

GIVEN = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
    "decimal(38,18)": pa.decimal128(38, 18),
}
"""Spark's types of numbers."""
KEPT = (pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal128(38, 30))
PAIRS = [(text, kind, target) for text, kind in GIVEN.items() for target in KEPT]


def frame_of(spark: Any, columns: list[list[Number | None]], nested: bool) -> Any:
    """A DataFrame with a column of each pair's values, also in a list and a struct of each row."""
    rows = list(zip(range(len(columns[0])), *columns, strict=True))
    fields = ", ".join(f"c{at} {text}" for at, (text, _, _) in enumerate(PAIRS))
    frame = spark.createDataFrame(rows, f"id bigint, {fields}")
    if not nested:
        return frame
    return frame.selectExpr("id", *(f"named_struct('l', array(c{at}, null)) AS c{at}" for at in range(len(PAIRS))))


def table_at(path: Path, nested: bool) -> hoodoo.Table:
    def shaped(kind: pa.DataType) -> pa.DataType:
        return pa.struct([("l", pa.list_(kind))]) if nested else kind

    fields = [pa.field(f"c{at}", shaped(target)) for at, (_, _, target) in enumerate(PAIRS)]
    return hoodoo.create(path, pa.schema([pa.field("id", pa.int64()), *fields]), key="id")


@pytest.mark.parametrize(("nested", "large"), [(False, False), (True, True)], ids=["at the top", "nested and staged"])
def test_each_number_of_a_dataframe_that_the_column_has_is_written(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, nested: bool, large: bool
) -> None:
    if large:
        monkeypatch.setattr(staged, "IN_PROCESS_BYTES", 0)
    columns, wanted = list[list[Number | None]](), list[list[Number | None]]()
    for _, kind, target in PAIRS:
        fitting = [(value, one) for value in of_type(kind) if (one := same(value, kind, target)) is not None]
        chosen = [*fitting[:20], *fitting[20::6]][:60]
        columns.append([value for value, _ in chosen] + [None] * (60 - len(chosen)))
        wanted.append([one for _, one in chosen] + [None] * (60 - len(chosen)))
    table = table_at(tmp_path / "t", nested)
    table.upsert(frame_of(spark, columns, nested))
    found = table.scan().to_arrow().sort_by("id")
    for at, (text, _, target) in enumerate(PAIRS):
        expected: list[Any] = [{"l": [value, None]} for value in wanted[at]] if nested else list(wanted[at])
        assert found[f"c{at}"].to_pylist() == expected, f"{text} into {target}"


def test_each_number_of_a_dataframe_that_the_column_has_not_is_refused(tmp_path: Path, spark: Any) -> None:
    """One row for each pair of types, whose other columns are null: all are set aside, none is written."""
    unfit: list[tuple[int, Number]] = []
    for at, (_, kind, target) in enumerate(PAIRS):
        unfit += [(at, value) for value in of_type(kind) if same(value, kind, target) is None][:2]
    assert len({at for at, _ in unfit}) > len(PAIRS) / 2
    columns = [[value if at == mine else None for mine, value in unfit] for at in range(len(PAIRS))]
    table = table_at(tmp_path / "t", False)
    limits: dict[str, Any] = {"on_bad_rows": hoodoo.BadRowLimits(1_000, 1)}
    result = table.upsert(frame_of(spark, columns, False), **limits)
    assert (result.quarantined, table.scan().count()) == (len(unfit), 0)
    assert set(table.quarantine().rows()["reason"].to_pylist()) == {"cast"}
