"""Keeps the number of the newest archived slot. It is raised before slots are deleted, so that a late write under the
number of a deleted slot is noticed.
"""

from __future__ import annotations

from contextlib import suppress

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import WATERMARKS

_KIND = "slots-"


def deleted_up_to(store: Store) -> int:
    """Slots up to this one may be gone; 0 if none is."""
    return max((int(key.rpartition(_KIND)[2]) for key, _ in store.list(WATERMARKS + _KIND)), default=0)


def state_key(seq: int) -> str:
    """Key of the mark at slot `seq`; it holds the checkpoint that stands for the slots up to there, where no clean
    looks for checkpoints.
    """
    return f"{WATERMARKS}{_KIND}{seq:020d}"


def raise_to(store: Store, seq: int, checkpoint: bytes) -> None:
    """Say that slots up to `seq` are about to be deleted, and what they came to. Lower marks go: the highest counts."""
    with suppress(FileExistsError):
        store.create(state_key(seq), checkpoint)
    for key, _ in list(store.list(WATERMARKS + _KIND)):
        if int(key.rpartition(_KIND)[2]) < seq:
            store.delete(key)
