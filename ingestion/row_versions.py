"""The versions that a row has among changes, in their order, and which of them a value may be taken over from.

A value comes from the newest version before, and never from before a delete: after that the row is another one. What a
value is, and who has it where no version does, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from hoodoo.merge.policy import MergePolicy


@dataclass(frozen=True)
class RowVersions:
    """The versions of some rows: those of one row stand one after the other, the newest last.

    Attributes:
        at: int64[n], the position of each version among all changes.
        codes: int64[n], the number of the key of each.
        first: bool[n], is it the first one of its row?
        begin: int64[n], at which of the versions the row began: its first one, or the one after its last delete.
    """

    at: np.ndarray
    codes: np.ndarray
    first: np.ndarray
    begin: np.ndarray

    @classmethod
    def of(
        cls, changes: pa.Table, codes: np.ndarray, gone: np.ndarray, wanted: np.ndarray, policy: MergePolicy
    ) -> Self:
        """Order the versions of the rows that are wanted.

        Args:
            changes: Changes with their ordering columns, in order of arrival.
            codes: int64[n], the number of the key of each.
            gone: bool[n], which of them are deletes.
            wanted: Positions or bool[n], changes of which each one's row is wanted; at least one.
            policy: Which version of a row is newer.
        """
        at = np.flatnonzero(np.isin(codes, codes[wanted]))
        at = at[np.lexsort((at, policy.ranks(changes, at), codes[at]))]
        codes = codes[at]
        first = np.append(True, codes[1:] != codes[:-1])
        begins = first | np.append(False, gone[at][:-1])
        return cls(at, codes, first, np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0)))

    @property
    def last(self) -> np.ndarray:
        """bool[n], is it the last one of its row?"""
        return np.append(self.first[1:], True)

    def holders(self, lacks: np.ndarray) -> np.ndarray:
        """Find who has a value.

        Args:
            lacks: bool[n], which versions do not have it themselves.

        Returns:
            int64[n], for each version the newest one up to it that has the value; -1 where none has it since the row
            began.
        """
        newest = np.maximum.accumulate(np.where(lacks, -1, np.arange(len(self.at))))
        return np.where(newest >= self.begin, newest, -1)


__all__ = ["RowVersions"]
