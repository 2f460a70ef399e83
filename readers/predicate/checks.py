"""Checks: conditions of a table, in the syntax of `where`, that every row written by hoodoo must satisfy.

A row fails a check if the condition is false. It passes if the condition is null.
`timeline/properties/check_properties.py` stores the checks of a table. The table's writers decide how failing rows are
handled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import OptionError, PredicateError, SchemaError
from hoodoo.format.table_schema import TableSchema
from hoodoo.redact import printable
from hoodoo.timeline.properties.check_properties import stored, to_properties
from hoodoo.timeline.properties.config import TableConfig

if TYPE_CHECKING:
    from hoodoo.readers.predicate import tree as predicates
    from hoodoo.timeline.columns.alterations import Alteration

TEXT_CAP = 10_000
"""Maximum number of characters of one check. Checks are stored in the table's properties, which every open reads."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ROW = "#row"  # an additional column; no table column can have this name, since it is not a valid Avro name


@dataclass(frozen=True)
class Check:
    """Parsed check of a table: a named condition that rows must satisfy.

    Tasks receive checks in parsed form, so that they need no parser.
    """

    name: str
    text: str
    tree: predicates.Predicate = field(repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that the check's condition uses."""
        from hoodoo.readers.predicate import tree as predicates

        return frozenset(predicates.columns(self.tree))

    @cached_property
    def _false(self) -> pc.Expression:
        from hoodoo.readers.predicate import tree as predicates

        return predicates.to_arrow(predicates.Not(self.tree))

    def failing(self, rows: pa.Table) -> np.ndarray:
        """Return the positions of the rows for which the check's condition is false, in ascending order.

        `rows` must contain the check's columns.
        """
        numbered = rows.select(sorted(self.columns)).append_column(_ROW, pa.array(np.arange(len(rows))))
        positions: np.ndarray = numbered.filter(self._false)[_ROW].to_numpy()
        return positions


def parsed(given: object, schema: pa.Schema) -> tuple[Check, ...]:
    """Parse the checks in a dict of name to condition, for a table with the columns of `schema`.

    Raises OptionError for an invalid name or an empty or too long condition. Raises PredicateError for a condition that
    cannot be parsed or does not match the columns. Both errors name the check.
    """
    if not isinstance(given, Mapping):
        raise OptionError(f"checks must be a dict of conditions by name, got {printable(given)}.", option="checks")
    for name, text in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionError(
                "A check's name must start with a letter or _, followed by at most 63 letters, digits and _, "
                f"got {printable(name)}.",
                option="checks",
                check=printable(name),
            )
        if not isinstance(text, str) or not 0 < len(text) <= TEXT_CAP:
            raise OptionError(
                f"Check {name!r} must be a string of at most {TEXT_CAP:,} characters, such as 'fare >= 0', got "
                f"{printable(text)}.",
                option="checks",
                check=name,
            )
    return tuple(_parsed(name, given[name], schema) for name in sorted(given))


def of(config: TableConfig) -> tuple[Check, ...]:
    """Return the parsed checks of a table, sorted by name.

    Raises PredicateError for a check that no longer matches the columns.
    """
    return parsed(stored(config.raw), config.schema)


@lru_cache(maxsize=256)
def _parsed(name: str, text: str, schema: pa.Schema) -> Check:
    from hoodoo.readers.predicate import text as grammar  # imported here because importing sqlglot is slow

    try:
        return Check(name, *grammar.read_with_quotes(text, schema))
    except PredicateError as problem:
        raise PredicateError(
            f"Check {name!r} does not match the columns of the table. Correct it with set_checks({{...}}), "
            f"which replaces all checks. {problem.message}",
            **{**problem.details, "check": name},
        ) from None


def names(checks: Sequence[Check], column: str) -> list[str]:
    """Return the names of the checks that use the top-level column `column`."""
    return [check.name for check in checks if column in check.columns]


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Rename columns in the text of a check. `names` maps old names to new names.

    All other text stays unchanged. Raises PredicateError if the check cannot be parsed.
    """
    from hoodoo.readers.predicate import text as grammar

    spans = [(start, end, new) for old, new in names.items() for start, end in grammar.spans_of(text, old)]
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + grammar.quoted(new) + text[end:]
    return text


def altered(config: TableConfig, alterations: Sequence[Alteration]) -> dict[str, str]:
    """Return the checks whose text changes because of column renames, as table properties to store.

    A check follows the rename of its columns.

    Raises SchemaError if the alterations drop a column that a check uses, or change its type.
    """
    from hoodoo.timeline.columns.alterations import DropColumn, RenameColumn, RetypeColumn, WidenColumn

    known = stored(config.raw)
    texts, schema = dict(known), config.schema
    for one in alterations:
        if not texts or "." in one.name or not isinstance(one, (DropColumn, RenameColumn, RetypeColumn, WidenColumn)):
            continue
        found = names(parsed(texts, schema), one.name)
        if found and not isinstance(one, RenameColumn):
            raise SchemaError(
                f"Check {found[0]!r} uses column {one.name!r}: {texts[found[0]]}. Change the check first with "
                f"set_checks({{...}}), which replaces all checks.",
                column=one.name,
                check=found[0],
            )
        if isinstance(one, RenameColumn):
            texts |= {name: renamed(texts[name], {one.name: one.to}) for name in found}
            at = schema.get_field_index(one.name)
            schema = schema.set(at, schema.field(at).with_name(one.to)) if at >= 0 else schema
    return to_properties({name: text for name, text in texts.items() if text != known[name]})


def carried(config: TableConfig, columns: TableSchema) -> dict[str, str]:
    """Return the checks whose text changes because a restore brings back `columns`, as table properties to store.

    Columns are matched by id. Raises SchemaError if a check uses a column that is not in `columns`, or that has an
    incompatible type there.
    """
    known, texts = stored(config.raw), {}
    for check in of(config):
        names = {}
        for name in check.columns:
            column = columns.by_id.get(config.columns.by_name[name].id)
            if column is None:
                raise _looks_at(check, name, "is not in the restored columns")
            names[name] = column.name
        texts[check.name] = renamed(check.text, names)
        try:
            _parsed(check.name, texts[check.name], columns.arrow)
        except PredicateError:
            raise _looks_at(check, sorted(names)[0], "has another type in the restored columns") from None
    return to_properties({name: text for name, text in texts.items() if text != known[name]})


def _looks_at(check: Check, column: str, why: str) -> SchemaError:
    return SchemaError(
        f"Check {check.name!r} uses column {column!r}, which {why}: {check.text}. Remove this check first: "
        f"call set_checks({{...}}) with the remaining checks.",
        column=column,
        check=check.name,
    )


__all__ = ["Check", "altered", "carried", "names", "of", "parsed", "renamed"]
