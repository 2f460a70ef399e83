"""Keeps in a table's properties the original names of columns whose names Avro does not allow. It is one property,
`hoodoo.original_names`, JSON of the id of each such column and its original. So it holds whatever the column is called.
`create` sets it, and nothing changes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hoodoo.errors import CorruptTable
from hoodoo.timeline.properties.table_options import PREFIX

PROPERTY = PREFIX + "original_names"


def to_properties(originals: Mapping[int, str]) -> dict[str, str]:
    """Properties that say the original of each column, by its id; none where there are none."""
    return {PROPERTY: json.dumps(originals, separators=(",", ":"))} if originals else {}


def stored(properties: Mapping[str, str]) -> dict[int, str]:
    """The original of each column that has one, by its id.

    Raises:
        CorruptTable: The property says nothing that `to_properties` writes.
    """
    text = properties.get(PROPERTY)
    if text is None:
        return {}
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
            raise ValueError("it is no JSON object of names")
        return {int(number): name for number, name in found.items()}
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(
            f"hoodie.properties has {PROPERTY}={text[:100]}: {problem}. Restore the file from a backup.",
            property=PROPERTY,
        ) from None
