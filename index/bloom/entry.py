"""Index entries: for one file a bloom filter and sorted key hashes, and its key range, in one file beside the
checkpoints.

The filter says which hash arrays to open; the array decides. The range prunes nothing: it names two keys, so that a
purge looks into it. An entry is written once and never changes, so a rewrite that adds and removes no key keeps the
entry of the file before. Layout (little-endian), after the 8-byte magic:

    u32 bytes of the range   u32 bytes of the filter   u64 number of hashes
    16-byte XXH3-128 of range + filter   16-byte XXH3-128 of hashes
    range: JSON [least key, greatest key]   filter: index/bloom/filter.py
    zeros up to a multiple of 8   hashes: u64, ascending
"""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import CorruptTable, StoreUnavailable
from hoodoo.index.bloom import filter as bloom
from hoodoo.storage.store import Store

_MAGIC = b"HOODOOI1"
_HEAD = struct.Struct("<8sIIQ16s16s")
_KEPT = 2048
_BYTES_KEPT = 512 << 20
_REMEDY = "Run salvage() (hoodoo salvage), which makes it anew."
T = TypeVar("T")


def encode(hashes: np.ndarray, min_key: str, max_key: str, with_filter: bool = True) -> bytes:
    """Bytes of the entry for the keys with these `hashes` (uint64, any order)."""
    values = np.sort(hashes).astype("<u8")
    span = json.dumps([min_key, max_key]).encode()
    filter_bytes = bloom.to_bytes(bloom.build(values)) if with_filter else b""
    front = span + filter_bytes
    data = values.tobytes()
    head = _HEAD.pack(
        _MAGIC, len(span), len(filter_bytes), len(values), xxhash.xxh3_128_digest(front), xxhash.xxh3_128_digest(data)
    )
    return b"".join((head, front, bytes(-(len(head) + len(front)) % 8), data))


@dataclass(frozen=True)
class Front:
    """Range and filter of an entry; `start` is where its hashes begin."""

    min_key: str
    max_key: str
    filter: bloom.KeyFilter | None
    count: int
    start: int
    hashes_digest: bytes


class EntryReader:
    """Reads entries and keeps the newest used: they never change, so nothing in the cache is ever stale."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._fronts: OrderedDict[str, Front] = OrderedDict()
        self._hashes: OrderedDict[str, np.ndarray] = OrderedDict()

    def front(self, key: str) -> Front:
        """Range and filter. Raises CorruptTable naming `key`."""
        with self._lock:
            if key in self._fronts:
                self._fronts.move_to_end(key)
                return self._fronts[key]
        with self._open(key) as file:
            found = _read_front(file, key)
        return self._keep(self._fronts, key, found)

    def hashes(self, key: str) -> np.ndarray:
        """All key hashes, ascending uint64, memory-mapped where the store can. Raises CorruptTable naming `key`."""
        with self._lock:
            if key in self._hashes:
                self._hashes.move_to_end(key)
                return self._hashes[key]
        front = self.front(key)
        with self._open(key) as file:
            file.seek(front.start)
            data = file.read_buffer(8 * front.count)  # a view of the map where the store maps, not a copy
        if xxhash.xxh3_128_digest(data) != front.hashes_digest:
            raise CorruptTable(f"{key} is damaged: its hashes do not fit their digest. {_REMEDY}", file=key)
        held = sum(array.nbytes for array in self._hashes.values())
        room = len(self._hashes) + 1 if held + len(data) <= _BYTES_KEPT else max(1, len(self._hashes) // 2)
        return self._keep(self._hashes, key, np.frombuffer(data, "<u8"), min(room, _KEPT))

    def _open(self, key: str) -> pa.NativeFile:
        try:
            return self.store.open_input(key)
        except FileNotFoundError:
            raise CorruptTable(f"The index entry {key} is missing. {_REMEDY}", file=key) from None

    def _keep(self, cache: OrderedDict[str, T], key: str, value: T, most: int = _KEPT) -> T:
        with self._lock:
            cache[key] = value
            while len(cache) > most:
                cache.popitem(last=False)
        return value


def _read_front(file: pa.NativeFile, key: str) -> Front:
    try:
        magic, span_length, filter_length, count, front_digest, hashes_digest = _HEAD.unpack(
            file.read_at(_HEAD.size, 0)
        )
        if magic != _MAGIC or span_length + filter_length + 8 * count > file.size():
            raise ValueError("it is not an index entry")
        front = bytes(file.read_at(span_length + filter_length, _HEAD.size))
        if xxhash.xxh3_128_digest(front) != front_digest:
            raise ValueError("its digest does not fit")
        least, greatest = json.loads(front[:span_length])
    except (struct.error, ValueError, OSError) as problem:
        if "AWS Error" in str(problem):
            raise StoreUnavailable(f"Reading {key} broke off.", file=key) from None
        raise CorruptTable(f"{key} is damaged: {problem}. {_REMEDY}", file=key) from None
    start = _HEAD.size + len(front)
    return Front(
        least,
        greatest,
        bloom.from_bytes(front[span_length:]) if filter_length else None,
        count,
        start + -start % 8,
        hashes_digest,
    )
