"""The schemas that a table has had, and since which slot each: a value, kept in views and checkpoints.

A schema is kept as its JSON text and parsed when it is asked for, so that a table with a thousand of them opens as fast
as one with one. Which change makes the next one is decided elsewhere (timeline/columns/alterations.py).
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
from hoodoo.format.avro.schema import arrow_schema
from hoodoo.format.names import META_COLUMNS
from hoodoo.format.table_schema import TableSchema, by_names

_TEXT_MAX = 256 << 20
_OF_AVRO = "of_avro"


Entry = tuple[int, int, str]
"""Since which slot, the schema's id, its JSON text."""


@dataclass(frozen=True, eq=False)
class SchemaHistory:
    """The schemas, oldest first: each holds from its slot on. None: the columns are those of the creation. The first
    entry of a table says what they were before its first change, with slot 0.

    recent: the newest ones. older: those before, as a checkpoint packs them; most who open a table ask for none.
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
        """All of them."""
        return (*_unpacked(self.older), *self.recent)

    @property
    def newest(self) -> TableSchema | None:
        """The newest schema, None where the columns are those of the creation."""
        return _parsed(self.recent[-1][2]) if self.recent else None

    def newest_of(self, created: TableSchema) -> TableSchema:
        """The newest schema of a table with the columns `created`. Avro text did not say which columns take no null:
        there they are those of the creation.
        """
        newest = self.newest
        if newest is None or not json.loads(self.recent[-1][2]).get(_OF_AVRO):
            return newest or created
        required = {column.id for column in created.columns if column.required}
        columns = tuple(replace(column, required=column.id in required) for column in newest.columns)
        return replace(newest, columns=columns)

    def up_to(self, seq: int) -> SchemaHistory:
        """As of slot `seq`."""
        if not self.recent or self.recent[-1][0] <= seq:
            return self
        return SchemaHistory(tuple(entry for entry in self.entries if entry[0] <= seq))

    def schema(self, number: int) -> TableSchema | None:
        """The schema with id `number`; None where it is not known."""
        return _parsed(self._texts[number]) if number in self._texts else None

    def knowing(self, other: SchemaHistory, created: TableSchema) -> SchemaHistory:
        """As it is, and with the schemas of `other`, of an earlier or later snapshot, whose files are read along.
        created: the schema of the creation.
        """
        if other.entries == self.entries[: len(other.entries)]:
            return self
        more = tuple(entry for entry in other.entries if entry[1] not in self._texts)
        return SchemaHistory((*more, *(self.entries or ((0, created.id, _text(created.to_json())),))))

    def newest_first(self) -> Iterable[TableSchema]:
        """Yield all schemas, the newest first."""
        return (_parsed(text) for _, _, text in reversed(self.entries))

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        return {number: text for _, number, text in self.entries}

    # ---- growing, and forgetting
    def after(self, seq: int, columns: Mapping[str, Any], before: Mapping[str, Any]) -> SchemaHistory:
        """With the schema `columns` from slot `seq` on. before: of the table until then, where this is the first
        change. Raises ValueError, TypeError, KeyError for what is none.
        """
        known = self.recent
        if not known and before:
            known = ((0, int(before["id"]), _text(before)),)
        return SchemaHistory((*known, (seq, int(columns["id"]), _text(columns))), self.older)

    def after_avro(self, seq: int, avro: str, before: str) -> SchemaHistory:
        """As `after`, for slots of releases that kept Avro text without ids."""
        known = self if self else SchemaHistory().after(0, TableSchema.first(_own(before)).to_json(), {})
        newest = known.newest
        assert newest is not None
        said = by_names(newest, _own(avro), known.newest_first()).to_json()
        return known.after(seq, said | {_OF_AVRO: True}, {})

    def without(self, live: Collection[int], positions: Collection[int], readable: int) -> SchemaHistory:
        """Only what somebody can still ask for: schemas that live files name, those in effect since slot `readable` or
        at one of `positions`, and the newest.
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
        """{} where there is none."""
        return {"older": _packed(self.entries[:-1]), "newest": self.entries[-1]} if self else {}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> SchemaHistory:
        """Inverse of `to_json`, for a value that fits SHAPE. Raises ValueError, TypeError, KeyError where the newest
        one is no schema.
        """
        if not said:
            return SchemaHistory()
        since, number, text = said["newest"]
        _parsed(text)
        return SchemaHistory(((since, number, text),), said["older"])


SHAPE: dict[str, Any] = {"older": str, "newest": (int, int, str)}
"""Of a checkpoint's JSON, for timeline/slots/shape.py."""


def _packed(entries: Sequence[Entry]) -> str:
    """As text: schemas are much alike."""
    return base64.b64encode(zlib.compress(json.dumps(entries, separators=(",", ":")).encode())).decode()


def _unpacked(text: str) -> tuple[Entry, ...]:
    """Inverse of `_packed`. Raises CorruptTable for anything else."""
    if not text:
        return ()
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text, validate=True), _TEXT_MAX)
        found = json.loads(data) if opened.eof else None
    except (zlib.error, ValueError) as problem:
        raise CorruptTable(
            f"The schemas in a checkpoint cannot be unpacked: {problem}. Delete the checkpoint."
        ) from None
    if not isinstance(found, list) or not all(
        isinstance(one, list) and list(map(type, one)) == [int, int, str] for one in found
    ):
        raise CorruptTable("A checkpoint holds no list of schemas. Delete it: the slots decide.")
    return tuple((since, number, text) for since, number, text in found)


def _text(columns: Mapping[str, Any]) -> str:
    text = json.dumps(columns, sort_keys=True, separators=(",", ":"))
    _parsed(text)  # raises for what is none
    return text


@lru_cache(maxsize=4096)
def _parsed(text: str) -> TableSchema:
    return TableSchema.from_json(json.loads(text))


def _own(avro: str) -> Any:
    schema = arrow_schema(avro)
    for name in META_COLUMNS:
        if (number := schema.get_field_index(name)) >= 0:
            schema = schema.remove(number)
    return schema


__all__ = ["SHAPE", "SchemaHistory"]
