"""Entries of Hudi tables in a Hive metastore."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from hoodoo.errors import CatalogRefused
from hoodoo.exports.catalogs.hudi_entries import COMPLETED, OUTPUT_FORMAT, REQUESTED, SERDE, Columns, WantedEntry
from hoodoo.exports.catalogs.metastore import ENTRY_TYPE, StoredEntry, Values, chunks, owner

_NO = object()
_AT_ONCE = 1_000
# Number of partitions per request to the metastore, as in Hudi's sync.
_OF_COLUMNS = re.compile(r"incompatible", re.IGNORECASE)


class HiveEntries:
    def __init__(self, catalog: Any, namespace: str) -> None:
        self._client, self._namespace = catalog._client, namespace

    def _send_request(
        self, name: str, action: str, request: Callable[[Any], Any], expected: tuple[type[Exception], ...] = ()
    ) -> Any:
        # `action` describes the request for error messages. Returns `_NO` for an `expected` exception of the metastore.
        from thrift.Thrift import TException

        with self._client as client:
            try:
                return request(client)
            except expected:
                return _NO
            except TException as problem:  # a `with` block cannot re-raise Thrift exceptions: they take no traceback
                message = getattr(problem, "message", "") or type(problem).__name__
        advice = ""
        if _OF_COLUMNS.search(message):
            advice = (
                " The metastore compares columns by position. Set hive.metastore.disallow.incompatible.col.type."
                "changes=false there, or drop the entry and register the table again."
            )
        identifier = f"{self._namespace}.{name}"
        raise CatalogRefused(
            f"The Hive metastore did not {action} {identifier}: {message.rstrip('. ')}.{advice}", identifier=identifier
        )

    def find(self, name: str) -> StoredEntry | None:
        from hive_metastore.ttypes import NoSuchObjectException

        table = self._send_request(
            name,
            "return",
            lambda client: client.get_table(self._namespace, name),
            (NoSuchObjectException,),
        )
        if table is _NO:
            return None
        descriptor = table.sd
        return StoredEntry(
            (descriptor and descriptor.location) or "",
            (descriptor and descriptor.inputFormat) or "",
            _columns(descriptor.cols if descriptor else ()),
            _columns(table.partitionKeys or ()),
            table.parameters or {},
            table,
        )

    def create_entry(self, name: str, entry: WantedEntry) -> bool:
        from hive_metastore.ttypes import AlreadyExistsException, Table

        table = Table(
            tableName=name,
            dbName=self._namespace,
            owner=owner(),
            sd=_descriptor(entry, entry.location),
            partitionKeys=_fields(entry.keys),
            parameters=dict(entry.parameters),
            tableType=ENTRY_TYPE,
        )
        response = self._send_request(
            name, "create", lambda client: client.create_table(table), (AlreadyExistsException,)
        )
        return response is not _NO

    def update_entry(self, name: str, found: StoredEntry, entry: WantedEntry, parameters: Mapping[str, str]) -> bool:
        from hive_metastore.ttypes import EnvironmentContext, MetaException

        table = found.raw
        properties: dict[str, str] = {}
        for key in (COMPLETED, REQUESTED):
            if key in found.parameters and not properties:
                properties = {"expected_parameter_key": key, "expected_parameter_value": found.parameters[key]}
        if entry.columns != found.columns and entry.keys:
            properties["CASCADE"] = "true"  # also changes the columns of all partitions
        descriptor = _descriptor(entry, found.location)
        table.sd.cols, table.parameters = descriptor.cols, dict(parameters)
        table.sd.outputFormat, table.sd.serdeInfo.serializationLib = (
            descriptor.outputFormat,
            descriptor.serdeInfo.serializationLib,
        )
        table.sd.serdeInfo.parameters = {**(table.sd.serdeInfo.parameters or {}), **entry.serde}

        def asked(client: Any) -> bool:
            try:
                client.alter_table_with_environment_context(
                    self._namespace, name, table, EnvironmentContext(properties=properties)
                )
            except MetaException as problem:
                if properties.get("expected_parameter_key", " ") not in str(problem.message):
                    raise
                return False  # the parameter has another value by now
            return True

        return bool(self._send_request(name, "change", asked))

    def list_partitions(self, name: str) -> set[Values]:
        names = self._send_request(
            name,
            "list the partitions of",
            lambda client: client.get_partition_names(self._namespace, name, -1),
        )
        return {
            tuple(unquote(part.partition("=")[2]) for part in partition_name.split("/")) for partition_name in names
        }

    def add_partitions(self, name: str, entry: WantedEntry, partitions: Mapping[Values, str]) -> None:
        from hive_metastore.ttypes import AddPartitionsRequest, Partition

        for chunk in chunks(list(partitions.items()), _AT_ONCE):
            parts = [
                Partition(
                    values=list(values),
                    dbName=self._namespace,
                    tableName=name,
                    sd=_descriptor(entry, location),
                    parameters={},
                )
                for values, location in chunk
            ]
            request = AddPartitionsRequest(
                dbName=self._namespace, tblName=name, parts=parts, ifNotExists=True, needResult=False
            )
            self._send_request(
                name,
                "add partitions to",
                lambda client, request=request: client.add_partitions_req(request),  # type: ignore[misc]
            )

    def drop_partitions(self, name: str, partitions: Sequence[Values]) -> None:
        from hive_metastore.ttypes import NoSuchObjectException

        for values in partitions:
            self._send_request(
                name,
                "drop a partition of",
                lambda client, values=values: client.drop_partition(self._namespace, name, list(values), False),  # type: ignore[misc]
                (NoSuchObjectException,),
            )


def _columns(fields: Any) -> Columns:
    return tuple((field.name, field.type) for field in fields)


def _fields(columns: Columns) -> list[Any]:
    from hive_metastore.ttypes import FieldSchema

    return [FieldSchema(name=name, type=kind, comment="") for name, kind in columns]


def _descriptor(entry: WantedEntry, location: str) -> Any:
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor

    return StorageDescriptor(
        cols=_fields(entry.columns),
        location=location,
        inputFormat=entry.input_format,
        outputFormat=OUTPUT_FORMAT,
        compressed=False,
        numBuckets=0,
        serdeInfo=SerDeInfo(serializationLib=SERDE, parameters=dict(entry.serde)),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
