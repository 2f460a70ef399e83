"""Payloads of the quarantine as the rows that they are. Knows nothing of what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from hoodoo.errors import ColumnError, DataError
from hoodoo.format.names import IS_DELETED
from hoodoo.format.rows import compact
from hoodoo.table.quarantine.schema import CHANGE, EVENT
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.writers.batches.bad_rows import row_of
from hoodoo.writers.batches.renaming import renamed
from hoodoo.writers.batches.row_files import rows_of


def is_change(content: bytes | None) -> bool:
    """Tell whether a payload is a change event, or a row made from one, with what a replay has to know of it."""
    row = row_in(content)
    return row is not None and not {EVENT, CHANGE}.isdisjoint(row.schema.metadata or {})


def decoded(rows: pa.Table, config: TableConfig) -> Iterator[tuple[list[int], pa.Table]]:
    """Decode the payloads of rows of the quarantine that are whole. Change events are left out.

    Args:
        rows: Rows of the quarantine.
        config: The table as it is now, whose types JSON and CSV are read as.

    Yields:
        Positions of rows that follow each other and have equal columns, and their payloads as one table. A payload
        that is no row any more is left out.
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
    """Decode a payload: a row in Arrow's format, a JSON object, or a CSV header with one record."""
    if (row := row_in(content)) is not None or not content:
        return None if row is not None and EVENT in (row.schema.metadata or {}) else row
    columns = config.spellings.hints(config.schema).append(pa.field(IS_DELETED, pa.bool_()))
    kind = "json" if content.lstrip().startswith(b"{") else "csv"
    text = content.strip().replace(b"\n", b" ") if kind == "json" else content
    try:
        rows = rows_of(kind, pa.py_buffer(text + b"\n"), columns, lambda name: False)
        known = [name for name in rows.column_names if name in columns.names]
        return config.spellings.rows(rows.select(known)) if len(rows) == 1 and known else None
    except (pa.ArrowException, ValueError, DataError):
        return None


def renamed_to_today(
    payloads: Iterable[tuple[list[int], pa.Table]], config: TableConfig
) -> Iterator[tuple[list[int], pa.Table, str]]:
    """Give payloads the names that their columns have now.

    Args:
        payloads: Positions and payloads, as `decoded` gives them.
        config: The table as it is now.

    Yields:
        Positions, payloads, and ''. A row with a value for a column that is gone comes alone, with what is wrong.
    """
    for positions, data in payloads:
        try:
            yield positions, renamed(data, config.columns.columns), ""
        except ColumnError as problem:
            if len(data) == 1:
                yield positions, data, problem.message
            else:
                alone = (([position], data.slice(at, 1)) for at, position in enumerate(positions))
                yield from renamed_to_today(alone, config)


def message_in(content: bytes) -> pa.Table:
    """Show what a source brought that was no row: a table of one row, its bytes as text where they are UTF-8."""
    try:
        return pa.table({"payload": pa.array([content.decode()])})
    except UnicodeDecodeError:
        return pa.table({"payload": pa.array([content], pa.binary())})


def row_in(content: bytes | None) -> pa.Table | None:
    """Decode one payload: a table of one row, or None if it is no row in Arrow's format."""
    try:
        return row_of(content) if content else None
    except (pa.ArrowException, OSError, ValueError):
        return None
