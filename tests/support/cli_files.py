"""Rows of the command line's test table, and files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLUMNS = "id string, city string, at timestamp, fare double"


def row(name: str, fare: float | None = 1.0, at: int = 1, city: str = "x") -> dict[str, Any]:
    return {"id": name, "city": city, "at": f"2026-01-{at:02d}T00:00:00Z", "fare": fare}


def json_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path
