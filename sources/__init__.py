"""Where rows come from: the sources that a job of ingestion reads, and what makes a source.

job = hoodoo.ingest(hoodoo.sources.Files("landing/trips"), trips)
"""

from hoodoo.sources.files import Files
from hoodoo.sources.kafka import Kafka
from hoodoo.sources.source import BAD, Limits, Part, Planned, Source, SourceLag
from hoodoo.sources.table_changes import TableChanges

__all__ = ["BAD", "Files", "Kafka", "SourceLag", "TableChanges", "Limits", "Planned", "Part", "Source"]
