#!/usr/bin/env bash
# Run a command in .venv-formats: pyiceberg, and DuckDB with its extensions for Iceberg and Delta, which exist for one
# version of DuckDB each. tools/formats.sh python -m pytest tests/formats lets them read what tables export.
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/environment.sh
venv=.venv-formats
duckdb=1.5.5

make_environment $venv .venv/bin/python 'duckdb|pyspark|hudi' \
    "pyiceberg[sql-sqlite,glue,hive]==0.12.0" "moto[glue]" "duckdb==$duckdb" "duckdb-extensions==$duckdb" "duckdb-extension-avro==$duckdb" \
    "duckdb-extension-httpfs==$duckdb" "duckdb-extension-iceberg==$duckdb" "duckdb-extension-delta==$duckdb" \
    deltalake polars pandas greenlet --editable .
run_in $venv "$@"
