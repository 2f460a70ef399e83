"""Values under another type: every pair of types, exact or refused, one rule for files, logs, bounds and batches."""

from __future__ import annotations

import itertools
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tiers import sized

import hoodoo
from hoodoo.format.convert import convert_bounds, convert_values, is_automatic_widening, is_exact, is_readable_as
from hoodoo.format.parquet.statistics import statistics_of_rows

INT, L, F, D = pa.int32(), pa.int64(), pa.float32(), pa.float64()
S, B, DATE, TS, BOOL = pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.bool_()


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


EXACT = {
    (INT, L),
    (INT, D),
    (F, D),
    (INT, S),
    (L, S),
    (dec(6, 2), dec(9, 2)),
    (dec(6, 2), dec(9, 4)),
    (INT, dec(10, 0)),
    (INT, dec(19, 0)),
    (INT, dec(24, 3)),
    (L, dec(19, 0)),
    (L, dec(24, 3)),
}
NEVER_ALONE = {(F, D), (INT, S), (L, S)}
FOREIGN = {(INT, F), (L, F), (L, D), (S, B), (B, S), (DATE, S), (dec(6, 2), S), (dec(9, 4), S)}
TYPES = [INT, L, F, D, S, B, DATE, TS, BOOL, dec(6, 2), dec(9, 2), dec(9, 4), dec(10, 0), dec(19, 0), dec(24, 3)]


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(TYPES, 2)), ids=str)
def test_every_pair_of_types_is_what_the_table_of_pairs_says(old: pa.DataType, new: pa.DataType) -> None:
    both_decimal = pa.types.is_decimal(old) and pa.types.is_decimal(new)
    wider = both_decimal and new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    exact = (old, new) in EXACT or wider
    assert is_exact(old, new) == exact
    assert is_automatic_widening(old, new) == (exact and (old, new) not in NEVER_ALONE)
    text_of_decimal = pa.types.is_decimal(old) and new == S
    back = (new, old) in EXACT or both_decimal and is_exact(new, old)
    assert is_readable_as(old, new) == (exact or (old, new) in FOREIGN or text_of_decimal or back)


VALUES: dict[pa.DataType, list[Any]] = {
    INT: [-(2**31), -1, 0, 1, 2**24 + 1, 2**31 - 1, None],
    L: [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1, None],
    F: [0.1, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), None],
    dec(6, 2): [Decimal("-9999.99"), Decimal("0.01"), None],
    dec(9, 2): [Decimal("-9999999.99"), Decimal("0.01"), None],
    dec(9, 4): [Decimal("99999.9999"), None],
    dec(10, 0): [Decimal(9999999999), None],
    dec(19, 0): [Decimal(9999999999999999999), None],
}


@pytest.mark.parametrize(("old", "new"), sorted(EXACT, key=str), ids=str)
def test_what_is_exact_loses_nothing_and_comes_back(old: pa.DataType, new: pa.DataType) -> None:
    for values in (pa.array(VALUES[old], old), pa.chunked_array([pa.array(VALUES[old], old)] * 2).slice(1)):
        wide = convert_values(values, new)
        assert wide.type == new and wide.null_count == values.null_count
        assert convert_values(wide, old).equals(values)
        texts = [None if v is None else str(v) for v in values.to_pylist()]
        if new == S:
            assert wide.to_pylist() == texts
        elif old != F:
            assert wide.to_pylist() == [
                None if v is None else type(w)(v) for v, w in zip(values.to_pylist(), wide.to_pylist(), strict=True)
            ]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (L, INT, 2**31),
        (D, INT, 0.5),
        (D, INT, 1e300),
        (D, F, 0.123456789012),
        (S, INT, "text"),
        (S, INT, "007"),
        (S, L, str(2**63)),
        (dec(9, 4), dec(6, 2), Decimal("0.0001")),
        (dec(9, 2), dec(6, 2), Decimal("99999.00")),
        (dec(10, 0), INT, Decimal(2**31)),
        (dec(24, 3), L, Decimal("0.5")),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_a_narrower_type_is_refused_not_rounded(
    old: pa.DataType, new: pa.DataType, value: Any
) -> None:
    with pytest.raises(pa.ArrowInvalid):
        convert_values(pa.array([value], old), new)


def test_what_other_engines_round_is_rounded_as_they_do() -> None:
    assert convert_values(pa.array([2**24 + 1], INT), F).to_pylist() == [float(2**24)]
    assert convert_values(pa.array([2**53 + 1], L), D).to_pylist() == [float(2**53)]


def random_floats(count: int) -> np.ndarray:
    """Of any bits, without NaN."""
    chance = random.Random(5)
    bits = (struct.unpack("<f", chance.randbytes(4))[0] for _ in itertools.count())
    return np.array(list(itertools.islice((x for x in bits if x == x), count)), np.float32)


def test_40_000_random_floats_become_the_doubles_with_their_shortest_text() -> None:
    floats = random_floats(40_000)
    want = [float(str(np.float32(x))) for x in floats]
    assert convert_values(pa.array(floats, F), D).to_pylist() == want
    for x, wide in zip(floats[:2000].tolist(), want, strict=False):
        assert convert_bounds(x, x, F, D) == (wide, wide)


@pytest.mark.both
@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_random_floats_are_the_same_doubles_in_bases_logs_bounds_and_batches(tmp_path: Path, kind: str) -> None:
    floats = random_floats(sized(4000, 40_000))
    floats = floats[np.isfinite(floats)]
    keys, want = list(range(len(floats))), [float(str(np.float32(x))) for x in floats]
    schema = pa.schema([("id", pa.int64()), ("f", F), ("s", pa.struct([("f", F)])), ("l", pa.list_(F))])
    nested = pa.StructArray.from_arrays([pa.array(floats)], fields=[pa.field("f", F)])
    lists = pa.ListArray.from_arrays(pa.array(range(len(floats) + 1), INT), pa.array(floats))
    rows = pa.table([pa.array(keys), pa.array(floats), nested, lists], schema=schema)
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind, clean_every=None, compact_after_logs=None)
    table.upsert(rows)
    table.upsert(rows.slice(0, 500))  # in a log
    before = table.cursor
    columns = ("f", "s.f", "l[]")
    table.alter([hoodoo.WidenColumn(name, D) for name in columns], rewrite=True)
    second = hoodoo.create(tmp_path / "u", table.schema, key="id")
    second.upsert(rows)  # floats into double columns
    for one in (table, second):
        found = one.scan().to_arrow().sort_by("id")
        assert found["f"].to_pylist() == want
        assert found["s"].combine_chunks().field("f").to_pylist() == want
        assert found["l"].combine_chunks().flatten().to_pylist() == want
    # files from before, read under the new columns
    past = table.changes(before, versions="diff").to_arrow()
    assert len(past) == 0
    for at in (0, 499, 500, len(want) - 1):
        [row] = table.scan(where=f"f = {want[at]!r}", columns=["f"]).to_arrow()["f"].to_pylist()[:1]
        assert row == want[at]


ORDERED = sorted(EXACT - {(INT, S), (L, S)}, key=str)


@pytest.mark.parametrize(("old", "new"), ORDERED, ids=str)
def test_bounds_of_converted_values_are_the_converted_bounds(old: pa.DataType, new: pa.DataType) -> None:
    values = pa.array([v for v in VALUES[old] if v is None or v not in (float("inf"), float("-inf"))], old)
    [low, high, _] = statistics_of_rows(pa.table({"x": values}))["x"]
    own_low, own_high, _ = statistics_of_rows(pa.table({"x": convert_values(values, new)}))["x"]
    got = convert_bounds(low, high, old, new)
    if pa.types.is_decimal(new):
        assert tuple(map(Decimal, got)) == (Decimal(own_low), Decimal(own_high))
    else:
        assert got == (own_low, own_high)
    assert convert_bounds(None, None, old, new) == (None, None)


@pytest.mark.parametrize(
    ("old", "new"), [(INT, S), (L, S), (L, INT), (D, F), (S, INT), (dec(9, 4), dec(6, 2))], ids=str
)
def test_bounds_are_forgotten_where_texts_have_another_order_or_a_type_is_narrower(
    old: pa.DataType, new: pa.DataType
) -> None:
    assert convert_bounds("1", "2", old, new) == (None, None)


def test_bounds_that_other_engines_round_hold_what_they_round() -> None:
    assert convert_bounds(2**24 + 1, 2**24 + 1, INT, F) == (float(2**24), float(2**24))
    assert convert_bounds(2**53 + 1, 2**53 + 1, L, D) == (float(2**53), float(2**53))
