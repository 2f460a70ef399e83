#!/usr/bin/env bash
# Run a command in .venv-formats: pyiceberg, and DuckDB with its extensions for Iceberg and Delta, which exist for one
# version of DuckDB each. tools/formats.sh python -m pytest tests/formats lets them read what tables export.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-formats
duckdb=1.4.4

if [ ! -e $venv/stamp ] || [ requirements-dev.txt -nt $venv/stamp ] || [ pyproject.toml -nt $venv/stamp ] ||
    [ tools/formats.sh -nt $venv/stamp ]; then
    [ -x $venv/bin/python ] || .venv/bin/python -m venv $venv
    constraints=$(mktemp)
    trap 'rm -f "$constraints"' EXIT
    grep -Ev '^(duckdb|pyspark|hudi)==' requirements-dev.txt >"$constraints"
    $venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint "$constraints" \
        "pyiceberg[sql-sqlite,glue,hive]==0.12.0" "moto[glue]" "duckdb==$duckdb" "duckdb-extensions==$duckdb" "duckdb-extension-avro==$duckdb" \
        "duckdb-extension-httpfs==$duckdb" "duckdb-extension-iceberg==$duckdb" "duckdb-extension-delta==$duckdb" \
        deltalake polars pandas pytest pytest-timeout pytest-rerunfailures pytest-xdist hypothesis greenlet --editable .
    touch $venv/stamp
fi

command=$1
shift
exec "$venv/bin/$command" "$@"
