"""Checkpoint files with the state of a table.

The checkpoint of a small table is a Parquet file with one row per data file, sorted by partition and file group. The
other parts of the view are JSON in the footer, and a digest is at the end. The checkpoint of a large table consists of
pages (`checkpoint_pages`).

A checkpoint is derived data. A missing or damaged checkpoint does not change any result. If a page is missing, its
contents are derived from other files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.layout import CHECKPOINTS, checkpoint_key, slot_key
from hoodoo.timeline.slots import slot as slots
from hoodoo.timeline.views import checkpoint_pages
from hoodoo.timeline.views.checkpoint_rows import (
    files_table,
    known_state,
    partitions_of,
    state_of,
    superseded_of,
    superseded_rows,
    view_of,
)
from hoodoo.timeline.views.pages import Groups, PagedPartitions
from hoodoo.timeline.views.view import View, apply

PAGED_FROM = 8192  # number of data files; with fewer files, reading the whole checkpoint is faster
_STATE = b"hoodoo.state"
_DIGEST_LENGTH, _MAGIC_LENGTH = 32, len(checkpoint_pages.MAGIC)
_AT_ONCE = 4 << 20  # maximum bytes of a checkpoint that is read in one request
# per this number of data files, the distance between checkpoints grows by `checkpoint_every` slots
_FILES_FOR_EACH = 200_000
_SPARSE = 10


def encode(view: View) -> bytes:
    if view.totals.bases + view.totals.logs >= PAGED_FROM:
        return checkpoint_pages.encode(view)
    state = state_of(view) | {"superseded": superseded_rows(view.superseded)}
    text = json.dumps(state, separators=(",", ":")).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(files_table(view.groups()).replace_schema_metadata({_STATE: text}), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data + digest(data).encode()


def read_checkpoint(store: Store, key: str, size: int | None = None, heal: bool = True) -> View:
    """Read the state of a table from a checkpoint file.

    Args:
        store: The store of the table.
        key: The path of the checkpoint.
        size: The size of the file in bytes, or None if it is unknown.
        heal: True (default) derives the contents of a damaged page from other checkpoints and slots.

    Raises:
        CorruptTable: The checkpoint is damaged.
        UnsupportedTable: A newer release wrote the checkpoint.
        FileNotFoundError: The file does not exist.
    """
    size = store.size(key) if size is None else size
    data = store.get(key) if size <= _AT_ONCE else None
    end = store.get_range(key, size - _MAGIC_LENGTH, _MAGIC_LENGTH) if data is None else data[-_MAGIC_LENGTH:]
    if not checkpoint_pages.is_paged(end):
        return decode(store.get(key) if data is None else data, key)
    view = checkpoint_pages.read(store, key)
    if heal and isinstance(view.partitions, PagedPartitions):
        view.partitions.pages.heal = partial(_rebuild_partition_groups, store, view.seq)
    return view


def decode(data: bytes, key: str) -> View:
    try:
        body, stored_digest = data[:-_DIGEST_LENGTH], data[-_DIGEST_LENGTH:]
        if digest(body).encode() != stored_digest:
            raise ValueError("the digest of the checkpoint does not match")
        table = read_small(body)
        state = known_state((table.schema.metadata or {})[_STATE], key)
        return view_of(state, partitions_of(table), superseded_of(state["superseded"]))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CorruptTable(f"Checkpoint {key} is damaged: {problem}. Restore it from a backup.", file=key) from None


def write(store: Store, view: View) -> None:
    try:
        store.put_if_absent(checkpoint_key(view.seq), encode(view))
    except FileExistsError:
        return


def is_due(view: View, newest: int, every: int) -> bool:
    files = view.totals.bases + view.totals.logs
    return view.seq - newest >= every * min(_SPARSE, 1 + files // _FILES_FOR_EACH)


def newest_first(store: Store, up_to: int | None = None) -> Iterator[View]:
    for key, size in _keys(store, up_to):
        try:
            yield read_checkpoint(store, key, size)
        except (CorruptTable, FileNotFoundError):
            continue


def _keys(store: Store, up_to: int | None) -> list[tuple[str, int]]:
    found = ((key, size) for key, size in store.list(CHECKPOINTS) if up_to is None or key <= checkpoint_key(up_to))
    return sorted(found, reverse=True)


def _rebuild_partition_groups(store: Store, since: int, partition: str, seq: int) -> Groups:
    # The partition did not change after slot `since` up to slot `seq`. Its groups are read from a checkpoint between
    # both slots, or from an earlier checkpoint and the slots after it.
    for key, size in _keys(store, seq):
        try:
            view = read_checkpoint(store, key, size, heal=False)
            return (_apply_slots_until(store, view, since) if view.seq < since else view).partitions.get(partition, {})
        except (CorruptTable, FileNotFoundError):
            continue
    try:
        return _apply_slots_until(store, View(), since).partitions.get(partition, {})
    except FileNotFoundError:
        key = checkpoint_key(since)
        raise CorruptTable(
            f"Checkpoint {key} is missing or damaged, and earlier slots were archived. Open the table again. If that "
            "fails, restore the file from a backup.",
            file=key,
        ) from None


def _apply_slots_until(store: Store, view: View, seq: int) -> View:
    for number in range(view.seq + 1, seq + 1):
        data = store.get(slot_key(number))
        view = apply(view, slots.decode_commit_file(data, slot_key(number)), slots.sha(data))
    return view
