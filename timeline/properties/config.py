"""Configuration of a table, parsed from its properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.log.change_log_block import change_log_mode
from hoodoo.format.name_mapping import NameMapping
from hoodoo.format.names import COMMIT_SEQNO, COMMIT_TIME, META_COLUMNS, RECORD_KEY
from hoodoo.format.resolve import NO_CHANGES, ColumnMapping, map_columns
from hoodoo.format.table_schema import TableSchema
from hoodoo.format.transforms import Transform
from hoodoo.merge.policy import MergePolicy
from hoodoo.timeline.properties import original_names, table_options, transform_properties
from hoodoo.timeline.properties.schema_history import SchemaHistory
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.slots.slot import DataFile

MERGE_ON_READ, COPY_ON_WRITE = "merge_on_read", "copy_on_write"
BY_EVENT, BY_COMMIT = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
LAYOUT_OF = {"6": "1"}
"""Version of the timeline layout by table version, which is 2 for all other versions."""
_GENERATORS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
}
_PLAIN_GENERATORS = ("SIMPLE", "COMPLEX", "NON_PARTITION", "")
_SLASHED_DATES = "hoodie.datasource.write.slash.separated.date.partitioning"
TABLE_ID = table_options.PREFIX + "table_id"
NOT_NULL = table_options.PREFIX + "not_null"
"""Name of the property that lists the non-nullable columns."""
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
"""Name of the property that lists the enabled partitions of Hudi's metadata table."""


@dataclass(frozen=True)
class TableConfig:
    """Configuration of a table, parsed from its properties.

    Attributes:
        created: The columns that the table was created with.
        schemas: The schemas of the table since its creation. The newest schema is the current schema.
        raw: The properties in hoodie.properties, with the changes by slots.
    """

    name: str
    type: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...]
    merge_mode: str
    created: TableSchema
    hive_style: bool
    url_encode: bool
    options: Options
    raw: Mapping[str, str]
    schemas: SchemaHistory = SchemaHistory()
    travels_once: ClassVar[bool] = True  # tasks of a job share one pickled copy (engine/task_pickling)

    @cached_property
    def columns(self) -> TableSchema:
        return self.schemas.get_current_schema(self.created)

    @property
    def schema(self) -> pa.Schema:
        return self.columns.arrow

    @property
    def schema_id(self) -> int:
        return 0 if self.columns.id == 1 else self.columns.id

    @property
    def merge_on_read(self) -> bool:
        return self.type == MERGE_ON_READ

    @property
    def by_event_time(self) -> bool:
        return self.merge_mode == BY_EVENT and bool(self.order_by)

    @cached_property
    def merge_policy(self) -> MergePolicy:
        return MergePolicy(self.order_by if self.by_event_time else ())

    @property
    def logs_partial_rows(self) -> bool:
        """True if updates log only the changed columns.

        Always False for tables with ordering columns. Merging partial rows would not be associative there, so the
        result would depend on the grouping of logs.
        """
        return self.options.partial_logs and self.merge_on_read and not self.order_by

    @property
    def change_log(self) -> str:
        """Change log mode of Apache Hudi.

        It is '' for a table without change logs.
        """
        return change_log_mode(self.raw)

    @property
    def table_id(self) -> str:
        return self.raw.get(TABLE_ID, "")

    @property
    def not_null(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns.columns if column.required)

    @cached_property
    def transforms(self) -> Mapping[str, Transform]:
        found = transform_properties.read_transforms(self.raw, self.created, self.columns)
        return {name: found[name] for name in self.partition_by if name in found}

    @cached_property
    def name_mapping(self) -> NameMapping:
        return NameMapping(self.columns.columns, original_names.stored(self.raw))

    @property
    def partition_sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.partition_by, *(one.column for one in self.transforms.values()))))

    @property
    def declared_schema(self) -> pa.Schema:
        fixed = set(self.not_null)
        return pa.schema([field.with_nullable(field.name not in fixed) for field in self.schema])

    @property
    def key_generator(self) -> str:
        named = self.raw.get("hoodie.table.keygenerator.type", "").upper().removesuffix("_AVRO")
        class_ = self.raw.get("hoodie.table.keygenerator.class", "").rpartition(".")[2]
        return named or _GENERATORS.get(class_.replace("AvroKeyGenerator", "KeyGenerator"), class_)

    @property
    def is_timeline_v1(self) -> bool:
        return LAYOUT_OF.get(self.raw["hoodie.table.version"]) == "1"

    @property
    def virtual_keys(self) -> bool:
        """True if data files do not store record keys."""
        populated = "ALL" if self.raw.get("hoodie.populate.meta.fields", "true").lower() != "false" else "NONE"
        return self.raw.get("hoodie.meta.fields.mode", populated).upper() != "ALL"  # Hudi 1.3 writes the mode

    def require_writable(self) -> None:
        if self.is_timeline_v1:
            raise UnsupportedTable(
                f"Table has version {self.raw['hoodie.table.version']}, which hoodoo can only read. Stop all other "
                "writers, and upgrade it to version 9 with maintenance.adopt() (hoodoo adopt PATH). A write by Apache "
                "Hudi 1.x also upgrades it.",
                version=self.raw["hoodie.table.version"],
            )
        if self.virtual_keys:
            raise UnsupportedTable(
                "Table has no meta columns (hoodie.populate.meta.fields=false), so hoodoo can only read it. Write to "
                "it with Hudi.",
                property="hoodie.populate.meta.fields",
            )

    def require_commit_times(self) -> None:
        if self.virtual_keys:
            raise UnsupportedTable(
                "Table has no meta columns (hoodie.populate.meta.fields=false), which incremental reads and changes "
                "require. Read snapshots instead.",
                property="hoodie.populate.meta.fields",
            )

    @property
    def folders_contain_partition_values(self) -> bool:
        """True if folder names contain the partition values.

        False if the key generator formats times (TIMESTAMP, CUSTOM) or is unknown, or if dates are nested folders.
        """
        kinds = any(":" in name for name in self.raw.get("hoodie.table.partition.fields", "").split(","))
        slashed = self.raw.get(_SLASHED_DATES, "false").lower() == "true"
        return self.key_generator in _PLAIN_GENERATORS and not kinds and not slashed

    @property
    def key_is_record_key(self) -> bool:
        """True if record keys equal the key column's values.

        This holds for a single string key column and at most one partition column.
        """
        one = len(self.key) == 1 and len(self.partition_by) <= 1
        return one and pa.types.is_string(self.schema.field(self.key[0]).type)

    @property
    def write_action(self) -> str:
        return "deltacommit" if self.merge_on_read else "commit"

    @cached_property
    def file_schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS] + list(self.schema))

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Schema of the columns that a rewrite keeps.

        The commit time is a dictionary column, because it has few distinct values.
        """
        return pa.schema(
            [
                pa.field(COMMIT_TIME, pa.dictionary(pa.int32(), pa.string())),
                *(pa.field(n, pa.string()) for n in (COMMIT_SEQNO, RECORD_KEY)),
                *self.schema,
            ]
        )

    @cached_property
    def schema_text(self) -> str:
        return json.dumps(create_avro_schema(self.name, self.schema, False), separators=(",", ":"))

    def with_schemas(self, schemas: SchemaHistory) -> TableConfig:
        return self if schemas == self.schemas else replace(self, schemas=schemas)

    def knowing(self, schemas: SchemaHistory) -> TableConfig:
        return self.with_schemas(self.schemas.knowing(schemas, self.created))

    def with_columns(self, columns: TableSchema) -> TableConfig:
        before = {} if self.schemas else self.columns.to_json()
        return replace(self, schemas=self.schemas.after(1 << 62, columns.to_json(), before))

    # ---- reading files of any of the table's schemas
    def columns_of(self, file: DataFile) -> TableSchema:
        number = file.schema or 1
        if number == self.columns.id:
            return self.columns
        found = self.schemas.schema(number) or (self.created if number == self.created.id else None)
        if found is None:
            raise CorruptTable(
                f"Schema {number} of file {file.path} is missing in the table's slots. Restore the slots from a "
                "backup.",
                file=file.path,
            )
        return found

    def resolution(self, file: DataFile) -> ColumnMapping:
        number = file.schema or 1
        if number == self.columns.id:
            return NO_CHANGES
        if number not in self._resolutions:
            self._resolutions[number] = map_columns(self.columns_of(file), self.columns)
        return self._resolutions[number]

    def order_of(self, file: DataFile) -> str:
        """Return the sort order of a file with current column names.

        Returns '' if the file is unsorted, or if a sort column was dropped.
        """
        if not file.sorted or file.schema == self.schema_id:
            return file.sorted
        order, _, names = file.sorted.partition(":")
        were, now = self.columns_of(file).by_name, self.columns.by_id
        found = [now[were[name].id].name for name in names.split(",") if name in were and were[name].id in now]
        return f"{order}:{','.join(found)}" if len(found) == names.count(",") + 1 else ""

    @cached_property
    def _resolutions(self) -> dict[int, ColumnMapping]:
        return {}

    @property
    def metadata_partitions(self) -> str:
        return self.raw.get(METADATA_PARTITIONS, "")
