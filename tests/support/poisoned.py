"""Random Arrow arrays of every type a table takes, with values that no reader would take wherever a null covers them.

Whoever makes arrays by hand, and many a C++ program, leaves what it likes below a null: text that is not UTF-8,
times of 24:00 and later, decimals of too many digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa

LEAVES: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("s"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
)
Bits = np.ndarray


def random_type(rng: random.Random, depth: int) -> pa.DataType:
    """A type of at most `depth` levels below its top."""
    shape = rng.choice(("leaf", "struct", "list", "large_list", "fixed_list", "map")) if depth else "leaf"
    if shape == "leaf":
        return rng.choice(LEAVES)
    inner = random_type(rng, depth - 1)
    if shape == "struct":
        return pa.struct([("a", inner), ("b", random_type(rng, depth - 1))])
    if shape == "map":
        return pa.map_(pa.string(), inner)
    if shape == "fixed_list":
        return pa.list_(inner, 2)
    return pa.large_list(inner) if shape == "large_list" else pa.list_(inner)


def poisoned(rng: random.Random, kind: pa.DataType, live: Bits) -> pa.Array:
    """Values or nulls where `live` (bool[n]), poison elsewhere and in the bytes of every null."""
    present = live & np.array([rng.random() < 0.7 for _ in live], bool)
    if pa.types.is_struct(kind):
        parts = [poisoned(rng, field.type, present) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(~present))
    if pa.types.is_fixed_size_list(kind):
        items = poisoned(rng, kind.value_type, np.repeat(present, kind.list_size))
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=pa.array(~present))
    if pa.types.is_nested(kind):
        return _repeated(rng, kind, present)
    return _leaf(rng, kind, present, ~live)


def _repeated(rng: random.Random, kind: pa.DataType, present: Bits) -> pa.Array:
    """Lists and maps; null ones have items, too."""
    lengths = np.array([rng.randrange(3) for _ in present], np.int64)
    inside = np.repeat(present, lengths)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    offsets = pa.array(ends).cast(pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    mask = pa.array(~present)
    if pa.types.is_map(kind):
        keys = _texts(kind.key_type, np.ones(len(inside), bool), lambda n: b"k%d" % n if inside[n] else b"\xff")
        return pa.MapArray.from_arrays(offsets, keys, poisoned(rng, kind.item_type, inside), mask=mask)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(offsets, poisoned(rng, kind.value_type, inside), mask=mask)


def _leaf(rng: random.Random, kind: pa.DataType, present: Bits, covered: Bits) -> pa.Array:
    """`present` has values; `covered` lies below a null and is poison that calls itself valid; the rest is null."""
    valid = present | covered
    if pa.types.is_boolean(kind):
        return pa.array([rng.random() < 0.5 for _ in valid], mask=~valid)
    if pa.types.is_floating(kind):
        return pa.array([rng.choice((0.0, -1.5, 2.25)) for _ in valid], kind, mask=~valid)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(kind, valid, lambda n: rng.choice((b"", b"x", "é".encode())) if present[n] else b"\xff\xfe")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _texts(kind, valid, lambda n: rng.choice((b"", b"\x00\xff")))
    width = kind.bit_width // 8
    least, most, poison = _numbers(kind)
    numbers = [rng.choice((least, most, 0)) if here else poison for here in present]
    data = b"".join(number.to_bytes(width, "little", signed=least < 0 or poison < 0) for number in numbers)
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), pa.py_buffer(data)])


def _numbers(kind: pa.DataType) -> tuple[int, int, int]:
    """Least and greatest number that stands for a value of the type, and one that stands for none."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return -most, most, 10**38 + 7
    if pa.types.is_date32(kind):
        return -719_162, 2_932_896, 2**31 - 1
    if pa.types.is_time(kind):
        return 0, 86_399_999_999, 86_400_000_000
    if pa.types.is_timestamp(kind):
        unit = {"s": 1, "ms": 1000, "us": 1_000_000}[kind.unit]
        return -719_162 * 86_400 * unit, 2_932_897 * 86_400 * unit - 1, 2**63 - 1
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1, 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1, -1


def _texts(kind: pa.DataType, valid: Bits, text: Callable[[int], bytes]) -> pa.Array:
    parts = [text(n) for n in range(len(valid))]
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64 if wide else np.int32)
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, len(valid), buffers)


def _bitmap(valid: Bits) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
