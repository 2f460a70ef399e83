"""Processes to which Spark sends no code find hoodoo all the same: the planner of a stream beside the driver, the
runner of a sink on a server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import hoodoo
from hoodoo.engine import spark
from hoodoo.engine.spark import dumps
from hoodoo.spark.source import HoodooSource

WITHOUT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
try:
    import hoodoo
except ImportError:
    pass
else:
    raise SystemExit("hoodoo is there in any case, so that this shows nothing")
from pyspark import cloudpickle
found = cloudpickle.loads(open(sys.argv[1], "rb").read())
import hoodoo
name = found.name if isinstance(found.name, str) else found.name()
print(type(found).__name__, name, ".zip" in hoodoo.__file__)
"""


def loaded_without_hoodoo(value: object, tmp_path: Path) -> list[str]:
    (tmp_path / "value").write_bytes(dumps(value))
    elsewhere = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "value")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=elsewhere,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_session_of_an_older_spark_is_told_which_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    with pytest.raises(hoodoo.EngineError, match="needs PySpark 4.2 or later, got 4.1.3"):
        hoodoo.register(type("Session", (), {})())


def test_the_code_is_packed_once_and_again_where_the_file_was_swept_away() -> None:
    first = spark._code_archive_path()
    assert spark._code_archive_path() == first
    os.remove(first)
    again = spark._code_archive_path()
    assert os.path.exists(again) and os.path.basename(again) == os.path.basename(first)  # equal code, equal name


def test_a_process_takes_its_code_archive_away_when_it_ends_but_a_forked_one_leaves_it(tmp_path: Path) -> None:
    script = """
import os, sys
from hoodoo.engine import spark
path = spark._code_archive_path()
if not os.fork():
    sys.exit(0)
os.wait()
print(path, os.path.exists(path))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        check=True,
    )
    path, there = done.stdout.split()
    assert path.startswith(str(tmp_path)) and there == "True"
    assert list(tmp_path.iterdir()) == []


def test_a_source_is_loaded_from_where_hoodoo_was_on_the_same_machine(tmp_path: Path) -> None:
    assert loaded_without_hoodoo(HoodooSource({"path": "x"}), tmp_path) == ["HoodooSource", "hoodoo", "False"]


def test_a_sink_takes_the_code_along(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")
    assert loaded_without_hoodoo(table.sink("job", operation="insert", existing="keep"), tmp_path) == [
        "Sink",
        "job",
        "True",
    ]
    assert not list(tmp_path.glob("hoodoo-code-*"))
