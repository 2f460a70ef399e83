"""Detection of tables that Apache Hudi writes with a bucket index. hoodoo only reads these tables.

The table properties do not show a bucket index, but the ids of file groups do. The file id of a bucket is its number in
eight digits and the rest of a UUID (docs/format.md 8.4). Hudi looks for a key only in the bucket of its hash. It would
write a row in another file group a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hoodoo.errors import UnsupportedTable
from hoodoo.storage.store import Store

_BUCKET_ID = re.compile(r"0000\d{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-0)?")
"""Pattern of file ids for the first ten thousand buckets of a partition. One of 430,000 random UUIDs matches it."""
_SHARE = 0.01  # minimum share of the file groups; a smaller share may be by chance
_BUCKET_METADATA = ".hoodie/.bucket_index/"  # metadata of consistent hashing, whose file ids are not recognizable


def require_no_buckets(store: Store, file_ids: Iterable[str]) -> None:
    """Raise UnsupportedTable if Apache Hudi writes the table with a bucket index.

    This is detected from the ids of its file groups, or from Hudi's metadata. The error contains the `file_id` of a
    bucket.
    """
    known = set(file_ids)
    buckets = sorted(filter(_BUCKET_ID.fullmatch, known))
    if buckets and len(buckets) >= _SHARE * len(known):
        raise _refusal(f"its file groups have bucket numbers, such as {buckets[0]}", buckets[0])
    if kept := next(iter(store.list(_BUCKET_METADATA)), None):
        raise _refusal(f"it has {kept[0]}", "")


def _refusal(why: str, file_id: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"Apache Hudi writes this table with a bucket index ({why}): it would not find rows that hoodoo writes, and "
        "would write their keys a second time. hoodoo reads the table but does not write to it. Write it with Hudi, or "
        "copy its rows to a table of their own: hoodoo.create(...).bulk_insert(hoodoo.open(...).scan().to_arrow()).",
        file_id=file_id,
    )
