"""What `where` stands for: a predicate that prunes files and row groups by their statistics, and chooses rows. Knows no
file and no slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import OptionError, PredicateError
from hoodoo.format.parquet import statistics
from hoodoo.readers.predicate import tree as predicates
from hoodoo.redact import printable

Where: TypeAlias = "str | pc.Expression"
"""What `where` takes: text in the grammar of `text.py`, which prunes files, or an Arrow expression, which does not."""


@dataclass(frozen=True)
class Filter:
    """`where`: a parsed string (prunes, and works on Spark natively) or an opaque Arrow expression."""

    tree: predicates.Predicate | None
    expression: pc.Expression
    columns: frozenset[str]  # that it may look at; for an opaque expression all there are
    travels_once: ClassVar[bool] = True  # between a driver and its tasks (engine/parcels)

    @staticmethod
    def of(where: Where | None, schema: pa.Schema) -> Filter | None:
        if where is None:
            return None
        if isinstance(where, str):
            from hoodoo.readers.predicate import text  # sqlglot takes its time to import: only those who use it pay

            tree = text.read(where, schema)
            return Filter(tree, predicates.to_arrow(tree), frozenset(predicates.columns(tree)))
        if isinstance(where, pc.Expression):
            try:
                schema.empty_table().filter(where)
            except (pa.ArrowException, ValueError, TypeError) as problem:
                why = str(problem).splitlines()[0][:500].rstrip(".")
                raise PredicateError(
                    f"The expression does not fit the table: {why}. There are {', '.join(schema.names)}.",
                    where=printable(where),
                ) from None
            return Filter(None, where, frozenset(schema.names))
        raise OptionError(f"where takes a string or a pyarrow expression, got {printable(where)}.", option="where")


def column_ranges(stats: statistics.Stats, rows: int, schema: pa.Schema) -> dict[str, predicates.ColumnRange]:
    """What `stats` of `rows` rows say of the columns of `schema`, as typed values."""
    ranges = {}
    there = set(schema.names)
    for name, (low, high, nulls) in stats.items():
        if name in there:
            kind = schema.field(name).type
            ranges[name] = predicates.ColumnRange(
                statistics.from_json(low, kind), statistics.from_json(high, kind), nulls, rows
            )
    return ranges
