"""Write the table of engines of docs/other-engines.md from tests/data/engines.json, which `make engines` records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/data/engines.json"
PAGE = ROOT / "docs/other-engines.md"
BEGIN, END = "<!-- table of engines: make engines -->\n", "<!-- end of the table of engines -->\n"
COLUMNS = {
    "Iceberg": "iceberg base",
    "Iceberg, merged": "iceberg merged",
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
    """Replace the table in the page."""
    pattern = re.escape(BEGIN) + ".*" + re.escape(END)
    content = BEGIN + table(json.loads(RESULTS.read_text())) + END
    PAGE.write_text(re.sub(pattern, lambda _: content, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
