"""Set of the keys that a commit inserted or deleted.

Small sets are stored in the slot, and large sets in a separate file. For the keys of new base files, the slot refers to
the index entries of the files, so that keys are not stored twice. A hash collision can only cause a retry.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import numpy as np

from hoodoo.errors import CorruptTable
from hoodoo.format.names import require_path_in_folders
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.layout import INDEX, KEYS, STAGING

INLINE_MAX = 4096
Reference = dict[str, str]


def reference_to_index_keys(index_key: str) -> Reference:
    return {"index": index_key}


def save_key_hashes(store: Store, name: str, hashes: np.ndarray, folder: str = KEYS) -> tuple[Reference, ...]:
    """Save the key hashes of a commit.

    Returns references to them. A set of up to 4,096 hashes is stored in the reference itself. A larger set is written
    as the file `name` in `folder`.
    """
    if not len(hashes):
        return ()
    data = np.unique(hashes).astype("<u8").tobytes()
    if len(hashes) <= INLINE_MAX:
        return ({"inline": base64.b64encode(data).decode()},)
    key = f"{folder}{name}"
    store.write_once(key, data)
    return ({"file": key, "digest": digest(data)},)


def load(store: Store, references: Iterable[Reference], of_entry: Callable[[str], np.ndarray]) -> np.ndarray:
    parts = [_load(store, reference, of_entry) for reference in references]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _load(store: Store, reference: Reference, of_entry: Callable[[str], np.ndarray]) -> np.ndarray:
    if "index" in reference:
        return of_entry(require_path_in_folders(reference["index"], INDEX))
    if "inline" in reference:
        data = base64.b64decode(reference["inline"])
    else:
        try:
            data = store.get(require_path_in_folders(reference["file"], KEYS, STAGING))
        except FileNotFoundError:
            raise CorruptTable(
                f"Key set file {reference['file']} is missing. Restore the file from a backup.", file=reference["file"]
            ) from None
        if digest(data) != reference.get("digest"):
            raise CorruptTable(
                f"Key set file {reference['file']} is damaged: its digest does not match. Restore it from a backup.",
                file=reference["file"],
            )
    return np.frombuffer(data, "<u8").astype(np.uint64)


def intersect(left: np.ndarray, right: np.ndarray) -> bool:
    if not len(left) or not len(right):
        return False
    small, large = (left, right) if len(left) < len(right) else (right, left)
    positions = np.minimum(np.searchsorted(large, small), len(large) - 1)
    return bool((large[positions] == small).any())
