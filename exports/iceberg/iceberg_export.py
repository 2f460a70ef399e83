"""Export of a table as Iceberg metadata.

An export adds one snapshot if base files changed, or one snapshot for each slot that changed them.

The names of manifests and manifest lists are derived from their bytes. A metadata file references all of them, and is
created only if it does not exist. A crash therefore leaves only unreferenced files. If two exporters run at the same
time, the slower one finds the files of the other one and continues from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hoodoo.errors import ForeignExport, OptionError, SchemaError
from hoodoo.exports.attempts import export_with_retries
from hoodoo.exports.base_files import (
    IDLE_SLOTS,
    NOTHING,
    BaseFileChanges,
    can_continue_export,
    first_commit_to_export,
    live,
    require_no_partition_at,
    unchanged,
    yield_commit_changes,
)
from hoodoo.exports.iceberg import base_manifests, overlay_manifests
from hoodoo.exports.iceberg import manifests as avro
from hoodoo.exports.iceberg import metadata_files as files
from hoodoo.exports.iceberg import table_metadata as documents
from hoodoo.exports.iceberg.iceberg_schema import Json, require_supported_columns, require_supported_type_changes
from hoodoo.exports.iceberg.manifest_files import ManifestReader, ManifestWriter, short, table_location_uri
from hoodoo.exports.overlays import covered, create_unused_file_test, delete_old_unused_overlays, digest_of
from hoodoo.exports.request import ICEBERG_VERSIONS, ExportRequest
from hoodoo.exports.results import IcebergExport
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import ICEBERG
from hoodoo.timeline.views.view import FileGroup, View

_SWEEP_EVERY = 10
_SNAPSHOTS_AT_ONCE = 100
# Number of snapshots after which a metadata file is written. A crash loses at most this number of snapshots.


def require_exportable(config: TableConfig, view: View) -> None:
    _require_types(config, view)
    require_no_partition_at(view, files.FOLDER.rstrip("/"))


def _require_types(config: TableConfig, view: View) -> None:
    require_supported_columns(config.columns)
    for number in {file.schema: file for _, file in live(view).values()}.values() if config.schemas else ():
        require_supported_type_changes(config.columns_of(number), config.columns)


def require_iceberg_version(store: Store, version: int | None, rebuild: bool) -> None:
    """Require a supported Iceberg version.

    Raises OptionError if the existing export has a newer version. `version` is the requested version, or None to keep
    the existing one.
    """
    if version is not None:
        _format_version_to_write(version, files.find_newest_metadata(store)[1], rebuild)


def _format_version_to_write(version: int | None, metadata: Json | None, rebuild: bool) -> int:
    # Raises OptionError as `require_iceberg_version` does.
    found_version = (metadata or {}).get("format-version")
    existing = found_version if found_version in ICEBERG_VERSIONS else documents.OLDEST_VERSION
    if version is not None and version < existing and not rebuild:
        raise OptionError(
            f"iceberg_version is older than the existing export: expected {existing}, got {version}. Leave out "
            "iceberg_version (--iceberg-version), or pass rebuild=True (--rebuild) to write metadata without the "
            "earlier snapshots.",
            option="iceberg_version",
        )
    return version or existing


def export_to_iceberg(request: ExportRequest) -> tuple[IcebergExport, int]:
    """Export the table to Iceberg.

    The export ends at the requested commit. Returns the export result, and the slot that readers now see. Raises
    ForeignExport if another writer committed to the Iceberg table, or if the metadata belongs to another table. Raises
    OptionError as `require_iceberg_version` does.
    """
    remedy = "Export with rebuild=True (hoodoo export PATH --iceberg --rebuild) to recreate them."
    return export_with_retries(request, ICEBERG, files.FOLDER, remedy, _Exporter(request).run)


class _Exporter:
    def __init__(self, request: ExportRequest) -> None:
        self.writing, self.store = MetadataFileWriter(request.store), request.store
        self.history, self.config = request.history, request.config
        self.now_ms, self.rebuild, self.overlays = request.now_ms, request.rebuild, request.overlays
        self.each_slot, self.location = request.each_slot, table_location_uri(self.store)
        self.asked_version = request.iceberg_version
        self.manifests = ManifestReader(self.writing, self.config)

    def run(self, until: int) -> tuple[IcebergExport, int]:
        version, existing = files.find_newest_metadata(self.store)
        format_version = _format_version_to_write(self.asked_version, existing, self.rebuild)
        previous: Json | None = None  # the metadata that the export continues from
        if version and not self.rebuild:
            own = self._require_own_metadata(version, existing)
            previous = own if self._can_continue(own) else None
            # another exporter has exported newer slots, or slots that are now archived
            if previous is None or self._at(previous) > until:
                until = self.history.head().seq
                previous = own if self._can_continue(own) else None
        view = self.history.state(until)
        self.config = self.config.with_schemas(view.schemas)
        groups = covered(view) if self.overlays else []
        overlay_digest = digest_of(self.config, groups) if self.overlays else ""
        overlaid = (
            previous is not None
            and documents.merged_logs_digest(previous) == overlay_digest
            and (previous["format-version"] == format_version)  # an upgrade writes a snapshot
        )
        if previous is not None and overlaid and self._at(previous) == until:
            return self._finish_export(version, previous, 0), until
        before = previous or self._create_metadata(existing, view.table)
        row_ids_from = _integer_or_zero((existing or {}).get("next-row-id"))
        metadata = documents.set_format_version(before, format_version, row_ids_from)
        number, written = version, 0
        for shown, changes in self._views_to_export(previous, view):
            self.config = self.config.with_schemas(shown.schemas)
            metadata = documents.set_current_schema(metadata, self.config, merges=self.overlays is not None)
            if changes or not overlaid or not metadata["snapshots"]:
                metadata = self._with_snapshot(metadata, shown, changes, groups, overlay_digest)
                overlaid, written = True, written + 1
            if written == _SNAPSHOTS_AT_ONCE * (number - version + 1) and shown.seq < until:
                metadata, number = (
                    self._write_metadata(number, metadata, shown, overlay_digest, view.min_readable),
                    number + 1,
                )
        kept = documents.remove_expired_snapshots(metadata, view.min_readable, self._shows_same_rows)
        if previous is not None and kept == previous and until - self._at(previous) < IDLE_SLOTS:
            return self._finish_export(version, previous, 0), until
        metadata, number = self._write_metadata(number, metadata, view, overlay_digest, view.min_readable), number + 1
        expires = len(metadata["snapshots"]) < len(before["snapshots"]) + written or self.rebuild
        return self._finish_export(number, metadata, written, expires or number % _SWEEP_EVERY == 0), until

    def _write_metadata(self, number: int, metadata: Json, view: View, overlaid: str, readable: int) -> Json:
        previous = self._path_of(files.metadata_key(number)) if number else ""
        kept = documents.remove_expired_snapshots(metadata, readable, self._shows_same_rows)
        document = documents.record_exported_commit(kept, view, number + 1, previous, overlaid)
        data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        self.writing.create_once(files.metadata_key(number + 1), data)
        return document

    def _shows_same_rows(self, after: int, until: int) -> bool:
        # If logs are exported, any commit is a change.
        return self.overlays is None and unchanged(self.history, after, until)

    def _path_of(self, key: str) -> str:
        return f"{self.location}/{key}"

    def _finish_export(self, version: int, metadata: Json, snapshots: int, sweeps: bool = False) -> IcebergExport:
        # The version hint may be too low because another exporter stopped before it updated the hint. Some readers only
        # follow the hint.
        if files.hinted(self.store) != version:
            self.writing.replace(files.HINT, str(version).encode())
        if sweeps:
            self._sweep(version, metadata)
        key, number = files.metadata_key(version), metadata["current-snapshot-id"]
        return IcebergExport(key, number, snapshots, self.writing.files, self.writing.bytes)

    # ---- existing metadata
    @staticmethod
    def _at(metadata: Json) -> int:
        return int(metadata["properties"][documents.SLOT])

    def _can_continue(self, previous: Json) -> bool:
        # An export cannot continue after the table was moved, because Iceberg paths are absolute.
        instant = previous["properties"].get(documents.INSTANT, "")
        return previous.get("location") == self.location and can_continue_export(
            self.history, self._at(previous), instant
        )

    def _require_own_metadata(self, version: int, existing: Any) -> Json:
        # Raises ForeignExport if an export of another table wrote the metadata.
        if not documents.is_written_by_hoodoo(existing, version):
            raise ForeignExport(
                f"{files.metadata_key(version)} was written by another writer, so its rows may differ from those of "
                "this table. Remove the write permission of other writers, and export with rebuild=True (hoodoo export "
                "PATH --iceberg --rebuild) to write metadata that shows this table again.",
                format="iceberg",
                version=version,
            )
        if existing["properties"].get(documents.TABLE) != self.history.known_head().table:
            raise ForeignExport(
                "The Iceberg metadata belongs to another table. Export with rebuild=True (hoodoo export PATH --iceberg "
                "--rebuild) to replace its contents by this table.",
                format="iceberg",
                version=version,
            )
        own: Json = existing
        return own

    def _create_metadata(self, existing: Json | None, table: str) -> Json:
        # Sequence numbers continue from the old metadata, because they must never decrease.
        return documents.create_empty_metadata(
            self.location, table, _integer_or_zero((existing or {}).get("last-sequence-number"))
        )

    # ---- slots to show
    def _views_to_export(self, previous: Json | None, view: View) -> Iterator[tuple[View, BaseFileChanges]]:
        # `previous` is the metadata that the export continues from. Slots that are no longer readable, or that Iceberg
        # cannot represent, are skipped.
        if previous is None:
            first = self._first_view(view)
            yield first, BaseFileChanges(live(first), {}, True)
        after, changes = self._at(previous) if previous is not None else first.seq, NOTHING
        for step in yield_commit_changes(self.history, after, view.seq):
            changes = changes.then(step.changes)
            is_last = step.slot.seq == view.seq
            if is_last or changes and self.each_slot and step.slot.seq >= view.min_readable and self._holds(step.view):
                yield step.view, changes
                changes = NOTHING
        if previous is not None and after == view.seq:  # the mode or the format version has changed
            yield view, NOTHING

    def _first_view(self, view: View) -> View:
        for seq in range(first_commit_to_export(self.history), view.seq) if self.each_slot else ():
            if self._holds(first := self.history.state(seq)):
                return first
        return view

    def _holds(self, view: View) -> bool:
        try:
            _require_types(self.config.with_schemas(view.schemas), view)
        except SchemaError:
            return False
        return True

    # ---- a snapshot
    def _with_snapshot(
        self, metadata: Json, view: View, changes: BaseFileChanges, groups: Sequence[FileGroup], overlaid: str
    ) -> Json:
        sequence = metadata["last-sequence-number"] + 1
        number = self._new_snapshot_id(metadata, view, overlaid)
        files_of = self.manifests = self.manifests.after(self.config)
        writer = ManifestWriter(files_of, metadata, view.seq, number, sequence)
        before = files_of.read_manifest_list(metadata["snapshots"][-1]) if metadata["snapshots"] else []
        of_overlays = [manifest for manifest in before if overlay_manifests.is_overlay_manifest(manifest)]
        manifests = [
            *base_manifests.write_base_manifests(
                writer, [manifest for manifest in before if manifest not in of_overlays], changes
            ),
            *overlay_manifests.write_log_change_manifests(writer, of_overlays, self.overlays, groups),
        ]
        lineage: Json = {}
        if writer.version >= avro.ROW_LINEAGE:
            first = metadata["next-row-id"]
            manifests, unused = avro.with_row_ids(manifests, first)
            lineage = {"first-row-id": first, "added-rows": unused - first}
        parent = metadata["current-snapshot-id"] if metadata["snapshots"] else None
        data = avro.encode_manifest_list(manifests, number, parent, sequence, writer.version)
        key = f"{files.FOLDER}snap-{view.seq}-{number}-{short(data)}.avro"
        self.writing.create_once(key, data)
        snapshot = {
            "snapshot-id": number,
            "sequence-number": sequence,
            "timestamp-ms": view.completed_at,
            "manifest-list": self._path_of(key),
            "summary": _snapshot_summary(view, manifests, number, changes.changes_rows or self.overlays is not None),
            "schema-id": metadata["current-schema-id"],
            **lineage,
        }
        return documents.add_current_snapshot(metadata, snapshot)

    @staticmethod
    def _new_snapshot_id(metadata: Json, view: View, overlaid: str) -> int:
        # The id is derived from the slot and its overlays. If this id is already used, another one is derived.
        used_ids = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
        seed = f"{view.table} {view.seq} {overlaid}".rstrip()
        while (number := int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1) in used_ids:
            seed += " again"
        return number

    # ---- deletion of unused files
    def _sweep(self, version: int, metadata: Json) -> None:
        reader = ManifestReader(self.writing, self.config)
        needed_keys: set[str] = set()
        for snapshot in metadata["snapshots"]:
            manifests = reader.read_manifest_list(snapshot)
            needed_keys |= {
                reader.key(snapshot["manifest-list"]),
                *(reader.key(manifest["manifest_path"]) for manifest in manifests),
            }
        passed = create_unused_file_test(self.history)
        files.delete_unused_metadata(self.store, version, documents.METADATA_KEPT, needed_keys, passed, self.now_ms)
        delete_old_unused_overlays(self.store, passed, self.now_ms)


def _integer_or_zero(value: Any) -> int:
    # Existing metadata may contain another value, for which the result is 0.
    return value if isinstance(value, int) else 0


def _snapshot_summary(view: View, manifests: Sequence[Json], number: int, changes_rows: bool) -> Json:
    # Operation `replace` means that no row changed.
    data = [one for one in manifests if one["content"] == avro.DATA]
    deletes = [one for one in manifests if one["content"] == avro.POSITION_DELETES]

    def count(counted: Sequence[Json], field: str) -> int:
        return sum(manifest[field] for manifest in counted if manifest["added_snapshot_id"] == number)

    added, removed = count(data, "added_files_count"), count(data, "deleted_files_count")
    dead = count(deletes, "added_files_count") + count(deletes, "deleted_files_count")
    operation = "overwrite" if added or dead else "delete"
    if not removed and not dead:
        operation = "append"
    elif not changes_rows:
        operation = "replace"
    figures = {
        "added-data-files": added,
        "added-records": count(data, "added_rows_count"),
        "deleted-data-files": removed,
        "deleted-records": count(data, "deleted_rows_count"),
        "added-delete-files": count(deletes, "added_files_count"),
        "removed-delete-files": count(deletes, "deleted_files_count"),
        "total-data-files": sum(avro.files_in(one) for one in data),
        "total-records": sum(map(avro.count_manifest_rows, data)),
        "total-delete-files": sum(avro.files_in(one) for one in deletes),
        "total-position-deletes": sum(map(avro.count_manifest_rows, deletes)),
    }
    texts = {
        name: str(value) for name, value in figures.items() if value or "delete-files" not in name or "total" in name
    }
    return {"operation": operation, **texts, documents.SLOT: str(view.seq), documents.INSTANT: view.instant}
