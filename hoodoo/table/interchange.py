"""What a table has to do with other engines' formats: exports to Iceberg and Delta, and the adoption of tables that
Apache Hudi wrote.

A part of `hoodoo.table.Table`. Checks arguments and delegates; how it is done is in hoodoo.exports, and in
hoodoo.compactor.upgrade and hoodoo.writers.adopt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hoodoo.arguments import flag, one_of
from hoodoo.engine.local import LocalEngine
from hoodoo.errors import OptionError
from hoodoo.hints import explained
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.properties.table_options import EXPORT_MODES

if TYPE_CHECKING:
    from hoodoo.compactor.upgrade import AdoptResult
    from hoodoo.exports.results import ExportResult, RegisterResult
    from hoodoo.timeline.properties.config import TableConfig
    from hoodoo.timeline.views.view import View


@explained
class Interchanged:
    """The methods of `Table` for other engines' formats."""

    handle: TableHandle

    def export(
        self,
        *,
        delta: bool = False,
        iceberg: bool = False,
        mode: str | None = None,
        history: str = "newest",
        rebuild: bool = False,
        register: str | None = None,
        catalog: object = None,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> ExportResult:
        """Let engines that read Delta or Iceberg read the table: write their metadata beside it.

        No row is copied: the metadata name the table's base files. The export goes up to the newest slot, and later
        commits show after the next one. See docs/other-engines.md.

        Args:
            delta: True writes a Delta log in the folder `_delta_log`: a version for each slot that changed base files.
                Default False.
            iceberg: True writes Iceberg metadata in the folder `metadata`: a snapshot for each export, or with
                `history` for each slot that changed base files. Default False.
            mode: What readers see of a merge-on-read table. 'read_optimized': its base files, whose rows are as of the
                last compaction of each file group. 'merged': the rows of the table; the export marks the rows of base
                files that logs replaced or deleted, and writes small files of what became of them. None (default): the
                option `export_mode`, which is 'read_optimized' where it was not set.
            history: Which slots Iceberg's readers can go back to. 'newest' (default): those of exports. 'all': each
                that changed base files since the newest snapshot, at a first export since the oldest readable slot. Not
                with the mode 'merged'.
            rebuild: True makes the metadata right whatever another writer made of them. Default False.
            register: The Iceberg table in a catalog, 'namespace.table', which is created or moved to the newest
                metadata. None (default): no catalog. It needs `hoodoo[iceberg]`.
            catalog: A catalog of pyiceberg, or the name of one in pyiceberg's configuration. None (default): the one
                that is called 'default' there.
            catalog_properties: Properties of a catalog that is named, which go before those in the configuration, as
                `{"type": "sql", "uri": "sqlite:///lake.db"}`. Default none.

        Returns:
            The slot that the formats show, and what was written of each.

        Raises:
            OptionError: Neither `delta` nor `iceberg` is True, there is no such `mode` or `history`, or all slots are
                asked for in the mode 'merged'. It is raised before anything is written.
            SchemaError: A format cannot hold a column. It is raised before anything is written.
            PartitionValueError: A partition has the name of the folder in which the metadata would lie. It is raised
                before anything is written.
            ForeignExport: Another writer committed to the metadata, or they are another table's.
            EngineError: A catalog is asked for, and pyiceberg is not installed. It is raised before anything is
                written.
            CatalogRefused: The catalog has another table of that name, or no such namespace. The export is done.
            UnsupportedTable: Another engine wrote to the table what hoodoo cannot adopt.
        """
        if not flag("delta", delta) | flag("iceberg", iceberg):
            raise OptionError(
                "Nothing to export: pass delta=True (--delta), iceberg=True (--iceberg) or both. Rows for a file come "
                "from scan() (hoodoo scan PATH --output FILE).",
                option="delta",
            )
        from hoodoo.exports import export as exporting
        from hoodoo.exports.request import HISTORIES

        one_of("history", history, HISTORIES)
        if mode is not None:
            one_of("mode", mode, EXPORT_MODES)
        registration = None
        if register is None and (catalog is not None or catalog_properties):
            raise OptionError(
                "A catalog is given, but no table of it: pass register='namespace.table' (--register).",
                option="register",
            )
        if register is not None:
            from hoodoo.exports.catalogs.opening import opener, require_identifier, require_namespace
            from hoodoo.exports.catalogs.registration import Registration

            if not iceberg:
                raise OptionError(
                    "register names an Iceberg table in a catalog: pass iceberg=True (--iceberg), too.",
                    option="register",
                )
            identifier = require_identifier("register", register)
            registration = Registration(identifier, opener(catalog, catalog_properties)())
            require_namespace(registration.catalog, register)
        _, (config, slots, view) = self.handle.context_at(None)
        done = exporting.export(
            self.handle.store,
            slots,
            config,
            view,
            self.handle.environment.now_ms(),
            delta,
            iceberg,
            flag("rebuild", rebuild),
            mode or config.options.export_mode,
            history,
        )
        if registration is None or done.iceberg is None:
            return done
        return replace(done, catalog=registration.run(self.handle.store, done.iceberg.metadata))

    def register(
        self, name: str, *, catalog: object = None, catalog_properties: Mapping[str, str] | None = None
    ) -> RegisterResult:
        """Let engines that read Apache Hudi find the table in a Hive metastore or in Glue: create or refresh its entry.

        The entry is what Apache Hudi's own sync makes of the table: columns, partitions with their places, and what
        Spark asks for. A merge-on-read table gets three: `<name>` and `<name>_rt` show its rows, `<name>_ro` its base
        files. Rows of later commits show without another call; columns and partitions that come or go after it. It is
        cheap where nothing changed. See docs/other-engines.md.

        Args:
            name: The table in the catalog, 'namespace.table'. The namespace has to be there.
            catalog: A catalog of pyiceberg of the kind 'hive' or 'glue', or the name of one in pyiceberg's
                configuration. None (default): the one that is called 'default' there. It needs `hoodoo[iceberg]`.
            catalog_properties: Properties of a catalog that is named, which go before those in the configuration, as
                `{"type": "hive", "uri": "thrift://localhost:9083"}`. Default none.

        Returns:
            What became of each entry.

        Raises:
            OptionError: `name` is not a namespace and a table, or there is no such catalog.
            EngineError: pyiceberg is not installed.
            CatalogRefused: The catalog has another table of that name, or no such namespace, or is of another kind, or
                does not take the change.
            SchemaError: Names of columns differ in case only. Nothing was written.
            UnsupportedTable: The folders of partitions do not tell the values of partition columns. Nothing was
                written.
            TryAgainError: Others changed the entry again and again.
        """
        from hoodoo.exports.catalogs.hudi_registration import HudiRegistration, require_hudi_identifier
        from hoodoo.exports.catalogs.opening import opener

        identifier = require_hudi_identifier("name", name)
        registration = HudiRegistration(identifier, opener(catalog, catalog_properties)())

        def look() -> tuple[TableConfig, View]:
            seen = self.handle.at(None)
            return seen.config, seen.view

        return registration.run(self.handle.store, look)

    def adopt(self) -> AdoptResult:
        """Make a table that Apache Hudi wrote one that hoodoo writes to: what Hudi committed becomes slots.

        The first write does that, too. A table of version 6 is upgraded to version 9 before, as Hudi 1.x upgrades it:
        its logs are compacted, and its timeline is written anew. No other process may write to it meanwhile. After a
        crash at any step, call `adopt` again; the table can be read before and after. Time travel and changes then
        begin at the upgrade where the table had logs or archived commits.

        Returns:
            The version that the table had, and what was done.

        Raises:
            UnsupportedTable: Something is in the way, which the error names. Nothing was written.
            CorruptTable: A file is damaged.
        """
        from hoodoo.compactor import upgrade

        handle, engine = self.handle, LocalEngine()
        config = handle.look().config
        if config.layout_one:
            done = upgrade.upgrade(handle.store, handle.environment, engine)
        else:
            done = upgrade.finished(handle.store, config)
        handle.look()
        handle.context(engine)
        return replace(done, slot=handle.look().view.seq)
