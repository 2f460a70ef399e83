"""Sources for ingestion jobs.

job = hoodoo.ingest(hoodoo.sources.Files("landing/trips"), trips)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hoodoo.sources.source import BAD, Limits, Part, Placing, Planned, Source, SourceLag

if TYPE_CHECKING:
    from hoodoo.sources.files import Files
    from hoodoo.sources.kafka import Kafka
    from hoodoo.sources.schema_registry import SchemaRegistry
    from hoodoo.sources.source_columns import SourceColumns, columns_of
    from hoodoo.sources.sql_table import SqlTable
    from hoodoo.sources.table_changes import TableChanges

_MODULE_BY_NAME = {
    "Files": "files",
    "Kafka": "kafka",
    "SchemaRegistry": "schema_registry",
    "SourceColumns": "source_columns",
    "SqlTable": "sql_table",
    "TableChanges": "table_changes",
    "columns_of": "source_columns",
}

__all__ = [
    "BAD",
    "Files",
    "Kafka",
    "Limits",
    "Part",
    "Placing",
    "Planned",
    "SchemaRegistry",
    "Source",
    "SourceColumns",
    "SourceLag",
    "SqlTable",
    "TableChanges",
    "columns_of",
]


def __getattr__(name: str) -> Any:
    """Import a source class at its first use."""
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"hoodoo.sources.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module 'hoodoo.sources' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__"]
