"""Tables for the tests of engines, with their exports and the rows that each engine has to return.

`make_tables` writes each table once for each item of EXPORTS. manifest.json lists the tables, their rows, filters and
snapshots.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from engine_values import canonical_rows
from exported_tables import EVERY, every_row

import hoodoo

PLAIN = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("note", pa.string())])
PARTITIONED = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
TYPES = pa.schema([field for field in EVERY if field.name not in ("part", "local")])
LOCAL_TIMES = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("local", pa.timestamp("us")), ("v", pa.string())])
TIMES = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
EVOLVING = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.float32()),
        ("d", pa.string()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
ODD_VALUES = ["plain", "a b", "ü", "a/b", "g=h", "e%", "%2F", "i&j", "k'l", "#m", "n?o", "p+q", "x:y", "", None]
"""Partition values whose folder names need escaping."""
KINDS = ("copy_on_write", "merge_on_read")
EXPORTS: dict[str, dict[str, Any]] = {
    "none": {},
    "base": {"delta": True, "iceberg": True},
    "merged": {"delta": True, "iceberg": True, "mode": "merged"},
    "v3": {"iceberg": True, "iceberg_version": 3, "mode": "merged"},
}
"""Arguments of the exports by mode. Tables of the mode 'none' have no export."""
History = Iterator[hoodoo.Table]
"""Commits of a table. The table is yielded after each step that engines have to be able to read."""


def _create(path: str, schema: pa.Schema, kind: str, **more: Any) -> hoodoo.Table:
    options = {"key": "id", "type": kind, "clean_every": None} | more
    if kind == "merge_on_read":
        options["compact_after_logs"] = None
    return hoodoo.create(path, schema, **options)


def plain(path: str, kind: str) -> History:
    table = _create(path, PLAIN, kind, order_by="ts")
    table.upsert([{"id": f"k{n:03}", "ts": 1, "fare": n / 4, "note": "first"} for n in range(60)])
    yield table
    table.upsert([{"id": f"k{n:03}", "ts": 2, "fare": -n / 4, "note": "second"} for n in range(50, 66)])
    table.upsert([{"id": "k000", "ts": 0, "fare": 99.0, "note": "stale"}])
    yield table
    table.delete([{"id": f"k{n:03}"} for n in (1, 2, 55, 63)])
    table.upsert([{"id": f"k{n:03}", "ts": 5, "fare": n * 100.5, "note": None} for n in (7, 8, 51)])
    yield table


def types(path: str, kind: str) -> History:
    table = _create(path, TYPES, kind)
    for numbers, version in ((range(20), 0), (range(10, 25), 1), ((3, 4, 12), 7)):
        table.upsert(pa.Table.from_pylist([every_row(n, version) for n in numbers], schema=TYPES))
        table.delete([{"id": version}])
        yield table


def local_times(path: str, kind: str) -> History:
    table = _create(path, LOCAL_TIMES, kind)
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    table.upsert([{"id": n, "ts": 0, "local": moment + dt.timedelta(days=n * 97), "v": f"v{n}"} for n in range(10)])
    yield table
    table.upsert([{"id": n, "ts": 1, "local": moment - dt.timedelta(hours=n), "v": None} for n in range(5, 13)])
    table.delete([{"id": n} for n in (0, 11)])
    yield table


def odd_partitions(path: str, kind: str) -> History:
    table = _create(path, PARTITIONED, kind, partition_by="part")
    parts = list(enumerate(ODD_VALUES))
    table.upsert([{"id": f"{i}-{n}", "part": part, "ts": 1, "v": n} for i, part in parts for n in range(4)])
    yield table
    table.upsert([{"id": f"{i}-{n}", "part": part, "ts": 2, "v": 100 + n} for i, part in parts for n in (1, 7)])
    table.delete([{"id": f"{i}-2", "part": part} for i, part in parts])
    yield table


def generated_partitions(path: str, kind: str) -> History:
    table = _create(path, TIMES, kind, partition_by=[hoodoo.day("at"), hoodoo.bucket(2, "id")])

    def at(number: int) -> dt.datetime:
        return dt.datetime(2026, 3, 1, 22, tzinfo=dt.timezone.utc) + dt.timedelta(hours=number % 5)

    table.upsert([{"id": n, "at": at(n), "v": n} for n in range(20)])
    yield table
    table.upsert([{"id": n, "at": at(n), "v": 100 + n} for n in range(15, 22)])
    table.delete([{"id": n, "at": at(n)} for n in (0, 16)])
    yield table


def changed_columns(path: str, kind: str) -> History:
    """Change columns without rewriting a file."""
    yield from _changed(path, kind, rewrite=False)


def rewritten_columns(path: str, kind: str) -> History:
    """Change columns, and rewrite files for a renamed and a widened column."""
    yield from _changed(path, kind, rewrite=True)


def _changed(path: str, kind: str, rewrite: bool) -> History:
    table = _create(path, EVOLVING, kind)
    row = {"ts": 1, "c": 1.5, "d": "d", "s": {"x": 1, "y": "y"}}
    table.upsert([{**row, "id": n, "a": n, "b": f"b{n}"} for n in range(12)])
    yield table
    table.alter.add_column("e", pa.string(), default="default", after="a")
    table.alter.widen_column("a", pa.int64())
    table.alter.drop_column("d")
    table.alter.add_column("s.z", pa.int64())
    table.alter.add_column("f", pa.decimal128(10, 2))
    table.alter.move_column("f", first=True)
    if rewrite:
        table.alter.rename_column("b", "bee", rewrite=True)
        table.alter.widen_column("c", pa.float64(), rewrite=True)
    yield table
    name = "bee" if rewrite else "b"
    late = {"ts": 2, "c": 2.25, "e": None, "s": {"x": 3, "y": "Y", "z": 9}, "f": Decimal("1.25")}
    table.upsert([{**late, "id": n, "a": 2**40 + n, name: f"B{n}"} for n in (3, 12)])
    table.delete([{"id": 5}])
    yield table


def replaced_files(path: str, kind: str) -> History:
    """Overwrite, delete partitions, compact and cluster."""
    table = _create(path, PARTITIONED, kind, partition_by="part")
    parts = list(enumerate(("rome", "oslo", "lima")))
    table.upsert([{"id": f"{i}-{n}", "part": part, "ts": 1, "v": n} for i, part in parts for n in range(30)])
    table.upsert([{"id": f"{i}-{n}", "part": part, "ts": 2, "v": 100 + n} for i, part in parts for n in range(20, 40)])
    yield table
    table.insert_overwrite([{"id": f"o{n}", "part": "rome", "ts": 1, "v": n} for n in range(5)])
    table.delete_partitions(["lima"])
    if kind == "merge_on_read":
        table.compact()
    table.maintenance.cluster(sort_by="v")
    yield table
    table.upsert([{"id": "o2", "part": "rome", "ts": 5, "v": 77}, {"id": "1-5", "part": "oslo", "ts": 5, "v": 5}])
    table.delete([{"id": "1-6", "part": "oslo"}])
    yield table


def partial_rows(path: str, kind: str) -> History:
    table = _create(path, PLAIN, kind)
    table.upsert([{"id": f"k{n:03}", "ts": 1, "fare": n / 4, "note": "first"} for n in range(60)])
    yield table
    table.upsert([{"id": f"k{n:03}", "fare": -1.0} for n in range(5, 20)], columns="given")
    table.update({"note": "'updated'"}, where="id > 'k040'")
    table.delete([{"id": "k010"}])
    yield table


HISTORIES: tuple[Callable[[str, str], History], ...] = (
    plain,
    types,
    local_times,
    odd_partitions,
    generated_partitions,
    changed_columns,
    rewritten_columns,
    replaced_files,
    partial_rows,
)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


FILTERS: dict[str, dict[str, pc.Expression]] = {
    "plain": {
        "id >= 'k055'": pc.field("id") >= "k055",
        "fare < -13": pc.field("fare") < -13,
        "ts = 2 and note = 'second'": (pc.field("ts") == 2) & (pc.field("note") == "second"),
    },
    "types": {
        "small <= -10": pc.field("small") <= -10,
        "text is null": pc.field("text").is_null(),
        "day >= DATE '1972-01-01'": pc.field("day") >= dt.date(1972, 1, 1),
        "day < DATE '1970-06-01'": pc.field("day") < dt.date(1970, 6, 1),
        "amount > 0": pc.field("amount") > Decimal(0),
    },
    "odd_partitions": {
        **{f"part = {_quoted(part)}": pc.field("part") == part for part in ODD_VALUES if part is not None},
        "part is null": pc.field("part").is_null(),
        "part > 'k'": pc.field("part") > "k",
        "v = 101": pc.field("v") == 101,
    },
    "generated_partitions": {
        "at_day = DATE '2026-03-02'": pc.field("at_day") == dt.date(2026, 3, 2),
        "id_bucket = 1": pc.field("id_bucket") == 1,
        "v > 100": pc.field("v") > 100,
    },
    "changed_columns": {
        "a > 1000000": pc.field("a") > 1_000_000,
        "e is null": pc.field("e").is_null(),
        "f > 1": pc.field("f") > Decimal(1),
    },
    "rewritten_columns": {
        "bee = 'b7'": pc.field("bee") == "b7",
        "c > 2": pc.field("c") > 2.0,
    },
}
"""Filters by table, as SQL and as an expression of Arrow. A filter that prunes too much loses rows."""


def make_tables(folder: Path, location: str | None = None) -> None:
    """Write all tables below `location`, which is `folder` by default, and manifest.json into `folder`."""
    root = location or str(folder)
    tables = [
        entry
        for mode in EXPORTS
        for history in HISTORIES
        for kind in KINDS
        for entry in _make(root, mode, history, kind)
    ]
    (folder / "manifest.json").write_text(json.dumps(tables))


def _make(root: str, mode: str, history: Callable[[str, str], History], kind: str) -> Iterator[dict[str, Any]]:
    """Write a table, and yield its entries of the manifest, one for each version of its rows that engines return."""
    name = f"{history.__name__}_{kind}"
    path = f"{root}/{mode}/{name}"
    snapshots = []
    for table in history(path, kind):
        if mode == "none":
            continue
        report = table.export(**EXPORTS[mode])
        snapshots.append(
            {
                "delta": report.delta.version if report.delta else None,
                "iceberg": report.iceberg.snapshot if report.iceberg else None,
                "rows": canonical_rows(_rows(table, mode == "base").to_pylist()),
            }
        )
    exported = [format for format in ("delta", "iceberg") if EXPORTS[mode].get(format)]
    for formats in [exported] if exported else [["hudi"], ["hudi_base"]]:
        rows = _rows(hoodoo.open(path), mode == "base" or formats == ["hudi_base"])
        filters = {
            sql: sorted(str(key) for key in rows.filter(expression).column("id").to_pylist())
            for sql, expression in FILTERS.get(history.__name__, {}).items()
        }
        yield {
            "name": name,
            "mode": mode,
            "path": path,
            "formats": formats,
            "rows": canonical_rows(rows.to_pylist()),
            "filters": filters,
            # engines differ in the columns of older snapshots
            "snapshots": [] if history in (changed_columns, rewritten_columns) else snapshots,
        }


def _rows(table: hoodoo.Table, of_base_files: bool) -> pa.Table:
    """Return the rows that an engine has to return: those of the base files, or of the newest snapshot."""
    return table.scan(read_optimized=of_base_files).to_arrow()
