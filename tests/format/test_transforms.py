"""What partition columns are made of: value by value what Python's datetime and the hash's specification say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import hoodoo
from hoodoo.format import transforms
from hoodoo.format.transforms import Transform, transform_of

UTC = dt.timezone.utc
MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1582, 10, 15),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(1970, 1, 1, 0, 59, 59, 999999),
    dt.datetime(2000, 2, 29, 12),
    dt.datetime(2026, 3, 1, 4, 30),
    dt.datetime(2026, 3, 31, 23, 0),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
MOMENTS += [
    dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(at))
    for at in np.random.default_rng(7).integers(-(10**10), 10**11, 300)
]
BY_TIME: dict[str, Callable[[Any], Any]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: f"{moment.year:04d}-{moment.month:02d}",
    "day": lambda moment: dt.date(moment.year, moment.month, moment.day),
    "hour": lambda moment: f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}-{moment.hour:02d}",
}
STAMPS = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("ms", "UTC")]


def of(name: str, column: str = "x") -> Transform:
    made = getattr(hoodoo, name)(column)
    assert isinstance(made, Transform)
    return made


@pytest.mark.parametrize("kind", STAMPS, ids=str)
@pytest.mark.parametrize("name", BY_TIME)
def test_a_timestamp_has_the_unit_that_python_says_and_lies_within_its_bounds(name: str, kind: pa.DataType) -> None:
    moments = [one.replace(microsecond=one.microsecond // 1000 * 1000) for one in MOMENTS]
    moments = [one.replace(tzinfo=UTC if kind.tz else None) for one in moments]
    made = of(name)
    column = pa.array([None, *moments], kind)
    found = transforms.compute_partition_values(made, column)
    assert found.type == transforms.generated_column_type(made, kind)
    assert found.to_pylist() == [None, *map(BY_TIME[name], moments)]
    for moment, value in zip(moments, found.to_pylist()[1:], strict=True):
        least, greatest = transforms.range_of_partition(made, value, kind)
        assert least <= moment <= greatest
        assert BY_TIME[name](least) == BY_TIME[name](greatest) == value, "a bound of another unit prunes less"


@pytest.mark.parametrize("name", ["year", "month", "day"])
def test_a_date_has_the_unit_that_python_says_and_lies_within_its_bounds(name: str) -> None:
    dates, made = [one.date() for one in MOMENTS], of(name)
    found = transforms.compute_partition_values(made, pa.array([*dates, None], pa.date32()))
    assert found.to_pylist() == [*map(BY_TIME[name], dates), None]
    for date, value in zip(dates, found.to_pylist(), strict=False):
        least, greatest = transforms.range_of_partition(made, value, pa.date32())
        assert least <= date <= greatest and BY_TIME[name](least) == BY_TIME[name](greatest) == value


def pmod(data: bytes, n: int) -> int:
    """As Spark: the hash is a signed number."""
    found = xxhash.xxh64_intdigest(data, 42)
    return (found - (1 << 64) if found >> 63 else found) % n


def little(bytes_: int) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(bytes_, "little", signed=True)


NUMBERS = [0, 1, -1, 7, 1 << 20, -(1 << 30), (1 << 31) - 1, -(1 << 31), *range(100, 400)]
EPOCH = dt.datetime(1970, 1, 1)
HASHED: dict[str, tuple[pa.DataType, list[Any], Callable[[Any], bytes]]] = {
    "int": (pa.int32(), NUMBERS, little(4)),
    "long": (pa.int64(), [*NUMBERS, (1 << 63) - 1, -(1 << 63)], little(8)),
    "text": (pa.string(), ["", "a", "äöü", "😀" * 40, *map(str, range(300))], str.encode),
    "bytes": (pa.binary(), [b"", b"\0", b"x" * 500], bytes),
    "date": (pa.date32(), [one.date() for one in MOMENTS], lambda one: little(4)((one - EPOCH.date()).days)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [one.replace(tzinfo=UTC) for one in MOMENTS],
        lambda one: little(8)((one.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)),
    ),
    "timestamp in ms": (
        pa.timestamp("ms"),
        [dt.datetime(2026, 1, 1), dt.datetime(1950, 1, 1)],
        lambda one: little(8)((one - EPOCH) // dt.timedelta(microseconds=1)),
    ),
    "decimal": (
        pa.decimal128(18, 3),
        [Decimal("1.500"), Decimal("-0.001"), Decimal("999999999999999.999")],
        lambda one: little(8)(int(one.scaleb(3))),
    ),
}


@pytest.mark.parametrize("n", [1, 16, 1000, (1 << 31) - 1])
@pytest.mark.parametrize("name", HASHED)
def test_a_bucket_is_pmod_of_the_hash_whatever_slice_of_a_column_it_is_asked_of(name: str, n: int) -> None:
    kind, values, encoded = HASHED[name]
    column = pa.array([None, *values, None], kind)
    made = hoodoo.bucket(n, "x")
    expected = [None, *(pmod(encoded(value), n) for value in values), None]
    assert transforms.compute_partition_values(made, column).to_pylist() == expected
    assert transforms.compute_partition_values(made, column.slice(1, 2)).to_pylist() == expected[1:3]
    assert (
        transforms.compute_partition_values(made, column).type
        == transforms.generated_column_type(made, kind)
        == pa.int32()
    )
    assert transforms.value(made, values[0], kind) == expected[1]


def test_truncated_text_has_its_first_characters_and_lies_within_its_bounds() -> None:
    made = hoodoo.truncate(2, "zip")
    texts = ["", "a", "ab", "abc", "ab\U0010ffff", "äöü", "😀😀x", "a\ud7ffz", "\U0010ffff\U0010ffffz"]
    found = transforms.compute_partition_values(made, pa.array([*texts, None])).to_pylist()
    assert found == [*(text[:2] for text in texts), None]
    for text, value in zip(texts, found, strict=False):
        least, greatest = transforms.range_of_partition(made, value, pa.string())
        assert least <= text and (greatest is None or text <= greatest)
    assert transforms.range_of_partition(made, "ab", pa.string()).greatest == "ac" and transforms.range_of_partition(
        made, "a", pa.string()
    ) == ("a", "a")


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_a_truncated_number_is_the_least_of_its_range(kind: pa.DataType) -> None:
    made, least = hoodoo.truncate(10, "n"), np.iinfo(kind.to_pandas_dtype()).min
    numbers = [17, -3, 0, -10, 9, least + 8, np.iinfo(kind.to_pandas_dtype()).max]
    found = transforms.compute_partition_values(made, pa.array(numbers, kind)).to_pylist()
    assert found == [number - number % 10 for number in numbers]
    for number, value in zip(numbers, found, strict=True):
        assert transforms.range_of_partition(made, value, kind) == (value, value + 9) and value <= number <= value + 9
    assert transforms.unfit(made, pa.array([least, least + 7, least + 8, None], kind)).tolist() == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("made", [*map(of, BY_TIME), hoodoo.bucket(4, "x"), hoodoo.truncate(3, "x")], ids=str)
def test_a_transform_is_read_from_its_text_and_shows_the_call_that_makes_it(made: Transform) -> None:
    assert transform_of(str(made)) == made == eval(repr(made), {"hoodoo": hoodoo})
    assert made.made == f"x_{'trunc' if made.kind == 'truncate' else made.kind}"


@pytest.mark.parametrize(
    "text", ["day", "day()", "day(3, ts)", "bucket(id)", "bucket(id, 3)", "week(ts)", "day(ts) x", "", "bucket(0, id)"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(hoodoo.OptionError, match="transform|bucket needs"):
        transform_of(text)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hoodoo.day(3),
        lambda: hoodoo.day(""),
        lambda: hoodoo.bucket(0, "id"),
        lambda: hoodoo.bucket(-1, "id"),
        lambda: hoodoo.bucket(True, "id"),
        lambda: hoodoo.bucket("id", 16),
        lambda: hoodoo.bucket(1 << 31, "id"),
        lambda: hoodoo.truncate(2.0, "id"),
        lambda: hoodoo.truncate(2, None),
    ],
)
def test_a_number_or_a_column_that_is_none_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(hoodoo.OptionError, match="needs"):
        call()


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (hoodoo.day("x"), pa.int64()),
        (hoodoo.hour("x"), pa.date32()),
        (hoodoo.year("x"), pa.string()),
        (hoodoo.bucket(2, "x"), pa.float64()),
        (hoodoo.bucket(2, "x"), pa.bool_()),
        (hoodoo.bucket(2, "x"), pa.decimal128(19, 0)),
        (hoodoo.bucket(2, "x"), pa.list_(pa.int32())),
        (hoodoo.truncate(2, "x"), pa.binary()),
        (hoodoo.truncate(2, "x"), pa.timestamp("us")),
    ],
)
def test_a_type_that_a_transform_does_not_take_is_refused(made: Transform, kind: pa.DataType) -> None:
    with pytest.raises(hoodoo.SchemaError, match="needs a"):
        transforms.generated_column_type(made, kind)
