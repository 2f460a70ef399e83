"""Computed column values of an update or a merge.

The values follow the rules of a batch: casts are exact, nullability is enforced, and checks have to pass.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from hoodoo.arguments import accepts_arguments
from hoodoo.errors import ColumnError, ExpressionError, OptionError
from hoodoo.format.equality import equal_values
from hoodoo.format.names import IS_DELETED
from hoodoo.merge.modes import CustomMerge
from hoodoo.nearest import suggest_name
from hoodoo.readers.predicate import checks, sql
from hoodoo.readers.predicate.quoting import as_text, has_quoted_literals
from hoodoo.readers.predicate.sql import Expression
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.batch import delete_flags, require_checks, require_ordering, require_values
from hoodoo.writers.batches.cast import cast_column
from hoodoo.writers.batches.generated_columns import add_generated_columns
from hoodoo.writers.batches.input import to_arrow
from hoodoo.writers.batches.value_validation import validate_columns

NEWER = "source"
"""Prefix, before a dot, of the columns of the newer row that is merged with a stored row."""
_OF_A_ROW = re.compile(r"(source|target)\.\w+")
_DAY = re.compile(r"\d{4}-\d\d?-\d\d?")
SetFunction: TypeAlias = "Callable[[pa.Table], pa.Table | Mapping[str, Any]]"
SetLike: TypeAlias = "Mapping[str, object] | SetFunction"
"""Type of `set`: a mapping from column to value, or a function from rows to columns."""


@dataclass(frozen=True)
class NewValues:
    """New column values of an update or a merge.

    Attributes:
        config: The configuration of the table.
        columns: For each column an SQL expression, or a literal as an Arrow scalar of the column's type.
        function: A user function that computes the columns from the stored rows, or None.
        merging: A user function that computes the columns from stored and newer rows, or None. SQL expressions can
            refer to the newer row as `source`.
    """

    config: TableConfig
    columns: Mapping[str, Expression | CopiedColumn | pa.Scalar]
    function: SetFunction | None = None
    merging: CustomMerge | None = None

    @staticmethod
    def of(
        set: SetLike,
        config: TableConfig,
        now: dt.datetime,
        seen: pa.Schema | None = None,
        orders: bool = False,
        places: bool = False,
        params: Mapping[str, Any] | None = None,
    ) -> NewValues:
        """Validate the new values of an update.

        Args:
            set: A mapping from column to value, or a function.
            config: The configuration of the table.
            now: The value of `now()` in expressions, in UTC.
            seen: The columns that expressions can use. None (default): the columns of the table.
            orders: True if ordering columns may be set. Default False.
            places: True if source columns of generated partition columns may be set. The new values must not change the
                partition of the row; `changed` checks that. Default False.
            params: The values of the parameters in expressions. None: no parameters.

        Raises:
            OptionError: `set` is neither a mapping nor a function, or is empty.
            ColumnError: A column does not exist or cannot be set, or a value is not convertible to its column's type.
            ExpressionError: An expression cannot be parsed, or does not match the columns.
        """
        if callable(set) and not isinstance(set, type):
            if not accepts_arguments(set, 1):
                raise OptionError(
                    "Option set is invalid: expected a function with one argument, an Arrow table of the matching "
                    f"rows, but {printable(set)} cannot be called with one argument.",
                    option="set",
                )
            return NewValues(config, {}, set)
        if not isinstance(set, Mapping) or not set:
            raise OptionError(
                "Option set is invalid: expected a mapping from column to SQL expression, or a function that "
                f"receives and returns an Arrow table, got {printable(set)}. To write rows with new values, call "
                "upsert(rows, columns='given').",
                option="set",
            )
        seen = config.schema if seen is None else seen
        for name in set:
            require_updatable(name, config, orders, places)
        return NewValues(config, {name: _value(name, value, config, now, seen, params) for name, value in set.items()})

    @property
    def needed_columns(self) -> tuple[str, ...]:
        config, names = self.config, self.config.schema.names
        if self.function is not None or self.merging is not None:
            return tuple(names)
        needed = {*config.key, *self.columns, *(name for check in checks.load_checks(config) for name in check.columns)}
        for value in self.columns.values():
            needed |= {name for _, name in value.columns} if isinstance(value, Expression) else set()
            needed |= {value.name} if isinstance(value, CopiedColumn) else set()
        if any(transform.column in needed for transform in config.transforms.values()):
            needed |= {*config.partition_sources, *config.partition_by}
        return tuple(name for name in names if name in needed)

    def changed(self, rows: pa.Table, seen: pa.Table | None = None) -> tuple[pa.Table, frozenset[str]]:
        """Change stored rows to the new values.

        Only the changed rows are returned.

        Args:
            rows: Live rows, with the record key and `needed_columns`.
            seen: The columns that SQL expressions can use, for each row. None (default): `rows`.

        Returns:
            The changed rows, with the new values; and the names of the columns that were not set.

        Raises:
            ColumnError: A value does not match its column or the partition of the row, or a function did not return
                columns with one value per row.
            OrderingError: A row would have null or NaN in an ordering column.
            PartitionValueError: A number is too small to be truncated.
            CheckFailed: A row would fail a check of the table.
            ExpressionError: An expression cannot be evaluated on one of the rows.
        """
        if not len(rows):
            return rows, frozenset()
        new_values = self.values(rows, rows if seen is None else seen)
        differ = np.zeros(len(rows), bool)
        for name, values in new_values.items():
            differ |= ~equal_values(rows[name].combine_chunks(), values.combine_chunks())
        changed = rows
        for name, values in new_values.items():
            changed = changed.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        changed = changed.filter(pa.array(differ))
        no_deletes = np.zeros(len(changed), bool)
        require_values(changed, self.config, no_deletes)
        if new_values.keys() & set(self.config.order_by):
            require_ordering(changed, self.config)
        if any(transform.column in new_values for transform in self.config.transforms.values()):
            add_generated_columns(changed, self.config, no_deletes)
        require_checks(changed, self.config, no_deletes, checks.load_checks(self.config))
        return changed, frozenset(self.config.schema.names) - new_values.keys()

    def values(self, rows: pa.Table, seen: pa.Table) -> dict[str, pa.ChunkedArray]:
        computed = (
            self._evaluated(seen) if self.function is None and self.merging is None else self._returned(rows, seen)
        )
        with_keys = pa.table(computed | {name: rows[name] for name in self.config.key})
        sound = validate_columns(with_keys, list(computed), self.config.key)
        new_values = {name: self._cast(sound[name], name, rows) for name in computed}
        if IS_DELETED in new_values:
            _require_no_delete_flag(new_values[IS_DELETED], rows, self.config)
        return new_values

    def _evaluated(self, rows: pa.Table) -> dict[str, Any]:
        return {
            name: pa.repeat(value, len(rows)) if isinstance(value, pa.Scalar) else value.values(rows)
            for name, value in self.columns.items()
        }

    def _returned(self, rows: pa.Table, seen: pa.Table) -> dict[str, Any]:
        stored, option = rows.select(self.config.schema.names), "set" if self.merging is None else "merge"
        if self.merging is not None:
            newer = [seen[f"{NEWER}.{name}"] for name in stored.schema.names]
            returned = self.merging.function(stored, pa.table(newer, names=stored.schema.names))
        else:
            assert self.function is not None
            returned = self.function(stored)
        columns: dict[str, Any] = {}
        if isinstance(returned, pa.Table):
            names = returned.schema.names
            if duplicate := next((name for name in names if names.count(name) > 1), None):
                raise ColumnError(
                    f"The function for {option} returned column {duplicate!r} more than once.", column=duplicate
                )
            columns = {name: returned[name] for name in names}
        elif isinstance(returned, Mapping):
            columns = {str(name): values for name, values in returned.items()}
        if not columns or not isinstance(returned, (pa.Table, Mapping)):
            raise ColumnError(
                f"The function for {option} returned {printable(returned)}: expected an Arrow table, or "
                "a mapping from name to array, with the columns that change. Correct the function.",
                option=option,
            )
        for name, values in columns.items():
            if not isinstance(values, (pa.Array, pa.ChunkedArray)):
                raise ColumnError(
                    f"The function for {option} returned {printable(values)} for column {name!r}: expected an Arrow "
                    "array. Convert a list with pa.array(...), or a single value with pa.repeat(value, len(rows)).",
                    column=name,
                )
            if len(values) != len(rows):
                raise ColumnError(
                    f"The function for {option} returned {len(values)} values of column {name!r} for "
                    f"{len(rows)} rows: expected one value per row. Return the values in the order of the rows.",
                    column=name,
                )
        kept = {
            name: values for name, values in columns.items() if not self._is_unchanged_fixed_column(name, values, rows)
        }
        for name in kept:
            self._require_settable_result(name)
        return {name: columns[name] for name in kept}

    def _require_settable_result(self, name: str) -> None:
        merging = self.merging is not None
        try:
            require_updatable(name, self.config, orders=merging, places=merging)
        except ColumnError as problem:
            reason = problem.message
            if merging and name in self.config.schema.names:
                kind = "a key column" if name in self.config.key else "a partition column"
                reason = f"Column {name!r} is {kind}, which a merge cannot change. Leave it out."
            message = f"The function for {'merge' if merging else 'set'} returned column {name!r}. {reason}"
            raise ColumnError(message, **problem.details) from None

    def _is_unchanged_fixed_column(self, name: str, values: Any, rows: pa.Table) -> bool:
        # A function may return the table that it received, so unchanged fixed columns are ignored.
        fixed = {*self.config.key, *self.config.partition_sources, *self.config.order_by}
        return (
            name in fixed
            and values.type == rows.schema.field(name).type
            and _as_one(values).equals(_as_one(rows[name]))
        )

    def _cast(self, values: pa.ChunkedArray, name: str, rows: pa.Table) -> pa.ChunkedArray:
        try:
            return cast_column(values, self.config.schema.field(name))
        except ColumnError as problem:
            row = problem.details.get("row")
            if not isinstance(row, int):
                if self.function is None and self.merging is None:
                    raise
                option = "set" if self.merging is None else "merge"
                raise ColumnError(
                    f"{problem.message} The function for {option} returned this column.", **problem.details
                ) from None
            key = printable({part: rows[part][row].as_py() for part in self.config.key})
            hint = (
                "" if self.function or self.merging else " Convert the expression with round(...) or CAST(... AS ...)."
            )
            details = {**problem.details, "key": key}
            raise ColumnError(f"{problem.message} The row has the key {key}.{hint}", **details) from None


def _require_no_delete_flag(flags: pa.ChunkedArray, rows: pa.Table, config: TableConfig) -> None:
    flagged = np.flatnonzero(delete_flags(flags))
    if len(flagged):
        key = printable({name: rows[name][int(flagged[0])].as_py() for name in config.key})
        raise ColumnError(
            f"Column {IS_DELETED!r} would be true in the row with the key {key}, which marks the row as "
            "deleted. Delete the row with delete(where=...), with a delete clause of the merge, or with an "
            f"upsert of {IS_DELETED!r}.",
            column=IS_DELETED,
            key=key,
        )


def _as_one(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def require_updatable(name: object, config: TableConfig, orders: bool = False, places: bool = False) -> None:
    """Check that a column is updatable.

    Raises ColumnError if it may not. `orders` allows ordering columns. `places` allows source columns of generated
    partition columns.
    """
    if not isinstance(name, str) or name not in config.columns.by_name:
        raise ColumnError(
            f"Column {printable(name)} is not in the table; {suggest_name(str(name), config.schema.names)}",
            column=printable(name),
        )
    fixed = {**dict.fromkeys(config.key, "a key column"), **dict.fromkeys(config.partition_by, "a partition column")}
    for column in () if orders else config.order_by:
        fixed.setdefault(column, "the ordering column" if len(config.order_by) == 1 else "an ordering column")
    for partition_column, transform in () if places else config.transforms.items():
        fixed.setdefault(transform.column, f"the source of partition column {partition_column!r} ({transform})")
    if name in fixed:
        raise ColumnError(
            f"Column {name!r} is {fixed[name]}, which an update cannot change. "
            + (
                "Upsert newer versions of the rows."
                if name in config.order_by
                else "Insert rows with the new values, and then delete the rows with the old values."
            ),
            column=name,
        )


@dataclass(frozen=True)
class CopiedColumn:
    name: str

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows[self.name]


def _value(
    name: str,
    given: object,
    config: TableConfig,
    now: dt.datetime,
    seen: pa.Schema,
    params: Mapping[str, Any] | None,
) -> Expression | CopiedColumn | pa.Scalar:
    field = config.schema.field(name)
    if isinstance(given, CopiedColumn):
        return given
    if not isinstance(given, str):
        if isinstance(given, pa.Scalar):
            return cast_column(pa.chunked_array([pa.array([given.as_py()], given.type)]), field)[0]
        return cast_column(to_arrow({field.name: [given]}, pa.schema([field]))[field.name], field)[0]
    try:
        expression = sql.read_expression(given, seen, now, f"set[{name!r}]", params)
    except ExpressionError as problem:
        quoting_hint, instead = _suggest_quotes(given, field, None)
        raise ExpressionError(
            f"{problem.message}{quoting_hint and chr(10)}{quoting_hint}", **{**problem.details, **instead}
        ) from None
    try:
        cast_column(pa.chunked_array([pa.nulls(1, expression.type)]), field)
    except ColumnError as problem:
        quoting_hint, instead = _suggest_quotes(given, field, expression)
        raise ColumnError(
            f"{problem.message} The expression is {printable(given)}.{quoting_hint and ' '}{quoting_hint}",
            **{**problem.details, **instead},
        ) from None
    return expression


def _suggest_quotes(given: str, field: pa.Field, expression: Expression | None) -> tuple[str, dict[str, str]]:
    # The expression is None if `given` cannot be parsed.
    kind, text = field.type, given.strip()
    is_quoted = text[:1] == text[-1:] == "'"
    is_expression = expression is not None and expression.columns or "(" in given or _OF_A_ROW.fullmatch(text)
    if is_expression or not has_quoted_literals(kind):
        return "", {}
    literal = text if is_quoted else as_text(text[1:-1] if text[:1] == text[-1:] == '"' else given)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if is_quoted:
            return "", {}
    elif text[:1] == "'" or _DAY.match(text):
        name = "DATE" if pa.types.is_date(kind) else "TIME" if pa.types.is_time(kind) else "TIMESTAMP"
        name += "TZ" if pa.types.is_timestamp(kind) and kind.tz else ""
        literal = f"{name} {literal}"
    else:
        return "", {}
    example = json.dumps({field.name: literal}, ensure_ascii=False)
    return f"Put strings in single quotes: {example}", {"option": f"set[{field.name!r}]", "instead": literal}


__all__ = ["NewValues", "SetLike", "require_updatable"]
