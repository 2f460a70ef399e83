#!/usr/bin/env bash
# Make the environments of the engines that read exported tables, and test what each engine reads (make engines).
# tools/engines.sh -k polars tests one engine. UPDATE=1 records the results in tests/data/engines.json and in the docs.
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/environment.sh
duckdb=1.5.5

environment() { # NAME REQUIREMENT...: an environment of its own
    local venv=.venv-engines/$1
    shift
    is_old "$venv/stamp" || return 0
    [ -x "$venv/bin/python" ] || .venv/bin/python -m venv "$venv"
    tools/retry.sh "packages of ${venv##*/}" "$venv/bin/python" -m pip install --quiet --no-compile \
        --disable-pip-version-check "$@"
    touch "$venv/stamp"
}

environment lake "duckdb==$duckdb" "duckdb-extensions==$duckdb" "duckdb-extension-avro==$duckdb" \
    "duckdb-extension-httpfs==$duckdb" "duckdb-extension-iceberg==$duckdb" "duckdb-extension-delta==$duckdb" \
    deltalake==1.6.6 polars==2.1.0 "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
environment clickhouse chdb==4.4.0 pyarrow==26.0.1
environment datafusion datafusion==54.1.0 pyiceberg-core==0.11.0 pyarrow==26.0.1
environment sail pysail==0.7.2 pyspark-client==4.2.0 pandas==3.1.1 pyarrow==26.0.1
environment daft daft==0.7.26 deltalake==1.6.6 pyiceberg==0.12.0 pyarrow==25.0.1
environment hudi hudi==0.5.0 pyarrow==26.0.1
environment trino trino==0.340.0 jpype1==1.7.1 "pyiceberg[hive]==0.12.0" --editable .
environment spark pyspark==4.0.5 pandas==2.3.3 pyarrow==22.0.0
environment flink apache-flink==1.20.5
PYTHONPATH=tests/support .venv/bin/python tests/engines/engine_jars.py

.venv/bin/python -m pytest -q tests/engines "$@"
if [ -n "${UPDATE:-}" ]; then .venv/bin/python tools/engine_table.py; fi
