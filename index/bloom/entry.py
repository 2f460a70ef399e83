"""Index entries of data files.

Entries are below the table's metadata folder. An entry contains a bloom filter, the sorted key hashes with their row
positions, and the key range. The filter rules out most hash arrays, and the hash array gives the answer. The key range
is not used for pruning, but a purge reads it because it contains two keys as strings. An entry never changes. A rewrite
that keeps every key in its row reuses the entry of the previous file.

Layout (little-endian) of HOODOOI2, the entry of a base file:

    8-byte magic   u32 bytes of the range   u32 bytes of the filter   u64 number of hashes
    16-byte XXH3-128 of secret + order + bits + range + filter   16-byte XXH3-128 of hashes   16-byte XXH3-128 of cells
    16-byte secret of the checks   16-byte order (index/bloom/cells.py)   u64 bits of a row
    range: JSON [least key, greatest key]   filter: index/bloom/key_filter.py
    zeros up to a multiple of 8   hashes: u64, ascending   cells: u64, one for each hash

HOODOOI1 is the format for keys that a log deletes, and for base files of earlier releases. Its header ends with the
digest of the hashes. It lacks cells and therefore row positions.
"""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import xxhash

from hoodoo.errors import CorruptTable, StoreUnavailable
from hoodoo.index.bloom import key_filter as bloom
from hoodoo.index.bloom.cells import RowPositions
from hoodoo.storage.store import Store

_MAGIC, _MAGIC_WITH_ROWS = b"HOODOOI1", b"HOODOOI2"
_HEAD = struct.Struct("<8sIIQ16s16s")
_ROWS_HEAD = struct.Struct("<16s16s16sQ")  # additional header fields of HOODOOI2
_NO_ROWS = b"", b"", b"", 0
_KEPT = 2048
_BYTES_KEPT = 512 << 20
_LOOKS_KEPT = 16
# Number of lookups after which an unused index entry is evicted. Usually its base file was rewritten.
_WHOLE = 1 << 20  # maximum bytes of an entry that is read in one request from object storage
_REMEDY = "Run maintenance.salvage() (hoodoo salvage) to recreate it."
T = TypeVar("T")


def encode(hashes: np.ndarray) -> bytes:
    data = np.sort(hashes).astype("<u8").tobytes()
    span = json.dumps(["", ""]).encode()
    head = _HEAD.pack(_MAGIC, len(span), 0, len(hashes), _digest(span), _digest(data))
    return b"".join((head, span, bytes(-(len(head) + len(span)) % 8), data))


def encode_base_file_entry(cells: RowPositions, min_key: str, max_key: str) -> bytes:
    """Encode the index entry of a base file."""
    span = json.dumps([min_key, max_key]).encode()
    filter_bytes = bloom.to_bytes(bloom.build(cells.hashes))
    hashes, values = cells.hashes.astype("<u8").tobytes(), cells.values.astype("<u8").tobytes()
    rows = cells.secret, bytes.fromhex(cells.order), cells.bits
    front = _front_digest(*rows, span + filter_bytes)
    head = _HEAD.pack(_MAGIC_WITH_ROWS, len(span), len(filter_bytes), len(cells), front, _digest(hashes))
    head += _ROWS_HEAD.pack(_digest(values), *rows)
    return b"".join((head, span, filter_bytes, bytes(-(len(head) + len(span) + len(filter_bytes)) % 8), hashes, values))


def _digest(data: bytes | pa.Buffer) -> bytes:
    return xxhash.xxh3_128_digest(data)


def _front_digest(secret: bytes, order: bytes, bits: int, front: bytes) -> bytes:
    return _digest(b"".join((secret, order, bits.to_bytes(8, "little"), front)))


@dataclass(frozen=True)
class EntryArray:
    """Location and digest of an array in an index entry."""

    name: str
    start: int
    count: int
    digest: bytes

    def cache_key(self, key: str) -> str:
        return f"{self.name} of {key}"


@dataclass(frozen=True)
class EntryHeader:
    """Header of an index entry.

    Attributes:
        min_key: The least key.
        max_key: The greatest key.
        filter: The bloom filter, or None.
        count: The number of hashes in the entry.
        start: The offset of the first byte of the hashes.
        hashes_digest: The digest of the hashes.
        order: Digest of the row order, or '' if the entry lacks row positions.
        secret: The secret of the cells.
        bits: The number of low bits of a cell that contain the row position.
        cells_digest: The digest of the cells.
    """

    min_key: str
    max_key: str
    filter: bloom.KeyBloomFilter | None
    count: int
    start: int
    hashes_digest: bytes
    order: str = ""
    secret: bytes = b""
    bits: int = 0
    cells_digest: bytes = b""

    @property
    def arrays(self) -> tuple[EntryArray, ...]:
        hashes = EntryArray("hashes", self.start, self.count, self.hashes_digest)
        cells = EntryArray("cells", self.start + 8 * self.count, self.count, self.cells_digest)
        return (hashes, cells) if self.order else (hashes,)


class IndexEntryCache:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.look = 0
        self.fronts = _LookupCache[EntryHeader]()
        self.arrays = _LookupCache[np.ndarray](size=lambda array: array.nbytes)


class _LookupCache(Generic[T]):
    # LRU cache. `held` is the total size of the values, as measured by `size`.
    def __init__(self, size: Callable[[T], int] = lambda _: 0) -> None:
        self._used: OrderedDict[str, tuple[int, T]] = OrderedDict()
        self._size, self.held = size, 0

    def __len__(self) -> int:
        return len(self._used)

    def get(self, name: str, look: int) -> T | None:
        entry = self._used.pop(name, None)
        if entry is None:
            return None
        self._used[name] = look, entry[1]
        return entry[1]

    def put(self, name: str, look: int, value: T, max_entries: int) -> None:
        if name in self._used:
            self.held -= self._size(self._used.pop(name)[1])
        self._used[name] = look, value
        self.held += self._size(value)
        while len(self._used) > max_entries:
            self._forget_first()

    def forget_before(self, look: int) -> None:
        while self._used and next(iter(self._used.values()))[0] < look:
            self._forget_first()

    def _forget_first(self) -> None:
        _, (_, value) = self._used.popitem(last=False)
        self.held -= self._size(value)


_caches: WeakKeyDictionary[Store, IndexEntryCache] = WeakKeyDictionary()


def index_cache_of_store(store: Store) -> IndexEntryCache:
    return _caches.setdefault(store, IndexEntryCache())


class IndexEntryReader:
    """Cached reader of index entries."""

    def __init__(self, store: Store, cache: IndexEntryCache | None = None) -> None:
        self.store, self._cache = store, cache or IndexEntryCache()

    def begin_lookup(self) -> None:
        cache = self._cache
        with cache.lock:
            cache.look += 1
            for kept in (cache.fronts, cache.arrays):
                kept.forget_before(cache.look - _LOOKS_KEPT)

    def read_header(self, key: str) -> EntryHeader:
        cache = self._cache
        with cache.lock:
            if (front := cache.fronts.get(key, cache.look)) is not None:
                return front
        with self._open(key) as file:
            front = self._keep(cache.fronts, key, _read_front(file, key))
            if self.store.lists_by_prefix and front.start + 16 * front.count <= _WHOLE:
                for array in front.arrays:
                    self._read(file, key, array)
        return front

    def hashes(self, key: str) -> np.ndarray:
        return self._array(key, 0)

    def cells(self, key: str) -> RowPositions | None:
        """Read the row positions of an index entry.

        Returns None if it lacks them. Raises CorruptTable with the path `key`.
        """
        front = self.read_header(key)
        if not front.order:
            return None
        return RowPositions(self._array(key, 0), self._array(key, 1), front.secret, front.bits, front.order)

    def _array(self, key: str, number: int) -> np.ndarray:
        front = self.read_header(key)  # for a small entry, this also caches the arrays
        array = front.arrays[number]
        with self._cache.lock:
            if (values := self._cache.arrays.get(array.cache_key(key), self._cache.look)) is not None:
                return values
        with self._open(key) as file:
            return self._read(file, key, array)

    def _read(self, file: pa.NativeFile, key: str, array: EntryArray) -> np.ndarray:
        file.seek(array.start)
        data = file.read_buffer(8 * array.count)  # a view without a copy if the store memory-maps files
        if _digest(data) != array.digest:
            raise CorruptTable(
                f"Index entry {key} is damaged: the {array.name} do not match their digest. {_REMEDY}", file=key
            )
        arrays = self._cache.arrays
        room = len(arrays) + 1 if arrays.held + len(data) <= _BYTES_KEPT else max(1, len(arrays) // 2)
        return self._keep(arrays, array.cache_key(key), np.frombuffer(data, "<u8"), min(room, _KEPT))

    def _open(self, key: str) -> pa.NativeFile:
        try:
            return self.store.open_input(key)
        except FileNotFoundError:
            raise CorruptTable(f"Index entry {key} is missing. {_REMEDY}", file=key) from None

    def _keep(self, kept: _LookupCache[T], name: str, value: T, most: int = _KEPT) -> T:
        with self._cache.lock:
            kept.put(name, self._cache.look, value, most)
        return value


def _read_front(file: pa.NativeFile, key: str) -> EntryHeader:
    try:
        head = file.read_at(_HEAD.size + _ROWS_HEAD.size, 0)
        magic, span_length, filter_length, count, front_digest, hashes_digest = _HEAD.unpack_from(head)
        has_rows = magic == _MAGIC_WITH_ROWS
        size = _HEAD.size + (_ROWS_HEAD.size if has_rows else 0)
        if magic not in (_MAGIC, _MAGIC_WITH_ROWS) or span_length + filter_length + 8 * count > file.size():
            raise ValueError("Header does not begin like that of an index entry")
        front = bytes(file.read_at(span_length + filter_length, size))
        cells_digest, secret, order, bits = _ROWS_HEAD.unpack_from(head, _HEAD.size) if has_rows else _NO_ROWS
        if (_front_digest(secret, order, bits, front) if has_rows else _digest(front)) != front_digest:
            raise ValueError("Header does not match its digest")
        least, greatest = json.loads(front[:span_length])
    except (struct.error, ValueError, OSError) as problem:
        if "AWS Error" in str(problem):
            raise StoreUnavailable(
                f"Connection to S3 failed while reading index entry {key}. Try again.", file=key
            ) from None
        raise CorruptTable(f"Index entry {key} is damaged: {problem}. {_REMEDY}", file=key) from None
    start = size + len(front)
    start += -start % 8
    bloom_filter = bloom.from_bytes(front[span_length:]) if filter_length else None
    return EntryHeader(
        least, greatest, bloom_filter, count, start, hashes_digest, order.hex(), secret, bits, cells_digest
    )
