"""Write two tables of docs/other-engines.md from the results that `make engines` records in tests/data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/data/engines.json"
WRITES = ROOT / "tests/data/engine_writes.json"
PAGE = ROOT / "docs/other-engines.md"
BEGIN, END = "<!-- table of engines: make engines -->\n", "<!-- end of the table of engines -->\n"
WRITES_BEGIN, WRITES_END = "<!-- table of writes: make engines -->\n", "<!-- end of the table of writes -->\n"
COLUMNS = {
    "Iceberg": "iceberg base",
    "Iceberg, merged": "iceberg merged",
    "Iceberg 3, merged": "iceberg v3",
    "Delta": "delta base",
    "Delta, merged": "delta merged",
    "Hudi": "hudi none",
    "Hudi, base files": "hudi_base none",
}


def table(results: dict[str, Any]) -> str:
    """Return the table as Markdown, with one line for each engine."""
    lines = [f"| Engine | {' | '.join(COLUMNS)} | Notes |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for result in sorted(results.values(), key=lambda result: str(result["version"]).lower()):
        cells = [_cell(result, prefix) for prefix in COLUMNS.values()]
        lines.append(f"| {result['version']} | {' | '.join(cells)} | {'; '.join(result['limits'])} |")
    return "\n".join(lines) + "\n"


def table_of_writes(writes: dict[str, dict[str, str]], results: dict[str, Any]) -> str:
    """Return the table of writes as Markdown, with one line for each engine and a column for each end of a write."""
    ends = {
        "refused": "Refused",
        "detected": "Detected",
        "no change": "Without effect",
        "table deleted": "Deletes the table",
    }
    lines = [f"| Engine | {' | '.join(ends.values())} |", "| --- " * (len(ends) + 1) + "|"]
    for engine, of_engine in sorted(writes.items(), key=lambda item: str(results[item[0]]["version"]).lower()):
        cells = [", ".join(statement for statement, found in of_engine.items() if found == end) for end in ends]
        lines.append(f"| {results[engine]['version']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(result: dict[str, Any], prefix: str) -> str:
    right = sum(count for kind, count in result["right"].items() if kind.startswith(prefix))
    faults = [outcome for case, outcome in result["faults"].items() if case.startswith(prefix)]
    if not right and not faults:
        return ""
    wrong = sum(outcome.startswith("wrong") for outcome in faults)
    refused = len(faults) - wrong
    parts = [f"{right} right", f"{wrong} wrong" if wrong else "", f"{refused} refused" if refused else ""]
    return "right" if not faults else ", ".join(part for part in parts if part)


def main() -> None:
    """Replace both tables in the page."""
    results, writes = json.loads(RESULTS.read_text()), json.loads(WRITES.read_text())
    page = PAGE.read_text()
    for begin, content, end in (
        (BEGIN, table(results), END),
        (WRITES_BEGIN, table_of_writes(writes, results), WRITES_END),
    ):
        pattern, section = re.escape(begin) + ".*" + re.escape(end), begin + content + end
        page = re.sub(pattern, lambda _, section=section: section, page, flags=re.DOTALL)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
