"""Which file group holds a key. `index_of` gives a table's index; its door is `KeyIndex`, and nobody outside of this
room knows how a kind of index finds a key.
"""

from __future__ import annotations

from hoodoo.index.bloom.index import BloomIndex
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store


def index_of(store: Store) -> KeyIndex:
    """The index of the table in `store`, with caches of its own."""
    return BloomIndex(store)


__all__ = ["KeyIndex", "index_of"]
