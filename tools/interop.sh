#!/usr/bin/env bash
# Run a command in .venv-interop: PySpark 3.5, for which Apache Hudi publishes a bundle, and Delta Lake for it, with hoodoo
# and without its spark extra; and pyiceberg, by which tables are registered in the metastore that Hudi reads by.
# tests/support/hudi_jars.py fetches Hudi's bundle into .jars/.
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/environment.sh
venv=.venv-interop
spark=3.5.9

python= # PySpark 3.5 knows Python up to 3.12
for name in python3.11 python3.12 python3; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then python=$name && break; fi
done
if [ -z "$python" ] && [ ! -x $venv/bin/python ]; then
    echo "PySpark $spark needs Python 3.11 or 3.12: install one of them." >&2
    exit 1
fi

make_environment $venv "$python" pyspark \
    "pyspark==$spark" "delta-spark==3.3.2" hudi "pyiceberg[hive]==0.12.0" --editable '.[sql]'
run_in $venv "$@"
