"""Change events in the quarantine. An event is stored with the key of its message.

The stored form also contains the settings of the decoder, so that a replay decodes the event in the same way.
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
from hoodoo.writers.batches.bad_rows import row_bytes, row_of

KEY, VALUE = "key", "payload"


@dataclass(frozen=True)
class EventContext:
    """Settings of a decoder, without the table.

    Attributes:
        topic: The name of the topic in errors.
        before: The source of a row's former partition.
        unavailable: The placeholder string for a value that was not sent.
        units: Units of times without a unit in the schema, by column.
        schemas: The texts of each Avro schema that the event needs, by schema id. None: the event is JSON.
    """

    topic: str
    before: str
    unavailable: str
    units: Mapping[str, str]
    schemas: Mapping[str, Sequence[str]] | None = None

    @classmethod
    def of(cls, noted: bytes) -> Self:
        """Read the context of a stored event."""
        return cls(**json.loads(noted))

    def noted(self) -> bytes:
        """Return the context as bytes."""
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class StoredEvent:
    """An event of the quarantine.

    Attributes:
        key: The key of its message.
        value: The value of its message.
        more: Columns that the broker adds to its row.
    """

    key: bytes | None
    value: bytes
    more: Mapping[str, Any] = field(default_factory=dict)


def event_bytes(key: bytes | None, value: bytes, more: pa.Table | None, context: EventContext) -> bytes:
    """Encode an event for the quarantine.

    Args:
        key: The key of its message.
        value: The value of its message.
        more: Columns that the broker adds to its row, or None.
        context: The settings of the decoder.

    Returns:
        A row in Arrow's IPC stream format.
    """
    row = pa.table({KEY: _readable(key), VALUE: _readable(value)})
    if more is not None:
        row = pa.table([*row.columns, *more.columns], names=[*row.column_names, *more.column_names])
    return with_note(row_of(row_bytes(row, 0)), EVENT, context.noted())


def with_note(row: pa.Table, name: bytes, note: bytes) -> bytes:
    """Encode one row with a note in its metadata.

    Args:
        row: A table of one row.
        name: The name of the note.
        note: Information that a replay of the row needs.

    Returns:
        A row in Arrow's IPC stream format.
    """
    row = row.replace_schema_metadata({**(row.schema.metadata or {}), name: note})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_table(row)
    return bytes(sink.getvalue())


def event_in(row: pa.Table) -> StoredEvent:
    """Read an event that `event_bytes` encoded.

    Args:
        row: The row.

    Returns:
        The event.
    """
    key, value = (_bytes(row[name][0].as_py()) for name in (KEY, VALUE))
    return StoredEvent(key, value or b"", {name: row[name] for name in row.column_names if name not in (KEY, VALUE)})


class KeptSchemas(AvroSchemas):
    """Avro schemas that are stored with an event. No registry is used."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Create a cache from the texts of the schemas by their ids."""
        super().__init__(_Texts(texts), times=False)


class _Texts:
    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def schema(self, number: int) -> list[str]:
        if (found := self._texts.get(str(number))) is None:
            raise DataError(f"Schema {number} of an event is not stored with the event.", schema=number)
        return list(found)


def _readable(content: bytes | None) -> pa.Array:
    """Return a value as text if it is UTF-8, so that it is human-readable. Otherwise return bytes."""
    try:
        return pa.array([None if content is None else content.decode()], pa.string())
    except UnicodeDecodeError:
        return pa.array([content], pa.binary())


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


__all__ = ["EventContext", "KeptSchemas", "StoredEvent", "event_bytes", "event_in", "with_note"]
