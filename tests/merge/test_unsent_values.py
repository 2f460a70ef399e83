"""What stands for a value that was not sent, by the type of its column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from hoodoo.merge.modes import MergeMode

UNAVAILABLE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("kind", "marker", "other"),
    [
        (pa.string(), UNAVAILABLE, "x"),
        (pa.binary(), UNAVAILABLE.encode(), b"x"),
        (pa.list_(pa.string()), [UNAVAILABLE], [UNAVAILABLE, "x"]),
        (pa.list_(pa.int32()), [ord(one) for one in UNAVAILABLE], [7] * len(UNAVAILABLE)),
        (pa.list_(pa.int64()), [ord(one) for one in UNAVAILABLE], []),
    ],
)
def test_what_stands_for_a_value_depends_on_the_type_of_the_column(kind: pa.DataType, marker: Any, other: Any) -> None:
    column = pa.chunked_array([pa.array([other, marker], kind), pa.array([None, marker], kind)])
    assert MergeMode(unavailable=UNAVAILABLE).stands_for_unavailable(column).tolist() == [False, True, False, True]
    assert not MergeMode().stands_for_unavailable(column).any()
