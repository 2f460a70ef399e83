"""Payloads of quarantined rows, and their decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from hoodoo.errors import ColumnError, DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.format.rows import compact
from hoodoo.table.quarantine.schema import CHANGE, EVENT
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import deserialize_row
from hoodoo.writers.batches.renaming import rename_columns
from hoodoo.writers.batches.row_files import parse_rows


def comes_from_change_event(content: bytes | None) -> bool:
    row = row_in(content)
    return row is not None and not {EVENT, CHANGE}.isdisjoint(row.schema.metadata or {})


def decode_payloads(rows: pa.Table, config: TableConfig) -> Iterator[tuple[list[int], pa.Table]]:
    """Decode the payloads of quarantined rows.

    Args:
        rows: Rows of the quarantine.
        config: The current table configuration, whose types are used to parse JSON and CSV.

    Yields:
        Indices of consecutive rows whose payloads have equal columns, and these payloads as one table. Payloads that
        cannot be decoded are skipped.
    """
    cut = rows["payload_cut"].to_pylist()
    payloads = (
        None if cut[position] else _row(content.as_py(), config) for position, content in enumerate(rows["payload"])
    )
    whole = [(position, row) for position, row in enumerate(payloads) if row is not None]
    for _, group in groupby(whole, lambda one: (str(one[1].schema), one[1].schema.metadata)):
        mine = list(group)
        yield [position for position, _ in mine], compact(pa.concat_tables([row for _, row in mine]))


def _row(content: bytes | None, config: TableConfig) -> pa.Table | None:
    """Decode one quarantined row.

    A payload is a row in Arrow format, a JSON object, or a CSV header with one record.
    """
    if (row := row_in(content)) is not None or not content:
        return None if row is not None and EVENT in (row.schema.metadata or {}) else row
    columns = config.name_mapping.hints(config.schema).append(pa.field(IS_DELETED, pa.bool_()))
    kind = "json" if content.lstrip().startswith(b"{") else "csv"
    text = content.strip().replace(b"\n", b" ") if kind == "json" else content
    try:
        rows = parse_rows(kind, pa.py_buffer(text + b"\n"), columns, lambda name: False)
        known = [name for name in rows.column_names if name in columns.names]
        return config.name_mapping.rows(rows.select(known)) if len(rows) == 1 and known else None
    except (pa.ArrowException, ValueError, DataError):
        return None


def rename_to_current_columns(
    payloads: Iterable[tuple[list[int], pa.Table]], config: TableConfig
) -> Iterator[tuple[list[int], pa.Table, str]]:
    """Rename columns to their current names.

    Args:
        payloads: Row indices and payloads, as `decode_payloads` yields them.
        config: The current table configuration.

    Yields:
        Row indices, payloads, and ''. A row with a value for a dropped column is yielded separately, with an error
        message instead of ''.
    """
    for positions, data in payloads:
        try:
            yield positions, rename_columns(data, config.columns.columns), ""
        except ColumnError as problem:
            if len(data) == 1:
                yield positions, data, problem.message
            else:
                alone = (([position], data.slice(at, 1)) for at, position in enumerate(positions))
                yield from rename_to_current_columns(alone, config)


def decode_message_row(content: bytes) -> pa.Table:
    try:
        return pa.table({"payload": pa.array([content.decode()])})
    except UnicodeDecodeError:
        return pa.table({"payload": pa.array([content], pa.binary())})


def row_in(content: bytes | None) -> pa.Table | None:
    try:
        return deserialize_row(content) if content else None
    except (pa.ArrowException, OSError, ValueError):
        return None
