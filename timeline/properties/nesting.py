"""Tables in folders of other tables: none is made there, and what one table looks over ends where another begins.

Whoever lists a table's whole folder (a sweep, a purge, a rollback) would take the other table's files for its own
orphans.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hoodoo.errors import NestedTable, StoreDenied, StoreRefused
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import PROPERTIES

_MARK = "/.hoodie/"
_LOOKED_AT_MAX = 20_000


def require_place_of_its_own(store: Store) -> None:
    """Raise NestedTable if a folder above this table holds a table."""
    for outer in store.above():
        try:
            holds = outer.exists(PROPERTIES)
        except (StoreDenied, StoreRefused):
            continue  # who may not look there has no table there
        if holds:
            raise NestedTable(
                f"{store.uri} lies in the folder of the table {outer.uri}, which looks over all files below it. "
                "Keep tables beside each other: choose a place outside, or move this table.",
                path=store.uri,
                outer=outer.uri,
            )


def require_no_table_inside(store: Store) -> None:
    """Raise NestedTable if a folder below the path of a new table holds a table: its next write would be refused.

    At most `_LOOKED_AT_MAX` files are looked at; a table may be created above more of them.
    """
    try:
        for key, _ in islice(store.list(""), _LOOKED_AT_MAX):
            if _MARK in key and not key.startswith(".hoodie/"):
                inner = key[: key.index(_MARK)]
                raise NestedTable(
                    f"The folder {store.uri} has a table below it, in {inner}. Keep tables beside each other: choose "
                    "another place for the new one.",
                    path=store.uri,
                    inner=inner,
                )
    except (StoreDenied, StoreRefused):
        return  # who may not look there has no table there


def own_keys(store: Store, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(key, bytes) of everything below `prefix` in the table's folder but what belongs to tables in folders of it."""
    inner = tuple(_inner_tables(store, prefix))
    for key, size in store.list(prefix):
        if not key.startswith(inner):
            yield key, size


def _inner_tables(store: Store, prefix: str) -> set[str]:
    """Folders of tables below this one, ending in /."""
    others = (key for key, _ in store.list(prefix) if _MARK in key and not key.startswith(".hoodie/"))
    return {key[: key.index(_MARK) + 1] for key in others}
