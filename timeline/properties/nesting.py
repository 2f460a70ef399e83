"""Protection against nested tables.

A table cannot be created in the folder of another table. Operations that list a whole table folder (orphan removal,
purge, rollback) skip the folders of inner tables. Otherwise they would treat files of an inner table as orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from hoodoo.errors import NestedTable, StoreDenied, StoreRefused
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import PROPERTIES

_MARK = "/.hoodie/"
_LOOKED_AT_MAX = 20_000


def require_no_outer_table(store: Store) -> None:
    for outer in store.above():
        try:
            is_table = outer.exists(PROPERTIES)
        except (StoreDenied, StoreRefused):
            continue  # without permission to read the folder, assume that it does not contain a table
        if is_table:
            raise NestedTable(
                f"Path {store.uri} is in the folder of the table {outer.uri}, but tables must not be nested. Choose a "
                "path outside of that folder, or move the outer table.",
                path=store.uri,
                outer=outer.uri,
            )


def require_no_inner_table(store: Store) -> None:
    """Check that a folder has no inner table.

    Checks at most `_LOOKED_AT_MAX` files, so an inner table among more files may stay undetected.
    """
    try:
        for key, _ in islice(store.list(""), _LOOKED_AT_MAX):
            if _MARK in key and not key.startswith(".hoodie/"):
                inner = key[: key.index(_MARK)]
                raise NestedTable(
                    f"Path {store.uri} contains another table, {inner}, but tables must not be nested. Choose another "
                    "path for the new table.",
                    path=store.uri,
                    inner=inner,
                )
    except (StoreDenied, StoreRefused):
        return  # without permission to list the folder, assume that it does not contain a table


def list_own_files(store: Store, prefix: str = "") -> Iterator[tuple[str, int]]:
    """List all files except those of inner tables."""
    inner = tuple(inner_tables(key for key, _ in store.list(prefix)))
    for key, size in store.list(prefix):
        if not key.startswith(inner):
            yield key, size


def inner_tables(keys: Iterable[str]) -> set[str]:
    return {key[: key.index(_MARK) + 1] for key in keys if _MARK in key and not key.startswith(".hoodie/")}
