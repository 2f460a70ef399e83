"""Rewrites in place: the rows that a dict would have, in files whose untouched parts are the bytes that were there."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiers import sized

import hoodoo
from hoodoo.format.hashing import hash64
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet import hudi_bloom
from hoodoo.format.parquet.raw_copy import CopySource, RowGroupCopier
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.writers.files import in_place

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("word", pa.string()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
GROUP_ROWS = 1024


@pytest.fixture(autouse=True)
def _small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_SMALL", 0)


@pytest.fixture
def taken_apart(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by the path of each file that was written in place."""
    found: list[str] = []
    stored = in_place._Rewrite._store_new_file

    def note(self: Any, *arguments: Any) -> DataFile:
        file = stored(self, *arguments)
        found.append(file.path)
        return file

    monkeypatch.setattr(in_place._Rewrite, "_store_new_file", note)
    return found


def make(path: Path, kind: str = "copy_on_write", order_by: str | tuple[str, ...] | None = "ts") -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="id",
        order_by=order_by,
        type=kind,
        row_group_rows=GROUP_ROWS,
        compact_after_logs=None,
        clean_every=None,
    )


def row(number: int, ts: int, rng: np.random.Generator) -> dict[str, Any]:
    def some(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    return {
        "id": f"k{number:06}",
        "ts": ts,
        "n": some(int(rng.integers(0, 5))),
        "word": some(f"word {rng.integers(0, 20)}"),
        "text": some("".join(map(chr, rng.integers(97, 123, 20)))),
        "tags": some([f"t{rng.integers(0, 9)}", None][: rng.integers(0, 3)]),
        "at": None,
    }


def stored(table: hoodoo.Table) -> dict[str, dict[str, Any]]:
    rows = table.scan().to_arrow().to_pylist()
    found = {one["id"]: one for one in rows}
    assert len(found) == len(rows)
    return found


def base(table: hoodoo.Table) -> DataFile:
    (group,) = table.handle.timeline.history.head().groups()
    assert group.base
    return group.base.file


def chunks(table: hoodoo.Table, column: str) -> list[bytes]:
    """The bytes of a column's chunks, row group by row group."""
    path = Path(table.path, base(table).path)
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    place = metadata.schema.names.index(column)
    found = []
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(place)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        found.append(data[start : start + chunk.total_compressed_size])
    return found


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(1, 8)))
@pytest.mark.parametrize("order_by", [("ts",), ("ts", "n"), ()], ids=["ordered", "by two columns", "later wins"])
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_any_history_leaves_the_rows_of_a_dict(
    tmp_path: Path, kind: str, order_by: tuple[str, ...], seed: int, taken_apart: list[str]
) -> None:
    rng, table, want = np.random.default_rng(seed), make(tmp_path / "t", kind, order_by), dict[str, dict[str, Any]]()
    size = 3000
    for turn in range(12):
        center = rng.integers(0, size)
        near = int(rng.choice([5, 300, size]))
        numbers = np.unique(rng.integers(max(0, center - near), center + near, rng.integers(1, 600)))
        if not turn:
            numbers = np.arange(size)
        if turn % 3 == 2:
            gone = [f"k{number:06}" for number in numbers[: len(numbers) // 2]]
            table.delete(pa.table({"id": gone}))
            for key in gone:
                want.pop(key, None)
        else:
            given = [row(int(number), int(rng.integers(0, 5)) + turn, rng) for number in numbers]
            for one in given if "n" in order_by else ():
                one["n"] = one["n"] or 0
            table.upsert(pa.Table.from_pylist(given, SCHEMA))
            for one in given:
                old = want.get(one["id"])
                if old is None or [one[name] for name in order_by] >= [old[name] for name in order_by]:
                    want[one["id"]] = one
        if kind == "merge_on_read" and turn % 4 == 3:
            table.compact()
        assert stored(table) == want
    if kind == "merge_on_read":
        table.compact()
        assert stored(table) == want
    assert taken_apart
    assert table.verify().problems == []
    found = dict[str, tuple[Any, ...]]()
    for group in table.handle.timeline.history.head().groups():
        file = group.base.file if group.base else None
        assert file
        path = Path(table.path, file.path)
        keys = pq.read_table(path)[RECORD_KEY]
        assert sorted(table.handle.index.key_hashes(file.index)) == sorted(hash64(keys))
        footer = pq.read_metadata(path).metadata
        assert hudi_bloom.find_possible_keys(footer[hudi_bloom.FILTER_KEY.encode()].decode(), keys).all()
        assert footer[hudi_bloom.MIN_KEY.encode()].decode() == min(keys.to_pylist())
        assert footer[hudi_bloom.MAX_KEY.encode()].decode() == max(keys.to_pylist())
        rows = duckdb.sql(f"select id, ts, word, text, tags from '{path}'").fetchall()
        found |= {one[0]: one[1:] for one in rows}
    assert found == {key: (one["ts"], one["word"], one["text"], one["tags"]) for key, one in want.items()}


def test_what_no_change_touches_is_the_bytes_that_were_there(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    given = [row(number, 1, rng) for number in range(4 * GROUP_ROWS)]
    table.upsert(pa.Table.from_pylist(given, SCHEMA))
    before = {name: chunks(table, name) for name in (RECORD_KEY, "id", "ts", "word", "text")}
    changed = [given[n] | {"ts": 2, "word": "other"} for n in range(GROUP_ROWS, GROUP_ROWS + 50)]
    table.upsert(pa.Table.from_pylist(changed, SCHEMA))
    after = {name: chunks(table, name) for name in before}
    for name in (RECORD_KEY, "id", "text"):  # of no row another value
        assert after[name] == before[name]
    for name in ("ts", "word"):
        assert [new == old for new, old in zip(after[name], before[name], strict=True)] == [True, False, True, True]
    assert [one["id"] for one in table.scan().to_arrow().to_pylist()] == [one["id"] for one in given]


def test_a_row_group_without_a_change_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    given = [row(number, 1, rng) for number in range(4 * GROUP_ROWS)]
    table.upsert(pa.Table.from_pylist(given, SCHEMA))
    decoded: list[tuple[int, int]] = []
    decode = in_place.base_file.RowGroupReader.decode

    def note(self: Any, group: int, columns: Any = None) -> pa.Table:
        found = decode(self, group, columns)
        decoded.append((group, found.num_columns))
        return found

    monkeypatch.setattr(in_place.base_file.RowGroupReader, "decode", note)
    table.upsert(pa.Table.from_pylist([given[7] | {"ts": 2}], SCHEMA))
    assert [group for group, columns in decoded if columns > 2] == [0]  # of the others key and ordering value


def test_a_value_that_was_overwritten_is_in_no_byte_of_the_new_file(tmp_path: Path) -> None:
    """A dictionary page that is written anew holds the words that rows have, not those that they had."""
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    given = [row(number, 1, rng) | {"word": "secret" if number == 5 else "plain"} for number in range(200)]
    table.upsert(pa.Table.from_pylist(given, SCHEMA))
    table.upsert(pa.Table.from_pylist([given[5] | {"ts": 2, "word": "plain"}], SCHEMA))
    path = Path(table.path, base(table).path)
    words = pq.ParquetFile(path, read_dictionary=["word"]).read(["word"])["word"]
    assert {word for chunk in words.chunks for word in chunk.dictionary.to_pylist()} == {"plain"}
    statistics = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).names.index("word")).statistics
    assert statistics.max == "plain"


@pytest.mark.both
def test_new_rows_join_a_small_last_row_group_and_many_small_ones_become_few(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    table.upsert(pa.Table.from_pylist([row(number, 1, rng) for number in range(GROUP_ROWS)], SCHEMA))
    most, number = 0, GROUP_ROWS
    for turn in range(sized(15, 40)):
        more = int(rng.integers(1, 120))
        table.upsert(pa.Table.from_pylist([row(n, turn + 2, rng) for n in range(number, number + more)], SCHEMA))
        number += more
        groups = pq.read_metadata(Path(table.path, base(table).path)).num_row_groups
        most = max(most, groups - 2 * -(-number // GROUP_ROWS))
    assert most <= 0
    assert len(stored(table)) == number


def test_a_filter_that_holds_too_many_keys_that_are_gone_is_made_anew(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    keep = [row(number, 1, rng) for number in range(500)]
    table.upsert(pa.Table.from_pylist(keep, SCHEMA))
    for turn in range(1, 8):
        fresh = [row(1000 * turn + n, 1, rng) for n in range(200)]
        table.upsert(pa.Table.from_pylist(fresh, SCHEMA))
        table.delete(pa.table({"id": [one["id"] for one in fresh]}))
    footer = pq.read_metadata(Path(table.path, base(table).path)).metadata
    filter_ = footer[hudi_bloom.FILTER_KEY.encode()].decode()
    strangers = pa.array([f"stranger {n}" for n in range(20_000)])
    assert hudi_bloom.find_possible_keys(filter_, strangers).mean() < 6e-3
    assert hudi_bloom.find_possible_keys(filter_, pa.array([one["id"] for one in keep])).all()
    assert table.verify().problems == []


def test_deleting_all_rows_leaves_a_file_that_all_read(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    given = [row(number, 1, rng) for number in range(300)]
    table.upsert(pa.Table.from_pylist(given, SCHEMA))
    table.delete(pa.table({"id": [one["id"] for one in given]}))
    assert stored(table) == {}
    assert table.verify().problems == []
    table.upsert(pa.Table.from_pylist(given[:5], SCHEMA))
    assert len(stored(table)) == 5


def test_columns_with_other_rows_than_their_row_group_are_refused() -> None:
    def file(rows: int) -> CopySource:
        sink = pa.BufferOutputStream()
        columns = {"_hoodie_file_name": pa.array(["f"] * rows), "n": pa.array(range(rows))}
        pq.write_table(pa.table(columns), sink, store_schema=False)
        return CopySource.parse(sink.getvalue())

    source = file(3)
    with pytest.raises(ValueError, match="different number of rows"):
        RowGroupCopier(pa.BufferOutputStream(), "g", "zstd").add_group(source, source.groups()[0], file(2))


KINDS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, 2, -128],
    pa.int64(): [1, -(1 << 63), (1 << 63) - 1],
    pa.float32(): [0.5, -0.0, 0.0, float("inf")],
    pa.float64(): [0.1, -0.0, 0.0, float("-inf")],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "é" * 50],
    pa.binary(): [b"", b"\x00\xff"],
    pa.date32(): [dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    pa.timestamp("us"): [dt.datetime(2026, 1, 1, 1, 2, 3, 4)],
    pa.decimal128(20, 3): [Decimal("1.250"), Decimal("-99999999999999999.999")],
    pa.list_(pa.float64()): [[], [1.0, None], [-0.0]],
    pa.map_(pa.string(), pa.int64()): [[], [("a", 1)], [("a", None), ("b", 2)]],
    pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]): [{"x": 1, "y": None}, {"x": None, "y": ["b"]}],
}


@pytest.mark.both
@pytest.mark.parametrize("seed", range(sized(1, 8)))
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_columns_of_every_type_are_what_a_merge_of_whole_files_makes_of_them(
    tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, taken_apart: list[str]
) -> None:
    rng = np.random.default_rng(seed)
    values = [(f"c{n}", kind_, some) for n, (kind_, some) in enumerate(KINDS.items())]
    schema = pa.schema(
        [("a", pa.string()), ("b", pa.int64()), ("day", pa.date32()), ("p", pa.string())]
        + [(name, kind_) for name, kind_, _ in values]
    )

    def batch(numbers: np.ndarray) -> pa.Table:
        def pick(some: list[Any]) -> Any:
            place = int(rng.integers(0, len(some) + 1))
            return None if place == len(some) else some[place]

        rows = [
            {"a": f"k{n % 7}", "b": int(n), "day": dt.date(2026, 1, 1 + int(n) % 2), "p": "x"}
            | {name: pick(some) for name, _, some in values}
            for n in numbers.tolist()
        ]
        return pa.Table.from_pylist(rows, schema)

    tables = {
        small: hoodoo.create(
            tmp_path / str(small),
            schema,
            key=("a", "b"),
            partition_by=("p", "day"),
            type=kind,
            row_group_rows=64,
            compact_after_logs=None,
            clean_every=None,
        )
        for small in (0, 1 << 40)
    }
    for turn in range(8):
        numbers = np.arange(400) if not turn else np.unique(rng.integers(0, 500, rng.integers(1, 120)))
        given, delete = batch(numbers), turn % 4 == 3
        for small, table in tables.items():
            monkeypatch.setattr(in_place, "_SMALL", small)
            if delete:
                table.delete(given.select(["a", "b", "p", "day"]))
            else:
                table.upsert(given)
            if turn % 3 == 2 and kind == "merge_on_read":
                table.compact()
        found, want = (
            table.scan().to_arrow().sort_by([("a", "ascending"), ("b", "ascending")]) for table in tables.values()
        )
        assert str(found.to_pylist()) == str(want.to_pylist())  # as text, so that 0.0 is not -0.0
    assert taken_apart
    for table in tables.values():
        assert table.verify().problems == []


_PEAK = """
import sys, pyarrow as pa, hoodoo
table = hoodoo.open(sys.argv[1])
changed = pa.table({"id": ["k000007", "k150000", "new"], "ts": [9, 9, 9]}).cast(table.schema.remove(2).remove(2))
rows = changed.append_column("word", pa.array(["w"] * 3)).append_column("text", pa.array(["t"] * 3))
table.upsert(rows)
print(pa.default_memory_pool().max_memory())
"""


def test_an_upsert_into_a_large_file_holds_a_row_group_of_it_and_not_the_file(tmp_path: Path) -> None:
    count = 200_000
    letters = np.random.default_rng(0).integers(97, 123, (count, 100), np.uint8)
    text = pa.array(letters.view("S100").ravel().astype(str).tolist())
    rows = pa.table(
        {"id": [f"k{n:06}" for n in range(count)], "ts": [1] * count, "word": ["plain"] * count, "text": text}
    )
    table = hoodoo.create(
        tmp_path / "t", rows.schema, key="id", order_by="ts", type="copy_on_write", row_group_rows=5000
    )
    table.insert(rows, bulk=True)
    assert base(table).rows == count
    command = [sys.executable, "-c", _PEAK, table.path]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert peak < rows.nbytes / 3, peak
    found = table.scan(where="ts = 9").to_arrow()
    assert sorted(found["id"].to_pylist()) == ["k000007", "k150000", "new"]
    assert len(table.scan(columns=["id"]).to_arrow()) == count + 1
