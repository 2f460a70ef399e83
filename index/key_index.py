"""The door of the index: what writes, reads and services ask it, whichever kind a table has.

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
from hoodoo.timeline.slot import DataFile
from hoodoo.timeline.view import FileGroup

NOWHERE = -1
NO_KEYS, NO_ROWS = np.zeros(0, np.uint64), np.zeros(0, np.int64)
Partitions = Mapping[str, Mapping[str, FileGroup]]
"""File groups by partition path and file id, as a view has them."""


@dataclass(frozen=True)
class Keys:
    """Record keys with their hashes (uint64), and where to look for them: the key `texts[rows[i]]`, whose hash is
    `hashes[rows[i]]`, in the partition `partitions[codes[i]]`.
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
        """Each key in its own partition."""
        return Keys(texts, hashes, partitions, codes, np.arange(len(texts)))

    @staticmethod
    def in_every_partition(texts: pa.Array, hashes: np.ndarray, partitions: Sequence[str]) -> Keys:
        """Each key in all of these partitions."""
        codes = np.repeat(np.arange(len(partitions), dtype=np.int32), len(texts))
        return Keys(texts, hashes, partitions, codes, np.tile(np.arange(len(texts)), len(partitions)))


@dataclass
class Located:
    """For each key: `group` is a place in `groups` or NOWHERE; `unsure` is true where a log of that group deletes the
    key, so that the row's next version must go through a rewrite of the base (semantics: a deleted key is free).

    matches: each place in `groups` with the keys whose hash its base has. doubtful: mask of the keys whose hash several
        file groups have, or one has while another of the keys shares it: there the keys themselves have to be compared.
    searched: ids of file groups that have the hash of a key which they do not have, as whoever compared keys found.
    """

    groups: list[FileGroup]
    group: np.ndarray
    unsure: np.ndarray
    matches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    doubtful: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    searched: frozenset[str] = frozenset()

    @staticmethod
    def nowhere(count: int) -> Located:
        """So many keys of which no file group has one."""
        none = np.zeros(count, bool)
        return Located([], np.full(count, NOWHERE, np.int32), none, doubtful=none.copy())

    def take(self, places: np.ndarray) -> Located:
        """Of some keys, which are in no doubt any more."""
        return Located(self.groups, self.group[places], self.unsure[places], searched=self.searched)


class KeysOfRows:
    """The keys of a base file that is about to be stored, in order of its rows, as far as an index keeps them: texts go
    by and are not held.

    before: the entry of an older base file with whose rows this one begins, in their order and without `dropped` (rows,
    in any order); '' where it begins with none. secret: under which keys are checked (format/key_check).
    """

    def __init__(self, secret: bytes, before: str = "") -> None:
        self.secret, self.before, self.dropped = secret, before, NO_ROWS
        self._hashes, self._checks = [NO_KEYS], [NO_KEYS]

    def add(self, texts: pa.Array | pa.ChunkedArray, hashes: np.ndarray | None = None) -> None:
        """Keys of the next rows; hashes: theirs, where they are known."""
        self._hashes.append(hash64(texts) if hashes is None else hashes)
        self._checks.append(check64(texts, self.secret))

    def apart(self) -> KeysOfRows:
        """What gathers rows that are known before others that stand before them; see `extend`."""
        return KeysOfRows(self.secret)

    def extend(self, others: KeysOfRows) -> None:
        """Keys of the next rows, as `apart` gathered them."""
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
    """The entry of a base file: its name, '' where this kind keeps none. order: digest of the order of the rows that
    were handed over. stored: of those that the entry knows, '' where it knows none; another one where another attempt
    of the same task was first.
    """

    name: str
    order: str = ""
    stored: str = ""


class KeyIndex(Protocol):
    """Safe in threads; pickles without its caches. An entry is named by its key in the store and never changes.

    Methods that read entries raise CorruptTable naming the entry that is missing or damaged.
    """

    def require_valid_for(self, file_ids: Iterable[str]) -> None:
        """Pass unless another engine finds keys among these file groups in another way than this index, so that it and
        we would write a key twice. Raises UnsupportedTable.
        """

    def locate(self, partitions: Partitions, keys: Keys) -> Located:
        """The file group of each key, exact up to keys of equal hash, and where those are in doubt. Opens no data
        file; cost follows the keys and the file groups of their partitions.
        """

    def home_for_new(self, keys: Keys) -> Sequence[str] | None:
        """The id of the file group that each of these keys, which no file group has, must go to; None: any will do, so
        that new rows are packed by size.
        """

    def keys_of_rows(self, before: DataFile | None = None) -> KeysOfRows:
        """What gathers the keys of a new base file. before: the base file with whose rows it begins; where its entry
        does not know these rows, they are to be added like others, and the `before` of what is given is ''.
        """

    def entry_for(self, file_id: str, instant: str, span: tuple[str, str], keys: KeysOfRows) -> BaseEntry:
        """Store the entry of a base file. span: its least and greatest key by code points, '' where it has none. Called
        before the file is stored.
        """

    def entry_for_deletes(self, file_id: str, instant: str, hashes: np.ndarray, version: int = 1) -> str:
        """Store the entry of the keys that a log deletes; its name. version: counts the logs that `instant` writes to
        the file group.
        """

    def require_sound(self, entry: str) -> None:
        """Read all of an entry. Raises CorruptTable."""

    def key_hashes(self, entry: str) -> np.ndarray:
        """Hashes of all keys of an entry, ascending."""

    def rows(self, base: DataFile, keys: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> np.ndarray | None:
        """Of each key its row in the base file, int64, -1 of those that it has not; exact. None where the entry does
        not know the rows of this file.
        """

    def holds(self, entry: str, hashes: np.ndarray) -> np.ndarray:
        """Mask: has the entry this hash? Hashes may be in any order."""

    def deleted_by_logs(self, group: FileGroup, hashes: np.ndarray) -> np.ndarray:
        """Mask: does a log of the group's current slice delete the key? Hashes may be in any order."""

    def spells(self, entry: str, texts: Collection[str]) -> bool:
        """Does the entry hold the text of one of these keys? What is purged may stand nowhere."""


def entry_name(file_id: str, instant: str) -> str:
    """The name of the entry of a base file, whether or not there is one: an attempt that is given up deletes it."""
    return f"{INDEX}{file_id}_{instant}"


def deleted_entry_name(file_id: str, instant: str, version: int = 1) -> str:
    """The name of the entry of the keys that a log deletes."""
    return f"{entry_name(file_id, instant)}{'' if version == 1 else f'.{version}'}.deleted"
