"""The jars of Debezium and of Kafka Connect, which runs it.

Run as a program it fetches what is not here; with a version of Debezium it makes the list anew before.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
from listed_jars import JarList, run  # noqa: E402  # as the tests fetch those of Kafka

DEBEZIUM = JarList(
    "Debezium",
    Path(__file__).with_name("debezium_jars.txt"),
    ROOT / ".jars" / "debezium",
    ("io.debezium:debezium-embedded", "io.debezium:debezium-connector-postgres"),
)

if __name__ == "__main__":
    run(DEBEZIUM, sys.argv[1:])
