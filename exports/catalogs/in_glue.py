"""Metastore entries of Hudi tables in AWS Glue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hoodoo.errors import CatalogRefused
from hoodoo.exports.catalogs.hudi_entries import OUTPUT_FORMAT, SERDE, Columns, WantedEntry
from hoodoo.exports.catalogs.metastore import ENTRY_TYPE, StoredEntry, Values, chunks, owner

_CREATED, _UPDATED, _DELETED = 100, 100, 25
# Maximum number of partitions per request to Glue.
_KEPT = ("Description", "Owner", "Retention", "PartitionKeys")
# Fields of an entry that an update sends back to Glue unchanged.


class GlueMetastore:
    def __init__(self, catalog: Any, namespace: str) -> None:
        self._glue, self._namespace = catalog.glue, namespace

    def find(self, name: str) -> StoredEntry | None:
        try:
            table = self._glue.get_table(DatabaseName=self._namespace, Name=name)["Table"]
        except self._glue.exceptions.EntityNotFoundException:
            return None
        descriptor = table.get("StorageDescriptor", {})
        return StoredEntry(
            descriptor.get("Location", ""),
            descriptor.get("InputFormat", ""),
            _glue_columns(descriptor.get("Columns", ())),
            _glue_columns(table.get("PartitionKeys", ())),
            table.get("Parameters", {}),
            table,
        )

    def create_entry(self, name: str, entry: WantedEntry) -> bool:
        try:
            self._glue.create_table(
                DatabaseName=self._namespace,
                TableInput={"Name": name, **_owner_field(), **_glue_table(entry, entry.location, entry.parameters)},
            )
        except self._glue.exceptions.AlreadyExistsException:
            return False
        return True

    def update_entry(self, name: str, found: StoredEntry, entry: WantedEntry, parameters: Mapping[str, str]) -> bool:
        if entry.columns != found.columns and entry.keys:
            # before the entry, so that the next attempt completes a partial update
            self._set_partition_columns(name, entry)
        kept = {key: found.raw[key] for key in _KEPT if key in found.raw}
        try:
            self._glue.update_table(
                DatabaseName=self._namespace,
                TableInput={"Name": name, **_glue_table(entry, found.location, parameters), **kept},
                SkipArchive=True,
                VersionId=found.raw.get("VersionId", "0"),
            )
        except self._glue.exceptions.ConcurrentModificationException:
            return False
        return True

    def _set_partition_columns(self, name: str, entry: WantedEntry) -> None:
        entries = [
            {
                "PartitionValueList": partition["Values"],
                "PartitionInput": _glue_partition(
                    entry, partition["Values"], partition["StorageDescriptor"]["Location"]
                ),
            }
            for partition in self._pages(name)
        ]
        for chunk in chunks(entries, _UPDATED):
            response = self._glue.batch_update_partition(
                DatabaseName=self._namespace, TableName=name, Entries=list(chunk)
            )
            self._require_no_errors(name, response, "EntityNotFoundException")

    def _pages(self, name: str) -> Iterator[Any]:
        pages = self._glue.get_paginator("get_partitions")
        for page in pages.paginate(DatabaseName=self._namespace, TableName=name, ExcludeColumnSchema=True):
            yield from page["Partitions"]

    def list_partitions(self, name: str) -> set[Values]:
        return {tuple(partition["Values"]) for partition in self._pages(name)}

    def add_partitions(self, name: str, entry: WantedEntry, partitions: Mapping[Values, str]) -> None:
        for chunk in chunks(list(partitions.items()), _CREATED):
            response = self._glue.batch_create_partition(
                DatabaseName=self._namespace,
                TableName=name,
                PartitionInputList=[_glue_partition(entry, values, location) for values, location in chunk],
            )
            self._require_no_errors(name, response, "AlreadyExistsException")

    def drop_partitions(self, name: str, partitions: Sequence[Values]) -> None:
        for chunk in chunks(partitions, _DELETED):
            response = self._glue.batch_delete_partition(
                DatabaseName=self._namespace,
                TableName=name,
                PartitionsToDelete=[{"Values": list(values)} for values in chunk],
            )
            self._require_no_errors(name, response, "EntityNotFoundException")

    def _require_no_errors(self, name: str, response: Any, expected_code: str) -> None:
        for error in response.get("Errors", ()):
            detail = error.get("ErrorDetail", {})
            if detail.get("ErrorCode") != expected_code:
                raise CatalogRefused(
                    f"Glue rejected the partition {error.get('PartitionValues', error.get('PartitionValueList'))} of "
                    f"{self._namespace}.{name}: {detail.get('ErrorCode')} {detail.get('ErrorMessage', '')}".rstrip(),
                    identifier=f"{self._namespace}.{name}",
                )


def _owner_field() -> dict[str, str]:
    # Glue rejects an empty name.
    return {"Owner": name} if (name := owner()) else {}


def _glue_columns(columns: Any) -> Columns:
    return tuple((column["Name"], column.get("Type", "")) for column in columns)


def _glue_table(entry: WantedEntry, location: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    return {
        "TableType": ENTRY_TYPE,
        "StorageDescriptor": _glue_descriptor(entry, location),
        "PartitionKeys": [{"Name": name, "Type": kind} for name, kind in entry.keys],
        "Parameters": dict(parameters),
    }


def _glue_descriptor(entry: WantedEntry, location: str) -> dict[str, Any]:
    return {
        "Columns": [{"Name": name, "Type": kind} for name, kind in entry.columns],
        "Location": location,
        "InputFormat": entry.input_format,
        "OutputFormat": OUTPUT_FORMAT,
        "SerdeInfo": {"SerializationLibrary": SERDE, "Parameters": dict(entry.serde)},
    }


def _glue_partition(entry: WantedEntry, values: Sequence[str], location: str) -> dict[str, Any]:
    return {"Values": list(values), "StorageDescriptor": _glue_descriptor(entry, location)}
