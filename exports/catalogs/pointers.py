"""Atomic updates of a catalog's pointer to the metadata file.

The location is changed only if nobody changed it since it was read. A mover receives the catalog, the entry as
pyiceberg loaded it, hoodoo's newest metadata, and the location of this metadata. It returns the new location of the
entry, or '' if another process was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hoodoo.errors import CatalogRefused
from hoodoo.exports.iceberg.iceberg_schema import Json

Mover = Callable[[Any, Any, Json, str], str]
_OLD, _NEW = "previous_metadata_location", "metadata_location"


def mover_of(catalog: Any) -> Mover:
    kinds = {base_class.__name__ for base_class in type(catalog).__mro__}
    for name, mover in _MOVERS.items():
        if name in kinds:
            return mover
    raise CatalogRefused(
        f"Entries of a {type(catalog).__name__} cannot be updated atomically by hoodoo: expected a catalog of type "
        "sql, glue, hive or rest. Use a catalog of one of these types.",
        identifier="",
    )


def catalog_writes_metadata(catalog: Any) -> bool:
    return mover_of(catalog) is _move_in_rest


def _move_in_sql(catalog: Any, entry: Any, ours: Json, location: str) -> str:
    # The update requires that the row still has the old location.
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import update

    namespace, name = _names(catalog, entry)
    row = IcebergTables
    statement = (
        update(row)
        .where(
            row.catalog_name == catalog.name,
            row.table_namespace == namespace,
            row.table_name == name,
            row.metadata_location == entry.metadata_location,
        )
        .values({_NEW: location, _OLD: entry.metadata_location})
    )
    with catalog.engine.begin() as connection:
        return location if connection.execute(statement).rowcount == 1 else ""


def _move_in_glue(catalog: Any, entry: Any, ours: Json, location: str) -> str:
    # The update requires that Glue's version number of the table is unchanged.
    namespace, name = _names(catalog, entry)
    glue_table = catalog.glue.get_table(DatabaseName=namespace, Name=name)["Table"]
    if glue_table["Parameters"].get(_NEW) != entry.metadata_location:
        return ""
    kept = {key: glue_table[key] for key in _OF_GLUE if key in glue_table}
    parameters = {**glue_table["Parameters"], _NEW: location, _OLD: entry.metadata_location}
    try:
        catalog.glue.update_table(
            DatabaseName=namespace,
            TableInput={**kept, "Parameters": parameters},
            SkipArchive=True,
            VersionId=glue_table.get("VersionId", "0"),
        )
    except catalog.glue.exceptions.ConcurrentModificationException:
        return ""
    return location


_OF_GLUE = ("Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys", "TableType")
# Fields of a Glue table that an update sends back to Glue unchanged.


def _update_hive_location(catalog: Any, entry: Any, ours: Json, location: str) -> str:
    """Update the metadata location in a Hive metastore.

    The condition of the update is that the metastore still has the old location. Metastores before 2.3.10, 3.1.4 and
    4.0 ignore the condition. If two exports run at the same time, the slower export may restore an older location. The
    next export corrects it.
    """
    from hive_metastore.ttypes import EnvironmentContext, MetaException

    namespace, name = _names(catalog, entry)
    condition = {"expected_parameter_key": _NEW, "expected_parameter_value": entry.metadata_location}
    with catalog._client as client:
        table = catalog._get_hive_table(client, namespace, name)
        if table.parameters.get(_NEW) != entry.metadata_location:
            return ""
        table.parameters = {**table.parameters, _NEW: location, _OLD: entry.metadata_location}
        try:
            client.alter_table_with_environment_context(
                namespace, name, table, EnvironmentContext(properties=condition)
            )
        except MetaException as problem:  # a `with` block cannot re-raise Thrift exceptions: they take no traceback
            message = str(problem.message)
        else:
            return location
    if _NEW in message:  # the parameter has another value by now
        return ""
    raise CatalogRefused(
        f"The Hive metastore rejected the update of the entry: {message}. Check the metastore, then export again.",
        identifier=".".join(entry.name()),
    )


def _move_in_rest(catalog: Any, entry: Any, ours: Json, location: str) -> str:
    # The server writes its own metadata file for hoodoo's manifests. It checks that the newest snapshot is unchanged.
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.update import (
        AddSchemaUpdate,
        AddSnapshotUpdate,
        AssertRefSnapshotId,
        AssertTableUUID,
        RemovePropertiesUpdate,
        RemoveSnapshotsUpdate,
        SetCurrentSchemaUpdate,
        SetLocationUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
        UpgradeFormatVersionUpdate,
    )

    new, old = TableMetadataUtil.parse_obj(ours), entry.metadata
    if new.format_version < old.format_version:
        raise CatalogRefused(
            f"The catalog entry has a newer version of the Iceberg format: expected at most {new.format_version}, "
            f"got {old.format_version}. Drop the entry, then export again.",
            identifier=".".join(entry.name()),
        )
    schema_ids, new_schemas = _schema_ids_of_server(new.schemas, old.schemas)
    updates: list[Any] = [AddSchemaUpdate(schema=schema) for schema in new_schemas]
    if schema_ids[new.current_schema_id] != old.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=schema_ids[new.current_schema_id]))
    if new.location != old.location:
        updates.append(SetLocationUpdate(location=new.location))
    old_ids = {snapshot.snapshot_id for snapshot in old.snapshots}
    new_ids = {snapshot.snapshot_id for snapshot in new.snapshots}
    new_snapshots = [
        _with_schema_id_of_server(snapshot, schema_ids)
        for snapshot in new.snapshots
        if snapshot.snapshot_id not in old_ids
    ]
    # snapshots from before the upgrade have no row ids, which the server requires after it
    updates += [AddSnapshotUpdate(snapshot=snapshot) for snapshot in new_snapshots if snapshot.first_row_id is None]
    if new.format_version > old.format_version:
        updates.append(UpgradeFormatVersionUpdate(format_version=new.format_version))
    updates += [AddSnapshotUpdate(snapshot=snapshot) for snapshot in new_snapshots if snapshot.first_row_id is not None]
    if new.current_snapshot_id != old.current_snapshot_id:
        updates.append(SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=new.current_snapshot_id))
    if removed_ids := sorted(old_ids - new_ids):
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=removed_ids))
    changed_properties = {key: value for key, value in new.properties.items() if old.properties.get(key) != value}
    updates.append(SetPropertiesUpdate(updates=changed_properties))
    if removed_properties := sorted(
        key for key in old.properties.keys() - new.properties.keys() if key.startswith("hoodoo.")
    ):
        updates.append(RemovePropertiesUpdate(removals=removed_properties))
    conditions = (
        AssertTableUUID(uuid=old.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=old.current_snapshot_id),
    )
    try:
        return str(catalog.commit_table(entry, conditions, tuple(updates)).metadata_location)
    except CommitFailedException:
        return ""


def _schema_ids_of_server(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[dict[int, int], list[Any]]:
    # The server assigns the next free id to a new schema, regardless of the schema's own id. Returns the server's ids,
    # and the schemas that the server does not have.
    numbers: dict[int, int] = {}
    new_schemas = []
    highest = max((schema.schema_id for schema in theirs), default=-1)
    for schema in ours:
        matching = [other.schema_id for other in theirs if other == schema]
        if not matching:
            highest += 1
            new_schemas.append(schema)
        numbers[schema.schema_id] = matching[0] if matching else highest
    return numbers, new_schemas


def _with_schema_id_of_server(snapshot: Any, numbers: Mapping[int, int]) -> Any:
    return snapshot.model_copy(update={"schema_id": numbers.get(snapshot.schema_id)})


def _names(catalog: Any, entry: Any) -> tuple[str, str]:
    *namespace, name = entry.name()
    return ".".join(namespace), name


_MOVERS: dict[str, Mover] = {
    "SqlCatalog": _move_in_sql,
    "GlueCatalog": _move_in_glue,
    "HiveCatalog": _update_hive_location,
    "RestCatalog": _move_in_rest,
}
# The keys are the names of pyiceberg's catalog classes.
