"""Which file group holds a key. `index_of` gives a table's index; its door is `KeyIndex`, and nobody outside of this
room knows how a kind of index finds a key.
"""

from __future__ import annotations

from hoodoo.index.bloom.index import BloomIndex
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Together, in_order


def index_of(store: Store, together: Together = in_order, shared: bool = False) -> KeyIndex:
    """The index of the table in `store`. together: how it asks for what a look-up needs. shared: with the caches of
    everybody in this process who works on `store`, instead of caches of its own.
    """
    return BloomIndex(store, together, shared)


__all__ = ["KeyIndex", "index_of"]
