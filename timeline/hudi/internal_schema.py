"""Column ids in Hudi's internal schema.

Commit metadata contains the internal schema as `latest_schema`, next to the Avro schema with the same names. Only the
ids are read, because names and types come from the Avro schema. hoodoo writes no internal schema (docs/format.md 11.4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import FIRST_ID, Column, TableSchema, create_next_schema

Path = tuple[str, ...]
"""Column path from the top level down, with 'item' in lists, and 'key' and 'value' in maps."""


def ids_by_path(text: str) -> dict[Path, int]:
    try:
        ids = dict(_fields(json.loads(text), ()))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnsupportedTable(
            f"Internal schema (latest_schema) of a commit is not supported: {text[:80]!r}. Commit once with Hudi and "
            "hoodie.schema.on.read.enable=false, and then rewrite files with renamed columns."
        ) from None
    if len(set(ids.values())) != len(ids):
        raise UnsupportedTable(
            "Internal schema (latest_schema) of a commit has the same id for two columns. Commit again with Hudi."
        )
    return ids


def _fields(record: Mapping[str, Any], around: Path) -> Iterator[tuple[Path, int]]:
    for field in record["fields"]:
        if around or field["name"] not in META_COLUMNS:
            yield from _column((*around, field["name"]), field["id"], field["type"])


def _column(path: Path, number: Any, kind: Any) -> Iterator[tuple[Path, int]]:
    if type(number) is not int:
        raise ValueError(f"Column id {number!r} is not valid.")
    yield path, number
    if not isinstance(kind, dict):
        return
    match kind["type"]:
        case "record":
            yield from _fields(kind, path)
        case "array":
            yield from _column((*path, "item"), kind["element_id"], kind["element"])
        case "map":
            yield from _column((*path, "key"), kind["key_id"], kind["key"])
            yield from _column((*path, "value"), kind["value_id"], kind["value"])
        case other:
            raise ValueError(f"Type {other!r} is not a nested type.")


def apply_hudi_schema(before: TableSchema, schema: pa.Schema, ids: Mapping[Path, int]) -> TableSchema:
    """Apply a schema change by Apache Hudi to the table.

    Columns are matched with the schema `before` by id, or by name if they have no id. All other columns are new.
    `before.hudi` contains the earlier ids of Hudi. If it is empty, Hudi numbered the columns in their order.
    """
    own_ids = {hudi_id: own for own, hudi_id in before.hudi or assign_hudi_column_ids(before)}
    by_parent_and_name = {names: number for number, names in before.parent_and_name.items()}

    def find(path: Path, around: int) -> Column | None:
        number = own_ids.get(ids[path]) if path in ids else by_parent_and_name.get((around, path[-1]))
        return before.by_id.get(number) if number is not None else None

    return with_ids(create_next_schema(before, schema, find), ids)


def with_ids(schema: TableSchema, ids: Mapping[Path, int]) -> TableSchema:
    own = _own_ids(schema.columns, ())
    return replace(schema, hudi=tuple((number, ids[path]) for path, number in own if path in ids))


def _own_ids(columns: Iterable[Column], around: Path) -> Iterator[tuple[Path, int]]:
    for column in columns:
        path = (*around, column.name)
        yield path, column.id
        yield from _own_ids(column.children, path)


def assign_hudi_column_ids(schema: TableSchema) -> tuple[tuple[int, int], ...]:
    """Assign Hudi's column ids to a schema.

    Returns pairs of hoodoo's and Hudi's ids. Hudi numbers the columns of one level in order, then recursively the
    fields of the first column, and so on.
    """
    ids: list[tuple[int, int]] = []

    def number(beside: Iterable[Column]) -> None:
        for column in (columns := list(beside)):
            ids.append((column.id, FIRST_ID + len(ids)))
        for column in columns:
            number(column.children)

    number(schema.columns)
    return tuple(ids)


__all__ = ["Path", "apply_hudi_schema", "ids_by_path", "assign_hudi_column_ids", "with_ids"]
