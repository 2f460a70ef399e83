"""Columns whose names Avro does not allow: refused all at once with what they could be called, or taken under such
names and known by either.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path
from typing import Any

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
        assert f"{name!r} (suggested name: {suggested})" in caught.value.message
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


# ---- taken, and known by either name
ROWS = [
    {
        "Order ID": number,
        "order-date": day,
        "größe": number * 1.5,
        "2024": number,
        "plain": "x",
        "where to": {"Zip Code": f"0{number}", "city": "rome"},
    }
    for number, day in ((1, "mon"), (2, "mon"), (3, "tue"))
]
RENAMED = {
    "order_id": "Order ID",
    "order_date": "order-date",
    "grosse": "größe",
    "_2024": "2024",
    "where_to": "where to",
    "where_to.zip_code": "Zip Code",
}


def orders(path: Path, **arguments: Any) -> hoodoo.Table:
    table = hoodoo.create(path, ORDERS, key="Order ID", partition_by="order-date", rename="snake", **arguments)
    table.insert(ROWS)
    return table


def by_table_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {original: name for name, original in RENAMED.items() if "." not in name}
    found = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    return [row | {"where_to": {"zip_code": row["where_to"]["Zip Code"], "city": "rome"}} for row in found]


def in_order(rows: pa.Table, key: str = "order_id") -> list[dict[str, Any]]:
    return list(rows.sort_by(key).to_pylist())


@pytest.mark.parametrize("type", ["merge_on_read", "copy_on_write"])
def test_a_renamed_table_takes_rows_by_either_name_and_gives_either_back(tmp_path: Path, type: str) -> None:
    table = orders(tmp_path / "t", type=type)
    assert (table.key, table.partition_by) == (("order_id",), ("order_date",))
    assert table.schema.names == ["order_id", "order_date", "grosse", "_2024", "plain", "where_to"]
    assert table.inspect.original_names == RENAMED
    assert in_order(table.scan().to_arrow()) == by_table_names(ROWS)
    table.upsert(by_table_names(ROWS[:1]))
    table.upsert(pa.Table.from_pylist(ROWS[1:2], ORDERS))
    assert hoodoo.open(table.path).inspect.original_names == RENAMED
    back = table.scan(names="original")
    assert back.schema == ORDERS and back.count() == 3
    assert in_order(back.to_arrow(), "Order ID") == ROWS
    assert sorted(back.to_dataset().to_table()["Order ID"].to_pylist()) == [1, 2, 3]
    assert table.incremental("earliest", names="original").schema == ORDERS
    assert table.incremental("earliest", deletes=True, names="original").schema.names[:-1] == ORDERS.names
    copied = hoodoo.create(tmp_path / "u", back, key="Order ID", rename="snake")
    copied.upsert(back)
    assert in_order(copied.scan(names="original").to_arrow(), "Order ID") == ROWS


def test_conditions_columns_keys_and_new_values_take_either_name(tmp_path: Path) -> None:
    table = orders(tmp_path / "t")
    assert [row["order_id"] for row in table.scan(where='"Order ID" = 2').to_arrow().to_pylist()] == [2]
    assert table.scan(where="größe > 2 AND \"order-date\" = 'mon' AND plain != '\"Order ID\"'").count() == 1
    assert table.scan(where="`2024` = 3 OR _2024 = 1").count() == 2
    assert table.scan(where='"where to"."Zip Code" = \'02\'').count() == 1
    assert table.scan(where='length("where to"."Zip Code") + "Order ID" = 4').count() == 1
    chosen = table.scan(columns=["2024", "order_id"])
    assert chosen.schema.names == ["_2024", "order_id"]
    assert table.scan(columns=["2024"], names="original").schema.names == ["2024"]
    with pytest.raises(hoodoo.ColumnError, match="twice"):
        table.scan(columns=["Order ID", "order_id"])
    assert table.get([2, 1], columns=["größe"], names="original").to_pylist() == [{"größe": 3.0}, {"größe": 1.5}]
    assert table.get([{"Order ID": 3, "order-date": "tue"}])["_2024"].to_pylist() == [3]
    before = table.cursor
    assert table.update({"2024": '"2024" + "Order ID"', "plain": "'y'"}, where='"Order ID" < 3').updated == 2
    changes = table.changes(before, columns=["Order ID", "2024"], where='"2024" >= 2', names="original")
    assert sorted(row["after"]["2024"] for row in changes.to_arrow().to_pylist()) == [2, 4]
    assert changes.schema.field("after").type == pa.struct([("Order ID", pa.int64()), ("2024", pa.int32())])
    every = table.changes(before, names="original", versions="all")
    assert {row["before"]["where to"]["Zip Code"] for row in every.to_arrow().to_pylist()} == {"01", "02"}
    assert (
        table.changes(before, names="original", versions="diff").to_arrow()["after"].type
        == every.schema.field("after").type
    )
    with pytest.raises(hoodoo.ColumnError, match="two names of the same column"):
        table.update({"2024": 1, "_2024": 2})
    table.delete([{"Order ID": 1}])
    table.delete(where='"Order ID" = 2')
    table.delete_partitions([{"order-date": "tue"}])
    assert table.count() == 0


def test_writes_of_some_columns_and_merges_take_either_name(tmp_path: Path) -> None:
    table = orders(tmp_path / "t")
    keys = {"Order ID": [1, 2], "order-date": ["mon", "mon"]}
    table.upsert(pa.table({**keys, "2024": [10, 20], "plain": ["a", "b"]}), columns=["2024"])
    table.upsert(pa.table({**keys, "größe": [0.5, 0.25]}), columns="given")
    done = (
        table.merge(pa.table({"Order ID": [2, 9], "order-date": ["mon", "wed"], "2024": [5, 90]}))
        .when_matched_update({"2024": 'target."2024" + source."2024"'}, where='source."Order ID" < 9')
        .when_not_matched_insert({"2024": 'source."2024"'})
        .execute()
    )
    assert (done.inserted, done.updated) == (1, 1)
    rows = in_order(table.scan(["Order ID", "2024", "größe", "plain"]).to_arrow())
    assert [list(row.values()) for row in rows] == [
        [1, 10, 0.5, "x"],
        [2, 25, 0.25, "x"],
        [3, 3, 4.5, "x"],
        [9, 90, None, None],
    ]
    table.set_checks({"size": '"größe" < 5'})
    with pytest.raises(hoodoo.CheckFailed):
        table.upsert([ROWS[0] | {"größe": 6.0}])
    assert table.insert([ROWS[0] | {"Order ID": 4, "größe": None}], sort_by=["2024"], bulk=True).inserted == 1
    assert table.insert_overwrite([ROWS[0] | {"Order ID": 5, "größe": None}]).inserted == 1


@pytest.mark.parametrize(
    "batch",
    [
        [ROWS[0] | {"order_id": 1}],
        pa.Table.from_pylist(ROWS, ORDERS).append_column("_2024", pa.array([1, 2, 3], pa.int32())),
        [ROWS[0] | {"where to": {"Zip Code": "1", "zip_code": "2", "city": "rome"}}],
    ],
)
def test_a_batch_that_has_both_names_of_a_column_is_refused(tmp_path: Path, batch: Any) -> None:
    table = orders(tmp_path / "t")
    for write in (table.upsert, table.insert, table.insert_overwrite):
        with pytest.raises(hoodoo.ColumnError, match="two names of the same column"):
            write(batch)
    assert table.count() == 3


def test_rows_of_files_have_either_name(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", ORDERS.remove(5), key="Order ID", rename="snake")
    (tmp_path / "a.csv").write_text("Order ID,order-date,größe,2024,plain\n7,2026,1,3,04\n")
    (tmp_path / "b.csv").write_text("order_id,order_date,grosse,_2024,plain\n8,2026,1,3,05\n")
    for file in ("a.csv", "b.csv"):
        table.upsert(tmp_path / file)  # texts are read by the types of the table
    assert table.get([7, 8]).select(["order_date", "plain"]).to_pylist() == [
        {"order_date": "2026", "plain": "04"},
        {"order_date": "2026", "plain": "05"},
    ]
    nested = orders(tmp_path / "u")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row | {"plain": "z"}) + "\n" for row in ROWS))
    nested.upsert(tmp_path / "c.jsonl")
    assert in_order(nested.scan(names="original").to_arrow(), "Order ID") == [row | {"plain": "z"} for row in ROWS]


def test_a_column_keeps_its_original_through_every_change_of_columns(tmp_path: Path) -> None:
    table = orders(tmp_path / "t")
    before = table.cursor
    table.alter(
        [
            hoodoo.RenameColumn("größe", "size"),
            hoodoo.MoveColumn("größe", after="Order ID"),
            hoodoo.AddColumn("where to.street", "string", after="Zip Code"),
            hoodoo.RenameColumn("where to.Zip Code", "zip"),
        ],
        rewrite=True,
    )
    table.alter.widen_column("2024", "int64")
    assert table.schema.names == ["order_id", "size", "order_date", "_2024", "plain", "where_to"]
    assert table.schema.field("where_to").type == pa.struct(
        [("zip", pa.string()), ("street", pa.string()), ("city", pa.string())]
    )
    assert (
        table.inspect.original_names["size"] == "größe" and table.inspect.original_names["where_to.zip"] == "Zip Code"
    )
    table.upsert([ROWS[0] | {"größe": 7.0, "where to": {"Zip Code": "9", "street": "s", "city": "c"}}])
    assert table.scan(where='"größe" = 7 AND "where to"."Zip Code" = \'9\'').count() == 1
    assert table.scan(names="original", as_of=before).schema == ORDERS
    table.alter.drop_column("größe")
    assert "größe" not in table.inspect.original_names.values()
    with pytest.raises(hoodoo.ColumnError, match="größe"):
        table.scan(columns=["größe"])
    table.restore(before)
    assert table.scan(where="größe > 2").count() == 2
    with pytest.raises(hoodoo.SchemaError, match="order_id"):
        table.alter.drop_column("Order ID")


def test_create_takes_originals_wherever_it_names_columns(tmp_path: Path) -> None:
    schema = pa.schema([("Order ID", pa.int64(), False), ("Placed At", pa.timestamp("us")), ("v no", pa.int32())])
    table = hoodoo.create(
        tmp_path / "t",
        schema,
        key=["Order ID"],
        partition_by=[hoodoo.day("Placed At")],
        order_by="v no",
        checks={"positive": '"Order ID" > 0'},
        rename="snake",
    )
    assert (table.partition_by, table.order_by) == (("placed_at_day",), ("v_no",))
    assert table.checks == {"positive": '"order_id" > 0'}
    noon = dt.datetime(2026, 3, 1, 12)
    table.upsert([{"Order ID": 1, "Placed At": noon, "v no": 2}])
    table.upsert([{"Order ID": 1, "Placed At": noon, "v no": 1}])
    assert table.scan(where="\"Placed At\" < '2026-03-02'", names="original").to_arrow()["v no"].to_pylist() == [2]
    assert table.get([{"Order ID": 1, "Placed At": noon}]).num_rows == 1
    nested = pa.schema([("id", pa.int64()), ("at", pa.date32()), ("s", pa.list_(pa.struct([("a b", pa.int64())])))])
    lists = hoodoo.create(tmp_path / "u", nested, key="id", partition_by=hoodoo.day("at"), rename="snake")
    lists.upsert([{"id": 1, "at": dt.date(2026, 1, 1), "s": [{"a b": 1}, {"a b": 2}]}])
    assert lists.inspect.original_names == {
        "s[].a_b": "a b"
    }  # ids of fields come after that of the column that was added
    assert lists.scan(["s"], names="original").to_arrow().to_pylist() == [{"s": [{"a b": 1}, {"a b": 2}]}]
    with pytest.raises(hoodoo.OptionError, match="rename must be 'snake'"):
        hoodoo.create(tmp_path / "v", schema, key="Order ID", rename="camel")


def test_a_table_without_originals_is_as_it_was(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id", rename="snake")
    assert table.inspect.original_names == {}
    assert "original_names" not in (tmp_path / "t" / ".hoodie" / "hoodie.properties").read_text()
    assert table.scan(names="original").schema.names == ["id"]


def test_originals_survive_what_files_and_pickles_do_to_texts(tmp_path: Path) -> None:
    odd = ['say "hi"', "a`b", "tab\there", "名前", "é\u0301", "=:#!\\", "🦊", "a.b", "x[]", ""]
    table = hoodoo.create(
        tmp_path / "t", pa.schema([("id", pa.int64()), *((one, pa.int64()) for one in odd)]), key="id", rename="snake"
    )
    table.upsert([{"id": 1, **dict.fromkeys(odd, 1)}])
    again = pickle.loads(pickle.dumps(hoodoo.open(table.path)))
    assert list(again.inspect.original_names.values()) == odd
    assert again.scan(names="original").schema.names == ["id", *odd]
    for one in odd:
        quoted = one.replace('"', '""')
        assert again.scan(columns=[one], where=f'"{quoted}" = 1').count() == 1
    again.alter.drop_column("a.b")
    assert "a.b" not in again.inspect.original_names.values()
