"""Numbers of a batch go into a column that has the same ones, whatever their types could hold; all others are refused.

It happened that 2 was refused by decimal(10, 2), as int64 has values that it has not, 2^60 by float64 and 1441.6 by
decimal(10, 2); that Decimal("0.3") became 0.30000000000000004, and a large decimal(38, 0) some other number in
decimal(38, 30), without a word. Every pair of types is tried, against Python's fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from same_numbers import GIVEN, KEPT, Number, of_type, same

import hoodoo
from hoodoo.writers.batches.cast import cast_column, find_uncastable_rows

KINDS = ("merge_on_read", "copy_on_write")


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_float16(kind):
        return pa.array([None if value is None else np.float16(value) for value in values], kind)
    return pa.array(values, kind)


def in_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def in_struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values, values.is_valid()], ["x", "there"])


def in_map(values: pa.Array) -> pa.Array:
    keys = pa.array(["k"] * len(values), pa.string())
    return pa.MapArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), keys, values)


SHAPES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "in a list": in_list,
    "in a struct": in_struct,
    "in a map of lists": lambda values: in_map(in_list(values)),
}


def texts(values: list[Number | None]) -> list[str]:
    """As text, which tells -0.0, 2.0 and 2.00 apart, as values of one type."""
    return [str(value) for value in values]


@pytest.mark.parametrize("kind", GIVEN, ids=str)
def test_each_number_is_the_same_in_the_column_or_refused(kind: pa.DataType) -> None:
    values = of_type(kind)
    for target in KEPT:
        wanted = [same(value, kind, target) for value in values]
        field, column = pa.field("x", target), pa.chunked_array([array(list(values), kind)])
        refused = [row for row, value in enumerate(wanted) if value is None]
        assert find_uncastable_rows(column, field, len(values)) == refused, f"{kind} into {target}"
        fitting = [row for row, value in enumerate(wanted) if value is not None]
        assert texts(cast_column(column.take(pa.array(fitting, pa.int64())), field).to_pylist()) == texts(
            [wanted[row] for row in fitting]
        ), f"{kind} into {target}"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", GIVEN, ids=str)
def test_numbers_inside_of_columns_are_taken_and_refused_as_at_the_top(kind: pa.DataType, shape: str) -> None:
    made = SHAPES[shape]
    for target in KEPT:
        field = pa.field("x", made(array([], target)).type)
        for value in of_type(kind)[::23]:
            wanted, column = same(value, kind, target), pa.chunked_array([made(array([value, None], kind))])
            if wanted is None:
                assert find_uncastable_rows(column, field, 2) == [0], f"{value!r} of {kind} into {target}"
            else:
                assert cast_column(column, field).combine_chunks().equals(made(array([wanted, None], target)))


def test_what_is_no_number_stays_so_in_floats_and_is_refused_elsewhere() -> None:
    odd = [float("nan"), float("inf"), -float("inf"), -0.0, None]
    for kind, target in ((pa.float64(), pa.float32()), (pa.float32(), pa.float64()), (pa.float16(), pa.float64())):
        found = cast_column(pa.chunked_array([array(odd, kind)]), pa.field("x", target))
        assert texts(found.to_pylist()) == texts(odd)
    for kind in (pa.float32(), pa.float64()):
        for target in (pa.int64(), pa.decimal128(10, 2), pa.decimal128(38, 30)):
            assert find_uncastable_rows(pa.chunked_array([array(odd, kind)]), pa.field("x", target), 5) == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "price": 2}],
        {"id": [1], "price": [2]},
        pd.DataFrame({"id": [1], "price": [2]}),
        pd.DataFrame({"id": [1], "price": [2.0]}),
        pa.table({"id": [1], "price": pa.array([2], pa.uint64())}),
    ],
    ids=["dicts", "columns", "pandas", "pandas floats", "arrow"],
)
def test_a_whole_number_goes_into_a_decimal_column_from_wherever_it_comes(tmp_path: Path, kind: str, rows: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind)
    table.upsert(rows, on_bad_rows="quarantine")
    assert table.scan().to_arrow()["price"].to_pylist() == [Decimal("2.00")]
    assert table.quarantine().count() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_found_and_deleted_by_any_number_that_it_is(tmp_path: Path, kind: str) -> None:
    schema = pa.schema([("id", pa.decimal128(38, 0)), ("part", pa.decimal128(6, 2)), ("v", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="part", type=kind)
    large = 2**70  # more than Arrow takes by itself
    table.upsert([{"id": number, "part": 2, "v": 1} for number in (5, 6, large)])
    for key in (5, 5.0, Decimal(5), np.uint8(5)):
        assert table.get([key])["id"].to_pylist() == [Decimal(5)]
    assert table.get([{"id": large, "part": 2.0}]).num_rows == 1
    assert table.get([large, 6])["id"].to_pylist() == [Decimal(large), Decimal(6)]
    table.delete([{"id": 5, "part": 2}, {"id": large, "part": Decimal(2)}])
    assert table.scan().to_arrow()["id"].to_pylist() == [Decimal(6)]


def test_partitions_are_named_by_any_number_that_they_are(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.decimal128(6, 2)), ("year", pa.int32())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by=["part", "year"])
    table.upsert([{"id": number, "part": number, "year": 2026} for number in (1, 2, 3)])
    table.delete_partitions([{"part": 2.0, "year": Decimal(2026)}, {"part": Decimal("3.0"), "year": 2026.0}])
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(hoodoo.PartitionValueError, match="cannot be converted to its column type"):
        table.delete_partitions([{"part": 2.001, "year": 2026}])


def test_a_writer_goes_on_after_its_column_became_a_decimal(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("x", pa.int32())]), key="id")
    table.upsert([{"id": 1, "x": 7}])
    table.alter.widen_column("x", pa.decimal128(12, 2))
    table.upsert([{"id": 1, "x": 8}])
    assert table.scan().to_arrow()["x"].to_pylist() == [Decimal("8.00")]


def test_python_integers_of_any_size_go_into_a_float_that_has_them(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("x", pa.float64())]), key="id")
    table.upsert([{"id": 1, "x": 2**63}, {"id": 2, "x": -(2**70)}, {"id": 3, "x": 1}])
    assert table.scan().to_arrow()["x"].to_pylist() == [2.0**63, -(2.0**70), 1.0]
    with pytest.raises(hoodoo.ColumnError, match=r"'x', row 1: .* cannot be converted exactly"):
        table.upsert([{"id": 1, "x": 2**63}, {"id": 2, "x": 2**70 + 1}])


@pytest.mark.parametrize(
    "values",
    [[2**70], [2**70, 1, None], [1, 2**70, Decimal("1.25")]],
    ids=["large", "large and small", "large and a fraction"],
)
def test_python_numbers_of_any_size_go_into_a_decimal_that_has_them(tmp_path: Path, values: list[Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("d", pa.decimal128(38, 2))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    for rows in (
        {"id": range(len(values)), "d": values},
        pd.DataFrame({"id": range(len(values)), "d": values}, dtype=object),
    ):
        table.insert_overwrite(rows)
        assert table.get(list(range(len(values))))["d"].to_pylist() == values
    with pytest.raises(hoodoo.ColumnError, match=r"'d', row 1: .* cannot be converted exactly"):
        table.upsert({"id": [1, 2], "d": [1, 10**37]})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.decimal128(10, 2), [2, 2.0, 0.5, Decimal("1.50")]),
        (pa.decimal128(38, 0), [2**70, 1e23]),
        (pa.int64(), [2.0, Decimal("2.0"), -(2**63)]),
        (pa.float32(), [0.1, Decimal("0.1"), 2**60]),
        (pa.float64(), [0.1, Decimal("0.1"), 2**60]),
    ],
    ids=str,
)
def test_a_default_is_taken_as_a_number_of_a_batch_is(tmp_path: Path, kind: pa.DataType, given: list[Any]) -> None:
    """0.5 was no default of a decimal, and 1/3 one of float32, of which it kept half the digits."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    for at, value in enumerate(given):
        table.alter.add_column(f"c{at}", kind, default=value)
        table.alter.add_column(f"d{at}", kind, default=None)
    table.upsert([{"id": 1, **{f"d{at}": value for at, value in enumerate(given)}}])
    row = table.scan().to_arrow().to_pylist()[0]
    assert [row[f"c{at}"] for at in range(len(given))] == [row[f"d{at}"] for at in range(len(given))]
    assert None not in row.values()
    for value in (1 / 3, 10**38 + 1, Decimal("0.12345678901234567890")):
        if kind != pa.float64() or not isinstance(value, float):
            with pytest.raises(hoodoo.SchemaError, match="Default of column 'no' has the wrong type"):
                table.alter.add_column("no", kind, default=value)


@pytest.mark.parametrize("kind", [pa.uint64(), pa.decimal256(50, 0), pa.float16()], ids=str)
def test_a_batch_that_may_change_columns_is_no_reason_to_refuse_numbers_that_fit(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """evolve=True refused types that no table has, for columns that had the batch's values as they were."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.decimal128(10, 2))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert(pa.table({"id": [1], "x": array([2], kind), "new": ["n"]}), evolve=True)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "x": Decimal("2.00"), "new": "n"}]
    with pytest.raises(hoodoo.SchemaError, match="another"):
        table.upsert(pa.table({"id": [1], "x": [2], "new": ["n"], "y": array([2], kind)}), evolve=True)
