#!/usr/bin/env bash
# Run a command in .venv-interop: PySpark 3.5, for which Apache Hudi publishes a bundle, and Delta Lake for it, with hoodoo
# and without its spark extra; and pyiceberg, by which tables are registered in the metastore that Hudi reads by.
# Hudi's bundle itself is fetched by Spark into .jars/ when a session first asks for it (tests/support/hudi_session.py).
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-interop
spark=3.5.9

python= # PySpark 3.5 knows Python up to 3.12
for name in python3.11 python3.12 python3; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then python=$name && break; fi
done

if [ ! -e $venv/stamp ] || [ requirements-dev.txt -nt $venv/stamp ] || [ pyproject.toml -nt $venv/stamp ] ||
    [ tools/interop.sh -nt $venv/stamp ]; then
    if [ -z "$python" ] && [ ! -x $venv/bin/python ]; then
        echo "PySpark $spark needs Python 3.11 or 3.12: install one of them." >&2
        exit 1
    fi
    [ -x $venv/bin/python ] || "$python" -m venv $venv
    mkdir -p .jars
    grep -v '^pyspark==' requirements-dev.txt >.jars/constraints.txt
    $venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint .jars/constraints.txt \
        "pyspark==$spark" "delta-spark==3.3.2" hudi "pyiceberg[hive]==0.12.0" pytest pytest-timeout pytest-rerunfailures pytest-xdist hypothesis --editable '.[sql]'
    touch $venv/stamp
fi

command=$1
shift
exec "$venv/bin/$command" "$@"
