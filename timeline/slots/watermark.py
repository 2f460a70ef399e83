"""Watermark, which is the number of the newest archived commit.

The watermark is raised before slots are deleted, so that a late write with the number of a deleted slot is detected.
"""

from __future__ import annotations

from contextlib import suppress

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import WATERMARKS

_KIND = "slots-"


def deleted_up_to(store: Store) -> int:
    return max((int(key.rpartition(_KIND)[2]) for key, _ in store.list(WATERMARKS + _KIND)), default=0)


def archive_checkpoint_path(seq: int) -> str:
    """Return the path of the checkpoint for archived commits.

    The file contains a checkpoint that replaces the slots up to `seq`. Deleting old checkpoints does not affect this
    file.
    """
    return f"{WATERMARKS}{_KIND}{seq:020d}"


def record_archived_commits(store: Store, seq: int, checkpoint: bytes) -> None:
    """Record which commits are archived.

    This happens before their files are deleted. `checkpoint` is the encoded checkpoint of slot `seq`, which replaces
    the archived slots.
    """
    with suppress(FileExistsError):
        store.create(archive_checkpoint_path(seq), checkpoint)
    for key, _ in list(store.list(WATERMARKS + _KIND)):
        if int(key.rpartition(_KIND)[2]) < seq:
            store.delete(key)
