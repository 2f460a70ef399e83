"""Metadata of commits in Hudi's timeline.

All content is derived from the slot, so that every process that publishes a slot writes the same content. The fields
equal those in files that Hudi writes (docs/format.md 4.3 and 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.timeline.slots.slot import BASE, DataFile, PlannedGroup, Slot
from hoodoo.timeline.slots.streamed import StreamerPosition
from hoodoo.timeline.views.view import FileGroup, View

_ZEROS = (
    "totalWriteErrors",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "numUpdates",
    "totalLogRecords",
    "totalLogBlocks",
    "totalUpdatedRecordsCompacted",
)
_MORE_ZEROS = ("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted")
MERGED_LOGS = "hoodoo.merged"
"""Metadata key of a log compaction for the JSON list of merged logs, which may be deleted."""
REACHED = "hoodoo.ingest"
"""Commit metadata key for a JSON object with an application, its version and its source position."""
PLACE = "streamer.checkpoint.key.v2"  # the value is never '', which means the beginning
"""Commit metadata key for the checkpoint of Apache Hudi's streamer."""
_OPERATIONS = {"RESTORE": "INSERT_OVERWRITE_TABLE", "SALVAGE": "CLUSTER"}  # operations that do not exist in Hudi
_NOTHING_COUNTED = dict.fromkeys((*_ZEROS, *_MORE_ZEROS), 0)


def _write_stat(
    file: DataFile, instant: str, logs_compacted: int = 0, below: FileGroup | None = None
) -> dict[str, Any]:
    # `below` is the file group that the file was added to, which Hudi's change queries need for a log.
    previous = parse_data_file(file.previous.rpartition("/")[2]) if file.previous else None
    stat: dict[str, Any] = {
        **_NOTHING_COUNTED,
        "fileId": file.file_id,
        "path": file.path,
        "partitionPath": file.partition,
        "numWrites": file.rows if file.kind == BASE else file.updates,
        "numInserts": file.inserts,
        "numUpdateWrites": file.updates,
        "numDeletes": file.deletes,
        "totalWriteBytes": file.size,
        "fileSizeInBytes": file.size,
        "totalLogFilesCompacted": logs_compacted,
        "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": 0},
    }
    if file.kind == BASE:
        logged = {"cdcStats": {path: size for path, (size, _) in file.changes.items()}} if file.changes else {}
        return (
            stat
            | {
                "prevCommit": previous.instant if previous else "null",
                "prevBaseFile": file.previous.rpartition("/")[2] or None,
            }
            | logged
        )
    base = below.base.file.name if below and below.base else ""
    logs = [log.file.name for log in below.logs] if below else []
    return stat | {
        "prevCommit": instant,
        "logVersion": 1,
        "logOffset": 0,
        "baseFile": base,
        "logFiles": [*logs, file.name],
    }


def _by_partition(stats: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    stats_of: dict[str, list[dict[str, Any]]] = {}
    for stat in stats:
        stats_of.setdefault(stat["partitionPath"], []).append(stat)
    return stats_of


def encode_commit_metadata(
    slot: Slot, schema_text: str, planned: Iterable[PlannedGroup] = (), before: View | None = None
) -> bytes:
    """Encode the metadata of a completed commit.

    Args:
        slot: The slot of the commit.
        schema_text: The table's Avro schema as JSON.
        planned: The file groups of a compaction.
        before: The view before the slot, for a write to a table with a change log. Hudi's change queries compare new
            logs with it.
    """
    logs = {group.file_id: len(group.logs) for group in planned}

    def stat(file: DataFile) -> dict[str, Any]:
        return _write_stat(
            file,
            slot.instant,
            logs.get(file.file_id, 0),
            before.group(file.partition, file.file_id) if before and slot.writes_rows else None,
        )

    record: dict[str, Any] = {
        "partitionToWriteStats": _by_partition(map(stat, slot.files)),
        "compacted": slot.action == "compaction",
        "extraMetadata": {"schema": schema_text} | _extra_metadata(slot),
        "version": None,
        "operationType": _OPERATIONS.get(slot.operation, slot.operation),
    }
    if slot.action != "replacecommit":
        return timeline_avro.encode_timeline_file("HoodieCommitMetadata", record)
    replaced_ids: dict[str, list[str]] = {}
    for partition, file_id in slot.replaced:
        replaced_ids.setdefault(partition, []).append(file_id)
    return timeline_avro.encode_timeline_file(
        "HoodieReplaceCommitMetadata", record | {"partitionToReplaceFileIds": replaced_ids}
    )


def _extra_metadata(slot: Slot) -> dict[str, str]:
    entries = {MERGED_LOGS: json.dumps(slot.merged)} if slot.merged else {}
    if slot.transaction and slot.reached:
        application, number = slot.transaction
        progress = {"app": application, "n": number, "position": slot.reached}
        entries[REACHED] = json.dumps(progress, separators=(",", ":"), sort_keys=True)
    if slot.streamed:
        entries[PLACE] = StreamerPosition(*slot.streamed).text
    return entries


def encode_metadata_table_commit(log: DataFile, instant: str, schema_text: str) -> bytes:
    record: dict[str, Any] = {
        "partitionToWriteStats": {log.partition: [_write_stat(log, instant)]},
        "compacted": False,
        "extraMetadata": {"schema": schema_text},
        "version": None,
        "operationType": "UPSERT_PREPPED",
    }
    return timeline_avro.encode_timeline_file("HoodieCommitMetadata", record)


def encode_inflight_file(operation: str, groups: Iterable[tuple[str, str, str, int, int]] = ()) -> bytes:
    """Encode the inflight file of a running write.

    Args:
        operation: The operation, such as 'UPSERT'.
        groups: Tuples (partition, file id or '', base instant, inserts, updates) of the planned files.
    """
    stats: list[dict[str, Any]] = [
        {**_NOTHING_COUNTED, "numWrites": 0, "numDeletes": 0, "totalWriteBytes": 0, "fileSizeInBytes": 0}
        | {
            "fileId": file_id,
            "path": None,
            "prevCommit": base or "null",
            "numInserts": inserts,
            "numUpdateWrites": updates,
            "partitionPath": partition,
        }
        for partition, file_id, base, inserts, updates in groups
    ]
    by_partition = {
        partition: [{**stat, "partitionPath": None} for stat in partition_stats]
        for partition, partition_stats in _by_partition(stats).items()
    }
    record = {
        "partitionToWriteStats": by_partition,
        "compacted": False,
        "extraMetadata": {},
        "version": None,
        "operationType": operation,
    }
    return timeline_avro.encode_timeline_file("HoodieCommitMetadata", record)


def requested_replacecommit(operation: str) -> bytes:
    operation_type = operation if operation == "DELETE_PARTITION" else None
    record: dict[str, Any] = {
        "operationType": operation_type,
        "clusteringPlan": None,
        "extraMetadata": {} if operation_type else None,
        "version": 1 if operation_type else None,
    }
    return timeline_avro.encode_timeline_file("HoodieRequestedReplaceMetadata", record)


def compaction_plan(groups: Iterable[PlannedGroup], sizes: Mapping[str, int]) -> bytes:
    mib = float(1 << 20)
    operations = []
    for group in groups:
        log_mib, base_mib = sum(sizes.get(path, 0) for path in group.logs) / mib, sizes.get(group.base, 0) / mib
        base = parse_data_file(group.base.rpartition("/")[2]) if group.base else None
        operations.append(
            {
                "baseInstantTime": base.instant if base else None,
                "deltaFilePaths": [path.rpartition("/")[2] for path in group.logs],
                "dataFilePath": group.base.rpartition("/")[2] or None,
                "fileId": group.file_id,
                "partitionPath": group.partition,
                "metrics": {
                    "TOTAL_LOG_FILES": float(len(group.logs)),
                    "TOTAL_LOG_FILES_SIZE": log_mib * mib,
                    "TOTAL_IO_READ_MB": log_mib + base_mib,
                    "TOTAL_IO_WRITE_MB": base_mib,
                    "TOTAL_IO_MB": log_mib + 2 * base_mib,
                },
                "bootstrapFilePath": None,
            }
        )
    record = {
        "operations": operations,
        "extraMetadata": {},
        "version": 2,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": [],
    }
    return timeline_avro.encode_timeline_file("HoodieCompactionPlan", record)


def encode_savepoint(slot: Slot, kept: View) -> bytes:
    """Encode a savepoint for Hudi's timeline.

    The file lists the names of the snapshot's files by partition: the base file first, and then the logs, newest first.
    """
    partitions = {
        partition: {
            "partitionPath": partition,
            "savepointDataFile": [
                path.rpartition("/")[2]
                for group in kept.groups([partition])
                for entry in (*([group.base] if group.base else ()), *reversed(group.logs))
                for path in entry.file.paths
            ],
        }
        for partition in kept.partitions
    }
    record = {
        "savepointedBy": slot.writer,
        "savepointedAt": slot.completed_at,
        "comments": slot.savepoint,
        "partitionMetadata": partitions,
        "version": 1,
    }
    return timeline_avro.encode_timeline_file("HoodieSavepointMetadata", record)


def _victims_by_partition(slot: Slot) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for path, partition in slot.victims:
        paths.setdefault(partition, []).append(path)
    return paths


def encode_clean_plan(slot: Slot, earliest: Slot, url: Callable[[str], str]) -> bytes:
    """Encode the plan of a clean operation.

    `earliest` is the first slot that stays readable. `url` converts a path to an absolute path, which Hudi requires
    here.
    """
    record = {
        "earliestInstantToRetain": {"timestamp": earliest.instant, "action": earliest.action, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": earliest.instant,
        "policy": "KEEP_LATEST_COMMITS",
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": url(path), "isBootstrapBaseFile": False} for path in paths]
            for partition, paths in _victims_by_partition(slot).items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": {},
    }
    return timeline_avro.encode_timeline_file("HoodieCleanerPlan", record)


def clean_metadata(slot: Slot, earliest: Slot) -> bytes:
    names = {
        partition: [path.rpartition("/")[2] for path in paths]
        for partition, paths in _victims_by_partition(slot).items()
    }
    record = {
        "startCleanTime": slot.instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": len(slot.victims),
        "earliestCommitToRetain": earliest.instant,
        "lastCompletedCommitTimestamp": earliest.instant,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": "KEEP_LATEST_COMMITS",
                "deletePathPatterns": file_names,
                "successDeleteFiles": file_names,
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, file_names in names.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }
    return timeline_avro.encode_timeline_file("HoodieCleanMetadata", record)


def rollback_plan(slot: Slot, files: Mapping[str, list[str]]) -> bytes:
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": paths,
            "logBlocksToBeDeleted": {},
        }
        for partition, paths in files.items()
    ]
    record = {
        "instantToRollback": {"commitTime": slot.target, "action": slot.target_action},
        "RollbackRequests": requests,
        "version": 1,
    }
    return timeline_avro.encode_timeline_file("HoodieRollbackPlan", record)


def rollback_metadata(slot: Slot, files: Mapping[str, list[str]]) -> bytes:
    record = {
        "startRollbackTime": instant_of_ms(slot.completed_at),
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, files.values())),
        "commitsRollback": [slot.target],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": paths,
                "failedDeleteFiles": [],
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition, paths in files.items()
        },
        "version": 1,
        "instantsRollback": [{"commitTime": slot.target, "action": slot.target_action}],
    }
    return timeline_avro.encode_timeline_file("HoodieRollbackMetadata", record)
