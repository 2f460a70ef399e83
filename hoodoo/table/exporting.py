"""Methods of `Table` for exports and catalogs.

They check arguments and call `hoodoo.exports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hoodoo.arguments import check_allowed_value, check_flag
from hoodoo.errors import OptionError
from hoodoo.hints import suggest_for_methods
from hoodoo.redact import printable
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.properties.table_options import EXPORT_MODES

if TYPE_CHECKING:
    from hoodoo.exports.results import ExportResult, RegisterResult
    from hoodoo.timeline.properties.config import TableConfig
    from hoodoo.timeline.views.view import View


@suggest_for_methods
class Exportable:
    """Base class with the export methods of `Table`."""

    handle: TableHandle

    def export(
        self,
        *,
        delta: bool = False,
        iceberg: bool = False,
        mode: str | None = None,
        history: str = "newest",
        iceberg_version: int | None = None,
        rebuild: bool = False,
        change_feed: bool = False,
        register: str | None = None,
        catalog: object = None,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> ExportResult:
        """Export the table as a Delta or Iceberg table.

        The metadata references the base files of the table, so rows are not copied. The export includes all commits up
        to the newest slot. Later commits become visible with the next export. See docs/other-engines.md.

        Args:
            delta: True writes a Delta log to the folder `_delta_log`, with one version for each slot that changed base
                files. Default False.
            iceberg: True writes Iceberg metadata to the folder `metadata`, with one snapshot for each export. With
                `history='all'`, one snapshot for each slot that changed base files. Default False.
            mode: The rows of a merge-on-read table that readers see. 'read_optimized': the rows of its base files, as
                of the last compaction of each file group. 'merged': the current rows of the table. For 'merged', the
                export marks base file rows that log files replaced or deleted, and writes the new rows to small files.
                None (default): the option `export_mode`, whose default is 'read_optimized'.
            history: The slots available for Iceberg time travel. 'newest' (default): only exported slots. 'all': also
                every slot that changed base files since the newest Iceberg snapshot, or since the oldest readable slot
                for a first export. 'all' cannot be used with mode 'merged'.
            iceberg_version: The version of the Iceberg format, 2 or 3. Version 3 has deletion vectors and row ids, and
                fewer engines can read it. An export with version 3 upgrades metadata of version 2. Only
                `rebuild=True` replaces metadata of version 3 with version 2. None (default): the version of the
                existing export, or 2 without one.
            rebuild: True rebuilds the metadata even if another writer changed it. Default False.
            change_feed: True enables the change data feed of the Delta log. Delta readers derive the inserted and
                deleted rows between two versions from it. Later exports keep it enabled. Mode 'merged' does not
                support it. Default False.
            register: The name 'namespace.table' of the Iceberg table in a catalog. The catalog entry is created, or
                updated to the newest metadata. Requires `hoodoo[iceberg]`. None (default): no catalog.
            catalog: A pyiceberg catalog, or the name of a catalog in the pyiceberg configuration. None (default): the
                catalog named 'default'.
            catalog_properties: Properties of a named catalog, which override those in the configuration, for example
                `{"type": "sql", "uri": "sqlite:///lake.db"}`. Default: no properties.

        Returns:
            The exported slot, and the metadata written for each format.

        Raises:
            OptionError: Neither `delta` nor `iceberg` is True, `mode`, `history` or `iceberg_version` is unknown,
                `history='all'` or a change data feed is used with mode 'merged', `iceberg_version` is older than the
                existing export, or `change_feed` is used without `delta`. Nothing was written.
            SchemaError: A format does not support a column. Nothing was written.
            PartitionValueError: A partition folder has the same name as the metadata folder. Nothing was written.
            ForeignExport: Another writer committed to the metadata, or the metadata belongs to another table.
            EngineError: `register` needs pyiceberg, which is not installed. Nothing was written.
            CatalogRefused: The catalog has a different table with this name, or the namespace does not exist. The
                export is complete.
            UnsupportedTable: Another engine made commits that hoodoo cannot adopt.
        """
        if not check_flag("delta", delta) | check_flag("iceberg", iceberg):
            raise OptionError(
                "Nothing to export. Pass delta=True (--delta), iceberg=True (--iceberg) or both. To write rows "
                "to a file, use scan() (hoodoo scan PATH --output FILE).",
                option="delta",
            )
        if check_flag("change_feed", change_feed) and not delta:
            raise OptionError(
                "change_feed enables the change data feed of the Delta export. Also pass delta=True (--delta).",
                option="change_feed",
            )
        from hoodoo.exports import export as exporting
        from hoodoo.exports.request import HISTORIES, ICEBERG_VERSIONS

        check_allowed_value("history", history, HISTORIES)
        if iceberg_version is not None:
            if not isinstance(iceberg_version, int) or iceberg_version not in ICEBERG_VERSIONS:
                raise OptionError(
                    f"iceberg_version is invalid: expected 2 or 3, got {printable(iceberg_version)}. Pass one of these "
                    "versions, or None.",
                    option="iceberg_version",
                )
            if not iceberg:
                raise OptionError(
                    "iceberg_version is given without an Iceberg export: expected iceberg=True, got False. Pass "
                    "iceberg=True (--iceberg), or leave out iceberg_version (--iceberg-version).",
                    option="iceberg_version",
                )
        if mode is not None:
            check_allowed_value("mode", mode, EXPORT_MODES)
        registration = None
        if register is None and (catalog is not None or catalog_properties):
            raise OptionError(
                "A catalog is given without a table name. Pass register='namespace.table' (--register).",
                option="register",
            )
        if register is not None:
            from hoodoo.exports.catalogs.opening import (
                create_catalog_opener,
                require_dotted_identifier,
                require_existing_namespace,
            )
            from hoodoo.exports.catalogs.registration import IcebergRegistration

            if not iceberg:
                raise OptionError(
                    "register creates an entry for the Iceberg export in a catalog. Also pass iceberg=True "
                    "(--iceberg).",
                    option="register",
                )
            identifier = require_dotted_identifier("register", register)
            registration = IcebergRegistration(identifier, create_catalog_opener(catalog, catalog_properties)())
            require_existing_namespace(registration.catalog, register)
        _, (config, slots, view) = self.handle.context_at(None)
        done = exporting.export_table(
            self.handle.store,
            slots,
            config,
            view,
            self.handle.environment.now_ms(),
            delta,
            iceberg,
            check_flag("rebuild", rebuild),
            mode or config.options.export_mode,
            history,
            iceberg_version,
            change_feed,
        )
        if registration is None or done.iceberg is None:
            return done
        return replace(done, catalog=registration.run(self.handle.store, done.iceberg.metadata))

    def register(
        self, name: str, *, catalog: object = None, catalog_properties: Mapping[str, str] | None = None
    ) -> RegisterResult:
        """Register the table in a Hive metastore or in Glue.

        The entry is equivalent to that of Apache Hudi's own catalog sync: it has the columns, the partitions with their
        locations, and the properties for Spark. A merge-on-read table gets three entries: `<name>` and `<name>_rt`
        return current rows, and `<name>_ro` returns the rows of base files. Later commits are visible without another
        call. Call `register` again after columns or partitions changed. The call is cheap if nothing changed. See
        docs/other-engines.md.

        Args:
            name: The name of the table in the catalog, 'namespace.table'. The namespace must exist.
            catalog: A pyiceberg catalog of type 'hive' or 'glue', or the name of one in the pyiceberg configuration.
                None (default): the catalog named 'default'. Requires `hoodoo[iceberg]`.
            catalog_properties: Properties of a named catalog, which override those in the configuration, for example
                `{"type": "hive", "uri": "thrift://localhost:9083"}`. Default: no properties.

        Returns:
            The result for each catalog entry.

        Raises:
            OptionError: `name` does not have the form 'namespace.table', or the catalog does not exist.
            EngineError: pyiceberg is not installed.
            CatalogRefused: The catalog has a different table with this name, has an unsupported type, or rejects the
                change. Or the namespace does not exist.
            SchemaError: Two column names differ only in case. Nothing was written.
            UnsupportedTable: The partition folder names do not contain the values of the partition columns. Nothing was
                written.
            TryAgainError: Other processes repeatedly changed the entry at the same time.
        """
        from hoodoo.exports.catalogs.hudi_registration import HudiRegistration, require_namespace_and_name
        from hoodoo.exports.catalogs.opening import create_catalog_opener

        identifier = require_namespace_and_name("name", name)
        registration = HudiRegistration(identifier, create_catalog_opener(catalog, catalog_properties)())

        def look() -> tuple[TableConfig, View]:
            seen = self.handle.at(None)
            return seen.config, seen.view

        return registration.update_entries(self.handle.store, look)
