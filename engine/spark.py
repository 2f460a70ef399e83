"""Engine that runs tasks on Spark.

The session may be classic or Connect. Tasks run with mapInArrow and return their results as bytes. Executors receive
hoodoo's code once per session as a zip file. The packages that hoodoo requires must be installed on the executors,
which is checked once per session.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib
import io
import os
import re
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from hoodoo import errors
from hoodoo.engine.task_pickling import TaskDeserializer, serialize_tasks
from hoodoo.errors import EngineError, HoodooError, TryAgainError

T = TypeVar("T")
R = TypeVar("R")
_NEEDED = ("pyarrow", "numpy", "fastavro", "pybloom_live", "xxhash")
_MARK = "hoodoo.code"
_LACKING = re.compile(r"No module named '([\w.]+)'|PyArrow[^\n]* must be installed")
BATCH_ROWS = 10_000  # rows per Arrow batch sent to Spark, as in Spark itself
_LIST_BYTES = 32 << 20  # maximum bytes of task parts sent to Spark in one row
_PARTS = pa.list_(pa.struct([("id", pa.int64()), ("part", pa.binary())]))
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()


def _code_archive_path() -> str:
    path = _create_archive()
    if not os.path.exists(path):  # the temporary folder was deleted
        _create_archive.cache_clear()
        path = _create_archive()
    return path


@functools.cache
def _create_archive() -> str:
    # Equal code produces equal bytes and an equal file name.
    package = Path(errors.__file__).parent
    if zipfile.is_zipfile(package.parent):
        return str(package.parent)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for parent, _, names in sorted(os.walk(package, followlinks=True)):
            for name in sorted(names):
                if name.endswith(".py"):
                    path = Path(parent, name)
                    archive.writestr(
                        zipfile.ZipInfo(str(Path("hoodoo") / path.relative_to(package))),
                        path.read_bytes(),
                        zipfile.ZIP_DEFLATED,
                    )
    folder = tempfile.mkdtemp(prefix="hoodoo-code-")
    remove_folder_at_exit(folder)
    target = Path(folder, f"hoodoo-code-{hashlib.sha256(data.getvalue()).hexdigest()[:16]}.zip")
    target.write_bytes(data.getvalue())
    return str(target)


def remove_folder_at_exit(folder: str) -> None:
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def prepare_session(spark: SparkSession) -> None:
    """Prepare a Spark session for hoodoo.

    hoodoo's code is sent to the executors, and its dependencies are checked there. Raises EngineError. This is done
    once per session. A session setting marks a prepared session, because each micro-batch of a stream has a different
    session object, or a copy with the code and the setting.
    """
    code = _code_archive_path()
    if spark in _prepared or spark.conf.get(_MARK, "") == Path(code).name:
        _prepared.add(spark)
        return
    _configure_local_python(spark)
    spark.addArtifacts(code, pyfile=True)

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import socket

        for _ in batches:
            missing = ""
            for name in (*_NEEDED, "hoodoo"):
                try:
                    importlib.import_module(name)
                except ImportError:
                    missing = missing or name
            yield pa.RecordBatch.from_pydict({"missing": [missing], "host": [socket.gethostname()]})

    try:
        probe_rows = spark.range(0, 1, 1, 1).mapInArrow(probe, "missing string, host string").collect()
    except Exception as problem:  # the type depends on the kind of session; without pyarrow, the probe itself fails
        missing_module = _LACKING.search(str(problem))
        if missing_module is None:
            raise
        package = (missing_module[1] or "pyarrow").partition(".")[0]
        raise EngineError(
            f"Package {package!r} is missing on the Spark workers, which run {_worker_python(spark)}. Install hoodoo's "
            "dependencies there, or set PYSPARK_PYTHON to a Python that has them before the session starts.",
            package=package,
        ) from None
    for row in probe_rows:
        if row["missing"]:
            raise EngineError(
                (
                    f"Package {row['missing']!r} is missing on Spark worker {row['host']}. Install hoodoo's "
                    "dependencies on every worker."
                ),
                package=row["missing"],
            )
    spark.conf.set(_MARK, Path(code).name)
    _prepared.add(spark)


def _configure_local_python(spark: SparkSession) -> None:
    # By default, Spark uses the first `python3` on PATH.
    configured = os.environ.get("PYSPARK_PYTHON") or spark.conf.get("spark.pyspark.python", "")
    context = None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext
    if context is not None and not configured and (context.master or "").startswith("local"):
        context.pythonExec = os.environ["PYSPARK_PYTHON"] = sys.executable


def _worker_python(spark: SparkSession) -> str:
    # This does not use Arrow, because Arrow may be missing on the workers.
    from pyspark.sql.functions import udf

    def executable(_: int) -> str:
        import socket
        import sys

        return f"{sys.executable} on {socket.gethostname()}"

    try:
        [row] = spark.range(1).select(udf(executable, "string", useArrow=False)("id")).collect()
        return str(row[0])
    except Exception:  # the name of the missing package is more important
        return "a Python"


def dumps(value: Any) -> bytes:
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def loads(data: bytes) -> Any:
    from pyspark import cloudpickle

    return cloudpickle.loads(data)


def _build(code_path: str, archive: bytes, module: str, name: str, arguments: tuple[Any, ...]) -> Any:
    # Must not use anything else of this module, because it may run in a Spark process that has not loaded hoodoo yet.
    import importlib
    import sys

    try:
        importlib.import_module("hoodoo")
    except ImportError:
        if archive:
            import os
            import tempfile

            folder = tempfile.mkdtemp(prefix="hoodoo-code-")
            code_path = os.path.join(folder, "hoodoo-code.zip")
            with open(code_path, "wb") as file:
                file.write(archive)
        sys.path.append(code_path)
        importlib.invalidate_caches()
        if archive:
            importlib.import_module("hoodoo.engine.spark").remove_folder_at_exit(folder)
    return getattr(importlib.import_module(module), name)(*arguments)


_build.__module__ = "__main__"  # Spark's pickler pickles functions of this module by value


def reduce_with_code(module: str, name: str, arguments: tuple[Any, ...], whole: bool = False) -> tuple[Any, ...]:
    """Create a `__reduce__` result that Spark can unpickle.

    Unpickling does not need hoodoo's code. Examples are the planner of a stream and the runner of `foreachBatch`.
    `arguments` must be plain values, because they are unpickled before hoodoo is imported. `whole=True` includes the
    code itself, for use on another machine.
    """
    archive = Path(_code_archive_path()).read_bytes() if whole else b""
    return _build, (str(Path(errors.__file__).parents[1]), archive, module, name, arguments)


def serialize_outcome(work: Callable[[], Any]) -> bytes:
    """Call a function and serialize its outcome.

    The outcome is the result or a permanent error. Spark retries all other errors.
    """
    try:
        return dumps((True, work()))
    except TryAgainError:
        raise
    except HoodooError as problem:
        return dumps((False, problem))


def result(data: bytes) -> Any:
    succeeded, value = loads(data)
    if not succeeded:
        raise value
    return value


class SparkEngine:
    """Engine that runs each item as a task on Spark.

    `map` returns results in the order of items. A HoodooError in a task is raised unchanged.
    """

    name = "spark"
    remote = True
    threads = 64  # an estimate, because Connect does not expose the number of cores of a cluster

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def map(
        self, task: Callable[[T], R], items: Iterable[T], at_once: int | None = None, waiting: bool = False
    ) -> list[R]:
        """Run a task for each item on Spark.

        Returns the results in order. `at_once` is the maximum number of Spark tasks, which then run several items one
        after another. `waiting` is ignored, because each task has its own core of the cluster.
        """
        work = list(items)
        if not work:
            return []
        prepare_session(self.spark)
        common, parts = serialize_tasks(task, work)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tasks = TaskDeserializer(common)
            for number, part in numbered(batches):
                serialized = serialize_outcome(functools.partial(tasks.run, part))
                yield pa.RecordBatch.from_pydict({"id": [number], "result": [serialized]})

        results = distribute_tasks(self.spark, parts, at_once).mapInArrow(run, "id long, result binary").toArrow()
        by_id = dict(zip(results["id"].to_pylist(), results["result"].to_pylist(), strict=True))
        return [result(by_id[number]) for number in range(len(work))]


def distribute_tasks(spark: SparkSession, parts: Sequence[bytes], at_once: int | None = None) -> Any:
    """Distribute tasks evenly on Spark.

    By default, each part gets its own Spark task. `at_once` is the maximum number of Spark tasks. The parts are sent as
    lists in a few rows, usually one, because Spark distributes the rows of one partition evenly. Rows of several
    partitions could be distributed unevenly, and leave tasks empty.
    """
    lists: list[list[dict[str, Any]]] = []
    list_bytes = 0
    for number, part in enumerate(parts):
        if not lists or list_bytes + len(part) > _LIST_BYTES:
            lists.append([])
            list_bytes = 0
        lists[-1].append({"id": number, "part": part})
        list_bytes += len(part)
    frame = spark.createDataFrame(pa.table({"parts": pa.array(lists, _PARTS)}))
    return frame.selectExpr("inline(parts)").repartition(min(len(parts), at_once or len(parts)))


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        for number, part in zip(*batch.columns, strict=True):
            yield number.as_py(), part.as_py()


def ipc_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def ipc_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
