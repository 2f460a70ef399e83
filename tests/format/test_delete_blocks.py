"""Blocks of deletes: ordering values as Java wraps them, in bytes that Apache Hudi gave them."""

import datetime as dt
import decimal
import struct

import pyarrow as pa
import pytest
from hudi_blocks import blocks
from log_blocks import (
    INSTANT,
    MOMENT,
    ORDERINGS,
    SCHEMA,
    UTC,
    deletes,
    framed,
    java_deletes,
    several_values,
)

from hoodoo.errors import (
    KeyValueError,
    OrderingError,
)
from hoodoo.format.log.block import (
    DeleteBlock,
    decode_log,
    encode_log,
    supports_ordering_type,
)


@pytest.mark.parametrize("wrapper", ORDERINGS)
def test_ordering_values_are_wrapped_as_java_wraps_them(wrapper):
    ordering, values = ORDERINGS[wrapper]
    keys = ["a", "", "é" * 40]
    ((_, _, content),) = blocks(encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, ordering)]))
    ((_, _, expected),) = blocks(java_deletes([(k, "p=1", (wrapper, v)) for k, v in zip(keys, values, strict=True)]))
    assert content == expected
    (back,) = decode_log(encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, ordering)]))
    assert back.keys.to_pylist() == keys
    assert back.ordering[0].cast(ordering.type) == ordering


def test_several_ordering_values_have_the_bytes_that_hudi_gave_them():
    """`18 02 04 06 14 0a`, a double and `00`: a delete by marker of Apache Hudi 1.2 in a table that is ordered by a
    long, here 10, and a double.
    """
    golden = bytes.fromhex("02 04 06 14 0a") + struct.pack("<d", 1.5) + b"\x00"
    block = DeleteBlock(INSTANT, pa.array(["a"]), pa.array(["p"]), (pa.array([10], pa.int64()), pa.array([1.5])))
    data = encode_log(INSTANT, "t", SCHEMA, None, [block])
    assert list(blocks(data))[0][2] == list(blocks(several_values(golden)))[0][2]
    (back,) = decode_log(data)
    assert [values.to_pylist() for values in back.ordering] == [[10], [1.5]]
    assert [values.type for values in back.ordering] == [pa.int64(), pa.float64()]


@pytest.mark.parametrize("second", ORDERINGS)
@pytest.mark.parametrize("first", ORDERINGS)
def test_several_ordering_values_are_wrapped_as_java_wraps_them(first, second):
    """Times are LongWrappers in an array: Java compares another wrapper's content with a Long, and fails."""
    names, keys = (first, "LongWrapper", second), ["a", "", "é" * 40]
    ordering = [ORDERINGS[name][0] for name in names]
    rows_ = zip(*(ORDERINGS[name][1] for name in names), strict=True)
    wrappers = ["LongWrapper" if name == "TimestampMicrosWrapper" else name for name in names]
    values = [
        [(f"org.apache.hudi.avro.model.{name}", {"value": value}) for name, value in zip(wrappers, row, strict=True)]
        for row in rows_
    ]
    data = encode_log(INSTANT, "t", SCHEMA, None, [deletes(keys, *ordering)])
    expected = java_deletes([(key, "p=1", ("ArrayWrapper", row)) for key, row in zip(keys, values, strict=True)])
    assert list(blocks(data))[0][2] == list(blocks(expected))[0][2]
    (back,) = decode_log(data)
    assert back.keys.to_pylist() == keys
    assert [values.cast(kind.type) for values, kind in zip(back.ordering, ordering, strict=True)] == ordering


def test_deletes_with_several_values_of_any_kind_are_told_apart():
    def several(*pairs):
        named = [pair and (f"org.apache.hudi.avro.model.{pair[0]}", {"value": pair[1]}) for pair in pairs]
        return "ArrayWrapper", named

    zero = ("IntWrapper", 0)
    data = java_deletes(
        [
            ("a", "p", several(zero, zero)),
            ("b", "p", zero),
            ("c", "p", several(("LongWrapper", 7), None)),
            ("d", "p", several(("IntWrapper", 9), ("IntWrapper", 3))),
            ("e", "p", several(("LocalDateWrapper", 2), ("BooleanWrapper", True))),
            ("f", "p", several(("LongWrapper", 8), None)),
            ("g", "p", None),
            ("h", "p", ("LongWrapper", 5)),
        ]
    )
    found = [(block.keys.to_pylist(), [values.to_pylist() for values in block.ordering]) for block in decode_log(data)]
    assert found == [
        (["a", "d"], [[0, 9], [0, 3]]),  # zeroes in an array are values
        (["b"], []),
        (["c", "f"], [[7, 8], [None, None]]),
        (["e"], [[dt.date(1970, 1, 3)], [True]]),
        (["g"], []),
        (["h"], [[5]]),
    ]


def test_an_array_of_ordering_values_may_come_in_pieces_that_say_their_size():
    (one,) = decode_log(several_values(b"\x02\x02\x06\x14\x01\x04\x06\x16\x00"))
    assert [values.to_pylist() for values in one.ordering] == [[10], [11]]


def test_a_decimal_wrapper_has_javas_shortest_bytes():
    # fastavro is no oracle here: it spends a byte more than Java's BigInteger on -128 and its like.
    digits = [0, 1, -1, 127, 128, -128, -129, 255, 256, 1 << 63, -(1 << 63), -(1 << 63) - 1, 10**30 - 1, -(10**30) + 1]
    values = [decimal.Decimal(n).scaleb(-15, decimal.Context(prec=40)) for n in digits]
    ((_, _, content),) = blocks(
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["k"] * len(digits), pa.array(values, pa.decimal128(30, 15)))])
    )
    shortest = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in digits]
    records = b"".join(b"\x02\x02k\x02\x06p=1\x12" + bytes([2 * len(number)]) + number for number in shortest)
    assert content[8:] == bytes([2 * len(digits)]) + records + b"\0"


def test_a_local_timestamp_is_wrapped_like_an_instant():
    naive = deletes(["a"], pa.array([MOMENT], pa.timestamp("us")))
    zoned = deletes(["a"], pa.array([MOMENT], UTC))
    assert encode_log(INSTANT, "t", SCHEMA, None, [naive]) == encode_log(INSTANT, "t", SCHEMA, None, [zoned])


def test_unconditional_deletes_are_told_from_ordered_ones_whatever_the_mix():
    data = java_deletes(
        [
            ("a", "p", None),
            ("b", None, ("IntWrapper", 0)),
            ("c", "p", ("IntWrapper", 5)),
            ("d", "p", ("LongWrapper", 0)),
            ("e", "p", ("BooleanWrapper", True)),
            ("f", "p", ("BytesWrapper", b"\xff")),
            ("g", "p", ("TimeMicrosWrapper", dt.time(1))),
        ]
    )
    found = {tuple(b.keys.to_pylist()): b.ordering for b in decode_log(data)}
    assert found.pop(("a",)) == ()
    assert found.pop(("b",)) == ()
    assert {keys: values.to_pylist() for keys, (values,) in found.items()} == {
        ("c",): [5],
        ("d",): [0],
        ("e",): [True],
        ("f",): [b"\xff"],
        ("g",): [dt.time(1)],
    }
    assert found[("c",)][0].type == pa.int32()
    assert [b.partitions.to_pylist() for b in decode_log(data)][:2] == [["p"], [""]]
    mixed = decode_log(
        java_deletes([("a", "p", ("IntWrapper", 0)), ("b", "p", ("IntWrapper", 3)), ("c", "p", ("IntWrapper", 0))])
    )
    assert [(b.keys.to_pylist(), [values.to_pylist() for values in b.ordering]) for b in mixed] == [
        (["a", "c"], []),
        (["b"], [[3]]),
    ]


def test_long_texts_and_several_list_blocks_are_read():
    record = b"\x02\x80\x02" + b"k" * 128 + b"\x00\x00"
    avro = (
        b"\x02"
        + record
        + b"\x01"
        + bytes([2 * 67 % 128 | 128, 2 * 67 // 128])
        + record.replace(b"\x00\x00", b"\x02\x02p\x04\x12")
        + b"\x00"
    )
    one, two = decode_log(framed(1, {0: INSTANT}, struct.pack(">ii", 3, len(avro)) + avro))
    assert (one.keys.to_pylist(), one.partitions.to_pylist(), one.ordering) == (["k" * 128], [""], ())
    assert (two.keys.to_pylist(), two.partitions.to_pylist(), two.ordering[0].to_pylist()) == (["k" * 128], ["p"], [9])


def test_only_verified_types_may_be_logged_as_ordering():
    assert all(map(supports_ordering_type, (pa.int32(), pa.int64(), pa.string(), UTC, pa.timestamp("us"))))
    others = (
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.decimal128(10, 2),
        pa.bool_(),
        pa.timestamp("ns"),
        pa.large_string(),
        pa.time64("us"),
    )
    assert not any(map(supports_ordering_type, others))


@pytest.mark.parametrize(
    "ordering",
    [
        pa.array([1, None], pa.int64()),
        pa.array([1], pa.int64()),
        pa.array([1, 2], pa.uint8()),
        pa.array([10**20] * 2, pa.decimal128(38, 2)),
    ],
)
def test_an_ordering_value_that_no_wrapper_holds_is_refused(ordering):
    with pytest.raises(OrderingError):
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", "b"], ordering)])


def test_a_delete_without_a_key_is_refused():
    with pytest.raises(KeyValueError):
        encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", None])])
