"""What to call instead: names that people know from deltalake, pandas, polars and Iceberg, and that a table has not.

Knows words only.
"""

from __future__ import annotations

import difflib

_INSTEAD = {
    "optimize": "a worker keeps files well-sized (hoodoo worker PATH); compact() and cluster() do it once",
    "vacuum": "clean() deletes files that no snapshot needs, and a worker does by itself",
    "version": "cursor is the position of the newest slot",
    "to_pandas": "scan().to_pandas()",
    "to_arrow": "scan().to_arrow()",
    "to_polars": "scan().to_polars()",
    "to_pyarrow_table": "scan().to_arrow()",
    "to_pyarrow_dataset": "scan().to_dataset()",
    "to_dataset": "scan().to_dataset()",
    "to_spark": "scan().to_spark(spark)",
    "select": "scan(columns=[...])",
    "filter": "scan(where=...)",
    "where": "scan(where=...)",
    "columns": "schema.names",
    "append": "insert(rows), which refuses keys that are there, or upsert(rows)",
    "write": "upsert(rows), insert(rows) or insert_overwrite(rows)",
    "overwrite": "insert_overwrite(rows, whole_table=True)",
    "truncate": "delete_partitions([...]), or insert_overwrite([], whole_table=True)",
    "load_cdf": "changes(since)",
    "load_as_version": "scan(as_of=...)",
    "as_of": "scan(as_of=...)",
    "time_travel": "scan(as_of=...)",
    "alter_columns": "add_column, rename_column, drop_column, widen_column, move_column and make_nullable",
    "add_columns": "add_column(name, type)",
    "create_checkpoint": "nothing: checkpoints are made by writes",
    "metadata": "key, partition_by, order_by, schema, options and type",
    "file_uris": "files()",
    "get_add_actions": "files()",
    "snapshots": "history()",
    "refresh": "nothing: every call looks at the newest slot first",
    "close": "nothing: a table holds nothing open",
    "rollback": "restore(position)",
}


def hint_for(name: str, kind: type) -> str:
    """Make the text of the AttributeError for a name that `kind` has not."""
    if name in _INSTEAD and not name.startswith("_"):
        return f"A table has no {name!r}; instead: {_INSTEAD[name]}."
    near = (
        [] if name.startswith("_") else difflib.get_close_matches(name, [one for one in dir(kind) if one[0] != "_"], 1)
    )
    return f"A table has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ".")


__all__ = ["hint_for"]
