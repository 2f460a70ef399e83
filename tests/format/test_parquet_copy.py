"""Row groups copied as raw bytes: the new file is what decoding and encoding would give, to every reader, and its page
checksums still guard it.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_tables import NAMES, unpack
from hypothesis import given, settings
from hypothesis import strategies as st

from hoodoo.errors import CorruptTable
from hoodoo.format.names import COMMIT_TIME, FILE_NAME, META_COLUMNS, RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.hudi_bloom import bloom_and_key_range
from hoodoo.format.parquet.raw_copy import (
    CannotCopyFile,
    CopySource,
    RowGroupCopier,
    copied_bytes,
    require_compatible_files,
)

INSTANTS = ["20260101000000000", "20260102000000000"]
NEW = "new-0_0-0-0_20260103000000000.parquet"


def table(first: int, rows: int, seed: int = 0, file_name: str = "old", instant: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    own = {
        "n": pa.array(rng.integers(-1000, 1000, rows), mask=rng.random(rows) < 0.1),
        "x": pa.array(rng.random(rows)),
        "s": pa.array([f"v{v}" for v in rng.integers(0, 5, rows)]),
        "tags": pa.array([[str(v)] * (v % 3) if v else None for v in rng.integers(0, 9, rows)], pa.list_(pa.string())),
        "at": pa.array(rng.integers(0, 1 << 48, rows), pa.timestamp("us", "UTC")),
        "d": pa.array([None] * rows, pa.decimal128(20, 3)),
    }
    keys = pa.array([f"k{n:07d}" for n in range(first, first + rows)], pa.string())
    return base_file.with_meta(pa.table(own), INSTANTS[instant], 0, keys, "city=p", file_name)


def encoded(rows: pa.Table, compression: str = "zstd", group: int = 100) -> base_file.EncodedBaseFile:
    return base_file.encode_base_file(rows, compression, group)


def copied(files: list[Any], footer: dict[str, str] | None = None, compression: str = "zstd") -> tuple[bytes, Any]:
    sources = [CopySource.parse(file) for file in files]
    require_compatible_files(sources)
    sink = io.BytesIO()
    copier = RowGroupCopier(sink, NEW, compression)
    for source in sources:
        copier.add(source)
    stats = copier.close(footer or {})
    return sink.getvalue(), stats


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.to_pylist()


def test_the_copy_has_the_rows_of_all_files_in_order_with_the_new_file_name_for_every_reader(tmp_path: Path) -> None:
    parts = [table(0, 250, 1, "one"), table(250, 90, 2, "two", 1), table(340, 301, 3, "three")]
    data, _ = copied([encoded(part).data for part in parts])
    path = tmp_path / "copy.parquet"
    path.write_bytes(data)
    wanted = plain(
        pa.concat_tables(
            [table(0, 250, 1, NEW), table(250, 90, 2, NEW, 1), table(340, 301, 3, NEW)]
        ).unify_dictionaries()
    )
    assert plain(pq.read_table(path, page_checksum_verification=True)) == wanted
    assert pl.read_parquet(path).to_dicts() == wanted
    names = [name for name in wanted[0] if name not in ("tags", "at")]
    assert duckdb.sql(f"SELECT {', '.join(names)} FROM '{path}'").fetchall() == [
        tuple(row[name] for name in names) for row in wanted
    ]
    assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE n > 900 AND {FILE_NAME} = '{NEW}'").fetchall() == [
        (sum(row["n"] is not None and row["n"] > 900 for row in wanted),)
    ]


def test_statistics_and_footer_are_those_that_encoding_the_rows_would_give() -> None:
    parts = [table(0, 250, 1), table(250, 90, 2, instant=1)]
    keys = pa.chunked_array([part[RECORD_KEY].chunk(0) for part in parts])
    both = pa.concat_tables([table(0, 250, 1, NEW), table(250, 90, 2, NEW, 1)]).unify_dictionaries()
    reference = encoded(both)
    data, stats = copied([encoded(part).data for part in parts], bloom_and_key_range(keys))
    assert stats == reference.stats and stats[COMMIT_TIME] == [*INSTANTS, 0]
    assert base_file.read_footer(pa.BufferReader(data), "") == base_file.read_footer(
        pa.BufferReader(reference.data), ""
    )
    metadata, expected = pq.read_metadata(io.BytesIO(data)), pq.read_metadata(pa.BufferReader(reference.data))
    assert (
        metadata.num_rows == 340
        and metadata.schema.equals(expected.schema)
        and metadata.created_by == expected.created_by
    )
    names = metadata.row_group(0).column(META_COLUMNS.index(FILE_NAME)).statistics
    assert (names.min, names.max, names.null_count) == (NEW, NEW, 0)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 130), st.sampled_from(["zstd", "snappy", "gzip", "none"])), min_size=1, max_size=5
    ),
    st.integers(1, 150),
)
def test_files_of_any_size_and_codec_with_rows_can_be_copied_and_the_copy_again(
    parts: list[tuple[int, str]], group: int
) -> None:
    tables, first = [], 0
    for number, (rows, _) in enumerate(parts):
        tables.append(table(first, rows, number))
        first += rows
    files = [encoded(rows, codec, group).data for rows, (_, codec) in zip(tables, parts, strict=True)]
    wanted = [row | {FILE_NAME: NEW} for rows in tables for row in plain(rows)]
    once, _ = copied(files, compression=parts[0][1])
    assert plain(pq.read_table(io.BytesIO(once), page_checksum_verification=True)) == wanted
    twice, _ = copied([once, files[0]])
    assert plain(pq.read_table(io.BytesIO(twice), page_checksum_verification=True)) == wanted + [
        row | {FILE_NAME: NEW} for row in plain(tables[0])
    ]


def test_a_bit_flipped_in_a_copied_page_is_noticed_by_the_page_checksum() -> None:
    file = encoded(table(0, 500, 4)).data
    data = bytearray(copied([file])[0])
    column = pq.read_metadata(io.BytesIO(bytes(data))).row_group(2).column(6)
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 4
    with pytest.raises(CorruptTable):
        base_file.read_base_file(pa.BufferReader(bytes(data)), "copy", pa.schema([("x", pa.float64())]))


def test_only_the_chunks_of_the_name_column_are_encoded_anew() -> None:
    file = encoded(table(0, 1000, 5)).data
    source = CopySource.parse(file)
    data, _ = copied([file])
    for number, group in enumerate(source.groups()):
        for place, chunk in enumerate(group[1][1][1]):
            meta = chunk[3][1]
            start = meta[11][1] if 11 in meta else meta[9][1]
            raw = file.slice(start, meta[7][1]).to_pybytes()
            assert (raw in data) == (place != META_COLUMNS.index(FILE_NAME)), (number, place)
    assert 0 < copied_bytes(source) <= len(file)


def without(rows: pa.Table, name: str) -> pa.Table:
    return rows.drop_columns([name])


def test_files_of_different_schemas_or_writers_are_refused() -> None:
    one = encoded(table(0, 10)).data
    others = [
        encoded(without(table(10, 10), "x")).data,
        encoded(table(10, 10).set_column(6, "x", pa.array(range(10)))).data,
        encoded(table(10, 10).rename_columns([*table(0, 1).schema.names[:-1], "e"])).data,
    ]
    for other in others:
        with pytest.raises(CannotCopyFile, match="different schemas"):
            copied([one, other])
    strange = CopySource.parse(one)
    strange.footer[6] = (8, b"parquet-mr version 1.10.1")
    with pytest.raises(CannotCopyFile, match="different Parquet writers"):
        require_compatible_files([CopySource.parse(one), strange])


def test_a_file_that_demands_a_name_in_every_row_is_refused() -> None:
    rows = table(0, 10)
    rows = rows.cast(
        pa.schema([field.with_nullable(False) if field.name == FILE_NAME else field for field in rows.schema])
    )
    with pytest.raises(CannotCopyFile):
        CopySource.parse(encoded(rows).data)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_footer_is_understood_or_refused_but_never_another_error(data: st.DataObject) -> None:
    file = bytearray(encoded(table(0, 30, 1), group=10).data.to_pybytes())
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(max(0, len(file) - 3000), len(file) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    with contextlib.suppress(CannotCopyFile):
        CopySource.parse(bytes(file[: len(file) - cut]))


@pytest.mark.parametrize("name", NAMES)
def test_base_files_that_apache_hudi_wrote_are_copied_to_the_same_rows(tmp_path: Path, name: str) -> None:
    paths = [path for path in unpack(name, tmp_path).rglob("*.parquet") if ".hoodie" not in path.parts]
    assert paths
    for path in paths:
        data, _ = copied([path.read_bytes()])
        before, after = pq.read_table(path, partitioning=None), pq.read_table(io.BytesIO(data))
        assert after.drop_columns([FILE_NAME]).equals(before.drop_columns([FILE_NAME]))
        assert set(after[FILE_NAME].to_pylist()) <= {NEW}
