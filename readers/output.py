"""Output of a read as Arrow, pandas, polars or Spark.

They include Arrow, pandas, polars, DuckDB and Spark. Every class with tasks and a schema supports all formats. A task
is a callable that returns a table.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from hoodoo.arguments import check_allowed_value, check_flag, check_number
from hoodoo.engine.local import LocalEngine
from hoodoo.engine.session import require_spark_session
from hoodoo.errors import ColumnError, CorruptTable, EngineError, OptionError
from hoodoo.format.name_mapping import NameMapping
from hoodoo.format.parquet.base_file import BATCH_ROWS
from hoodoo.hints import ROWS, hint_for, suggest_for_methods
from hoodoo.readers.cursor import Cursor
from hoodoo.readers.predicate.tree import Predicate
from hoodoo.readers.spark_names import rename_to_original_names
from hoodoo.readers.task import RenamedTask, Task
from hoodoo.redact import printable
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.hoodie_properties import read_properties

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R", bound="Rows")
CURRENT, ORIGINAL = "current", "original"
"""Column names of a read: the current names, or the names when the columns were created."""


def convert_read_errors(history: History, require_readable: Callable[[], None], work: Callable[[], T]) -> T:
    """Convert the exceptions of a read to hoodoo errors.

    If cleaning deleted a data file, the error is SnapshotExpired instead of CorruptTable. If a value does not match the
    type of its column, because the column changed after the table was opened, the error is ColumnError.
    """
    try:
        return work()
    except CorruptTable:
        read_properties(history.store)  # raises an error if the table was deleted
        history.head()
        require_readable()
        raise
    except pa.ArrowInvalid as problem:
        raise ColumnError(
            f"A value cannot be converted to the column type of the opened table: {problem}. If another engine "
            "changed the column, open the table again."
        ) from None


@suggest_for_methods
class Rows(ABC):
    """Rows of a table at one commit.

    They can be read in any format. Nothing is read before one of the methods is called. Every method call returns the
    same rows.

    Attributes:
        cursor: The position of the end of the read.
    """

    _history: History
    _seq: int
    _originals: NameMapping | None = None
    # None for the table's current names.
    cursor: Cursor

    if not TYPE_CHECKING:  # so that a type checker knows the attributes

        def __getattr__(self, name: str) -> None:
            raise AttributeError(hint_for(name, type(self), "read", ROWS))

        def __iter__(self) -> None:
            raise TypeError("A read is not iterable. Use batches(), or to_arrow().to_pylist() for rows as dicts.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._history.store.uri} at slot {self._seq}>"

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """Split the read into tasks that can run anywhere.

        Returns:
            The tasks. Each is a callable without arguments that returns a pyarrow Table, and can be pickled.
        """

    def _with_original_names(self, name_mapping: NameMapping) -> Self:
        rows = copy.copy(self)
        rows._originals = self._adapt_name_mapping(name_mapping)
        return rows

    def _adapt_name_mapping(self, name_mapping: NameMapping) -> NameMapping:
        # Overridden by reads whose columns are inside structs.
        return name_mapping

    def _rename_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._originals.schema_with_original_names(schema) if self._originals else schema

    def _rename_table(self, table: pa.Table) -> pa.Table:
        return self._originals.rows_with_original_names(table) if self._originals else table

    def _rename_task(self, task: Task) -> Task:
        return RenamedTask(task, self._originals) if self._originals else task

    def _each_task(self) -> Iterator[Task]:
        # Memory does not hold all tasks of a large table.
        yield from self.tasks()

    def _convert_errors(self, work: Callable[[], T]) -> T:
        return convert_read_errors(self._history, self._require_readable, work)

    def _require_readable(self) -> None:
        self._history.require_readable(self._seq)

    def _flat(self, rows: pa.Table) -> pa.Table:
        # Overridden by reads with structs, which `to_pandas` flattens.
        return rows

    def _parts(self) -> list[pa.Table]:
        return LocalEngine().map(self._convert_errors, self.tasks())

    def to_arrow(self) -> pa.Table:
        """Read all rows into a pyarrow Table.

        Returns:
            The rows.

        Raises:
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
            ColumnError: Another engine changed a column, so that a value no longer matches its type.
        """
        parts = self._parts()
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def tables(self, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Read the rows as Arrow tables.

        Args:
            rows: The approximate number of rows in a table. Tables of rows that must be merged may be larger. Default:
                the batch size of a base file.

        Yields:
            The next rows.

        Raises:
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
            ColumnError: Another engine changed a column, so that a value no longer matches its type.
        """
        for task in self._each_task():
            yield from self._stream_task(task, rows)

    def _stream_task(self, task: Task, rows: int) -> Iterator[pa.Table]:
        stream = task.stream(rows)
        while (part := self._convert_errors(lambda: next(stream, None))) is not None:
            yield part

    def batches(self, rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Read the rows as record batches.

        Memory holds the rows of at most one task, which is one file slice.

        Args:
            rows: The maximum number of rows in a batch, from 1. Default: the batch size of a base file.

        Returns:
            A reader of the batches.

        Raises:
            OptionError: `rows` is not an integer from 1.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise OptionError(
                f"Option rows is invalid: expected an integer of at least 1, got {printable(rows)}.", option="rows"
            )
        return pa.RecordBatchReader.from_batches(
            self.schema, (batch for part in self.tables(rows) for batch in part.to_batches(rows))
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the rows as an Arrow C stream."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """Count the rows without loading them all.

        Returns:
            The number of rows.

        Raises:
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        return sum(len(part) for part in self.tables())

    def __len__(self) -> int:
        """Count the rows."""
        return self.count()

    def __bool__(self) -> bool:
        return True

    def head(self, rows: int = 10) -> pa.Table:
        """Read a few rows for inspection.

        Args:
            rows: The maximum number of rows, from 0. Default 10. The choice of rows is unspecified.

        Returns:
            The rows.

        Raises:
            OptionError: `rows` is not an integer from 0.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        wanted = int(check_number("rows", rows, 0, whole=True, optional=False))
        tables, left = [self.schema.empty_table()], wanted
        for part in self.tables(max(1, min(wanted, BATCH_ROWS))) if wanted else ():
            tables.append(part.slice(0, left))
            left -= len(tables[-1])
            if not left:
                break
        return pa.concat_tables(tables)

    def _narrowed(self, columns: Sequence[str], tree: Predicate | None) -> Rows:
        # A `LazySource` may ignore the requested columns and condition.
        return self

    def to_dataset(self) -> ds.Dataset:
        """Create a pyarrow Dataset of the rows.

        It reads the rows when it is scanned. A scan of the dataset takes its own columns and filter. It reads only
        these columns, and skips files and row groups without matching rows, as `where` does. Rows are merged file by
        file during the scan, and nothing is written. Cleaning may delete the snapshot's files, so pin the snapshot for
        long work.

        Returns:
            The dataset. Its scans raise SnapshotExpired if cleaning deleted files of the snapshot, and CorruptTable if
            a file is damaged.
        """
        from hoodoo.readers.lazy_dataset import LazyDataset  # pyarrow.dataset is loaded only if needed

        return LazyDataset(self)

    def to_pandas(self, **options: object) -> pd.DataFrame:
        """Read all rows into a pandas DataFrame.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`.

        Returns:
            The rows.

        Raises:
            OptionError: `pyarrow.Table.to_pandas` does not accept the options.
            ColumnError: pandas cannot represent a value, such as a date after the year 9999.
            EngineError: pandas is not installed.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        rows = self._flat(self.to_arrow())
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
                f"pyarrow's to_pandas() does not accept {printable(options)}: {str(problem)[:500]}. Remove the option.",
                option="options",
            ) from None

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Read all rows into a polars DataFrame.

        Args:
            lazy: True returns a LazyFrame instead. It reads the columns and files that its query needs when the query
                runs. Default False.

        Returns:
            The rows.

        Raises:
            OptionError: `lazy` is not True or False.
            EngineError: polars is not installed.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        try:
            import polars
        except ImportError:
            raise EngineError("to_polars() needs polars. Install it: pip install polars.") from None
        if check_flag("lazy", lazy):
            from hoodoo.readers.lazy_polars import polars_lazy_frame  # it needs polars

            return polars_lazy_frame(self)
        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, *, lazy: bool = True
    ) -> duckdb.DuckDBPyRelation:
        """Create a DuckDB relation of the rows.

        It reads the rows when a query runs. Each query reads the rows again, and only the columns and files that it
        needs.

        Args:
            connection: The connection of the relation, from `duckdb.connect`. None (default): DuckDB's default
                connection.
            lazy: False reads all rows into memory immediately. Default True.

        Returns:
            The rows.

        Raises:
            OptionError: `connection` is not a DuckDB connection, or `lazy` is not True or False.
            EngineError: duckdb is not installed.
            SnapshotExpired: Cleaning deleted files of the snapshot during the read.
            CorruptTable: A file is damaged.
        """
        try:
            import duckdb
        except ImportError:
            raise EngineError("to_duckdb() needs DuckDB. Install it: pip install duckdb.") from None
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise OptionError(
                "Option connection is invalid: expected a connection from duckdb.connect(), got "
                f"{printable(connection)}.",
                option="connection",
            )
        return (connection or duckdb.default_connection()).from_arrow(
            self.to_dataset() if check_flag("lazy", lazy) else self.to_arrow()
        )

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Create a Spark DataFrame of the rows.

        Spark reads their files in parallel. Spark reads base files that need no merge with its own Parquet scan, and
        the other file slices in Python tasks.

        Args:
            spark: The session, classic or Connect.

        Returns:
            The rows.

        Raises:
            EngineError: pyspark is not installed, `spark` is not a session, or Spark's workers lack a package that
                hoodoo needs.
        """
        try:
            from hoodoo.readers.spark_scan import to_spark  # imported only if Spark is used
        except ImportError:
            raise EngineError("to_spark() needs PySpark. Install it: pip install 'hoodoo[spark]'.") from None
        require_spark_session(spark)
        if not self._originals:
            return to_spark(self.tasks(), self.schema, spark)
        stored = copy.copy(self)
        stored._originals = None
        return rename_to_original_names(to_spark(stored.tasks(), stored.schema, spark), self._originals)


def choose_column_names(rows: R, names: str, name_mapping: NameMapping) -> R:
    """Choose the column names of a read.

    Args:
        rows: The rows of a table.
        names: CURRENT for the table's names, or ORIGINAL for the names with which the columns were created.
        name_mapping: The mapping between these names.

    Raises:
        OptionError: `names` is neither CURRENT nor ORIGINAL.
    """
    check_allowed_value("names", names, (CURRENT, ORIGINAL))
    return rows._with_original_names(name_mapping) if names == ORIGINAL and name_mapping else rows
