"""Atomic updates of an Iceberg table's metadata location in a catalog, for each type of catalog.

The location is changed only if nobody changed it since it was read. A mover takes the catalog, the entry as pyiceberg
loaded it, hoodoo's newest metadata and their location. It returns the new location of the entry, or '' if another
process was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hoodoo.errors import CatalogRefused
from hoodoo.exports.iceberg.iceberg_schema import Json

Mover = Callable[[Any, Any, Json, str], str]
_OLD, _NEW = "previous_metadata_location", "metadata_location"


def mover_of(catalog: Any) -> Mover:
    """Return the function that updates entries of this type of catalog. Raises CatalogRefused for an unsupported
    type.
    """
    kinds = {one.__name__ for one in type(catalog).__mro__}
    for name, mover in _MOVERS.items():
        if name in kinds:
            return mover
    raise CatalogRefused(
        f"hoodoo does not know how to move the pointer of a {type(catalog).__name__} safely. Kinds that it knows: sql, "
        "glue, hive, rest.",
        identifier="",
    )


def writes_own_metadata(catalog: Any) -> bool:
    """Return whether the catalog has metadata files of its own, instead of the location of hoodoo's file."""
    return mover_of(catalog) is _in_rest


def _in_sql(catalog: Any, there: Any, ours: Json, location: str) -> str:
    """Update the metadata location in a SQL catalog: one UPDATE of the row, on condition that it has the old
    location.
    """
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import update

    namespace, name = _names(catalog, there)
    row = IcebergTables
    statement = (
        update(row)
        .where(
            row.catalog_name == catalog.name,
            row.table_namespace == namespace,
            row.table_name == name,
            row.metadata_location == there.metadata_location,
        )
        .values({_NEW: location, _OLD: there.metadata_location})
    )
    with catalog.engine.begin() as connection:
        return location if connection.execute(statement).rowcount == 1 else ""


def _in_glue(catalog: Any, there: Any, ours: Json, location: str) -> str:
    """Update the metadata location in Glue, on condition that Glue's version number of the table is unchanged."""
    namespace, name = _names(catalog, there)
    found = catalog.glue.get_table(DatabaseName=namespace, Name=name)["Table"]
    if found["Parameters"].get(_NEW) != there.metadata_location:
        return ""
    kept = {key: found[key] for key in _OF_GLUE if key in found}
    parameters = {**found["Parameters"], _NEW: location, _OLD: there.metadata_location}
    try:
        catalog.glue.update_table(
            DatabaseName=namespace,
            TableInput={**kept, "Parameters": parameters},
            SkipArchive=True,
            VersionId=found.get("VersionId", "0"),
        )
    except catalog.glue.exceptions.ConcurrentModificationException:
        return ""
    return location


_OF_GLUE = ("Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys", "TableType")
"""Fields of a Glue table that an update sends back to Glue unchanged."""


def _in_hive(catalog: Any, there: Any, ours: Json, location: str) -> str:
    """Update the metadata location in a Hive metastore, on condition that it still has the old location.

    Metastores before 2.3.10, 3.1.4 and 4.0 ignore the condition. If two exports run at once, the slower one may restore
    an older location. The next export corrects it.
    """
    from hive_metastore.ttypes import EnvironmentContext, MetaException

    namespace, name = _names(catalog, there)
    condition = {"expected_parameter_key": _NEW, "expected_parameter_value": there.metadata_location}
    with catalog._client as client:
        table = catalog._get_hive_table(client, namespace, name)
        if table.parameters.get(_NEW) != there.metadata_location:
            return ""
        table.parameters = {**table.parameters, _NEW: location, _OLD: there.metadata_location}
        try:
            client.alter_table_with_environment_context(
                namespace, name, table, EnvironmentContext(properties=condition)
            )
        except MetaException as problem:  # a `with` block cannot re-raise Thrift exceptions: they take no traceback
            said = str(problem.message)
        else:
            return location
    if _NEW in said:  # the parameter has another value by now
        return ""
    raise CatalogRefused(f"The Hive metastore does not move the entry: {said}", identifier=".".join(there.name()))


def _in_rest(catalog: Any, there: Any, ours: Json, location: str) -> str:
    """Commit the difference between hoodoo's metadata and the table in a REST catalog.

    The server writes its own metadata file for hoodoo's manifests. It checks that the newest snapshot is still the one
    that was read.
    """
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

    new, old = TableMetadataUtil.parse_obj(ours), there.metadata
    if new.format_version < old.format_version:
        raise CatalogRefused(
            f"The entry has a newer version of the Iceberg format: expected at most {new.format_version}, got "
            f"{old.format_version}. Drop the entry, then export again.",
            identifier=".".join(there.name()),
        )
    numbers, unknown = _schema_numbers(new.schemas, old.schemas)
    updates: list[Any] = [AddSchemaUpdate(schema=schema) for schema in unknown]
    if numbers[new.current_schema_id] != old.current_schema_id:
        updates.append(SetCurrentSchemaUpdate(schema_id=numbers[new.current_schema_id]))
    if new.location != old.location:
        updates.append(SetLocationUpdate(location=new.location))
    have = {snapshot.snapshot_id for snapshot in old.snapshots}
    wanted = {snapshot.snapshot_id for snapshot in new.snapshots}
    fresh = [_under(one, numbers) for one in new.snapshots if one.snapshot_id not in have]
    # snapshots from before the upgrade have no row ids, which the server requires after it
    updates += [AddSnapshotUpdate(snapshot=one) for one in fresh if one.first_row_id is None]
    if new.format_version > old.format_version:
        updates.append(UpgradeFormatVersionUpdate(format_version=new.format_version))
    updates += [AddSnapshotUpdate(snapshot=one) for one in fresh if one.first_row_id is not None]
    if new.current_snapshot_id != old.current_snapshot_id:
        updates.append(SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=new.current_snapshot_id))
    if gone := sorted(have - wanted):
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=gone))
    said = {key: value for key, value in new.properties.items() if old.properties.get(key) != value}
    updates.append(SetPropertiesUpdate(updates=said))
    if dropped := sorted(key for key in old.properties.keys() - new.properties.keys() if key.startswith("hoodoo.")):
        updates.append(RemovePropertiesUpdate(removals=dropped))
    conditions = (
        AssertTableUUID(uuid=old.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=old.current_snapshot_id),
    )
    try:
        return str(catalog.commit_table(there, conditions, tuple(updates)).metadata_location)
    except CommitFailedException:
        return ""


def _schema_numbers(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[dict[int, int], list[Any]]:
    """Return the REST server's id for each of hoodoo's schemas, and the schemas that the server does not know.

    The server assigns the next id to a new schema, whatever id the schema has.
    """
    numbers: dict[int, int] = {}
    unknown = []
    highest = max((schema.schema_id for schema in theirs), default=-1)
    for schema in ours:
        same = [other.schema_id for other in theirs if other == schema]
        if not same:
            highest += 1
            unknown.append(schema)
        numbers[schema.schema_id] = same[0] if same else highest
    return numbers, unknown


def _under(snapshot: Any, numbers: Mapping[int, int]) -> Any:
    """Return a copy of a snapshot that refers to its schema by the server's schema id."""
    return snapshot.model_copy(update={"schema_id": numbers.get(snapshot.schema_id)})


def _names(catalog: Any, there: Any) -> tuple[str, str]:
    *namespace, name = there.name()
    return ".".join(namespace), name


_MOVERS: dict[str, Mover] = {
    "SqlCatalog": _in_sql,
    "GlueCatalog": _in_glue,
    "HiveCatalog": _in_hive,
    "RestCatalog": _in_rest,
}
"""Functions that update an entry, by the name of pyiceberg's catalog class."""
