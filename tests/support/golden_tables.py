"""The tables of tests/data/golden, which Apache Hudi wrote, and the rows that Hudi read from them (tools/golden.py
tells their form); those of tests/data/golden_columns, whose columns it changed (tools/golden_columns.py); those of
tests/data/golden_version_6, of table version 6 (tools/golden_version_6.py).
"""

from __future__ import annotations

import json
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "data" / "golden"

_COLUMNS = _FOLDER.with_name("golden_columns")
_VERSION_6 = _FOLDER.with_name("golden_version_6")
_FOLDERS = {
    path.name.removesuffix(".json"): path.parent for at in (_FOLDER, _COLUMNS, _VERSION_6) for path in at.glob("*.json")
}

NAMES = sorted(name for name, folder in _FOLDERS.items() if folder == _FOLDER)
CHANGED_COLUMNS = sorted(name for name, folder in _FOLDERS.items() if folder == _COLUMNS)
VERSION_6 = sorted(name for name, folder in _FOLDERS.items() if folder == _VERSION_6)


def facts(name: str) -> dict[str, Any]:
    """What Hudi read: `snapshot`, `read_optimized`, and per entry of `instants` the `rows` as of it and those it
    `changed`.
    """
    loaded: dict[str, Any] = json.loads((_FOLDERS[name] / f"{name}.json").read_text())
    return loaded


def unpack(name: str, folder: Path) -> Path:
    """A fresh copy of the table, in `folder/<name>`."""
    with tarfile.open(_FOLDERS[name] / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def plain(value: Any) -> Any:
    """A value in the form that the facts have it in."""
    if hasattr(value, "isoformat"):
        return value.replace(tzinfo=None).isoformat() if getattr(value, "tzinfo", None) else value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return (
        format(value.normalize(), "f") if isinstance(value, Decimal) else value
    )  # the same number, whatever scale it came with


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the facts: by their text."""
    return sorted(map(plain, rows), key=repr)


def stored(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a table of version 6 as its files have them: of keys that format times, Hudi 0.15 reads the partition
    column from the folders' names. Hudi 1.2 and hoodoo read the files.
    """
    if name != "v6_cow_timestamp_keys":
        return rows
    return [row | {"made": f"{row['made'][:4]}-{row['made'][4:6]}-05"} for row in rows]


def by_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows, and the columns in each, in an order of their own: releases of Hudi put partition columns elsewhere."""
    return sorted((dict(sorted(row.items())) for row in rows), key=repr)
