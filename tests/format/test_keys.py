"""Record keys and partition paths against a slow oracle that spells one row at a time."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoodoo.errors import ColumnError, CorruptTable, KeyValueError, PartitionValueError, SchemaError
from hoodoo.format import keys

UTC = dt.timezone.utc
TEXT = st.text(st.one_of(st.sampled_from("ab,:/=%.\\ é\x7f\n'"), st.characters(exclude_categories=["Cs"])), max_size=6)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.decimal128(12, 3): st.decimals(-999, 999, places=3),
    pa.decimal128(30, 12): st.decimals(-1, 1, places=12),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
}
TYPES = list(VALUES)


def spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        return str((value - dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)) // dt.timedelta(microseconds=1))
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def spelled_key(row: dict[str, Any], key: list[str], partition: list[str]) -> str | None:
    """None for a key that is refused."""
    texts = [None if row[c] is None else spelled(row[c]) for c in key]
    if None in texts or not any(texts):
        return None
    if len(key) == 1 and len(partition) < 2:
        return texts[0]
    for c, text in zip(key, texts, strict=True):
        if isinstance(row[c], str) and (text in ("__null__", "__empty__") or any(f",{k}:" in text for k in key)):
            return None
    return ",".join(f"{c}:{'__empty__' if row[c] == '' else text}" for c, text in zip(key, texts, strict=True))


def spelled_path(row: dict[str, Any], partition: list[str], hive: bool, encode: bool) -> str | None:
    """None for a path that is refused."""
    segments = []
    for c in partition:
        text = spelled(row[c]) if row[c] is not None else ""
        if text == keys.DEFAULT_PARTITION or "\0" in text:
            return None
        if encode:
            text = "".join(
                f"%{ord(x):02X}" if ord(x) < 32 or ord(x) == 127 or x in "\"#%'*/:=?\\{[]^" else x for x in text
            )
        segments.append((f"{c}=" if hive else "") + (text or keys.DEFAULT_PARTITION))
    path = "/".join(segments)
    if path and any(s in ("", ".", "..") or len(s.encode()) > 255 for s in path.split("/")):
        return None
    return None if "\\" in path or "://" in path or path.split("/")[0] == ".hoodie" else path


def table(columns: dict[str, tuple[pa.DataType, list[Any]]], pieces: int = 1) -> pa.Table:
    whole = pa.table({name: pa.array(values, type_) for name, (type_, values) in columns.items()})
    step = max(1, -(-whole.num_rows // pieces))
    parts = [whole.slice(at, step) for at in range(0, whole.num_rows, step)]
    return pa.concat_tables(parts) if parts else whole


@st.composite
def tables(draw: st.DrawFn, nulls: bool) -> pa.Table:
    size = draw(st.integers(0, 8))
    columns = {}
    for name in ("a", "b", "c"):
        type_ = draw(st.sampled_from(TYPES))
        value = st.one_of(st.none(), VALUES[type_]) if nulls else VALUES[type_]
        columns[name] = (type_, draw(st.lists(value, min_size=size, max_size=size)))
    return table(columns, pieces=draw(st.integers(1, 3)))


@settings(max_examples=200)
@given(
    tables(nulls=False), st.sampled_from([["a"], ["a", "b"], ["b", "c", "a"]]), st.sampled_from([[], ["c"], ["b", "c"]])
)
def test_keys_are_spelled_as_the_slow_oracle_spells_them(rows: pa.Table, key: list[str], partition: list[str]) -> None:
    expected = [spelled_key(row, key, partition) for row in rows.to_pylist()]
    if None in expected:
        with pytest.raises(KeyValueError):
            keys.compute_record_keys(rows, key, partition)
    else:
        assert keys.compute_record_keys(rows, key, partition).to_pylist() == expected


@settings(max_examples=200)
@given(tables(nulls=True), st.sampled_from([[], ["a"], ["a", "b"], ["c", "a", "b"]]), st.booleans(), st.booleans())
def test_paths_are_spelled_as_the_slow_oracle_spells_them(
    rows: pa.Table, partition: list[str], hive: bool, encode: bool
) -> None:
    expected = [spelled_path(row, partition, hive, encode) for row in rows.to_pylist()]
    if None in expected:
        with pytest.raises(PartitionValueError):
            keys.compute_partition_paths(rows, partition, hive, encode)
        return
    paths = keys.compute_partition_paths(rows, partition, hive, encode)
    assert paths.type == pa.dictionary(pa.int32(), pa.string())
    assert paths.to_pylist() == expected
    assert len(set(paths.dictionary.to_pylist())) == len(paths.dictionary)
    assert not partition or set(paths.dictionary.to_pylist()) == set(expected)


@settings(max_examples=200)
@given(tables(nulls=True), st.sampled_from([["a"], ["a", "b"], ["c", "a", "b"]]), st.booleans())
def test_a_path_gives_back_the_values_it_was_made_of(rows: pa.Table, partition: list[str], hive: bool) -> None:
    try:
        paths = keys.compute_partition_paths(rows, partition, hive)
    except PartitionValueError:
        return
    for path, row in zip(paths.to_pylist(), rows.to_pylist(), strict=True):
        expected = {c: None if row[c] in ("", b"") else row[c] for c in partition}
        assert keys.parse_partition_values(path, partition, rows.schema, hive) == expected


@settings(max_examples=100)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=6, unique=True))
def test_two_different_keys_never_read_alike(pairs: list[tuple[str, str]]) -> None:
    accepted = []
    for a, b in pairs:
        try:
            accepted += keys.compute_record_keys(
                table({"a": (pa.string(), [a]), "b": (pa.string(), [b])}), ["a", "b"], []
            ).to_pylist()
        except KeyValueError:
            continue
    assert len(set(accepted)) == len(accepted)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (pa.decimal128(10, 2), Decimal("12.5"), "12.50"),
        (pa.date32(), dt.date(2024, 1, 2), "2024-01-02"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, 678901, UTC), "1704164645678901"),
        (pa.timestamp("ms"), dt.datetime(2024, 1, 2, 3, 4, 5, 678000), "1704164645678000"),
        (pa.bool_(), True, "true"),
        (pa.binary(), b"ab", "6162"),
        (pa.binary(), b"\xff\x00", "ff00"),
        (pa.int8(), -1, "-1"),
        (pa.large_string(), "é", "é"),
        (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
    ],
)
def test_each_type_has_the_text_that_apache_hudi_gives_it(type_: pa.DataType, value: Any, text: str) -> None:
    rows = table({"k": (type_, [value, value])})
    assert keys.compute_record_keys(rows, ["k"], ["p"]).to_pylist() == [text, text]
    assert keys.compute_record_keys(rows, ["k"], ["p", "q"]).to_pylist() == [f"k:{text}"] * 2


@pytest.mark.parametrize(
    ("columns", "named", "row"),
    [
        ({"a": ["x", None]}, "a", 1),
        ({"a": ["x", ""]}, "a", 1),
        ({"a": ["x", "y"], "b": ["1", None]}, "b", 1),
        ({"a": ["x", "y"], "b": ["1", "2,a:3"]}, "b", 1),
        ({"a": ["x", "y,b:1"], "b": ["1", "2"]}, "a", 1),
        ({"a": ["__null__", "y"], "b": ["1", "2"]}, "a", 0),
        ({"a": ["x", "__empty__"], "b": ["1", "2"]}, "a", 1),
        ({"a": ["x", "k" * (keys.KEY_CAP + 1)]}, "a", 1),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_by_column_and_row(
    columns: dict[str, list[Any]], named: str, row: int
) -> None:
    with pytest.raises(KeyValueError, match=rf"'{named}'.* row {row}\b") as refusal:
        keys.compute_record_keys(pa.table(columns), list(columns), [])
    assert refusal.value.details["row"] == row
    assert len(str(refusal.value)) < 400


def test_a_single_key_may_be_any_text_since_nothing_stands_beside_it() -> None:
    texts = ["__null__", "__empty__", ",a:", "k" * keys.KEY_CAP]
    assert keys.compute_record_keys(pa.table({"a": texts}), ["a"], ["p"]).to_pylist() == texts


@pytest.mark.parametrize(
    ("value", "hive", "encode"),
    [
        (keys.DEFAULT_PARTITION, True, True),
        ("a\0b", True, True),
        ("x" * 256, False, True),
        ("é" * 130, True, True),
        ("%" * 90, True, True),
        (".", False, True),
        ("..", False, True),
        ("a/../b", True, False),
        ("/a", False, False),
        ("a\\b", True, False),
        ("s3://b", True, False),
        (".hoodie", False, True),
    ],
)
def test_a_value_that_cannot_be_a_folder_is_refused_by_column_and_value(value: str, hive: bool, encode: bool) -> None:
    with pytest.raises(PartitionValueError, match="'day'") as refusal:
        keys.compute_partition_paths(pa.table({"day": ["ok", value]}), ["day"], hive, encode)
    assert refusal.value.details["value"] == value


def test_a_date_that_readers_could_not_name_is_refused() -> None:
    with pytest.raises(PartitionValueError, match="10183-09-21"):
        keys.compute_partition_paths(pa.table({"day": pa.array([3000000], pa.int32()).cast(pa.date32())}), ["day"])


def test_exactly_the_characters_of_apache_hudi_are_encoded() -> None:
    (path,) = keys.compute_partition_paths(pa.table({"c": ["a b/c=d%:'[]{}é.$&+,;@~`|<>()-_"]}), ["c"]).to_pylist()
    assert path == "c=a b%2Fc%3Dd%25%3A%27%5B%5D%7B}é.$&+,;@~`|<>()-_"


@pytest.mark.parametrize("path", ["day=2024-13-01", "2024-01-01", "hour=1", "day=2024-01-01/x=1", "day=", ""])
def test_a_path_that_does_not_fit_the_columns_is_refused(path: str) -> None:
    with pytest.raises(CorruptTable):
        keys.parse_partition_values(path, ["day"], pa.schema([("day", pa.date32())]))


def test_a_value_with_slashes_comes_back_from_a_path_that_is_not_encoded() -> None:
    schema = pa.schema([("day", pa.string())])
    assert keys.parse_partition_values("2024/01/02", ["day"], schema, hive_style=False, url_encode=False) == {
        "day": "2024/01/02"
    }
    assert keys.parse_partition_values("", [], schema) == {}


def test_many_rows_in_few_partitions_are_looked_at_only_once_per_value(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    encode = keys._encode
    monkeypatch.setattr(keys, "_encode", lambda *args: seen.append(args[1]) or encode(*args))
    rows = pa.table({"a": pa.array(["x", "y"] * 5000), "b": pa.array([1, 2, 3, 4, 5] * 2000)})
    assert len(keys.compute_partition_paths(rows, ["a", "b"]).dictionary) == 10
    assert len(seen) == 7


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ColumnError, match="'b'"):
        keys.compute_record_keys(pa.table({"a": [1]}), ["b"], [])
    with pytest.raises(ColumnError, match="'b'"):
        keys.compute_partition_paths(pa.table({"a": [1]}), ["b"])


SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.int32())),
        ("o", pa.bool_()),
        ("t", pa.time64("us")),
        ("b", pa.binary()),
    ]
)


@pytest.mark.parametrize(
    ("key", "partition_by", "order_by", "named"),
    [
        ([], [], [], "key"),
        (["x"], [], [], "x"),
        (["i", "i"], [], [], "i"),
        (["i"], ["s", "s"], [], "s"),
        (["i"], [], ["x"], "x"),
        (["f"], [], [], "f"),
        (["i"], ["f"], [], "f"),
        (["l"], [], [], "l"),
        (["t"], [], [], "t"),
        (["i"], [], ["o"], "o"),
        (["i"], [], ["b"], "b"),
        (["i"], [], ["l"], "l"),
        (["i"], [], ["s", "b"], "b"),
        (["i"], [], ["s", "s"], "s"),
    ],
)
def test_columns_that_cannot_play_their_part_are_refused(
    key: list[str], partition_by: list[str], order_by: list[str], named: str
) -> None:
    with pytest.raises(SchemaError, match=named):
        keys.check_key_columns(SCHEMA, key, partition_by, order_by)


def test_columns_that_can_play_their_part_pass() -> None:
    keys.check_key_columns(SCHEMA, ["i", "s", "o", "b"], ["s", "i"], ["f", "i"])
    keys.check_key_columns(SCHEMA, ["s"], [], [])
