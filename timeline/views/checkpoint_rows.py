"""Rows of a checkpoint, which encode a table's state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import pyarrow as pa

from hoodoo.format.names import parse_data_file, require_data_file_path
from hoodoo.timeline.properties.schema_history import SHAPE, SchemaHistory
from hoodoo.timeline.slots.shape import matches_types
from hoodoo.timeline.slots.slot import (
    BASE,
    DataFile,
    PlannedGroup,
    check_changes,
    require_supported_features,
    strict_json,
)
from hoodoo.timeline.slots.streamed import StreamerPosition
from hoodoo.timeline.views.file_group import AddedFile, FileGroup, ReplacedFile
from hoodoo.timeline.views.view import PendingCompaction, View

_TEXT = ("path", "partition", "file_id", "kind", "digest", "previous", "index", "sorted", "origin")
_NUMBERS = ("size", "rows", "inserts", "updates", "deletes")
_LATER = {
    "changes": pa.string(),
    "schema": pa.int64(),
    "order": pa.string(),
    "decoded": pa.int64(),
    "partial": pa.int64(),
}
"""Columns that earlier releases do not support.

They are only written if a file uses them, so that earlier releases can read all other checkpoints.
"""
_SCHEMA = pa.schema(
    [pa.field("seq", pa.int64())]
    + [pa.field(n, pa.string()) for n in _TEXT]
    + [pa.field(n, pa.int64()) for n in _NUMBERS]
    + [pa.field("stats", pa.string())]
)
_SCHEMA_1 = pa.schema(
    [field for field in _SCHEMA if field.name not in ("sorted", "origin")]
)  # the columns of version 0.1
_SHAPE: dict[str, Any] = {
    **dict.fromkeys(("sha", "table", "instant"), str),
    **dict.fromkeys(("seq", "completed_at", "min_readable", "commits", "cleaned_at_commit"), int),
    "transactions": {str: int},
    "savepoints": {str: int},
    "undone": [(int, int)],
    "plans": [(int, str, int, [(str, str, str, [str])])],
}
SUPERSEDED_SHAPE = [(int, int, str, str, int, str)]
_OPTIONAL: dict[str, Any] = {
    "settings": {str: str},
    "schemas": [(int, str)],
    "columns": SHAPE,
    "needs": [str],
    "told": str,
    "foreign_rows": int,
    "reached": {str: str},
    "streamed": (str, str, str),
}
"""JSON names that earlier releases do not support, with their shapes.

They are only written if needed, so that earlier releases can read all other checkpoints. Unknown names are ignored,
unless they are in `needs`.
"""


def files_table(groups: Iterable[FileGroup]) -> pa.Table:
    entries = sorted(
        (entry for group in groups for entry in group.files()),
        key=lambda e: (e.file.partition, e.file.file_id, e.file.kind, e.seq),
    )
    columns: dict[str, list[Any]] = {"seq": [entry.seq for entry in entries]}
    columns |= {name: [getattr(entry.file, name) for entry in entries] for name in (*_TEXT, *_NUMBERS)}
    columns["stats"] = [json.dumps(entry.file.stats, separators=(",", ":")) for entry in entries]
    schema = _SCHEMA
    if any(entry.file.changes for entry in entries):
        columns["changes"] = [json.dumps(entry.file.changes, separators=(",", ":")) for entry in entries]
        schema = schema.append(pa.field("changes", _LATER["changes"]))
    for name in ("schema", "order", "decoded", "partial"):
        if any(getattr(entry.file, name) for entry in entries):
            columns[name] = [getattr(entry.file, name) for entry in entries]
            schema = schema.append(pa.field(name, _LATER[name]))
    return pa.table(columns, schema=schema)


def partitions_of(table: pa.Table) -> dict[str, dict[str, FileGroup]]:
    if not _is_checkpoint_schema(table.schema.remove_metadata()):
        raise ValueError("the table does not have the columns of a checkpoint")
    partitions: dict[str, dict[str, FileGroup]] = {}
    folders = set[str]()
    for row in table.to_pylist():
        seq, stats, changes = row.pop("seq"), json.loads(row.pop("stats")), row.pop("changes", "{}")
        file = DataFile(**row, stats=stats, changes=json.loads(changes) if changes != "{}" else {})
        _check_path_once(file.path, folders)
        if file.changes:
            check_changes(file)
        added = AddedFile(seq, file)
        groups = partitions.get(file.partition)
        if groups is None:
            groups = partitions[file.partition] = {}
        old = groups.get(file.file_id)
        if file.kind == BASE:
            groups[file.file_id] = FileGroup(file.partition, file.file_id, added, old.logs if old else ())
        else:
            before = (old.base, old.logs) if old else (None, ())
            groups[file.file_id] = FileGroup(file.partition, file.file_id, before[0], (*before[1], added))
    return partitions


def _check_path_once(path: str, sound: set[str]) -> None:
    # Each folder is checked only once. `sound` contains the folders that have been checked.
    folder, _, name = path.rpartition("/")
    if folder not in sound or "\\" in name or "\0" in name or parse_data_file(name) is None:
        require_data_file_path(path)
        sound.add(folder)


def _is_checkpoint_schema(schema: pa.Schema) -> bool:
    base = [field for field in schema if field.name not in _LATER]
    later = {field.name: field.type for field in schema if field.name in _LATER}
    return pa.schema(base) in (_SCHEMA, _SCHEMA_1) and all(_LATER[name] == kind for name, kind in later.items())


def superseded_rows(files: Iterable[ReplacedFile]) -> list[list[Any]]:
    return [list(astuple(file)) for file in files]


def superseded_of(rows: Any) -> tuple[ReplacedFile, ...]:
    if not matches_types(rows, SUPERSEDED_SHAPE):
        raise ValueError("the list of superseded files is invalid")
    files = tuple(ReplacedFile(*entry) for entry in rows)
    for entry in files:
        require_data_file_path(entry.path)
    return files


def state_of(view: View) -> dict[str, Any]:
    plans = [
        [p.seq, p.instant, p.planned_at, [[g.partition, g.file_id, g.base, list(g.logs)] for g in p.groups]]
        for p in view.plans.values()
    ]
    simple = ("seq", "sha", "table", "instant", "completed_at", "min_readable", "commits", "cleaned_at_commit")
    named: dict[str, Any] = {"transactions": dict(view.transactions), "savepoints": dict(view.savepoints)}
    named["undone"] = view.undone
    later: dict[str, Any] = {"settings": dict(view.settings), "needs": sorted(view.needs)}
    later |= {"columns": view.schemas.to_json(), "told": view.told}
    later |= {"foreign_rows": int(view.foreign_rows), "reached": dict(view.reached)}
    later["streamed"] = list(view.streamed) if view.streamed.text else []
    named |= {name: value for name, value in later.items() if value}
    return {name: getattr(view, name) for name in simple} | named | {"plans": plans}


def known_state(text: bytes, key: str) -> dict[str, Any]:
    state = strict_json(text, key)
    if not isinstance(state, dict):
        raise ValueError("the state is invalid")
    require_supported_features(state.get("needs", []), key)
    return state


def view_of(state: Mapping[str, Any], partitions: Any, superseded: Any, **more: Any) -> View:
    shape = _SHAPE | {name: kind for name, kind in _OPTIONAL.items() if name in state}
    found = {name: value for name, value in state.items() if name in shape}
    if not matches_types(found, shape):
        raise ValueError("the state is invalid")
    plans = {
        t: PendingCompaction(seq, t, at, tuple(PlannedGroup(p, f, b, tuple(logs)) for p, f, b, logs in groups))
        for seq, t, at, groups in found.pop("plans")
    }
    found["undone"] = tuple((first, last) for first, last in found["undone"])
    found["schemas"] = _decode_schema_history(found.pop("columns", {}), found.get("schemas", ()))
    found["needs"] = frozenset(found.get("needs", ()))
    found["streamed"] = StreamerPosition(*found.get("streamed", ()))
    found["foreign_rows"] = bool(found.get("foreign_rows", 0))
    found.setdefault("told", found["instant"])  # missing in checkpoints of earlier releases
    return View(**found, partitions=partitions, plans=plans, superseded=superseded, **more)


def _decode_schema_history(said: Mapping[str, Any], avro: Sequence[tuple[int, str]]) -> SchemaHistory:
    # `avro` contains the (slot, Avro text) pairs of earlier releases.
    found = SchemaHistory.from_json(said)
    for (_, before), (seq, text) in zip(avro, avro[1:], strict=False):
        found = found.add_schema_without_ids(seq, text, before)
    return found


__all__ = [
    "files_table",
    "known_state",
    "partitions_of",
    "state_of",
    "superseded_of",
    "superseded_rows",
    "view_of",
]
