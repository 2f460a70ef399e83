"""Marker for columns with no default value."""

from __future__ import annotations

from enum import Enum


class NoDefault(Enum):
    NO_DEFAULT = "no default"

    def __repr__(self) -> str:
        return self.name


NO_DEFAULT = NoDefault.NO_DEFAULT
"""Marker for a new column without a default value, which every later batch must contain."""

__all__ = ["NO_DEFAULT", "NoDefault"]
