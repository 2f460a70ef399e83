"""Rows of a table as the `hudi` package (hudi-rs, another implementation) reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def hudi_rows(
    path: Path | str, as_of: str | None = None, since: str | None = None, until: str | None = None
) -> list[dict[str, Any]]:
    """Snapshot, or as of a requested time, or changed in (since, until] of completion times."""
    from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

    options = HudiReadOptions()
    if as_of:
        options = options.with_as_of_timestamp(as_of)
    if since is not None:
        options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
        if until:
            options = options.with_end_timestamp(until)
    batches = HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return [row for batch in batches for row in batch.to_pylist()]
