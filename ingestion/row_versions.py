"""Versions of changed rows.

A value is copied from the newest earlier version of its row. It is never copied from a version before a delete, because
that version belongs to another row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from hoodoo.merge.policy import MergePolicy


@dataclass(frozen=True)
class RowVersions:
    """Versions of changed rows, sorted by row and age.

    Attributes:
        at: int64[n], the index of each version in the list of changes.
        codes: int64[n], the integer code of each version's key.
        first: bool[n], True for the oldest version of a row.
        begin: int64[n], for each version the index of the version at which its row began: the oldest one, or the one
            after the last delete.
    """

    at: np.ndarray
    codes: np.ndarray
    first: np.ndarray
    begin: np.ndarray

    @classmethod
    def of(
        cls, changes: pa.Table, codes: np.ndarray, is_delete: np.ndarray, selected: np.ndarray, policy: MergePolicy
    ) -> Self:
        """Collect and sort all versions of some rows.

        Args:
            changes: Changes with their ordering columns, in order of arrival.
            codes: int64[n], the key code of each change.
            is_delete: bool[n], True for deletes.
            selected: Indexes, or a mask (bool[n]), of changes, at least one. All versions of their rows are collected.
            policy: The merge policy, which decides which version is newer.
        """
        indexes = np.flatnonzero(np.isin(codes, codes[selected]))
        indexes = indexes[np.lexsort((indexes, policy.ranks(changes, indexes), codes[indexes]))]
        codes = codes[indexes]
        first = np.append(True, codes[1:] != codes[:-1])
        is_begin = first | np.append(False, is_delete[indexes][:-1])
        return cls(indexes, codes, first, np.maximum.accumulate(np.where(is_begin, np.arange(len(indexes)), 0)))

    @property
    def last(self) -> np.ndarray:
        return np.append(self.first[1:], True)

    def holders(self, lacks: np.ndarray) -> np.ndarray:
        """Find the versions to copy missing values from.

        Args:
            lacks: bool[n], True for versions without the value.

        Returns:
            int64[n], for each version the index of the newest version up to it that has the value, or -1 if no version
            has it since the row began.
        """
        newest = np.maximum.accumulate(np.where(lacks, -1, np.arange(len(self.at))))
        return np.where(newest >= self.begin, newest, -1)


__all__ = ["RowVersions"]
