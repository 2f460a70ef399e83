"""Rows of Kafka messages with offset and key columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoodoo.sources.one_type import concatenate_tables

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITION, OFFSET, TIMESTAMP, KEY = "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key"
_BROKER_COLUMNS = (PARTITION, OFFSET, TIMESTAMP, KEY)


def columns_from_messages(columns: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in columns if field.name not in _BROKER_COLUMNS], columns.metadata)


def kafka_columns_of_message(message: Message) -> pa.Table:
    return _append_broker_columns(pa.table({"": pa.nulls(1)}), [message], _BROKER_COLUMNS).drop_columns([""])


def add_message_columns(
    topic: str,
    decoded: Iterable[tuple[pa.Table, list[int]]],
    messages: Sequence[Message],
    columns: pa.Schema,
    broker_columns: bool,
    left_out: set[str],
) -> pa.Table:
    """Add offset, key and other message columns to decoded rows.

    The columns are partition, offset, timestamp and key.

    Args:
        topic: The name of the topic.
        decoded: Tables of rows, and the number of each row's message.
        messages: All messages of the batch.
        columns: The columns of the table.
        broker_columns: True to add all four columns. False to add only those that the table has.
        left_out: Names of message fields that were left out. Fields of messages with the name of one of the four
            columns are added to it, unless the column is filled.

    Returns:
        The rows.

    Raises:
        ColumnError: A column has values of several types.
    """
    filled = [name for name in _BROKER_COLUMNS if broker_columns or name in columns.names]
    parts, numbered = list[pa.Table](), list[list[int]]()
    for rows, numbers in decoded:
        senders = [name for name in _BROKER_COLUMNS if name in rows.column_names]
        left_out.update(senders)
        numbered.append(numbers)
        parts.append(
            _append_broker_columns(rows.drop_columns(senders), [messages[number] for number in numbers], filled)
        )
    left_out.difference_update(filled)

    def place(part: int, row: int) -> str:
        message = messages[numbered[part][row]]
        return f"partition {message.partition()}, offset {message.offset()}"

    return concatenate_tables(topic, parts, columns.remove_metadata(), place)


def _append_broker_columns(rows: pa.Table, messages: Sequence[Message], names: Sequence[str]) -> pa.Table:
    columns: dict[str, Any] = {
        PARTITION: lambda: pa.array(np.fromiter((one.partition() for one in messages), np.int32, len(messages))),
        OFFSET: lambda: pa.array(np.fromiter((one.offset() for one in messages), np.int64, len(messages))),
        TIMESTAMP: lambda: pa.array([one.timestamp()[1] for one in messages], pa.timestamp("ms", "UTC")),
        KEY: lambda: pa.array([_key_text(one.key()) for one in messages], pa.string()),
    }
    for name in names:
        rows = rows.append_column(name, columns[name]())
    return rows


def _key_text(key: Any) -> str | None:
    return None if key is None else bytes(key).decode(errors="backslashreplace")


__all__ = [
    "KEY",
    "OFFSET",
    "PARTITION",
    "TIMESTAMP",
    "kafka_columns_of_message",
    "columns_from_messages",
    "add_message_columns",
]
