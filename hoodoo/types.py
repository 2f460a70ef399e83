"""Public types for type annotations.

For example: `from hoodoo.types import ArrowLike, WriteResult` and then `def load(batch: ArrowLike) -> WriteResult:
...`.
"""

from hoodoo.arguments import ApplicationVersion
from hoodoo.compactor.cleaning.archive import ArchiveResult
from hoodoo.compactor.cleaning.clean import CleanResult
from hoodoo.compactor.cleaning.purge_report import PurgeReport
from hoodoo.compactor.cleaning.retention import Expired
from hoodoo.compactor.cleaning.sweep import SweepResult
from hoodoo.compactor.clustering.cluster import ClusterResult
from hoodoo.compactor.compaction.plans import CompactionResult
from hoodoo.compactor.status.advice import Services
from hoodoo.compactor.status.lag import Lag
from hoodoo.compactor.table_salvage import SalvageReport
from hoodoo.compactor.upgrade import AdoptResult
from hoodoo.exports.results import (
    CatalogEntry,
    DeltaExport,
    ExportLag,
    ExportResult,
    IcebergExport,
    RegisteredEntry,
    RegisterResult,
)
from hoodoo.format.transforms import Transform
from hoodoo.ingestion.job import Job
from hoodoo.ingestion.report import BatchReport, CheckReport, IngestReport
from hoodoo.merge.modes import CustomMerge, MergeLike
from hoodoo.readers.changes.changes import Changes
from hoodoo.readers.changes.incremental import IncrementalRows
from hoodoo.readers.cursor import Cursor, PositionLike
from hoodoo.readers.output import Rows
from hoodoo.readers.pin import Pin
from hoodoo.readers.predicate.filter import Params, Where
from hoodoo.readers.scan import Scan
from hoodoo.readers.task import Task
from hoodoo.readers.verify import Report
from hoodoo.table.altering import AlterResult
from hoodoo.table.commit_hooks import CommitEvent, Hook
from hoodoo.table.consumer import Consumer, ConsumerLag
from hoodoo.table.dropping import DropResult
from hoodoo.table.given_schema import SchemaLike
from hoodoo.table.inspecting import SchemaVersion
from hoodoo.table.keys_given import KeysLike
from hoodoo.table.merging import Merge
from hoodoo.table.partition_values import PartitionValues
from hoodoo.table.partitioning import PartitionBy
from hoodoo.table.quarantine import Quarantine, Replayed
from hoodoo.table.results import WriteResult
from hoodoo.table.sink import Sink
from hoodoo.table.table import Table
from hoodoo.timeline.applications import Application
from hoodoo.timeline.columns.alterations import Alteration
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.timeline_listing import Commits, Timeline
from hoodoo.writers.batches.computed import SetLike
from hoodoo.writers.batches.input import ArrowLike
from hoodoo.writers.batches.write_options import BadRowLimits

__all__ = [
    "AdoptResult",
    "AlterResult",
    "Alteration",
    "Application",
    "ApplicationVersion",
    "ArchiveResult",
    "ArrowLike",
    "BadRowLimits",
    "BatchReport",
    "CatalogEntry",
    "Changes",
    "CheckReport",
    "CleanResult",
    "ClusterResult",
    "CommitEvent",
    "Commits",
    "CompactionResult",
    "Consumer",
    "ConsumerLag",
    "Cursor",
    "CustomMerge",
    "DeltaExport",
    "DropResult",
    "Expired",
    "ExportLag",
    "ExportResult",
    "Hook",
    "IcebergExport",
    "IncrementalRows",
    "IngestReport",
    "Job",
    "KeysLike",
    "Lag",
    "Merge",
    "MergeLike",
    "Options",
    "Params",
    "PartitionBy",
    "PartitionValues",
    "Pin",
    "PositionLike",
    "PurgeReport",
    "Quarantine",
    "RegisterResult",
    "RegisteredEntry",
    "Replayed",
    "Report",
    "Rows",
    "SalvageReport",
    "Scan",
    "SchemaLike",
    "SchemaVersion",
    "Services",
    "SetLike",
    "Sink",
    "SweepResult",
    "Table",
    "Task",
    "Timeline",
    "Transform",
    "Where",
    "WriteResult",
]
