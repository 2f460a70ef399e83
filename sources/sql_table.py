"""Source that reads an SQL table.

The table has a column that grows, such as a time of update. Each driver with Python's DB-API is supported. Deleted rows
are not detected: use change events of Debezium for deletes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp

from hoodoo.errors import ColumnError, HoodooError, OptionError, SourceUnavailable
from hoodoo.redact import printable, redact
from hoodoo.sources.source import Limits, Part, Planned, Source, SourceLag
from hoodoo.sources.sql_position import SqlPosition

_AT_ONCE = 10_000  # number of rows per call of the driver
Connect = Callable[[], Any]


class SqlTable(Source):
    """Source for new and updated database rows.

    It finds the rows by a growing column. A row is read when its value in the growing column is larger than the last
    value that was read. A row gets its value when it is written, but becomes visible when its transaction commits. So a
    row that commits late may have a smaller value than rows that were already read. To prevent this, rows wait for the
    time `lag`. A transaction that takes longer than `lag` may lose rows.

    Rows with null in the column are never read. They count in the lag, and the report of a job names them.

    Attributes:
        name: 'sql:' and the name of the table.
        passed_over: One entry if the newest query found rows with null in the column.
    """

    def __init__(
        self, connect: Connect, table: str, column: str, key: str, lag: dt.timedelta | int | float, dialect: str = ""
    ) -> None:
        """Create a source for a database table.

        The database is not contacted yet.

        Args:
            connect: Function that opens a connection, such as `lambda: psycopg.connect("dbname=shop")`. Each query
                opens a connection and closes it.
            table: Name of the table, such as "shop.orders".
            column: Column that grows each time that a row is written: a number, a time or a date. Create an index on
                this column and the key.
            key: Column that is unique among rows with equal values of `column`.
            lag: Longest duration of a transaction that writes rows. For a column of times: a timedelta; newer rows
                wait, by the clock of this machine. For a column of numbers: the largest difference between the largest
                visible number and a number that is not visible yet. Use 0 if transactions never overlap.
            dialect: SQL dialect by its name in sqlglot, such as "postgres", "mysql", "tsql" or "sqlite". "" (default):
                standard SQL.

        Raises:
            OptionError: An argument is invalid.
        """
        for option, value in (("table", table), ("column", column), ("key", key)):
            if not isinstance(value, str) or not value:
                raise OptionError(
                    f"Option {option} is invalid: expected a string, got {printable(value)}.", option=option
                )
        if not callable(connect):
            raise OptionError(
                f"Option connect is invalid: expected a function that opens a connection, got {printable(connect)}. "
                "Pass lambda: driver.connect(...).",
                option="connect",
            )
        is_number = isinstance(lag, int | float) and not isinstance(lag, bool)
        if not (is_number and cast("float", lag) >= 0 or isinstance(lag, dt.timedelta) and lag >= dt.timedelta()):
            raise OptionError(
                f"Option lag is invalid: expected a timedelta or a number from 0, got {printable(lag)}.", option="lag"
            )
        try:
            sqlglot.Dialect.get_or_raise(dialect or None)
            self._table = exp.to_table(table, dialect=dialect or None)  # an invalid name is quoted
        except (ValueError, sqlglot.ParseError) as problem:
            reason = printable(str(problem).partition("\n")[0], 300)
            raise OptionError(
                f"The dialect does not exist, or {printable(table)} is not a valid table name: {reason}. Correct the "
                "dialect or the name.",
                option="dialect",
            ) from None
        self.connect, self.table, self.column, self.key = connect, table, column, key
        self.waits, self.dialect = lag, dialect
        self.name = f"sql:{table}"
        self.passed_over: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<rows of {self.table} by {self.column}>"

    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the rows for the next batch.

        Args:
            position: Position of an earlier plan; '' for the first batch.
            limits: Limits of the batch. Only `limits.rows` is used.

        Returns:
            The range of rows; None if all rows older than `lag` were read.

        Raises:
            SourceLost: The position belongs to another source.
            SourceUnavailable: The database does not respond.
            ColumnError: The type of `column` is unsupported, such as a string.
        """
        after = SqlPosition.parse(position, self.table)
        with closing(self._connect()) as connection:
            nulls = (
                exp.select(exp.column(self.key, quoted=True)).from_(self._table).where(self._column_is_null()).limit(1)
            )
            null_rows = self._fetch_rows(connection, nulls)
            self.passed_over = (f"rows with null in column {self.column!r}",) if null_rows else ()
            until = self._largest_readable_value(connection)
            if until is None:
                return None
            query = self._select_range(after, until)
            last = self._fetch_rows(connection, query.limit(1).offset(limits.rows - 1))
            if not last:  # fewer rows than the limit: read up to the last one
                last = self._fetch_rows(connection, self._select_range(after, until, newest_first=True).limit(1))
        if not last:
            return None
        end = SqlPosition(self.table, *last[0])
        return Planned((after, end), end.text())

    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read the rows of a planned batch.

        The rows are in the order of the growing column and the key. A row that was updated after `plan` may have left
        the range. A later batch reads it.

        Args:
            planned: A result of `plan`.
            columns: Columns of the target table.
            unknown: True to also return columns that the table does not have.

        Yields:
            The rows.

        Raises:
            SourceUnavailable: The database does not respond.
            ColumnError: A column has values of several types.
        """
        after, end = cast("tuple[SqlPosition | None, SqlPosition]", planned.what)
        select = self._select_range(after, end.value, end.key).select("*", append=False)
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            self._convert_driver_errors(lambda: cursor.execute(select.sql(dialect=self.dialect or None)))
            names = [str(column[0]) for column in cursor.description]
            left_out = () if unknown else tuple(name for name in names if name not in columns.names)
            while rows := self._convert_driver_errors(lambda: cursor.fetchmany(_AT_ONCE)):
                values = dict(zip(names, zip(*rows, strict=True), strict=True))
                arrays = {name: _column_array(name, values[name], columns) for name in names if name not in left_out}
                yield Part(pa.table(arrays), unknown=left_out)

    def lag(self, position: str) -> SourceLag:
        """Count the unread rows of the table.

        Args:
            position: Position of an earlier plan; '' for the beginning of the table.

        Returns:
            The number of rows, and the age of the oldest row if the column has times.
        """
        after = SqlPosition.parse(position, self.table)
        column = exp.column(self.column, quoted=True)
        query = exp.select(exp.Count(this=exp.Star()), exp.Min(this=column)).from_(self._table)
        if after is not None:
            query = query.where(exp.or_(self._rows_after(after.value, after.key), self._column_is_null()))
        with closing(self._connect()) as connection:
            [(count, oldest)] = self._fetch_rows(connection, query)
        age = (_comparable_now(oldest) - oldest).total_seconds() if isinstance(oldest, dt.datetime) else 0.0
        return SourceLag(int(count), "rows", max(0.0, age))

    # ---- SQL
    def _column_is_null(self) -> exp.Is:
        return exp.Is(this=exp.column(self.column, quoted=True), expression=exp.Null())

    def _largest_readable_value(self, connection: Any) -> Any:
        column = exp.column(self.column, quoted=True)
        [(largest,)] = self._fetch_rows(connection, exp.select(exp.Max(this=column)).from_(self._table))
        if largest is None:
            return None
        if isinstance(largest, dt.date) != isinstance(self.waits, dt.timedelta) or isinstance(largest, str | bytes):
            raise ColumnError(
                f"The largest value in column {self.column!r} of {self.table} is {printable(largest)}, but lag is "
                f"{self.waits!r}. Use a timedelta for a column of times, or a number for a column of numbers.",
                column=self.column,
            )
        if isinstance(largest, dt.datetime):
            return min(largest, _comparable_now(largest) - cast("dt.timedelta", self.waits))
        if isinstance(largest, dt.date):
            return min(largest, (dt.datetime.now(dt.timezone.utc) - cast("dt.timedelta", self.waits)).date())
        return largest - type(largest)(cast("float", self.waits))

    def _select_range(
        self, after: SqlPosition | None, value: Any, key: Any = None, newest_first: bool = False
    ) -> exp.Select:
        # Both bounds are optional: rows come after the position `after`, and end at `value`, or at `value` and `key`.
        columns = [exp.column(name, quoted=True) for name in (self.column, self.key)]
        select = exp.select(*columns).from_(self._table)
        select = select.order_by(*(exp.Ordered(this=each.copy(), desc=newest_first) for each in columns))
        if after is not None:
            select = select.where(self._rows_after(after.value, after.key))
        if key is None:
            return select.where(exp.LTE(this=columns[0].copy(), expression=exp.convert(value)))
        return select.where(exp.not_(self._rows_after(value, key)))

    def _rows_after(self, value: Any, key: Any) -> exp.Condition:
        # Tuple comparison is not used, since some databases lack it.
        column, tie = (exp.column(name, quoted=True) for name in (self.column, self.key))
        larger = exp.GT(this=column, expression=exp.convert(value))
        equal = exp.EQ(this=column.copy(), expression=exp.convert(value))
        return exp.or_(larger, exp.and_(equal, exp.GT(this=tie, expression=exp.convert(key))))

    def _fetch_rows(self, connection: Any, select: exp.Select) -> list[tuple[Any, ...]]:
        with closing(connection.cursor()) as cursor:
            self._convert_driver_errors(lambda: cursor.execute(select.sql(dialect=self.dialect or None)))
            return [tuple(row) for row in self._convert_driver_errors(cursor.fetchall)]

    def _connect(self) -> Any:
        return self._convert_driver_errors(self.connect)

    def _convert_driver_errors(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except HoodooError:
            raise
        except Exception as problem:  # each driver raises its own errors
            reason = printable(redact(str(problem)).partition("\n")[0], 300)
            raise SourceUnavailable(
                f"The database did not respond for {self.table}: {reason}. Try again later.", table=self.table
            ) from None


def _comparable_now(like: dt.datetime) -> dt.datetime:
    # Times with and without a zone cannot be compared.
    now = dt.datetime.now(dt.timezone.utc)
    return now if like.tzinfo else now.replace(tzinfo=None)


def _column_array(name: str, values: tuple[Any, ...], columns: pa.Schema) -> pa.Array:
    # If a value does not match the type of the table's column, Arrow chooses the type.
    kinds = [columns.field(name).type] if name in columns.names else []
    for kind in (*kinds, None):
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            continue
    raise ColumnError(
        f"Column {name!r} has values of several types, or of a type that Arrow does not support. "
        "Convert it in a database view.",
        column=name,
    )
