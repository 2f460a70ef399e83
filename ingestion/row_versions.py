"""The versions of rows among changes, in order, and the versions whose values may be copied.

A value is copied from the newest earlier version. It is never copied from a version before a delete, because that is
another row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from hoodoo.merge.policy import MergePolicy


@dataclass(frozen=True)
class RowVersions:
    """The versions of some rows. The versions of one row are adjacent, the newest last.

    Attributes:
        at: int64[n], the position of each version among all changes.
        codes: int64[n], the key code of each version.
        first: bool[n], True for the first version of a row.
        begin: int64[n], the index of the version at which the row began: its first one, or the one after its last
            delete.
    """

    at: np.ndarray
    codes: np.ndarray
    first: np.ndarray
    begin: np.ndarray

    @classmethod
    def of(
        cls, changes: pa.Table, codes: np.ndarray, gone: np.ndarray, wanted: np.ndarray, policy: MergePolicy
    ) -> Self:
        """Sort the versions of the wanted rows.

        Args:
            changes: Changes with their ordering columns, in order of arrival.
            codes: int64[n], the key code of each change.
            gone: bool[n], True for deletes.
            wanted: Positions or bool[n] of changes, at least one. The versions of their rows are returned.
            policy: The merge policy, which decides which version is newer.
        """
        at = np.flatnonzero(np.isin(codes, codes[wanted]))
        at = at[np.lexsort((at, policy.ranks(changes, at), codes[at]))]
        codes = codes[at]
        first = np.append(True, codes[1:] != codes[:-1])
        begins = first | np.append(False, gone[at][:-1])
        return cls(at, codes, first, np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0)))

    @property
    def last(self) -> np.ndarray:
        """bool[n], True for the last version of a row."""
        return np.append(self.first[1:], True)

    def holders(self, lacks: np.ndarray) -> np.ndarray:
        """Find the version to copy a value from.

        Args:
            lacks: bool[n], True for versions that do not have the value.

        Returns:
            int64[n], for each version the newest version up to it that has the value, or -1 if none has it since the
            row began.
        """
        newest = np.maximum.accumulate(np.where(lacks, -1, np.arange(len(self.at))))
        return np.where(newest >= self.begin, newest, -1)


__all__ = ["RowVersions"]
