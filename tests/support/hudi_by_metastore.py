"""A Spark 3.5 with Apache Hudi that finds tables by a Hive metastore, as a process of its own: a session of Spark has
one kind of catalog for its whole life, and that of the other tests has none.

It takes a list of steps as a JSON file, and leaves their answers in another one:
  {"sync": name, "path": ..., "keys": "a,b", "database": ...}  Hudi's own sync, at its defaults: null
  {"query": "select ..."}                                      rows as objects; values that JSON lacks as text
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hudi_session import hudi_session
from pyspark.sql import SparkSession

_SYNC = "hoodie.datasource.hive_sync."


def answers(uri: str, steps: Sequence[Mapping[str, str]], folder: Path) -> list[Any]:
    """What each step gives. uri: of the metastore. folder: for scratch files."""
    asked, answered = folder / "steps.json", folder / "answers.json"
    asked.write_text(json.dumps(list(steps)))
    done = subprocess.run(
        [sys.executable, __file__, uri, str(asked), str(answered)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    return list(json.loads(answered.read_text()))


def _sync(session: SparkSession, uri: str, step: Mapping[str, str]) -> None:
    java: Any = session._jvm
    given = java.java.util.Properties()
    for name, value in {
        f"{_SYNC}mode": "hms",
        f"{_SYNC}metastore.uris": uri,
        f"{_SYNC}database": step["database"],
        f"{_SYNC}table": step["sync"],
        f"{_SYNC}partition_fields": step["keys"],
        "hoodie.datasource.meta.sync.base.path": step["path"],
    }.items():
        given.setProperty(name, value)
    context: Any = session.sparkContext
    java.org.apache.hudi.hive.HiveSyncTool(given, context._jsc.hadoopConfiguration()).syncHoodieTable()


def _main(uri: str, asked: str, answered: str) -> None:
    by_metastore = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uri}
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as scratch, hudi_session(Path(scratch), more=by_metastore) as session:
        for step in json.loads(Path(asked).read_text()):
            if "sync" in step:
                found.append(_sync(session, uri, step))
            else:
                found.append([row.asDict(recursive=True) for row in session.sql(step["query"]).collect()])
    Path(answered).write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    _main(*sys.argv[1:])
