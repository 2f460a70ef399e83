"""The jars of Apache Kafka's broker, for tests.

Run as a program it fetches what is not here; with a version of Kafka it makes the list anew before.
"""

from __future__ import annotations

import sys
from pathlib import Path

from java_program import ROOT
from listed_jars import JarList, run

KAFKA = JarList(
    "Kafka",
    Path(__file__).with_name("kafka_jars.txt"),
    ROOT / ".jars" / "kafka",
    ("org.apache.kafka:kafka_2.13",),
)

if __name__ == "__main__":
    run(KAFKA, sys.argv[1:])
