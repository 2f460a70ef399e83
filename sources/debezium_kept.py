"""Codec for Debezium events that the quarantine keeps.

An event is stored with the key of its message and the settings of the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import pyarrow as pa

from hoodoo.errors import DataError
from hoodoo.sources.avro_schemas import AvroSchemas
from hoodoo.table.quarantine.schema import EVENT
from hoodoo.writers.batches.bad_rows import deserialize_row, serialize_row

KEY, VALUE = "key", "payload"


@dataclass(frozen=True)
class EventContext:
    """Settings for replaying a quarantined event.

    Attributes:
        topic: The name of the topic, for errors.
        before: Where a row's former partition comes from: 'event' or 'lookup'.
        unavailable: The placeholder string that Debezium sends for an unchanged large value.
        units: Units of times without a unit in the event's schema, by column.
        schemas: The Avro schemas that the event needs as JSON strings, by schema id. None: the event is JSON.
    """

    topic: str
    before: str
    unavailable: str
    units: Mapping[str, str]
    schemas: Mapping[str, Sequence[str]] | None = None

    @classmethod
    def of(cls, noted: bytes) -> Self:
        return cls(**json.loads(noted))

    def noted(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class StoredEvent:
    """Change event from the quarantine.

    Attributes:
        key: The key of the message.
        value: The value of the message.
        more: Values of the columns that the broker fills, such as `_kafka_offset`.
    """

    key: bytes | None
    value: bytes
    more: Mapping[str, Any] = field(default_factory=dict)


def encode_event(key: bytes | None, value: bytes, more: pa.Table | None, context: EventContext) -> bytes:
    """Encode a change event for the quarantine.

    The result is a row in Arrow's IPC stream format. `more` contains the columns that the broker fills.
    """
    row = pa.table({KEY: _to_text_array(key), VALUE: _to_text_array(value)})
    if more is not None:
        row = pa.table([*row.columns, *more.columns], names=[*row.column_names, *more.column_names])
    return encode_row_with_metadata(deserialize_row(serialize_row(row, 0)), EVENT, context.noted())


def encode_row_with_metadata(row: pa.Table, name: bytes, note: bytes) -> bytes:
    """Encode a row with metadata.

    The result is a row in Arrow's IPC stream format. The note is in the schema metadata under `name`.
    """
    row = row.replace_schema_metadata({**(row.schema.metadata or {}), name: note})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_table(row)
    return bytes(sink.getvalue())


def event_in(row: pa.Table) -> StoredEvent:
    key, value = (_to_bytes(row[name][0].as_py()) for name in (KEY, VALUE))
    return StoredEvent(key, value or b"", {name: row[name] for name in row.column_names if name not in (KEY, VALUE)})


class QuarantinedSchemas(AvroSchemas):
    """Cache of the Avro schemas of a quarantined event."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        super().__init__(_StoredTexts(texts), times=False)


class _StoredTexts:
    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def schema(self, number: int) -> list[str]:
        if (found := self._texts.get(str(number))) is None:
            raise DataError(
                f"Schema {number} of an event is not stored with the event, so the event cannot be replayed. Drop it "
                "from the quarantine.",
                schema=number,
            )
        return list(found)


def _to_text_array(content: bytes | None) -> pa.Array:
    # Strings are readable in the quarantine. Bytes that are not UTF-8 stay bytes.
    try:
        return pa.array([None if content is None else content.decode()], pa.string())
    except UnicodeDecodeError:
        return pa.array([content], pa.binary())


def _to_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


__all__ = ["EventContext", "QuarantinedSchemas", "StoredEvent", "encode_event", "event_in", "encode_row_with_metadata"]
