"""Storage of original column names in table properties.

The property `hoodoo.original_names` is a JSON object that maps column ids to original names, so that renaming a column
does not affect it. `create` sets it, and it never changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hoodoo.errors import CorruptTable
from hoodoo.timeline.properties.table_options import PREFIX

PROPERTY = PREFIX + "original_names"


def to_properties(originals: Mapping[int, str]) -> dict[str, str]:
    return {PROPERTY: json.dumps(originals, separators=(",", ":"))} if originals else {}


def stored(properties: Mapping[str, str]) -> dict[int, str]:
    text = properties.get(PROPERTY)
    if text is None:
        return {}
    try:
        names = json.loads(text)
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError("the value is not a JSON object of column names")
        return {int(number): name for number, name in names.items()}
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(
            f"Property {PROPERTY}={text[:100]} in hoodie.properties is invalid: {problem}. Restore the file from a "
            "backup.",
            property=PROPERTY,
        ) from None
