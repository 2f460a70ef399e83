"""Committed write: its commit and row counts."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.readers.cursor import Cursor


@dataclass
class Committed:
    """Committed write, with its commit and row counts.

    See `hoodoo.table.results.WriteResult`.
    """

    cursor: Cursor
    instant: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    exact: bool = True
    files: int = 0
    bytes_written: int = 0
    retries: int = 0
    skipped: bool = False
    rows_rewritten: int = 0
