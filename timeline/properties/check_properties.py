"""Storage of row checks in table properties.

Each check is a property `hoodoo.check.<name>`, which a slot sets (`settings`). readers/predicate/checks.py parses
the conditions.
"""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.timeline.properties.table_options import PREFIX as OURS

PREFIX = OURS + "check."


def stored(properties: Mapping[str, str]) -> dict[str, str]:
    return {name[len(PREFIX) :]: properties[name] for name in sorted(properties) if name.startswith(PREFIX)}


def to_properties(checks: Mapping[str, str]) -> dict[str, str]:
    return {PREFIX + name: text for name, text in checks.items()}
