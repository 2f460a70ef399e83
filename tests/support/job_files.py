"""Files that a job takes into a table, and what the table has then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hoodoo
from hoodoo.sources import Files


def put(folder: Path, name: str, *rows: Any) -> None:
    """Write a file of lines; what is no text is JSON."""
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))


def files(folder: Path) -> Files:
    """The folder as a source that waits for no file."""
    return Files(folder, settle_seconds=0)


def ids(table: hoodoo.Table) -> list[int]:
    """The keys that a table has."""
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())
