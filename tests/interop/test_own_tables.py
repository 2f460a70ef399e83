"""Tables that hoodoo wrote are Hudi tables to Apache Hudi: it reads them at every instant, and writes on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
DDL = "id string, city string, ts bigint, fare double, at timestamp"
MIDNIGHT = dt.datetime(2024, 1, 1)
Rows = list[tuple[str, str, int, float]]
History = list[tuple[str, Rows]]
"""Instant, and the rows of the table as of it."""

TABLES = [(type_, by, order) for type_ in ("merge_on_read", "copy_on_write") for by in ("city", None) for order in ("ts", None)]


def batch(*rows: tuple[str, str, int, float]) -> pa.Table:
    at = MIDNIGHT.replace(tzinfo=dt.timezone.utc)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, (*row, at), strict=True)) for row in rows], SCHEMA)


def plain(rows: list[dict[str, Any]]) -> Rows:
    return sorted((row["id"], row["city"], row["ts"], row["fare"]) for row in rows)


def build(path: Path, type_: str, partition_by: str | None, order_by: str | None) -> tuple[hoodoo.Table, History]:
    table = hoodoo.create(path, SCHEMA, key="id", partition_by=partition_by, order_by=order_by, type=type_)
    history: History = []

    def done(result: Any) -> None:
        history.append((result.instant, plain(table.scan().to_arrow().to_pylist())))

    done(table.upsert(batch(*((f"k{n}", "sf" if n < 5 else "la", 10, float(n)) for n in range(1, 9)))))
    done(table.upsert(batch(("k1", "sf", 20, 11.0), ("k9", "ny", 10, 9.0), ("k2", "sf", 5, 22.0))))
    done(table.delete(batch(("k3", "sf", 1, 0.0), ("k5", "la", 1, 0.0))))
    if type_ == "merge_on_read":
        table.compact()
    done(table.upsert(batch(("k1", "sf", 30, 111.0), ("k3", "sf", 1, 3.5))))
    done(table.insert_overwrite(batch(("k6", "la", 10, 66.0), ("k7", "sf" if partition_by is None else "la", 10, 77.0))))
    done(table.upsert(batch(("k6", "la", 11, 67.0))))
    return table, history


@pytest.mark.parametrize(("type_", "partition_by", "order_by"), TABLES)
def test_apache_hudi_reads_what_hoodoo_reads_at_every_instant(
    hudi_rows: Callable[..., list[dict[str, Any]]], tmp_path: Path, type_: str, partition_by: str | None, order_by: str | None
) -> None:
    table, history = build(tmp_path / "t", type_, partition_by, order_by)
    assert plain(hudi_rows(tmp_path / "t")) == history[-1][1]
    for instant, rows in history:
        assert plain(hudi_rows(tmp_path / "t", as_of=instant)) == rows
    base_only = plain(table.scan(read_optimized=True).to_arrow().to_pylist())
    assert plain(hudi_rows(tmp_path / "t", read_optimized=True)) == base_only


@pytest.mark.parametrize(("type_", "partition_by", "order_by"), TABLES)
def test_apache_hudi_upserts_and_deletes_by_key_in_a_table_of_hoodoo(
    hudi_rows: Callable[..., list[dict[str, Any]]],
    hudi_write: Callable[..., None],
    tmp_path: Path,
    type_: str,
    partition_by: str | None,
    order_by: str | None,
) -> None:
    path = tmp_path / "t"
    _, history = build(path, type_, partition_by, order_by)
    rows = {(row[0], row[1]): row for row in history[-1][1]}
    upserted = [("k6", "la", 50, 600.0), ("k30", "la", 1, 30.0)]
    hudi_write(path, [(*row, MIDNIGHT) for row in upserted], DDL, "upsert", {"hoodie.metadata.enable": "false"})
    hudi_write(path, [("k7", "la", 90, 0.0, MIDNIGHT)], DDL, "delete", {"hoodie.metadata.enable": "false"})
    expected = rows | {(row[0], row[1]): row for row in upserted}
    expected = {key: row for key, row in expected.items() if key[0] != "k7"}
    assert plain(hudi_rows(path)) == sorted(expected.values())
    assert plain(hoodoo.open(path).scan().to_arrow().to_pylist()) == sorted(expected.values())
