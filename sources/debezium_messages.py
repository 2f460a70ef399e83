"""What lies in messages of Kafka Connect: the payload, and what the schema beside it says, where there is one.

A message with a schema is {"schema": ..., "payload": ...}. All messages of one schema begin with the same bytes, so
that each schema is read once. Knows no events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hoodoo.writers.batches.json_text import require_shallow

_BEGIN = re.compile(rb'\s*\{\s*"schema"\s*:\s*')
_BETWEEN = re.compile(rb'\s*,\s*"payload"\s*:\s*')
_KNOWN_MAX = 32


@dataclass(frozen=True)
class Messages:
    """Some messages of one topic, in order.

    Attributes:
        numbers: The number of each.
        keys: The key of each as it came, or None.
        values: The bytes of each as they came.
        payloads: What counts of these bytes.
        schema: What the messages say of their payloads; None where they say nothing.
    """

    numbers: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    payloads: Sequence[bytes]
    schema: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, start: int, stop: int) -> Self:
        """Return the messages from `start` up to `stop`."""
        cut = slice(start, stop)
        parts = (self.numbers[cut], self.keys[cut], self.values[cut], self.payloads[cut])
        return type(self)(*parts, self.schema)

    def picked(self, which: Sequence[int]) -> Self:
        """Return the messages at these positions."""
        return type(self)(
            [self.numbers[at] for at in which],
            [self.keys[at] for at in which],
            [self.values[at] for at in which],
            [self.payloads[at] for at in which],
            self.schema,
        )


class Unwrapping:
    """Takes payloads out of messages, and remembers the schemas that it has met."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def unwrapped(self, contents: Sequence[bytes]) -> Iterator[tuple[int, int, list[bytes], Any]]:
        """Take out the payloads.

        Args:
            contents: Messages, or keys of messages.

        Yields:
            Where messages of one schema begin and end, their payloads, and the schema; None where there is none.
        """
        start = 0
        while start < len(contents):
            prefix = self._prefix(contents[start])
            stop = start + 1
            if not prefix:
                while stop < len(contents) and not contents[stop].startswith(b'{"schema"'):
                    stop += 1
                yield start, stop, list(contents[start:stop]), None
            else:
                while stop < len(contents) and contents[stop].startswith(prefix):
                    stop += 1
                at = len(prefix)
                yield (
                    start,
                    stop,
                    [one[at:].rstrip().removesuffix(b"}") for one in contents[start:stop]],
                    self._known[prefix],
                )
            start = stop

    def _prefix(self, content: bytes) -> bytes:
        """What stands before the payload, once its schema is known; b'' where there is no schema."""
        for prefix in self._known:
            if content.startswith(prefix):
                return prefix
        begin = _BEGIN.match(content)
        if begin is None:
            return b""
        try:
            text = content[begin.end() :].decode()
            schema, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return b""
        at = begin.end() + len(text[:end].encode())
        between = _BETWEEN.match(content, at)
        if between is None:
            return b""
        prefix = content[: between.end()]
        while len(self._known) >= _KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[prefix] = schema
        return prefix


def objects_of(objects: Sequence[bytes]) -> bytes | None:
    """Put objects into lines of their own, as Arrow's reader takes them.

    Args:
        objects: Their bytes.

    Returns:
        The lines; None where one is no object or is nested too deeply, which would take the process down with it.
    """
    text = b"\n".join(objects)
    if not _are_objects(text, len(objects)):
        text = b"\n".join([one.replace(b"\n", b" ").replace(b"\r", b" ").strip() for one in objects])
        if not _are_objects(text, len(objects)):
            return None
    try:
        require_shallow(pa.py_buffer(text))
    except pa.ArrowInvalid:
        return None
    return text


def _are_objects(text: bytes, count: int) -> bool:
    """Are these so many lines, of which each begins and ends as an object does?"""
    data = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), data.size)
    if len(ends) != count:
        return False
    starts = np.append(0, ends[:-1] + 1)
    if not (ends - starts > 1).all():
        return False
    return bool((data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all())


__all__ = ["Messages", "Unwrapping", "objects_of"]
