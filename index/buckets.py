"""Detection of Hudi's bucket index.

hoodoo only reads tables with such an index. The ids of file groups reveal a bucket index; the table properties do not.
The file id of a bucket is its number in eight digits followed by the rest of a UUID (docs/format.md 8.4). Hudi looks
for a key only in the bucket of its hash. If hoodoo stored the row in another file group, Hudi would write it a second
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hoodoo.errors import UnsupportedTable
from hoodoo.storage.store import Store

_BUCKET_ID = re.compile(r"0000\d{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-0)?")
# Pattern of the file ids of buckets 0 to 9,999 of a partition. One of 430,000 random UUIDs matches it.
_SHARE = 0.01  # minimum share of bucket ids among file groups; a smaller share may be chance
_BUCKET_METADATA = ".hoodie/.bucket_index/"  # metadata of consistent hashing, whose file ids do not match the pattern


def require_no_bucket_index(store: Store, file_ids: Iterable[str]) -> None:
    """Check that a table has no bucket index.

    Raises UnsupportedTable if Apache Hudi writes the table with a bucket index. A bucket index is detected from the ids
    of file groups, or from Hudi's metadata. The error contains the `file_id` of a bucket.
    """
    distinct_ids = set(file_ids)
    buckets = sorted(filter(_BUCKET_ID.fullmatch, distinct_ids))
    if buckets and len(buckets) >= _SHARE * len(distinct_ids):
        raise _refusal(f"its file groups have bucket numbers, such as {buckets[0]}", buckets[0])
    if metadata := next(iter(store.list(_BUCKET_METADATA)), None):
        raise _refusal(f"it has {metadata[0]}", "")


def _refusal(evidence: str, file_id: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"Table has a Hudi bucket index ({evidence}), so hoodoo can only read it: Hudi would not find rows that hoodoo "
        "writes, and would duplicate their keys. Write to the table with Hudi, or copy its rows to a new table: "
        "hoodoo.create(...).bulk_insert(hoodoo.open(...).scan().to_arrow()).",
        file_id=file_id,
    )
