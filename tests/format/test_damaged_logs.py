"""Logs that are torn, damaged, or of kinds that hoodoo does not read."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from damaged_bytes import damaged
from log_blocks import COLUMNS, INSTANT, ORDERINGS, SCHEMA, deletes, framed, java_deletes, parquet, rows, several_values
from tiers import sized

from hoodoo.errors import (
    CorruptTable,
    HoodooError,
    UnsupportedTable,
)
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.log.block import (
    DataBlock,
    DeleteBlock,
    decode_log,
    encode_log,
)
from hoodoo.format.names import META_COLUMNS

AVRO = json.dumps(create_avro_schema("t", COLUMNS, True))


@pytest.mark.parametrize(
    "data",
    [
        framed(4, {0: INSTANT}, b"hfile"),
        framed(9, {0: INSTANT}, b""),
        framed(0, {0: INSTANT, 3: "1", 1: INSTANT}, b""),
        framed(1, {0: INSTANT}, struct.pack(">ii", 2, 0)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 1, 0)),
        framed(3, {0: INSTANT, 2: AVRO}, struct.pack(">ii", 1, 0)),
    ],
    ids=[
        "hfile",
        "unknown type",
        "unknown command",
        "delete version 2",
        "delete version 1",
        "data version 1",
    ],
)
def test_what_hoodoo_does_not_read_is_refused_as_unsupported(data):
    for strict in (True, False):
        with pytest.raises(UnsupportedTable):
            decode_log(data, strict=strict)


def test_a_block_beyond_the_callers_limit_is_refused():
    data = encode_log(INSTANT, "t", SCHEMA, rows(100))
    with pytest.raises(UnsupportedTable, match="too large"):
        decode_log(data, max_block=500)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "data",
    [
        framed(2, {0: INSTANT}, b""),
        framed(3, {0: INSTANT, 2: AVRO}, b"\0\0"),
        framed(3, {0: INSTANT, 2: AVRO}, struct.pack(">ii", 3, 1)),
        framed(3, {0: INSTANT}, struct.pack(">ii", 3, 0)),
        framed(3, {2: AVRO}, struct.pack(">ii", 3, 0)),
        framed(3, {0: INSTANT, 2: "{"}, struct.pack(">ii", 3, 0)),
        framed(5, {0: INSTANT, 2: AVRO}, b"PAR1 is not all"),
        framed(5, {0: INSTANT, 2: AVRO}, parquet(rows(2).set_column(6, "ts", pa.array(["x", "y"])))),
        framed(1, {0: INSTANT}, b"\0"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 7, 0)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 9)),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 1) + b"\x02"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 2) + b"\x00\x00"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 10) + b"\xfe" + b"\xff" * 8 + b"\x01"),
        framed(1, {0: INSTANT}, struct.pack(">ii", 3, 5) + b"\x02\x00\x00\x00\x00"),
        framed(0, {0: INSTANT, 3: "0"}, b""),
        java_deletes([("a", "p", ("ArrayWrapper", []))]),
        java_deletes([("a", "p", ("ArrayWrapper", None))]),
        several_values(b"\x02\x04\x06\x14\x1a\x14\x00"),
        several_values(b"\x02\x04\x06\x14"),
    ],
)
def test_a_sound_frame_around_nonsense_is_corrupt(data):
    with pytest.raises(CorruptTable):
        decode_log(data)


def keys_of(found):
    return [b.keys.to_pylist() if isinstance(b, DeleteBlock) else b.rows["id"].to_pylist() for b in found]


ONE, TWO, THREE = (
    encode_log(INSTANT, "t", SCHEMA, rows(3)),
    encode_log(INSTANT, "t", SCHEMA, None, [deletes(["a", "b"])]),
    encode_log(INSTANT, "t", SCHEMA, rows(2)),
)
SOUND = [["k0", "k1", "k2"], ["a", "b"], ["k0", "k1"]]


@pytest.mark.parametrize("kept", range(0, len(TWO), 7))
def test_a_torn_tail_loses_only_itself(kept):
    data = ONE + TWO[:kept]
    assert keys_of(decode_log(data, strict=False)) == SOUND[:1]
    if kept:
        with pytest.raises(CorruptTable, match=f"byte {len(ONE)} "):
            decode_log(data)


@pytest.mark.parametrize("kept", [1, 5, 13, 20, 100, len(TWO) - 1])
def test_a_torn_block_between_two_others_loses_only_itself(kept):
    data = ONE + TWO[:kept] + THREE
    assert keys_of(decode_log(data, strict=False)) == [SOUND[0], SOUND[2]]
    with pytest.raises(CorruptTable):
        decode_log(data)


def test_garbage_before_and_between_blocks_is_passed_over():
    noise = b"\0noise #HUDI" + b"#HUDI#" * 3
    data = noise + ONE + noise * 1000 + TWO + b"#HUDI" + THREE + noise
    assert keys_of(decode_log(data, strict=False)) == SOUND
    far = ONE + b"x" * ((1 << 20) - len(ONE) - 3) + TWO  # the magic lies across the window of the search
    assert keys_of(decode_log(far, strict=False)) == SOUND[:2]


def test_a_wrong_back_pointer_is_damage():
    data = ONE[:-1] + bytes([ONE[-1] ^ 1]) + THREE
    assert keys_of(decode_log(data, strict=False)) == SOUND[2:]
    with pytest.raises(CorruptTable):
        decode_log(data)


@pytest.mark.both
@pytest.mark.parametrize("strict", [True, False])
def test_no_mutation_does_worse_than_a_table_error(strict):
    ordered = [deletes(["x", "y"], ORDERINGS[name][0].slice(0, 2)) for name in ORDERINGS]
    small = pa.schema([*[(name, pa.string()) for name in META_COLUMNS], ("id", pa.string())])
    data = encode_log(INSTANT, "t", small, rows(5).select(small.names), ordered) + framed(
        5, {0: INSTANT, 2: AVRO}, parquet(rows(3))
    )
    rng = np.random.default_rng(int(strict))
    refused, count = 0, sized(400, 1500)
    for _ in range(count):
        try:
            for block in decode_log(damaged(data, rng), strict=strict):
                if isinstance(block, DataBlock):
                    block.rows.validate(full=True)
        except HoodooError as e:
            assert isinstance(e, (CorruptTable, UnsupportedTable)), e
            refused += 1
    assert refused > count / 15
