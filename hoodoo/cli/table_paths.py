"""Paths and path patterns of tables on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hoodoo.errors import TableNotFound
from hoodoo.redact import printable
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline.layout import PROPERTIES

_WILDCARD = re.compile(r"[*?[]")


def expand_path_patterns(paths: Sequence[str], storage: Mapping[str, str] | None) -> list[str]:
    """Expand path patterns to the paths of matching tables.

    `*`, `?` and `[...]` match folder names, as in a shell. Folders that are not tables are skipped.

    Raises:
        TableNotFound: A pattern matches no table.
    """
    found: dict[str, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_matches(path, storage) if _WILDCARD.search(path) else [path]))
    return list(found)


def _matches(pattern: str, storage: Mapping[str, str] | None) -> list[str]:
    if _is_table(pattern, storage):  # the name of the table contains a wildcard
        return [pattern]
    parts = pattern.split("/")
    start = next(index for index, part in enumerate(parts) if _WILDCARD.search(part))
    folders = ["".join(f"{part}/" for part in parts[:start])]
    for part in parts[start:]:
        folders = [
            f"{folder}{name}/"
            for folder in folders
            for name in open_store(folder or ".", storage).folders()
            if fnmatchcase(name, part) and name.startswith(".") == part.startswith(".")
        ]
    tables = [folder[:-1] for folder in folders if _is_table(folder, storage)]
    if not tables:
        raise TableNotFound(
            f"No table matches {printable(pattern)}. Quote the pattern, and check its folder.", path=pattern
        )
    return tables


def _is_table(path: str, storage: Mapping[str, str] | None) -> bool:
    return open_store(path, storage).exists(PROPERTIES)
