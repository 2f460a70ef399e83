"""Spark SQL statements that write to hoodoo tables.

Spark provides the new rows. DuckDB evaluates the expressions on stored rows, in the processes that read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from hoodoo.errors import ColumnError, ExpressionError, OptionError
from hoodoo.nearest import suggest_name
from hoodoo.redact import printable
from hoodoo.spark.sql_expressions import Scope, Side, schema_of_frame, translate_expression
from hoodoo.spark.sql_reading import create_dataframe, zone_of
from hoodoo.spark.sql_text import Node, Statement, TokenType, unsupported_sql
from hoodoo.table import Table
from hoodoo.table.merging import Merge
from hoodoo.table.results import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNTS = ("inserted", "updated", "deleted", "stale", "exact", "files", "bytes_written", "retries")


@dataclass(frozen=True)
class Target:
    """Target table of an SQL statement.

    Attributes:
        table: The table.
        node: The table in the syntax tree.
        last: The index of the last token of the table reference.
    """

    table: Table
    node: Node
    last: int

    @property
    def alias(self) -> str:
        """The name of the table in the statement."""
        return str(self.node.alias or ("" if self.node.db else self.node.name)).lower()


def convert_result(result: WriteResult) -> pa.Table:
    told = {name: [getattr(result, name)] for name in _COUNTS}
    return pa.table(told | {"instant": [result.instant], "cursor": [str(result.cursor)]})


def run_update(spark: SparkSession, statement: Statement, target: Target) -> WriteResult:
    """Run an UPDATE statement on a hoodoo table.

    Args:
        spark: The session.
        statement: The statement.
        target: The table.

    Raises:
        ExpressionError: A value or the condition cannot be translated to DuckDB.
        HoodooError: Any error that `Table.update` raises.
    """
    tree = statement.tree
    if tree.args.get("from_") or tree.args.get("from"):
        raise unsupported_sql("UPDATE ... FROM", "Use MERGE INTO, which can read another table.")
    _require_supported_clauses(statement, "UPDATE", ("this", "expressions", "where"))
    _require_equal_meaning(statement)
    row = Side(target.alias, "", target.table.schema)
    scope = Scope((row,), zone_of(spark))
    return target.table.update(_translate_assignments(tree.expressions, row, (row,), scope), where=_where(tree, scope))


def run_delete(spark: SparkSession, statement: Statement, target: Target) -> WriteResult:
    """Run a DELETE statement on a hoodoo table.

    Args:
        spark: The session.
        statement: The statement.
        target: The table.

    Raises:
        ExpressionError: The condition cannot be translated to DuckDB.
        HoodooError: Any error that `Table.delete` raises.
    """
    _require_supported_clauses(statement, "DELETE", ("this", "where"))
    _require_equal_meaning(statement)
    where = _where(statement.tree, Scope((Side(target.alias, "", target.table.schema),), zone_of(spark)))
    return target.table.delete(where=pc.scalar(True) if where is None else where)


def _require_supported_clauses(statement: Statement, what: str, known: Sequence[str]) -> None:
    """Check that a statement has no unsupported clause.

    Such a clause may restrict the affected rows, so ignoring it could change more rows.
    """
    tree = statement.tree
    more = [name for name, value in tree.args.items() if value and name not in known]
    more += [name for name, value in tree.this.args.items() if value and name not in ("this", "db", "catalog", "alias")]
    if more:
        clauses = ", ".join(name.strip("_").upper() for name in more)
        raise unsupported_sql(
            f"{what} with {clauses}",
            f"{what} accepts a table, an alias and WHERE. To use other rows or tables, write MERGE INTO with a "
            "source that returns the keys to change.",
        )


def run_insert(spark: SparkSession, statement: Statement, target: Target) -> WriteResult:
    """Run an INSERT statement on a hoodoo table.

    Args:
        spark: The session.
        statement: The statement.
        target: The table.

    Raises:
        OptionError: The statement overwrites, or names a partition.
        ColumnError: The statement names an unknown column, or the numbers of values and columns differ.
        HoodooError: Any error that `Table.insert` raises.
    """
    tree, table = statement.tree, target.table
    if tree.args.get("overwrite") or tree.args.get("where"):
        raise unsupported_sql(
            "INSERT OVERWRITE",
            "The statement is ambiguous, because it could replace the table or some partitions. Use "
            "hoodoo.open(path).insert_overwrite(df), with whole_table=True to replace all rows.",
        )
    if target.node.args.get("partition"):
        raise unsupported_sql("INSERT ... PARTITION", "Write partition columns as ordinary columns with values.")
    listed = [part.name for part in tree.this.expressions] if isinstance(tree.this, exp.Schema) else None
    by_name = bool(tree.args.get("by_name"))
    frame = create_dataframe(
        spark, _with_clause(statement, "INSERT") + statement.after(_last_token_before_query(statement, target, listed))
    )
    given = listed if listed is not None else list(frame.columns) if by_name else table.schema.names
    named = [_column(name, table.schema) for name in given]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise ColumnError(f"INSERT names column {twice!r} more than once.", column=twice)
    if len(named) != len(frame.columns):
        raise ColumnError(
            f"INSERT has {len(frame.columns)} values for {len(named)} columns ({', '.join(named[:20])}). Write "
            "a value for each column, or name the columns: INSERT INTO t (a, b) ..."
        )
    missing = "null" if listed or by_name else "fail"
    return table.insert(_cast_decimals(frame.toDF(*named), table.schema), duplicates="fail", missing=missing)


def _cast_decimals(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Cast decimals of a DataFrame to float columns.

    Spark SQL parses numbers with a decimal point as decimals.
    """
    kinds = {"double": pa.types.is_float64, "float": pa.types.is_float32}
    for field in frame.schema.fields:
        for name, is_kind in kinds.items():
            if type(field.dataType).__name__ == "DecimalType" and is_kind(schema.field(field.name).type):
                frame = frame.withColumn(field.name, frame[field.name].cast(name))
    return frame


def run_merge(spark: SparkSession, statement: Statement, target: Target) -> WriteResult:
    """Run a MERGE statement into a hoodoo table.

    Args:
        spark: The session.
        statement: The statement.
        target: The table.

    Raises:
        OptionError: ON is not the equality of the key and partition columns, or a clause is unsupported.
        ExpressionError: A value or a condition cannot be translated to DuckDB.
        HoodooError: Any error that the merge of `Table.merge` raises.
    """
    _require_equal_meaning(statement)
    tree, schema = statement.tree, target.table.schema
    using, on = statement.names("USING")[0], statement.names("ON")
    begin = statement.tokens[using].end + 1
    end = statement.tokens[next(index for index in on if index > using)].start
    frame = _renamed_in_table_case(
        create_dataframe(spark, f"{_with_clause(statement, 'MERGE')}SELECT * FROM {statement.text[begin:end]}"), schema
    )
    alias = str(tree.args["using"].alias_or_name).lower()
    if getattr(tree.args["using"], "db", "") and not tree.args["using"].alias and "/" in alias:
        alias = ""
    source, stored = Side(alias, "source", schema_of_frame(frame)), Side(target.alias, "target", schema)
    _require_keys(tree.args["on"], source, stored, target.table)
    merging = target.table.merge(frame)
    for when in tree.args["whens"].expressions:
        _Clause(when, source, stored, target.table, zone_of(spark)).add_to(merging)
    return merging.execute()


@dataclass(frozen=True)
class _Clause:
    when: Node
    source: Side
    stored: Side
    table: Table
    zone: str

    def add_to(self, merging: Merge) -> None:
        then, condition = self.when.args["then"], self.when.args.get("condition")
        where = None if condition is None else translate_expression(condition, self._scope)
        if isinstance(then, exp.Insert):
            if then.this is None or isinstance(then.this, exp.Star):
                merging.when_not_matched_insert_all(where)
            else:
                merging.when_not_matched_insert(self._values(then), where=where)
        elif isinstance(then, exp.Update):
            self._update(merging, then, where)
        elif then.name.upper() == "DELETE":
            if self._by_source:
                merging.when_not_matched_by_source_delete(where)
            else:
                merging.when_matched_delete(where)
        else:
            raise unsupported_sql(f"the clause {printable(self.when.sql('spark'))}", "Use UPDATE, DELETE or INSERT.")

    def _update(self, merging: Merge, then: Node, where: str | None) -> None:
        if any(isinstance(part, exp.Star) for part in then.expressions):
            if self._by_source:
                raise unsupported_sql("UPDATE SET * without a source row", "Name the columns and their values.")
            merging.when_matched_update_all(where)
            return
        values = _translate_assignments(then.expressions, self.stored, (self.source, self.stored), self._scope)
        if self._by_source:
            merging.when_not_matched_by_source_update(values, where=where)
        else:
            merging.when_matched_update(values, where=where)

    @property
    def _by_source(self) -> bool:
        return not self.when.args["matched"] and bool(self.when.args.get("source"))

    @property
    def _scope(self) -> Scope:
        if self.when.args["matched"]:
            return Scope((self.source, self.stored), self.zone)
        return Scope((self.stored if self._by_source else self.source,), self.zone)

    def _values(self, then: Node) -> dict[str, str]:
        names = [_column(part.parts[-1].name, self.table.schema) for part in then.this.expressions]
        values = _listed(then.expression)
        if len(names) != len(values):
            raise OptionError(f"INSERT names {len(names)} columns but has {len(values)} values.", option="text")
        found = dict(zip(names, values, strict=True))
        for name in dict.fromkeys((*self.table.key, *self.table.partition_by)):
            node = found.pop(name, None)
            if node is None and name in self.table.inspect.transforms:
                continue
            if node is None or not _is_column(node, name, self._scope):
                raise OptionError(
                    f"INSERT of a MERGE needs column {name!r} from the source row, because rows are matched by "
                    f"it. Add {name} to the columns, with {self.source.alias or 'the source'}.{name} as its "
                    "value.",
                    option="text",
                )
        if not found:
            raise OptionError(
                "INSERT of a MERGE needs at least one column that is not a key or partition column.", option="text"
            )
        return {name: translate_expression(node, self._scope) for name, node in found.items()}


def _listed(node: Node | None) -> list[Node]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]


def _is_column(node: Node, name: str, scope: Scope) -> bool:
    if not isinstance(node, exp.Column):
        return False
    _, found, fields = scope.found(node)
    return found == name and not fields


def _translate_assignments(parts: Iterable[Node], row: Side, sides: Sequence[Side], scope: Scope) -> dict[str, str]:
    """Translate the assignments of a SET clause to DuckDB expressions.

    Args:
        parts: The assignments in the syntax tree.
        row: The row that the clause changes.
        sides: All rows in the statement, whose aliases can qualify columns.
        scope: The rows that the assigned expressions can refer to, and the session's time zone.
    """
    found: dict[str, str] = {}
    for part in parts:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise ExpressionError(
                f"SET must be column = value, got {printable(part.sql('spark'))}.", expression=part.sql("spark")[:1000]
            )
        names = [one.name for one in part.this.parts]
        if len(names) > 1 and names[0].lower() in [side.alias for side in sides if side.alias]:
            if names[0].lower() != row.alias:
                raise ColumnError(
                    f"SET can only change columns of the table, but {'.'.join(names)} is a source column."
                )
            names = names[1:]
        if len(names) > 1:
            raise unsupported_sql(
                f"SET {'.'.join(names)}", "A single struct field cannot be set. Set the whole column."
            )
        name = _column(names[0], row.schema)
        if name in found:
            raise ColumnError(f"SET names column {name!r} more than once.", column=name)
        found[name] = translate_expression(part.expression, scope)
    return found


def _where(tree: Node, scope: Scope) -> str | None:
    where = tree.args.get("where")
    return None if where is None else translate_expression(where.this, scope)


def _require_keys(on: Node, source: Side, stored: Side, table: Table) -> None:
    """Check that a MERGE compares all key columns.

    Derived partition columns are optional.
    """
    wanted = list(dict.fromkeys((*table.key, *table.partition_by)))
    needed = [name for name in wanted if name in table.key or name not in table.inspect.transforms]
    one, other = stored.alias or "target", source.alias or "source"
    said = " AND ".join(f"{one}.{name} = {other}.{name}" for name in needed)
    found: list[str] = []
    for part in _flat(on):
        sides = [part.this, part.expression] if isinstance(part, (exp.EQ, exp.NullSafeEQ)) else []
        columns = [node for node in sides if isinstance(node, exp.Column)]
        pair = [Scope((source, stored), "UTC").found(node) for node in columns] if len(columns) == 2 else []
        if {side.prefix for side, _, _ in pair} != {"source", "target"} or pair[0][1:] != pair[1][1:] or pair[0][2]:
            found = []
            break
        found.append(pair[0][1])
    if len(set(found)) < len(found) or not set(needed) <= set(found) <= set(wanted):
        raise OptionError(
            f"ON must be {said}, because MERGE matches rows by the "
            f"key{' and the partition' if table.partition_by else ''}. Put other conditions after WHEN ... "
            "AND. If a source column has another name, rename it in a subquery.",
            option="text",
        )


def _flat(node: Node) -> list[Node]:
    if isinstance(node, exp.Paren):
        return _flat(node.this)
    if isinstance(node, exp.And):
        return [*_flat(node.this), *_flat(node.expression)]
    return [node]


def _renamed_in_table_case(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    ours: Mapping[str, str] = {name.lower(): name for name in reversed(schema.names)}
    names = [name if name in schema.names else ours.get(name.lower(), name) for name in frame.columns]
    return frame if names == frame.columns else frame.toDF(*names)


def _column(name: str, schema: pa.Schema) -> str:
    found = Side("", "", schema).column(name)
    if found is None:
        raise ColumnError(
            f"Column {printable(name)} is not in the table; {suggest_name(name, schema.names)}", column=name
        )
    return found


def _with_clause(statement: Statement, word: str) -> str:
    index = statement.names(word)[0]
    return statement.text[: statement.tokens[index].start]


def _last_token_before_query(statement: Statement, target: Target, listed: Sequence[str] | None) -> int:
    index, tokens = target.last, statement.tokens
    if [token.text.upper() for token in tokens[index + 1 : index + 3]] == ["BY", "NAME"]:
        index += 2
    if listed is not None:
        while tokens[index].token_type != TokenType.R_PAREN:
            index += 1
    return index


def _require_equal_meaning(statement: Statement) -> None:
    """Check that a statement has an equal meaning in Spark and DuckDB.

    sqlglot may parse such string literals differently. It does not distinguish TRY_CAST from CAST, which raises an
    error instead of returning null.
    """
    if texts := statement.ambiguous_string_literals():
        raise unsupported_sql(
            f"the string {printable(texts[0])} in an expression that DuckDB evaluates",
            r"Write one string in single quotes, with no escapes except \\, \', \n, \r and \t.",
        )
    words = statement.words
    named: Any = [index for index, word in enumerate(words[:-1]) if word == "TRY_CAST" and words[index + 1] == "("]
    if named:
        raise unsupported_sql("TRY_CAST in an expression that DuckDB evaluates", "Compute it in the source of a MERGE.")
