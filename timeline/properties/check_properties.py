"""Keeps a table's checks of rows in its properties. Each is one property, `hoodoo.check.<name>`, set by a slot
(`settings`). What a check says is parsed elsewhere (readers/predicate/checks.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.timeline.properties.table_options import PREFIX as OURS

PREFIX = OURS + "check."


def stored(properties: Mapping[str, str]) -> dict[str, str]:
    """Name and text of each check that `properties` of a table hold, in order of name."""
    return {name[len(PREFIX) :]: properties[name] for name in sorted(properties) if name.startswith(PREFIX)}


def to_properties(checks: Mapping[str, str]) -> dict[str, str]:
    """Inverse of `stored`."""
    return {PREFIX + name: text for name, text in checks.items()}
