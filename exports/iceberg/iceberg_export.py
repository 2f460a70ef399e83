"""Brings Iceberg's metadata up to the table's newest slot: one snapshot for each export that finds base files changed.

Manifests and manifest lists have names that follow from their bytes; a metadata file is created if it is absent, and
names all of them. So a crash leaves files that nobody names, and of two exporters at once the second finds what the
first wrote and goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from hoodoo.errors import ForeignExport, TryAgainError
from hoodoo.exports.base_files import (
    IDLE_SLOTS,
    NOTHING,
    BaseChanges,
    goes_on_from,
    live,
    require_no_partition,
    steps,
    unchanged,
)
from hoodoo.exports.iceberg import manifests as avro
from hoodoo.exports.iceberg import metadata_files as files
from hoodoo.exports.iceberg import table_metadata as documents
from hoodoo.exports.iceberg.iceberg_schema import Json, require_holdable, require_promotable
from hoodoo.exports.iceberg.single_values import bound_bytes, partition_datum
from hoodoo.exports.iceberg.table_metadata import BY_COLUMNS, UNPARTITIONED
from hoodoo.exports.partition_values import bounds_of, partition_columns, values_of
from hoodoo.exports.results import IcebergExport
from hoodoo.exports.writing import Writing
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import View

_ENTRIES_MAX = 200
"""Of a manifest: whoever removes a file writes the others of its manifest anew."""
_SMALL_MANIFESTS = 20
"""More manifests that are less than half full than these are merged."""
_SWEEP_EVERY = 10
_ATTEMPTS = 20


def require_exportable(config: TableConfig, view: View) -> None:
    """Raise SchemaError or PartitionValueError where Iceberg cannot hold the table."""
    require_holdable(config.columns)
    require_no_partition(view, files.FOLDER.rstrip("/"))
    for number in {file.schema: file for _, file in live(view).values()}.values() if config.schemas else ():
        require_promotable(config.columns_of(number), config.columns)


def export(
    store: Store, history: History, config: TableConfig, until: int, now_ms: int, rebuild: bool = False
) -> IcebergExport:
    """Write the metadata of slot `until`.

    now_ms: the time, by which old files are deleted. rebuild: write all anew, whatever is there now.

    Raises ForeignExport where another writer committed to the metadata, or it is another table's.
    """
    writing = Writing(store)
    for _ in range(_ATTEMPTS):
        try:
            return _Exporter(writing, history, config, until, now_ms).run(rebuild)
        except FileExistsError:  # another exporter, or a foreign writer, took the number: look what it is
            continue
        except FileNotFoundError as problem:
            raise ForeignExport(
                f"A file is gone that the Iceberg metadata name: {problem}. Export with rebuild=True (hoodoo export "
                "PATH --iceberg --rebuild) to write them anew.",
                format="iceberg",
            ) from None
    raise TryAgainError(
        "Other exporters of the Iceberg metadata came first again and again; what they wrote is as good.",
        format="iceberg",
    )


def location_of(store: Store) -> str:
    """Where readers find the table: Iceberg's paths are absolute."""
    return store.uri if "://" in store.uri else f"file://{store.uri}"


class _Exporter:
    def __init__(self, writing: Writing, history: History, config: TableConfig, until: int, now_ms: int) -> None:
        self.writing, self.store, self.history, self.config = writing, writing.store, history, config
        self.until, self.now_ms = until, now_ms
        self.location = location_of(self.store)
        names = partition_columns(config)
        self.columns = [(name, config.columns.by_name[name].arrow) for name in names]
        self.entries: dict[str, list[Json]] = {}  # of manifests that were read or written, by their paths

    def run(self, rebuild: bool) -> IcebergExport:
        version, was = files.newest(self.store)
        if version and not rebuild:
            self._require_ours(version, was)
            if was is not None and self._at(was) > self.until:  # another exporter has seen newer slots
                self.until = self.history.head().seq
        view = self.history.state(self.until)
        self.config = self.config.with_schemas(view.schemas)
        goes_on = was is not None and not rebuild and self._goes_on(was)
        if was is not None and goes_on and self._at(was) == self.until:
            return self._done(version, was, 0)
        if was is None or not goes_on:
            metadata, changes = self._anew(was, view.table), BaseChanges(live(view), {}, True)
        else:
            metadata, changes = was, self._changes(self._at(was))
        before = metadata
        metadata = documents.with_columns(metadata, self.config)
        metadata = self._with_snapshot(metadata, view, changes) if changes or not metadata["snapshots"] else metadata
        snapshots = int(metadata["current-snapshot-id"] != before["current-snapshot-id"] or before is not was)
        metadata = documents.without_expired(metadata, view.min_readable, partial(unchanged, self.history))
        if was is not None and metadata == before and self.until - self._at(was) < IDLE_SLOTS:
            return self._done(version, was, 0)
        previous = self.path_of(files.metadata_key(version)) if version else ""
        metadata = documents.at_slot(metadata, view, version + 1, previous)
        self.writing.once(
            files.metadata_key(version + 1), json.dumps(metadata, separators=(",", ":"), sort_keys=True).encode()
        )
        expires = len(metadata["snapshots"]) < len(before["snapshots"]) + snapshots or rebuild
        return self._done(version + 1, metadata, snapshots, expires or (version + 1) % _SWEEP_EVERY == 0)

    def _done(self, version: int, metadata: Json, snapshots: int, sweeps: bool = False) -> IcebergExport:
        """Name the newest file in the hint, also one whose writer died before it did: readers look no further."""
        if files.hinted(self.store) != version:
            self.writing.replace(files.HINT, str(version).encode())
        if sweeps:
            self._sweep(version, metadata)
        key, number = files.metadata_key(version), metadata["current-snapshot-id"]
        return IcebergExport(key, number, snapshots, self.writing.files, self.writing.bytes)

    # ---- what is there
    @staticmethod
    def _at(metadata: Json) -> int:
        return int(metadata["properties"][documents.SLOT])

    def _goes_on(self, was: Json) -> bool:
        """Tell whether the metadata can be gone on from. Not where the table was moved: paths are absolute."""
        instant = was["properties"].get(documents.INSTANT, "")
        return was.get("location") == self.location and goes_on_from(self.history, self._at(was), instant)

    def _require_ours(self, version: int, was: Any) -> None:
        if not documents.is_ours(was, version):
            raise ForeignExport(
                f"{files.metadata_key(version)} was written by another writer, so that it may show other rows than "
                "this table. Give others no permission to write here, and export with rebuild=True (hoodoo export PATH "
                "--iceberg --rebuild): it writes metadata that shows this table again.",
                format="iceberg",
                version=version,
            )
        if was["properties"].get(documents.TABLE) != self.history.known_head().table:
            raise ForeignExport(
                "The Iceberg metadata is that of another table. Export with rebuild=True (hoodoo export PATH --iceberg "
                "--rebuild) to make it this table's.",
                format="iceberg",
                version=version,
            )

    def _anew(self, was: Json | None, table: str) -> Json:
        """Metadata without a snapshot. Numbers of sequence grow for ever in one table."""
        sequence = (was or {}).get("last-sequence-number", 0)
        return documents.first(self.location, table, sequence if isinstance(sequence, int) else 0)

    def _changes(self, after: int) -> BaseChanges:
        changes = NOTHING
        for step in steps(self.history, after, self.until):
            changes = changes.then(step.changes)
        return changes

    # ---- a snapshot
    def _with_snapshot(self, metadata: Json, view: View, changes: BaseChanges) -> Json:
        sequence = metadata["last-sequence-number"] + 1
        number = int.from_bytes(hashlib.sha256(f"{view.table} {view.seq}".encode()).digest()[:8], "big") >> 1
        writing = _Snapshot(self, metadata, view.seq, number, sequence)
        manifests = writing.manifests(self._listed(metadata), changes)
        parent = metadata["current-snapshot-id"] if metadata["snapshots"] else None
        data = avro.encode_list(manifests, number, parent, sequence)
        key = f"{files.FOLDER}snap-{view.seq}-{number}-{_short(data)}.avro"
        self.writing.once(key, data)
        snapshot = {
            "snapshot-id": number,
            "sequence-number": sequence,
            "timestamp-ms": view.completed_at,
            "manifest-list": self.path_of(key),
            "summary": _summary(view, changes, manifests),
            "schema-id": metadata["current-schema-id"],
        }
        return documents.with_snapshot(metadata, snapshot)

    def _listed(self, metadata: Json) -> list[Json]:
        """The manifests of the current snapshot."""
        if not metadata["snapshots"]:
            return []
        return avro.decode_list(self.store.get(self.key(metadata["snapshots"][-1]["manifest-list"])))

    def read(self, manifest: Json) -> list[Json]:
        """The entries of a manifest as it is."""
        path = manifest["manifest_path"]
        if path not in self.entries:
            self.entries[path] = avro.decode(self.store.get(self.key(path)))
        return self.entries[path]

    def path_of(self, key: str) -> str:
        """The path of a file of this table, from its key."""
        return f"{self.location}/{key}"

    def key(self, path: str) -> str:
        """The key of a file of this table, from its path."""
        return path.removeprefix(self.location + "/")

    # ---- what nobody needs
    def _sweep(self, version: int, metadata: Json) -> None:
        named: set[str] = set()
        for snapshot in metadata["snapshots"]:
            key = self.key(snapshot["manifest-list"])
            named |= {key, *(self.key(one["manifest_path"]) for one in avro.decode_list(self.store.get(key)))}
        files.sweep(self.store, version, documents.METADATA_KEPT, named, self.now_ms)


class _Snapshot:
    """The manifests of one new snapshot."""

    def __init__(self, exporter: _Exporter, metadata: Json, slot: int, number: int, sequence: int) -> None:
        self.exporter, self.slot, self.number, self.sequence = exporter, slot, number, sequence
        self.schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
        self.specs = {spec["spec-id"]: spec for spec in metadata["partition-specs"]}

    def manifests(self, before: Sequence[Json], changes: BaseChanges) -> list[Json]:
        """Manifests without removed files stay; those with one are written anew; new files come in new ones."""
        removed = {path: entry.seq for path, entry in changes.removed.items()}
        gone = {self.exporter.path_of(path) for path in removed}
        found = []
        for manifest in before:
            if any(_may_hold(manifest, path, seq) for path, seq in removed.items()):
                entries = self.exporter.read(manifest)
                if any(entry["data_file"]["file_path"] in gone for entry in entries if entry["status"] != avro.DELETED):
                    found.append(self._without(manifest, entries, gone))
                    continue
            if avro.files_in(manifest):  # else it tells what the snapshot before removed
                found.append(manifest)
        return self._merged([*found, *self._added(changes)])

    def _without(self, manifest: Json, entries: Sequence[Json], gone: set[str]) -> Json:
        alive = avro.live_entries(entries, manifest)
        marked = [
            {**entry, "status": avro.DELETED, "snapshot_id": self.number, "data_file": _unbounded(entry["data_file"])}
            if entry["data_file"]["file_path"] in gone
            else entry
            for entry in alive
        ]
        return self._write(manifest["partition_spec_id"], marked, manifest["range"][:2])

    def _added(self, changes: BaseChanges) -> list[Json]:
        """In the order of paths, so that the paths of a manifest lie together."""
        by_spec: dict[int, list[tuple[int, Json]]] = {}
        for _, added in sorted(changes.added.items()):
            spec, data_file = self._data_file(added)
            entry = {
                "status": avro.ADDED,
                "snapshot_id": self.number,
                "sequence_number": None,
                "file_sequence_number": None,
                "data_file": data_file,
            }
            by_spec.setdefault(spec, []).append((added.seq, entry))
        found = []
        for spec, pairs in sorted(by_spec.items()):
            for at in range(0, len(pairs), _ENTRIES_MAX):
                part = pairs[at : at + _ENTRIES_MAX]
                slots = [seq for seq, _ in part]
                found.append(self._write(spec, [entry for _, entry in part], [min(slots), max(slots)]))
        return found

    def _merged(self, manifests: list[Json]) -> list[Json]:
        """Many small manifests of one spec become full ones. One that tells what this snapshot removed waits."""
        for spec in sorted(self.specs):
            small = [
                one
                for one in manifests
                if one["partition_spec_id"] == spec
                and not (one["deleted_files_count"] and one["added_snapshot_id"] == self.number)
                and avro.files_in(one) * 2 < _ENTRIES_MAX
            ]
            if len(small) > _SMALL_MANIFESTS:
                paths = {one["manifest_path"] for one in small}
                manifests = [one for one in manifests if one["manifest_path"] not in paths]
                manifests += self._together(spec, small)
        return manifests

    def _together(self, spec: int, small: Sequence[Json]) -> list[Json]:
        entries: list[Json] = []
        for one in small:
            read = self.exporter.read(one)
            is_new = one["added_snapshot_id"] == self.number  # files that this snapshot adds stay added
            entries += read if is_new else avro.live_entries(read, one)
        entries.sort(key=_path_of)
        slots = [min(one["range"][0] for one in small), max(one["range"][1] for one in small)]
        return [
            self._write(spec, entries[at : at + _ENTRIES_MAX], slots) for at in range(0, len(entries), _ENTRIES_MAX)
        ]

    def _write(self, spec: int, entries: Sequence[Json], slots: list[int]) -> Json:
        exporter = self.exporter
        columns = exporter.columns if self.specs[spec]["fields"] else []
        data = avro.encode_manifest(entries, self.schema, self.specs[spec], columns)
        key = f"{files.FOLDER}manifest-{self.slot}-{_short(data)}.avro"
        exporter.writing.once(key, data)
        path = self.exporter.path_of(key)
        exporter.entries[path] = list(entries)
        alive = [exporter.key(_path_of(entry)) for entry in entries if entry["status"] != avro.DELETED]
        span = [*slots, min(alive, default=""), max(alive, default="")]
        return avro.listed(path, len(data), entries, spec, columns, self.number, self.sequence, span)

    def _data_file(self, added: AddedFile) -> tuple[int, Json]:
        """The partition spec of a base file, and what its entry says of it."""
        config, file = self.exporter.config, added.file
        values = values_of(config, file)
        spec = UNPARTITIONED if values is None else BY_COLUMNS
        counts: list[Json] = []
        nulls: list[Json] = []
        lower: list[Json] = []
        upper: list[Json] = []
        for name, (low, high, missing) in bounds_of(config, file).items():
            column = config.columns.by_name[name]
            counts.append({"key": column.id, "value": file.rows})
            nulls.append({"key": column.id, "value": missing})
            for bounds, value in ((lower, low), (upper, high)):
                if (data := bound_bytes(value, column.arrow)) is not None:
                    bounds.append({"key": column.id, "value": data})
        return spec, {
            "content": 0,
            "file_path": self.exporter.path_of(file.path),
            "file_format": "PARQUET",
            "partition": {name: partition_datum(value) for name, value in (values or {}).items()},
            "record_count": file.rows,
            "file_size_in_bytes": file.size,
            "value_counts": counts,
            "null_value_counts": nulls,
            "lower_bounds": lower,
            "upper_bounds": upper,
            "sort_order_id": 0,
        }


def _unbounded(data_file: Json) -> Json:
    """Of a file that is gone: nobody prunes by its bounds, and they may be keys that were purged."""
    return {**data_file, "lower_bounds": None, "upper_bounds": None}


def _path_of(entry: Json) -> str:
    path: str = entry["data_file"]["file_path"]
    return path


def _may_hold(manifest: Json, path: str, seq: int) -> bool:
    low, high, first, last = manifest["range"]
    return bool(low <= seq <= high and first <= path <= last)


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _summary(view: View, changes: BaseChanges, manifests: Sequence[Json]) -> Json:
    """What readers and tools show of a snapshot. `replace` says that no row changed."""
    operation = "overwrite" if changes.added else "delete"
    if not changes.removed:
        operation = "append"
    elif not changes.changes_rows:
        operation = "replace"
    rows = {name: _rows(of.values()) for name, of in (("added", changes.added), ("deleted", changes.removed))}
    return {
        "operation": operation,
        "added-data-files": str(len(changes.added)),
        "added-records": str(rows["added"]),
        "deleted-data-files": str(len(changes.removed)),
        "deleted-records": str(rows["deleted"]),
        "total-data-files": str(sum(avro.files_in(one) for one in manifests)),
        "total-records": str(sum(one["added_rows_count"] + one["existing_rows_count"] for one in manifests)),
        "total-delete-files": "0",
        documents.SLOT: str(view.seq),
        documents.INSTANT: view.instant,
    }


def _rows(entries: Any) -> int:
    found: list[DataFile] = [entry.file for entry in entries]
    return sum(file.rows for file in found)
