"""Known types of columns, without parts of unknown type."""

from __future__ import annotations

import pyarrow as pa


def remove_unknown_parts(kind: pa.DataType) -> pa.DataType | None:
    """Remove the unknown parts of a type.

    Returns None if nothing is left. A part has an unknown type if it only contains nulls or empty lists.
    """
    if pa.types.is_struct(kind):
        inner = [
            (field.name, field_type) for field in kind if (field_type := remove_unknown_parts(field.type)) is not None
        ]
        return pa.struct(inner) if inner else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = remove_unknown_parts(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(kind):
        item = remove_unknown_parts(kind.item_type)
        return None if item is None else pa.map_(kind.key_type, item)
    return None if pa.types.is_null(kind) else kind


__all__ = ["remove_unknown_parts"]
