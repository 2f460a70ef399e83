"""The jars of Spark's source for topics of Kafka, for the tests that have a stream of Spark read a real topic.

Run as a program it fetches what is not here.
"""

from __future__ import annotations

from pathlib import Path

from java_program import ROOT
from listed_jars import JarList, run

SPARK_KAFKA = JarList(
    "Spark's source for Kafka", Path(__file__).with_name("spark_kafka_jars.txt"), ROOT / ".jars" / "spark-kafka", ()
)

if __name__ == "__main__":
    run(SPARK_KAFKA, ())
