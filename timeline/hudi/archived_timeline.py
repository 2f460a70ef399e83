"""Reader and writer for Hudi's archived timeline.

See docs/format.md 14. The archived timeline consists of Parquet files in timeline/history/, a manifest that lists them,
and a version file that contains the number of the manifest. compactor/cleaning/archive.py selects the instants to
archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.names import require_path_in_folders
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import HISTORY
from hoodoo.timeline.slots.slot import strict_json

_VERSION = HISTORY + "_version_"
_MERGE_FROM = 10  # number of files of one level that are merged into one file of the next level
_MANIFESTS_KEPT = 3
_SCHEMA = pa.schema(
    [pa.field(name, pa.string()) for name in ("instantTime", "completionTime", "action")]
    + [
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ArchivedEntry:
    """Completed entry of Hudi's archived timeline.

    `metadata` is the content of its completed file. `plan` is the content of its requested file, or None.
    """

    time: str
    completed: str
    action: str
    metadata: bytes
    plan: bytes | None = None


def read(store: Store) -> Iterator[ArchivedEntry]:
    for name in _files(store, _version(store)):
        yield from _rows(store, name)


def newest(store: Store) -> str:
    return max((name.split("_")[1] for name in _files(store, _version(store))), default="")


def _version(store: Store) -> int:
    try:
        text = store.get(_VERSION).decode().strip()
        return int(text)
    except FileNotFoundError:
        return 0
    except ValueError:
        raise CorruptTable(
            f"File {_VERSION} does not contain a number. Restore it from a backup.", file=_VERSION
        ) from None


def _manifest(version: int) -> str:
    return f"{HISTORY}manifest_{version}"


def _files(store: Store, version: int) -> list[str]:
    if not version:
        return []
    key = _manifest(version)
    try:
        return [str(entry["fileName"]) for entry in strict_json(store.get(key), key)["files"]]
    except FileNotFoundError:
        raise CorruptTable(
            f"File {key} is missing, but {_VERSION} refers to it. Restore it from a backup.", file=key
        ) from None
    except (KeyError, TypeError):
        raise CorruptTable(f"Manifest {key} is invalid. Restore it from a backup.", file=key) from None


def _rows(store: Store, name: str) -> list[ArchivedEntry]:
    key = require_path_in_folders(HISTORY + name, HISTORY)
    try:
        rows = read_small(store.get(key)).to_pylist()
        return [
            ArchivedEntry(row["instantTime"], row["completionTime"], row["action"], row["metadata"], row["plan"])
            for row in rows
        ]
    except FileNotFoundError:
        raise CorruptTable(
            f"File {key} is missing, but the manifest of the history refers to it. Restore it from a backup.", file=key
        ) from None
    except (pa.ArrowException, OSError, KeyError) as problem:
        raise CorruptTable(f"File {key} is damaged: {problem}. Restore it from a backup.", file=key) from None


def append_to_archive(store: Store, instants: Sequence[ArchivedEntry]) -> bool:
    """Append completed commits to Hudi's archived timeline.

    Returns False without adding anything if another process is archiving. The Parquet file is written first, then the
    manifest, and then the version file, which makes the new instants visible. The manifest is only created if it does
    not exist, so only one of two concurrent archivers succeeds. The next archiver completes unfinished work.
    """
    version = _version(store)
    if store.exists(
        _manifest(version + 1)
    ):  # its writer died before it wrote the version file, or is about to write it
        store.put(_VERSION, str(version + 1).encode())
        return False
    archived_times = (
        {one.time for name in _files(store, version) for one in _rows(store, name) if one.time >= instants[0].time}
        if version
        else set()
    )
    added = [one for one in instants if one.time not in archived_times]
    if not added:
        return True
    names = [*_files(store, version), _put(store, added, 0)]
    names, merged = _merge_levels(store, names)
    sizes = {name: store.size(HISTORY + name) for name in names}
    body = {"files": [{"fileName": name, "fileLen": sizes[name]} for name in names]}
    try:
        store.create(_manifest(version + 1), json.dumps(body, indent=2).encode())
    except FileExistsError:
        return False
    store.put(_VERSION, str(version + 1).encode())
    for name in merged:
        store.delete(HISTORY + name)
    if version + 1 > _MANIFESTS_KEPT:
        store.delete(_manifest(version + 1 - _MANIFESTS_KEPT))
    return True


def _put(store: Store, rows: Sequence[ArchivedEntry], level: int) -> str:
    name = f"{rows[0].time}_{rows[-1].time}_{level}.parquet"
    columns = [
        [one.time for one in rows],
        [one.completed for one in rows],
        [one.action for one in rows],
        [one.metadata for one in rows],
        [one.plan for one in rows],
    ]
    table = pa.table([*columns, [1] * len(rows)], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="gzip", write_page_checksum=True)
    store.put(HISTORY + name, sink.getvalue())
    return name


def _merge_levels(store: Store, names: list[str]) -> tuple[list[str], list[str]]:
    # Returns the names of the current files, and the names of the merged files, which are no longer needed.
    merged: list[str] = []
    level = 0
    while True:
        level_names = sorted(name for name in names if name.endswith(f"_{level}.parquet"))
        if len(level_names) < _MERGE_FROM:
            return names, merged
        rows = sorted((one for name in level_names for one in _rows(store, name)), key=lambda one: one.time)
        names = [name for name in names if name not in level_names] + [_put(store, rows, level + 1)]
        merged += level_names
        level += 1
