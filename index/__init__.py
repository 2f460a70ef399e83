"""Finds the file group that holds a key. `index_of` returns a table's index, a `KeyIndex`; no other package knows how a
kind of index finds a key.
"""

from __future__ import annotations

from hoodoo.index.bloom.index import BloomIndex
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Together, in_order


def index_of(store: Store, together: Together = in_order, shared: bool = False) -> KeyIndex:
    """Return the index of a table.

    There is one kind of index so far. A second one needs something to choose by first, such as a property of the table:
    the store is all that the callers hand over.

    Args:
        store: The store of the table.
        together: Runs the reads of one look-up, by default one after the other.
        shared: Share the caches of all indexes of `store` in this process; otherwise the index has caches of its own.
    """
    return BloomIndex(store, together, shared)


__all__ = ["KeyIndex", "index_of"]
