"""List of the files in a snapshot."""

from __future__ import annotations

import pyarrow as pa

from hoodoo.timeline.views.view import View

_COLUMNS = pa.schema(
    [
        ("partition", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("logs", pa.int64()),
        ("log_bytes", pa.int64()),
        ("slot", pa.int64()),
        ("base_file", pa.string()),
        ("file_group", pa.string()),
    ]
)


def file_groups(view: View) -> pa.Table:
    rows = [
        (
            group.partition,
            group.base.file.rows if group.base else 0,
            group.base_bytes,
            len(group.logs),
            sum(log.file.size for log in group.logs),
            max(added.seq for added in group.files()),
            group.base_path or None,
            group.file_id,
        )
        for group in sorted(view.groups(), key=lambda group: (group.partition, group.file_id))
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, _COLUMNS.types, strict=True)], _COLUMNS)
