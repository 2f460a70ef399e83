"""Figures that tests measure, one JSON file each, in the folder that HOODOO_FIGURES names; without it nothing is
written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def record(name: str, **figures: object) -> None:
    """Write `figures` as <name>.json, replacing those of an earlier run."""
    folder = os.environ.get("HOODOO_FIGURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{name}.json").write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
