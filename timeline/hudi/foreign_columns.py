"""Follows a table's columns through the commits of another engine: which schema counts, which ids it has, and under
which schema each file was written.

Knows the metadata of commits, and of files only what columns they say they have (docs/format.md 11.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.avro.schema import arrow_schema
from hoodoo.format.log.block import DataBlock, decode_log
from hoodoo.format.table_schema import TableSchema, by_names
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi import internal_schema
from hoodoo.timeline.instant import WRITES, State, parse_instant
from hoodoo.timeline.layout import TIMELINE
from hoodoo.timeline.properties.config import own_columns
from hoodoo.timeline.slots.slot import BASE, COLUMNS, DataFile, Slot
from hoodoo.timeline.views.view import View


class ForeignColumns:
    """What commits say of a table's columns, one after the other: each change gets ids. By names; where a commit
    carries Hudi's internal schema, by the ids in it.

    The schema that counts is that of the commit with the largest requested instant, as for Hudi's readers, not of the
    one that completed last. A service's commit changes none, and may say what they were when it was planned.
    """

    def __init__(
        self, created: TableSchema | None = None, before: View | None = None, store: Store | None = None
    ) -> None:
        """created: the first columns, where they are known. before: the slots until now. store: whose timeline tells of
        commits that no call of `told` brings, ours among them.
        """
        self._store = store
        before = before or View()
        self.first, self.schemas = created, before.schemas
        self._said = before.told

    @property
    def now(self) -> TableSchema | None:
        """The columns as of the newest slot that was told."""
        return self.schemas.newest or self.first

    def told(self, slot: Slot, record: Mapping[str, Any]) -> Slot:
        """`slot`, whose commit's metadata is `record`: with the change that it makes, and the schema of its files."""
        extra = record.get("extraMetadata") or {}
        text = str(extra.get("schema") or "")
        if not text or not slot.tells_columns:
            return self._written_under(slot, self.now)
        schema = own_columns(arrow_schema(text))
        if slot.instant <= self._said:  # it overlapped one that began later, and went on under the columns that it knew
            return self._overlapped(slot, schema)
        self._said = slot.instant
        internal = str(extra.get("latest_schema") or "")
        if not internal:
            return self.changed(slot, schema)
        anew = bool(self._store and self.now and self.now.hudi and _ids_ended(self._store, slot.instant))
        return self.changed(slot, schema, internal_schema.ids_by_path(internal), anew)

    def changed(
        self,
        slot: Slot,
        schema: pa.Schema,
        ids: Mapping[internal_schema.Path, int] | None = None,
        anew: bool = False,
    ) -> Slot:
        """`slot`, which leaves the table with the columns `schema`. ids: those of Hudi's internal schema; anew: they
        have nothing to do with those that it had before.
        """
        now, after = self.now, None
        if now and anew:
            now = replace(now, hudi=())
        if now is None:
            now = self.first = TableSchema.first(schema)
            after = internal_schema.with_ids(now.with_columns(now.columns), ids) if ids else None
        elif ids:
            after = internal_schema.by_ids(now, schema, ids)
        elif now.arrow != schema or now.hudi:
            after = by_names(now, schema, self.schemas.newest_first())
        if after and (after.columns, after.hudi) != (now.columns, now.hudi):
            columns, before = after.to_json(), {} if self.schemas else now.to_json()
            self.schemas = self.schemas.after(slot.seq, columns, before)
            slot = replace(slot, columns=columns, columns_before=before)
        return self._written_under(slot, self.now)

    def like(self, schema: pa.Schema) -> TableSchema | None:
        """The newest of the table's schemas with these columns, or that of now."""
        known = [*self.schemas.newest_first(), *([self.first] if self.first else [])]
        wanted = _flat_types(schema)
        return next((one for one in known if _flat_types(one.arrow) == wanted), self.now)

    def _overlapped(self, slot: Slot, schema: pa.Schema) -> Slot:
        """`slot`, whose commit says `schema`. What its files have they say themselves: where Hudi's writers overlap, a
        commit may carry the columns that another one made meanwhile.
        """
        if self._store is None or not self.schemas:
            return self._written_under(slot, self.like(schema))
        numbers = {}
        for file in slot.files:
            found = _columns_in(self._store, file)
            one = self.like(schema if found is None else found)
            numbers[file.path] = one.id if one else 1
        return self._written_under(slot, self.now, numbers)

    def _written_under(self, slot: Slot, schema: TableSchema | None, numbers: Mapping[str, int] | None = None) -> Slot:
        """numbers: path -> id of the schema of each file, where they have several."""
        number = schema.id if schema else 1
        each = [numbers[file.path] if numbers else number for file in slot.files]
        files = tuple(replace(file, schema=0 if n == 1 else n) for file, n in zip(slot.files, each, strict=True))
        changes = slot.columns or any(file.schema for file in files)
        return replace(slot, files=files, needs=(*slot.needs, COLUMNS) if changes else slot.needs)


def _flat_types(schema: pa.Schema) -> dict[str, str]:
    """Return the type of each column; a nested type, which engines write in several ways, is only 'nested'."""
    return {field.name: "nested" if pa.types.is_nested(field.type) else str(field.type) for field in schema}


def _columns_in(store: Store, file: DataFile) -> pa.Schema | None:
    """Return the columns of `file` as its footer or blocks give them; None where there are none, or it is damaged."""
    try:
        if file.kind == BASE:
            with store.open_input(file.path) as source:
                return own_columns(pq.read_schema(source))
        blocks = decode_log(store.get(file.path), strict=False)
        return next((own_columns(block.rows.schema) for block in blocks if isinstance(block, DataBlock)), None)
    except (CorruptTable, FileNotFoundError, pa.ArrowException):
        return None


def _ids_ended(store: Store, instant: str) -> bool:
    """Tell whether Hudi numbered the columns anew when it began `instant`.

    It does where the commit that it took for the newest one carries no internal schema.
    """
    names = (found for name in store.names(TIMELINE) if (found := parse_instant(name)))
    before = [one for one in names if one.state is State.COMPLETED and one.action in WRITES and one.time < instant]
    before = [one for one in before if one.completed < instant]
    if not before:
        return False  # they are archived
    newest = timeline_avro.decode(store.get(max(before, key=lambda one: one.time).key))
    return not (newest.get("extraMetadata") or {}).get("latest_schema")


__all__ = ["ForeignColumns"]
