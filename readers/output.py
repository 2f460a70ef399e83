"""The forms that rows come out in: Arrow, batches, pandas, polars, DuckDB, an Arrow dataset, Spark. Whoever has tasks
and a schema has them all.

Knows tasks as calls that give tables; what rows they are is their maker's affair.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from hoodoo.engine.local import LocalEngine
from hoodoo.engine.session import require_session
from hoodoo.errors import ColumnError, CorruptTable, EngineError, OptionError
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.task import Task
from hoodoo.storage.local import LocalStore
from hoodoo.storage.redact import printable
from hoodoo.timeline.config import read_properties
from hoodoo.timeline.history import History

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


def _temporary(folder: str | os.PathLike[str] | None) -> str:
    """A new folder below `folder`. Raises OptionError."""
    try:
        return tempfile.mkdtemp(prefix="hoodoo-dataset-", dir=None if folder is None else os.fsdecode(folder))
    except (OSError, TypeError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "it is no path"
        raise OptionError(
            f"folder takes a folder that can be written, got {printable(folder)}: {why}.", option="folder"
        ) from None


def guarded(history: History, require_readable: Callable[[], None], work: Callable[[], T]) -> T:
    """What `work` gives. A file that a clean took is an expired snapshot, not damage; a value that does not fit, a
    column that has grown since.
    """
    try:
        return work()
    except CorruptTable:
        read_properties(history.store)  # raises where the table was deleted
        history.head()
        require_readable()
        raise
    except pa.ArrowInvalid as problem:
        raise ColumnError(
            f"A value does not fit the column that the table had when it was opened: {problem}. If another engine "
            "changed it, open the table anew."
        ) from None


class Rows(ABC):
    """Rows fixed at one slot. Nothing is read before a `to_...` method is called; each of them gives the same rows."""

    _history: History
    _seq: int
    cursor: Cursor

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._history.store.uri} at slot {self._seq}>"

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Of the rows."""

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """What to read, in parts that can be read anywhere."""

    def _each_task(self) -> Iterator[Task]:
        """The same one by one, so that nobody holds those of a large table together."""
        yield from self.tasks()

    def _guarded(self, work: Callable[[], T]) -> T:
        return guarded(self._history, self._require_readable, work)

    def _require_readable(self) -> None:
        self._history.require_readable(self._seq)

    def _parts(self) -> list[pa.Table]:
        return LocalEngine().map(self._guarded, self.tasks())

    def to_arrow(self) -> pa.Table:
        """All rows as one pyarrow Table."""
        parts = self._parts()
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def tables(self, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """The rows in tables, one part after the other, about `rows` at a time where a part needs no merge."""
        for task in self._each_task():
            yield from self._streamed(task, rows)

    def _streamed(self, task: Task, rows: int) -> Iterator[pa.Table]:
        stream = task.stream(rows)
        while (part := self._guarded(lambda: next(stream, None))) is not None:
            yield part

    def batches(self, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """A reader of batches of at most `rows` rows; memory holds one part (a file slice) at most.
        Raises OptionError.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise OptionError(f"rows takes a whole number from 1, got {printable(rows)}.", option="rows")
        return pa.RecordBatchReader.from_batches(
            self.schema, (batch for part in self.tables(rows) for batch in part.to_batches(rows))
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule protocol: any library that speaks it reads the rows batch by batch."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """How many rows."""
        return sum(len(part) for part in self.tables())

    def to_dataset(self, folder: str | os.PathLike[str] | None = None) -> ds.Dataset:
        """A pyarrow Dataset, which can be scanned again and again in bounded memory, with filters and columns of its
        own.

        Parts that are Parquet files as they are stay where they are (a clean may take them: pin the snapshot for long
        work). The others are merged one at a time into temporary files below `folder`, which have no name any more when
        this returns and go with the dataset.
        """
        import pyarrow.dataset as ds  # it brings pandas, which nobody should wait for who makes no dataset

        there = [(task.plain, task) for task in self.tasks()]
        store = self._history.store
        native = [file.path for file, _ in there if file] if isinstance(store, LocalStore) else []
        rest = [task for file, task in there if not (file and native)]
        own = _temporary(folder)
        try:
            merged = [self._merged_into(os.path.join(own, f"{number}.arrow"), task) for number, task in enumerate(rest)]
        finally:
            shutil.rmtree(own, ignore_errors=True)  # what is mapped stays until nobody needs it
        parts: list[ds.Dataset] = []
        if native:
            checked = ds.ParquetFileFormat(
                default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            )
            parts.append(
                ds.dataset(
                    [store.url(path).removeprefix("file://") for path in native], schema=self.schema, format=checked
                )
            )
        if merged or not parts:
            parts.append(ds.InMemoryDataset(pa.concat_tables([self.schema.empty_table(), *merged])))
        return parts[0] if len(parts) == 1 else ds.UnionDataset(self.schema, parts)

    def _merged_into(self, path: str, task: Task) -> pa.Table:
        """The rows of a part, in a file that is mapped."""
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self.schema) as writer:
            for part in self._streamed(task, BATCH_ROWS):
                writer.write_table(part, BATCH_ROWS)
        return pa.ipc.open_file(pa.memory_map(path)).read_all()

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options go to pyarrow's to_pandas. Raises OptionError for those it does not
        take, ColumnError for times that Python does not have.
        """
        rows = self.to_arrow()
        try:
            return rows.to_pandas(**options)
        except ImportError:
            raise EngineError("to_pandas() needs pandas: pip install pandas.") from None
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as problem:
            if isinstance(problem, OverflowError) or not options:
                raise ColumnError(
                    f"pandas cannot hold a value of these rows: {str(problem)[:500]}. Python's dates end with the year "
                    "9999: take the rows as to_arrow() or to_polars(), leave the column out, or pass "
                    "types_mapper=pandas.ArrowDtype."
                ) from None
            raise OptionError(
                f"pyarrow's to_pandas() does not take {printable(options)}: {str(problem)[:500]}.", option="options"
            ) from None

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a polars DataFrame; lazy: as a LazyFrame over `to_dataset()`, which reads
        what its query needs.
        """
        try:
            import polars
        except ImportError:
            raise EngineError("to_polars() needs polars: pip install polars.") from None
        return polars.scan_pyarrow_dataset(self.to_dataset()) if lazy else polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, lazy: bool = False
    ) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation on `connection` (default: DuckDB's own); lazy: over `to_dataset()`, which reads
        what its query needs.
        """
        try:
            import duckdb
        except ImportError:
            raise EngineError("to_duckdb() needs duckdb: pip install duckdb.") from None
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise OptionError(
                f"connection takes what duckdb.connect() gives, got {printable(connection)}.", option="connection"
            )
        return (connection or duckdb.default_connection()).from_arrow(self.to_dataset() if lazy else self.to_arrow())

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a Spark DataFrame: parts that are Parquet files through Spark's own scan, the others in Python
        tasks.
        """
        try:
            from hoodoo.readers.spark_scan import to_spark  # only those who use Spark import it
        except ImportError:
            raise EngineError("to_spark() needs pyspark: pip install 'hoodoo[spark]'.") from None
        require_session(spark)
        return to_spark(self.tasks(), self.schema, spark)
