"""Avro schemas of Hudi's timeline files.

Field names, order, types and defaults are those of Apache Hudi (docs/format.md section 5), because readers find records
and fields by name. The functions return new plain JSON values, for `json.dumps` or `fastavro.parse_schema`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = Any
"""Avro schema or part of a schema, as `json.loads` returns it."""

NAMESPACE = "org.apache.hudi.avro.model"
_JAVA = {"avro.java.string": "String"}
_REQUIRED = object()


def _string() -> Json:
    return {"type": "string", **_JAVA}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _map(values: Json) -> Json:
    return {"type": "map", "values": values, **_JAVA}


def _record(name: str, *fields: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields)}


def _top(name: str, *fields: Json) -> Json:
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def _field(name: str, type_: Json, default: Json = _REQUIRED) -> Json:
    return {"name": name, "type": type_} if default is _REQUIRED else {"name": name, "type": type_, "default": default}


def _optional(name: str, type_: Json) -> Json:
    return _field(name, ["null", type_], None)


def _text(name: str) -> Json:
    return _optional(name, _string())


def _texts(name: str) -> Json:
    return _optional(name, _array(_string()))


def _properties(name: str) -> Json:
    return _optional(name, _map(_string()))


def _longs(*names: str) -> list[Json]:
    return [_optional(name, "long") for name in names]


def _version() -> Json:
    return _field("version", ["int", "null"], 1)


def _write_stat() -> Json:
    runtime = _record("HoodieRuntimeStats", *_longs("totalScanTime", "totalCreateTime", "totalUpsertTime"))
    return _record(
        "HoodieWriteStat",
        *map(_text, ("fileId", "path", "prevCommit")),
        *_longs("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors"),
        _text("partitionPath"),
        *_longs("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts", "totalLogBlocks"),
        *_longs("totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes"),
        _optional("logVersion", "int"),
        *_longs("logOffset"),
        _text("baseFile"),
        _optional("logFiles", _array(_string()) | {"default": None}),
        _optional("cdcStats", _map("long") | {"default": None}),
        _text("prevBaseFile"),
        *_longs("minEventTime", "maxEventTime"),
        _optional("runtimeStats", runtime),
        *_longs("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"),
        _text("tempPath"),
        *_longs("numUpdates"),
    )


def _commit_fields() -> list[Json]:
    return [
        _optional("partitionToWriteStats", _map(_array(_write_stat()))),
        _optional("compacted", "boolean"),
        _optional("extraMetadata", _map(_string()) | {"default": None}),
        _version(),
        _text("operationType"),
    ]


def _commit() -> Json:
    return _top("HoodieCommitMetadata", *_commit_fields())


def _replace_commit() -> Json:
    replaced = _optional("partitionToReplaceFileIds", _map(_array(_string())))
    return _top("HoodieReplaceCommitMetadata", *_commit_fields(), replaced)


def _strategy(name: str, class_field: str) -> Json:
    return _record(name, _text(class_field), _properties("strategyParams"), _version())


def _compaction_plan() -> Json:
    operation = _record(
        "HoodieCompactionOperation",
        _field("baseInstantTime", ["null", _string()]),
        _texts("deltaFilePaths"),
        _text("dataFilePath"),
        _field("fileId", ["null", _string()]),
        _text("partitionPath"),
        _optional("metrics", _map("double")),
        _text("bootstrapFilePath"),
    )
    return _top(
        "HoodieCompactionPlan",
        _optional("operations", _array(operation)),
        _properties("extraMetadata"),
        _version(),
        _optional("strategy", _strategy("HoodieCompactionStrategy", "compactorClassName")),
        _field("preserveHoodieMetadata", ["boolean", "null"], False),
        _texts("missingSchedulePartitions"),
    )


def _clustering_plan() -> Json:
    slice_info = _record(
        "HoodieSliceInfo",
        _text("dataFilePath"),
        _texts("deltaFilePaths"),
        _field("fileId", ["null", _string()]),
        *map(_text, ("partitionPath", "bootstrapFilePath")),
        _version(),
    )
    group = _record(
        "HoodieClusteringGroup",
        _optional("slices", _array(slice_info)),
        _optional("metrics", _map("double")),
        _field("numOutputFileGroups", ["int", "null"], 1),
        _properties("extraMetadata"),
        _version(),
    )
    return _record(
        "HoodieClusteringPlan",
        _optional("inputGroups", _array(group)),
        _optional("strategy", _strategy("HoodieClusteringStrategy", "strategyClassName")),
        _properties("extraMetadata"),
        _version(),
        _optional("preserveHoodieMetadata", "boolean"),
        _texts("missingSchedulePartitions"),
    )


def _requested_replace() -> Json:
    plan = _optional("clusteringPlan", _clustering_plan())
    return _top(
        "HoodieRequestedReplaceMetadata", _text("operationType"), plan, _properties("extraMetadata"), _version()
    )


def _instant_info() -> Json:
    return _record("HoodieInstantInfo", _field("commitTime", _string()), _field("action", _string()))


def _rollback_plan() -> Json:
    request = _record(
        "HoodieRollbackRequest",
        _field("partitionPath", _string()),
        _text("fileId"),
        _text("latestBaseInstant"),
        _field("filesToBeDeleted", _array(_string()) | {"default": []}, []),
        _optional("logBlocksToBeDeleted", _map("long")),
    )
    requests = _optional("RollbackRequests", _array(request))
    return _top("HoodieRollbackPlan", _optional("instantToRollback", _instant_info()), requests, _version())


def _rollback_metadata() -> Json:
    partition = _record(
        "HoodieRollbackPartitionMetadata",
        _field("partitionPath", _string()),
        _field("successDeleteFiles", _array(_string())),
        _field("failedDeleteFiles", _array(_string())),
        _optional("rollbackLogFiles", _map("long")),
        _optional("logFilesFromFailedCommit", _map("long")),
    )
    return _top(
        "HoodieRollbackMetadata",
        _field("startRollbackTime", _string()),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("commitsRollback", _array(_string())),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _field("instantsRollback", _array(_instant_info()) | {"default": []}, []),
    )


def _cleaner_plan() -> Json:
    instant = _record("HoodieActionInstant", *(_field(name, _string()) for name in ("timestamp", "action", "state")))
    file_info = _record("HoodieCleanFileInfo", _text("filePath"), _optional("isBootstrapBaseFile", "boolean"))
    return _top(
        "HoodieCleanerPlan",
        _optional("earliestInstantToRetain", instant),
        _field("lastCompletedCommitTimestamp", _string(), ""),
        _field("policy", _string()),
        _optional("filesToBeDeletedPerPartition", _map(_array(_string()))),
        _version(),
        _optional("filePathsToBeDeletedPerPartition", _map(_array(file_info))),
        _texts("partitionsToBeDeleted"),
        _properties("extraMetadata"),
    )


def _clean_metadata() -> Json:
    partition = _record(
        "HoodieCleanPartitionMetadata",
        _field("partitionPath", _string()),
        _field("policy", _string()),
        *(
            _field(name, _array(_string()))
            for name in ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")
        ),
        _optional("isPartitionDeleted", "boolean"),
    )
    return _top(
        "HoodieCleanMetadata",
        _field("startCleanTime", _string()),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("earliestCommitToRetain", _string()),
        _field("lastCompletedCommitTimestamp", _string(), ""),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata")),
        _properties("extraMetadata"),
    )


def _savepoint() -> Json:
    partition = _record(
        "HoodieSavepointPartitionMetadata",
        _field("partitionPath", _string()),
        _field("savepointDataFile", _array(_string())),
    )
    return _top(
        "HoodieSavepointMetadata",
        _field("savepointedBy", _string()),
        _field("savepointedAt", "long"),
        _field("comments", _string()),
        _field("partitionMetadata", _map(partition)),
        _version(),
    )


SCHEMAS: dict[str, Callable[[], Json]] = {
    "HoodieCommitMetadata": _commit,
    "HoodieReplaceCommitMetadata": _replace_commit,
    "HoodieCompactionPlan": _compaction_plan,
    "HoodieRequestedReplaceMetadata": _requested_replace,
    "HoodieRollbackPlan": _rollback_plan,
    "HoodieRollbackMetadata": _rollback_metadata,
    "HoodieCleanerPlan": _cleaner_plan,
    "HoodieCleanMetadata": _clean_metadata,
    "HoodieSavepointMetadata": _savepoint,
}
"""Function that builds the schema, by kind of record."""
