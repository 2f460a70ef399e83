"""Columns in the commits of external engines.

The history is derived from commit metadata. From files, only column names and types are read (docs/format.md 11.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.avro.schema import convert_to_arrow_schema
from hoodoo.format.log.block import DataBlock, decode_log
from hoodoo.format.table_schema import TableSchema, assign_column_ids
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi import internal_schema
from hoodoo.timeline.instant import WRITES, State, parse_instant
from hoodoo.timeline.layout import TIMELINE
from hoodoo.timeline.properties.hoodie_properties import own_columns
from hoodoo.timeline.slots.slot import BASE, COLUMNS, DataFile, Slot
from hoodoo.timeline.views.view import View


class ExternalColumnHistory:
    """Columns in the commits of external engines.

    Columns have ids. They are matched by name, or by the ids in Hudi's internal schema if a commit contains it. As for
    Hudi's readers, the current schema is that of the commit with the largest requested instant, even if another commit
    completed later. The commit of a table service changes no columns, and may contain outdated columns.
    """

    def __init__(
        self, created: TableSchema | None = None, before: View | None = None, store: Store | None = None
    ) -> None:
        """Start a column history from a state of the table.

        Args:
            created: The first columns of the table, if they are known.
            before: The table's view before the first commit. None (default): a table without slots.
            store: The store whose timeline also contains other commits, including hoodoo's commits.
        """
        self._store = store
        before = before or View()
        self.first, self.schemas = created, before.schemas
        self._newest_instant = before.told

    @property
    def now(self) -> TableSchema | None:
        return self.schemas.newest or self.first

    def add_commit(self, slot: Slot, record: Mapping[str, Any]) -> Slot:
        extra = record.get("extraMetadata") or {}
        text = str(extra.get("schema") or "")
        if not text or not slot.has_current_schema:
            return self._with_schema_ids(slot, self.now)
        schema = own_columns(convert_to_arrow_schema(text))
        if slot.instant <= self._newest_instant:  # a concurrent commit that began later has newer columns
            return self._with_schemas_in_files(slot, schema)
        self._newest_instant = slot.instant
        internal = str(extra.get("latest_schema") or "")
        if not internal:
            return self.changed(slot, schema)
        anew = bool(self._store and self.now and self.now.hudi and _has_new_ids(self._store, slot.instant))
        return self.changed(slot, schema, internal_schema.ids_by_path(internal), anew)

    def changed(
        self,
        slot: Slot,
        schema: pa.Schema,
        ids: Mapping[internal_schema.Path, int] | None = None,
        anew: bool = False,
    ) -> Slot:
        now, after = self.now, None
        if now and anew:
            now = replace(now, hudi=())
        if now is None:
            now = self.first = TableSchema.first(schema)
            after = internal_schema.with_ids(now.with_columns(now.columns), ids) if ids else None
        elif ids:
            after = internal_schema.apply_hudi_schema(now, schema, ids)
        elif now.arrow != schema or now.hudi:
            after = assign_column_ids(now, schema, self.schemas.newest_first())
        if after and (after.columns, after.hudi) != (now.columns, now.hudi):
            columns, before = after.to_json(), {} if self.schemas else now.to_json()
            self.schemas = self.schemas.after(slot.seq, columns, before)
            slot = replace(slot, columns=columns, columns_before=before)
        return self._with_schema_ids(slot, self.now)

    def like(self, schema: pa.Schema) -> TableSchema | None:
        """Find the schema with columns like the given ones."""
        candidates = [*self.schemas.newest_first(), *([self.first] if self.first else [])]
        types = _flat_types(schema)
        return next((candidate for candidate in candidates if _flat_types(candidate.arrow) == types), self.now)

    def _with_schemas_in_files(self, slot: Slot, schema: pa.Schema) -> Slot:
        # A commit of overlapping Hudi writers may contain the columns of another commit. `schema` is the schema in the
        # commit.
        if self._store is None or not self.schemas:
            return self._with_schema_ids(slot, self.like(schema))
        numbers = {}
        for file in slot.files:
            file_columns = _read_file_columns(self._store, file)
            file_schema = self.like(schema if file_columns is None else file_columns)
            numbers[file.path] = file_schema.id if file_schema else 1
        return self._with_schema_ids(slot, self.now, numbers)

    def _with_schema_ids(
        self, slot: Slot, schema: TableSchema | None, numbers: Mapping[str, int] | None = None
    ) -> Slot:
        # `numbers` contains the schema id of each file by path. None: all files have the id of `schema`.
        number = schema.id if schema else 1
        ids = [numbers[file.path] if numbers else number for file in slot.files]
        files = tuple(replace(file, schema=0 if n == 1 else n) for file, n in zip(slot.files, ids, strict=True))
        changes = slot.columns or any(file.schema for file in files)
        return replace(slot, files=files, needs=(*slot.needs, COLUMNS) if changes else slot.needs)


def _flat_types(schema: pa.Schema) -> dict[str, str]:
    # All nested types become 'nested', because engines describe them differently.
    return {field.name: "nested" if pa.types.is_nested(field.type) else str(field.type) for field in schema}


def _read_file_columns(store: Store, file: DataFile) -> pa.Schema | None:
    try:
        if file.kind == BASE:
            with store.open_input(file.path) as source:
                return own_columns(pq.read_schema(source))
        blocks = decode_log(store.get(file.path), strict=False)
        return next((own_columns(block.rows.schema) for block in blocks if isinstance(block, DataBlock)), None)
    except (CorruptTable, FileNotFoundError, pa.ArrowException):
        return None


def _has_new_ids(store: Store, instant: str) -> bool:
    # Hudi assigns new ids if the newest commit at that time contains no internal schema.
    names = (found for name in store.names(TIMELINE) if (found := parse_instant(name)))
    before = [one for one in names if one.state is State.COMPLETED and one.action in WRITES and one.time < instant]
    before = [one for one in before if one.completed < instant]
    if not before:
        return False  # earlier commits are archived
    newest = timeline_avro.decode_timeline_file(store.get(max(before, key=lambda one: one.time).key))
    return not (newest.get("extraMetadata") or {}).get("latest_schema")


__all__ = ["ExternalColumnHistory"]
