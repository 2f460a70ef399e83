"""Rows of messages of Kafka, with what the broker says of each message. Asks no broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoodoo.sources.file_rows import together

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITION, OFFSET, TIMESTAMP, KEY = "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key"


def rows_of_messages(
    topic: str,
    decoded: Iterable[tuple[pa.Table, list[int]]],
    messages: Sequence[Message],
    columns: pa.Schema,
    told: bool,
) -> pa.Table:
    """Put decoded rows together, with what the broker says of the message of each.

    Args:
        topic: The topic.
        decoded: Rows, and which message each was.
        messages: All messages.
        columns: The columns of the table.
        told: Are all four columns wanted, or those only that the table has?

    Returns:
        The rows.

    Raises:
        ColumnError: A column has values of several types.
    """
    parts = [_told(rows, [messages[number] for number in numbers], columns, told) for rows, numbers in decoded]
    return together(topic, parts, columns.remove_metadata())


def _told(rows: pa.Table, messages: Sequence[Message], columns: pa.Schema, told: bool) -> pa.Table:
    """`rows` with what the broker says of each message, as far as the table has columns for it, or if it is wanted."""
    said: dict[str, Any] = {
        PARTITION: lambda: pa.array(np.fromiter((one.partition() for one in messages), np.int32, len(messages))),
        OFFSET: lambda: pa.array(np.fromiter((one.offset() for one in messages), np.int64, len(messages))),
        TIMESTAMP: lambda: pa.array([one.timestamp()[1] for one in messages], pa.timestamp("ms", "UTC")),
        KEY: lambda: pa.array([_text(one.key()) for one in messages], pa.string()),
    }
    for name, values in said.items():
        if told or name in columns.names:
            if name in rows.column_names:
                rows = rows.drop_columns([name])
            rows = rows.append_column(name, values())
    return rows


def _text(key: Any) -> str | None:
    return None if key is None else bytes(key).decode(errors="backslashreplace")


__all__ = ["KEY", "OFFSET", "PARTITION", "TIMESTAMP", "rows_of_messages"]
