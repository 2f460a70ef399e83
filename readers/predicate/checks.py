"""Checks, which are conditions that all rows must satisfy.

A row fails a check if the condition is false. It passes if the condition is true or null.
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
"""Maximum number of characters of one check.

Checks are part of the table's properties, which every open reads.
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ROW = "#row"  # an additional column; no table column can have this name, since it is not a valid Avro name


@dataclass(frozen=True)
class Check:
    """Check, which is a condition that all rows must satisfy.

    It has a name and is already parsed. Tasks receive checks in parsed form, so that they need no parser.
    """

    name: str
    text: str
    tree: predicates.Predicate = field(repr=False)

    @property
    def columns(self) -> frozenset[str]:
        from hoodoo.readers.predicate import tree as predicates

        return frozenset(predicates.columns(self.tree))

    @cached_property
    def _fails(self) -> pc.Expression:
        from hoodoo.readers.predicate import tree as predicates

        return predicates.to_arrow(predicates.Not(self.tree))

    def failing(self, rows: pa.Table) -> np.ndarray:
        """Find the rows that fail the check.

        `rows` must contain the check's columns.
        """
        numbered = rows.select(sorted(self.columns)).append_column(_ROW, pa.array(np.arange(len(rows))))
        positions: np.ndarray = numbered.filter(self._fails)[_ROW].to_numpy()
        return positions


def parse_checks(conditions: object, schema: pa.Schema) -> tuple[Check, ...]:
    """Parse the checks of a table.

    `conditions` is a dict of check names and conditions. Raises OptionError for an invalid name, and for an empty or
    too long condition. Raises PredicateError for a condition that cannot be parsed or does not match the columns. Both
    errors name the check.
    """
    if not isinstance(conditions, Mapping):
        raise OptionError(
            f"Option checks is invalid: expected a dict of conditions by name, got {printable(conditions)}.",
            option="checks",
        )
    for name, text in conditions.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionError(
                "Name of a check is invalid: expected a letter or _, followed by at most 63 letters, digits and _, "
                f"got {printable(name)}. Rename the check.",
                option="checks",
                check=printable(name),
            )
        if not isinstance(text, str) or not 0 < len(text) <= TEXT_CAP:
            raise OptionError(
                f"Check {name!r} is invalid: expected a string of 1 to {TEXT_CAP:,} characters, such as 'fare >= 0', "
                f"got {printable(text)}.",
                option="checks",
                check=name,
            )
    return tuple(_parse_check(name, conditions[name], schema) for name in sorted(conditions))


def load_checks(config: TableConfig) -> tuple[Check, ...]:
    """Load the checks of a table.

    They are sorted by name. Raises PredicateError for a check that no longer matches the columns.
    """
    return parse_checks(stored(config.raw), config.schema)


@lru_cache(maxsize=256)
def _parse_check(name: str, text: str, schema: pa.Schema) -> Check:
    from hoodoo.readers.predicate import text as grammar  # imported here because importing sqlglot is slow

    try:
        return Check(name, *grammar.parse_and_quote(text, schema))
    except PredicateError as problem:
        raise PredicateError(
            f"Check {name!r} does not match the columns of the table. Correct it with set_checks({{...}}), "
            f"which replaces all checks. {problem.message}",
            **{**problem.details, "check": name},
        ) from None


def names(checks: Sequence[Check], column: str) -> list[str]:
    return [check.name for check in checks if column in check.columns]


def rename_check_columns(text: str, names: Mapping[str, str]) -> str:
    """Rename columns in the text of a check.

    `names` maps old names to new names.

    All other text stays unchanged. Raises PredicateError if the check cannot be parsed.
    """
    from hoodoo.readers.predicate import text as grammar

    spans = [(start, end, new) for old, new in names.items() for start, end in grammar.find_column_spans(text, old)]
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + grammar.quoted(new) + text[end:]
    return text


def update_checks(config: TableConfig, alterations: Sequence[Alteration]) -> dict[str, str]:
    """Update the checks after column changes.

    Returns the checks whose text changes because columns are renamed, as table properties. Raises SchemaError if the
    alterations drop a column that a check uses, or change its type.
    """
    from hoodoo.timeline.columns.alterations import DropColumn, RenameColumn, RetypeColumn, WidenColumn

    stored_texts = stored(config.raw)
    texts, schema = dict(stored_texts), config.schema
    for alteration in alterations:
        if (
            not texts
            or "." in alteration.name
            or not isinstance(alteration, (DropColumn, RenameColumn, RetypeColumn, WidenColumn))
        ):
            continue
        affected = names(parse_checks(texts, schema), alteration.name)
        if affected and not isinstance(alteration, RenameColumn):
            raise SchemaError(
                f"Check {affected[0]!r} uses column {alteration.name!r}: {texts[affected[0]]}. Change the check first "
                "with set_checks({...}), which replaces all checks.",
                column=alteration.name,
                check=affected[0],
            )
        if isinstance(alteration, RenameColumn):
            texts |= {name: rename_check_columns(texts[name], {alteration.name: alteration.to}) for name in affected}
            index = schema.get_field_index(alteration.name)
            schema = schema.set(index, schema.field(index).with_name(alteration.to)) if index >= 0 else schema
    return to_properties({name: text for name, text in texts.items() if text != stored_texts[name]})


def restore_checks(config: TableConfig, columns: TableSchema) -> dict[str, str]:
    """Update the checks after a restore of older columns.

    Returns the checks whose text changes. Columns are matched by id. Raises SchemaError if a check uses a column that
    is missing in `columns` or has an incompatible type there.
    """
    stored_texts, texts = stored(config.raw), {}
    for check in load_checks(config):
        names = {}
        for name in check.columns:
            column = columns.by_id.get(config.columns.by_name[name].id)
            if column is None:
                raise _check_column_error(check, name, "is not in the restored columns")
            names[name] = column.name
        texts[check.name] = rename_check_columns(check.text, names)
        try:
            _parse_check(check.name, texts[check.name], columns.arrow)
        except PredicateError:
            raise _check_column_error(check, sorted(names)[0], "has another type in the restored columns") from None
    return to_properties({name: text for name, text in texts.items() if text != stored_texts[name]})


def _check_column_error(check: Check, column: str, reason: str) -> SchemaError:
    return SchemaError(
        f"Check {check.name!r} uses column {column!r}, which {reason}: {check.text}. Remove this check first: "
        f"call set_checks({{...}}) with the remaining checks.",
        column=column,
        check=check.name,
    )


__all__ = ["Check", "update_checks", "restore_checks", "names", "load_checks", "parse_checks", "rename_check_columns"]
