"""The story that both programs tell: a shop's orders in PostgreSQL, what becomes of them, and a table that follows.

Knows nothing of servers, nor where changes come from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

import hoodoo

TOPIC = "pg.shop.orders"
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("status", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("changed", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)
ORDER = pa.field("_event_lsn", pa.int64())
"""The place of a change in PostgreSQL's log: of two versions of a row the one with the higher place wins."""
STEPS = {
    "A snapshot of what was there": """
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (
            id bigint PRIMARY KEY,
            customer text NOT NULL,
            status text NOT NULL,
            amount numeric(12, 2),
            day date,
            changed timestamptz,
            note text
        );
        ALTER TABLE shop.orders ALTER note SET STORAGE EXTERNAL;  -- sent only if it changes
        INSERT INTO shop.orders VALUES
            (1, 'ann', 'new', 10.50, '2026-01-30', '2026-01-30 09:00:00.000001Z', NULL),
            (2, 'bob', 'new', 99.99, '2026-01-30', '2026-01-30 09:30:00Z', ''),
            (3, 'cyd', 'new', 5.00, '2026-01-31', '2026-01-31 10:00:00Z', 'ring twice'),
            (4, 'eve', 'new', 1250.00, '2026-01-31', '2026-01-31 11:00:00Z', repeat('fragile ', 400));
    """,
    "Ann pays, and dee orders": """
        UPDATE shop.orders SET status = 'paid', changed = '2026-02-01 08:00:00Z' WHERE id = 1;
        INSERT INTO shop.orders VALUES (5, 'dee', 'new', 7.25, '2026-02-01', '2026-02-01 08:05:00Z', NULL);
    """,
    "Bob cancels, eve's goods leave, and cyd's order gets another number": """
        DELETE FROM shop.orders WHERE id = 2;
        UPDATE shop.orders SET status = 'sent', changed = '2026-02-01 09:00:00Z' WHERE id = 4;
        UPDATE shop.orders SET id = 30 WHERE id = 3;
    """,
}
"""What happens in the database, one transaction each."""


@contextmanager
def made(folder: str | None) -> Iterator[hoodoo.Table]:
    """A new table in a folder; without one in a temporary folder, for as long as it is used."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(folder or scratch, "orders")
        yield hoodoo.create(path, COLUMNS.append(ORDER), key="id", order_by=ORDER.name)


def rows(table: hoodoo.Table, as_of: hoodoo.Cursor | None = None) -> pa.Table:
    """The orders as the database has them, by their numbers."""
    return table.scan(COLUMNS.names, as_of=as_of).to_arrow().cast(COLUMNS).sort_by("id")


def rows_of_csv(text: bytes) -> pa.Table:
    """The orders as PostgreSQL's COPY writes them: an empty text is quoted, and a null is not."""
    types = csv.ConvertOptions(
        column_types=COLUMNS, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(pa.BufferReader(text), convert_options=types).sort_by("id")


def show(title: str, orders: pa.Table) -> None:
    print(f"\n{title}: {len(orders)} orders")
    for order in orders.to_pylist():
        note = order["note"] or ""
        said = note if len(note) < 20 else f"{note[:8]}... ({len(note)} characters)"
        print(f"{order['id']:4}  {order['customer']}  {order['status']:4}  {order['amount']:>8}  {said}".rstrip())


def look_back(table: hoodoo.Table, seen: Sequence[hoodoo.Cursor]) -> None:
    """Show what a table knows of its past. seen: where it stood after each step."""
    show(f"Time travel, to slot {seen[0].seq}", rows(table, seen[0]))
    print("\nThe change feed since then:")
    changes = table.changes(since=seen[0], columns=["id", "customer", "status", "amount"]).to_arrow().to_pylist()
    for change in sorted(changes, key=lambda change: (change["after"] or change["before"])["id"]):
        before, after = _said(change["before"]), _said(change["after"])
        print(f"   {change['op']}  {' -> '.join(one for one in (before, after) if one)}")


def require_same(table: hoodoo.Table, database: pa.Table) -> None:
    """End the program unless the table has the rows of the database."""
    found = rows(table)
    if not found.equals(database):
        show("The database", database)
        raise SystemExit("The table differs from the database.")
    print(f"\nThe table has the {len(found)} rows that PostgreSQL ended with.")


def _said(order: dict[str, Any] | None) -> str:
    return "" if order is None else f"({', '.join(str(value) for value in order.values())})"
