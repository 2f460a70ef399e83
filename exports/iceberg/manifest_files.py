"""Files with Iceberg manifests.

The names of the files are derived from their bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hoodoo.exports.iceberg import manifests as avro
from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.exports.iceberg.metadata_files import FOLDER
from hoodoo.exports.iceberg.single_values import encode_bound, partition_value_to_avro
from hoodoo.exports.iceberg.table_metadata import BY_COLUMNS, UNPARTITIONED
from hoodoo.exports.partition_values import column_statistics_of_file, partition_columns, partition_values_of_file
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile

ENTRIES_MAX = 200
"""Maximum number of entries in a manifest.

It is small so that rewriting a manifest to remove a file is cheap.
"""


def table_location_uri(store: Store) -> str:
    return store.uri if "://" in store.uri else f"file://{store.uri}"


class ManifestReader:
    """Cached reader of Iceberg manifests."""

    def __init__(self, writing: MetadataFileWriter, config: TableConfig) -> None:
        self.writing, self.store, self.config = writing, writing.store, config
        self.location = table_location_uri(self.store)
        self.columns = [(name, config.columns.by_name[name].arrow) for name in partition_columns(config)]
        self._entries: dict[str, list[Json]] = {}  # manifests that were read or written, by path
        self._before: dict[str, list[Json]] = {}  # manifests of the previous snapshot

    def after(self, config: TableConfig) -> ManifestReader:
        next_files = ManifestReader(self.writing, config)
        next_files._before = self._entries
        return next_files

    def path_of(self, key: str) -> str:
        return f"{self.location}/{key}"

    def key(self, path: str) -> str:
        return path.removeprefix(self.location + "/")

    def read(self, manifest: Json) -> list[Json]:
        path = manifest["manifest_path"]
        if path not in self._entries:
            cached = self._before.get(path)
            self._entries[path] = avro.decode(self.store.get(self.key(path))) if cached is None else cached
        return self._entries[path]

    def remember(self, path: str, entries: Sequence[Json]) -> None:
        self._entries[path] = list(entries)

    def read_manifest_list(self, snapshot: Json) -> list[Json]:
        return avro.decode_manifest_list(self.store.get(self.key(snapshot["manifest-list"])))

    def describe_base_file(self, file: DataFile) -> tuple[int, Json]:
        spec, partition = self.partition(file)
        counts: list[Json] = []
        nulls: list[Json] = []
        lower: list[Json] = []
        upper: list[Json] = []
        for name, (low, high, missing) in column_statistics_of_file(self.config, file).items():
            column = self.config.columns.by_name[name]
            counts.append({"key": column.id, "value": file.rows})
            nulls.append({"key": column.id, "value": missing})
            for bounds, value in ((lower, low), (upper, high)):
                if (data := encode_bound(value, column.arrow)) is not None:
                    bounds.append({"key": column.id, "value": data})
        return spec, {
            "content": avro.DATA,
            "file_path": self.path_of(file.path),
            "file_format": "PARQUET",
            "partition": partition,
            "record_count": file.rows,
            "file_size_in_bytes": file.size,
            "value_counts": counts,
            "null_value_counts": nulls,
            "lower_bounds": lower,
            "upper_bounds": upper,
            "sort_order_id": 0,
        }

    def partition(self, file: DataFile) -> tuple[int, Json]:
        values = partition_values_of_file(self.config, file)
        spec = UNPARTITIONED if values is None else BY_COLUMNS
        return spec, {name: partition_value_to_avro(value) for name, value in (values or {}).items()}


class ManifestWriter:
    """Writer of Iceberg manifests.

    The manifests belong to one new snapshot.

    Args:
        files: The manifest files of the table.
        metadata: The table metadata.
        slot: The slot that the snapshot shows.
        number: The id of the snapshot.
        sequence: The sequence number of the snapshot.
    """

    def __init__(self, files: ManifestReader, metadata: Json, slot: int, number: int, sequence: int) -> None:
        self.files, self.slot, self.number, self.sequence = files, slot, number, sequence
        self.version: int = metadata["format-version"]
        self.schema = next(
            schema for schema in metadata["schemas"] if schema["schema-id"] == metadata["current-schema-id"]
        )
        self.specs = {spec["spec-id"]: spec for spec in metadata["partition-specs"]}

    def added(self, data_file: Json) -> Json:
        return {
            "status": avro.ADDED,
            "snapshot_id": self.number,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": data_file,
        }

    def deleted(self, live_entry: Json) -> Json:
        """Create the manifest entry of a deleted file.

        Bounds are dropped, because no reader prunes by them, and they may contain keys that were purged.
        """
        unbounded = {**live_entry["data_file"], "lower_bounds": None, "upper_bounds": None}
        return {**live_entry, "status": avro.DELETED, "snapshot_id": self.number, "data_file": unbounded}

    def write(
        self, spec: int, entries: Sequence[Json], slots: Sequence[int], kind: str = "manifest", content: int = avro.DATA
    ) -> Json:
        """Write an Iceberg manifest.

        Returns its entry for the manifest list.

        Args:
            spec: The id of the partition spec of its files.
            entries: The entries of the manifest.
            slots: The smallest and the largest slot that added one of its files.
            kind: The prefix of the file name.
            content: DATA or POSITION_DELETES.
        """
        files = self.files
        columns = files.columns if self.specs[spec]["fields"] else []
        # last, so that live files inherit the same row ids whether or not a reader counts the rows of removed files
        entries = sorted(entries, key=lambda entry: bool(entry["status"] == avro.DELETED))
        data = avro.encode_manifest(entries, self.schema, self.specs[spec], columns, content, self.version)
        key = f"{FOLDER}{kind}-{self.slot}-{short(data)}.avro"
        files.writing.create_once(key, data)
        path = files.path_of(key)
        files.remember(path, entries)
        alive = [files.key(file_path_of_entry(entry)) for entry in entries if entry["status"] != avro.DELETED]
        span = [*slots, min(alive, default=""), max(alive, default="")]
        return avro.create_list_entry(
            path, len(data), entries, spec, columns, self.number, self.sequence, span, content
        )


def file_path_of_entry(entry: Json) -> str:
    path: str = entry["data_file"]["file_path"]
    return path


def short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
