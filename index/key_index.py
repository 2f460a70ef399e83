"""Interface of a key index.

It maps record keys to file groups. The index receives keys as strings with 64-bit hashes (format/hashing), and the file
groups of a view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hoodoo.format.hashing import hash64
from hoodoo.format.key_check import compute_keyed_hashes
from hoodoo.timeline.layout import INDEX
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

NOWHERE = -1
NO_KEYS, NO_ROWS = np.zeros(0, np.uint64), np.zeros(0, np.int64)
Partitions = Mapping[str, Mapping[str, FileGroup]]
"""File groups by partition path and file id."""


@dataclass(frozen=True)
class LookupKeys:
    """Record keys to look up in an index.

    Lookup i is for the key `texts[rows[i]]` with the hash (uint64) `hashes[rows[i]]` in the partition
    `partitions[codes[i]]`.
    """

    texts: pa.Array | pa.ChunkedArray
    hashes: np.ndarray
    partitions: Sequence[str]
    codes: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def one_lookup_per_key(
        texts: pa.Array | pa.ChunkedArray, hashes: np.ndarray, partitions: Sequence[str], codes: np.ndarray
    ) -> LookupKeys:
        return LookupKeys(texts, hashes, partitions, codes, np.arange(len(texts)))

    @staticmethod
    def one_lookup_per_partition(texts: pa.Array, hashes: np.ndarray, partitions: Sequence[str]) -> LookupKeys:
        codes = np.repeat(np.arange(len(partitions), dtype=np.int32), len(texts))
        return LookupKeys(texts, hashes, partitions, codes, np.tile(np.arange(len(texts)), len(partitions)))


@dataclass
class LookupResult:
    """Result of an index lookup: the file of each key.

    Attributes:
        groups: The file groups that were searched.
        group: int32[n], for each key an index into `groups`, or NOWHERE (-1) for a new key.
        unsure: bool[n], True if a log of the file group deletes the key. The next version of the row then requires a
            rewrite of the base file.
        matches: Pairs of an index into `groups` and the positions of the keys whose hash is in the base file of that
            group.
        doubtful: bool[n], True if the hash of the key is in several file groups, or if another key of the lookup has
            the same hash. For these lookups, the keys themselves must be compared.
        searched: Ids of file groups with a hash collision: a comparison showed that they contain the hash, but not the
            key.
    """

    groups: list[FileGroup]
    group: np.ndarray
    unsure: np.ndarray
    matches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    doubtful: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    searched: frozenset[str] = frozenset()

    @staticmethod
    def all_keys_new(count: int) -> LookupResult:
        no_key = np.zeros(count, bool)
        return LookupResult([], np.full(count, NOWHERE, np.int32), no_key, doubtful=no_key.copy())

    def take(self, positions: np.ndarray) -> LookupResult:
        return LookupResult(self.groups, self.group[positions], self.unsure[positions], searched=self.searched)


class KeyCollector:
    """Collector of record keys for an index entry.

    Attributes:
        secret: The secret for the checks (format/key_check).
        before: The path of the index entry of an older base file, if the new file begins with the rows of that file in
            the same order. '' otherwise.
        dropped: Positions, in any order, of the rows of the older file that the new file leaves out.
    """

    def __init__(self, secret: bytes, before: str = "") -> None:
        self.secret, self.before, self.dropped = secret, before, NO_ROWS
        self._hashes, self._checks = [NO_KEYS], [NO_KEYS]

    def add(self, texts: pa.Array | pa.ChunkedArray, hashes: np.ndarray | None = None) -> None:
        self._hashes.append(hash64(texts) if hashes is None else hashes)
        self._checks.append(compute_keyed_hashes(texts, self.secret))

    def apart(self) -> KeyCollector:
        """Create a separate collector for the keys of later rows.

        `extend` adds its keys when these rows are written.
        """
        return KeyCollector(self.secret)

    def extend(self, others: KeyCollector) -> None:
        """Append the keys of another collector.

        They come next in the file.
        """
        self._hashes += others._hashes
        self._checks += others._checks

    @property
    def hashes(self) -> np.ndarray:
        return np.concatenate(self._hashes)

    @property
    def checks(self) -> np.ndarray:
        return np.concatenate(self._checks)


@dataclass(frozen=True)
class StoredIndexEntry:
    """Stored index entry of a base file.

    Attributes:
        name: The path of the entry, or '' for a kind of index without entries.
        order: Digest of the row order that the caller passed.
        stored: Digest of the row order in the stored entry, or '' if the entry lacks row positions. It differs from
            `order` if another attempt of the task stored its entry first.
    """

    name: str
    order: str = ""
    stored: str = ""


class KeyIndex(Protocol):
    """Interface of a key index.

    An index entry is a file that never changes, and is identified by its path. An index may be used by several threads,
    and is pickled without its caches. Methods that read entries raise CorruptTable, which names the missing or damaged
    entry.
    """

    def require_valid_for(self, file_ids: Iterable[str]) -> None:
        """Check that no other engine uses an incompatible index.

        Raises UnsupportedTable if another engine assigns keys to file groups by another rule. Writes of both engines
        could then store a key twice.
        """

    def locate(self, partitions: Partitions, keys: LookupKeys) -> LookupResult:
        """Find the file of each record key.

        No data file is opened. The result marks keys whose hash is ambiguous. The cost grows with the number of keys,
        and with the number of file groups in their partitions.

        Args:
            partitions: The file groups of the table.
            keys: The lookups.
        """

    def required_group(self, keys: LookupKeys) -> Sequence[str] | None:
        """Return the required file of each new key.

        None means that the writer may choose any file group. It then distributes new rows by file size.
        """

    def keys_of_rows(self, before: DataFile | None = None) -> KeyCollector:
        """Create a collector for the keys of a new file.

        `before` is the older base file whose rows begin the new file, or None. If the entry of that file has no row
        positions, the `before` of the result is '', and the caller must also add the keys of these rows.
        """

    def store_entry(self, file_id: str, instant: str, span: tuple[str, str], keys: KeyCollector) -> StoredIndexEntry:
        """Store the index entry of a new base file.

        Call it before the base file is stored.

        Args:
            file_id: The file group of the base file.
            instant: The instant that writes the file.
            span: The least and the greatest key of the file by code points, '' for a file without rows.
            keys: The keys of the file's rows, in row order.
        """

    def entry_for_deletes(self, file_id: str, instant: str, hashes: np.ndarray, version: int = 1) -> str:
        """Store the index entry of a log file with deletes.

        Args:
            file_id: The file group of the log.
            instant: The instant that writes the log.
            hashes: uint64[n], the hashes of the keys.
            version: The number of the log among the logs that `instant` writes to the file group.
        """

    def require_sound(self, entry: str) -> None: ...

    def key_hashes(self, entry: str) -> np.ndarray: ...

    def rows(self, base: DataFile, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray | None:
        """Look up the row position of each key.

        It is -1 if no row has the key. The result is exact. It is None if the index entry of the file lacks row
        positions.
        """

    def holds(self, entry: str, hashes: np.ndarray) -> np.ndarray: ...

    def deleted_by_logs(self, group: FileGroup, hashes: np.ndarray) -> np.ndarray: ...

    def contains_key_text(self, entry: str, texts: Collection[str]) -> bool:
        """Check whether an index entry contains a record key."""


def base_entry_path(file_id: str, instant: str) -> str:
    """Return the path of a base file's index entry.

    Every kind of index uses these paths, because orphan removal reads the instant in the file name.
    """
    return f"{INDEX}{file_id}_{instant}"


def deletes_entry_path(file_id: str, instant: str, version: int = 1) -> str:
    return f"{base_entry_path(file_id, instant)}{'' if version == 1 else f'.{version}'}.deleted"
