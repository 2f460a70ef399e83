"""Decoder of Debezium events in Avro.

Decoded Avro columns have types. The meaning of a value, such as the unit of a time, is in the schema: as written by
Kafka Connect (`connect.name`), or as an Avro logical type. `debezium.py` converts the events of both formats to rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import HoodooError
from hoodoo.sources.avro_messages import HEAD, AvroMessageReader, Picked, merge_in_message_order
from hoodoo.sources.avro_schemas import AvroColumn, AvroSchemas, MessageSchema
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium import DebeziumDecoder
from hoodoo.sources.debezium_events import SOURCE, ChangeEvents, changes_no_row
from hoodoo.sources.debezium_keys import KeyReader
from hoodoo.sources.debezium_messages import KafkaConnectMessages
from hoodoo.sources.debezium_schemas import DECIMAL, ConnectColumn
from hoodoo.sources.json_messages import AT_ONCE
from hoodoo.sources.source import Placing

_TYPES = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "record": "struct",
    "enum": "string",
    "fixed": "bytes",
}
_MEANINGS = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
}
# Meanings of Avro logical types, for schemas without Kafka Connect names.


class DebeziumAvroDecoder(DebeziumDecoder):
    def __init__(
        self,
        topic: str,
        columns: pa.Schema,
        unknown: bool,
        placing: Placing,
        truncate: str,
        before: str,
        schemas: AvroSchemas,
    ) -> None:
        """Create a decoder for Avro events.

        `schemas` is the cache of Avro schemas, which keeps times as numbers. The other arguments are as in
        `DebeziumDecoder`.
        """
        super().__init__(topic, columns, unknown, placing, truncate, before)
        self._schemas, self._avro = schemas, AvroMessageReader(schemas)
        self._keys = _AvroKeyReader(self.topic, placing, self._known, self._reader.spelt, self._avro)

    def rows(
        self, numbers: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes], bad: BadMessages
    ) -> Iterator[tuple[pa.Table, list[int]]]:
        """Decode Avro change events to rows.

        Arguments and results are as in `DebeziumDecoder.rows`. Raises SourceUnavailable if the registry does not
        respond, and OptionError if it denies access.
        """
        bad.kept = self._event_encoder(numbers, keys)
        for start in range(0, len(numbers), AT_ONCE):
            block_slice = slice(start, start + AT_ONCE)
            block = KafkaConnectMessages(
                numbers[block_slice], keys[block_slice], values[block_slice], values[block_slice]
            )
            yield from merge_in_message_order(self.topic, list(self._decode_block(block, bad)), self.columns)

    def _schema_texts(self, key: bytes | None, value: bytes) -> dict[str, Sequence[str]]:
        texts = dict[str, Sequence[str]]()
        for content in (key, value):
            if content and len(content) >= HEAD and not content[0]:
                number = int.from_bytes(content[1:HEAD], "big")
                with suppress(HoodooError):  # the missing schema may be the reason why the message is bad
                    texts[str(number)] = self._schemas.texts(number)
        return texts

    def _decode_block(self, block: KafkaConnectMessages, bad: BadMessages) -> Iterator[tuple[pa.Table, list[int]]]:
        # Events are grouped by their Avro schema.
        def note(index: int, reason: str) -> None:
            bad.note(block.numbers[index], reason, block.values[index])

        for schema, indexes, spans in self._avro.groups(block.values, note):
            columns = {column.name: (index, column) for index, column in enumerate(schema.columns)}
            if "op" not in columns and changes_no_row(columns.keys()):
                self._passed_over += len(indexes)
                continue
            if reason := _why_not_event({name: column for name, (_, column) in columns.items()}):
                for index in indexes.tolist():
                    note(index, reason)
                continue
            descriptions = _describe_fields(columns["after"][1].node) if "after" in columns else {}
            self._add_event_columns(descriptions)
            if not self.unknown:
                self._reader.left_out.update(name for name in descriptions if name not in self._known)
            wanted = ("op", "after", "source", "before") if self._outside else ("op", "after", "source")
            picked = tuple((columns[name][0], name, None) for name in wanted if name in columns)
            note_record = _translate_indexes(indexes, note)
            for rows, index in spans.rows(schema, picked, note_record):
                events = _create_events(rows, block.picked(indexes[index].tolist()), self._known)
                yield from self._convert_events(events, descriptions, bad)


class _AvroKeyReader(KeyReader):
    def __init__(
        self,
        topic: str,
        placing: Placing,
        known: Mapping[str, pa.Field],
        spelt: Mapping[str, pa.DataType | None],
        avro: AvroMessageReader,
    ) -> None:
        super().__init__(topic, placing, known, spelt)
        self._avro = avro

    def columns(self, contents: Sequence[bytes | None]) -> Mapping[str, pa.Array] | None:
        """Decode Avro message keys to columns.

        Returns None if a key is not a valid record. Raises DataError if the keys have other columns than the key of the
        table.
        """
        flaws = list[int]()
        parts = list[tuple[pa.Table, list[int]]]()

        def note(index: int, reason: str) -> None:
            flaws.append(index)

        for schema, where, spans in self._avro.groups([key or b"" for key in contents], note):
            self._require_table_key([column.name for column in schema.columns])
            for rows, index in spans.rows(schema, _all_columns(schema), note):
                parts.append((rows, where[index].tolist()))
        if flaws or not parts:
            return None
        self._is_key_checked = True
        [(rows, _)] = merge_in_message_order(self.topic, parts, pa.schema([]))
        return {name: rows[name].combine_chunks() for name in rows.column_names}


def _all_columns(schema: MessageSchema) -> Picked:
    return tuple((index, column.name, None) for index, column in enumerate(schema.columns) if column.type is not None)


def _translate_indexes(where: np.ndarray, note: Any) -> Any:
    return lambda at, why: note(int(where[at]), why)


# ---- events
def _why_not_event(columns: Mapping[str, AvroColumn]) -> str:
    # The result is '' for a change event.
    kinds = {name: column.type.kind for name, column in columns.items() if column.type is not None}
    if "op" not in columns:
        return "Message is not a change event, because it lacks the field op"
    if kinds.get("op") not in ("string", "enum"):
        return "it is not a change event: its op is not a string"
    for name in ("after", "before", "source"):
        if name in columns and kinds.get(name) != "record":
            return f"the change event cannot be read: {name!r} must be a record without unions of several types"
    return ""


def _create_events(rows: pa.Table, messages: KafkaConnectMessages, known: Collection[str]) -> ChangeEvents:
    source = _struct_fields(rows, "source")
    source_columns = {field.name: _source_field(source.get(field.name), field.type, len(rows)) for field in SOURCE}
    has_row = np.zeros(len(rows), bool)
    if "after" in rows.column_names:
        has_row = rows["after"].is_valid().to_numpy()
    op, after = rows["op"].combine_chunks(), _struct_fields(rows, "after")
    lacking = {name: has_row for name in known if name not in after} if has_row.any() else {}
    return ChangeEvents(messages, op, after, has_row, _struct_fields(rows, "before"), lacking, source_columns)


def _struct_fields(rows: pa.Table, name: str) -> dict[str, pa.Array]:
    # Null where the struct is null.
    if name not in rows.column_names:
        return {}
    values = rows[name].combine_chunks()
    return {field.name: pc.struct_field(values, [index]) for index, field in enumerate(values.type)}


def _source_field(values: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    # Nulls if the field is missing or has another type.
    is_expected = pa.types.is_string if pa.types.is_string(kind) else pa.types.is_integer
    return values.cast(kind) if values is not None and is_expected(values.type) else pa.nulls(count, kind)


# ---- column descriptions from schemas
def _describe_fields(node: Any) -> dict[str, ConnectColumn]:
    return {field["name"]: _describe_type(field["type"]) for field in _non_null_type(node)["fields"]}


def _describe_type(node: Any) -> ConnectColumn:
    node = _non_null_type(node)
    kind, meaning = node["type"], node.get("connect.name") or _MEANINGS.get(node.get("said"), "")
    if node.get("logicalType") == "decimal":
        meaning = DECIMAL
    items = _describe_type(node["items"]) if kind == "array" else None
    return ConnectColumn(
        _TYPES.get(kind, kind), meaning if isinstance(meaning, str) else "", node.get("scale", 0), items
    )


def _non_null_type(node: Any) -> dict[str, Any]:
    # A type outside of a union is returned as it is, and a type name as a type object.
    if isinstance(node, list):
        node = next((branch for branch in node if branch != "null"), "null")
    return {"type": node} if isinstance(node, str) else node


__all__ = ["DebeziumAvroDecoder"]
