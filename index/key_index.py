"""The interface of the index: what writers, readers and services ask of it, whichever kind a table has.

Keys are known by their texts and by their 64-bit hashes (format/hashing), file groups by the view. How records merge,
and how a kind finds a key, is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from hoodoo.format.hashing import hash64
from hoodoo.format.key_check import check64
from hoodoo.timeline.layout import INDEX
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup

NOWHERE = -1
NO_KEYS, NO_ROWS = np.zeros(0, np.uint64), np.zeros(0, np.int64)
Partitions = Mapping[str, Mapping[str, FileGroup]]
"""File groups by partition path and file id, as a view has them."""


@dataclass(frozen=True)
class Keys:
    """Record keys to look for, each in one partition.

    The i-th look-up is for the key `texts[rows[i]]`, whose hash (uint64) is `hashes[rows[i]]`, in the partition
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
    def where_they_are(
        texts: pa.Array | pa.ChunkedArray, hashes: np.ndarray, partitions: Sequence[str], codes: np.ndarray
    ) -> Keys:
        """Return look-ups of each key in its own partition, `partitions[codes[i]]`."""
        return Keys(texts, hashes, partitions, codes, np.arange(len(texts)))

    @staticmethod
    def in_every_partition(texts: pa.Array, hashes: np.ndarray, partitions: Sequence[str]) -> Keys:
        """Return look-ups of each key in every one of `partitions`."""
        codes = np.repeat(np.arange(len(partitions), dtype=np.int32), len(texts))
        return Keys(texts, hashes, partitions, codes, np.tile(np.arange(len(texts)), len(partitions)))


@dataclass
class Located:
    """The file group of each key that was looked for.

    groups: the file groups that were searched.
    group: int32[n], for each key an index into `groups`, or NOWHERE.
    unsure: bool[n], true where a log of that group deletes the key. The next version of the row must then go through a
        rewrite of the base (semantics: a deleted key is free).
    matches: pairs of an index into `groups` and the positions of the keys whose hash the base of that group has.
    doubtful: bool[n], true where several file groups have the hash of the key, or where one has it and another of the
        keys has the same hash. There the keys themselves have to be compared.
    searched: ids of file groups that have the hash of a key, but not the key, as a comparison of keys found.
    """

    groups: list[FileGroup]
    group: np.ndarray
    unsure: np.ndarray
    matches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    doubtful: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    searched: frozenset[str] = frozenset()

    @staticmethod
    def nowhere(count: int) -> Located:
        """Return the result for `count` keys that no file group has."""
        none = np.zeros(count, bool)
        return Located([], np.full(count, NOWHERE, np.int32), none, doubtful=none.copy())

    def take(self, positions: np.ndarray) -> Located:
        """Return the result for the keys at `positions`, none of which is doubtful any more."""
        return Located(self.groups, self.group[positions], self.unsure[positions], searched=self.searched)


class KeysOfRows:
    """The keys of a base file that is about to be stored, in order of its rows: hashes and checks, not texts.

    secret: the secret under which the checks are computed (format/key_check).
    before: the entry of an older base file whose rows this one begins with, in their order; '' where it begins with
        none.
    dropped: positions, in any order, of the rows of the older file that this one lacks.
    """

    def __init__(self, secret: bytes, before: str = "") -> None:
        self.secret, self.before, self.dropped = secret, before, NO_ROWS
        self._hashes, self._checks = [NO_KEYS], [NO_KEYS]

    def add(self, texts: pa.Array | pa.ChunkedArray, hashes: np.ndarray | None = None) -> None:
        """Add the keys of the next rows. hashes: uint64[n], of these keys; computed unless they are given."""
        self._hashes.append(hash64(texts) if hashes is None else hashes)
        self._checks.append(check64(texts, self.secret))

    def apart(self) -> KeysOfRows:
        """Return an empty collection for keys of later rows that are known first; `extend` adds it in turn."""
        return KeysOfRows(self.secret)

    def extend(self, others: KeysOfRows) -> None:
        """Add the keys of the next rows, which a collection of `apart` holds."""
        self._hashes += others._hashes
        self._checks += others._checks

    @property
    def hashes(self) -> np.ndarray:
        """Of the keys that were added, uint64."""
        return np.concatenate(self._hashes)

    @property
    def checks(self) -> np.ndarray:
        """Of the keys that were added, uint64."""
        return np.concatenate(self._checks)


@dataclass(frozen=True)
class BaseEntry:
    """The entry of a base file.

    name: its key in the store, '' where this kind of index keeps none.
    order: digest of the order of the rows that the caller handed over.
    stored: digest of the order of the rows that the stored entry knows, '' where it knows none. It differs from `order`
        where another attempt of the same task stored its entry before.
    """

    name: str
    order: str = ""
    stored: str = ""


class KeyIndex(Protocol):
    """Where the keys of a table are. An entry is named by its key in the store and never changes.

    An index may be used by several threads, and pickles without its caches.

    Methods that read entries raise CorruptTable naming the entry that is missing or damaged.
    """

    def require_valid_for(self, file_ids: Iterable[str]) -> None:
        """Raise UnsupportedTable where another engine looks for keys in these file groups in another way.

        It and we would write a key twice there.
        """

    def locate(self, partitions: Partitions, keys: Keys) -> Located:
        """Find the file group of each key by its hash, without opening a data file.

        The result tells where hashes do not decide. The cost grows with the keys and the file groups of their
        partitions.

        Args:
            partitions: The file groups of the table.
            keys: The look-ups.
        """

    def home_for_new(self, keys: Keys) -> Sequence[str] | None:
        """Return the id of the file group that each of these keys, which no file group has yet, must go to.

        None: a key may go to any file group, so that new rows are packed by size.
        """

    def keys_of_rows(self, before: DataFile | None = None) -> KeysOfRows:
        """Return an empty collection for the keys of a new base file.

        before: the base file whose rows the new one begins with, None where it begins with none. Where the entry of
        that file does not know its rows, the `before` of the result is '', and the caller adds their keys, too.
        """

    def entry_for(self, file_id: str, instant: str, span: tuple[str, str], keys: KeysOfRows) -> BaseEntry:
        """Store the entry of a base file, before the file itself is stored.

        Args:
            file_id: The file group of the base file.
            instant: The instant that writes it.
            span: Its least and greatest key by code points, '' where it has no row.
            keys: The keys of its rows, in their order.
        """

    def entry_for_deletes(self, file_id: str, instant: str, hashes: np.ndarray, version: int = 1) -> str:
        """Store the entry of the keys that a log deletes, and return its name.

        Args:
            file_id: The file group of the log.
            instant: The instant that writes the log.
            hashes: uint64[n], the hashes of the keys.
            version: The number of the log among those that `instant` writes to the file group.
        """

    def require_sound(self, entry: str) -> None:
        """Read all of an entry. Raises CorruptTable where it is damaged or missing."""

    def key_hashes(self, entry: str) -> np.ndarray:
        """Return the hashes of all keys of an entry, ascending."""

    def rows(self, base: DataFile, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray | None:
        """Return the position in the base file of the row of each key, int64[n], -1 where no row has the key.

        The result is exact. It is None where the entry of the file does not know its rows.
        """

    def holds(self, entry: str, hashes: np.ndarray) -> np.ndarray:
        """Return a mask: the entry has the hash. Hashes may be in any order."""

    def deleted_by_logs(self, group: FileGroup, hashes: np.ndarray) -> np.ndarray:
        """Return a mask: a log of the group's current slice deletes the key. Hashes may be in any order."""

    def holds_text(self, entry: str, texts: Collection[str]) -> bool:
        """Tell whether the entry holds the text of one of these keys; a purge must leave no text of a key behind."""


def entry_name(file_id: str, instant: str) -> str:
    """Return the name of the entry of a base file, whether or not the entry exists.

    Every kind of index names its entries so, because a sweep reads the instant in the name.
    """
    return f"{INDEX}{file_id}_{instant}"


def deleted_entry_name(file_id: str, instant: str, version: int = 1) -> str:
    """Return the name of the entry of the keys that a log deletes."""
    return f"{entry_name(file_id, instant)}{'' if version == 1 else f'.{version}'}.deleted"
