"""A Python of the executors that is not this one: on a local master hoodoo's is used, else one sentence says it.

It happened that `register` ended in 50 lines of Spark's traceback, because the first `python3` on PATH had no pyarrow.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import hoodoo
from hoodoo.engine import spark as engine


class Session:
    """As much of a session as is asked before its first job."""

    def __init__(self, master: str, **settings: str) -> None:
        self.conf = settings
        self.sparkContext = SimpleNamespace(master=master, pythonExec="python3")


@pytest.mark.parametrize(
    ("master", "environment", "settings", "expected"),
    [
        ("local[2]", None, {}, sys.executable),
        ("local[2]", "/opt/python", {}, "python3"),
        ("local[2]", None, {"spark.pyspark.python": "/opt/python"}, "python3"),
        ("yarn", None, {}, "python3"),
    ],
)
def test_tasks_of_a_local_master_run_in_this_interpreter_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, master: str, environment: str | None, settings: dict[str, str], expected: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", environment or "")
    session: Any = Session(master, **settings)
    engine._use_this_python(session)
    assert session.sparkContext.pythonExec == expected


def test_a_python_without_pyarrow_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    for said in ("ModuleNotFoundError: No module named 'pyarrow'", "[PACKAGE_NOT_INSTALLED] PyArrow >= 18 must be"):
        problem = engine._lacking("An exception was thrown.\n" + "  at java\n" * 50 + said)
        assert isinstance(problem, hoodoo.EngineError) and "\n" not in problem.message
        assert problem.details == {"package": "pyarrow", "interpreter": "/usr/bin/python3"}
        assert "PYSPARK_PYTHON" in problem.message
    assert engine._lacking("Job aborted due to stage failure: disk full") is None
