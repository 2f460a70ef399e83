"""What stands for a value that was not sent, by the type of its column."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from hoodoo.merge.modes import MergeMode

EPOCH = dt.date(1970, 1, 1)
UNAVAILABLE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("kind", "marker", "other"),
    [
        (pa.string(), UNAVAILABLE, "x"),
        (pa.binary(), UNAVAILABLE.encode(), b"x"),
        (pa.list_(pa.string()), [UNAVAILABLE], [UNAVAILABLE, "x"]),
        (pa.list_(pa.int32()), [ord(one) for one in UNAVAILABLE], [7] * len(UNAVAILABLE)),
        (pa.list_(pa.int64()), [ord(one) for one in UNAVAILABLE], []),
        (pa.string(), f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}', "{}"),
        (pa.string(), f'{{"{UNAVAILABLE}": "{UNAVAILABLE}"}}', f'{{"{UNAVAILABLE}": "x"}}'),
        (pa.list_(pa.string()), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545b"]),
        (pa.list_(pa.binary()), [UNAVAILABLE.encode()], [b"x"]),
        (pa.list_(pa.int16()), list(UNAVAILABLE.encode()), None),
        (pa.list_(pa.float32()), list(UNAVAILABLE.encode()), [0.5]),
        (pa.list_(pa.float64()), list(UNAVAILABLE.encode()), [*UNAVAILABLE.encode()[:-1], 0]),
        (pa.list_(pa.decimal128(12, 2)), list(UNAVAILABLE.encode()), [1]),
        (pa.list_(pa.date32()), [EPOCH + dt.timedelta(one) for one in UNAVAILABLE.encode()], [EPOCH]),
        (pa.map_(pa.string(), pa.string()), [(UNAVAILABLE, UNAVAILABLE)], [("a", UNAVAILABLE)]),
    ],
)
def test_what_stands_for_a_value_depends_on_the_type_of_the_column(kind: pa.DataType, marker: Any, other: Any) -> None:
    column = pa.chunked_array([pa.array([other, marker], kind), pa.array([None, marker], kind)])
    assert MergeMode(unavailable=UNAVAILABLE).find_unsent_values(column).tolist() == [False, True, False, True]
    assert not MergeMode().find_unsent_values(column).any()
