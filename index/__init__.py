"""Index of a table, which finds the file group of a record key without opening data files.

`index_of` returns the index as a `KeyIndex`. Only this package knows how an index finds a key.
"""

from __future__ import annotations

from hoodoo.index.bloom.index import BloomIndex
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Together, in_order


def index_of(store: Store, together: Together = in_order, shared: bool = False) -> KeyIndex:
    """Return the index of a table, which finds the file group of a record key.

    There is only one kind of index. A second kind would need a way to choose, such as a table property, because callers
    only pass the store.

    Args:
        store: The store of the table.
        together: Runs the reads of one lookup. By default, they run one after the other.
        shared: True to share the caches of all indexes of `store` in this process. False gives the index its own
            caches.
    """
    return BloomIndex(store, together, shared)


__all__ = ["KeyIndex", "index_of"]
