#!/usr/bin/env bash
# Run a command in .venv-spark-kafka: PySpark 4.0.0, the newest for which Spark's source for Kafka has all of its jars, and
# hoodoo with a client of Kafka. tools/spark_kafka.sh python -m pytest tests/spark_kafka has a stream read a real topic.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-spark-kafka
spark=4.0.0

if [ ! -e $venv/stamp ] || [ requirements-dev.txt -nt $venv/stamp ] || [ pyproject.toml -nt $venv/stamp ] ||
    [ tools/spark_kafka.sh -nt $venv/stamp ]; then
    [ -x $venv/bin/python ] || .venv/bin/python -m venv $venv
    constraints=$(mktemp)
    trap 'rm -f "$constraints"' EXIT
    grep -Ev '^pyspark==' requirements-dev.txt >"$constraints"
    $venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint "$constraints" \
        "pyspark[sql]==$spark" pytest pytest-timeout pytest-rerunfailures pytest-xdist hypothesis greenlet --editable '.[kafka]'
    touch $venv/stamp
fi
$venv/bin/python tests/support/spark_kafka_jars.py

command=$1
shift
exec "$venv/bin/$command" "$@"
