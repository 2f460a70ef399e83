"""Merge modes, which combine new and stored rows.

policy.py decides which of two rows is newer.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import accepts_arguments, is_utf8, suggest_value
from hoodoo.errors import OptionError
from hoodoo.redact import printable

REPLACE, KEEP_NON_NULL = "replace", "keep_non_null"
MergeFunction: TypeAlias = "Callable[[pa.Table, pa.Table], pa.Table | Mapping[str, Any]]"


@dataclass(frozen=True)
class CustomMerge:
    """Merge with a custom function.

    An example is `upsert(rows, merge=hoodoo.CustomMerge(function))`.

    Attributes:
        function: It receives two Arrow tables with the table's columns: stored rows and newer rows, with equal keys at
            equal positions. It returns an Arrow table, or a mapping from names to arrays, with the new values of the
            stored rows, in the same row order. Columns that it leaves out keep their stored values. If a batch has
            several rows of one key, these are merged first, so the function must be associative: an older row of the
            batch then takes the role of the stored row. It runs in threads, once per file group, and again if the write
            is retried.
    """

    function: MergeFunction

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise OptionError(
                f"CustomMerge requires a function with two parameters, got {printable(self.function)}. Pass a "
                "function that takes an Arrow table of stored rows and one of newer rows.",
                option="merge",
            )
        if not accepts_arguments(self.function, 2):
            raise OptionError(
                f"CustomMerge function {printable(self.function)} cannot be called with two positional arguments. "
                "Pass a function that takes an Arrow table of stored rows and one of newer rows.",
                option="merge",
            )


MergeLike: TypeAlias = "str | CustomMerge"
"""Type of the `merge` argument: 'replace', 'keep_non_null' or a CustomMerge."""


@dataclass(frozen=True)
class MergeMode:
    """Rule for combining new and stored rows.

    Attributes:
        keep_non_null: True if a null in the newer row keeps the older value.
        unavailable: The placeholder string for a value that was not sent, which keeps the older value.
            `find_unsent_values` defines its encodings. None: no placeholder.
        custom: The function that merges. None: merge column by column.
    """

    keep_non_null: bool = False
    unavailable: str | None = None
    custom: CustomMerge | None = None

    @staticmethod
    def parse(merge: MergeLike, unavailable: str | None) -> MergeMode:
        """Check the merge arguments of an upsert.

        Raises:
            OptionError: An argument is invalid, or both a function and `unavailable` are given.
        """
        if unavailable is not None and (not isinstance(unavailable, str) or not is_utf8(unavailable)):
            raise OptionError(
                f"Option unavailable must be a string, got {printable(unavailable)}. Pass the placeholder that the "
                "source sends instead of an unchanged value, such as '__debezium_unavailable_value'.",
                option="unavailable",
            )
        if isinstance(merge, CustomMerge):
            if unavailable is not None:
                raise OptionError(
                    "unavailable cannot be combined with a CustomMerge. Remove it, and handle the placeholder in the "
                    "merge function.",
                    option="unavailable",
                )
            return MergeMode(custom=merge)
        if not isinstance(merge, str) or merge not in (REPLACE, KEEP_NON_NULL):
            raise OptionError(
                f"Option merge must be 'replace', 'keep_non_null' or a hoodoo.CustomMerge, got {printable(merge)}."
                f"{suggest_value(merge, (REPLACE, KEEP_NON_NULL)) or _suggest_function(merge)}",
                option="merge",
            )
        return MergeMode(merge == KEEP_NON_NULL, unavailable)

    @property
    def replaces_rows(self) -> bool:
        return not self.keep_non_null and self.unavailable is None and self.custom is None

    def counts(self, values: pa.ChunkedArray) -> np.ndarray:
        """Find new values that replace stored values."""
        replacing = ~self.find_unsent_values(values)
        return replacing & values.is_valid().to_numpy() if self.keep_non_null else replacing

    def find_unsent_values(self, values: pa.ChunkedArray) -> np.ndarray:
        """Find values that the source did not send.

        The encoding depends on the type of the column. A placeholder is the string, its bytes, or a JSON object that
        maps the string to itself. In a list, it is a single item with the string, its bytes, or the version 3 UUID
        derived from it. In a list of numbers or dates, it is one item per byte. In a map, it is an entry from the
        string to itself.
        """
        kind = values.type
        placeholders = np.zeros(len(values), bool)
        if self.unavailable is None:
            return placeholders
        text = self.unavailable
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            objects = [
                json.dumps({text: text}, ensure_ascii=False, separators=(",", separator)) for separator in (":", ": ")
            ]
            encodings = pa.array([encoding.encode() for encoding in (text, *objects)], pa.binary()).cast(kind)
            return _true_mask(pc.is_in(values, value_set=encodings))
        if pa.types.is_list(kind) and text:
            for items in _placeholder_lists(text, kind.value_type):
                placeholders |= _equals_items(values, items)
        elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type):
            entries = pa.chunked_array([_flatten_map_entries(chunk) for chunk in values.chunks], pa.list_(pa.string()))
            placeholders |= _equals_items(entries, pa.array([text, text]))
        return placeholders


def _placeholder_lists(text: str, kind: pa.DataType) -> Iterator[pa.Array]:
    types, content = pa.types, text.encode()
    if types.is_string(kind):
        yield pa.array([text])
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        yield pa.array([str(uuid.UUID(bytes=digest, version=3))])
    elif types.is_binary(kind):
        yield pa.array([content], kind)
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_date32(kind):
        try:
            yield pa.array(list(content), pa.int32()).cast(kind)
        except pa.ArrowInvalid:  # the type cannot represent the bytes
            return


def _flatten_map_entries(maps: pa.Array) -> pa.Array:
    count = len(maps.keys)
    indices = pa.array(np.repeat(np.arange(count), 2) + np.tile([0, count], count), pa.int64())
    flat = pa.concat_arrays([maps.keys, maps.items]).take(indices)
    ends = pc.multiply(maps.offsets, 2)
    return pa.ListArray.from_arrays(ends, flat, mask=maps.is_null() if maps.null_count else None)


def _equals_items(lists: pa.ChunkedArray, items: pa.Array) -> np.ndarray:
    matching = _true_mask(pc.equal(pc.list_value_length(lists), len(items)))
    candidates = np.flatnonzero(matching)
    if len(candidates) and len(items):
        flat = pc.list_flatten(lists.take(pa.array(candidates)))
        expected = items.take(pa.array(np.tile(np.arange(len(items)), len(candidates))))
        matching[candidates] = _true_mask(pc.equal(flat, expected)).reshape(len(candidates), len(items)).all(axis=1)
    return matching


def _true_mask(values: pa.ChunkedArray) -> np.ndarray:
    mask: np.ndarray = pc.fill_null(values, False).to_numpy().astype(bool)
    return mask


def _suggest_function(merge: object) -> str:
    return " Write merge=hoodoo.CustomMerge(function)." if callable(merge) else ""


REPLACES = MergeMode()
"""Merge mode that replaces the older row by the newer row, in all columns."""
