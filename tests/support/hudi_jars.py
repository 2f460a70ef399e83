"""The jars of Apache Hudi, Delta Lake and Iceberg for a session of Spark 3.5, for tests.

Run as a program it fetches the jars that are missing.
"""

from __future__ import annotations

from pathlib import Path

from java_program import ROOT
from listed_jars import JarList, run

RELEASE = "1.2.0"
"""The release of Hudi in `HUDI`."""
HUDI = JarList("Apache Hudi", Path(__file__).with_name("hudi_jars.txt"), ROOT / ".jars" / "hudi", ())
OLD_HUDI = JarList("Apache Hudi 0.15", Path(__file__).with_name("hudi_0_15_jars.txt"), ROOT / ".jars" / "hudi-0.15", ())
"""The last release of Hudi whose default is table version 6."""

if __name__ == "__main__":
    run(HUDI, ())
