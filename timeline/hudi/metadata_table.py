"""Writer for the file listing in Hudi's metadata table.

If the table properties enable this partition, Hudi's readers only see the listed files. The publisher of a slot
therefore first appends the slot's added and deleted files. hoodoo's readers do not use the metadata table. If its state
is not supported, the publisher disables it, and Hudi rebuilds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hoodoo.errors import CorruptTable
from hoodoo.format import hfile
from hoodoo.format import properties as java
from hoodoo.format.log.block import encode_metadata_block
from hoodoo.format.names import LogFileName, instant_of_ms, log_file_name, ms_of_instant, parse_data_file
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.format.timeline import file_listing
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, ROLLBACK, Instant, State, parse_instant
from hoodoo.timeline.layout import METADATA_TABLE, TIMELINE
from hoodoo.timeline.properties.config import METADATA_PARTITIONS
from hoodoo.timeline.properties.metadata_properties import METADATA_INFLIGHT
from hoodoo.timeline.slots.slot import COMPLETED, LOG, DataFile, Slot

FILES = "files"
"""Name of the partition of Hudi's metadata table that lists the data files."""
_ROOT = METADATA_TABLE + "/"
_TIMELINE = _ROOT + TIMELINE
_FILE_GROUP = "files-0000-0"
_BASE = re.compile(rf"^{_FILE_GROUP}_\d+-\d+-\d+_(\d{{17}})\.hfile$")
_LOGS_MAX = 64
"""Maximum number of log files after the newest base file, which hoodoo never compacts."""
_VERSION = "9"
_PROPERTIES = {
    "hoodie.table.version": _VERSION,
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.table.base.file.format": "HFILE",
    "hoodie.populate.meta.fields": "false",
    "hoodie.table.recordkey.fields": "key",
}
_HARMLESS = (DELTA_COMMIT, CLEAN, ROLLBACK)
"""Actions that may be pending in the metadata table without preventing an append.

A delta commit belongs to a commit of the table, and Hudi completes both.
"""


@dataclass(frozen=True)
class MetadataTableState:
    """State of Hudi's metadata table.

    Attributes:
        schema: The schema of the records.
        newest_ms: The newest time in the timeline of the metadata table, in ms since 1970.
        appended: True if the metadata table has a completed commit with the instant to append.
    """

    schema: str
    newest_ms: int
    appended: bool


def list_file_changes(slot: Slot) -> dict[str, dict[str, int | None]]:
    """List the files that a commit added or deleted.

    The values are file sizes, or None for deleted files. As in Hudi, a replaced file stays listed until it is cleaned.
    Files that a rollback deletes were never listed.
    """
    changes: dict[str, dict[str, int | None]] = {}
    if slot.outcome != COMPLETED:
        return changes
    for file in slot.files:
        files = changes.setdefault(file.partition, {})
        files[file.name] = file.size
        files.update({path.rpartition("/")[2]: size for path, (size, _) in file.changes.items()})
    for path, partition in slot.victims:
        changes.setdefault(partition, {})[path.rpartition("/")[2]] = None
    return changes


def has_file_listing(values: Mapping[str, str]) -> bool:
    """Check whether Hudi's metadata table has a file listing.

    False if the properties do not enable it, or if any partition of the metadata table is being built.
    """
    enabled = [name.strip() for name in values.get(METADATA_PARTITIONS, "").split(",")]
    return FILES in enabled and not values.get(METADATA_INFLIGHT) and values.get("hoodie.table.version") == _VERSION


def read_metadata_table(store: Store, instant: str) -> MetadataTableState | None:
    """Read the state of Hudi's metadata table.

    Args:
        store: The table's store.
        instant: The instant to append.

    Returns:
        The state of the metadata table, or None if its state is not supported.
    """
    if not _has_known_properties(store):
        return None
    instants = _instants(store)
    completed = [one for one in instants if one.state is State.COMPLETED]
    completed_times = {one.time for one in completed}
    if any(one.action not in _HARMLESS and one.time not in completed_times for one in instants):
        return None  # a compaction or a change of its partitions is running
    if not _has_log_capacity(store, instant):
        return None
    schema = _record_schema(store, completed)
    if schema is None:
        return None
    other_instants = (one for one in instants if one.time != instant)
    newest = max((time for one in other_instants for time in (one.time, one.completed)), default=instant)
    appended = any(one.time == instant and one.action == DELTA_COMMIT for one in completed)
    return MetadataTableState(schema, ms_of_instant(newest), appended)


def _has_known_properties(store: Store) -> bool:
    try:
        values = java.parse_properties(store.get(_ROOT + ".hoodie/hoodie.properties"))
    except (FileNotFoundError, CorruptTable):
        return False
    return all(values.get(name) == expected for name, expected in _PROPERTIES.items())


def _instants(store: Store) -> list[Instant]:
    return [found for name in store.names(_TIMELINE) if (found := parse_instant(name))]


def _has_log_capacity(store: Store, instant: str) -> bool:
    bases, logs = [], []
    for name in store.names(f"{_ROOT}{FILES}/"):
        parsed = parse_data_file(name)
        if base := _BASE.match(name):
            bases.append(base[1])
        elif isinstance(parsed, LogFileName) and parsed.file_id == _FILE_GROUP:
            logs.append(parsed.instant)
        elif parsed or not name.startswith("."):
            return False
    above = [one for one in logs if one > max(bases, default="") and one != instant]
    return bool(bases or logs) and len(above) < _LOGS_MAX


def _record_schema(store: Store, completed: list[Instant]) -> str | None:
    for one in sorted(completed, key=lambda one: one.completed, reverse=True):
        if one.action != DELTA_COMMIT:
            continue
        try:
            record = timeline_avro.decode_timeline_file(store.get(_key(one)), "HoodieCommitMetadata")
        except (FileNotFoundError, CorruptTable):
            return None
        text = (record.get("extraMetadata") or {}).get("schema")
        if text:
            return text if file_listing.metadata_record_schema(text) else None
    return None


def add_commit_files(store: Store, slot: Slot, table: MetadataTableState) -> None:
    """Add the files of a commit to Hudi's metadata table.

    The log is only valid with the deltacommit. Another process may already have done some of the steps. The completion
    time of the deltacommit is later than all times in the metadata table, because readers ignore logs that are older
    than a compaction.

    Args:
        store: The table's store.
        slot: The slot, which is not published yet.
        table: The state of the metadata table, which `read_metadata_table` returned for the instant of the slot.
    """
    if table.appended:
        return
    schema = file_listing.metadata_record_schema(table.schema) or ""
    records = file_listing.encode_file_list(schema, list_file_changes(slot))
    content = encode_metadata_block(slot.instant, schema, hfile.encode_hfile(records, schema, slot.completed_at))
    path = f"{FILES}/{log_file_name(_FILE_GROUP, slot.instant)}"
    log = DataFile(path, FILES, _FILE_GROUP, LOG, size=len(content), digest="", rows=len(records), updates=len(records))
    completed = instant_of_ms(max(slot.completed_at, table.newest_ms + 1))
    deltacommit = Instant(slot.instant, DELTA_COMMIT, State.COMPLETED, completed)
    for key, data in (
        (_key(Instant(slot.instant, DELTA_COMMIT, State.REQUESTED)), b""),
        (_key(Instant(slot.instant, DELTA_COMMIT, State.INFLIGHT)), b""),
        (_ROOT + path, content),
        (_key(deltacommit), commit_metadata.encode_metadata_table_commit(log, slot.instant, table.schema)),
    ):
        with suppress(FileExistsError):  # another process was faster
            store.create(key, data)


def _key(instant: Instant) -> str:
    return _ROOT + instant.key


def find_oldest_needed_commit(store: Store) -> str:
    """Find the oldest commit that Hudi's metadata table needs.

    Readers ignore a log of the metadata table whose instant is not in the table's timeline, so these instants must not
    be archived.
    """
    bases = [base[1] for name in store.names(f"{_ROOT}{FILES}/") if (base := _BASE.match(name))]
    compacted = max(bases, default="")
    return min(_later(_instants(store), compacted), default=compacted)


def _later(instants: list[Instant], compacted: str) -> Iterator[str]:
    yield compacted
    for instant in instants:
        if instant.action in (DELTA_COMMIT, COMMIT) and (
            instant.completed > compacted or instant.state is not State.COMPLETED
        ):
            yield instant.time
