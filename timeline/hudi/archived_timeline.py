"""Hudi's archived timeline: Parquet files in timeline/history/, named by a manifest, named by a version (docs/format.md
14).

Reads what any engine archived there, and adds to it. Which instants may go is decided elsewhere
(compactor/cleaning/archive.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.names import check_below
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import HISTORY
from hoodoo.timeline.slots.slot import strict_json

_VERSION = HISTORY + "_version_"
_MERGE_FROM = 10  # files of one level become one of the next
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
class Archived:
    """One completed instant. metadata: content of its completed file; plan: of its requested file, where there is one
    to keep.
    """

    time: str
    completed: str
    action: str
    metadata: bytes
    plan: bytes | None = None


def read(store: Store) -> Iterator[Archived]:
    """All archived instants, file by file."""
    for name in _files(store, _version(store)):
        yield from _rows(store, name)


def newest(store: Store) -> str:
    """Requested time of the newest archived instant; '' if there is none."""
    return max((name.split("_")[1] for name in _files(store, _version(store))), default="")


def _version(store: Store) -> int:
    try:
        text = store.get(_VERSION).decode().strip()
        return int(text)
    except FileNotFoundError:
        return 0
    except ValueError:
        raise CorruptTable(f"{_VERSION} does not contain a number. Restore it from a backup.", file=_VERSION) from None


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
        raise CorruptTable(f"{key} is not a valid manifest. Restore it from a backup.", file=key) from None


def _rows(store: Store, name: str) -> list[Archived]:
    key = check_below(HISTORY + name, HISTORY)
    try:
        rows = read_small(store.get(key)).to_pylist()
        return [
            Archived(row["instantTime"], row["completionTime"], row["action"], row["metadata"], row["plan"])
            for row in rows
        ]
    except FileNotFoundError:
        raise CorruptTable(
            f"File {key} is missing, but the manifest of the history refers to it. Restore it from a backup.", file=key
        ) from None
    except (pa.ArrowException, OSError, KeyError) as problem:
        raise CorruptTable(f"{key} is damaged: {problem}.", file=key) from None


def append(store: Store, instants: Sequence[Archived]) -> bool:
    """Add `instants`, in order of time. False: somebody else is archiving; nothing was added.

    File, then manifest, then version: until the version names the new manifest, nobody sees any of it. The manifest is
    put if absent, so of two archivers one wins; what one left unfinished the next one finishes.
    """
    version = _version(store)
    if store.exists(
        _manifest(version + 1)
    ):  # its writer died before the version, or is about to write it: either way that is next
        store.put(_VERSION, str(version + 1).encode())
        return False
    known = (
        {one.time for name in _files(store, version) for one in _rows(store, name) if one.time >= instants[0].time}
        if version
        else set()
    )
    fresh = [one for one in instants if one.time not in known]
    if not fresh:
        return True
    names = [*_files(store, version), _put(store, fresh, 0)]
    names, merged = _merge(store, names)
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


def _put(store: Store, rows: Sequence[Archived], level: int) -> str:
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


def _merge(store: Store, names: list[str]) -> tuple[list[str], list[str]]:
    """(names after merging what has grown to ten files of a level, names that are not needed any more)."""
    gone: list[str] = []
    level = 0
    while True:
        mine = sorted(name for name in names if name.endswith(f"_{level}.parquet"))
        if len(mine) < _MERGE_FROM:
            return names, gone
        rows = sorted((one for name in mine for one in _rows(store, name)), key=lambda one: one.time)
        names = [name for name in names if name not in mine] + [_put(store, rows, level + 1)]
        gone += mine
        level += 1
