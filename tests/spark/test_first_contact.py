"""A Python of the executors that is not this one: on a local master hoodoo's is used, else one sentence says it.

It happened that `register` ended in 50 lines of Spark's traceback, because the first `python3` on PATH had no pyarrow.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

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
    engine._configure_local_python(session)
    assert session.sparkContext.pythonExec == expected
