#!/usr/bin/env bash
# Print the Python of .venv-ducklake, and make that environment if it is not there: DuckDB with its lakehouse, DuckLake,
# beside which the benchmarks measure. DuckLake comes for one version of DuckDB each, which is not the one that hoodoo uses.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-ducklake
ducklake=1.5.5

if [ ! -e $venv/stamp ] || [ tools/ducklake.sh -nt $venv/stamp ]; then
    [ -x $venv/bin/python ] || .venv/bin/python -m venv $venv
    arrow=$(.venv/bin/python -c 'import pyarrow; print(pyarrow.__version__)')
    $venv/bin/python -m pip install --quiet --disable-pip-version-check \
        "duckdb==$ducklake" "duckdb-extensions==$ducklake" "duckdb-extension-ducklake==$ducklake" "pyarrow==$arrow" numpy >&2
    touch $venv/stamp
fi
echo "$PWD/$venv/bin/python"
