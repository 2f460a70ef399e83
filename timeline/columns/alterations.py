"""Alterations, which are column changes of a schema.

rewrites.py determines the files that a change must rewrite.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.format.avro.schema import normalize_schema
from hoodoo.format.column_names import NAME
from hoodoo.format.column_text import parse_column_type
from hoodoo.format.convert import is_exact
from hoodoo.format.name_mapping import NameMapping
from hoodoo.format.numbers import is_number, same
from hoodoo.format.parquet.statistics import bound_to_json
from hoodoo.format.retype import supports_type_change
from hoodoo.format.table_schema import Column, TableSchema, numbered
from hoodoo.nearest import suggest_name
from hoodoo.redact import printable
from hoodoo.timeline.columns.no_default import NO_DEFAULT
from hoodoo.timeline.properties.config import TableConfig

_TEXT_MAX = 10_000
_STEP = re.compile(r"([^.\[\]{}]+)((?:\[\]|\{\})*)(?:\.|\Z)")
Siblings = tuple[Column, ...]


@dataclass(frozen=True)
class AddColumn:
    """Change that adds a column.

    The column is null in existing rows.

    Attributes:
        name: The name of the column. For a field of a struct, the dotted path, such as 's.f'. '[]' stands for the item
            of a list, and '{}' for the value of a map.
        type: The type of the column, as a pyarrow type or a string such as "int64" or "decimal(10, 2)".
        default: The value for later batches without the column. NO_DEFAULT (default): such batches raise an error.
        after: The column before the new column. None (default): the new column is the last, unless `first` is True.
        first: True makes the new column the first column. Default False.
    """

    name: str
    type: pa.DataType | str
    default: object = NO_DEFAULT
    after: str | None = None
    first: bool = False


@dataclass(frozen=True)
class DropColumn:
    """Change that drops a column.

    Earlier snapshots keep its values.

    Attributes:
        name: The name of the column, or the dotted path of a struct field.
    """

    name: str


@dataclass(frozen=True)
class RenameColumn:
    """Change that renames a column.

    Attributes:
        name: The name of the column, or the dotted path of a struct field.
        to: The new name. For a struct field, only the name of the field, without dots.
    """

    name: str
    to: str


@dataclass(frozen=True)
class MoveColumn:
    """Change that moves a column.

    Set exactly one of `after` and `first`.

    Attributes:
        name: The name of the column. Struct fields cannot be moved.
        after: The column before the new position. None (default): requires `first=True`.
        first: True makes the column the first column. Default False.
    """

    name: str
    after: str | None = None
    first: bool = False


@dataclass(frozen=True)
class WidenColumn:
    """Change of a column to a wider type.

    The new type can represent every value of the current type.

    Attributes:
        name: The name of the column, or the dotted path of a struct field.
        type: The new type, as a pyarrow type or a string.
    """

    name: str
    type: pa.DataType | str


@dataclass(frozen=True)
class RetypeColumn:
    """Change of a column to another type.

    The new type must represent all stored values, but, unlike with WidenColumn, not every value of the current type.

    Attributes:
        name: The name of the column. Fields within a struct, list or map are not allowed.
        type: The new type, as a pyarrow type or a string.
    """

    name: str
    type: pa.DataType | str


@dataclass(frozen=True)
class MakeNullable:
    """Change that allows nulls in a column.

    Attributes:
        name: The name of the column, or the dotted path of a struct field.
    """

    name: str


Alteration = AddColumn | DropColumn | RenameColumn | MoveColumn | WidenColumn | RetypeColumn | MakeNullable


def altered(config: TableConfig, alterations: Sequence[Alteration]) -> TableSchema:
    schema = config.columns
    work = _Altering(config, schema)
    for alteration in alterations:
        work.apply(alteration)
    return schema if work.columns == schema.columns else schema.with_columns(work.columns, work.last)


def translate_column_names(config: TableConfig, alterations: Sequence[Alteration]) -> list[Alteration]:
    """Translate original column names to current column names.

    An original name is a name from the source that is invalid in Avro. Raises SchemaError for an invalid change.
    """
    name_mapping, converted = config.name_mapping, list[Alteration]()
    if not name_mapping:
        return list(alterations)
    work = _Altering(config, config.columns)
    for alteration in alterations:
        converted.append(_by_table_names(alteration, replace(name_mapping, columns=work.columns)))
        work.apply(converted[-1])
    return converted


def _by_table_names(one: Alteration, name_mapping: NameMapping) -> Alteration:
    one = replace(one, name=name_mapping.path(one.name))
    if not isinstance(one, (AddColumn, MoveColumn)) or not isinstance(one.after, str):
        return one
    around = one.name.rpartition(".")[0]
    after = name_mapping.path(f"{around}.{one.after}" if around else one.after)
    return replace(one, after=after.removeprefix(f"{around}.") if around else after)


class _Altering:
    def __init__(self, config: TableConfig, schema: TableSchema) -> None:
        self._config, self.columns, self.last = config, schema.columns, schema.last
        self._retired = {
            (parent, name.lower()): name
            for one in (*config.schemas.newest_first(), schema)
            for parent, name in one.parent_and_name.values()
        }

    def apply(self, one: Alteration) -> None:
        match one:
            case AddColumn():
                self._add(one)
            case DropColumn(name):
                self._edit(name, lambda beside, at: self._without(beside, at, name))
            case RenameColumn(name, to):
                self._require_no_role(name, "renamed")
                self._edit(name, lambda beside, at: self._renamed(beside, at, to, name))
            case MoveColumn():
                self._move(one)
            case WidenColumn(name, kind):
                self._require_no_role(name, "given another type")
                self._require_not_source(name, "given another type")
                self._edit(name, lambda beside, at: _replace_column(beside, at, self._widened(beside[at], kind, name)))
            case RetypeColumn(name, kind):
                self._require_no_role(name, "given another type")
                self._require_not_source(name, "given another type")
                self._edit(name, lambda beside, at: _replace_column(beside, at, self._retyped(beside[at], kind, name)))
            case MakeNullable(name):
                if name in (*self._config.key, *self._config.order_by):
                    raise SchemaError(
                        f"Column {name!r} is a key, partition or ordering column and cannot be made nullable.",
                        column=name,
                    )
                self._edit(name, lambda beside, at: _replace_column(beside, at, replace(beside[at], required=False)))

    # ---- finding
    def _edit(self, path: str, edit: Callable[[Siblings, int], Siblings]) -> None:
        self.columns = _edit_at_path(self.columns, _split_path(path), edit, path)

    def _require_no_role(self, name: str, what: str) -> None:
        config = self._config
        for role, names in (
            ("key", config.key),
            ("partition", config.partition_by),
            ("ordering", config.order_by),
        ):
            if name in names:
                raise SchemaError(
                    f"Column {name!r} is a {role} column and cannot be {what}. Create a new table, and copy the rows "
                    "of this table to it.",
                    column=name,
                )

    def _require_not_source(self, name: str, what: str) -> None:
        column = next((one for one in self.columns if one.name == name), None)
        for made, one in self._config.transforms.items():
            if column is not None and self._config.columns.by_name[one.column].id == column.id:
                raise SchemaError(
                    f"Column {name!r} is the source of partition column {made!r} ({one}) and cannot be {what}. "
                    "Create a new table, and copy the rows of this table to it.",
                    column=name,
                )

    # ---- each change
    def _add(self, one: AddColumn) -> None:
        _split_path(one.name)
        parent, _, name = one.name.rpartition(".")
        require_name(name, one.name)
        kind = normalize_schema(pa.schema([pa.field(name, _type(one.type, one.name))])).field(0).type
        [column], self.last = numbered([pa.field(name, kind)], self.last + 1)
        if one.default is not NO_DEFAULT:
            column = replace(column, has_default=True, default=_default_to_json(one.default, kind, one.name))
        if not parent:
            self._require_new(self.columns, 0, name, one.name)
            self.columns = _insert_column(self.columns, column, one.after, one.first)
            return

        def into(beside: Siblings, at: int) -> Siblings:
            struct = beside[at]
            if struct.kind != "struct":
                raise SchemaError(
                    f"Column {parent!r} is not a struct. Add the field to a struct, or add a column.", column=parent
                )
            self._require_new(struct.children, struct.id, name, one.name)
            if one.default is not NO_DEFAULT and one.default is not None:
                raise SchemaError(
                    f"Field {one.name!r} of a struct cannot have a default. Pass default=None.", column=name
                )
            children = _insert_column(struct.children, column, one.after, one.first)
            return _replace_column(beside, at, replace(struct, children=children))

        self._edit(parent, into)

    def _require_new(self, beside: Siblings, around: int, name: str, path: str) -> None:
        near = {column.name.lower(): column.name for column in beside}
        if near.get(name.lower()) == name:
            raise SchemaError(f"Column {path!r} already exists. Choose another name.", column=path)
        other = near.get(name.lower()) or self._retired.get((around, name.lower()), name)
        if other != name:
            raise SchemaError(
                f"Column name {path!r} differs only in case from {other!r}, a current or dropped column, which "
                "engines do not distinguish. Choose another name.",
                column=path,
            )

    def _without(self, beside: Siblings, at: int, path: str) -> Siblings:
        self._require_no_role(path, "dropped")
        self._require_not_source(path, "dropped")
        if len(beside) == 1:
            raise SchemaError(f"Column {path!r} cannot be dropped, because it is the only column left.", column=path)
        return beside[:at] + beside[at + 1 :]

    def _renamed(self, beside: Siblings, at: int, to: str, path: str) -> Siblings:
        require_name(to, to)
        around = path.rpartition(".")[0]
        own = _parent_id(self.columns, around) if around else 0
        if to != beside[at].name:
            self._require_new(beside, own, to, f"{around}.{to}" if around else to)
        return _replace_column(beside, at, replace(beside[at], name=to))

    def _move(self, one: MoveColumn) -> None:
        _split_path(one.name)
        if "." in one.name or one.name.endswith(("]", "}")):
            raise SchemaError(
                f"Field {one.name!r} of a struct cannot be moved, because some readers match fields by position. Move "
                "only top-level columns.",
                column=one.name,
            )
        if one.first == (one.after is not None):
            raise SchemaError(
                f"Position of column {one.name!r} is missing or ambiguous. Pass either first=True or after='<column>'.",
                column=one.name,
            )
        if one.after == one.name:
            raise SchemaError(
                f"Column {one.name!r} cannot be moved after itself. Pass another column in after.", column=one.name
            )
        at = _index_of(self.columns, one.name, one.name)
        rest = self.columns[:at] + self.columns[at + 1 :]
        self.columns = _insert_column(rest, self.columns[at], one.after, one.first)

    def _widened(self, column: Column, kind: pa.DataType, path: str) -> Column:
        if isinstance(column.kind, str):
            raise SchemaError(
                f"Column {path!r} is a {column.kind}, which cannot be widened. Pass the path of a field, item or "
                "value in it.",
                column=path,
            )
        new_type = normalize_schema(pa.schema([pa.field("x", _type(kind, path))])).field(0).type
        if new_type != column.kind and not is_exact(column.kind, new_type):
            remedy = (
                f"alter.retype_column({path!r}, type, rewrite=True) changes the type if all values can be converted."
                if column.name == path and supports_type_change(column.kind, new_type)
                else "Add another column, and fill it with update()."
            )
            raise SchemaError(
                f"Column {path!r} of type {column.kind} cannot be widened to {new_type}, because some values cannot be "
                f"converted exactly. {remedy}",
                column=path,
            )
        return column.of_kind(new_type)

    def _retyped(self, column: Column, kind: pa.DataType | str, path: str) -> Column:
        new_type = normalize_schema(pa.schema([pa.field("x", _type(kind, path))])).field(0).type
        if isinstance(column.kind, str) or pa.types.is_nested(new_type) or column.name != path:
            raise SchemaError(
                f"Column {path!r} is or is in a struct, list or map, whose type cannot be changed. Add another "
                "column, and fill it with update().",
                column=path,
            )
        if new_type == column.kind or is_exact(column.kind, new_type):
            return column.of_kind(new_type)
        if not supports_type_change(column.kind, new_type):
            raise SchemaError(
                f"Column {path!r} of type {column.kind} cannot be converted to {new_type} exactly. Add another "
                "column, and fill it with update().",
                column=path,
            )
        if column.default is not None:
            raise SchemaError(
                f"Column {path!r} has a default, so its type {column.kind} cannot be changed. Add another column, and "
                "fill it with update().",
                column=path,
            )
        return replace(column, kind=new_type, retyped=tuple(dict.fromkeys((*column.retyped, str(column.kind)))))


def _parent_id(columns: Siblings, path: str) -> int:
    ids: list[int] = []

    def look(beside: Siblings, at: int) -> Siblings:
        ids.append(beside[at].id)
        return beside

    _edit_at_path(columns, _split_path(path), look, path)
    return ids[0]


# ---------------------------------------------------------------- paths


def _split_path(path: str) -> list[str]:
    # For example, 's.l[].f' becomes ['s', 'l', '[]', 'f'].
    if not isinstance(path, str) or not path:
        raise SchemaError(
            f"Column name must be a string that is not empty, got {printable(path)}.", column=printable(path)
        )
    steps: list[str] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise SchemaError(
                f"Column path {printable(path)} is invalid. Write s.f, list[].f or map{{}}.f.", column=path
            )
        steps += [match[1], *re.findall(r"\[\]|\{\}", match[2])]
        at = match.end()
    return steps


def _edit_at_path(
    beside: Siblings, steps: Sequence[str], edit: Callable[[Siblings, int], Siblings], path: str
) -> Siblings:
    at = _index_of(beside, steps[0], path)
    if len(steps) == 1:
        return edit(beside, at)
    column, rest = beside[at], steps[1:]
    if rest[0] in ("[]", "{}"):
        kind, inner = ("list", 0) if rest[0] == "[]" else ("map", 1)
        if column.kind != kind:
            raise SchemaError(f"Column path {path!r} is invalid: {column.name!r} is not a {kind}.", column=path)
        rest = [column.children[inner].name, *rest[1:]]
    elif column.kind != "struct":
        raise SchemaError(f"Column path {path!r} is invalid: {column.name!r} is not a struct.", column=path)
    children = _edit_at_path(
        column.children, rest, _forbid_item_renames(edit, column, path) if len(rest) == 1 else edit, path
    )
    return _replace_column(beside, at, replace(column, children=children))


def _forbid_item_renames(
    edit: Callable[[Siblings, int], Siblings], around: Column, path: str
) -> Callable[[Siblings, int], Siblings]:
    if around.kind == "struct":
        return edit

    def checked(beside: Siblings, at: int) -> Siblings:
        found = edit(beside, at)
        if [one.name for one in found] != [one.name for one in beside]:
            raise SchemaError(
                f"Column {path!r} is part of a {around.kind} and cannot be renamed or dropped.", column=path
            )
        return found

    return checked


def _index_of(beside: Siblings, name: str, path: str) -> int:
    for at, column in enumerate(beside):
        if column.name == name:
            return at
    raise SchemaError(
        f"Column {printable(path)} does not exist; {suggest_name(name, [column.name for column in beside])}",
        column=path,
    )


def _replace_column(beside: Siblings, at: int, column: Column) -> Siblings:
    return (*beside[:at], column, *beside[at + 1 :])


def _insert_column(beside: Siblings, column: Column, after: str | None, first: bool) -> Siblings:
    if first and after is not None:
        raise SchemaError(
            f"Position of column {column.name!r} is ambiguous. Pass either first=True or after={after!r}.",
            column=column.name,
        )
    at = 0 if first else len(beside) if after is None else _index_of(beside, after, after) + 1
    return (*beside[:at], column, *beside[at:])


def require_name(name: str, path: str) -> None:
    if not isinstance(name, str) or not NAME.match(name) or name.lower().startswith("_hoodie_"):
        raise SchemaError(
            f"Column name {printable(path)} is invalid. Use letters, digits and _, and do not start with a digit or "
            "with _hoodie_.",
            column=printable(path),
        )


def _type(kind: object, path: str) -> pa.DataType:
    if isinstance(kind, str):
        return parse_column_type(kind, path)
    if not isinstance(kind, pa.DataType):
        raise SchemaError(
            f"Type of column {path!r} must be a pyarrow type or a string such as 'int64', got {printable(kind)}.",
            column=path,
        )
    return kind


def _default_to_json(value: object, kind: pa.DataType, path: str) -> Any:
    if value is None:
        return None
    try:
        held = _convert_default(value, kind)
        if _is_lossy(value, held):
            raise ValueError
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"Default of column {path!r} has the wrong type: expected {kind}, got {printable(value)}. Pass a value of "
            "this type.",
            column=path,
        ) from None
    stored = held if isinstance(held, str) and len(held) <= _TEXT_MAX else bound_to_json(held)
    if stored is None or isinstance(stored, float) and not math.isfinite(stored) or pa.types.is_nested(kind):
        raise SchemaError(
            f"Default {printable(value)} of column {path!r} cannot be stored. Pass a number, a string of up to "
            f"{_TEXT_MAX} characters, a boolean, a date, a time or None.",
            column=path,
        )
    return stored


def _convert_default(value: object, kind: pa.DataType) -> object:
    # Numbers are converted as in batches.
    if not is_number(kind) or isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return pa.scalar(value, kind).as_py()
    number = pa.array([value], pa.decimal256(76, 0)) if isinstance(value, int) else pa.array([value])
    return same(number, kind)[0].as_py()


def _is_lossy(value: object, held: object) -> bool:
    # Arrow may drop a fraction, a time of day or a time zone without an error.
    if isinstance(value, dt.datetime):
        return not isinstance(held, dt.datetime) or (value.tzinfo is None) != (held.tzinfo is None)
    return isinstance(value, float) and isinstance(held, int) and held != value


__all__ = [
    "NO_DEFAULT",
    "AddColumn",
    "Alteration",
    "DropColumn",
    "MakeNullable",
    "MoveColumn",
    "RenameColumn",
    "RetypeColumn",
    "WidenColumn",
    "altered",
    "translate_column_names",
    "require_name",
]
