"""Iceberg manifests for overlays, which contain changes from logs.

They are additional data files and deletes. Deletes are a position delete file in format version 2, and a deletion
vector in a Puffin file in version 3. Each file lists rows of one base file. It is in `metadata/`, because it contains
the absolute path. Its bytes depend only on the overlay and the location. Overlays have their own manifests, which each
snapshot with changed overlays rewrites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.exports.iceberg import manifests as avro
from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.manifest_files import ENTRIES_MAX, ManifestWriter, file_path_of_entry, short
from hoodoo.exports.iceberg.metadata_files import FOLDER
from hoodoo.exports.iceberg.puffin import encode_puffin_file
from hoodoo.exports.overlays import LogFileChanges, LogFileChangesCache, derive_changes_name
from hoodoo.timeline.views.view import FileGroup

KIND = "overlay"
"""Prefix of the file names of overlay manifests."""
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)
# The ids of the columns are those that Iceberg's specification reserves.
_OF_AN_OVERLAY = re.compile(r".*/(?:overlay/|deletes-)([0-9a-f]{32})(?:-[0-9a-f]{12})?\.(?:parquet|puffin)", re.DOTALL)


def is_overlay_manifest(manifest: Json) -> bool:
    return bool(manifest["manifest_path"].rpartition("/")[2].startswith(KIND + "-"))


def write_log_change_manifests(
    writer: ManifestWriter, before: Sequence[Json], overlays: LogFileChangesCache | None, groups: Sequence[FileGroup]
) -> list[Json]:
    """Write the Iceberg manifests of log file changes.

    Returns the manifests. `overlays` is None if logs are not exported. `before` are the overlay manifests of the
    previous snapshot. Entries of unchanged overlays are reused, except for position delete files after an upgrade to
    version 3.
    """
    files = writer.files
    entries_by_overlay: dict[str, list[tuple[int, Json]]] = {}
    for manifest in before:
        for entry in avro.select_live_entries(files.read(manifest), manifest):
            entries_by_overlay.setdefault(_overlay_of(entry), []).append((manifest["partition_spec_id"], entry))
    groups_by_overlay = {derive_changes_name(files.config, group): group for group in groups} if overlays else {}
    usable = {
        file_path_of_entry(entry)
        for name in groups_by_overlay.keys() & entries_by_overlay.keys()
        for _, entry in entries_by_overlay[name]
        if entry["data_file"]["content"] == avro.DATA
        or entry["data_file"]["file_format"] == _delete_file_format(writer)
    }
    rebuilt = [
        group
        for name, group in groups_by_overlay.items()
        if name not in entries_by_overlay
        or any(file_path_of_entry(entry) not in usable for _, entry in entries_by_overlay[name])
    ]
    built = overlays.compute_changes(files.writing, files.config, rebuilt) if overlays else []
    new_files = [
        described_file
        for overlay in built
        for described_file in _describe_overlay_files(writer, overlay)
        if described_file[1]["file_path"] not in usable
    ]
    before_entries = [pair for _, pairs in sorted(entries_by_overlay.items()) for pair in pairs]
    entries = [
        (spec, described_file if file_path_of_entry(described_file) in usable else writer.deleted(described_file))
        for spec, described_file in before_entries
    ]
    entries += [(spec, writer.added(data_file)) for spec, data_file in new_files]
    by_manifest: dict[tuple[int, int], list[Json]] = {}
    for spec, entry in entries:
        by_manifest.setdefault((entry["data_file"]["content"], spec), []).append(entry)
    return [
        writer.write(spec, manifest_entries[start : start + ENTRIES_MAX], [0, 0], KIND, content)
        for (content, spec), manifest_entries in sorted(by_manifest.items())
        for start in range(0, len(manifest_entries), ENTRIES_MAX)
    ]


def _delete_file_format(writer: ManifestWriter) -> str:
    return "PUFFIN" if writer.version >= avro.ROW_LINEAGE else "PARQUET"


def _overlay_of(entry: Json) -> str:
    match = _OF_AN_OVERLAY.fullmatch(file_path_of_entry(entry))
    assert match is not None  # hoodoo wrote the path
    return match[1]


def _describe_overlay_files(writer: ManifestWriter, overlay: LogFileChanges) -> Iterator[tuple[int, Json]]:
    if overlay.rows:
        yield writer.files.describe_base_file(overlay.rows.file)
    if overlay.base and len(overlay.dead):
        path = writer.files.path_of(overlay.base.file.path)
        data, vector_location = (
            encode_puffin_file(path, overlay.dead)
            if writer.version >= avro.ROW_LINEAGE
            else (_position_deletes(path, overlay.dead, writer.files.config.options.compression), {})
        )
        kind = _delete_file_format(writer)
        key = f"{FOLDER}deletes-{overlay.name}-{short(data)}.{kind.lower()}"
        writer.files.writing.create_once(key, data)
        spec, partition = writer.files.partition(overlay.base.file)
        bound = [{"key": _PATH_ID, "value": path.encode()}]
        yield (
            spec,
            {
                "content": avro.POSITION_DELETES,
                "file_path": writer.files.path_of(key),
                "file_format": kind,
                "partition": partition,
                "record_count": len(overlay.dead),
                "file_size_in_bytes": len(data),
                "lower_bounds": bound,
                "upper_bounds": bound,
                "referenced_data_file": path,
                **vector_location,
            },
        )


def _position_deletes(path: str, dead: np.ndarray, compression: str) -> bytes:
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(dead), np.int32)), pa.array([path])).cast(pa.string())
    sink = pa.BufferOutputStream()
    table = pa.table([paths, pa.array(dead, pa.int64())], schema=_POSITIONS)
    pq.write_table(table, sink, compression=compression, store_schema=False)
    return bytes(sink.getvalue())
