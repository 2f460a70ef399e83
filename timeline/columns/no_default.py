"""Marker NO_DEFAULT for a new column without a default value. The module is separate, so that importing it is cheap."""

from __future__ import annotations

from enum import Enum


class NoDefault(Enum):
    """Type of NO_DEFAULT, which marks an added column without a default value. None would be a default value."""

    NO_DEFAULT = "no default"

    def __repr__(self) -> str:
        return self.name


NO_DEFAULT = NoDefault.NO_DEFAULT
"""Marker for an added column without a default value, which every later batch must have."""

__all__ = ["NO_DEFAULT", "NoDefault"]
