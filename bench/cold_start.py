"""Two rows upserted by a new process, from its start to its end: hoodoo beside DuckLake and deltalake.

Each contender has the same table; each round starts one new process of each. CPU seconds of the whole process count,
imports and interpreter included. Beside them: a process that makes the two rows and ends, with the same Python, as
DuckLake's has no pandas, which pyarrow imports where it is.

    python bench/cold_start.py [--rows 2000000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from upsert import ducklake_python

_UPSERT = """
import sys
sys.path.insert(0, {bench!r})
from workload import rows
import numpy as np
batch = rows(np.array([1, 2]), {version}, 20)
"""
CALLS = {
    "hoodoo-mor": "import hoodoo\nhoodoo.open('t').upsert(batch)",
    "hoodoo-cow": "import hoodoo\nhoodoo.open('t').upsert(batch)",
    "deltalake": (
        "from deltalake import DeltaTable\n"
        "merge = DeltaTable('t').merge(batch, predicate='t.part = s.part AND t.key = s.key', source_alias='s', "
        "target_alias='t')\n"
        "merge.when_matched_update_all(predicate='s.ts >= t.ts').when_not_matched_insert_all().execute()"
    ),
    "ducklake": (
        "import duckdb\nfrom duckdb_extensions import import_extension\nimport_extension('ducklake')\n"
        "lake = duckdb.connect()\n"
        "lake.execute(\"ATTACH 'ducklake:catalog.ducklake' AS lake\")\n"
        "lake.execute('USE lake')\n"
        "lake.execute('MERGE INTO t USING batch s ON t.part = s.part AND t.key = s.key "
        "WHEN MATCHED AND s.ts >= t.ts THEN UPDATE WHEN NOT MATCHED THEN INSERT')"
    ),
}
"""What each process runs once it has its two rows."""


def cpu_of(python: str, code: str, folder: Path) -> float:
    """CPU seconds of a new process that runs `code` in `folder`."""
    process = subprocess.Popen([python, "-c", code], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{folder.name} failed")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="hoodoo-bench-"))
    pythons = {name: ducklake_python() if name == "ducklake" else sys.executable for name in CALLS}
    bench = str(Path(__file__).parent)
    try:
        for name in CALLS:
            folder = base / name
            folder.mkdir()
            load = (
                f"import sys\nsys.path.insert(0, {bench!r})\nfrom upsert import CONTENDERS\nfrom pathlib import Path\n"
                f"from workload import Workload\n"
                f"CONTENDERS[{name!r}](Path.cwd(), 20).load(Workload({options.rows}, 20).initial())"
            )
            cpu_of(pythons[name], load, folder)
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in CALLS}
        for turn in range(options.rounds):
            made = _UPSERT.format(bench=bench, version=turn + 1)
            for name, call in CALLS.items():
                alone = cpu_of(pythons[name], made, base)
                costs[name].append((cpu_of(pythons[name], made + call, base / name), alone))
        print(f"{options.rows:,} rows, {options.rounds} rounds; CPU s of new processes, medians\n")
        print("| | upsert | the rows alone |\n| --- | --- | --- |")
        for name, found in costs.items():
            upsert, alone = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"| {name} | {upsert:.2f} | {alone:.2f} |")
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
