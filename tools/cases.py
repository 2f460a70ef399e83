"""Runs programs that once showed a fault, and says which of them show it still.

`python tools/cases.py FOLDER [NAME ...]` runs each program of FOLDER that is known here, with this Python and in a
folder of its own, and compares what it prints with what is right now: texts that must occur, and texts that must not.
A program that is refused in words is right where its fault was to be let in. Ends with 1 if one shows its fault.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """Patterns (re.search) that the output must hold, and that it must not."""

    must: tuple[str, ...]
    never: tuple[str, ...] = ()


RAW = r"RAW!"
CASES = {
    "red_nested_null_min": Case((r"verify \[\]", r"projection id 2"), ("CorruptTable",)),
    "red_nested_null": Case((r"cases \d+",), ("CorruptTable", "DIFF")),
    "red_utf8": Case((r"ColumnError: .*Column 's', row 0 .*not UTF-8",), ("CorruptTable",)),
    "red_utf8_recover": Case((r"ColumnError: .*not UTF-8",), ("CorruptTable",)),
    "red_time24": Case((r"ColumnError: .*Column 'at', row 0",), ("CorruptTable",)),
    "red_nested_time": Case((r"list bad utf8 +upsert ColumnError", r"time 24h +upsert ColumnError"), ("CorruptTable",)),
    "red_nested_sweep": Case((r"NestedTable",), ()),
    "red_collision": Case((r"insert\(B\) ok", r"purge proved True", r"5 after purge: \[\]"), ("KeyExists", "Corrupt")),
    "red_keygen": Case((r"\(is 1 row\) -> 1\b", r"\(is 2 rows\) -> 2\b"), (r"\(is 1 row\) -> [02]",)),
    "red_backup": Case((r"fresh upsert -> 1",), ("CorruptTable",)),
    "red_backup2": Case((r"then a new open: ids \[0, 1, 2, 100, 200",), ("CorruptTable",)),
    "red_purge": Case((r"purge 0 proved True",), ("proved False",)),
    "red_partial": Case((r"id IS NULL'\): \[\]", r"IS NOT NULL\) 0 0"), ()),
    "red_empty_groups": Case((r"3 rows -> 3 files",), (r"\b0\]", r"\[0,")),
    "red_polars": Case((r"Enum 1",), (RAW, "Traceback")),
    "listview": Case((r"50 ok",), (RAW, "Traceback")),
    "casts": Case((r"dict<binary_view> -> \[b'x'\]",), (RAW, "Traceback")),
    "red_year": Case((r"scan -> 0",), (RAW, "Traceback", "OverflowError")),
    "edges1": Case((r"ok +umask 0 again",), (RAW, "Traceback")),
    "misc2": Case((r"null into NOT NULL column -> HOOD ColumnError",), (RAW, "Traceback")),
    "red_setopt": Case((r"lost: 0 of 200",), ()),
}


def shows_its_fault(program: Path, case: Case, seconds: float = 600) -> str:
    """Why the output of `program` is not right, '' if it is."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, str(program)], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return f"did not end within {seconds:g} s"
    said = done.stdout + done.stderr
    missing = [pattern for pattern in case.must if not re.search(pattern, said)]
    wrong = [pattern for pattern in case.never if re.search(pattern, said)]
    return "; ".join([f"lacks {text!r}" for text in missing] + [f"says {text!r}" for text in wrong])


def main(folder: Path, names: list[str]) -> int:
    """How many of the programs are wrong."""
    found = 0
    for name in names or list(CASES):
        began = time.monotonic()
        why = shows_its_fault(folder / f"{name}.py", CASES[name])
        found += bool(why)
        print(f"{'WRONG' if why else 'right'}  {time.monotonic() - began:6.1f} s  {name}  {why}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]), sys.argv[2:])))
