"""Hudi's metadata table beside a table in a store, as Hudi makes one, and what its readers find there."""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Mapping
from typing import Any

import golden_tables as golden
import hfiles

from hoodoo.format import hfile, properties
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.format.timeline import avro, file_listing
from hoodoo.storage.store import Store
from hoodoo.timeline.instant import Instant, State, parse_instant
from hoodoo.timeline.layout import METADATA_TABLE, PROPERTIES, TIMELINE
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.views.view import View

ROOT = METADATA_TABLE + "/"
PARTITIONS = "hoodie.table.metadata.partitions"
IN_USE = "column_stats,files,partition_stats"
FIRST = "00000000000000000"
FILES = ROOT + "files/"
Listing = dict[str, int]


@functools.cache
def of_hudi() -> Mapping[str, bytes]:
    """The files of a metadata table that Apache Hudi made, by their path in it."""
    with tarfile.open(golden._FOLDER / "mor_metadata.tar.gz") as archive:
        begin = f"mor_metadata/{ROOT}"
        members = [member for member in archive.getmembers() if member.isfile() and member.name.startswith(begin)]
        return {member.name.removeprefix(begin): archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


@functools.cache
def schema() -> str:
    """The schema of its records, as its commits say it."""
    newest = max(name for name in of_hudi() if name.endswith(".deltacommit"))
    return str(avro.decode_timeline_file(of_hudi()[newest])["extraMetadata"]["schema"])


def make(store: Store, now_ms: int, instant: str = FIRST, partitions: str = IN_USE) -> None:
    """Let Hudi make the metadata table, or compact it at `instant`: one base file lists what there is."""
    if instant == FIRST:
        for key, _ in list(store.list(ROOT)):
            store.delete(key)
        store.put(ROOT + ".hoodie/hoodie.properties", of_hudi()[".hoodie/hoodie.properties"])
    full = file_listing.metadata_record_schema(schema())
    assert full is not None
    values = file_listing.encode_file_list(full, _by_partition(there(store)) or {"": {}})
    store.put(f"{FILES}files-0000-0_0-1-2_{instant}.hfile", hfile.encode_hfile(values, full, now_ms))
    action = "deltacommit" if instant == FIRST else "commit"
    put_instant(store, Instant(instant, action, State.COMPLETED, instant_of_ms(now_ms)))
    use(store, partitions, now_ms)


def put_instant(store: Store, instant: Instant, schema_text: str | None = None) -> None:
    """An instant of the metadata table."""
    record: dict[str, Any] = {
        "partitionToWriteStats": {},
        "compacted": False,
        "extraMetadata": {"schema": schema() if schema_text is None else schema_text},
        "version": None,
        "operationType": "UPSERT_PREPPED",
    }
    completed = instant.state is State.COMPLETED
    store.put(ROOT + instant.key, avro.encode_timeline_file("HoodieCommitMetadata", record) if completed else b"")


def use(store: Store, partitions: str, now_ms: int, **more: str) -> None:
    """Let the properties name the partitions that are in use. more: other properties, with _ for each point."""
    named = {PARTITIONS: partitions, f"{PARTITIONS}.inflight": ""} | more
    values = hoodie_properties.read_properties(store) | named
    store.put(PROPERTIES, hoodie_properties.render(values, now_ms))


def in_use(store: Store) -> str:
    return properties.parse_properties(store.get(PROPERTIES)).get(PARTITIONS, "")


def listed(store: Store) -> Listing | None:
    """Path -> bytes of the files that a reader finds in the metadata table; None where it is not in use, or not there
    although properties name it: readers list folders then.
    """
    if "files" not in in_use(store).split(",") or not store.exists(ROOT + ".hoodie/hoodie.properties"):
        return None
    valid = {one.time for one in _instants(store, TIMELINE) if one.state is State.COMPLETED}
    completed = {one.time: one.completed for one in _instants(store, ROOT + TIMELINE) if one.completed}
    base = max(name for name in store.names(FILES) if name.endswith(".hfile"))
    based = base.rpartition("_")[2].removesuffix(".hfile")
    found: dict[str, Listing] = {}
    _merge(
        found,
        hfiles.records(hfiles.read_hfile(store.get(FILES + base)), file_listing.metadata_record_schema(schema()) or ""),
    )
    logs = [(parsed.instant, name) for name in store.names(FILES) if (parsed := parse_data_file(name))]
    logs = [(completed[instant], name) for instant, name in logs if instant in completed and instant in valid]
    for at, name in sorted(logs):
        if at > based:
            for _, records, _ in hfiles.log_records(store.get(FILES + name)):
                _merge(found, records)
    return {
        f"{partition}/{name}" if partition != "." else name: size
        for partition, files in found.items()
        for name, size in files.items()
    }


def _merge(found: dict[str, Listing], records: dict[str, dict[str, Any]]) -> None:
    for key, record in records.items():
        if record["type"] != 2:
            continue
        files = found.setdefault(key, {})
        for name, info in record["filesystemMetadata"].items():
            if info["isDeleted"]:
                files.pop(name, None)
            else:
                files[name] = max(info["size"], files.get(name, 0))


def _instants(store: Store, folder: str) -> list[Instant]:
    return [found for name in store.names(folder) if (found := parse_instant(name))]


def there(store: Store) -> Listing:
    """Path -> bytes of the data files in the table's folders."""
    return {
        key: size
        for key, size in store.list("")
        if not key.startswith(".hoodie/") and parse_data_file(key.rpartition("/")[2])
    }


def expected(store: Store, view: View) -> Listing:
    """Path -> bytes of the files that are live in `view`, or replaced and not cleaned."""
    live = [path for group in view.groups() for entry in group.files() for path in entry.file.paths]
    return {path: store.size(path) for path in (*live, *(entry.path for entry in view.superseded))}


def _by_partition(files: Listing) -> dict[str, dict[str, int | None]]:
    found: dict[str, dict[str, int | None]] = {}
    for path, size in files.items():
        partition, _, name = path.rpartition("/")
        found.setdefault(partition, {})[name] = size
    return found


def schema_with(change: Any) -> str:
    """The schema of the records, changed."""
    changed = json.loads(schema())
    change(changed)
    return json.dumps(changed)
