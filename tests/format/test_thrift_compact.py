"""The generic Thrift codec: what it does not understand it keeps, byte for byte."""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_tables import unpack
from hypothesis import given
from hypothesis import strategies as st

from hoodoo.format.parquet.thrift_compact import decode, encode


def footer_of(data: bytes) -> bytes:
    (length,) = struct.unpack("<I", data[-8:-4])
    return data[-8 - length : -8]


def written(table: pa.Table, **how: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def many_columns() -> pa.Table:
    return pa.table({f"c{n}": pa.array([[n, None]], pa.list_(pa.int32())) for n in range(40)})


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"write_page_index": True},
        {"store_schema": False, "version": "1.0"},
        {"compression": "none", "use_dictionary": False},
    ],
)
def test_footers_that_pyarrow_writes_come_back_byte_for_byte(how: dict[str, object]) -> None:
    for table in (many_columns(), pa.table({"x": pa.array(range(100_000)), "s": pa.array(["ü"] * 100_000)})):
        footer = footer_of(written(table, row_group_size=1000, **how))
        assert encode(decode(footer)) == footer


def test_footers_that_apache_hudi_wrote_come_back_byte_for_byte(tmp_path: Path) -> None:
    files = [path for name in ("cow_types", "mor_clustered") for path in unpack(name, tmp_path).rglob("*.parquet")]
    assert files
    for path in files:
        footer = footer_of(path.read_bytes())
        assert encode(decode(footer)) == footer


@given(st.binary(max_size=300))
def test_any_bytes_are_a_struct_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(data)


@given(st.data())
def test_a_damaged_footer_is_a_struct_or_a_value_error(data: st.DataObject) -> None:
    footer = bytearray(footer_of(written(many_columns())))
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        decode(bytes(footer))


def test_a_list_that_claims_more_than_there_is_costs_nothing() -> None:
    with pytest.raises(ValueError, match="a Thrift list is truncated"):
        decode(bytes([0x19, 0xF5, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]))
