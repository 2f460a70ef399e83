"""Where the Java is that servers of tests run by."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def java() -> str:
    """The program: of JAVA_HOME, or what `tools/java.sh` finds or installs."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        asked = subprocess.run([ROOT / "tools" / "java.sh"], check=True, stdout=subprocess.PIPE, text=True)
        home = asked.stdout.strip().splitlines()[-1]
    return f"{home}/bin/java"
