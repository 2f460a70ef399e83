"""Load the orders of a shop, change them every day, read an earlier day, and undo a mistake.

orders.sh does this on the command line.

    python orders.py FOLDER [ORDERS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import hoodoo


def first_orders(count: int) -> pd.DataFrame:
    """The orders of the shop when it comes to hoodoo."""
    draw, start = np.random.default_rng(7), pd.Timestamp("2026-01-01", tz="UTC")
    return pd.DataFrame(
        {
            "order_id": np.arange(count),
            "customer": draw.integers(0, max(1, count // 10), count),
            "status": draw.choice(["new", "paid", "sent"], count),
            "amount": draw.integers(100, 20_000, count) / 100,
            "ordered_at": start + pd.to_timedelta(draw.integers(0, 90 * 86_400, count), "s"),
        }
    )


def main(folder: str, count: int = 200_000) -> None:
    """Run the whole example in `folder`, which must not have its files yet."""
    place, orders = Path(folder), first_orders(count)

    # 1. The columns and their types come from the data frame; no row is written before insert
    table = hoodoo.create(place / "orders", orders, key="order_id")
    table.insert(orders)
    print(table)

    # 2. Each day: statuses that changed (two columns of five), new orders, and some that were cancelled
    day = orders[orders["order_id"] % 20 == 0][["order_id"]].assign(status="paid")
    table.upsert(day, columns="given")
    table.upsert(first_orders(count + count // 100).tail(count // 100))
    cancelled = table.delete(where="status = 'new' AND amount < 2")
    late = table.update({"status": "'late'"}, where="status = 'paid' AND ordered_at < '2026-01-02'")
    print(f"{cancelled.deleted} orders were cancelled, {late.updated} are late")

    # 3. What happened, and what a table was like before
    print(table.history())
    assert table.scan(as_of=late.cursor.seq - 1).count() == table.count()
    changed = table.changes(since=cancelled).to_pandas()
    assert set(changed["op"]) <= {"u"} and len(changed) == late.updated

    # 4. A mistake, taken back: history stays readable
    table.savepoints.create("before-the-mistake")
    table.update({"amount": 0.0})
    assert table.scan(where="amount > 0").count() == 0
    table.restore("before-the-mistake")
    assert table.scan(where="amount > 0").count() == table.count()

    # 5. What a worker does beside writers, once and now; then look for damage
    table.compact()
    table.maintenance.clean()
    assert table.verify().problems == []

    # 6. Take rows out again
    by_status = table.scan(columns=["status", "amount"]).to_pandas().groupby("status")["amount"].sum()
    print(by_status.round(2).to_string())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
