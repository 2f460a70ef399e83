"""Iceberg manifests of base files."""

from __future__ import annotations

from collections.abc import Sequence

from hoodoo.exports.base_files import BaseFileChanges
from hoodoo.exports.iceberg import manifests as avro
from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.manifest_files import ENTRIES_MAX, ManifestWriter, file_path_of_entry

_SMALL_MANIFESTS = 20
# Manifests that are less than half full are merged if there are more than this number.


def write_base_manifests(writer: ManifestWriter, before: Sequence[Json], changes: BaseFileChanges) -> list[Json]:
    """Write the manifests of a new Iceberg snapshot.

    Returns all manifests of the snapshot. `before` are the manifests of the previous snapshot. Manifests without
    removed files are reused, and manifests with a removed file are rewritten. New files go into new manifests.
    """
    removed = {path: entry.seq for path, entry in changes.removed.items()}
    removed_paths = {writer.files.path_of(path) for path in removed}
    kept = []
    for manifest in before:
        if any(_may_hold(manifest, path, seq) for path, seq in removed.items()):
            entries = writer.files.read(manifest)
            if any(file_path_of_entry(entry) in removed_paths for entry in entries if entry["status"] != avro.DELETED):
                kept.append(_without(writer, manifest, entries, removed_paths))
                continue
        if avro.files_in(manifest):  # otherwise it only lists files that the previous snapshot removed
            kept.append(manifest)
    return _merge_small_manifests(writer, [*kept, *_write_added_manifests(writer, changes)])


def _without(writer: ManifestWriter, manifest: Json, entries: Sequence[Json], removed_paths: set[str]) -> Json:
    alive = avro.select_live_entries(entries, manifest)
    marked = [writer.deleted(entry) if file_path_of_entry(entry) in removed_paths else entry for entry in alive]
    return writer.write(manifest["partition_spec_id"], marked, manifest["range"][:2])


def _write_added_manifests(writer: ManifestWriter, changes: BaseFileChanges) -> list[Json]:
    # The files are sorted by path, so that each manifest covers a narrow range of paths.
    by_spec: dict[int, list[tuple[int, Json]]] = {}
    for _, added in sorted(changes.added.items()):
        spec, data_file = writer.files.describe_base_file(added.file)
        by_spec.setdefault(spec, []).append((added.seq, writer.added(data_file)))
    written = []
    for spec, pairs in sorted(by_spec.items()):
        for start in range(0, len(pairs), ENTRIES_MAX):
            part = pairs[start : start + ENTRIES_MAX]
            slots = [seq for seq, _ in part]
            written.append(writer.write(spec, [entry for _, entry in part], [min(slots), max(slots)]))
    return written


def _merge_small_manifests(writer: ManifestWriter, manifests: list[Json]) -> list[Json]:
    # Manifests are merged if there are many. Manifests with files that this snapshot removed stay.
    for spec in sorted(writer.specs):
        small = [
            manifest
            for manifest in manifests
            if manifest["partition_spec_id"] == spec
            and not (manifest["deleted_files_count"] and manifest["added_snapshot_id"] == writer.number)
            and avro.files_in(manifest) * 2 < ENTRIES_MAX
        ]
        if len(small) > _SMALL_MANIFESTS:
            paths = {manifest["manifest_path"] for manifest in small}
            manifests = [manifest for manifest in manifests if manifest["manifest_path"] not in paths]
            manifests += _together(writer, spec, small)
    return manifests


def _together(writer: ManifestWriter, spec: int, small: Sequence[Json]) -> list[Json]:
    entries: list[Json] = []
    for manifest in small:
        read = writer.files.read(manifest)
        is_new = manifest["added_snapshot_id"] == writer.number  # files that this snapshot adds keep their status
        entries += read if is_new else avro.select_live_entries(read, manifest)
    entries.sort(key=file_path_of_entry)
    slots = [min(manifest["range"][0] for manifest in small), max(manifest["range"][1] for manifest in small)]
    return [
        writer.write(spec, entries[start : start + ENTRIES_MAX], slots) for start in range(0, len(entries), ENTRIES_MAX)
    ]


def _may_hold(manifest: Json, path: str, seq: int) -> bool:
    low, high, first, last = manifest["range"]
    return bool(low <= seq <= high and first <= path <= last)
