#!/usr/bin/env bash
# Run a command in .venv-spark-kafka: PySpark 4.0.0, the newest for which Spark's source for Kafka has all of its jars, and
# hoodoo with a client of Kafka. tools/spark_kafka.sh python -m pytest tests/spark_kafka has a stream read a real topic.
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/environment.sh
venv=.venv-spark-kafka
spark=4.0.0

make_environment $venv .venv/bin/python pyspark "pyspark[sql]==$spark" greenlet --editable '.[kafka]'
$venv/bin/python tests/support/spark_kafka_jars.py
run_in $venv "$@"
