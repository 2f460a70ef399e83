"""Rows of Kafka messages with the columns that the broker provides. Senders cannot set these columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoodoo.sources.one_type import together

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITION, OFFSET, TIMESTAMP, KEY = "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key"
_OF_BROKERS = (PARTITION, OFFSET, TIMESTAMP, KEY)


def of_senders(columns: pa.Schema) -> pa.Schema:
    """Return the columns to decode from messages. The broker's columns are not decoded.

    Args:
        columns: The columns of the table.

    Returns:
        The columns without those that the broker fills, with the same metadata.
    """
    return pa.schema([field for field in columns if field.name not in _OF_BROKERS], columns.metadata)


def added_columns(message: Message) -> pa.Table:
    """Return the broker's columns for a message, as a table of one row."""
    return _told(pa.table({"": pa.nulls(1)}), [message], _OF_BROKERS).drop_columns([""])


def rows_of_messages(
    topic: str,
    decoded: Iterable[tuple[pa.Table, list[int]]],
    messages: Sequence[Message],
    columns: pa.Schema,
    broker_columns: bool,
    left_out: set[str],
) -> pa.Table:
    """Concatenate decoded rows, and add the broker's columns.

    Args:
        topic: The topic.
        decoded: Rows, and the number of each row's message.
        messages: All messages.
        columns: The columns of the table.
        broker_columns: True to add all four columns. False to add only those that the table has.
        left_out: Columns of messages that were left out. The broker's columns in messages are added to it, unless the
            broker fills them.

    Returns:
        The rows.

    Raises:
        ColumnError: A column has values of several types.
    """
    filled = [name for name in _OF_BROKERS if broker_columns or name in columns.names]
    parts, numbered = list[pa.Table](), list[list[int]]()
    for rows, numbers in decoded:
        senders = [name for name in _OF_BROKERS if name in rows.column_names]
        left_out.update(senders)
        numbered.append(numbers)
        parts.append(_told(rows.drop_columns(senders), [messages[number] for number in numbers], filled))
    left_out.difference_update(filled)

    def place(part: int, row: int) -> str:
        message = messages[numbered[part][row]]
        return f"partition {message.partition()}, offset {message.offset()}"

    return together(topic, parts, columns.remove_metadata(), place)


def _told(rows: pa.Table, messages: Sequence[Message], names: Sequence[str]) -> pa.Table:
    """Return `rows` with the broker's columns of these names."""
    said: dict[str, Any] = {
        PARTITION: lambda: pa.array(np.fromiter((one.partition() for one in messages), np.int32, len(messages))),
        OFFSET: lambda: pa.array(np.fromiter((one.offset() for one in messages), np.int64, len(messages))),
        TIMESTAMP: lambda: pa.array([one.timestamp()[1] for one in messages], pa.timestamp("ms", "UTC")),
        KEY: lambda: pa.array([_text(one.key()) for one in messages], pa.string()),
    }
    for name in names:
        rows = rows.append_column(name, said[name]())
    return rows


def _text(key: Any) -> str | None:
    return None if key is None else bytes(key).decode(errors="backslashreplace")


__all__ = ["KEY", "OFFSET", "PARTITION", "TIMESTAMP", "added_columns", "of_senders", "rows_of_messages"]
