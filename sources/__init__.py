"""Where rows come from: the sources that a job of ingestion reads, and what makes a source.

job = hoodoo.ingest(hoodoo.sources.Files("landing/trips"), trips)
"""

from hoodoo.sources.files import Files
from hoodoo.sources.kafka import Kafka
from hoodoo.sources.source import BAD, Limits, Part, Planned, Source, SourceLag

__all__ = ["BAD", "Files", "Kafka", "SourceLag", "Limits", "Planned", "Part", "Source"]
