"""Payloads and schemas in Debezium messages.

A message with a schema is {"schema": ..., "payload": ...}. All messages of one schema begin with the same bytes, so
each schema is parsed once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hoodoo.writers.batches.json_text import require_shallow_values

_SCHEMA_BEGIN = re.compile(rb'\s*\{\s*"schema"\s*:\s*')
_SCHEMA_TO_PAYLOAD = re.compile(rb'\s*,\s*"payload"\s*:\s*')
_KNOWN_MAX = 32


@dataclass(frozen=True)
class KafkaConnectMessages:
    """Kafka Connect messages of one topic.

    Attributes:
        numbers: The number of each message in its batch.
        keys: The original key of each message, or None.
        values: The original bytes of each message.
        payloads: The part of each message without the schema.
        schema: The schema in the messages, or None if they have no schema.
    """

    numbers: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    payloads: Sequence[bytes]
    schema: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, start: int, stop: int) -> Self:
        cut = slice(start, stop)
        parts = (self.numbers[cut], self.keys[cut], self.values[cut], self.payloads[cut])
        return type(self)(*parts, self.schema)

    def picked(self, which: Sequence[int]) -> Self:
        return type(self)(
            [self.numbers[index] for index in which],
            [self.keys[index] for index in which],
            [self.values[index] for index in which],
            [self.payloads[index] for index in which],
            self.schema,
        )


class PayloadExtractor:
    """Reader of payloads in Kafka Connect messages."""

    def __init__(self) -> None:
        self._cached_schemas: dict[bytes, Any] = {}

    def split_by_schema(self, contents: Sequence[bytes]) -> Iterator[tuple[int, int, list[bytes], Any]]:
        """Split messages by schema and extract payloads.

        Args:
            contents: Messages, or keys of messages.

        Yields:
            The start and the end of a run of messages with one schema, their payloads, and the schema. The schema is
            None for messages without a schema.
        """
        start = 0
        while start < len(contents):
            prefix = self._schema_prefix(contents[start])
            stop = start + 1
            if not prefix:
                while stop < len(contents) and not contents[stop].startswith(b'{"schema"'):
                    stop += 1
                yield start, stop, list(contents[start:stop]), None
            else:
                while stop < len(contents) and contents[stop].startswith(prefix):
                    stop += 1
                start_of_payload = len(prefix)
                yield (
                    start,
                    stop,
                    [content[start_of_payload:].rstrip().removesuffix(b"}") for content in contents[start:stop]],
                    self._cached_schemas[prefix],
                )
            start = stop

    def _schema_prefix(self, content: bytes) -> bytes:
        # The schema in the prefix is cached. The result is b'' without a schema.
        for prefix in self._cached_schemas:
            if content.startswith(prefix):
                return prefix
        begin = _SCHEMA_BEGIN.match(content)
        if begin is None:
            return b""
        try:
            text = content[begin.end() :].decode()
            schema, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return b""
        position = begin.end() + len(text[:end].encode())
        between = _SCHEMA_TO_PAYLOAD.match(content, position)
        if between is None:
            return b""
        prefix = content[: between.end()]
        while len(self._cached_schemas) >= _KNOWN_MAX:
            self._cached_schemas.pop(next(iter(self._cached_schemas)))
        self._cached_schemas[prefix] = schema
        return prefix


def json_objects_to_lines(objects: Sequence[bytes]) -> bytes | None:
    """Join JSON objects into lines.

    Returns None if an item is not an object, or is nested too deeply, which would crash the process.
    """
    text = b"\n".join(objects)
    if not _are_object_lines(text, len(objects)):
        text = b"\n".join([item.replace(b"\n", b" ").replace(b"\r", b" ").strip() for item in objects])
        if not _are_object_lines(text, len(objects)):
            return None
    try:
        require_shallow_values(pa.py_buffer(text))
    except pa.ArrowInvalid:
        return None
    return text


def _are_object_lines(text: bytes, count: int) -> bool:
    data = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), data.size)
    if len(ends) != count:
        return False
    starts = np.append(0, ends[:-1] + 1)
    if not (ends - starts > 1).all():
        return False
    return bool((data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all())


__all__ = ["KafkaConnectMessages", "PayloadExtractor", "json_objects_to_lines"]
