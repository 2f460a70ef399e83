"""What Spark cannot take is said before it is asked: times of day, and workers whose Python lacks hoodoo's packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

TIME = pa.time64("us")
SCHEMA = pa.schema([("id", pa.string()), ("at", TIME), ("all", pa.list_(TIME)), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id")


def rows(n: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": "a", "at": None, "all": None, "n": n}], schema=SCHEMA)


def test_times_of_day_stay_outside_of_spark_and_the_other_columns_come(table: hoodoo.Table, session: Any) -> None:
    """Spark's scan was given all columns of the table: `[UNSUPPORTED_TIME_TYPE]`, also where no time was asked for."""
    for n in (1, 2):  # a base file alone, and one with a log
        table.upsert(rows(n))
        for columns in (None, ["id", "at"], ["all"]):
            with pytest.raises(
                hoodoo.SchemaError, match=r"Column 'a(t|ll)' contains times of day .* Select the other columns"
            ):
                table.scan(columns=columns).to_spark(session)
        assert table.scan(columns=["n"]).to_spark(session).collect()[0].n == n
        assert table.scan(columns=["n"], where="at IS NULL").to_spark(session).count() == 1
        assert table.scan(columns=["n"], where="at > '01:00'").to_spark(session).count() == 0
        loaded = session.read.format("hoodoo").option("columns", "id,n").load(table.path)
        assert loaded.collect()[0].n == n
        with pytest.raises(Exception, match="contains times of day"):
            session.read.format("hoodoo").load(table.path).collect()


def test_a_python_without_pyarrow_on_the_workers_is_named_in_one_sentence(
    table: hoodoo.Table, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forty lines of Spark's traceback that ended in `No module named 'pyarrow'`."""
    bare = tmp_path / "python"
    base = Path(sys._base_executable) if hasattr(sys, "_base_executable") else Path(sys.executable)
    bare.write_text(f'#!/bin/sh\nexec "{os.fspath(base)}" -S "$@"\n')
    bare.chmod(0o755)
    other = spark.newSession()
    monkeypatch.setattr(other.sparkContext, "pythonExec", str(bare))
    other.conf.unset("hoodoo.code")
    for n in (1, 2):
        table.upsert(rows(n))
    with pytest.raises(hoodoo.EngineError) as caught:
        table.scan(columns=["n"]).to_spark(other)
    assert "Package 'pyarrow' is missing on the Spark workers" in caught.value.message
    assert "python" in caught.value.message and "PYSPARK_PYTHON" in caught.value.message
    assert "\n" not in caught.value.message
