"""Detection of batch columns and fields with an unknown type, because they contain only nulls and empty lists."""

from __future__ import annotations

import pyarrow as pa


def known_type(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without the parts that only contain nulls and empty lists, or None if nothing is left.

    The type of such parts is unknown.
    """
    if pa.types.is_struct(kind):
        inner = [(field.name, said) for field in kind if (said := known_type(field.type)) is not None]
        return pa.struct(inner) if inner else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = known_type(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(kind):
        item = known_type(kind.item_type)
        return None if item is None else pa.map_(kind.key_type, item)
    return None if pa.types.is_null(kind) else kind


__all__ = ["known_type"]
