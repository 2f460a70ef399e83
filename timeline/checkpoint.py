"""Checkpoints: a view as one Parquet file, so that opening a table costs the same however long its history is.

One row per data file, sorted by partition and file group; the rest of the view as JSON in the footer; a digest of all
that at the end. A checkpoint is derived: deleting one changes no answer, a damaged one is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.names import check_data_path
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.layout import CHECKPOINTS, checkpoint_key
from hoodoo.timeline.schema_history import SHAPE, SchemaHistory
from hoodoo.timeline.shape import fits
from hoodoo.timeline.slot import BASE, DataFile, PlannedGroup, check_changes, require_known, strict_json
from hoodoo.timeline.view import FileGroup, Placed, Plan, Superseded, View

_TEXT = ("path", "partition", "file_id", "kind", "digest", "previous", "index", "sorted", "origin")
_NUMBERS = ("size", "rows", "inserts", "updates", "deletes")
_LATER = {"changes": pa.string(), "schema": pa.int64()}
"""Columns that came later, only where a file has such a thing: an older release reads the others."""
_SCHEMA = pa.schema(
    [pa.field("seq", pa.int64())]
    + [pa.field(n, pa.string()) for n in _TEXT]
    + [pa.field(n, pa.int64()) for n in _NUMBERS]
    + [pa.field("stats", pa.string())]
)
_SCHEMA_1 = pa.schema(
    [field for field in _SCHEMA if field.name not in ("sorted", "origin")]
)  # as version 0.1 wrote them
_STATE = b"hoodoo.state"
_SHAPE: dict[str, Any] = {
    **dict.fromkeys(("sha", "table", "instant"), str),
    **dict.fromkeys(("seq", "completed_at", "min_readable", "commits", "cleaned_at_commit"), int),
    "transactions": {str: int},
    "savepoints": {str: int},
    "undone": [(int, int)],
    "plans": [(int, str, int, [(str, str, str, [str])])],
    "superseded": [(int, int, str, str, int, str)],
}
_OPTIONAL: dict[str, Any] = {
    "settings": {str: str},
    "schemas": [(int, str)],
    "columns": SHAPE,
    "needs": [str],
    "told": str,
}
"""Names that came later: written where there is something to say, so that an older release reads the others. Names that
are not known here are passed over; what must not be is in `needs`.
"""
_DIGEST_LENGTH = 32


def encode(view: View) -> bytes:
    """Parquet bytes of `view`, and their digest behind them."""
    entries = sorted(
        (entry for group in view.groups() for entry in group.files()),
        key=lambda e: (e.file.partition, e.file.file_id, e.file.kind, e.seq),
    )
    columns: dict[str, list[Any]] = {"seq": [entry.seq for entry in entries]}
    columns |= {name: [getattr(entry.file, name) for entry in entries] for name in (*_TEXT, *_NUMBERS)}
    columns["stats"] = [json.dumps(entry.file.stats, separators=(",", ":")) for entry in entries]
    schema = _SCHEMA
    if any(entry.file.changes for entry in entries):
        columns["changes"] = [json.dumps(entry.file.changes, separators=(",", ":")) for entry in entries]
        schema = schema.append(pa.field("changes", _LATER["changes"]))
    if any(entry.file.schema for entry in entries):
        columns["schema"] = [entry.file.schema for entry in entries]
        schema = schema.append(pa.field("schema", _LATER["schema"]))
    table = pa.table(columns, schema=schema)
    state = json.dumps(_state(view), separators=(",", ":")).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({_STATE: state}), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    return data + digest(data).encode()


def _state(view: View) -> dict[str, Any]:
    plans = [
        [p.seq, p.instant, p.planned_at, [[g.partition, g.file_id, g.base, list(g.logs)] for g in p.groups]]
        for p in view.plans.values()
    ]
    simple = ("seq", "sha", "table", "instant", "completed_at", "min_readable", "commits", "cleaned_at_commit")
    named: dict[str, Any] = {"transactions": dict(view.transactions), "savepoints": dict(view.savepoints)}
    named["undone"] = view.undone
    later = {"settings": dict(view.settings), "needs": sorted(view.needs)}
    later |= {"columns": view.schemas.to_json(), "told": view.told}
    named |= {name: value for name, value in later.items() if value}
    return (
        {name: getattr(view, name) for name in simple}
        | named
        | {"plans": plans, "superseded": [list(astuple(s)) for s in view.superseded]}
    )


def decode(data: bytes, key: str) -> View:
    """The view in `data`. Raises CorruptTable or UnsupportedTable naming `key`."""
    try:
        body, said = data[:-_DIGEST_LENGTH], data[-_DIGEST_LENGTH:]
        if digest(body).encode() != said:
            raise ValueError("its digest does not fit")
        table = read_small(body)
        if not _is_known(table.schema.remove_metadata()):
            raise ValueError("its columns are not those of a checkpoint")
        state = strict_json((table.schema.metadata or {})[_STATE], key)
        if not isinstance(state, dict):
            raise ValueError("its state is not that of a view")
        require_known(state.get("needs", []), key)
        shape = _SHAPE | {name: kind for name, kind in _OPTIONAL.items() if name in state}
        state = {name: value for name, value in state.items() if name in shape}
        if not fits(state, shape):
            raise ValueError("its state is not that of a view")
        return _view(state, table.to_pylist())
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CorruptTable(f"{key} is damaged: {problem}.", file=key) from None


def _is_known(schema: pa.Schema) -> bool:
    """Are these the columns of a checkpoint?"""
    base = [field for field in schema if field.name not in _LATER]
    later = {field.name: field.type for field in schema if field.name in _LATER}
    return pa.schema(base) in (_SCHEMA, _SCHEMA_1) and all(_LATER[name] == kind for name, kind in later.items())


def _view(state: dict[str, Any], rows: list[dict[str, Any]]) -> View:
    partitions: dict[str, dict[str, FileGroup]] = {}
    for row in rows:
        seq, stats, changes = row.pop("seq"), json.loads(row.pop("stats")), json.loads(row.pop("changes", "{}"))
        placed = Placed(seq, DataFile(**row, stats=stats, changes=changes))
        check_data_path(placed.file.path)
        check_changes(placed.file)
        groups = partitions.setdefault(placed.file.partition, {})
        old = groups.get(placed.file.file_id, FileGroup(placed.file.partition, placed.file.file_id, None))
        is_base = placed.file.kind == BASE
        groups[old.file_id] = FileGroup(
            old.partition, old.file_id, placed if is_base else old.base, old.logs if is_base else (*old.logs, placed)
        )
    plans = {
        t: Plan(seq, t, at, tuple(PlannedGroup(p, f, b, tuple(logs)) for p, f, b, logs in groups))
        for seq, t, at, groups in state.pop("plans")
    }
    superseded = tuple(Superseded(*entry) for entry in state.pop("superseded"))
    for entry in superseded:
        check_data_path(entry.path)
    state["undone"] = tuple((first, last) for first, last in state["undone"])
    state["schemas"] = _schemas(state.pop("columns", {}), state.get("schemas", ()))
    state["needs"] = frozenset(state.get("needs", ()))
    state.setdefault("told", state["instant"])  # an earlier release did not write it
    return View(**state, partitions=partitions, plans=plans, superseded=superseded)


def _schemas(said: Mapping[str, Any], avro: Sequence[tuple[int, str]]) -> SchemaHistory:
    """avro: what earlier releases wrote, (slot, Avro text)."""
    found = SchemaHistory.from_json(said)
    for (_, before), (seq, text) in zip(avro, avro[1:], strict=False):
        found = found.after_avro(seq, text, before)
    return found


def write(store: Store, view: View) -> None:
    """Write the checkpoint of `view`; that another writer did is as good."""
    try:
        store.put_if_absent(checkpoint_key(view.seq), encode(view))
    except FileExistsError:
        return


def newest_first(store: Store, up_to: int | None = None) -> Iterator[View]:
    """Views of the checkpoints at or before slot `up_to`, newest first; damaged ones are left out."""
    keys = sorted(
        (key for key, _ in store.list(CHECKPOINTS) if up_to is None or key <= checkpoint_key(up_to)), reverse=True
    )
    for key in keys:
        try:
            yield decode(store.get(key), key)
        except (CorruptTable, FileNotFoundError):
            continue
