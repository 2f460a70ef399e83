"""Shapes of parsed JSON, which are checked by type.

A shape is one of: a type, [shape of each item], (shapes of the items in order), {str: shape of each value}, or a dict
with the shape of each name.
"""

from __future__ import annotations

from typing import Any


def matches_types(value: Any, shape: Any) -> bool:
    """Check whether a JSON value matches the declared types.

    `int` means an integer from 0 to below 2^63. A tuple means a list with exactly these items. A dict without the key
    `str` means an object with exactly these names.
    """
    if isinstance(shape, type):
        return (
            isinstance(value, shape)
            and not isinstance(value, bool)
            and (not isinstance(value, int) or 0 <= value < 1 << 63)
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(matches_types(item, shape[0]) for item in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(matches_types, value, shape))
    if str in shape:
        return isinstance(value, dict) and all(matches_types(item, shape[str]) for item in value.values())
    return (
        isinstance(value, dict)
        and value.keys() == shape.keys()
        and all(matches_types(value[name], shape[name]) for name in shape)
    )
