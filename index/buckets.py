"""Refuses tables that Apache Hudi writes by buckets. The ids of their file groups tell so; their properties do not.

A bucket's file id is its number in eight digits and the rest of a uuid (docs/format.md 8.4). Hudi looks for a key in
the bucket that the key's hash names and nowhere else, so a row in another file group is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hoodoo.errors import UnsupportedTable
from hoodoo.storage.store import Store

_BUCKET_ID = re.compile(r"0000\d{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-0)?")
"""Of the first ten thousand buckets of a partition. A random uuid looks so once in 430,000 times."""
_SHARE = 0.01  # of the file groups; fewer are by chance
_BUCKET_METADATA = ".hoodie/.bucket_index/"  # of consistent hashing, whose file ids look like any


def require_no_buckets(store: Store, file_ids: Iterable[str]) -> None:
    """Pass unless these file groups, or what Hudi keeps of the table, are those of a bucket index.

    Raises UnsupportedTable, with a bucket's `file_id`.
    """
    known = set(file_ids)
    buckets = sorted(filter(_BUCKET_ID.fullmatch, known))
    if buckets and len(buckets) >= _SHARE * len(known):
        raise _refusal(f"its file groups are buckets, such as {buckets[0]}", buckets[0])
    if kept := next(iter(store.list(_BUCKET_METADATA)), None):
        raise _refusal(f"it has {kept[0]}", "")


def _refusal(why: str, file_id: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"Apache Hudi writes this table with a bucket index ({why}): it would not find rows that hoodoo writes, and "
        "would write their keys a second time. hoodoo reads the table but does not write to it. Write it with Hudi, or "
        "copy its rows to a table of their own: hoodoo.create(...).bulk_insert(hoodoo.open(...).scan().to_arrow()).",
        file_id=file_id,
    )
