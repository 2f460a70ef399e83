"""The forms that rows come out in: Arrow, batches, pandas, polars, DuckDB, an Arrow dataset, Spark. Whoever has tasks
and a schema has them all.

Knows tasks as calls that give tables; what rows they are is their maker's affair.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from hoodoo.arguments import flag, number_from, one_of
from hoodoo.engine.local import LocalEngine
from hoodoo.engine.session import require_session
from hoodoo.errors import ColumnError, CorruptTable, EngineError, OptionError
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.format.spellings import Spellings
from hoodoo.hints import ROWS, explained, hint_for
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.spark_spellings import by_originals
from hoodoo.readers.task import RenamedTask, Task
from hoodoo.redact import printable
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import read_properties

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R", bound="Rows")
CURRENT, ORIGINAL = "current", "original"
"""By which names the columns of rows are given."""


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
            f"A value cannot be converted to the column type of the opened table: {problem}. If another engine "
            "changed the column, open the table again."
        ) from None


@explained
class Rows(ABC):
    """Rows as of one slot.

    Nothing is read before one of the methods is called, and each of them gives the same rows.

    Attributes:
        cursor: The position of the end of the read.
    """

    _history: History
    _seq: int
    _originals: Spellings | None = None
    """Where columns have other names than those of the table: which."""
    cursor: Cursor

    if not TYPE_CHECKING:  # a type checker shall know which attributes there are

        def __getattr__(self, name: str) -> None:
            """Say by what call a read does what other libraries have another name for."""
            raise AttributeError(hint_for(name, type(self), "read", ROWS))

        def __iter__(self) -> None:
            """Say by what call its rows are gone through."""
            raise TypeError("A read is not iterable. Use batches(), or to_arrow().to_pylist() for rows as dicts.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._history.store.uri} at slot {self._seq}>"

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """Split the read into tasks that can run anywhere.

        Returns:
            The tasks. Each is a call without arguments that returns a pyarrow Table, and pickles.
        """

    def _by_originals(self, spellings: Spellings) -> Self:
        """The same rows by the names that their columns were created from."""
        found = copy.copy(self)
        found._originals = self._spelled(spellings)
        return found

    def _spelled(self, spellings: Spellings) -> Spellings:
        """The names of the columns of these rows, where `spellings` are those of the table."""
        return spellings

    def _schema_named(self, schema: pa.Schema) -> pa.Schema:
        """`schema` by the names that are asked for."""
        return self._originals.original_schema(schema) if self._originals else schema

    def _table_named(self, table: pa.Table) -> pa.Table:
        """`table` by the names that are asked for."""
        return self._originals.original_rows(table) if self._originals else table

    def _task_named(self, task: Task) -> Task:
        """`task` with columns by the names that are asked for."""
        return RenamedTask(task, self._originals) if self._originals else task

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
        """Read all rows into a pyarrow Table.

        Returns:
            The rows.

        Raises:
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
            ColumnError: Another engine changed a column, so that a value does not fit it any more.
        """
        parts = self._parts()
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def tables(self, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Read the rows in tables, one task after the other.

        Args:
            rows: About how many rows a table has, where a task needs no merge. Default: as many as a batch of a base
                file.

        Yields:
            The next rows.

        Raises:
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
            ColumnError: Another engine changed a column, so that a value does not fit it any more.
        """
        for task in self._each_task():
            yield from self._streamed(task, rows)

    def _streamed(self, task: Task, rows: int) -> Iterator[pa.Table]:
        stream = task.stream(rows)
        while (part := self._guarded(lambda: next(stream, None))) is not None:
            yield part

    def batches(self, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Read the rows in batches.

        The memory holds the rows of one task at most, which is a file slice.

        Args:
            rows: How many rows a batch has at most, from 1. Default: as many as a batch of a base file.

        Returns:
            A reader of the batches.

        Raises:
            OptionError: `rows` is not a whole number from 1.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise OptionError(f"rows must be an integer from 1, got {printable(rows)}.", option="rows")
        return pa.RecordBatchReader.from_batches(
            self.schema, (batch for part in self.tables(rows) for batch in part.to_batches(rows))
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give the rows batch by batch to any library that speaks the Arrow PyCapsule protocol."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Count the rows.

        Returns:
            The number of rows.

        Raises:
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        return sum(len(part) for part in self.tables())

    def __len__(self) -> int:
        """As `count`."""
        return self.count()

    def __bool__(self) -> bool:
        """True, however many rows there are: nobody should have to count them for it."""
        return True

    def head(self, rows: int = 10) -> pa.Table:
        """Read a few rows, to look at.

        Args:
            rows: How many rows at most, from 0. Default 10. Which rows of the read these are is not said.

        Returns:
            The rows.

        Raises:
            OptionError: `rows` is not a whole number from 0.
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        wanted = int(number_from("rows", rows, 0, whole=True, optional=False))
        found, left = [self.schema.empty_table()], wanted
        for part in self.tables(max(1, min(wanted, BATCH_ROWS))) if wanted else ():
            found.append(part.slice(0, left))
            left -= len(found[-1])
            if not left:
                break
        return pa.concat_tables(found)

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> Rows:
        """See `LazySource`."""
        return self

    def to_dataset(self) -> ds.Dataset:
        """Make a pyarrow Dataset, which reads when it is scanned.

        Scans of it take columns and filters of their own, read no other columns and leave out files and row groups that
        hold no row for the filter, as `where` does. Rows are merged on the way, file by file, and nothing is written.
        A clean may delete the snapshot's files, so pin it for long work.

        Returns:
            The dataset. Its scans raise SnapshotExpired if a clean deleted files of the snapshot meanwhile, and
            CorruptTable if a file is damaged.
        """
        from hoodoo.readers.lazy_dataset import LazyDataset  # pyarrow's part is for those who make a dataset

        return LazyDataset(self)

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Read all rows into a pandas DataFrame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The rows.

        Raises:
            OptionError: `pyarrow.Table.to_pandas` does not take the options.
            ColumnError: pandas cannot hold a value, such as a date after the year 9999.
            EngineError: pandas is not installed.
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        rows = self.to_arrow()
        try:
            return rows.to_pandas(**options)
        except ImportError:
            raise EngineError("to_pandas() needs pandas. Install it: pip install pandas.") from None
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as problem:
            if isinstance(problem, OverflowError) or not options:
                raise ColumnError(
                    f"pandas cannot represent a value of these rows: {str(problem)[:500]}. Dates in Python end "
                    "with the year 9999. Read the rows with to_arrow() or to_polars(), leave the column out, "
                    "or pass types_mapper=pandas.ArrowDtype."
                ) from None
            raise OptionError(
                f"pyarrow's to_pandas() does not accept {printable(options)}: {str(problem)[:500]}.", option="options"
            ) from None

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Read all rows into a polars DataFrame.

        Args:
            lazy: True makes a LazyFrame instead, which reads the columns and the files that its query needs, when that
                runs. Default False.

        Returns:
            The rows.

        Raises:
            OptionError: `lazy` is not True or False.
            EngineError: polars is not installed.
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        try:
            import polars
        except ImportError:
            raise EngineError("to_polars() needs polars. Install it: pip install polars.") from None
        if flag("lazy", lazy):
            from hoodoo.readers.lazy_polars import lazy_frame  # it needs polars

            return lazy_frame(self)
        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, lazy: bool = True
    ) -> duckdb.DuckDBPyRelation:
        """Make a DuckDB relation of the rows.

        It reads when a query runs, each time anew, and then the columns and the files that the query needs.

        Args:
            connection: The connection of the relation, from `duckdb.connect`. None (default): DuckDB's default
                connection.
            lazy: False reads all rows into memory at once instead. Default True.

        Returns:
            The rows.

        Raises:
            OptionError: `connection` is no DuckDB connection, or `lazy` is not True or False.
            EngineError: duckdb is not installed.
            SnapshotExpired: A clean deleted files of the snapshot meanwhile.
            CorruptTable: A file is damaged.
        """
        try:
            import duckdb
        except ImportError:
            raise EngineError("to_duckdb() needs DuckDB. Install it: pip install duckdb.") from None
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise OptionError(
                f"connection must be a connection from duckdb.connect(), got {printable(connection)}.",
                option="connection",
            )
        return (connection or duckdb.default_connection()).from_arrow(
            self.to_dataset() if flag("lazy", lazy) else self.to_arrow()
        )

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Make a Spark DataFrame of the rows.

        Spark reads base files that need no merge with its own Parquet scan, and the other file slices in Python tasks.

        Args:
            spark: The session, classic or Connect.

        Returns:
            The rows.

        Raises:
            EngineError: pyspark is not installed, `spark` is no session, or Spark's workers lack a package that hoodoo
                needs.
            SchemaError: The rows have a column that Spark cannot read, because it holds times of day.
        """
        try:
            from hoodoo.readers.spark_scan import to_spark  # only those who use Spark import it
        except ImportError:
            raise EngineError("to_spark() needs PySpark. Install it: pip install 'hoodoo[spark]'.") from None
        require_session(spark)
        if not self._originals:
            return to_spark(self.tasks(), self.schema, spark)
        stored = copy.copy(self)
        stored._originals = None
        return by_originals(to_spark(stored.tasks(), stored.schema, spark), self._originals)


def named(rows: R, names: str, spellings: Spellings) -> R:
    """Choose by which names the columns of `rows` are given.

    Args:
        rows: The rows of a table.
        names: CURRENT for the names of the table, or ORIGINAL for those that columns were created from.
        spellings: Which these are.

    Raises:
        OptionError: `names` is neither.
    """
    one_of("names", names, (CURRENT, ORIGINAL))
    return rows._by_originals(spellings) if names == ORIGINAL and spellings else rows
