"""Index of a table's record keys.

It maps keys to file groups without opening data files. `index_of` returns the index as a `KeyIndex`. Only this package
depends on the kind of index.
"""

from __future__ import annotations

from hoodoo.index.bloom.index import BloomIndex
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Together, in_order


def index_of(store: Store, together: Together = in_order, shared: bool = False) -> KeyIndex:
    """Return the index of a table.

    There is only one kind of index. A second kind would require a table property that selects it, because callers only
    pass the store.

    Args:
        store: The store of the table.
        together: Runs the reads of one lookup. By default, they run one after the other.
        shared: True to share the caches of all indexes of `store` in this process. False gives the index its own
            caches.
    """
    return BloomIndex(store, together, shared)


__all__ = ["KeyIndex", "index_of"]
