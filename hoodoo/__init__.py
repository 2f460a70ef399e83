"""Keyed-upsert tables for Python and PySpark in Apache Hudi's open format.

    import hoodoo
    trips = hoodoo.create("lake/trips", schema, key="trip_id", partition_by="day", order_by="updated_at")
    trips.upsert(batch)
    trips.scan(where="fare > 10").to_arrow()

Only the names in this module, `hoodoo.types` and `hoodoo.sources` are public. All other modules may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hoodoo import errors
from hoodoo.errors import *  # noqa: F403 all error classes are public

if TYPE_CHECKING:
    from hoodoo import sources
    from hoodoo.compactor.worker import Worker
    from hoodoo.format.transforms import bucket, day, hour, month, truncate, year
    from hoodoo.ingestion.new_job import ingest
    from hoodoo.merge.modes import CustomMerge
    from hoodoo.queries import sql
    from hoodoo.readers.cursor import Cursor
    from hoodoo.readers.scan import Scan
    from hoodoo.spark.source import register
    from hoodoo.table import Table, open
    from hoodoo.table.commit_hooks import CommitEvent, on_commit
    from hoodoo.table.creating import create
    from hoodoo.table.dropping import drop
    from hoodoo.table.results import WriteResult
    from hoodoo.table.used_folder import use
    from hoodoo.timeline.columns.alterations import (
        AddColumn,
        DropColumn,
        MakeNullable,
        MoveColumn,
        RenameColumn,
        RetypeColumn,
        WidenColumn,
    )
    from hoodoo.timeline.properties.table_options import Options
    from hoodoo.writers.batches.write_options import BadRowLimits

__version__ = "0.1.0"
_HOMES = {
    "create": "hoodoo.table.creating",
    "drop": "hoodoo.table.dropping",
    "ingest": "hoodoo.ingestion.new_job",
    "open": "hoodoo.table",
    "register": "hoodoo.spark.source",
    "sql": "hoodoo.queries",
    "use": "hoodoo.table.used_folder",
    "Table": "hoodoo.table",
    "Scan": "hoodoo.readers.scan",
    "Cursor": "hoodoo.readers.cursor",
    "CustomMerge": "hoodoo.merge.modes",
    "Options": "hoodoo.timeline.properties.table_options",
    "Worker": "hoodoo.compactor.worker",
    "WriteResult": "hoodoo.table.results",
    "BadRowLimits": "hoodoo.writers.batches.write_options",
    "CommitEvent": "hoodoo.table.commit_hooks",
    "on_commit": "hoodoo.table.commit_hooks",
    **dict.fromkeys(("bucket", "day", "hour", "month", "truncate", "year"), "hoodoo.format.transforms"),
    **dict.fromkeys(
        ("AddColumn", "DropColumn", "MakeNullable", "MoveColumn", "RenameColumn", "RetypeColumn", "WidenColumn"),
        "hoodoo.timeline.columns.alterations",
    ),
}
_ERRORS = sorted(
    name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.HoodooError)
)
__all__ = [  # noqa: PLE0604 the error names are collected from the module
    "AddColumn",
    "BadRowLimits",
    "CommitEvent",
    "Cursor",
    "CustomMerge",
    "DropColumn",
    "MakeNullable",
    "MoveColumn",
    "Options",
    "RenameColumn",
    "RetypeColumn",
    "Scan",
    "Table",
    "WidenColumn",
    "Worker",
    "WriteResult",
    "bucket",
    "create",
    "day",
    "drop",
    "hour",
    "ingest",
    "month",
    "on_commit",
    "open",
    "register",
    "sources",
    "sql",
    "truncate",
    "use",
    "year",
    *_ERRORS,
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name == "sources":
        return import_module("hoodoo.sources")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    said = f"module 'hoodoo' has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(said)
    if instead := import_module("hoodoo.hints").MODULE.get(name):
        raise AttributeError(f"{said}; instead: {instead}")
    near = import_module("hoodoo.nearest").find_nearest_name(name, __all__)
    raise AttributeError(said + (f"; did you mean {near!r}?" if near else ""))


def __dir__() -> list[str]:
    """List all public names for `dir(hoodoo)`."""
    return sorted({*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})
