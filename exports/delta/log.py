"""Reader of an existing Delta log.

It reads the newest version, the export state in it, and its files. The state is stored in the Delta log itself, so that
any exporter can continue from this log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from hoodoo.errors import ForeignExport
from hoodoo.exports.delta.actions import APPLICATION
from hoodoo.exports.delta.delta_schema import Json
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store

FOLDER = "_delta_log/"
NEWEST_CHECKPOINT = FOLDER + "_last_checkpoint"
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_COLUMNS = ("table", "slot", "instant", "schema", "partitioned", "overlays", "feed")
_OPTIONAL = ("overlays", "feed")
# Fields that the log contains only if their value differs from the default.


def delta_commit_file_path(version: int) -> str:
    return f"{FOLDER}{version:020d}.json"


def checkpoint_key(version: int) -> str:
    return f"{FOLDER}{version:020d}.checkpoint.parquet"


def is_delta_log_file_name(name: str) -> bool:
    return bool(_VERSION.fullmatch(name) or _CHECKPOINT.fullmatch(name)) or FOLDER + name == NEWEST_CHECKPOINT


@dataclass(frozen=True)
class DeltaLogState:
    """State of a Delta log at its newest version.

    The next export continues from it.

    Attributes:
        version: The version; -1 without a log.
        at_ms: The in-commit timestamp of the version.
        table: The id of the exported table.
        slot: The slot that the version shows.
        instant: The instant of the slot.
        schema: The id of the table's columns.
        partitioned: True if the log declares partition columns.
        overlays: The digest of the overlays, or '' if logs are not exported.
        feed: True if the change data feed is enabled.
        checkpoint: The version of the newest checkpoint, or -1 if there is none.
        misled: True if `_last_checkpoint` names a missing checkpoint.
        external: True if another writer wrote the version. Only version, at_ms, checkpoint and misled are then known.
    """

    version: int = -1
    at_ms: int = 0
    table: str = ""
    slot: int = 0
    instant: str = ""
    schema: int = 0
    partitioned: bool = False
    overlays: str = ""
    feed: bool = False
    checkpoint: int = -1
    misled: bool = False
    external: bool = False

    def said(self) -> Json:
        said = {name: getattr(self, name) for name in _COLUMNS}
        return {f"hoodoo{name.capitalize()}": value for name, value in said.items() if value or name not in _OPTIONAL}


def newest(store: Store) -> DeltaLogState:
    hint = _hinted(store)
    names = store.names(FOLDER, f"{hint:020d}" if hint > 0 else "")
    checkpoints = complete_checkpoint_files(names)
    misled = hint >= 0 and hint not in checkpoints
    if misled:
        names = store.names(FOLDER)
        checkpoints = complete_checkpoint_files(names)
    version = max(delta_versions_in_files(names), default=-1)
    checkpoint = max(
        (checkpoint_version for checkpoint_version in checkpoints if checkpoint_version <= version), default=-1
    )
    return replace(state_of(store, version, checkpoint), misled=misled) if version >= 0 else DeltaLogState()


def _hinted(store: Store) -> int:
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        return int(json.loads(store.get(NEWEST_CHECKPOINT))["version"])
    return -1


def delta_versions_in_files(names: Sequence[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _VERSION.fullmatch(name))]


def complete_checkpoint_files(names: Sequence[str]) -> dict[int, list[str]]:
    files: dict[int, list[str]] = {}
    parts: dict[int, int] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            files.setdefault(int(match[1]), []).append(name)
            parts[int(match[1])] = int(match[3] or 1)
    return {version: file_names for version, file_names in files.items() if len(file_names) >= parts[version]}


def state_of(store: Store, version: int, checkpoint: int = -1) -> DeltaLogState:
    actions = _read_commit_actions(store, version)
    info = actions[0].get("commitInfo") if actions and isinstance(actions[0], dict) else None
    info = info if isinstance(info, dict) else {}
    at_ms = _whole(info.get("inCommitTimestamp", info.get("timestamp")))
    is_own = any(_said(action, "txn").get("appId") == APPLICATION for action in actions)
    fields = {name: info.get(f"hoodoo{name.capitalize()}") for name in _COLUMNS}
    fields |= {name: getattr(DeltaLogState(), name) for name in _OPTIONAL if fields[name] is None}
    kinds = {name: type(getattr(DeltaLogState(), name)) for name in _COLUMNS}
    if not is_own or any(type(value) is not kinds[name] for name, value in fields.items()):
        return DeltaLogState(version, at_ms, checkpoint=checkpoint, external=True)
    return DeltaLogState(version, at_ms, checkpoint=checkpoint, **fields)  # type: ignore[arg-type]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _said(action: Json, name: str) -> Json:
    content = action.get(name) if isinstance(action, dict) else None
    return content if isinstance(content, dict) else {}


def _read_commit_actions(store: Store, version: int) -> list[Json]:
    # [] if the commit file does not contain valid JSON lines.
    with suppress(ValueError):
        return [json.loads(line) for line in store.get(delta_commit_file_path(version)).splitlines() if line.strip()]
    return []


Identity = tuple[str, str]
"""Identity of a file in a Delta log: its encoded path, and its deletion vector or ''."""


def list_live_files(store: Store, version: int) -> dict[Identity, Json]:
    """List the files of a Delta version.

    The values are their `add` actions. Raises ForeignExport if the Delta log cannot be read, and FileNotFoundError if
    one of its files is missing.
    """
    names = store.names(FOLDER)
    checkpoints, versions = complete_checkpoint_files(names), set(delta_versions_in_files(names))
    start = max((candidate for candidate in checkpoints if candidate <= version), default=-1)
    missing = sorted(set(range(start + 1, version + 1)) - versions)
    files: dict[Identity, Json] = {}
    if missing:
        raise FileNotFoundError(delta_commit_file_path(missing[0]))
    try:
        for name in checkpoints.get(start, ()):
            files |= {identity(candidate): candidate for candidate in _read_checkpoint_adds(store, FOLDER + name)}
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError) as problem:
        raise ForeignExport(
            f"The Delta log cannot be read at version {version}: {problem}. Delete the folder {FOLDER} of the table "
            "and export again; this folder contains no rows.",
            format="delta",
            version=version,
        ) from None
    for known, add_action in list_changed_files(store, start + 1, version + 1).items():
        files.pop(known, None)
        if add_action is not None:
            files[known] = add_action
    return files


def list_changed_files(store: Store, first: int, end: int) -> dict[Identity, Json | None]:
    """List the files that Delta versions changed.

    The values are their last `add` actions. The value is None for a removed file. The range starts with `first` and
    ends before `end`.
    """
    changed: dict[Identity, Json | None] = {}
    for version in range(first, end):
        changes = _read_commit_actions(store, version)
        for action in changes:
            if content := _said(action, "remove"):
                changed[identity(content)] = None
        for action in changes:
            if content := _said(action, "add"):
                changed[identity(content)] = content
    return changed


def identity(content: Json) -> Identity:
    vector = content.get("deletionVector")
    return str(content.get("path", "")), deletion_vector_identity(vector) if isinstance(vector, dict) else ""


def deletion_vector_identity(vector: Json) -> str:
    return f"{vector.get('storageType')} {vector.get('pathOrInlineDv')} {vector.get('offset')}"


def _read_checkpoint_adds(store: Store, key: str) -> list[Json]:
    # The structure is that of the actions in a commit file.
    table = read_small(store.get(key))
    added: list[Json] = table["add"].combine_chunks().drop_null().to_pylist()
    compact_actions = ({name: value for name, value in action.items() if value is not None} for action in added)
    return [{**action, "partitionValues": dict(action.get("partitionValues", ()))} for action in compact_actions]


__all__ = [
    "FOLDER",
    "NEWEST_CHECKPOINT",
    "Identity",
    "DeltaLogState",
    "list_changed_files",
    "checkpoint_key",
    "complete_checkpoint_files",
    "identity",
    "list_live_files",
    "deletion_vector_identity",
    "newest",
    "state_of",
    "delta_commit_file_path",
    "delta_versions_in_files",
]
