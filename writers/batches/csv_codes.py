"""Which columns of CSV hold codes rather than numbers: a zip code begins with 0, which a number would lose.

Knows texts only.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_BEGINS_WITH_0 = r"^[+-]?0[0-9]+(?:\.[0-9]*)?$"


def codes_in(texts: pa.Table) -> list[str]:
    """Name the columns that are text, though all of their values may look like numbers.

    Args:
        texts: Columns of texts, as they stand in the file.

    Returns:
        Those in which a number of two or more digits begins with 0.
    """
    names = texts.column_names
    found = zip(names, texts.columns, strict=True)
    return [name for name, values in found if pc.any(pc.match_substring_regex(values, _BEGINS_WITH_0)).as_py()]


__all__ = ["codes_in"]
