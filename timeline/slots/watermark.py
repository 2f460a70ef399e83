"""Watermark: the number of the newest archived slot.

It is raised before slots are deleted, so that a late write with the number of a deleted slot is detected.
"""

from __future__ import annotations

from contextlib import suppress

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import WATERMARKS

_KIND = "slots-"


def deleted_up_to(store: Store) -> int:
    """Return the newest slot that may be deleted, like all slots before it. 0 if no slot was archived."""
    return max((int(key.rpartition(_KIND)[2]) for key, _ in store.list(WATERMARKS + _KIND)), default=0)


def state_key(seq: int) -> str:
    """Return the key of the watermark at slot `seq`.

    The file contains a checkpoint that replaces the slots up to `seq`. The deletion of old checkpoints does not affect
    it.
    """
    return f"{WATERMARKS}{_KIND}{seq:020d}"


def raise_to(store: Store, seq: int, checkpoint: bytes) -> None:
    """Raise the watermark to `seq` before deleting slots. Deletes lower watermarks.

    checkpoint: the encoded checkpoint of the state at `seq`.
    """
    with suppress(FileExistsError):
        store.create(state_key(seq), checkpoint)
    for key, _ in list(store.list(WATERMARKS + _KIND)):
        if int(key.rpartition(_KIND)[2]) < seq:
            store.delete(key)
