"""What a new column has in place of a default if later batches have to bring it. Calls take it without a look at what
changes of columns are.
"""

from __future__ import annotations

from enum import Enum


class NoDefault(Enum):
    """What an added column has whose value no batch may leave out; None is a default."""

    NO_DEFAULT = "no default"

    def __repr__(self) -> str:
        return self.name


NO_DEFAULT = NoDefault.NO_DEFAULT
"""Of an added column: batches must have it."""

__all__ = ["NO_DEFAULT", "NoDefault"]
