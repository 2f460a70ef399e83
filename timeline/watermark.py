"""Up to which slot the sequence was archived. Raised before slots are deleted, so that a write that lands in the place of a deleted slot is found out."""

from __future__ import annotations

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import WATERMARKS

_KIND = "slots-"


def deleted_up_to(store: Store) -> int:
    """Slots up to this one may be gone; 0 if none is."""
    return max((int(key.rpartition(_KIND)[2]) for key, _ in store.list(WATERMARKS + _KIND)), default=0)


def raise_to(store: Store, seq: int) -> None:
    """Say that slots up to `seq` are about to be deleted. Lower marks go: the highest counts."""
    store.write_once(f"{WATERMARKS}{_KIND}{seq:020d}", b"")
    for key, _ in list(store.list(WATERMARKS + _KIND)):
        if int(key.rpartition(_KIND)[2]) < seq:
            store.delete(key)
