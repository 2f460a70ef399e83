"""Hudi's internal schema: the ids that Apache Hudi gives columns where `hoodie.schema.on.read.enable` is set. A
commit's metadata carries it as `latest_schema`, beside the Avro schema that has the same names.

Ids are all that is read here; names and types are those of the Avro schema. We write none (docs/format.md 11.4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hoodoo.errors import UnsupportedTable
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import FIRST_ID, Column, TableSchema, rebuilt

Path = tuple[str, ...]
"""Names from the top down; what is in a list is called 'item', in a map 'key' and 'value', as in our own schemas."""


def ids_by_path(text: str) -> dict[Path, int]:
    """Path -> id of every column in the `latest_schema` of a commit, but for the meta columns. Raises UnsupportedTable
    for what is none.
    """
    try:
        found = dict(_fields(json.loads(text), ()))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnsupportedTable(
            f"A commit has an internal schema (latest_schema) that hoodoo does not support: {text[:80]!r}. "
            "Write once with Hudi without hoodie.schema.on.read.enable, and rewrite the renamed columns."
        ) from None
    if len(set(found.values())) != len(found):
        raise UnsupportedTable(
            "An internal schema (latest_schema) has the same id for two columns. Write it again with Hudi."
        )
    return found


def _fields(record: Mapping[str, Any], around: Path) -> Iterator[tuple[Path, int]]:
    for field in record["fields"]:
        if around or field["name"] not in META_COLUMNS:
            yield from _column((*around, field["name"]), field["id"], field["type"])


def _column(path: Path, number: Any, kind: Any) -> Iterator[tuple[Path, int]]:
    if type(number) is not int:
        raise ValueError(f"{number!r} is not a valid id")
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
            raise ValueError(f"{other!r} is not a nested type")


def by_ids(before: TableSchema, schema: pa.Schema, ids: Mapping[Path, int]) -> TableSchema:
    """The schema after `before` of a table whose columns are `schema` by now, with Hudi's `ids`: a column that had its
    id before is the same, whatever it is called; one that Hudi gave none is found by its name. Others are new.

    What Hudi's ids were before is `before.hudi`; where nothing has said so yet, Hudi numbered them as they stood.
    """
    ours = {theirs: own for own, theirs in before.hudi or numbered_by_hudi(before)}
    by_parent_and_name = {names: number for number, names in before.parent_and_name.items()}

    def find(path: Path, around: int) -> Column | None:
        number = ours.get(ids[path]) if path in ids else by_parent_and_name.get((around, path[-1]))
        return before.by_id.get(number) if number is not None else None

    return with_ids(rebuilt(before, schema, find), ids)


def with_ids(schema: TableSchema, ids: Mapping[Path, int]) -> TableSchema:
    """`schema`, of which Hudi's ids are known to be `ids`."""
    own = _own_ids(schema.columns, ())
    return replace(schema, hudi=tuple((number, ids[path]) for path, number in own if path in ids))


def _own_ids(columns: Iterable[Column], around: Path) -> Iterator[tuple[Path, int]]:
    for column in columns:
        path = (*around, column.name)
        yield path, column.id
        yield from _own_ids(column.children, path)


def numbered_by_hudi(schema: TableSchema) -> tuple[tuple[int, int], ...]:
    """(our id, Hudi's id) of columns that get ids from Hudi for the first time: those beside each other in order, then
    what is in the first of them, to the bottom, and so on.
    """
    found: list[tuple[int, int]] = []

    def number(beside: Iterable[Column]) -> None:
        for column in (columns := list(beside)):
            found.append((column.id, FIRST_ID + len(found)))
        for column in columns:
            number(column.children)

    number(schema.columns)
    return tuple(found)


__all__ = ["Path", "by_ids", "ids_by_path", "numbered_by_hudi", "with_ids"]
