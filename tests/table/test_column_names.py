"""Columns whose names Avro does not allow: refused all at once with what they could be called, or taken under such
names and known by either.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import hoodoo

ORDERS = pa.schema(
    [
        ("Order ID", pa.int64()),
        ("order-date", pa.string()),
        ("größe", pa.float64()),
        ("2024", pa.int32()),
        ("plain", pa.string()),
        ("where to", pa.struct([("Zip Code", pa.string()), ("city", pa.string())])),
    ]
)
SUGGESTED = {
    "Order ID": "order_id",
    "order-date": "order_date",
    "größe": "grosse",
    "2024": "_2024",
    "where to": "where_to",
    "where to.Zip Code": "zip_code",
}


def test_one_error_names_every_column_that_avro_does_not_allow_and_what_it_could_be_called(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.SchemaError) as caught:
        hoodoo.create(tmp_path / "t", ORDERS, key="Order ID")
    assert caught.value.details["suggested"] == SUGGESTED
    for name, suggested in SUGGESTED.items():
        assert f"{name!r} (say {suggested})" in caught.value.message
    assert 'rename="snake"' in caught.value.message
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("names", "suggested"),
    [
        (["Order ID", "order_id"], ["order_id_2"]),
        (["a b", "A-B", "a_b_2"], ["a_b", "a_b_3"]),
        (["Order ID", "order ID"], ["order_id", "order_id_2"]),
        (["x", "名前"], ["column_3"]),
        (["Łódź", "Æther & Søn", "ﬁne", "Ünï"], ["lodz", "aether_son", "fine", "uni"]),
        (["HTTPServer Name", "customerName#"], ["http_server_name", "customer_name"]),
        (["Unnamed: 0", ""], ["unnamed_0", "column_3"]),
        (["2nd order", "%"], ["_2nd_order", "column_3"]),
    ],
)
def test_suggested_names_are_snake_case_of_ascii_and_unlike_each_other(
    tmp_path: Path, names: list[str], suggested: list[str]
) -> None:
    columns = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)])
    with pytest.raises(hoodoo.SchemaError) as caught:
        hoodoo.create(tmp_path / "t", columns, key="id")
    assert list(caught.value.details["suggested"].values()) == suggested


def test_a_batch_with_new_columns_is_told_of_all_its_names_at_once_at_every_level(tmp_path: Path) -> None:
    inner = pa.struct([("n", pa.int64())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", inner),
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), inner)),
            ("a_b", pa.int64()),
        ]
    )
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    row = {
        "id": 1,
        "s": {"n": 1, "s f": 1},
        "l": [{"n": 1, "l f": 1}],
        "m": {"k": {"n": 1, "m f": 1}},
        "a_b": 1,
        "A B": 1,
        "new": {"x y": 1},
    }
    with pytest.raises(hoodoo.SchemaError) as caught:
        table.upsert([row], evolve=True)
    assert caught.value.details["suggested"] == {
        "A B": "a_b_2",
        "new.x y": "x_y",
        "s.s f": "s_f",
        "l[].l f": "l_f",
        "m{}.m f": "m_f",
    }
    assert table.schema == schema and table.count() == 0
