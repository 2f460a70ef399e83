"""Where does each key of a batch live? Key range, then bloom filter, then sorted hashes; no data file is opened.

Answers are exact up to a collision of 64-bit hashes, and say where one may be: who must know compares keys. Knows which
file groups there are, never how records merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hoodoo.index.bloom import filter as bloom
from hoodoo.index.bloom.entry import EntryReader
from hoodoo.timeline.view import FileGroup, View

NOWHERE = -1


@dataclass
class Located:
    """For each row of a batch: `group` is a place in `groups` or NOWHERE; `unsure` is true where a log of that group
    deletes the key, so that the row's next version must go through a rewrite of the base (semantics: a deleted key is
    free).

    matches: each place in `groups` with the rows whose hash its base has. doubtful: mask of the rows whose hash several
        file groups have, or one has while another key of the batch shares it.
    searched: ids of file groups that have the hash of a key which they do not have, as whoever compared keys found.
    """

    groups: list[FileGroup]
    group: np.ndarray
    unsure: np.ndarray
    probed: int = 0
    matched: int = 0
    matches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    doubtful: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    searched: frozenset[str] = frozenset()

    def take(self, places: np.ndarray) -> Located:
        """Of some rows, which are in no doubt any more."""
        return Located(self.groups, self.group[places], self.unsure[places], searched=self.searched)


def locate(
    view: View, entries: EntryReader, partitions: Sequence[str], codes: np.ndarray, hashes: np.ndarray
) -> Located:
    """Locate keys with `hashes` (uint64) in partition `partitions[codes[i]]`; cost follows the batch and its
    partitions' file groups.
    """
    found = Located([], np.full(len(hashes), NOWHERE, np.int32), np.zeros(len(hashes), bool))
    found.doubtful = np.zeros(len(hashes), bool)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(partitions)), side="right")
    start = 0
    for partition, end in zip(partitions, ends.tolist(), strict=True):
        rows, start = order[start:end], end
        if len(rows) and partition in view.partitions:
            _in_partition(view, entries, partition, rows[np.argsort(hashes[rows])], hashes, found)
    return found


def _in_partition(
    view: View, entries: EntryReader, partition: str, rows: np.ndarray, hashes: np.ndarray, found: Located
) -> None:
    """`rows` are in ascending order of hash: sorted look-ups touch each page of an array once."""
    groups = list(view.partitions[partition].values())
    for group in groups:
        place = len(found.groups)
        found.groups.append(group)
        candidates = _candidates(group, entries, hashes[rows], filtered=len(groups) > 1)
        if not len(candidates):
            continue
        found.probed += 1
        present = (
            rows[candidates[_member(entries.hashes(group.base.file.index), hashes[rows[candidates]])]]
            if group.base
            else rows[:0]
        )
        if not len(present):
            continue
        found.matched += 1
        found.matches.append((place, present))
        found.doubtful[present] |= found.group[present] != NOWHERE
        found.group[present] = place
        found.unsure[present] = deleted_by_logs(group, entries, hashes[present])
    equal = np.flatnonzero(hashes[rows[1:]] == hashes[rows[:-1]])
    shared = np.concatenate([rows[equal], rows[equal + 1]])
    found.doubtful[shared] |= found.group[shared] != NOWHERE


def _candidates(group: FileGroup, entries: EntryReader, wanted: np.ndarray, filtered: bool) -> np.ndarray:
    if group.base is None:
        return np.empty(0, np.int64)
    filter_ = entries.front(group.base.file.index).filter if filtered else None
    return np.arange(len(wanted)) if filter_ is None else np.flatnonzero(bloom.may_contain(filter_, wanted))


def _member(sorted_hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Is each of `wanted` (ascending) in `sorted_hashes`? Mask."""
    if not len(sorted_hashes):
        return np.zeros(len(wanted), bool)
    places = np.minimum(np.searchsorted(sorted_hashes, wanted), len(sorted_hashes) - 1)
    return sorted_hashes[places] == wanted


def deleted_by_logs(group: FileGroup, entries: EntryReader, hashes: np.ndarray) -> np.ndarray:
    """Mask: does a log of the current slice delete the key? Hashes may be in any order."""
    mask = np.zeros(len(hashes), bool)
    for log in group.logs:
        if log.file.index:
            mask |= np.isin(hashes, entries.hashes(log.file.index))
    return mask
