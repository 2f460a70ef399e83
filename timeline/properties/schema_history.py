"""History of a table's schemas.

A schema is stored as JSON text and parsed on demand, so that a table with thousands of schemas opens fast.
timeline/columns/alterations.py defines schema changes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.format.avro.schema import convert_to_arrow_schema
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import TableSchema, assign_column_ids

_TEXT_MAX = 256 << 20
_OF_AVRO = "of_avro"


Entry = tuple[int, int, str]
"""Entry of a schema history: first slot with the schema, id of the schema, schema as JSON."""


@dataclass(frozen=True, eq=False)
class SchemaHistory:
    """History of a table's schemas.

    The history is empty if the columns have not changed since the table was created. Otherwise the first entry, with
    slot 0, has the columns before the first change.

    Attributes:
        recent: The newest entries.
        older: The earlier entries, compressed as in a checkpoint, because they are rarely needed.
    """

    recent: tuple[Entry, ...] = ()
    older: str = ""

    def __bool__(self) -> bool:
        return bool(self.recent)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaHistory):
            return NotImplemented
        return self is other or self.recent[-1:] == other.recent[-1:] and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.recent[-1:])

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All schemas of the table, oldest first.

        Entries have the slot, the schema id and JSON.
        """
        return (*_decompress_entries(self.older), *self.recent)

    @property
    def newest(self) -> TableSchema | None:
        return _parsed(self.recent[-1][2]) if self.recent else None

    def get_current_schema(self, created: TableSchema) -> TableSchema:
        """Return the current schema of the table.

        Avro schemas of earlier releases do not record nullability. In that case, the nullability in `created` applies.
        """
        newest = self.newest
        if newest is None or not json.loads(self.recent[-1][2]).get(_OF_AVRO):
            return newest or created
        required = {column.id for column in created.columns if column.required}
        columns = tuple(replace(column, required=column.id in required) for column in newest.columns)
        return replace(newest, columns=columns)

    def up_to(self, seq: int) -> SchemaHistory:
        if not self.recent or self.recent[-1][0] <= seq:
            return self
        return SchemaHistory(tuple(entry for entry in self.entries if entry[0] <= seq))

    def schema(self, number: int) -> TableSchema | None:
        return _parsed(self._texts[number]) if number in self._texts else None

    def knowing(self, other: SchemaHistory, created: TableSchema) -> SchemaHistory:
        """Add the schemas of another snapshot.

        The newest schema stays unchanged. `created` is the schema that the table was created with.
        """
        if other.entries == self.entries[: len(other.entries)]:
            return self
        more = tuple(entry for entry in other.entries if entry[1] not in self._texts)
        return SchemaHistory((*more, *(self.entries or ((0, created.id, _text(created.to_json())),))))

    def newest_first(self) -> Iterable[TableSchema]:
        return (_parsed(text) for _, _, text in reversed(self.entries))

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        return {number: text for _, number, text in self.entries}

    # ---- growing, and forgetting
    def after(self, seq: int, columns: Mapping[str, Any], before: Mapping[str, Any]) -> SchemaHistory:
        """Add a schema change to the history.

        `before` is the schema before the first change. Raises ValueError, TypeError or KeyError for an invalid schema.
        """
        known = self.recent
        if not known and before:
            known = ((0, int(before["id"]), _text(before)),)
        return SchemaHistory((*known, (seq, int(columns["id"]), _text(columns))), self.older)

    def add_schema_without_ids(self, seq: int, avro: str, before: str) -> SchemaHistory:
        """Add a schema change without column ids."""
        history = self if self else SchemaHistory().after(0, TableSchema.first(_own(before)).to_json(), {})
        newest = history.newest
        assert newest is not None
        columns = assign_column_ids(newest, _own(avro), history.newest_first()).to_json()
        return history.after(seq, columns | {_OF_AVRO: True}, {})

    def without(self, live: Collection[int], positions: Collection[int], readable: int) -> SchemaHistory:
        """Remove schemas that are no longer needed.

        Args:
            live: The schema ids of the files in the newest snapshot.
            positions: Slots of savepoints and open plans, whose schemas are kept.
            readable: The first readable slot. Schemas in effect since then are kept.
        """
        if len(self.entries) < 2:
            return self
        ends = [since for since, *_ in self.entries[1:]]
        kept = [
            entry
            for entry, end in zip(self.entries, ends, strict=False)
            if end > readable or entry[1] in live or any(entry[0] <= position < end for position in positions)
        ]
        return SchemaHistory((*kept, self.entries[-1]))

    # ---- in a checkpoint
    def to_json(self) -> dict[str, Any]:
        return {"older": _compress_entries(self.entries[:-1]), "newest": self.entries[-1]} if self else {}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> SchemaHistory:
        if not said:
            return SchemaHistory()
        since, number, text = said["newest"]
        _parsed(text)
        return SchemaHistory(((since, number, text),), said["older"])


SHAPE: dict[str, Any] = {"older": str, "newest": (int, int, str)}
"""Shape of a schema history's JSON in a checkpoint, for the validation in timeline/slots/shape.py."""


def _compress_entries(entries: Sequence[Entry]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(entries, separators=(",", ":")).encode())).decode()


def _decompress_entries(text: str) -> tuple[Entry, ...]:
    if not text:
        return ()
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(base64.b64decode(text, validate=True), _TEXT_MAX)
        entries = json.loads(data) if decompressor.eof else None
    except (zlib.error, ValueError) as problem:
        raise CorruptTable(
            f"Schemas in a checkpoint cannot be decompressed: {problem}. Delete the checkpoint."
        ) from None
    if not isinstance(entries, list) or not all(
        isinstance(entry, list) and list(map(type, entry)) == [int, int, str] for entry in entries
    ):
        raise CorruptTable(
            "Schemas in a checkpoint are invalid. Delete the checkpoint, which is rebuilt from the slots."
        )
    return tuple((since, number, text) for since, number, text in entries)


def _text(columns: Mapping[str, Any]) -> str:
    text = json.dumps(columns, sort_keys=True, separators=(",", ":"))
    _parsed(text)  # raises for an invalid schema
    return text


@lru_cache(maxsize=4096)
def _parsed(text: str) -> TableSchema:
    return TableSchema.from_json(json.loads(text))


def _own(avro: str) -> Any:
    schema = convert_to_arrow_schema(avro)
    for name in META_COLUMNS:
        if (number := schema.get_field_index(name)) >= 0:
            schema = schema.remove(number)
    return schema


__all__ = ["SHAPE", "SchemaHistory"]
