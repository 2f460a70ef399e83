"""Columns whose names Avro does not allow, on the command line: `create --rename snake`, and either name afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hoodoo

CSV = 'Order ID,order-date,größe,"Ship, to"\n1,2026-01-01,1.5,rome\n2,2026-01-02,2.5,oslo\n'


@pytest.fixture
def orders(tmp_path: Path, run: Any) -> Path:
    """A table of two orders, whose columns have other names than the file."""
    (tmp_path / "orders.csv").write_text(CSV)
    path = tmp_path / "orders"
    create = ("create", path, "--schema-from", tmp_path / "orders.csv", "--key", "Order ID")
    code, _, err = run(*create)
    assert (
        code == 1 and "--rename snake" in err and "'order-date' (suggested name: order_date)" in " ".join(err.split())
    )
    assert run(*create, "--partition-by", "month(order-date)", "--rename", "snake")[0] == 0
    assert run("upsert", path, tmp_path / "orders.csv")[0] == 0
    return path


def test_commands_take_either_name_of_a_column_and_give_the_one_that_is_asked_for(
    orders: Path, tmp_path: Path, lines: Any, machine: Any, run: Any
) -> None:
    originals = {"order_id": "Order ID", "order_date": "order-date", "grosse": "größe", "ship_to": "Ship, to"}
    assert machine("info", orders)["original_names"] == originals
    [row] = lines("scan", orders, "--where", '"Order ID" = 2', "--columns", "größe,ship_to")
    assert row == {"grosse": 2.5, "ship_to": "oslo"}
    [row] = lines("scan", orders, "--where", "order_id = 2", "--columns", "größe,ship_to", "--names", "original")
    assert row == {"größe": 2.5, "Ship, to": "oslo"}
    assert set(lines("get", orders, "1", "--names", "original")[0]) == {*originals.values(), "order_date_month"}
    assert lines("get", orders, json.dumps({"Order ID": 1}))[0]["ship_to"] == "rome"
    assert machine("update", orders, "--set", "größe=größe * 2", "--where", "\"Ship, to\" = 'rome'")["updated"] == 1
    (tmp_path / "more.jsonl").write_text('{"Order ID": 2, "order-date": "2026-01-02", "größe": 9}\n')
    assert machine("upsert", orders, tmp_path / "more.jsonl", "--columns", "größe,order-date")["updated"] == 1
    changed = lines("changes", orders, "--since", "2", "--names", "original", "--columns", "Order ID,größe")
    assert sorted(one["after"]["größe"] for one in changed) == [3.0, 9.0]
    back = tmp_path / "back.csv"
    assert run("scan", orders, "--names", "original", "--output", back)[0] == 0
    assert back.read_text().splitlines()[0].replace('"', "").startswith("Order ID,order-date,größe,Ship, to")
    assert run("alter", orders, "rename", "größe", "size", "--rewrite")[0] == 0
    assert hoodoo.open(orders).inspect.original_names["size"] == "größe"
    (tmp_path / "gone.csv").write_text("Order ID,order-date\n1,2026-01-01\n")
    assert machine("delete", orders, tmp_path / "gone.csv")["deleted"] == 1


def test_a_file_with_both_names_of_a_column_is_refused(orders: Path, tmp_path: Path, run: Any) -> None:
    (tmp_path / "both.csv").write_text('Order ID,order_id,order-date,größe,"Ship, to"\n1,1,2026-01-01,1.5,rome\n')
    code, _, err = run("upsert", orders, tmp_path / "both.csv")
    assert code == 1 and "two names of the same column" in " ".join(err.split())


def test_a_timestamp_to_partition_by_is_warned_of_on_stderr(tmp_path: Path, run: Any) -> None:
    create = ("create", tmp_path / "t", "--schema", "id long, at timestamp", "--key", "id", "--partition-by")
    code, out, err = run(*create, "at", "--json")
    assert code == 0 and json.loads(out)["partition_by"] == ["at"]
    assert "one folder per distinct time" in err and "day(at)" in err and "commands.py" not in err
