"""Odd keys and partition values come back as they were, in both stores, or are refused by name; different keys never
become one (B4).
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import seaweed
from figures import record

import hoodoo
from hoodoo.errors import DataError, HoodooError
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import compute_record_keys

pytestmark = pytest.mark.xdist_group("s3")
FIXED = [
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "a\0b",
    "/",
    "//",
    "/a",
    "a/",
    "a//b",
    "a/b",
    "..",
    ".",
    "../x",
    "%",
    "%2F",
    "%2f",
    "%%",
    "%25",
    "%00",
    "=",
    "==",
    "a=b",
    "city=x",
    "__HIVE_DEFAULT_PARTITION__",
    "__null__",
    "__empty__",
    "null",
    "None",
    "NULL",
    "nan",
    "NaN",
    "-0.0",
    "0",
    "00",
    "+1",
    "1",
    "1.0",
    "1e3",
    "true",
    "e\u0301",
    "\u00e9",
    "\u1e9b\u0323",
    "\u202eabc",
    "\u200b",
    "\ufeff",
    "שלום",
    "مرحبا",
    "日本語",
    "😀",
    "👩‍👩‍👧‍👦",
    "\U0010ffff",
    "\\",
    "a\\b",
    "C:\\x",
    '"',
    "'",
    "`",
    "$HOME",
    "${x}",
    "*",
    "?",
    "[a]",
    "{a}",
    "#",
    "^",
    "|",
    ";",
    "&",
    "<x>",
    ":",
    "a:b",
    ",id:",
    "id:1",
    "id:1,n:2",
    "x" * 255,
    "x" * 256,
    "x" * 4096,
    "é" * 127,
    "é" * 128,
    "\x7f",
    "\x1b[31m",
    "\u2028",
    ".hoodie",
    ".hoodie_partition_metadata",
    "CON",
    "nul.txt",
    "~",
]


def texts(count: int) -> list[str]:
    """The fixed ones, then random texts over odd characters; all different."""
    rng, found = random.Random(4), dict.fromkeys(FIXED)
    alphabet = list("ab/.%=:,_ \\\n\t\"'éÉ日😀\u0301\u200d\x00\x1f{}[]") + ["..", "%2F", "__", "id:"]
    while len(found) < count:
        found.setdefault("".join(rng.choices(alphabet, k=rng.randint(1, 12))))
    return list(found)


@pytest.fixture(params=["local", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any] | None]:
    if request.param == "local":
        return str(tmp_path / "t"), None
    return seaweed.place(), request.getfixturevalue("s3")


def accepted(table: hoodoo.Table, column: str, values: list[Any], row: Any) -> tuple[list[Any], dict[str, int]]:
    """Those of `values` that the table takes, found out without writing, and why others were refused."""
    from hoodoo.writers.batches.batch import prepare_batch

    kept, refused = [], dict[str, int]()
    config = table.handle.newest_config()
    for value in values:
        try:
            prepare_batch(pa.Table.from_pylist([row(value)], table.schema), config)
            kept.append(value)
        except DataError as problem:
            assert column in problem.message
            refused[problem.code] = refused.get(problem.code, 0) + 1
    return kept, refused


def test_odd_keys_come_back_as_they_were(where: tuple[str, dict[str, Any] | None]) -> None:
    path, storage = where
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = hoodoo.create(path, schema, key="id", storage=storage)
    kept, refused = accepted(table, "id", texts(700), lambda value: {"id": value, "v": 1})
    table.upsert(pa.table({"id": kept, "v": range(len(kept))}, schema))
    table.upsert(pa.table({"id": kept, "v": range(1000, 1000 + len(kept))}, schema))  # every one is found again
    rows = {row["id"]: row["v"] for row in hoodoo.open(path, storage=storage).scan().to_arrow().to_pylist()}
    assert rows == dict(zip(kept, range(1000, 1000 + len(kept)), strict=True))
    table.delete(pa.table({"id": kept[:300], "v": [0] * 300}, schema))
    assert table.scan().count() == len(kept) - 300
    record(f"B4 keys {'s3' if storage else 'local'}", taken=len(kept), refused=sum(refused.values()))
    assert len(kept) >= 600


def test_odd_partition_values_come_back_as_they_were(where: tuple[str, dict[str, Any] | None]) -> None:
    path, storage = where
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = hoodoo.create(path, schema, key="id", partition_by="city", storage=storage)
    kept, refused = accepted(table, "city", texts(260 if storage else 560), lambda value: {"id": 1, "city": value})
    table.upsert(pa.table({"id": range(len(kept)), "city": kept}, schema))
    fresh = hoodoo.open(path, storage=storage)
    assert {row["id"]: row["city"] for row in fresh.scan().to_arrow().to_pylist()} == dict(enumerate(kept))
    assert len(fresh.handle.history.head().partitions) == len(kept) - (("" in kept) + (None in kept) > 1)
    for number in range(0, len(kept), 40):
        assert fresh.scan(where=_is("city", kept[number])).to_arrow()["id"].to_pylist() == [number]
    record(f"B4 partitions {'s3' if storage else 'local'}", taken=len(kept), refused=sum(refused.values()))
    assert refused and len(kept) >= 150


def _is(column: str, value: str) -> Any:
    import pyarrow.compute as pc

    return pc.field(column) == value


UTC = dt.timezone.utc
TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            dt.datetime(2200, 1, 1, tzinfo=UTC),
        ],
    ),
    (
        pa.decimal128(20, 4),
        [Decimal("0"), Decimal("-0.0001"), Decimal("1.5"), Decimal("1.5000"), Decimal("9999999999999999.9999")],
    ),
    (pa.binary(), [b"", b"\0", b"\xff\xfe", b"abc"]),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=[str(kind) for kind, _ in TYPED])
def test_keys_of_every_type_are_found_again(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("id", kind), ("v", pa.int64())])
    try:
        table = hoodoo.create(tmp_path / "t", schema, key="id")
    except HoodooError as refused:
        assert refused.code == "SCHEMA"
        return
    different = list(dict.fromkeys(values))
    kept, _ = accepted(table, "id", different, lambda value: {"id": value, "v": 1})
    table.upsert(pa.table({"id": pa.array(kept, kind), "v": range(len(kept))}, schema))
    table.upsert(pa.table({"id": pa.array(kept, kind), "v": range(50, 50 + len(kept))}, schema))
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == dict(
        zip(kept, range(50, 50 + len(kept)), strict=True)
    )


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.list_(pa.int64())])
def test_keys_of_types_with_more_than_one_zero_or_none_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(hoodoo.SchemaError):
        hoodoo.create(tmp_path / "t", pa.schema([("id", kind)]), key="id")


def test_a_key_of_a_megabyte_and_a_null_key_are_refused_by_name(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = hoodoo.create(tmp_path / "t", schema, key=["id", "n"])
    for bad in ("x" * (1 << 20), None):
        with pytest.raises(hoodoo.KeyValueError, match="id"):
            table.upsert(pa.table({"id": [bad], "n": [1]}, schema))
    assert table.cursor.seq == 1


def test_a_million_different_composite_keys_stay_different() -> None:
    rng = np.random.default_rng(8)
    parts = np.array(texts(1_500) + [str(n) for n in range(1_500)], dtype=object)
    left, right = parts[rng.integers(0, len(parts), 1_800_000)], parts[rng.integers(0, len(parts), 1_800_000)]
    fine = {part for part in parts if part and not part.startswith("__") and ":" not in part}
    sound = [n for n, (one, two) in enumerate(zip(left, right, strict=True)) if one in fine and two in fine]
    rows = pa.table({"a": pa.array(left[sound], pa.string()), "b": pa.array(right[sound], pa.string())})
    keys = compute_record_keys(rows, ["a", "b"], [])
    pairs = len(set(zip(left[sound].tolist(), right[sound].tolist(), strict=True)))
    assert len(keys.unique()) == pairs
    assert len(np.unique(hash64(pa.chunked_array([keys.unique()])))) == pairs
    record("B4 pairs", keys=pairs)
    assert pairs > 1_000_000
